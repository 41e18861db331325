"""The sides of a claim: an arm, a weighted sum or mean of arms, or a trend, read from the words of the sentence.

Takes the text or its words, and gives weights by arm with what is left of the words. Raises `ClaimError`. Whether the
arms exist, and whether the sides make a claim, is the business of `prereg.study.claim` and `prereg.study.validate`.

A trend is the least-squares slope of arm means over the values of an ordered factor. With x the value that a level sets
(or its logarithm) and k arms at each level, an arm's weight is

    (x - mean(x)) / sum((x - mean(x))^2) / k

which sums to 0, and times the arms' means to the slope: their linear contrast, per unit of x (Fisher 1925, orthogonal
polynomials; Maxwell and Delaney 2004, chapter 6, for unequal spacing). Other factors are averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import fsum, inf, log2, log10
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import JsonValue

from prereg.errors import ClaimError, FieldPath, field_error, nearest
from prereg.text import compact

if TYPE_CHECKING:
    from prereg.study.claim import Claim


TrendScale = Literal["raw", "log2", "log10"]
Levels = Mapping[str, Mapping[str, JsonValue]]
_SIGNS = frozenset({"+", "-"})
_MARKS = frozenset({"+", "-", "("})

_TERM = re.compile(r"(?:(?P<weight>\d+(?:\.\d+)?)\*)?(?P<arm>[^*]+)")
_TOKEN = re.compile(r"\s*(?:(?P<mark>[()])|(?P<sign>[+-])(?=\s)|(?P<word>[^\s()]+))")


@dataclass(frozen=True)
class Trend:
    """A slope over the values of a factor."""

    factor: str
    scale: TrendScale = "raw"

    @property
    def text(self) -> str:
        """As a study writes it."""
        return f"trend({self.factor})" if self.scale == "raw" else f"trend({self.scale} {self.factor})"

    @property
    def per(self) -> str:
        """What an effect is per."""
        step = {"raw": "unit", "log2": "doubling", "log10": "factor of ten"}[self.scale]
        return f"per {step} of {self.factor}"


@dataclass(frozen=True)
class Side:
    """One side of a claim."""

    weights: Mapping[str, float]
    """By arm; a trend gets them from the factors of its study."""
    as_written: str = ""
    """How the study writes it, where it does so by a function of arms."""
    trend: Trend | None = None


def words_of(text: str) -> list[str]:
    """The words, signs and parentheses of a claim, in order."""
    found, position = [], 0
    stripped = re.sub(r"\s*\*\s*", "*", text.rstrip())
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        assert match is not None, (text, position)  # every character is a mark, a sign or part of a word
        found.append(match.group("mark") or match.group("sign") or match.group("word"))
        position = match.end()
    return found


def read_side(tokens: list[str], text: str) -> tuple[Side, list[str]]:
    """One side of a claim and the words after it."""
    if not tokens:
        raise ClaimError(
            f"claim '{text}' lacks an arm",
            required="ARM VERB METRIC [than ARM]",
            fix="claim: layernorm lowers val/loss",
        )
    if tokens[:2] == ["mean", "("]:
        return _mean(tokens[1:], text)
    if tokens[:2] == ["trend", "("]:
        return _trend(tokens[1:], text)
    if tokens[0] != "(":
        return Side({tokens[0]: 1.0}), tokens[1:]
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
    return Side(weights), rest


def _mean(tokens: list[str], text: str) -> tuple[Side, list[str]]:
    """`mean(a, b)` from its parenthesis on."""
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
    return Side(dict.fromkeys(arms, 1.0 / len(arms)), f"mean({', '.join(arms)})"), tokens[end + 1 :]


def _trend(tokens: list[str], text: str) -> tuple[Side, list[str]]:
    """`trend(log2 rate)` from its parenthesis on."""
    inner = tokens[1 : tokens.index(")")] if ")" in tokens else []
    scale = "raw" if len(inner) < 2 else inner[0]
    if not 1 <= len(inner) <= 2 or scale not in get_args(TrendScale) or not re.fullmatch(r"[^(+*,]+", inner[-1]):
        raise ClaimError(
            f"'trend({' '.join(inner)})' in claim '{text}' is not a trend",
            required="trend(FACTOR), trend(log2 FACTOR) or trend(log10 FACTOR)",
            fix="trend(rate) lowers val/loss",
        )
    trend = Trend(inner[-1], scale)  # type: ignore[arg-type]
    return Side({}, trend.text, trend), tokens[len(inner) + 2 :]


def with_weights(claim: Claim, factors: Mapping[str, Levels]) -> Claim:
    """The claim, with the weights of its arms where it is a trend. Raises `StudyError` where the factor has none."""
    if claim.trend is None:
        return claim
    slopes = level_weights(claim.trend, factors)
    names = list(factors)
    at = names.index(claim.trend.factor)
    cells = list(product(*(list(levels) for levels in factors.values())))
    shared = len(cells) // len(slopes)
    return replace(claim, left={"-".join(cell): slopes[cell[at]] / shared for cell in cells})


def level_weights(trend: Trend, factors: Mapping[str, Levels]) -> dict[str, float]:
    """Level -> its weight in the slope, all its arms together."""
    scores = _scores(trend, factors)
    middle = fsum(scores.values()) / len(scores)
    squares = fsum((score - middle) ** 2 for score in scores.values())
    return {level: (score - middle) / squares for level, score in scores.items()}


def weights_in_words(trend: Trend, factors: Mapping[str, Levels]) -> str:
    """The weight of every level, for a reader."""
    values, weights = _values(trend, factors), level_weights(trend, factors)
    said = ", ".join(f"{level} ({compact(values[level])}) {compact(weight)}" for level, weight in weights.items())
    others = "; other factors are averaged" if len(factors) > 1 else ""
    return f"{trend.text} is the least-squares slope over {trend.factor}, {trend.per}: the sum of {said}{others}"


def _scores(trend: Trend, factors: Mapping[str, Levels]) -> dict[str, float]:
    values = _values(trend, factors)
    if trend.scale == "raw":
        return values
    for level, value in values.items():
        if value <= 0.0:
            raise field_error(
                ("factors", trend.factor, level),
                f"{trend.text} takes the logarithm of {value:g}",
                "values above 0",
                f"trend({trend.factor})",
            )
    return {level: (log2 if trend.scale == "log2" else log10)(value) for level, value in values.items()}


def _values(trend: Trend, factors: Mapping[str, Levels]) -> dict[str, float]:
    """Level -> the number that it sets."""
    if trend.factor not in factors:
        raise ClaimError(
            f"'{trend.factor}' in {trend.text} is not a factor",
            required="one of " + ", ".join(factors) if factors else "factors:, a trend is over the levels of one",
            fix=nearest(trend.factor, factors) or "factors: {rate: {low: {lr: 0.1}, high: {lr: 0.2}}}",
        )
    place: FieldPath = ("factors", trend.factor)
    levels, found = factors[trend.factor], dict[str, float]()
    for level, overrides in levels.items():
        value = next(iter(overrides.values()), None)
        if len(overrides) != 1 or isinstance(value, bool) or not isinstance(value, int | float):
            raise field_error(
                (*place, level),
                f"{trend.text}, and level '{level}' sets {_said(overrides)}",
                "one field in each level, to a number",
                f"{level}: {{lr: 0.1}}, the base's value written out",
            )
        found[level] = float(value)
    fields = {field for overrides in levels.values() for field in overrides}
    if len(fields) > 1:
        raise field_error(
            place, f"{trend.text}, and its levels set {', '.join(sorted(fields))}", "the same field in each level"
        )
    if len(set(found.values())) < len(found) or len(found) < 2:
        raise field_error(
            place, f"{trend.text} over {', '.join(f'{x:g}' for x in found.values())}", "two different values or more"
        )
    return found


def _said(overrides: Mapping[str, JsonValue]) -> str:
    return ", ".join(f"{field} to {value!r}" for field, value in overrides.items()) or "nothing"
