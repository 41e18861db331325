"""The tests whose null distribution comes from the differences themselves: exact where it can be enumerated.

    bootstrap_t   studentized paired bootstrap: pairs are resampled, never the two arms apart
    sign_flip     every difference keeps its size and may change its sign
    wilcoxon      the same over signed ranks

Bootstraps of the mean itself (percentile and its kin) are not here: below twenty seeds they reject a true null two
to six times too often (docs/explanation/bootstrap.md).
"""

from __future__ import annotations

from functools import lru_cache
from math import factorial, floor
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.paired_t import EQUAL, Floats, Procedure, Side, Studentized, exponent_of
from ablate.judge.stats.root import root
from prereg.study.analysis import Zeros

Ranks = npt.NDArray[np.int64]

RESAMPLES: Final = 9_999
"""Monte Carlo draws: with them p = (1 + k) / 10,000 (Davison and Hinkley 1997, eq. 4.11)."""
ENUMERATED_PAIRS: Final = 10
"""Up to here bootstrap-t uses all n^n resamples: 10^10 index vectors are 92,378 multisets with their weights."""
FAST_ENUMERATED_PAIRS: Final = 8
"""Up to here all of them are no more than `RESAMPLES` (6,435 multisets): in simulated studies, and in descriptions."""
BOOTSTRAPPED: Final = 199_999
"""Draws of a bootstrap-t that decides where not all resamples are used: the standard error of a p of .05 is .0005."""
FEWEST_BOOTSTRAPPED: Final = 4
"""With fewer pairs bootstrap-t errs more often than alpha (tests/judge/test_size_slow.py) and decides nothing."""
LISTED_PAIRS: Final = 20
"""Up to here all 2^n sign vectors are listed: 8 MB of subset means."""
COUNTED_PAIRS: Final = 40
"""Up to here all 2^n sign vectors are counted, as pairs of halves of them: 2^20 subset sums a half, 8 MB each."""


class BootstrapT(Studentized):
    """Studentized paired bootstrap (Hall 1992), symmetric in |t*| for the two-sided test and the interval.

    Zero-SE rule: a resample that draws one value only has no t*. It is dropped, from the count and from the
    total (counting it as extreme makes the test never reject at n = 3). The observed sample then counts as one
    more draw, p = (1 + k) / (1 + N), so that an enumerated p is never 0 either.
    """

    name = "bootstrap_t"
    words = "bootstrap-t"

    def __init__(self, differences: Floats, rng: np.random.Generator, *, fast: bool = False) -> None:
        """With `fast` as simulated studies are tested: fewer resamples of many pairs."""
        super().__init__(differences)
        self.t_star, self.weights = np.empty(0), np.empty(0)
        if self.all_zero:
            return
        t_star, weights, how = studentized_draws(self.scaled, rng, fast=fast)
        kept = ~np.isnan(t_star)
        self.t_star, self.weights = t_star[kept], weights[kept]
        dropped = int(weights[~kept].sum())
        self.notes += (f"{how}, {dropped} without spread dropped, the observed sample counted",)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """1 / (1 + resamples with spread), which is reached because t* does not move with the effect and t does."""
        return 1.0 / (1 + (n**n - n if n <= ENUMERATED_PAIRS else BOOTSTRAPPED))

    def p(self, null: float, side: Side) -> float:
        t = self.statistic(null)
        if t is None:
            return 1.0
        slack = EQUAL * max(1.0, abs(t))  # a tie that rounding broke counts as a tie
        if side == "two":
            extreme = np.abs(self.t_star) >= abs(t) - slack
        else:
            extreme = self.t_star >= t - slack if side == "greater" else self.t_star <= t + slack
        return float((1.0 + self.weights[extreme].sum()) / (1.0 + self.weights.sum()))

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.all_zero:
            return 0.0, 0.0
        # p(null) > alpha  <=>  at least floor(alpha (N + 1)) of the |t*| reach |t(null)|.
        rank = floor(alpha * (1.0 + self.weights.sum()) + EQUAL)
        if rank < 1:
            return None
        order = np.argsort(-np.abs(self.t_star), kind="stable")
        reached = np.cumsum(self.weights[order])
        return self.around_mean(float(np.abs(self.t_star)[order][np.searchsorted(reached, rank)]) * self.scaled_se)


