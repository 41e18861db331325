"""Percentile and BCa bootstraps of the mean (Efron 1979, 1987): description, never the judge.

They reject a true null too often at any number of seeds in use: 16 to 28% of the time with five at a nominal 5%, 8 to
11% with twenty, because resampling few values shows too little of their spread. They are reported under `also`,
labelled, and refused as `test` (`ablate.support`); a registration from before that refusal gets no finding from them.

p and interval are one another's inverse: the interval holds every resampled mean that the p does not reject. All n^n
resamples are used up to six pairs; the observed sample counts as one more, so a p is never 0.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from ablate.judge.procedure import EQUAL, Floats, NoTestError, Procedure, Side
from ablate.judge.resample import ENUMERATED_PAIRS, RESAMPLES, multisets


class Percentile(Procedure):
    """The percentile bootstrap: a null is rejected when few resampled means lie on its other side."""

    name = "percentile"
    words = "percentile bootstrap"

    def __init__(self, differences: Floats, rng: np.random.Generator) -> None:
        super().__init__(differences)
        if self.all_equal and not self.all_zero:
            raise NoTestError(f"all {self.n} differences are equal: resampling them shows no spread")
        if self.n <= ENUMERATED_PAIRS:
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
        return (2.0 if side == "two" else 1.0) / (1 + (n**n if n <= ENUMERATED_PAIRS else RESAMPLES))

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
