"""The tests over rows: each row of an array is one study, and every p is that of the scalar test on it.

Without pairs (Welch) a row holds the runs of a study, arm by arm: as many columns for every arm of the claim as the
largest arm has runs, in the order of the claim's weights. A run that is not planned is NaN, and one that was lost is
not `kept`. `arms_of` lays them out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.crossed_items import Spread, Tail, critical_values
from ablate.judge.stats.estimate import undecided
from ablate.judge.stats.paired_t import EQUAL, FAR, TINY, Floats, Side
from ablate.judge.stats.resample import (
    FAST_ENUMERATED_PAIRS,
    LISTED_PAIRS,
    RESAMPLES,
    BootstrapT,
    doubled_ranks,
    multisets,
    random_flips,
    rank_sum_tails,
    row_counts,
    subsets_up_to,
)
from prereg.rule.divergence import least_of
from prereg.study.analysis import LEAST_RUNS, Zeros
from prereg.study.spec import Study

Kept = npt.NDArray[np.bool_]

ROWS_LISTED_PAIRS = 12
"""Up to here the subset means of a sign-flip are listed for all studies of a block; then counted study by study."""
CHUNK = 160_000
"""Numbers held at a time by one array over rows and resamples: 1.3 MB, which a cache holds."""
_STEEP = 100.0
"""The form over rows loses digits of a t beyond this; see `_NEAR`."""
_NEAR = 1e-7
"""Where the counts of resamples differ within this of the limit on r, the scalar test compares a steep t with them."""


@dataclass(frozen=True)
class OverItems:
    """What a test over seeds and new items knows of each study beyond the seeds' means; see `crossed_items.Spread`."""

    units: Floats
    """What items (or tasks) add to the variance of the mean difference, the interaction once in it."""
    both: Floats
    """What the interaction of seeds and items adds to it."""
    tail: Tail
    """Of the mean over units, from their weights."""


def rows_of_test(study: Study, values: Floats, rng_seed: int) -> Rows:
    test, n = study.analysis.test, values.shape[1]
    if test == "wilcoxon" or not np.isfinite(values).all():
        return RowsOfRanks(values, study.analysis.zeros)
    if test in ("paired_t", "items"):  # over these items the test is a paired t over the seeds' means
        return RowsOfT(values)
    if test == "bootstrap_t":
        return RowsOfBootstrap(values, rng_seed)
    if n > LISTED_PAIRS:
        return RowsOfDrawnFlips(values, rng_seed)
    return RowsOfFlips(values) if n <= ROWS_LISTED_PAIRS else RowsOfHalves(values)


class Rows(ABC):
    """One test for every row, each in its own unit as in `Procedure`."""

    def __init__(self, values: Floats) -> None:
        # Over the transposed values a row's largest is found many times faster, and is the same number.
        turned = np.ascontiguousarray(values.T)
        high, low = turned.max(axis=0), turned.min(axis=0)
        largest = np.maximum(high, -low)
        self.exponent = np.frexp(largest)[1]
        self.values, self.n = np.ldexp(values, -self.exponent[:, None]), values.shape[1]
        self.mean = self.values.mean(axis=1)
        self.size = np.ldexp(largest, -self.exponent)
        self.span = np.ldexp(high, -self.exponent) - np.ldexp(low, -self.exponent)
        self.usable: Kept = np.ones(len(values), dtype=bool)
        self.leaning = np.sign(self.mean)

    def to_unit(self, null: float) -> Floats:
        """A null in the unit of every row."""
        with np.errstate(over="ignore"):
            return np.asarray(np.clip(np.ldexp(null, -self.exponent), -FAR, FAR))

    def leaning_at(self, null: float) -> Floats:
        """The sign of the statistic against a null: where a rejection of it would point."""
        return np.asarray(np.sign(self.mean - self.to_unit(null)))

    @abstractmethod
    def p(self, null: float, side: Side) -> Floats:
        """p of the null effect, row by row; see `Procedure.p`."""


