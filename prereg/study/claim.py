"""The claim language: one sentence that says which arms differ in which metric, and which way.

    claim := side VERB METRIC [ 'by' 'at' 'least' NUMBER ] [ 'than' side ]
           | side 'lowers' METRIC 'below' NUMBER [ 'by' 'at' 'least' NUMBER ]
           | side 'raises' METRIC 'above' NUMBER [ 'by' 'at' 'least' NUMBER ]
    side  := NAME | '(' term { ('+' | '-') term } ')' | 'mean' '(' NAME ',' NAME { ',' NAME } ')'
    term  := [ NUMBER '*' ] NAME
    VERB  := lowers | raises | changes | does_not_worsen | does_not_change

`lowers` and `raises` alone claim a direction: any effect that is not zero supports them. With `by at least D` they
claim an effect of D or more (superiority by a margin), which is what most readers take "A lowers M" with a smallest
difference that matters to mean; inside the tool these are the verbs `lowers_by` and `raises_by`.

NUMBER after `by at least` may be a percentage: the margin is then a ratio, and the claim is on the natural logarithm
(`prereg.study.designs.percent`).

`below` and `above` compare with a constant: the weights of the left side then sum to one, and the right side has no
arm. The claim is one-sided (inside the tool `lowers_below` and `raises_above`, or `_by` with a least effect).

Without `than`, the other side is the study's baseline. A claim resolves to weights over arms that
sum to zero; the effect is always the left side minus the right side. `mean(a, b, c)` weighs its arms equally, and
`(0.5*a + 0.5*b)` is the mean of two. `+` and `-` stand between spaces, because names of arms may contain hyphens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log1p
from typing import Literal, get_args

from prereg.errors import ClaimError, nearest
from prereg.metrics.catalogue import Better
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

BEYOND: dict[PlainVerb, str] = {"lowers": "below", "raises": "above"}
"""The word before a constant, by verb."""

_SIGNS = frozenset({"+", "-"})
_MARKS = frozenset({"+", "-", "("})

_TERM = re.compile(r"(?:(?P<weight>\d+(?:\.\d+)?)\*)?(?P<arm>[^*]+)")
_TOKEN = re.compile(r"\s*(?:(?P<mark>[()])|(?P<sign>[+-])(?=\s)|(?P<word>[^\s()]+))")


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
    percent: float | None = None
    """The margin in percent, where the study writes it so; `by`, and `smallest`, are then on the natural logarithm."""
    constant: float | None = None
    """What the left side is compared with where it is no arm, on the metric's own scale."""

    @property
    def is_paired(self) -> bool:
        """Whether each seed gives two sides that are compared; else it gives one number."""
        return bool(self.right)

    @property
    def left_side(self) -> str:
        """The left side as a reader would write it."""
        return self.left_as_written or side(self.left)

    @property
    def right_side(self) -> str:
        """The right side as a reader would write it."""
        if self.constant is not None:
            return compact(self.constant)
        return self.right_as_written or side(self.right)

    @property
    def compared(self) -> str:
        """The metric, and the constant that it is compared with where there is one."""
        if self.constant is None:
            return self.metric
        return f"{self.metric} {BEYOND[self.plain_verb]} {compact(self.constant)}"

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


def parse_claim(text: str, *, baseline: str) -> Claim:
    """Read one claim. Names are not checked against a study here; `prereg.study.validate` does that."""
    tokens = _tokens(text)
    left, left_as_written, rest = _side(tokens, text)
    if not rest:
        raise ClaimError(
            f"claim '{text}' ends after its first arm",
            required="ARM VERB METRIC [than ARM]",
            fix="claim: layernorm lowers val/loss",
        )
    verb, *rest = rest
    if verb not in VERBS:
        raise ClaimError(
            f"'{verb}' is not a verb of the claim language",
            required="one of " + ", ".join(VERBS),
            fix=nearest(verb, VERBS),
        )
    if not rest:
        raise ClaimError(
            f"claim '{text}' names no metric", required="ARM VERB METRIC [than ARM]", fix=f"claim: {text} val/loss"
        )
    metric, *rest = rest
    constant, rest = _constant(verb, rest, text)
    by, percent, rest = _margin(verb, rest, text)
    if rest and (constant is not None or rest[0] in BEYOND.values()):
        raise ClaimError(
            f"'{' '.join(rest)}' in claim '{text}', which compares with a constant",
            required="lowers METRIC below NUMBER [by at least D], or raises METRIC above NUMBER [by at least D]",
            fix="claim: record lowers val/loss below 3.28 by at least 0.01",
        )
    if rest and rest[0] != "than":
        raise ClaimError(
            f"'{rest[0]}' after the metric in claim '{text}'",
            required="'than ARM', or nothing",
            fix=f"{text.split(metric, maxsplit=1)[0]}{metric} than {baseline}",
        )
    right, right_as_written = {baseline: 1.0}, ""
    if rest:
        right, right_as_written, rest = _side(rest[1:], text)
        if rest:
            raise ClaimError(f"'{' '.join(rest)}' after the end of claim '{text}'", required="nothing more")
    kind: Verb = verb
    if by is not None:
        kind = "lowers_by" if verb == "lowers" else "raises_by"
    elif constant is not None:
        kind = "lowers_below" if verb == "lowers" else "raises_above"
    if constant is not None:
        _require_one_mean(left, text)
    claim = Claim(
        verb=kind,
        metric=metric,
        left=left,
        right=right if constant is None else {},
        by=by,
        left_as_written=left_as_written,
        right_as_written=right_as_written,
        constant=constant,
        percent=percent,
    )
    if not claim.weights:
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


