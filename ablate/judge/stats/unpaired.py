"""Tests of a difference of arm means over independent runs: Welch's t, and the exact permutation test.

Runs of different arms are not pairs here: each arm has its own runs, of any number and under any seeds. The effect is
the claim's weighted sum of arm means, sum w m.

**Welch.** SE^2 = sum w^2 s^2 / n, with the degrees of freedom of Satterthwaite (1946) and Welch (1947),
SE^4 / sum((w^2 s^2 / n)^2 / (n - 1)). Arms may differ in variance. An arm without any spread adds none; where no arm
has any, there is no standard error and no test.

**Permutation.** Fisher's (1935) test of the difference of two means over all ways to assign the runs to two arms of
these sizes; beyond `MOST_LISTED` ways, over `RESAMPLES` random ones with p = (1 + k) / (1 + B). A null at a margin
shifts one arm by it, so the test assumes that the two arms differ in location alone: equal shape and equal spread.
Exchanging j runs of each arm takes the difference of means below a null exactly where the mean of the j of one arm
lies that far above the mean of the j of the other. So every p, and the interval, are counts of differences of means of
equally large subsets (Pitman 1937; Tritchler 1984). Two-sided p is twice the smaller one-sided p, as in scipy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import ceil, comb
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.paired_t import EQUAL, TINY, Floats, NoTestError, Procedure, Side, exponent_of, p_of_t
from ablate.judge.stats.resample import RESAMPLES
from prereg.study.analysis import LEAST_RUNS

MOST_LISTED: Final = 50_000
"""Assignments of runs to two arms up to which all of them are listed."""


@dataclass(frozen=True)
class Sample:
    """The runs of one arm of a claim."""

    arm: str
    weight: float
    """Of the arm's mean in the effect."""
    seeds: tuple[int, ...]
    values: Floats
    """On the claim's scale, in the order of the seeds."""


class Unpaired(Procedure):
    """One test of a weighted sum of arm means, bound to the runs of every arm."""

    against_mean = "the permuted means point the other way than the mean; the direction is that of the smaller p"

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
        self.seeds = tuple(sorted({seed for one in samples for seed in one.seeds}))
        self.scaled_size = max(float(np.abs(one).max()) for one in self.parts)
        self.scaled_mean = float(sum(one.mean() for one in self.parts))
        self.mean = self.from_unit(self.scaled_mean)
        self.centre: float | None = self.mean
        self.unsized, self.items, self.se, self.df = 0, None, None, None
        self.size = float(np.abs(every).max())
        self.constant = [bool(np.ptp(one) <= EQUAL * np.abs(one).max()) for one in self.parts]
        """Whether an arm's runs all have one value, up to rounding."""
        self.notes: tuple[str, ...] = ()

    def without_interval(self, alpha: float) -> str:
        return (
            f"{self.words} gives no finite {1.0 - alpha:.6g} interval from {' and '.join(map(str, self.sizes))} runs: "
            f"its smallest two-sided p is {self.smallest_p('two'):.4g}"
        )


