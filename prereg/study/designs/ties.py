"""Tie-breakers that decide: claims and decision lines written from `tie_breakers: {between, tie, order}`.

    decision:
      - {verdict: adopt layernorm, when: "supported(gain)"}
      - {verdict: tie, when: "supported(same)"}
      - {verdict: inconclusive}
    tie_breakers:
      between: [layernorm, none]
      order:
        - {metric: calibration/ece, smallest: 0.005}
        - {metric: speed/tokens_per_s, smallest: 2%}

For each metric two hypotheses of the role `tie_breaker` are written, one in favour of each arm, better by at least the
margin. Their lines are put before the line of the verdict `tie`, under its condition and the support of the claim, so
that the first metric that shows a difference decides, and the line of the tie holds where none does. From then on they
are hypotheses and lines like any other.

They are written when the study is read, and a lock holds them next to `tie_breakers`; `check_ties` writes them once
more, so that one cannot be changed without the other. A list of metrics in place of the mapping describes and writes
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isclose
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from prereg.errors import RuleError, SpecError, field_error, nearest
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Better
from prereg.rule.condition import AnyOf, Groups, parse_condition
from prereg.study.analysis import Hypothesis, Read, Role
from prereg.study.claim import percent_of
from prereg.study.designs import percent
from prereg.study.faults import read_model
from prereg.study.measure import Name, own_better
from prereg.text import listed

if TYPE_CHECKING:
    from prereg.rule.rule import DecisionLine
    from prereg.study.spec import Study

ROLE: Role = "tie_breaker"
_PLACE = "tie_breakers"
_LONGEST = 80
_AGREE = 1e-9


class TieBreaker(FrozenModel):
    """A metric that breaks a tie."""

    metric: str
    """The metric."""
    smallest: Annotated[float, Field(gt=0.0)] | Annotated[str, Field(pattern=r"^([0-9]+\.?[0-9]*|\.[0-9]+)%$")]
    """The difference that must be shown, in the metric's own unit or in percent; above 0."""
    read: Read = "final"
    """Where on its curve the metric is read, as of a hypothesis."""
    better: Better | None = None
    """Which way the metric improves, where this tool does not know it."""


class TieBreakers(FrozenModel):
    """What decides between two arms whose primary outcome is a tie."""

    between: tuple[Name, Name]
    """The two arms."""
    tie: str = "tie"
    """The verdict of the line of the decision that says when the outcome is a tie. The lines of the tie-breakers are
    written before it, and it is the verdict where none of them shows a difference."""
    order: Annotated[tuple[TieBreaker, ...], Field(min_length=1)]
    """Metrics, in the order in which they are read; the first that shows a difference decides."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.between)) < 2:
            raise field_error((_PLACE, "between"), f"'{self.between[0]}' twice", "two arms")
        metrics = [one.metric for one in self.order]
        twice = next((one for at, one in enumerate(metrics) if one in metrics[:at]), None)
        if twice is not None:
            raise field_error((_PLACE, "order"), f"{twice} comes twice", "each metric once")
        return self

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The names of the two hypotheses of each metric, in favour of the first and of the second arm."""
        found = []
        for number, one in enumerate(self.order, start=1):
            metric = re.sub(r"[^A-Za-z0-9]+", "_", one.metric).strip("_")
            names = [f"{arm}_by_{metric}" for arm in self.between]
            if max(map(len, names)) > _LONGEST:
                names = [f"tie_breaker_{number}_{side}" for side in ("first", "second")]
            found.append((names[0], names[1]))
        return tuple(found)

    def opposite(self, name: str) -> str:
        """The hypothesis in favour of the other arm on the same metric."""
        return next(two if name == one else one for one, two in self.pairs() if name in (one, two))

    def hypotheses(self, known: Mapping[str, Better]) -> dict[str, dict[str, Any]]:
        """The claims as a file would say them; `known`: which way the study's own metrics improve. Raises `SpecError`
        where nothing says which way a metric improves."""
        found: dict[str, dict[str, Any]] = {}
        for number, (one, names) in enumerate(zip(self.order, self.pairs(), strict=True)):
            declared = METRICS.get(one.metric) or TASK_METRICS.get(one.metric)
            better = one.better or known.get(one.metric) or ("neither" if declared is None else declared.better)
            if better == "neither":
                raise field_error(
                    (_PLACE, "order", number, "better"),
                    f"nothing says which way {one.metric} improves",
                    "better: lower, or better: higher",
                    "better: lower",
                )
            verb, by = "lowers" if better == "lower" else "raises", _number(one.smallest)
            for name, arm, other in zip(names, self.between, reversed(self.between), strict=True):
                found[name] = {"claim": f"{arm} {verb} {one.metric} by at least {by} than {other}", "role": ROLE}
                found[name] |= {"read": one.model_dump(mode="json")["read"], "better": one.better}
        return found

    def lines(self, when: str, groups: Groups) -> list[dict[str, str]]:
        """The lines of the decision, under the condition of the tie; `groups`: the families that it can ask about."""
        condition = " ".join(when.split())
        parsed = parse_condition(condition, groups)
        # `any supported(F)` is one question as it is written, and an `or` only in meaning.
        tied = f"({condition})" if isinstance(parsed, AnyOf) and parsed.over is None else condition
        return [
            {"verdict": f"{arm} (tie broken by {one.metric})", "when": f"{tied} and supported({name})"}
            for one, names in zip(self.order, self.pairs(), strict=True)
            for arm, name in zip(self.between, names, strict=True)
        ]


