"""Trends: the side of a claim that is a slope over the values of a factor.

A trend is the least-squares slope of arm means over the values of an ordered factor. With x the value that a level sets
(or its logarithm) and k arms at each level, an arm's weight is

    (x - mean(x)) / sum((x - mean(x))^2) / k

which sums to 0, and times the arms' means to the slope: their linear contrast, per unit of x (Fisher 1925, orthogonal
polynomials; Maxwell and Delaney 2004, chapter 6, for unequal spacing). Other factors are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import fsum, log2, log10
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue

from prereg.errors import ClaimError, FieldPath, field_error, nearest
from prereg.text import compact

if TYPE_CHECKING:
    from prereg.study.claim import Claim


TrendScale = Literal["raw", "log2", "log10"]
Levels = Mapping[str, Mapping[str, JsonValue]]


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
