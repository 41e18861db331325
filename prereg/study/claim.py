"""The claim language: one sentence that says which arms differ in which metric, and which way.

    claim := side VERB METRIC [ 'by' 'at' 'least' NUMBER ] [ 'than' side ]
           | side 'lowers' METRIC 'below' NUMBER [ 'by' 'at' 'least' NUMBER ]
           | side 'raises' METRIC 'above' NUMBER [ 'by' 'at' 'least' NUMBER ]
           | 'trend' '(' [ 'log2' | 'log10' ] FACTOR ')' VERB METRIC [ 'by' 'at' 'least' NUMBER ]
    side  := NAME | GROUP | '(' term { ('+' | '-') term } ')' | 'mean' '(' NAME ',' NAME { ',' NAME } ')'
    term  := [ NUMBER '*' ] ( NAME | GROUP )
    VERB  := lowers | raises | changes | does_not_worsen | does_not_change

`lowers` and `raises` alone claim a direction: any effect that is not zero supports them. With `by at least D` they
claim an effect of D or more (superiority by a margin), which is what most readers take "A lowers M" with a smallest
difference that matters to mean; inside the tool these are the verbs `lowers_by` and `raises_by`.

NUMBER after `by at least` may be a percentage: the margin is then a ratio, and the claim is on the natural logarithm
(`prereg.study.designs.percent`).

`below` and `above` compare with a constant: the weights of the left side then sum to one, and the right side has no
arm. The claim is one-sided (inside the tool `lowers_below` and `raises_above`, or `_by` with a least effect).

`trend(rate)` is the slope of the arms over the values of a factor (`prereg.study.designs.sides`, which gives it its
weights: they sum to zero); it has no right side, and the effect is per unit of the value, or of its logarithm.

Without `than`, the other side is the study's baseline. A claim resolves to weights over arms that
sum to zero; the effect is always the left side minus the right side. `mean(a, b, c)` weighs its arms equally, and
`(0.5*a + 0.5*b)` is the mean of two. `+` and `-` stand between spaces, because names of arms may contain hyphens. A
GROUP is the mean of the arms that a factorial of `components` groups: `with:PART`, `without:PART`
(`prereg.study.designs.components`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf, log1p
from typing import Literal, get_args

from prereg.errors import ClaimError
from prereg.metrics.catalogue import Better
from prereg.study.designs.sides import Side, Trend, read_side, words_of
from prereg.study.labels import NO_LABELS, Labels
from prereg.text import compact, side

PlainVerb = Literal["lowers", "raises", "changes", "does_not_worsen", "does_not_change"]
Verb = Literal[
    "lowers",
    "raises",
    "changes",
    "does_not_worsen",
    "does_not_change",
    "lowers_by",
    "raises_by",
    "lowers_below",
    "raises_above",
]
VERBS: tuple[PlainVerb, ...] = get_args(PlainVerb)
"""What a study can write."""

MEANS_OF_VERBS: Mapping[str, str] = {
    "lowers, raises": "the metric is lower, or higher: any effect that way supports it, and ruling out an effect of "
    "`smallest` that way refutes it",
    "lowers, raises ... by at least D": "the effect that way is D or more (superiority by a margin)",
    "lowers ... below C, raises ... above C": "the mean of the arm lies beyond the constant C; one-sided",
    "changes": "there is an effect, either way",
    "does_not_worsen": "any harm is smaller than `smallest` (non-inferiority); the metric needs a direction",
    "does_not_change": "any effect, either way, is smaller than `smallest` (equivalence)",
}
"""What each verb claims, for the documentation."""

BEYOND: dict[PlainVerb, str] = {"lowers": "below", "raises": "above"}
"""The word before a constant, by verb."""


@dataclass(frozen=True)
class Claim:
    """A claim, parsed: the effect is the sum of weight x value over arms."""

    verb: Verb
    metric: str
    left: Mapping[str, float]
    right: Mapping[str, float]
    by: float | None = None
    """The least effect that is claimed, of `lowers_by` and `raises_by`."""
    better: Better = "neither"
    """Which way the metric improves, as far as the study or the catalogue says; filled in by `Study.claims`."""
    left_as_written: str = ""
    """The left side where the study writes it by a function of arms, such as `mean(a, b)`."""
    right_as_written: str = ""
    """The right side likewise."""
    trend: Trend | None = None
    """The slope that the left side is; without a study's factors it has no weights."""
    percent: float | None = None
    """The margin in percent, where the study writes it so; `by`, and `smallest`, are then on the natural logarithm."""
    constant: float | None = None
    """What the left side is compared with where it is no arm, on the metric's own scale."""
    labels: Labels = NO_LABELS
    """What people read in place of the ids of arms and metrics; filled in by `Study.claims`."""

    @property
    def is_paired(self) -> bool:
        """Whether each seed gives two sides that are compared; else it gives one number."""
        return bool(self.right)

    @property
    def left_side(self) -> str:
        """The left side as a reader would write it."""
        return self.labels.in_claim(self.left_as_written or side(self.left))

    @property
    def right_side(self) -> str:
        """The right side as a reader would write it."""
        if self.constant is not None:
            return compact(self.constant)
        return self.labels.in_claim(self.right_as_written or side(self.right))

    @property
    def compared(self) -> str:
        """The metric, and the constant that it is compared with where there is one."""
        metric = self.labels.metric(self.metric)
        if self.constant is None:
            return metric
        return f"{metric} {BEYOND[self.plain_verb]} {compact(self.constant)}"

    @property
    def sides(self) -> tuple[str, str]:
        """Left and right side as a reader would write them."""
        return self.left_side, self.right_side

    @property
    def plain_verb(self) -> PlainVerb:
        """The verb as the study writes it."""
        return self.verb.removesuffix("_by").removesuffix("_below").removesuffix("_above")  # type: ignore[return-value]

    @property
    def direction(self) -> int:
        """The sign of an effect that goes the way the verb speaks of: as claimed, or towards worse; 0 for either."""
        if self.verb == "does_not_worsen":
            return 1 if self.better == "lower" else -1
        return {"lowers": -1, "raises": 1}.get(self.plain_verb, 0)

    @property
    def weights(self) -> dict[str, float]:
        """Left minus right, arms with weight zero dropped."""
        total = dict(self.left)
        for arm, weight in self.right.items():
            total[arm] = total.get(arm, 0.0) - weight
        return {arm: weight for arm, weight in total.items() if weight != 0.0}

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms the claim needs, left side first."""
        return tuple(self.weights)

    @property
    def named(self) -> tuple[str, ...]:
        """Every arm the claim names, those included that cancel out."""
        return tuple(dict.fromkeys([*self.left, *self.right]))


_SYNONYMS = dict.fromkeys(("reduces", "decreases", "minimizes"), "lowers") | dict.fromkeys(
    ("increases", "maximizes"), "raises"
)


def parse_claim(text: str, *, baseline: str) -> Claim:
    """Read one claim. Names are not checked against a study here; `prereg.study.validate` does that."""
    tokens = words_of(text)
    left, rest = read_side(tokens, text)
    if not rest:
        raise ClaimError(
            f"claim '{text}' ends after its first arm",
            required="ARM VERB METRIC [than ARM]",
            fix="claim: layernorm lowers val/loss",
        )
    verb, *rest = rest
    if verb not in VERBS:
        close = _SYNONYMS.get(verb) or next(iter(get_close_matches(verb, VERBS, n=1, cutoff=0.5)), None)
        raise ClaimError(
            f"'{verb}' is not a verb of the claim language",
            required="one of " + ", ".join(VERBS),
            fix=f"did you mean '{close}'?" if close else "claim: layernorm lowers val/loss by at least 0.02",
        )
    if not rest:
        raise ClaimError(
            f"claim '{text}' names no metric", required="ARM VERB METRIC [than ARM]", fix=f"claim: {text} val/loss"
        )
    metric, *rest = rest
    constant, rest = _constant(verb, rest, text)
    by, percent, rest = _margin(verb, rest, text)
    right = _right_side(left, constant, rest, text, metric=metric, baseline=baseline)
    kind: Verb = verb
    if by is not None:
        kind = "lowers_by" if verb == "lowers" else "raises_by"
    elif constant is not None:
        kind = "lowers_below" if verb == "lowers" else "raises_above"
    claim = Claim(
        verb=kind,
        metric=metric,
        left=left.weights,
        right=right.weights,
        by=by,
        left_as_written=left.as_written,
        right_as_written=right.as_written,
        constant=constant,
        percent=percent,
        trend=left.trend,
    )
    if left.trend is not None and verb == "does_not_worsen":
        raise ClaimError(
            f"claim '{text}' asks whether a trend worsens",
            required="lowers, raises, changes or does_not_change, of a trend",
            fix="trend(rate) does_not_change val/loss",
        )
    if not claim.weights and left.trend is None:
        raise ClaimError(
            f"claim '{text}' compares an arm with itself",
            required="two different sides; without 'than' the right side is the baseline",
            fix=f"name another arm than '{baseline}', or add 'than ARM'",
        )
    if claim.is_paired and abs(sum(claim.weights.values())) > 1e-12:
        raise ClaimError(
            f"the weights of claim '{text}' do not sum to zero",
            required="a contrast: as many arms on the left as on the right",
            fix="(a - b) raises METRIC than (c - d)",
        )
    return claim


def with_groups(claim: Claim, groups: Mapping[str, tuple[str, ...]]) -> Claim:
    """The claim with every group of arms replaced by the mean of its arms; `groups` are arms by the group's name."""
    if not any(name in groups for name in claim.named):
        return claim

    def arms(weights: Mapping[str, float]) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, weight in weights.items():
            members = groups.get(name, (name,))
            for arm in members:
                found[arm] = found.get(arm, 0.0) + weight / len(members)
        return found

    left, right = claim.sides
    return replace(claim, left=arms(claim.left), right=arms(claim.right), left_as_written=left, right_as_written=right)


