"""The tests whose null distribution comes from the differences themselves: exact where it can be enumerated.

    bootstrap_t   studentized paired bootstrap: pairs are resampled, never the two arms apart
    sign_flip     every difference keeps its size and may change its sign
    wilcoxon      the same over signed ranks

Percentile, basic, BCa and shift bootstraps are not here: below twenty seeds they reject a true null two to
six times too often, so they may describe and never decide.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from math import factorial, floor
from typing import Final

import numpy as np
from scipy import stats

from ablate.judge.procedure import EQUAL, Floats, Procedure, Side, Studentized

RESAMPLES: Final = 9_999
"""Monte Carlo draws: with them p = (1 + k) / 10,000 (Davison and Hinkley 1997, eq. 4.11)."""
ENUMERATED_PAIRS: Final = 6
"""Up to here all n^n resamples are used: 46,656 index vectors, 462 distinct multisets."""
FLIPPED_PAIRS: Final = 20
"""Up to here all 2^n sign vectors are used."""


class BootstrapT(Studentized):
    """Studentized paired bootstrap (Hall 1992), symmetric in |t*| for the two-sided test and the interval.

    Zero-SE rule: a resample that draws one value only has no t*. It is dropped, from the count and from the
    total (counting it as extreme makes the test never reject at n = 3). The observed sample then counts as one
    more draw, p = (1 + k) / (1 + N), so that an enumerated p is never 0 either.
    """

    name = "bootstrap_t"
    words = "bootstrap-t"

    def __init__(self, differences: Floats, rng: np.random.Generator) -> None:
        super().__init__(differences)
        self.t_star, self.weights = np.empty(0), np.empty(0)
        if self.all_zero:
            return
        t_star, weights, how = studentized_draws(self.differences, rng)
        kept = ~np.isnan(t_star)
        self.t_star, self.weights = t_star[kept], weights[kept]
        dropped = int(weights[~kept].sum())
        self.notes += (f"{how}, {dropped} without spread dropped, the observed sample counted",)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """1 / (1 + resamples with spread), which is reached because t* does not move with the effect and t does."""
        return 1.0 / (1 + (n**n - n if n <= ENUMERATED_PAIRS else RESAMPLES))

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
        assert self.se is not None
        if self.all_zero:
            return 0.0, 0.0
        # p(null) > alpha  <=>  at least floor(alpha (N + 1)) of the |t*| reach |t(null)|.
        rank = floor(alpha * (1.0 + self.weights.sum()) + EQUAL)
        if rank < 1:
            return None
        order = np.argsort(-np.abs(self.t_star), kind="stable")
        reached = np.cumsum(self.weights[order])
        half = float(np.abs(self.t_star)[order][np.searchsorted(reached, rank)]) * self.se
        return self.mean - half, self.mean + half


def studentized_draws(differences: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, str]:
    """(t* of every resample of pairs, NaN without spread; how often each occurs; how they were made)."""
    n = differences.size
    centred = differences - differences.mean()
    if n <= ENUMERATED_PAIRS:
        counts, weights = multisets(n)
        shift = counts @ centred / n
        spread = np.sqrt((counts * (centred[None, :] - shift[:, None]) ** 2).sum(axis=1) / (n - 1))
        chosen = counts > 0
        width = np.where(chosen, centred, -np.inf).max(axis=1) - np.where(chosen, centred, np.inf).min(axis=1)
        how = f"all {n}^{n} resamples enumerated"
    else:
        drawn = centred[rng.integers(0, n, size=(RESAMPLES, n))]
        shift, spread, width = drawn.mean(axis=1), drawn.std(axis=1, ddof=1), np.ptp(drawn, axis=1)
        weights = np.ones(RESAMPLES)
        how = f"{RESAMPLES} resamples"
    kept = width > EQUAL * np.abs(differences).max()
    return np.where(kept, shift / np.where(kept, spread / np.sqrt(n), 1.0), np.nan), weights, how


@lru_cache(maxsize=8)
def multisets(n: int) -> tuple[Floats, Floats]:
    """Every resample of n from n as counts, and how many of the n^n index vectors give it."""
    rows = [np.bincount(chosen, minlength=n) for chosen in combinations_with_replacement(range(n), n)]
    counts = np.array(rows, dtype=np.float64)
    ways = np.array([factorial(n) / np.prod([factorial(int(c)) for c in row]) for row in rows])
    assert ways.sum() == n**n, (n, ways.sum())
    counts.setflags(write=False)
    ways.setflags(write=False)
    return counts, ways


class SignFlip(Procedure):
    """Exact sign-flip test of the mean (Fisher 1935), exact for differences symmetric about the null.

    A flipped sum reaches the observed one exactly when the mean of the flipped subset does not exceed the null
    (Hartigan 1969), so the sorted subset means give every p and the interval at once. The empty subset is the
    observed sample and always counts: p is never below 1 / 2^n.
    """

    name = "sign_flip"
    words = "sign-flip"

    def __init__(self, differences: Floats, rng: np.random.Generator) -> None:
        super().__init__(differences)
        if self.n <= FLIPPED_PAIRS:
            # Doubling: 8 MB at n = 20, where a 2^n x n table of signs would be 160 MB.
            sums, counts = np.zeros(1), np.zeros(1)
            for value in self.differences:
                sums, counts = np.concatenate([sums, sums + value]), np.concatenate([counts, counts + 1.0])
            sums, counts = sums[1:], counts[1:]
            self.notes += (f"all 2^{self.n} sign vectors enumerated",)
        else:
            flipped = rng.integers(0, 2, size=(RESAMPLES, self.n)).astype(np.float64)
            flipped = flipped[flipped.any(axis=1)]
            sums, counts = flipped @ self.differences, flipped.sum(axis=1)
            self.notes += (f"{len(flipped)} random sign vectors, the observed sample counted",)
        self.subset_means = np.sort(sums / counts)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return (2.0 if side == "two" else 1.0) / (2**n if n <= FLIPPED_PAIRS else RESAMPLES + 1)

    def p(self, null: float, side: Side) -> float:
        slack = EQUAL * max(self.size, abs(null))
        total = self.subset_means.size + 1.0
        above = (1.0 + np.searchsorted(self.subset_means, null + slack, side="right")) / total
        below = (1.0 + self.subset_means.size - np.searchsorted(self.subset_means, null - slack, side="left")) / total
        return float({"two": min(1.0, 2.0 * min(above, below)), "greater": above, "less": below}[side])

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        rank = floor(alpha * (self.subset_means.size + 1) / 2.0 + EQUAL)
        if rank < 1:
            return None
        return float(self.subset_means[rank - 1]), float(self.subset_means[-rank])


class SignedRank(Procedure):
    """Wilcoxon's signed-rank test, exact over the observed ranks; zeros after Pratt (1959), ties as mid-ranks.

    Pratt ranks zeros with the others and then leaves them out, so a zero still tells how small the rest is not.
    The interval is for the pseudomedian (Hodges and Lehmann 1963) and is given when no two differences tie.
    """

    name = "wilcoxon"
    words = "Wilcoxon signed-rank"

    def __init__(self, differences: Floats) -> None:
        super().__init__(differences)
        self.tied = bool(np.unique(self.differences).size < self.n)
        self.notes += (
            "exact over the observed ranks; zeros after Pratt, ties as mid-ranks",
            "tests and bounds the pseudomedian; the difference shown is the mean",
        )

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return (2.0 if side == "two" else 1.0) / 2.0**n

    def ranks(self, null: float) -> tuple[Floats, Floats]:
        """Mid-ranks of the non-zero shifted differences, and their signs."""
        shifted = self._shifted(null)
        kept = shifted != 0.0
        return stats.rankdata(np.abs(shifted))[kept], np.sign(shifted[kept])

    def _shifted(self, null: float) -> Floats:
        scale = max(self.size, abs(null)) or 1.0
        return np.round((self.differences - null) / scale, 12)  # ties and zeros survive the shift's rounding

    def scores(self, null: float) -> Floats:
        shifted = self._shifted(null)
        signed: Floats = stats.rankdata(np.abs(shifted)) * np.sign(shifted)
        return signed

    def p(self, null: float, side: Side) -> float:
        ranks, signs = self.ranks(null)
        if ranks.size == 0:
            return 1.0
        # Mid-ranks are halves: doubled, they are integers and the distribution is one exact convolution.
        doubled = np.rint(2.0 * ranks).astype(np.int64)
        observed = int(doubled[signs > 0].sum())
        share = _rank_sum(tuple(sorted(doubled.tolist())))
        above, below = float(share[observed:].sum()), float(share[: observed + 1].sum())
        return {"two": min(1.0, 2.0 * min(above, below)), "greater": above, "less": below}[side]

    @property
    def leaning(self) -> int:
        ranks, signs = self.ranks(0.0)
        return int(np.sign((ranks * signs).sum()))

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.tied:
            return None
        upper, lower = np.triu_indices(self.n)
        walsh = np.sort((self.differences[upper] + self.differences[lower]) / 2.0)
        share = _rank_sum(tuple(2 * rank for rank in range(1, self.n + 1)))[::2]
        rank = int(np.searchsorted(2.0 * np.cumsum(share), alpha * (1.0 + EQUAL), side="right"))
        return None if rank < 1 else (float(walsh[rank - 1]), float(walsh[-rank]))

    def without_interval(self, alpha: float) -> str:
        if self.tied:
            return "no Hodges-Lehmann interval: some differences tie, and the Walsh averages are then not exact"
        return super().without_interval(alpha)


@lru_cache(maxsize=256)
def _rank_sum(doubled: tuple[int, ...]) -> Floats:
    """Null distribution of the doubled sum of positive ranks."""
    share = np.zeros(sum(doubled) + 1)
    share[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(share)
        moved[rank:] = share[: share.size - rank]
        share = (share + moved) / 2.0
    share.setflags(write=False)
    return share