_BLOCK: Final = 1_000_000
"""Numbers of resamples held at a time."""


def studentized_draws(
    differences: Floats, rng: np.random.Generator, *, fast: bool = False
) -> tuple[Floats, Floats, str]:
    """(t* of every resample of pairs, NaN without spread; how often each occurs; how they were made)."""
    n = differences.size
    centred = differences - differences.mean()
    least, step = EQUAL * np.abs(differences).max(), max(1, _BLOCK // n)
    found = []
    if n <= (FAST_ENUMERATED_PAIRS if fast else ENUMERATED_PAIRS):
        every, weights = multisets(n)
        for start in range(0, len(every), step):
            counts = every[start : start + step].astype(np.float64)
            shift = counts @ centred / n
            spread = np.sqrt((counts * (centred[None, :] - shift[:, None]) ** 2).sum(axis=1) / (n - 1))
            chosen = counts > 0
            width = np.where(chosen, centred, -np.inf).max(axis=1) - np.where(chosen, centred, np.inf).min(axis=1)
            found.append(_t_of(shift, spread, width > least, n))
        return np.concatenate(found), weights, f"all {n}^{n} resamples enumerated"
    total = RESAMPLES if fast else BOOTSTRAPPED
    for start in range(0, total, step):
        drawn = centred[rng.integers(0, n, size=(min(step, total - start), n))]
        found.append(_t_of(drawn.mean(axis=1), drawn.std(axis=1, ddof=1), np.ptp(drawn, axis=1) > least, n))
    how = f"{total:,} resamples, drawn alike whatever the study: another draw moves the third or fourth digit of p"
    return np.concatenate(found), np.ones(total), how


def _t_of(shift: Floats, spread: Floats, has_spread: npt.NDArray[np.bool_], n: int) -> Floats:
    """t* of resamples, NaN without spread."""
    return np.where(has_spread, shift / np.where(has_spread, spread / np.sqrt(n), 1.0), np.nan)


@lru_cache(maxsize=16)
def multisets(n: int) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Every resample of n from n as counts, and how many of the n^n index vectors give it: n! / (c1! ... cn!)."""
    counts, left = np.zeros((1, 0), dtype=np.uint8), np.array([n])
    for place in range(n - 1):  # place by place, every number that is left
        choices = left + 1
        taken = np.arange(choices.sum()) - np.repeat(np.cumsum(choices) - choices, choices)
        left = np.repeat(left, choices) - taken
        counts = np.concatenate([np.repeat(counts, choices, axis=0), taken[:, None].astype(np.uint8)], axis=1)
        assert counts.shape[1] == place + 1
    counts = np.concatenate([counts, left[:, None].astype(np.uint8)], axis=1)
    # A product of small factorials divides n!, and both are whole numbers below 2^53.
    factorials = np.array([float(factorial(c)) for c in range(n + 1)])
    ways = factorial(n) / factorials[counts].prod(axis=1)
    assert ways.sum() == n**n, (n, ways.sum())
    counts.setflags(write=False)
    ways.setflags(write=False)
    return counts, ways


class SignFlip(Procedure):
    """Exact sign-flip test of the mean (Fisher 1935), exact for differences symmetric about the null.

    A flipped sum reaches the observed one exactly when the mean of the flipped subset does not exceed the null
    (Hartigan 1969), so the number of subsets with such a mean gives every p, and the sorted subset means give the
    interval. The empty subset is the observed sample and always counts: p is never below 1 / 2^n.

    Up to `LISTED_PAIRS` the subset means are listed; up to `COUNTED_PAIRS` they are counted without a list, by
    `subsets_up_to`; beyond that, random sign vectors are drawn and p = (1 + k) / (1 + B).
    """

    name = "sign_flip"
    words = "sign-flip"

    def __init__(self, differences: Floats, rng: np.random.Generator) -> None:
        super().__init__(differences)
        self.subset_means: Floats | None = None
        self.total = 2.0**self.n
        if self.n <= LISTED_PAIRS:
            # Doubling: 8 MB at n = 20, where a 2^n x n table of signs would be 160 MB.
            sums, counts = np.zeros(1), np.zeros(1)
            for value in self.scaled:
                sums, counts = np.concatenate([sums, sums + value]), np.concatenate([counts, counts + 1.0])
            self.subset_means = np.sort(sums[1:] / counts[1:])
            self.notes += (f"all 2^{self.n} sign vectors enumerated",)
        elif self.n <= COUNTED_PAIRS:
            self.notes += (f"all 2^{self.n} sign vectors counted, as sums of two halves",)
        else:
            flipped = random_flips(self.n, rng)
            self.subset_means = np.sort(flipped @ self.scaled / flipped.sum(axis=1))
            self.total = self.subset_means.size + 1.0
            self.notes += (
                f"{len(flipped)} random sign vectors, the observed sample counted: another draw moves the third digit "
                f"of p; exact up to {COUNTED_PAIRS} pairs",
            )

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return (2.0 if side == "two" else 1.0) / (2.0**n if n <= COUNTED_PAIRS else RESAMPLES + 1)

    def p(self, null: float, side: Side) -> float:
        null = self.to_unit(null)
        slack = EQUAL * max(self.scaled_size, abs(null))  # a tie that rounding broke counts as a tie
        chosen = ("greater", "less") if side == "two" else (side,)
        tails = []
        if "greater" in chosen:
            tails.append(self._up_to(null + slack, self.scaled, self.subset_means) / self.total)
        if "less" in chosen:
            mirrored = None if self.subset_means is None else -self.subset_means[::-1]
            tails.append(self._up_to(-null + slack, -self.scaled, mirrored) / self.total)
        return float(min(1.0, 2.0 * min(tails)) if side == "two" else tails[0])

    @staticmethod
    def _up_to(limit: float, differences: Floats, subset_means: Floats | None) -> float:
        """Subsets whose mean does not exceed the limit, the empty one among them."""
        if subset_means is None:
            return float(subsets_up_to(differences - limit))
        return 1.0 + float(np.searchsorted(subset_means, limit, side="right"))

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        rank = floor(alpha * self.total / 2.0 + EQUAL)
        if rank < 1:
            return None
        if self.subset_means is not None:
            return self.from_unit(self.subset_means[rank - 1]), self.from_unit(self.subset_means[-rank])
        return self.from_unit(subset_mean(self.scaled, rank)), self.from_unit(-subset_mean(-self.scaled, rank))


def random_flips(n: int, rng: np.random.Generator) -> Floats:
    """Random subsets of the pairs, draws x pairs, without the empty one."""
    flipped = rng.integers(0, 2, size=(RESAMPLES, n)).astype(np.float64)
    return flipped[flipped.any(axis=1)]


def subsets_up_to(values: Floats) -> int:
    """How many subsets have a sum of at most 0, the empty one among them: exact, by meeting in the middle.

    Every subset is one of the first half and one of the second, so the sorted subset sums of the halves answer for all
    2^n of them (Horowitz and Sahni 1974; for this test Pagano and Tritchler 1983 count on a grid instead).
    """
    halves = []
    for half in np.array_split(values, 2):
        sums = np.zeros(1)
        for value in half:
            sums = np.concatenate([sums, sums + value])
        halves.append(np.sort(sums))
    return int(np.searchsorted(halves[0], -halves[1], side="right").sum())


def subset_mean(values: Floats, rank: int) -> float:
    """The mean of a subset with rank - 1 smaller ones among all non-empty subsets, up to 1e-12 of the largest value.

    The number of means up to a point is nearly normal in the point, so a root on the normal scale is found fast.
    """
    total, size = 2.0**values.size, float(np.abs(values).max())
    wanted = float(special.ndtri(rank / total))  # reached with rank + 1 subsets, the empty one among them, less 1/2

    def above(point: float) -> float:
        return float(special.ndtri((subsets_up_to(values - point) - 0.5) / total)) - wanted

    low, high, tolerance = float(values.min()), float(values.max()), EQUAL * size
    if subsets_up_to(values - low) - 1 >= rank or high - low <= tolerance:
        return low
    spread = float(values.std()) / np.sqrt(values.size)
    for end in (float(values.mean()) + (wanted - 0.3) * spread, float(values.mean()) + (wanted + 0.3) * spread):
        if low < end < high:
            low, high = (low, end) if above(end) > 0 else (end, high)
    found = root(above, low, high, xtol=tolerance)
    return found if above(found) > 0 else found + tolerance


class SignedRank(Procedure):
    """Wilcoxon's signed-rank test of the pseudomedian, exact over the observed ranks, ties as mid-ranks.

    Zeros (differences equal to the null): `pratt` ranks them with the others and then leaves them out (Pratt 1959), so
    a zero still says how small the rest is not; `wilcox` leaves them out before ranking (Wilcoxon 1945).

    The effect shown is Hodges and Lehmann's estimate of the pseudomedian (1963), the median of the Walsh averages. The
    interval inverts the test: p as a function of the null is constant between neighbouring Walsh averages, so it is
    taken at each of them and between them, and the interval reaches to the outermost nulls that are not rejected. That
    is exact under ties and zeros too, where the law of the ranks itself moves with the null.
    """

    name = "wilcoxon"
    words = "Wilcoxon signed-rank"
    against_mean = "the ranks point the other way than the Hodges-Lehmann estimate; the direction is that of the ranks"

    def __init__(self, differences: Floats, zeros: Zeros = "pratt") -> None:
        super().__init__(differences)
        self.zeros = zeros
        self.centre = hodges_lehmann(self.differences)
        self.notes += (
            f"exact over the observed ranks; zeros after {zeros.capitalize()}, ties as mid-ranks",
            "tests and bounds the pseudomedian; the difference shown is its Hodges-Lehmann estimate",
        )
        if self.centre is not None and np.sign(self.centre) * self.scaled_mean < 0:
            self.notes += (f"the mean difference, {self.mean:.6g}, has the other sign",)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return (2.0 if side == "two" else 1.0) / 2.0**n

    def ranks(self, null: float) -> tuple[Floats, Floats]:
        """Mid-ranks of the non-zero shifted differences, and their signs."""
        doubled, signs = self._doubled(null)
        return doubled[signs != 0.0] / 2.0, signs[signs != 0.0]

    def _doubled(self, null: float) -> tuple[Ranks, Floats]:
        doubled, signs = doubled_ranks(self._shifted(self.to_unit(null))[None, :], self.zeros)
        return doubled[0], signs[0]

    def _shifted(self, null: float) -> Floats:
        scale = max(self.scaled_size, abs(null)) or 1.0
        return np.round((self.scaled - null) / scale, 12)  # ties and zeros survive the shift's rounding

    def p(self, null: float, side: Side) -> float:
        return rank_sum_p(*self._doubled(null), side)

    @property
    def leaning(self) -> int:
        doubled, signs = self._doubled(0.0)
        return int(np.sign((doubled * signs).sum()))

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.floor(self.n) > alpha:
            return None
        walsh, size = walsh_averages(self.scaled), self.scaled_size or 1.0
        walsh = walsh[np.concatenate([[True], np.diff(walsh) > 4.0 * EQUAL * size])]
        # Every null that differs to the test: beyond the outermost averages, on each of them, and between two.
        nulls = np.empty(2 * walsh.size + 1)
        nulls[1::2], nulls[2:-1:2] = walsh, (walsh[:-1] + walsh[1:]) / 2.0
        nulls[0], nulls[-1] = walsh[0] - size, walsh[-1] + size
        scale = np.maximum(size, np.abs(nulls))[:, None]
        scale[scale == 0.0] = 1.0
        doubled, signs = doubled_ranks(np.round((self.scaled - nulls[:, None]) / scale, 12), self.zeros)
        ends = []
        for inwards in (1, -1):
            place = next(
                (row for row in range(nulls.size)[::inwards] if rank_sum_p(doubled[row], signs[row], "two") > alpha),
                None,
            )
            if place in (None, 0, nulls.size - 1):
                return None
            # Kept between averages and not on the one before: an open end, moved by what rounding makes a tie of.
            end = nulls[place] if place % 2 else nulls[place - inwards] + 2.0 * inwards * EQUAL * size
            ends.append(self.from_unit(end))
        return ends[0], ends[1]

    def without_interval(self, alpha: float) -> str:
        if self.floor(self.n) <= alpha:
            return f"no {1.0 - alpha:.6g} interval: with these ties and zeros every null or none is rejected"
        return super().without_interval(alpha)


def walsh_averages(values: Floats) -> Floats:
    """Means of all pairs of values, each with itself too, ascending."""
    upper, lower = np.triu_indices(values.size)
    return np.sort(values[upper] / 2.0 + values[lower] / 2.0)


def hodges_lehmann(differences: Floats) -> float | None:
    """Median of the Walsh averages over the extended line, ties of two diverged runs as 0; none if not finite."""
    values = np.where(np.isnan(differences), 0.0, differences)
    finite = values[np.isfinite(values)]
    exponent = exponent_of(finite)
    with np.errstate(invalid="ignore"):  # beyond every number on either side: taken as a tie
        walsh = np.sort(
            np.nan_to_num(walsh_averages(np.ldexp(values, -exponent)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        )
    middle = walsh[[(walsh.size - 1) // 2, walsh.size // 2]]
    if not np.isfinite(middle).all():
        return None
    return float(np.ldexp(middle.mean(), exponent))


def doubled_ranks(shifted: Floats, zeros: Zeros) -> tuple[Ranks, Floats]:
    """Twice the mid-ranks of every row, integers so that their law is one exact convolution, and the signs.

    A zero has rank 0: it adds nothing to any sum, whether it was ranked with the others (pratt) or not (wilcox).
    """
    sizes = np.abs(shifted)
    ranks = np.ones(sizes.shape, dtype=np.int64)
    for column in sizes.T[..., None]:  # twice a mid-rank: 1 + those that are equal, itself too, + 2 x those below
        ranks += 2 * (column < sizes) + (column == sizes)
    if zeros == "wilcox":
        ranks -= 2 * np.count_nonzero(sizes == 0.0, axis=1)[:, None]
    return np.where(sizes == 0.0, 0, ranks), np.sign(shifted)


def rank_sum_p(doubled: Ranks, signs: Floats, side: Side) -> float:
    """p of the sum of the positive ranks under random signs; 1 where no rank is left."""
    above, below = (
        float(tail[doubled[signs > 0].sum()]) for tail in rank_sum_tails(tuple(np.sort(doubled[doubled > 0]).tolist()))
    )
    return {"two": min(1.0, 2.0 * min(above, below)), "greater": above, "less": below}[side]


@lru_cache(maxsize=1024)
def rank_sum_tails(doubled: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Chance under random signs that the doubled sum of positive ranks is at least, and at most, each number."""
    share = np.zeros(sum(doubled) + 1)
    share[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(share)
        moved[rank:] = share[: share.size - rank]
        share = (share + moved) / 2.0
    below = np.cumsum(share)
    above = below[::-1]  # the law is symmetric
    for tail in (above, below):
        tail.setflags(write=False)
    return above, below


def row_counts(reached: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """How many are true, row by row: bits are counted twice as fast as booleans."""
    return np.asarray(np.bitwise_count(np.packbits(reached, axis=1)).sum(axis=1, dtype=np.int64))