class Welch(Unpaired):
    """Welch's t for a weighted sum of arm means."""

    name = "welch"
    words = "Welch's t"

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__(samples)
        variances = [
            0.0 if constant else float(part.var(ddof=1)) / part.size
            for part, constant in zip(self.parts, self.constant, strict=True)
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


class Permutation(Unpaired):
    """The permutation test of the difference of two means."""

    name = "permutation"
    words = "permutation test"

    def __init__(self, samples: Sequence[Sample], rng: np.random.Generator | None = None) -> None:
        super().__init__(samples)
        if len(self.parts) != 2:
            raise NoTestError(f"{len(self.parts)} arms; a permutation test compares two")
        listed = comb(self.n, self.sizes[0]) <= MOST_LISTED
        exchanges, self.total = exchanges_of(self.sizes, rng)
        # One part is minus the values of its arm, so that a sum of both is the difference of subset means.
        self.limits = np.sort(exchanges @ np.concatenate(self.parts))
        self.tied = self.total - 1 - self.limits.size  # draws that exchange nothing: they always count
        self.all_zero = all(self.constant) and abs(self.scaled_mean) <= EQUAL * self.scaled_size
        how = f"all {self.total:,} assignments" if listed else f"{RESAMPLES:,} random assignments"
        self.notes += (f"{how}; a null other than zero shifts one arm, whose runs are taken to vary as the other's do",)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """That of two arms of n runs each."""
        return permutation_floor((n, n), side)

    def smallest_p(self, side: Side) -> float:
        return permutation_floor(self.sizes, side)

    def p(self, null: float, side: Side) -> float:
        point = self.to_unit(null)
        slack = EQUAL * max(self.scaled_size, abs(point))
        above = int(np.searchsorted(self.limits, point + slack, side="right"))
        below = self.limits.size - int(np.searchsorted(self.limits, point - slack, side="left"))
        greater, less = ((1 + self.tied + count) / self.total for count in (above, below))
        return {"two": min(1.0, 2.0 * min(greater, less)), "greater": greater, "less": less}[side]

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        # The first limit at which a one-sided p exceeds alpha / 2.
        passed = int(np.floor(alpha / 2.0 * self.total * (1.0 + EQUAL))) - 1 - self.tied
        if passed < 0 or passed >= self.limits.size:
            return None
        return self.from_unit(self.limits[passed]), self.from_unit(self.limits[-1 - passed])

    @property
    def leaning(self) -> int:
        """Where a rejection of zero would point: to the side of the smaller one-sided p."""
        return int(np.sign(self.p(0.0, "less") - self.p(0.0, "greater")))


def permutation_floor(sizes: Sequence[int], side: Side) -> float:
    """Smallest p of a permutation test of two arms of these sizes."""
    return min(1.0, (2.0 if side == "two" else 1.0) / ways_of(sizes))


def ways_of(sizes: Sequence[int]) -> int:
    """Assignments to arms of these sizes that a p counts: all, or the drawn ones and the observed one."""
    ways = comb(sum(sizes), sizes[0])
    return ways if ways <= MOST_LISTED else RESAMPLES + 1


def exchanges_of(sizes: Sequence[int], rng: np.random.Generator | None) -> tuple[Floats, int]:
    """Exchanges of j >= 1 runs of one arm for j of the other, as weights 1/j of the runs exchanged, and how many
    assignments they stand for: those that exchange nothing, the observed one among them, are left out."""
    first, second = sizes
    n = first + second
    if comb(n, first) <= MOST_LISTED:
        return _listed(first, second), comb(n, first)
    assert rng is not None, "more assignments than are listed, and no generator"
    return _weights(np.argsort(rng.random((RESAMPLES, n)), axis=1)[:, :first], n), RESAMPLES + 1


@lru_cache(maxsize=8)
def _listed(first: int, second: int) -> Floats:
    n = first + second
    every = np.fromiter(
        (at for kept in combinations(range(n), first) for at in kept), dtype=np.intp, count=comb(n, first) * first
    )
    return _weights(every.reshape(-1, first), n)


def _weights(kept: npt.NDArray[np.intp], n: int) -> Floats:
    """Assignments x runs, from the places of the runs that are assigned to the first arm."""
    first = kept.shape[1]
    exchanged = np.zeros((len(kept), n), dtype=bool)
    np.put_along_axis(exchanged, kept, True, axis=1)
    exchanged[:, :first] = ~exchanged[:, :first]
    j = exchanged[:, :first].sum(axis=1)
    moved: Floats = exchanged[j > 0] / j[j > 0, None]
    moved.setflags(write=False)
    return moved


UNPAIRED: Mapping[str, type[Unpaired]] = {kind.name: kind for kind in (Welch, Permutation)}


def prepare_unpaired(samples: Sequence[Sample], method: str, rng: np.random.Generator) -> Unpaired:
    """The test bound to these runs. Raises `NoTestError` where it is undefined."""
    return Permutation(samples, rng) if UNPAIRED[method] is Permutation else Welch(samples)


def welch_df(weights: Mapping[str, float], sizes: Mapping[str, int]) -> tuple[float, float]:
    """For planning with equal variances: runs per arm of an equal design as precise, and the degrees of freedom."""
    parts = {arm: weight**2 / sizes[arm] for arm, weight in weights.items()}
    total = sum(parts.values())
    df = total**2 / sum(part**2 / (sizes[arm] - 1) for arm, part in parts.items())
    return sum(weight**2 for weight in weights.values()) / total, df


def proportional(size: int, most: int, wanted: int) -> int:
    """Runs of an arm where the largest has `wanted` instead of `most`: in proportion, and as many as a test needs."""
    return size if wanted == most else max(LEAST_RUNS, ceil(size * wanted / most))
