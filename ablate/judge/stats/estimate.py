"""Per-seed differences to an estimate: difference, interval, p, floor of p, and what a reader must know.

A test is prepared here from differences over seeds. Seeds x items (`items`) has its words and its floor here and is
prepared from a table of items by its caller (`ablate.judge.stats.crossed_items`); no test over seeds replaces it.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from ablate.judge.stats.crossed_items import TwoWay
from ablate.judge.stats.paired_t import EQUAL, Floats, NoTestError, PairedT, Procedure, Side
from ablate.judge.stats.resample import (
    FAST_ENUMERATED_PAIRS,
    FEWEST_BOOTSTRAPPED,
    RESAMPLES,
    BootstrapT,
    SignedRank,
    SignFlip,
    hodges_lehmann,
    multisets,
)
from ablate.judge.stats.unpaired import Welch
from ablate.judge.verdict import Estimate
from prereg.errors import UnsupportedError
from prereg.study.analysis import Test, Zeros

RANKABLE: tuple[Test, ...] = ("wilcoxon", "sign_flip")
"""The tests that a diverged run can enter by its rank."""


class RankedPairs(SignedRank):
    """Signed ranks over differences of which some are infinite (one run diverged) or NaN (both did)."""

    words = "signed-rank test with diverged runs ranked worst"

    def __init__(self, differences: Floats, method: Test, zeros: Zeros = "pratt") -> None:
        # Any other use was refused when the study was read (`prereg.study.validate`).
        assert method in RANKABLE, (method, differences)
        sized = np.isfinite(differences)
        self.beyond = np.where(np.isinf(differences), np.sign(differences), 0.0)
        self.both = np.isnan(differences)
        super().__init__(np.where(sized, differences, 0.0), zeros)
        self.name = method
        self.unsized = int((~sized).sum())
        self.centre = hodges_lehmann(differences)
        self.notes = (
            f"signed ranks, exact over the observed mid-ranks: {int((self.beyond != 0).sum())} pair(s) with one "
            f"diverged run ranked beyond all others, {int(self.both.sum())} with two tied",
            "no mean and no interval: a diverged run has no number; the difference is Hodges and Lehmann's"
            if self.centre is not None
            else "no difference and no interval: too many runs diverged for a finite Hodges-Lehmann estimate",
        )

    def _shifted(self, null: float) -> Floats:
        shifted = np.where(self.beyond != 0, np.inf * np.where(self.beyond < 0, -1.0, 1.0), super()._shifted(null))
        return np.where(self.both, 0.0, shifted)

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        return None

    def without_interval(self, alpha: float) -> str:
        return f"{self.unsized} pair(s) hold a diverged run, whose difference has no size"


class Percentile(Procedure):
    """The percentile bootstrap: a null is rejected when few resampled means lie on its other side."""

    name = "percentile"
    words = "percentile bootstrap"

    def __init__(self, differences: Floats, rng: np.random.Generator) -> None:
        super().__init__(differences)
        if self.all_equal and not self.all_zero:
            raise NoTestError(f"all {self.n} differences are equal: resampling them shows no spread")
        if self.n <= FAST_ENUMERATED_PAIRS:
            counts, weights = multisets(self.n)
            means, how = counts @ self.scaled / self.n, f"all {self.n}^{self.n} resamples enumerated"
        else:
            drawn = rng.integers(0, self.n, size=(RESAMPLES, self.n))
            means, weights, how = self.scaled[drawn].mean(axis=1), np.ones(RESAMPLES), f"{RESAMPLES} resamples"
        order = np.argsort(means, kind="stable")
        self.means = means[order]
        self.below = np.concatenate([[0.0], np.cumsum(weights[order])])
        self.bias, self.skew = 0.0, 0.0
        self.notes += (how, f"description only: with {self.n} pairs it rejects a true null too often")

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """That of the percentile bootstrap; BCa moves its levels and can go below, but never to 0."""
        return (2.0 if side == "two" else 1.0) / (1 + (n**n if n <= FAST_ENUMERATED_PAIRS else RESAMPLES))

    def p(self, null: float, side: Side) -> float:
        above, below = (float(found[0]) for found in self._tails(np.array([self.to_unit(null)])))
        return {"two": min(1.0, 2.0 * min(above, below)), "greater": above, "less": below}[side]

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.all_zero:
            return 0.0, 0.0
        above, below = self._tails(self.means)
        kept = self.means[2.0 * np.minimum(above, below) > alpha]
        return (self.from_unit(kept[0]), self.from_unit(kept[-1])) if kept.size else None

    def _tails(self, nulls: Floats) -> tuple[Floats, Floats]:
        """One-sided p of evidence above and below each null."""
        total = self.below[-1]
        slack = EQUAL * np.maximum(self.scaled_size, np.abs(nulls))
        up_to = self.below[np.searchsorted(self.means, nulls + slack, side="right")]
        short = self.below[np.searchsorted(self.means, nulls - slack, side="left")]
        above = self._moved((1.0 + up_to) / (1.0 + total), 1.0)
        below = self._moved((1.0 + total - short) / (1.0 + total), -1.0)
        return above, below

    def _moved(self, share: Floats, sign: float) -> Floats:
        """The level at which BCa's end point is here; the share itself where bias and skew are 0."""
        if self.bias == 0.0 and self.skew == 0.0:
            return share
        bias, skew = sign * self.bias, sign * self.skew
        # Never beyond half a draw, so that neither quantile nor p is infinite.
        step = special.ndtri(np.clip(share, 0.5 / (1.0 + self.below[-1]), 1.0 - 0.5 / (1.0 + self.below[-1]))) - bias
        return np.asarray(special.ndtr(step / (1.0 + skew * step) - bias))