class RowsOfT(Rows):
    """`PairedT` over rows."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        # Equal differences have no SE. All zero, the scalar test says p = 1 or nothing at all: the same outcome.
        self.usable = self.span > EQUAL * self.size
        self.se = self.values.std(axis=1, ddof=1) / np.sqrt(self.n)

    def statistic(self, null: float) -> Floats:
        """t against the null; 0 where a row is not usable."""
        t: Floats = (self.mean - self.to_unit(null)) / np.where(self.usable, self.se, np.inf)
        return t

    def p(self, null: float, side: Side) -> Floats:
        t = self.statistic(null)
        tail = -np.abs(t) if side == "two" else -t if side == "greater" else t
        p: Floats = np.maximum(t_cdf(self.n - 1, tail) * (2.0 if side == "two" else 1.0), TINY)
        return p


class RowsOfItems(Rows):
    """`TwoWay` over rows: whether its interval at each level of the correction leaves a null out, without a root.

    The p is a number just below the lowest of these levels at which the null is rejected, and 1 where it is rejected
    at none: after the correction, the outcomes of the exact p.
    """

    def __init__(self, values: Floats, over: OverItems, rows: npt.NDArray[np.intp], levels: tuple[float, ...]) -> None:
        super().__init__(values)
        self.over, self.levels = over, levels
        scale = -2 * self.exponent
        self.spread = Spread(
            seeds=self.values.var(axis=1, ddof=1) / self.n,
            units=np.ldexp(over.units[rows], scale),
            both=np.ldexp(over.both[rows], scale),
        )
        self.usable = self.spread.half(1.0, 1.0) > EQUAL * self.size

    def p(self, null: float, side: Side) -> Floats:
        distance = self.mean - self.to_unit(null)
        towards = np.abs(distance) if side == "two" else distance if side == "greater" else -distance
        p = np.ones(len(distance))
        for level in self.levels:  # descending
            both = level if side == "two" else 2.0 * level
            if both >= 1.0:
                rejected = towards > 0.0
            else:
                rejected = towards >= self.spread.half(*critical_values(self.n, self.over.tail, both))
            p[rejected] = level * (1.0 - 1e-9)
        return p


_SERIES_DF = 40
_TAIL = 1e-4


def t_cdf(df: int, t: Floats) -> Floats:
    """Student's t at whole degrees of freedom: the finite series (Abramowitz and Stegun 26.7.3 and 26.7.4), which is
    ten times faster than `stdtr`, and `stdtr` in the tails, where the series loses digits."""
    if df > _SERIES_DF:
        found: Floats = special.stdtr(float(df), t)
        return found
    with np.errstate(invalid="ignore", over="ignore"):
        cos2 = df / (df + t * t)
        sine = t * np.sqrt(cos2 / df)
    odd = df % 2
    term = np.sqrt(cos2) if odd else np.ones_like(t)
    total = np.zeros_like(t) if df == 1 else term
    for k in range(2 + odd, df - 1, 2):
        term = term * (cos2 * ((k - 1) / k))
        total = total + term
    inside = (2.0 / np.pi) * (np.arcsin(sine) + sine * total) if odd else sine * total
    found = 0.5 + 0.5 * inside
    outer = ~((found > _TAIL) & (found < 1.0 - _TAIL))  # NaN, too
    found[outer] = special.stdtr(float(df), t[outer])
    return found


class RowsOfBootstrap(RowsOfT):
    """`BootstrapT` over rows, with all resamples of up to `FAST_ENUMERATED_PAIRS` pairs and `RESAMPLES` draws of more.

    With s and q the sum and the sum of squares of a resample's centred values, t*^2 = (n - 1) r / (1 - r) where
    r = s^2 / (n q): so t* is compared with t by comparing r with t^2 / (n - 1 + t^2), and every resample of every row
    is two products of matrices.
    """

    def __init__(self, values: Floats, rng_seed: int) -> None:
        super().__init__(values)
        self.usable &= undecided("bootstrap_t", self.n) is None
        self.close = np.diff(np.sort(self.values, axis=1), axis=1).min(axis=1) < 1e-6 * self.size
        # Nearly equal values: which resamples have a spread is for the scalar test to say.
        self.rng_seed = rng_seed
        counts, self.weights = _resamples(self.n, rng_seed)
        centred = self.values - self.mean[:, None]
        both = np.concatenate([centred, self.n * centred**2]) @ counts
        self.signed, squares = both[: len(values)], both[len(values) :]
        self.signed *= np.abs(self.signed)
        with np.errstate(divide="ignore", invalid="ignore"):  # equal values, which `close` leaves to the scalar test
            self.signed /= squares

    def p(self, null: float, side: Side) -> Floats:
        t = self.statistic(null)
        slack = EQUAL * np.maximum(1.0, np.abs(t))
        least = np.abs(t) - slack if side == "two" else t - slack if side == "greater" else -t - slack
        square = least * np.abs(least)
        limit = (square / (self.n - 1 + np.abs(square)))[:, None]
        found = self._reaching(slice(None), limit, side)
        total = float(self.signed.shape[1]) if self.weights is None else self.weights.sum()
        unsure = self.close | np.isnan(limit[:, 0])
        steep = np.flatnonzero(np.abs(t) > _STEEP)
        # A t so large meets no resample near it but by rounding; where one is near, the scalar test counts.
        low, high = (self._reaching(steep, limit[steep] + by, side) for by in (-_NEAR, _NEAR))
        unsure[steep] |= low != high
        p: Floats = (1.0 + np.minimum(found, total)) / (1.0 + total)
        for row in np.flatnonzero(self.usable & unsure):
            exact = BootstrapT(self.values[row], np.random.default_rng(self.rng_seed), fast=True)
            p[row] = exact.p(float(self.to_unit(null)[row]), side)
        return p

    def _reaching(self, rows: slice | npt.NDArray[np.intp], limit: Floats, side: Side) -> Floats:
        """How many resamples reach a limit on r, row by row."""
        signed = self.signed[rows]
        found = np.zeros(len(signed))
        if side != "less":
            found += self._counted(signed >= limit)
        if side != "greater":
            found += self._counted(signed <= -limit)
        return found

    def _counted(self, reached: Kept) -> Floats:
        return row_counts(reached).astype(np.float64) if self.weights is None else reached @ self.weights


@lru_cache(maxsize=16)
def _resamples(n: int, rng_seed: int) -> tuple[Floats, Floats | None]:
    """Resamples with two values or more as counts, pairs x resamples, and how often each occurs (none: once)."""
    if n <= FAST_ENUMERATED_PAIRS:
        every, weights = multisets(n)
        spread = every.max(axis=1) < n
        return np.ascontiguousarray(every[spread].T, dtype=np.float64), weights[spread]
    counts = _drawn(n, rng_seed)
    return np.ascontiguousarray(counts[counts.max(axis=1) < n].T), None


def _drawn(n: int, rng_seed: int) -> Floats:
    """The resamples that `BootstrapT` draws."""
    drawn = np.random.default_rng(rng_seed).integers(0, n, size=(RESAMPLES, n))
    counts = np.zeros((RESAMPLES, n))
    np.add.at(counts, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    return counts


class _RowsOfSubsets(Rows):
    """`SignFlip` over rows, by the shares of subsets whose mean lies on either side of a null."""

    def p(self, null: float, side: Side) -> Floats:
        limit = self.to_unit(null)
        slack = EQUAL * np.maximum(self.size, np.abs(limit))
        above = below = np.ones(len(limit))
        if side != "less":
            above = self._up_to((limit + slack)[:, None])
        if side != "greater":
            below = self._from((limit - slack)[:, None])
        return np.minimum(1.0, 2.0 * np.minimum(above, below)) if side == "two" else np.minimum(above, below)

    @abstractmethod
    def _up_to(self, limit: Floats) -> Floats:
        """Share of subsets, the empty one among them, whose mean does not exceed the limit."""

    @abstractmethod
    def _from(self, limit: Floats) -> Floats:
        """The same of those whose mean is not below it."""


class RowsOfFlips(_RowsOfSubsets):
    """By the doubling of the scalar test."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        self.means = self._subset_means()

    def _subset_means(self) -> Floats:
        means, counts = np.zeros((len(self.values), 2**self.n)), np.zeros(2**self.n)
        for place, column in enumerate(self.values.T):
            half = 2**place
            np.add(means[:, :half], column[:, None], out=means[:, half : 2 * half])
            counts[half : 2 * half] = counts[:half] + 1.0
        means[:, 1:] /= counts[1:]
        return means[:, 1:]

    def _up_to(self, limit: Floats) -> Floats:
        return np.asarray((1.0 + row_counts(self.means <= limit)) / (1.0 + self.means.shape[1]))

    def _from(self, limit: Floats) -> Floats:
        return np.asarray((1.0 + row_counts(self.means >= limit)) / (1.0 + self.means.shape[1]))


