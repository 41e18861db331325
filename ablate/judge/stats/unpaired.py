"""Welch's t for a difference of arm means over independent runs.

Runs of different arms are not pairs here: each arm has its own runs, of any number and under any seeds. The effect is
the claim's weighted sum of arm means, sum w m.

    SE^2 = sum w^2 s^2 / n, with the degrees of freedom of Satterthwaite (1946) and Welch (1947),
    df = SE^4 / sum((w^2 s^2 / n)^2 / (n - 1))

Arms may differ in variance. An arm without any spread adds none; where no arm has any, there is no standard error and
no test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy import special

from ablate.judge.stats.paired_t import EQUAL, TINY, Floats, NoTestError, Procedure, Side, exponent_of, p_of_t
from prereg.study.analysis import LEAST_RUNS


@dataclass(frozen=True)
class Sample:
    """The runs of one arm of a claim."""

    arm: str
    weight: float
    """Of the arm's mean in the effect."""
    seeds: tuple[int, ...]
    values: Floats
    """On the claim's scale, in the order of the seeds."""


class Welch(Procedure):
    """Welch's t for a weighted sum of arm means, bound to the runs of every arm."""

    name = "welch"
    words = "Welch's t"

    def __init__(self, samples: Sequence[Sample]) -> None:
        # Not that of `Procedure`, which reads differences of pairs: there are none.
        short = [f"{one.arm} has {one.values.size}" for one in samples if one.values.size < LEAST_RUNS]
        if short:
            raise NoTestError(
                f"{', '.join(short)} run(s); a test without pairs needs at least {LEAST_RUNS} of every arm"
            )
        weighted = [one.weight * np.asarray(one.values, dtype=np.float64) for one in samples]
        every = np.concatenate(weighted)
        assert np.isfinite(every).all(), samples
        self.exponent = exponent_of(every)
        self.parts = [np.ldexp(one, -self.exponent) for one in weighted]
        """Weight times value, arm by arm, in the unit of the largest: the effect is the sum of their means."""
        self.sizes = tuple(one.size for one in self.parts)
        self.n = sum(self.sizes)
        self.scaled_size = max(float(np.abs(one).max()) for one in self.parts)
        self.scaled_mean = float(sum(one.mean() for one in self.parts))
        self.mean = self.from_unit(self.scaled_mean)
        self.centre: float | None = self.mean
        self.unsized, self.items, self.df = 0, None, None
        self.size = float(np.abs(every).max())
        self.notes: tuple[str, ...] = ()
        # An arm whose runs all have one value, up to rounding, has no variance.
        variances = [
            0.0 if np.ptp(one) <= EQUAL * np.abs(one).max() else float(one.var(ddof=1)) / one.size for one in self.parts
        ]
        total = sum(variances)
        # Equal values in every arm: their means differ by more than rounding, or not at all.
        self.all_zero = total == 0.0 and abs(self.scaled_mean) <= EQUAL * self.scaled_size
        if total == 0.0 and not self.all_zero:
            raise NoTestError(
                "all runs of each arm have one value: their standard error is zero, so Welch's t has no p; the seed "
                "seems to do nothing"
            )
        self.scaled_se = float(np.sqrt(total))
        self.se = self.from_unit(self.scaled_se)
        if total > 0.0:
            # As shares of the total, whose squares cannot vanish.
            shares = [variance / total for variance in variances]
            self.df = 1.0 / sum(share**2 / (size - 1) for share, size in zip(shares, self.sizes, strict=True))
        else:
            self.notes += ("every run of every arm has the same value",)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return TINY

    def p(self, null: float, side: Side) -> float:
        if self.df is None:
            if null == 0.0:
                return 1.0
            raise NoTestError(
                f"all runs have one value: their standard error is zero, so Welch's t has no p against {null:.6g}"
            )
        return p_of_t((self.scaled_mean - self.to_unit(null)) / self.scaled_se, self.df, side)

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.df is None:
            return 0.0, 0.0
        half = float(special.stdtrit(self.df, 1.0 - alpha / 2.0)) * self.scaled_se
        return self.from_unit(self.scaled_mean - half), self.from_unit(self.scaled_mean + half)


def welch_df(weights: Mapping[str, float], sizes: Mapping[str, int]) -> tuple[float, float]:
    """For planning with equal variances: runs per arm of an equal design as precise, and the degrees of freedom."""
    parts = {arm: weight**2 / sizes[arm] for arm, weight in weights.items()}
    total = sum(parts.values())
    df = total**2 / sum(part**2 / (sizes[arm] - 1) for arm, part in parts.items())
    return sum(weight**2 for weight in weights.values()) / total, df


def proportional(size: int, most: int, wanted: int) -> int:
    """Runs of an arm where the largest has `wanted` instead of `most`: in proportion, and as many as a test needs."""
    return size if wanted == most else max(LEAST_RUNS, ceil(size * wanted / most))