class Bca(Percentile):
    """Bias-corrected and accelerated: the percentile levels moved by the resamples' bias and the data's skewness."""

    name = "bca"
    words = "BCa bootstrap"

    def __init__(self, differences: Floats, rng: np.random.Generator) -> None:
        super().__init__(differences, rng)
        if self.all_zero:
            return
        slack = EQUAL * self.scaled_size
        short = self.below[np.searchsorted(self.means, self.scaled_mean - slack, side="left")]
        up_to = self.below[np.searchsorted(self.means, self.scaled_mean + slack, side="right")]
        middle = (short + up_to) / 2.0  # ties of the mean count half
        self.bias = float(special.ndtri(middle / self.below[-1]))
        centred = self.scaled - self.scaled_mean
        self.skew = float((centred**3).sum() / (6.0 * (centred**2).sum() ** 1.5))  # the jackknife's, for a mean


__all__ = ["NoTestError", "p_floor", "prepare", "summarise", "undecided", "words"]

_TESTS: tuple[type[Procedure], ...] = (PairedT, BootstrapT, SignFlip, SignedRank, Percentile, Bca, TwoWay, Welch)
PROCEDURES: dict[str, type[Procedure]] = {kind.name: kind for kind in _TESTS}


def prepare(differences: Floats, method: Test, rng: np.random.Generator, zeros: Zeros = "pratt") -> Procedure:
    """The test bound to these differences. Raises `NoTestError` where the test is undefined.

    An infinite difference is a pair with one diverged run, NaN one with two: see `ablate.judge.stats.estimate`.
    """
    kind = PROCEDURES[method]
    assert kind is not Welch, (method, "a test without pairs is prepared from runs, not from differences")
    if kind is TwoWay:
        raise UnsupportedError(
            "the test 'items' was given differences over seeds",
            required="a table of items: without it the spread over items is unknown, and it is not zero",
            fix="test: paired_t",
        )
    if not np.isfinite(differences).all():
        return RankedPairs(differences, method, zeros)
    if issubclass(kind, Percentile):
        return kind(differences, rng)
    if kind is BootstrapT:
        return BootstrapT(differences, rng)
    if kind is SignFlip:
        return SignFlip(differences, rng)
    return SignedRank(differences, zeros) if kind is SignedRank else PairedT(differences)


def undecided(method: Test, n: int) -> str | None:
    """Why a test may describe n pairs and not decide from them; none where it may decide."""
    if issubclass(PROCEDURES[method], Percentile):
        return (
            f"{words(method)} describes and never decides: at twenty pairs it still errs in .08 to .11 instead of .05"
        )
    if method == BootstrapT.name and n < FEWEST_BOOTSTRAPPED:
        return (
            f"{n} pairs, and {words(method)} decides from {FEWEST_BOOTSTRAPPED} on: with fewer it errs more than alpha"
        )
    return None


def summarise(test: Procedure, alpha: float) -> Estimate:
    """What a prepared test says."""
    interval = test.interval(alpha)
    notes = test.notes if interval is not None else (*test.notes, test.without_interval(alpha))
    return Estimate(
        method=test.name,
        difference=test.centre,
        ranked=test.unsized,
        interval=interval,
        p=test.p(0.0, "two"),
        p_floor=test.smallest_p("two"),
        n=test.n,
        se=test.se,
        df=test.df,
        notes=notes,
        items=test.items,
        sizes=test.sizes,
    )


def p_floor(method: Test, n: int, side: Side = "two") -> float:
    """Smallest p that any n pairs can give."""
    return PROCEDURES[method].floor(n, side)


def words(method: Test) -> str:
    """The method as a sentence says it."""
    return PROCEDURES[method].words