class RowsOfDrawnFlips(RowsOfFlips):
    """With random sign vectors."""

    def __init__(self, values: Floats, rng_seed: int) -> None:
        self.flipped = _drawn_flips(values.shape[1], rng_seed)
        super().__init__(values)

    def _subset_means(self) -> Floats:
        means: Floats = self.values @ self.flipped
        means /= self.flipped.sum(axis=0)
        return means


@lru_cache(maxsize=16)
def _drawn_flips(n: int, rng_seed: int) -> Floats:
    return np.ascontiguousarray(random_flips(n, np.random.default_rng(rng_seed)).T)


class RowsOfHalves(_RowsOfSubsets):
    """With too many pairs for a list: one count a row."""

    def _up_to(self, limit: Floats) -> Floats:
        return self._counted(self.values - limit)

    def _from(self, limit: Floats) -> Floats:
        return self._counted(-self.values + limit)

    def _counted(self, shifted: Floats) -> Floats:
        found: Floats = np.array([subsets_up_to(row) for row in shifted], dtype=np.float64) / 2.0**self.n
        return found


class RowsOfRanks(Rows):
    """`SignedRank` over rows, and `RankedPairs` where a run diverged."""

    def __init__(self, values: Floats, zeros: Zeros) -> None:
        super().__init__(np.where(np.isfinite(values), values, 0.0))
        self.zeros = zeros
        self.beyond = np.where(np.isinf(values), values, 0.0)
        self.both = np.isnan(values)
        self.leaning = self.leaning_at(0.0)

    def leaning_at(self, null: float) -> Floats:
        doubled, signs = self._ranks(null)
        return np.asarray(np.sign((doubled * signs).sum(axis=1)), dtype=np.float64)

    def _ranks(self, null: float) -> tuple[npt.NDArray[np.int64], Floats]:
        """Doubled mid-ranks, 0 for a zero, and signs."""
        limit = self.to_unit(null)
        scale = np.maximum(self.size, np.abs(limit))
        scale[scale == 0.0] = 1.0
        shifted = np.round((self.values - limit[:, None]) / scale[:, None], 12)
        shifted = np.where(self.both, 0.0, np.where(self.beyond != 0.0, self.beyond, shifted))
        return doubled_ranks(shifted, self.zeros)

    def p(self, null: float, side: Side) -> Floats:
        doubled, signs = self._ranks(null)
        observed = np.where(signs > 0, doubled, 0).sum(axis=1)
        above, below = np.empty(len(doubled)), np.empty(len(doubled))
        ordered, plain = np.sort(doubled, axis=1), 2 * np.arange(1, self.n + 1)
        # Nearly all rows have neither ties nor zeros; patterns are only looked for among the others.
        alike = (ordered == plain).all(axis=1)
        patterns, place = np.unique(ordered[~alike], axis=0, return_inverse=True)
        tied, place = np.flatnonzero(~alike), place.reshape(-1)
        groups = [(plain, np.flatnonzero(alike))]
        groups += [(pattern, tied[place == index]) for index, pattern in enumerate(patterns)]
        for pattern, rows in groups:
            tails = rank_sum_tails(tuple(pattern[pattern > 0].tolist()))
            above[rows], below[rows] = tails[0][observed[rows]], tails[1][observed[rows]]
        if side == "two":
            return np.minimum(1.0, 2.0 * np.minimum(above, below))
        return above if side == "greater" else below


