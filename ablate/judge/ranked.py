"""Diverged runs as the worst there is: a signed-rank test that needs no number for them (`on_divergence: rank`).

A pair in which one run diverged has a difference with a sign and no size: it is ranked beyond every finite one, all
such pairs tied. A pair in which both diverged is a tie and says nothing about any null: it is handled as a zero
(`analysis.zeros`). The distribution is exact over the observed mid-ranks, so it stays valid however many tie
at the bottom, and so it does for sign_flip, which takes ranks as soon as one run diverged: whether one did is known
from the sizes of the differences, and flipping signs leaves sizes alone.

No mean exists here, and none is made up. The difference shown is Hodges and Lehmann's (1963), the median of the Walsh
averages with infinite ones at their ends, where that is finite; otherwise there is none. There is no interval.
"""

from __future__ import annotations

import numpy as np

from ablate.judge.procedure import Floats
from ablate.judge.resample import SignedRank, hodges_lehmann
from prereg.study.analysis import Test, Zeros

RANKABLE: tuple[Test, ...] = ("wilcoxon", "sign_flip")
"""The tests that a diverged run can enter by its rank."""


class RankedPairs(SignedRank):
    """Signed ranks over differences of which some are infinite (one run diverged) or NaN (both did)."""

    words = "signed-rank test with diverged runs ranked worst"

    def __init__(self, differences: Floats, method: Test, zeros: Zeros = "pratt") -> None:
        # Whoever asks otherwise was refused when the study was read (`prereg.study.validate`).
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