def _require_one_mean(left: Mapping[str, float], text: str) -> None:
    if abs(sum(left.values()) - 1.0) > 1e-12:
        raise ClaimError(
            f"the weights of claim '{text}', which compares with a constant, do not sum to one",
            required="an arm, or a mean of arms",
            fix="mean(a, b) lowers val/loss below 3.28",
        )


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
        raise ClaimError(
            f"'{' '.join(rest[:4])}' in claim '{text}' is not a least effect",
            required="'by at least' and a number above zero, in the metric's own unit on the claim's scale; or a "
            "percentage above zero, and below 100% for a fall",
            fix="claim: layernorm lowers val/loss by at least 0.02",
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


def _tokens(text: str) -> list[str]:
    found, position = [], 0
    stripped = re.sub(r"\s*\*\s*", "*", text.rstrip())
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        assert match is not None, (text, position)  # every character is a mark, a sign or part of a word
        found.append(match.group("mark") or match.group("sign") or match.group("word"))
        position = match.end()
    return found


def _side(tokens: list[str], text: str) -> tuple[dict[str, float], str, list[str]]:
    """The weights of one side of a claim, how it is written where by a function, and the tokens after it."""
    if not tokens:
        raise ClaimError(
            f"claim '{text}' lacks an arm",
            required="ARM VERB METRIC [than ARM]",
            fix="claim: layernorm lowers val/loss",
        )
    if tokens[:2] == ["mean", "("]:
        return _mean(tokens[1:], text)
    if tokens[0] != "(":
        return {tokens[0]: 1.0}, "", tokens[1:]
    if ")" not in tokens:
        raise ClaimError(f"claim '{text}' opens a parenthesis and does not close it", required="')'")
    end = tokens.index(")")
    inner, rest = tokens[1:end], tokens[end + 1 :]
    if len(inner) % 2 == 0 or any(s not in _SIGNS for s in inner[1::2]) or any(n in _MARKS for n in inner[0::2]):
        raise ClaimError(
            f"'({' '.join(inner)})' in claim '{text}' is not a sum of arms",
            required="(ARM - ARM), with spaces around the sign",
        )
    weights: dict[str, float] = {}
    for sign, arm in zip(["+", *inner[1::2]], inner[0::2], strict=True):
        term = _TERM.fullmatch(arm)
        weight = float(term["weight"] or 1.0) if term is not None else 0.0
        if term is None or not 0.0 < weight < inf:
            raise ClaimError(
                f"'{arm}' in claim '{text}' is not a term",
                required="ARM, or a weight above zero times an arm, such as 0.5*ARM",
            )
        weights[term["arm"]] = weights.get(term["arm"], 0.0) + (weight if sign == "+" else -weight)
    return weights, "", rest


def _mean(tokens: list[str], text: str) -> tuple[dict[str, float], str, list[str]]:
    """`mean(a, b)` from its parenthesis on, as `_side` returns it."""
    end = tokens.index(")") if ")" in tokens else len(tokens)
    arms = [arm.strip() for arm in " ".join(tokens[1:end]).split(",")]
    shown = f"'mean({', '.join(arms)})' in claim '{text}'"
    required = "mean(ARM, ARM), with two arms or more, a comma between them and a parenthesis at the end"
    if end == len(tokens) or len(arms) < 2 or not all(re.fullmatch(r"[^\s(*]+", arm) for arm in arms):
        raise ClaimError(f"{shown} is not a mean of arms", required=required, fix="mean(fast, faster)")
    if len(set(arms)) < len(arms):
        twice = next(arm for arm in arms if arms.count(arm) > 1)
        raise ClaimError(
            f"{shown} names '{twice}' twice",
            required="each arm once: a mean weighs its arms equally",
            fix="(0.667*a + 0.333*b) for other weights",
        )
    return dict.fromkeys(arms, 1.0 / len(arms)), f"mean({', '.join(arms)})", tokens[end + 1 :]
