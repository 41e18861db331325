"""Margins in percent: `smallest: 2%` and `by at least 2%` become margins on the natural logarithm when a study is read.

A percentage is a ratio of two values, and a ratio is a difference of logarithms. By the direction of the claim:

    lowers, by 2%            a ratio of at most 0.98: a difference of -log(0.98)
    raises, by 2%            a ratio of at least 1.02: a difference of log(1.02)
    does_not_worsen, by 2%   the same in the direction of worse
    changes, does_not_change within a factor of 1.02 either way: log(1.02), the smaller of the two logarithms

The percentage stays next to the margin, for the reader; the margin on its scale is what is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from prereg.errors import ClaimError, FieldPath, field_error
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Better
from prereg.study.claim import Claim, log_margin, parse_claim, percent_of
from prereg.study.macros import Document, Written
from prereg.study.measure import own_better
from prereg.text import compact

_AGREE = 1e-9
"""Logarithms of two machines may differ in their last digit."""


def written_for_percentages(document: Document) -> Iterator[Written]:
    """The margin, `scale: log` and `percent` of every hypothesis with a percentage. Raises `StudyError`.

    What is no mapping, or has no percentage, is left to the models of the fields.
    """
    hypotheses, own = document.get("hypotheses"), own_better(document)
    for name, one in hypotheses.items() if isinstance(hypotheses, Mapping) else ():
        for field, value in _resolved(str(name), one, own).items() if isinstance(one, Mapping) else ():
            place = ("hypotheses", str(name), field)
            yield Written(place, value, place, "sets")


def _resolved(name: str, one: Mapping[str, Any], own: Mapping[str, Better]) -> dict[str, Any]:
    place: FieldPath = ("hypotheses", name)
    text, smallest, percent = one.get("claim"), one.get("smallest"), one.get("percent")
    written = percent_of(smallest) if isinstance(smallest, str) else None
    if not isinstance(text, str) or (isinstance(smallest, str) and written is None):
        return {}
    if percent is not None and type(percent) not in (int, float):
        return {}
    if written is None and percent is None and "%" not in text:
        return {}
    try:
        claim = parse_claim(text, baseline="")
    except ClaimError as error:
        raise error.at(field=(*place, "claim")) from None
    wanted = next((value for value in (claim.percent, written, percent) if value is not None), None)
    if wanted is None:  # a percent sign in a name
        return {}
    _refuse_contradictions(place, one, claim, wanted, (written, percent))
    known = METRICS.get(claim.metric) or TASK_METRICS.get(claim.metric)
    better = one.get("better") or own.get(claim.metric) or ("neither" if known is None else known.better)
    falls = claim.plain_verb == "lowers" or (claim.verb == "does_not_worsen" and better == "higher")
    if not 0.0 < wanted < (100.0 if falls else 1e6):
        required = "more than 0%" + (", and less than 100%: nothing falls by all of itself" if falls else "")
        field = "smallest" if written is not None else "claim"
        raise field_error((*place, field), f"a margin of {wanted:g}%", required, "smallest: 2%")
    margin = log_margin(wanted, falls=falls)
    if not isinstance(smallest, str) and smallest is not None:
        if not isinstance(smallest, int | float) or not isclose(smallest, margin, rel_tol=_AGREE):
            found = f"smallest is {smallest} and the margin is {wanted:g}%, which is {compact(margin)} on the logarithm"
            fix = f"smallest: {wanted:g}%" if claim.percent is None else "leave smallest out"
            raise field_error((*place, "smallest"), found, "one margin", fix)
        margin = smallest
    return {"smallest": margin, "scale": "log", "percent": wanted}


def _refuse_contradictions(
    place: FieldPath, one: Mapping[str, Any], claim: Claim, wanted: float, others: tuple[float | None, ...]
) -> None:
    """One percentage, and the scale that it has a meaning on."""
    for other in others:
        if other is not None and other != wanted:
            raise field_error(
                (*place, "smallest"),
                f"smallest is {other:g}% and the claim says 'by at least {claim.percent:g}%'",
                "one number: of a claim 'by at least D' the smallest difference that matters is D",
                "leave smallest out",
            )
    if one.get("scale", "log") != "log":
        raise field_error(
            (*place, "scale"),
            f"scale is '{one['scale']}' and the margin is {wanted:g}%",
            "scale: log, or none: a percentage is a ratio, and a ratio is a difference of logarithms",
            "leave scale out, or write the margin in the metric's own unit",
        )