def with_ties(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Plain data of a study with the claims and lines that its tie-breakers leave to this module.

    Raises `SpecError` where they cannot be written, or clash with others of the study.
    """
    raw, hypotheses, decision = (document.get(field) for field in (_PLACE, "hypotheses", "decision"))
    if not isinstance(raw, dict):
        return document
    ties = read_model(TieBreakers, raw, within=(_PLACE,))
    if not isinstance(hypotheses, dict) or not isinstance(decision, list):
        return document
    made = ties.hypotheses(own_better(document))
    written = [name for name in made if name in hypotheses]
    if len(written) == len(made):
        return document
    if written:
        raise _clash(written[0])
    verdicts = [line.get("verdict") if isinstance(line, dict) else None for line in decision]
    at = _line_of_the_tie(ties, verdicts, [isinstance(one, dict) and bool(one.get("when")) for one in decision])
    try:
        lines = ties.lines(str(decision[at]["when"]), _families(hypotheses))
    except RuleError as error:
        raise error.at(field=("decision", at, "when")) from None
    return {**document, "hypotheses": {**hypotheses, **made}, "decision": [*decision[:at], *lines, *decision[at:]]}


def check_ties(study: Study) -> None:
    """Raise `SpecError` where tie-breakers do not fit the arms, or claims and lines are not those that they write."""
    ties, written = study.tie_breakers, dict[str, dict[str, Any]]()
    if isinstance(ties, TieBreakers):
        for at, arm in enumerate(ties.between):
            if arm not in study.arms:
                required = "one of " + ", ".join(study.arms)
                raise field_error(
                    (_PLACE, "between", at), f"'{arm}' is not a variant", required, nearest(arm, study.arms)
                )
        written = ties.hypotheses({one.name: one.better for one in study.measure.own})
        _check_lines(ties, study.decision, study.task_families)
    for name, hypothesis in study.hypotheses.items():
        if hypothesis.role == ROLE and name not in written:
            raise field_error(
                ("hypotheses", name, "role"),
                f"'{name}' has the role {ROLE}",
                "another role: hypotheses of this one are written from tie_breakers",
                "role: secondary",
            )
    for name, made in percent.resolved(written, study.measure).items():
        wanted, here = Hypothesis.model_validate_json(json.dumps(made)), study.hypotheses.get(name)
        same = here is not None and isclose(here.smallest, wanted.smallest, rel_tol=_AGREE)
        if here is None or not same or here.model_copy(update={"smallest": wanted.smallest}) != wanted:
            raise _clash(name)


def placed(error: SpecError, ties: object, lines: Sequence[Any]) -> SpecError:
    """An error of a written claim or line, placed where the file says what it is written from; any other as it is."""
    if not isinstance(ties, TieBreakers):
        return (
            placed(error, read_model(TieBreakers, ties, within=(_PLACE,)), lines) if isinstance(ties, dict) else error
        )
    field = error.where.field
    if field[:1] == ("hypotheses",) and len(field) > 1:
        at = next((number for number, names in enumerate(ties.pairs()) if field[1] in names), None)
        return error if at is None else error.at(field=(_PLACE, "order", at))
    if field[:1] == ("decision",) and len(field) > 1 and isinstance(field[1], int):
        verdicts = [line.get("verdict") if isinstance(line, Mapping) else line.verdict for line in lines]
        written, end = 2 * len(ties.order), verdicts.index(ties.tie)
        # What is wrong with a written line is wrong with the condition of the tie.
        in_file = field[1] if field[1] < end - written else max(field[1], end) - written
        return error.at(field=("decision", in_file, *field[2:]))
    return error


def in_words(study: Study) -> str:
    """How ties are broken, in a sentence; nothing where tie-breakers do not decide."""
    ties = study.tie_breakers
    if not isinstance(ties, TieBreakers):
        return ""
    first, second = ties.between
    order = listed(f"{one.metric} by at least {_number(one.smallest)}" for one in ties.order)
    return (
        f"Where the outcome is a tie ({study.decision[line_of_the_tie(study)].when}), the first of these metrics that "
        f"shows {first} or {second} to be better decides: {order}; where none does, the verdict is '{ties.tie}'."
    )


def line_of_the_tie(study: Study) -> int:
    """Index of the line of the decision that says when the outcome is a tie."""
    assert isinstance(study.tie_breakers, TieBreakers), study.study
    return _line_of_the_tie(
        study.tie_breakers, [line.verdict for line in study.decision], [bool(line.when) for line in study.decision]
    )


def _families(hypotheses: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The families of plain data, which lines `per: task` have been written out to by now."""
    found: dict[str, tuple[str, ...]] = {}
    for name, one in hypotheses.items():
        family = one.get("family") if isinstance(one, Mapping) else None
        if isinstance(family, str):
            found[family] = (*found.get(family, ()), name)
    return found


def _check_lines(ties: TieBreakers, decision: Sequence[DecisionLine], groups: Groups) -> None:
    at = _line_of_the_tie(ties, [line.verdict for line in decision], [bool(line.when) for line in decision])
    wanted = ties.lines(decision[at].when or "", groups)
    here = [line.model_dump() for line in decision[max(0, at - len(wanted)) : at]]
    if here != wanted:
        raise field_error(
            (_PLACE,),
            "the lines of the decision before that of the tie are not those that tie_breakers write",
            "the lines that they write, right before it",
        )


def _line_of_the_tie(ties: TieBreakers, verdicts: Sequence[Any], conditional: Sequence[bool]) -> int:
    found = [at for at, verdict in enumerate(verdicts) if verdict == ties.tie]
    if len(found) != 1 or not conditional[found[0]]:
        times = "no line" if not found else "more than one line" if len(found) > 1 else "a line without a condition"
        raise field_error(
            (_PLACE, "tie"),
            f"{times} of the decision has the verdict '{ties.tie}'",
            "one line of that verdict, whose condition says when the outcome is a tie",
            f'decision: [..., {{verdict: {ties.tie}, when: "supported(same)"}}, ...]',
        )
    return found[0]


def _clash(name: str) -> SpecError:
    return field_error(
        ("hypotheses", name),
        f"tie_breakers write a hypothesis '{name}', and the study holds another one of that name or lacks it",
        "hypotheses of other names next to those that tie_breakers write",
        f"rename '{name}'",
    )


def _number(smallest: float | str) -> str:
    """The margin as a claim says it."""
    if isinstance(smallest, str):
        assert percent_of(smallest) is not None, smallest
        return smallest
    return repr(smallest).removesuffix(".0")
