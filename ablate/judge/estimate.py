"""Per-seed differences to an estimate: difference, interval, p, floor of p, and what a reader must know.

A test is prepared here from differences over seeds. Seeds x items (`items`) has its words and its floor here and is
prepared from a table of items by whoever has one (`ablate.judge.items`); no test over seeds stands in for it.
"""

from __future__ import annotations

import numpy as np

from ablate.judge.items import TwoWay
from ablate.judge.percentile import Bca, Percentile
from ablate.judge.procedure import Floats, NoTestError, PairedT, Procedure, Side
from ablate.judge.ranked import RankedPairs
from ablate.judge.resample import FEWEST_BOOTSTRAPPED, BootstrapT, SignedRank, SignFlip
from ablate.judge.verdict import Estimate
from prereg.errors import UnsupportedError
from prereg.study.analysis import Test, Zeros

__all__ = ["NoTestError", "Side", "estimate", "p_against", "p_floor", "prepare", "undecided", "words"]

PROCEDURES: dict[str, type[Procedure]] = {
    kind.name: kind for kind in (PairedT, BootstrapT, SignFlip, SignedRank, Percentile, Bca, TwoWay)
}


def prepare(differences: Floats, method: Test, rng: np.random.Generator, zeros: Zeros = "pratt") -> Procedure:
    """The test bound to these differences. Raises `NoTestError` where the test is undefined.

    An infinite difference is a pair with one diverged run, NaN one with two: see `ablate.judge.ranked`.
    """
    kind = PROCEDURES[method]
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
    return PairedT(differences) if kind is PairedT else SignedRank(differences, zeros)


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


def estimate(
    differences: Floats, method: Test, *, alpha: float, rng: np.random.Generator, zeros: Zeros = "pratt"
) -> Estimate:
    """The effect shown, two-sided interval at 1 - alpha and two-sided p against zero. Nothing is corrected here."""
    return summarise(prepare(differences, method, rng, zeros), alpha)


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
    )


def p_against(differences: Floats, method: Test, *, null: float, side: Side, rng: np.random.Generator) -> float:
    """p of the null; `greater` is evidence that the effect is above it. The caller names the side, before data."""
    return prepare(differences, method, rng).p(null, side)


def p_floor(method: Test, n: int, side: Side = "two") -> float:
    """Smallest p that any n pairs can give."""
    return PROCEDURES[method].floor(n, side)


def words(method: Test) -> str:
    """The method as a sentence says it."""
    return PROCEDURES[method].words
