"""A finding in one plain sentence: what, by how much, how sure, from how many, by which method.

It never says "no effect" for a p above alpha, and never writes a p of 0.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, log10

from ablate.judge.estimate import words
from ablate.judge.readings import reading_of
from ablate.judge.verdict import Estimate, Interval, ItemLayout, Outcome
from prereg.analysis import Analysis, EProcess, Looks
from prereg.claim import Claim, Verb
from prereg.spec import Study
from prereg.words import side, unit_of

_PLAIN: dict[Verb, str] = {
    "lowers_by": "lower",
    "raises_by": "raise",
    "lowers": "lower",
    "raises": "raise",
    "changes": "change",
    "does_not_worsen": "worsen",
    "does_not_change": "change",
}


def said_p(p: float) -> str:
    """A p value as `= .0004` or `< .0001`."""
    if p < 0.0001:
        return "< .0001"
    shown = f"{p:.4f}" if p < 0.01 else f"{p:.3f}"
    return "= " + (shown.lstrip("0") if p < 0.9995 else "1")


def sentence(
    study: Study, name: str, *, outcome: Outcome, estimate: Estimate | None, adjusted: float | None, reason: str
) -> str:
    """The finding of one hypothesis; `adjusted` is the corrected p of the null that was rejected, or of support."""
    hypothesis, claim = study.hypotheses[name], study.claims[name]
    if estimate is None:
        claim = replace(claim, metric=reading_of(study, name))
        return f"Whether {_asked(claim)} cannot be tested: {reason}."
    unit = unit_of(claim.metric, hypothesis.scale, study.own_units)
    claim = replace(claim, metric=reading_of(study, name))
    unit = f" {unit}" if unit else ""
    matters = f"smallest that matters {hypothesis.smallest:g}"
    flip = outcome == "supported" and claim.verb == "lowers"
    evidence = _evidence(study, name, estimate, adjusted, flip=flip, outcome=outcome)
    plain = outcome == "supported" and claim.verb in ("lowers", "raises")
    if estimate.difference is None:
        head = f"{side(claim.left)} {claim.verb} {claim.metric}{_than(study, claim)}" if plain else None
        head = head or _head(claim, outcome, hypothesis.smallest, unit)
        return f"{head}; runs diverged, so no difference can be stated ({evidence}); {matters}."
    by_how_much = _number(-estimate.difference if flip else estimate.difference, estimate)
    if plain:
        return (
            f"{side(claim.left)} {claim.verb} {claim.metric}{_than(study, claim)} by "
            f"{by_how_much}{unit} ({evidence}); {matters}."
        )
    head = _head(claim, outcome, hypothesis.smallest, unit)
    return f"{head}: {side(claim.left)} minus {side(claim.right)} is {by_how_much}{unit} ({evidence}); {matters}."


def _head(claim: Claim, outcome: Outcome, smallest: float, unit: str) -> str:
    return {
        "supported": _held(claim, smallest, unit),
        "refuted": _denied(claim, smallest, unit),
        "inconclusive": f"Whether {_asked(claim)} is undecided",
    }[outcome]


def _held(claim: Claim, smallest: float, unit: str) -> str:
    left = side(claim.left)
    if claim.verb == "changes":
        return f"{left} changes {claim.metric}"
    if claim.by is not None:
        return f"{left} {claim.plain_verb} {claim.metric} by at least {smallest:g}{unit}"
    return f"{left} does not {_PLAIN[claim.verb]} {claim.metric} by {smallest:g}{unit}"


def _denied(claim: Claim, smallest: float, unit: str) -> str:
    left = side(claim.left)
    if claim.verb.startswith("does_not"):
        return f"{left} {_PLAIN[claim.verb]}s {claim.metric}"
    amount = f" by {smallest:g}{unit} or more" if smallest > 0 else ""
    return f"{left} does not {_PLAIN[claim.verb]} {claim.metric}{amount}"


def _asked(claim: Claim) -> str:
    verb = claim.plain_verb if not claim.verb.startswith("does_not") else f"{_PLAIN[claim.verb]}s"
    least = "" if claim.by is None else f" by at least {claim.by:g}"
    return f"{side(claim.left)} {verb} {claim.metric}{least}"


def _than(study: Study, claim: Claim) -> str:
    right = side(claim.right)
    return "" if right == study.baseline else f" against {right}"


def _evidence(
    study: Study, name: str, estimate: Estimate, adjusted: float | None, *, flip: bool, outcome: Outcome
) -> str:
    parts = []
    if estimate.interval is not None:
        parts.append(_bounds(estimate.interval, estimate, flip=flip, kind=_kind_of_interval(study)))
    tested = "t-test e-process" if isinstance(study.stopping, EProcess) else words(study.analysis.test)
    if estimate.ranked:
        shown = "" if estimate.difference is None else "; the difference is Hodges and Lehmann's"
        tested = f"signed ranks, diverged runs ranked worst in {estimate.ranked} of {estimate.n} pairs{shown}"
    parts += [tested, f"n = {estimate.n} seeds"] if estimate.items is None else _over_items(estimate, estimate.items)
    if adjusted is not None:
        family = len(study.family(study.hypotheses[name].role))
        parts.append(_said_correction(study.analysis, family, adjusted, outcome))
    return ", ".join(parts)


def _over_items(estimate: Estimate, items: ItemLayout) -> list[str]:
    """The test over seeds and items: which, over how many of both, and of what it speaks."""
    count = f"{items.n_units:,} {items.unit if items.n_units > 1 else items.unit[:-1]}"
    if items.unit == "tasks":
        count += f" ({items.n_items:,} items)"
    if items.estimand == "new_seeds":
        return [
            f"paired t over {estimate.n} seeds on their means of {count}",
            f"df {estimate.df:.4g}",
            f"for new seeds on these {items.unit}",
        ]
    units = f"{items.n_units - 1:,} over {items.unit}"
    if items.effective is not None:
        units = f"exact over {items.effective:.3g} effective tasks"
    return [
        f"two-way t over {estimate.n} seeds x {count}",
        f"df {estimate.n - 1} over seeds and {units}",
        f"for new seeds and new {items.unit}",
    ]


def _said_correction(analysis: Analysis, family: int, adjusted: float, outcome: Outcome) -> str:
    against = {"supported": "", "refuted": " for the refutation", "inconclusive": " for support"}[outcome]
    if analysis.correct != "none" and family > 1:
        named = "Holm" if analysis.correct == "holm" else "max-T"
        return f"{named} p {said_p(adjusted)} over {family}{against}"
    return f"p {said_p(adjusted)}{against}"


def _kind_of_interval(study: Study) -> str:
    """A sequential study's intervals are not the ordinary ones, and are named."""
    if study.stopping == "fixed":
        return "CI"
    return "repeated CI" if isinstance(study.stopping, Looks) else "anytime-valid CI"


def _bounds(interval: Interval, estimate: Estimate, *, flip: bool, kind: str) -> str:
    assert interval.low is not None and interval.high is not None, interval
    low, high = (-interval.high, -interval.low) if flip else (interval.low, interval.high)
    return f"{100 * interval.level:.6g}% {kind} {_number(low, estimate)} to {_number(high, estimate)}"


def _number(value: float, estimate: Estimate) -> str:
    """As many decimals as the interval deserves: three significant digits of its width."""
    interval = estimate.interval
    width = 0.0 if interval is None or interval.low is None or interval.high is None else interval.high - interval.low
    if width <= 0.0:
        return f"{value:.4g}"
    decimals = max(0, 2 - floor(log10(width)))
    if decimals > 8 or (decimals == 0 and abs(value) >= 1e7):
        return f"{value:.4g}"
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0.0 else text