def arms_of(study: Study, name: str, values: Floats) -> Floats:
    """The columns of a claim by arm: studies x arms x runs."""
    weights = study.claims[name].weights
    return values.reshape(len(values), len(weights), values.shape[1] // len(weights))


def moved_by(study: Study, name: str, values: Floats, by: float) -> Floats:
    """The same studies with an effect that is larger by this: the runs of the first arm are shifted."""
    weight = next(iter(study.claims[name].weights.values()))
    arms = arms_of(study, name, values).copy()
    arms[:, 0] += by / weight
    return np.asarray(arms.reshape(values.shape))


def unpaired_tests(
    study: Study, name: str, values: Floats, kept: Kept | None
) -> Iterator[tuple[npt.NDArray[np.intp], Rows]]:
    """The test on every row that has enough runs of each arm, rows with equally many runs together."""
    weights = np.array(list(study.claims[name].weights.values()))
    parts = arms_of(study, name, values) * weights[None, :, None]
    there = ~np.isnan(parts)
    planned = there[:1].sum(axis=2)
    if kept is not None:
        there &= kept.reshape(parts.shape)
    counts = there.sum(axis=2)
    least = np.array([[least_of(study, int(size)) for size in planned[0]]])
    enough = np.all((counts >= LEAST_RUNS) & ((counts == planned) | (counts >= least)), axis=1)
    for sizes in np.unique(counts[enough], axis=0):
        rows = np.flatnonzero(enough & np.all(counts == sizes, axis=1))
        arms = [parts[rows, at][there[rows, at]].reshape(rows.size, size) for at, size in enumerate(sizes)]
        yield rows, RowsOfWelch(arms)


class RowsOfWelch(Rows):
    """`Welch` over rows: weighted runs by arm, each row in its own unit."""

    def __init__(self, arms: list[Floats]) -> None:
        # Not that of `Rows`, which reads differences of pairs.
        largest = np.max([np.abs(one).max(axis=1) for one in arms], axis=0)
        self.exponent = np.frexp(largest)[1]
        self.arms = [np.ldexp(one, -self.exponent[:, None]) for one in arms]
        self.n = sum(one.shape[1] for one in arms)
        self.size = np.ldexp(largest, -self.exponent)
        self.mean: Floats = np.sum([one.mean(axis=1) for one in self.arms], axis=0)
        self.leaning = np.sign(self.mean)
        variances = np.array(
            [
                np.where(
                    np.ptp(one, axis=1) <= EQUAL * np.abs(one).max(axis=1), 0.0, one.var(axis=1, ddof=1) / one.shape[1]
                )
                for one in self.arms
            ]
        )
        total = variances.sum(axis=0)
        # Without any spread the scalar test says p = 1 or nothing at all: the same outcome.
        self.usable: Kept = total > 0.0
        shares = variances / np.where(self.usable, total, 1.0)
        free = np.array([[one.shape[1] - 1.0] for one in self.arms])
        self.df = 1.0 / np.where(self.usable, (shares**2 / free).sum(axis=0), 1.0)
        self.se = np.where(self.usable, np.sqrt(total), np.inf)

    def p(self, null: float, side: Side) -> Floats:
        t = (self.mean - self.to_unit(null)) / self.se
        tail = -np.abs(t) if side == "two" else -t if side == "greater" else t
        p: Floats = np.maximum(special.stdtr(self.df, tail) * (2.0 if side == "two" else 1.0), TINY)
        return p
