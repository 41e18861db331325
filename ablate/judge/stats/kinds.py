"""Every deciding test, one row each: how it is called, made and planned. `ablate/judge` asks here and nowhere else.

Where to add a test: its class in `tests`, a row here, its name in `prereg.study.analysis.Test`, in
`prereg.documents.procedures` and in a sentence of `prereg/documents/templates/study.txt`.
`tests/judge/test_conformance.py` runs over every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import numpy as np

from ablate.judge.stats.tests import (
    FAST_ENUMERATED_PAIRS,
    LISTED_PAIRS,
    RESAMPLES,
    ROWS_LISTED_PAIRS,
    BootstrapT,
    Floats,
    PairedT,
    Side,
    SignedRank,
    SignFlip,
    SignificanceTest,
    Welch,
    Zeros,
    multisets,
)
from ablate.judge.stats.two_way import TwoWay
from prereg.study.analysis import Test


@dataclass(frozen=True)
class TestKind:
    """One test that a study can register."""

    __test__: ClassVar[bool] = False  # no class of pytest

    test: type[SignificanceTest]
    """Its class: name, words and the smallest p that it can give."""
    studies: tuple[tuple[float, int], ...]
    """How many simulated studies are affordable, each with the number of seeds up to which that holds."""
    numbers: Callable[[int], int] = lambda n: n
    """Numbers that a study of n seeds takes in the largest array of the test."""
    fewest: int = 2
    """Pairs from which it decides; with fewer it only describes."""
    ranks: bool = False
    """Whether a diverged run can enter it by its rank; the test is then that of signed ranks."""
    by_library: Literal["", "ttest", "wilcoxon", "permutation_test", "ttest_ind"] = ""
    """The function of pingouin or scipy that gives a second opinion (`ablate.judge.recompute`); empty for none."""


KINDS: dict[Test, TestKind] = {
    "paired_t": TestKind(PairedT, ((inf, 10_000),), by_library="ttest"),
    "bootstrap_t": TestKind(
        BootstrapT,
        ((6, 2_000), (inf, 500)),
        lambda n: max(512, len(multisets(n)[1])) if n <= FAST_ENUMERATED_PAIRS else RESAMPLES,
        # Two-sided .072 and one-sided .094 at three pairs: more often than alpha (tests/judge/test_size_slow.py).
        fewest=4,
    ),
    "sign_flip": TestKind(
        SignFlip,
        ((8, 6_000), (10, 3_000), (ROWS_LISTED_PAIRS, 1_500), (LISTED_PAIRS, 500), (inf, 1_500)),
        lambda n: 2**n if n <= ROWS_LISTED_PAIRS else RESAMPLES,
        ranks=True,
        by_library="permutation_test",
    ),
    "wilcoxon": TestKind(SignedRank, ((6, 6_000), (inf, 2_500)), ranks=True, by_library="wilcoxon"),
    "items": TestKind(TwoWay, ((inf, 10_000),)),
    "welch": TestKind(Welch, ((inf, 10_000),), by_library="ttest_ind"),
}


def over_seeds(
    method: Test, x: Floats, *, rng_seed: int = 0, zeros: Zeros = "pratt", simulated: bool = False
) -> SignificanceTest:
    """The test of differences over seeds, studies x pairs; with `simulated` fewer resamples of many pairs.

    An infinite difference is a pair with one diverged run, NaN one with two. Welch's test and the two-way test are made
    from runs and from items, and not here.
    """
    kind = KINDS[method]
    assert kind.test not in (Welch, TwoWay), (method, "is not made from differences over seeds")
    if not np.isfinite(x).all():
        # Any other use was refused when the study was read (`prereg.study.validate`).
        assert kind.ranks, (method, x)
        ranked = SignedRank(x, zeros=zeros)
        ranked.name = method
        return ranked
    if kind.test is BootstrapT:
        return BootstrapT(x, rng_seed=rng_seed, simulated=simulated)
    if kind.test is SignFlip:
        return SignFlip(x, rng_seed=rng_seed, simulated=simulated)
    return SignedRank(x, zeros=zeros) if kind.test is SignedRank else PairedT(x)


def undecided(method: Test, n: int) -> str | None:
    """Why a test may describe n pairs and not decide from them; none where it may decide."""
    fewest = KINDS[method].fewest
    if n >= fewest or fewest == 2:
        return None
    return f"{n} pairs, and {words(method)} decides from {fewest} on: with fewer it errs more than alpha"


def p_floor(method: Test, n: int, side: Side = "two") -> float:
    """Smallest p that any n pairs can give."""
    return KINDS[method].test.floor(n, side)


def words(method: Test) -> str:
    """The method as a sentence says it."""
    return KINDS[method].test.words


def affordable(method: Test, n: int) -> int:
    """How many simulated studies of n seeds a scenario takes."""
    return next(most for limit, most in KINDS[method].studies if n <= limit)