def _right_side(left: Side, constant: float | None, rest: list[str], text: str, *, metric: str, baseline: str) -> Side:
    """The other side, from the words after the metric and its margin; without arms where there is none."""
    if constant is not None or (rest and rest[0] in BEYOND.values()):
        if rest:
            raise ClaimError(
                f"'{' '.join(rest)}' in claim '{text}', which compares with a constant",
                required="lowers METRIC below NUMBER [by at least D], or raises METRIC above NUMBER [by at least D]",
                fix="claim: record lowers val/loss below 3.28 by at least 0.01",
            )
        if abs(sum(left.weights.values()) - 1.0) > 1e-12:
            raise ClaimError(
                f"the weights of claim '{text}', which compares with a constant, do not sum to one",
                required="an arm, or a mean of arms",
                fix="mean(a, b) lowers val/loss below 3.28",
            )
        return Side({})
    if rest and rest[0] != "than":
        margin = margin_of(text) is not None
        fix = f"{text.split(metric, maxsplit=1)[0]}{metric} than {baseline}"
        raise ClaimError(
            f"'{rest[0]}' after the {'margin' if margin else 'metric'} in claim '{text}'",
            required="'than ARM', or nothing" + "; a margin is in the metric's own unit, or in percent" * margin,
            fix=f"claim: {text.rpartition(rest[0])[0].strip()}" if margin else fix,
        )
    right, rest = read_side(rest[1:], text) if rest else (Side({} if left.trend else {baseline: 1.0}), [])
    if rest:
        raise ClaimError(f"'{' '.join(rest)}' after the end of claim '{text}'", required="nothing more")
    if right.trend is not None or (left.trend is not None and right.weights):
        raise ClaimError(
            f"claim '{text}' compares a trend with another side",
            required="a trend alone: its effect is the slope",
            fix="trend(rate) lowers val/loss by at least 0.01",
        )
    return right


