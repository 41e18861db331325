"""Every deciding test by its name: how it is made from differences, and when it may decide."""

from __future__ import annotations

import numpy as np

from ablate.judge.stats.tests import KINDS, Floats, Side, SignedRank, SignificanceTest, Zeros
from ablate.judge.stats.two_way import TwoWay
from prereg.study.tests import Test

assert TwoWay.name in KINDS, "the module of the two-way test fills its row"


def kind_of(method: Test) -> type[SignificanceTest]:
    """The class of a test. Raises `KeyError` for one that nobody declared."""
    return KINDS[method]


def over_seeds(
    method: Test, x: Floats, *, rng_seed: int = 0, zeros: Zeros = "pratt", simulated: bool = False
) -> SignificanceTest:
    """The test of differences over seeds, studies x pairs; with `simulated` fewer resamples of many pairs.

    An infinite difference is a pair with one diverged run, NaN one with two. Welch's test and the two-way test are made
    from runs and from items, and not here. Raises `NoTestError` below two pairs.
    """
    kind = kind_of(method)
    if not np.isfinite(x).all():
        # Any other use was refused when the study was read (`prereg.study.validate`).
        assert kind.takes_ranked, (method, x)
        ranked = SignedRank(x, zeros=zeros)
        ranked.name = method
        return ranked
    return kind.of_differences(x, rng_seed=rng_seed, zeros=zeros, simulated=simulated)


def undecided(method: Test, n: int) -> str | None:
    """Why a test may describe n pairs and not decide from them; none where it may decide."""
    fewest = kind_of(method).fewest
    if n >= fewest or fewest == 2:
        return None
    return f"{n} pairs, and {words(method)} decides from {fewest} on: with fewer it errs more than alpha"


def p_floor(method: Test, n: int, side: Side = "two") -> float:
    """Smallest p that any n pairs can give."""
    return kind_of(method).floor(n, side)


def words(method: Test) -> str:
    """The method as a sentence says it."""
    return kind_of(method).words


def affordable(method: Test, n: int) -> int:
    """How many simulated studies of n seeds a scenario takes."""
    return next(studies for most_seeds, studies in kind_of(method).affordable if n <= most_seeds)
