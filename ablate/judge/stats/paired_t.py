"""The interface of every paired test over seeds, and the paired t itself.

A `Procedure` is made once from the per-seed differences and then gives p values against any null
and for intervals. The two-sided test against zero, the one-sided tests against a margin and the
interval therefore always rest on the same statistic and the same resamples: they cannot disagree.

Numbers are computed in a unit of the data's own, the power of two just above the largest difference: dividing by it is
exact, no sum or square over- or underflows in it, and a p does not change when differences and null are multiplied by
a power of two.

It never picks a side from the data: the caller of a one-sided p names the side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.verdict import Interval, ItemLayout

Floats = npt.NDArray[np.float64]
Side = Literal["two", "greater", "less"]

TINY: Final = float(np.nextafter(0.0, 1.0))
"""The smallest positive double: what a p value that underflows is reported as. A p is never 0."""

EQUAL: Final = 1e-12
"""Differences whose spread is below this share of their size are equal up to rounding: they have no SE."""


FAR: Final = 2.0**500
"""A null this many units away is beyond any test, and its square is still finite."""


class NoTestError(Exception):
    """These differences admit no such test. Not a user's mistake: the finding is inconclusive and says why."""


def one_sample(words: str) -> str:
    """The words of a test where each seed gives one number: the same arithmetic under its usual name."""
    return words.replace("paired t", "one-sample t")


def p_of_t(t: float, df: float, side: Side) -> float:
    """p of a t statistic, from the lower tail of Student's law, where it loses no digits."""
    tail = {"two": -abs(t), "greater": -t, "less": t}[side]
    return max(float(special.stdtr(df, tail)) * (2.0 if side == "two" else 1.0), TINY)


def exponent_of(values: Floats) -> int:
    """The power of two just above the largest size, 0 where all are zero."""
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])


def sd_of(values: Floats) -> float:
    """The standard deviation, computed in a unit in which no square over- or underflows."""
    power = exponent_of(values)
    return float(np.ldexp(np.ldexp(values, -power).std(ddof=1), power))


class Procedure(ABC):
    """One paired test, bound to its differences."""

    name: str
    """As a study writes it."""
    words: str
    """As a sentence says it."""
    counted = "pairs"
    """What each value is of."""
    sizes: tuple[int, ...] = ()
    """Runs of each arm, of a test without pairs."""
    against_mean = "the ranks point the other way than the mean; the direction is that of the ranks"
    """What the report says when `leaning` and the mean disagree."""

    def __init__(self, differences: Floats) -> None:
        values = np.asarray(differences, dtype=np.float64)
        assert values.ndim == 1, values.shape
        assert np.isfinite(values).all(), values
        if values.size < 2:
            raise NoTestError(f"{values.size} pair(s); a test needs at least two")
        self.differences = values
        self.exponent = exponent_of(values)
        self.scaled = np.ldexp(values, -self.exponent)
        """The differences in their own unit, 2**exponent: the largest lies between 1/2 and 1."""
        self.n = int(values.size)
        self.scaled_mean = float(self.scaled.mean())
        self.mean = self.from_unit(self.scaled_mean)
        self.centre: float | None = self.mean
        """The effect that is shown: the mean, unless a test has reason to give another, or none."""
        self.unsized = 0
        """Pairs without a size, because a run diverged and is ranked."""
        self.size = float(np.abs(values).max())
        self.all_zero = self.size == 0.0
        self.scaled_size = float(np.abs(self.scaled).max())
        self.all_equal = bool(np.ptp(self.scaled) <= EQUAL * self.scaled_size)
        self.notes: tuple[str, ...] = ()
        self.items: ItemLayout | None = None
        """The items, where they are crossed with the seeds."""
        self.se: float | None = None
        self.df: float | None = None
        if self.all_zero:
            self.notes += ("every difference is exactly zero",)

    def speak_of_seeds(self) -> None:
        """Name the test and count as where each seed gives one number and no two sides are compared."""
        self.words, self.counted = one_sample(self.words), "seeds"

    def to_unit(self, null: float) -> float:
        """A null in the differences' own unit; one that is beyond every difference stays finite."""
        with np.errstate(over="ignore"):
            return float(np.clip(np.ldexp(null, -self.exponent), -FAR, FAR))

    def from_unit(self, value: float) -> float:
        """A value in the differences' own unit as the reader's number; infinite beyond the largest double."""
        with np.errstate(over="ignore"):
            return float(np.ldexp(value, self.exponent))

    @classmethod
    @abstractmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """Smallest p that any data of n pairs can give."""

    @abstractmethod
    def p(self, null: float, side: Side) -> float:
        """p of the null effect; `greater` is evidence that the effect is above it, `less` below."""

    @abstractmethod
    def bounds(self, alpha: float) -> tuple[float, float] | None:
        """Every null that the two-sided test does not reject at alpha; none when that is the whole line."""

    def interval(self, alpha: float, *, suffix: str = "") -> Interval | None:
        """The two-sided interval at 1 - alpha, by inverting the test."""
        found = self.bounds(alpha)
        if found is None:
            return None
        low, high = (end if np.isfinite(end) else None for end in found)
        return Interval(low=low, high=high, level=1.0 - alpha, method=self.words + suffix)

    @property
    def leaning(self) -> int:
        """Sign of the statistic the test itself looks at: where a rejection of zero would point."""
        return int(np.sign(self.scaled_mean))

    def without_interval(self, alpha: float) -> str:
        """Why there is no interval."""
        return (
            f"{self.words} gives no finite {1.0 - alpha:.6g} interval from {self.n} {self.counted}: "
            f"its smallest two-sided p is {self.floor(self.n):.4g}"
        )


class Studentized(Procedure):
    """What the two tests with a standard error share: they are undefined where that error is zero."""

    def __init__(self, differences: Floats) -> None:
        super().__init__(differences)
        if self.all_equal and not self.all_zero:
            raise NoTestError(
                f"all {self.n} differences equal {self.mean:.6g}: their standard error is zero, "
                f"so {self.words} has no p; sign_flip is defined here"
            )
        self.scaled_se = 0.0 if self.all_zero else float(self.scaled.std(ddof=1) / np.sqrt(self.n))
        self.se = self.from_unit(self.scaled_se)

    def statistic(self, null: float) -> float | None:
        """t against the null; none when every difference is zero and so is the null, where p is 1."""
        if self.all_zero:
            if null == 0.0:
                return None
            raise NoTestError(
                f"all {self.n} differences are zero: their standard error is zero, so {self.words} "
                f"has no p against {null:.6g}; sign_flip is defined here"
            )
        return (self.scaled_mean - self.to_unit(null)) / self.scaled_se

    def around_mean(self, half: float) -> tuple[float, float]:
        """The interval of this half-width in the differences' own unit."""
        return self.from_unit(self.scaled_mean - half), self.from_unit(self.scaled_mean + half)


class PairedT(Studentized):
    """Student's t on the differences. The p of a very large t may underflow and is then `TINY`."""

    name = "paired_t"
    words = "paired t"

    def __init__(self, differences: Floats) -> None:
        super().__init__(differences)
        self.df = float(self.n - 1)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return TINY

    def p(self, null: float, side: Side) -> float:
        assert self.df is not None
        t = self.statistic(null)
        return 1.0 if t is None else p_of_t(t, self.df, side)

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        assert self.df is not None
        return self.around_mean(float(special.stdtrit(self.df, 1.0 - alpha / 2.0)) * self.scaled_se)