def margin_of(text: str) -> float | None:
    """The D of `by at least D` in a claim's text; none where there is none, or where the text is no claim."""
    found = _BY.search(text)
    return None if found is None else _number(found["least"])


_BY = re.compile(r"\sby\s+at\s+least\s+(?P<least>[^\s()]+)")


def _number(word: str) -> float | None:
    return float(word) if re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?", word) else None


def percent_of(word: str) -> float | None:
    """2 for `2%`; none where the word is no percentage."""
    return _number(word[:-1]) if word.endswith("%") else None


def log_margin(percent: float, *, falls: bool) -> float:
    """The size of a fall, or rise, by so many percent as a difference of natural logarithms."""
    return -log1p(-percent / 100.0) if falls else log1p(percent / 100.0)


def _margin(verb: str, rest: list[str], text: str) -> tuple[float | None, float | None, list[str]]:
    """The least effect that is claimed, the same in percent if so written, and the tokens after it."""
    if not rest or rest[0] != "by":
        return None, None, rest
    word = rest[3] if len(rest) > 3 and rest[1:3] == ["at", "least"] else ""
    percent = percent_of(word)
    least = _number(word)
    if percent is not None and 0.0 < percent < (100.0 if verb == "lowers" else inf):
        least = log_margin(percent, falls=verb == "lowers")
    if least is None or not 0.0 < least < inf:
        meant = f"by {rest[1]}" if len(rest) == 2 and (_number(rest[1]) or percent_of(rest[1])) else ""
        raise ClaimError(
            f"'{' '.join(rest[:4])}' in claim '{text}' is not a least effect",
            required="'by at least' and a number above zero, in the metric's own unit on the claim's scale; or a "
            "percentage above zero, and below 100% for a fall",
            fix=f"claim: {text.replace(meant, f'by at least {rest[1]}')}"
            if meant
            else "claim: layernorm lowers val/loss by at least 0.02",
        )
    if verb not in ("lowers", "raises"):
        raise ClaimError(
            f"'by at least' after '{verb}' in claim '{text}'",
            required="lowers or raises; the margin of another claim is its `smallest`",
            fix=f"leave it out, and write smallest: {rest[3]}",
        )
    return least, percent, rest[4:]


def _constant(verb: str, rest: list[str], text: str) -> tuple[float | None, list[str]]:
    """The constant after `below` or `above`, and the tokens after it."""
    if not rest or rest[0] not in BEYOND.values():
        return None, rest
    word = BEYOND.get(verb)  # type: ignore[call-overload]
    if rest[0] != word:
        raise ClaimError(
            f"'{rest[0]}' after '{verb}' in claim '{text}'",
            required="lowers METRIC below NUMBER, or raises METRIC above NUMBER",
            fix="claim: record lowers val/loss below 3.28",
        )
    size = _number(rest[1].removeprefix("-")) if len(rest) > 1 else None
    if size is None or size == inf:
        raise ClaimError(
            f"'{' '.join(rest[:2])}' in claim '{text}' names no constant",
            required=f"'{word}' and a number, in the metric's own unit",
            fix=f"claim: record {verb} val/loss {word} 3.28",
        )
    return (-size if rest[1].startswith("-") else size), rest[2:]
