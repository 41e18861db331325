"""Per-seed differences to an estimate: difference, interval, p, floor of p, and what a reader must know.

A test is prepared here from differences over seeds. Seeds x items (`items`) has its words and its floor here and is
prepared from a table of items by its caller (`ablate.judge.stats.crossed_items`); no test over seeds replaces it.
"""

from __future__ import annotations

import numpy as np

from ablate.judge.stats.crossed_items import TwoWay
from ablate.judge.stats.paired_t import Floats, NoTestError, PairedT, Procedure, Side
from ablate.judge.stats.resample import (
    FEWEST_BOOTSTRAPPED,
    BootstrapT,
    SignedRank,
    SignFlip,
    hodges_lehmann,
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


__all__ = ["NoTestError", "p_floor", "prepare", "summarise", "undecided", "words"]

_TESTS: tuple[type[Procedure], ...] = (PairedT, BootstrapT, SignFlip, SignedRank, TwoWay, Welch)
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
    if kind is BootstrapT:
        return BootstrapT(differences, rng)
    if kind is SignFlip:
        return SignFlip(differences, rng)
    return SignedRank(differences, zeros) if kind is SignedRank else PairedT(differences)


def undecided(method: Test, n: int) -> str | None:
    """Why a test may describe n pairs and not decide from them; none where it may decide."""
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
        p_floor=test.floor(test.n),
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
