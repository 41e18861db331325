"""The false discovery rate over every test of a repository: Benjamini-Hochberg, and online LORD++.

Numbers only: p values in, adjusted p values or levels out. Which p values enter, and in which order, is
`ablate.programme`'s matter, and no verdict depends on any of them: a study was promised its own error rates.

Benjamini and Hochberg (1995) look at all p values at once, so that one more study can change what was found before.
LORD++ (Ramdas, Yang, Wainwright and Jordan 2017) decides each test when it comes, with a level that depends on
nothing but earlier discoveries, and never takes a decision back. With gamma non-increasing and summing to at most
one, times of discovery tau_1 < tau_2 < ..., and initial wealth w0:

    level_t = w0 gamma_t + (alpha - w0) gamma_(t - tau_1) + alpha sum_(j >= 2, tau_j < t) gamma_(t - tau_j)

It keeps the FDR at alpha when the p values of true nulls are independent of each other and of the rest, and the
sum of all levels at alpha times the discoveries (or alpha, before the first) whatever the p values are. No Python
library that we know has it; the R package onlineFDR has, and its documented example is in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

GAMMA_SCALE = 0.07720838
"""As published (Javanmard and Montanari 2018, equation 31). Gamma then sums to 0.976, a little less than it may."""
WEALTH_SHARE = 0.1
"""w0 as a share of alpha, as onlineFDR has it: most of the level is kept for after the first discovery."""


@dataclass(frozen=True)
class OnlineTest:
    """One test of a stream."""

    level: float
    """What its p value was compared with."""
    found: bool
    """Whether p was at most the level."""


def gamma(j: int) -> float:
    """How a level decays with the time since a discovery (Javanmard and Montanari 2018, equation 31), j from 1."""
    assert j >= 1, j
    return GAMMA_SCALE * log(max(j, 2)) / (j * exp(sqrt(log(j))))


def lord(p: Sequence[float], *, alpha: float, w0: float | None = None) -> tuple[OnlineTest, ...]:
    """LORD++ over p values in the order in which the tests were decided."""
    w0 = WEALTH_SHARE * alpha if w0 is None else w0
    assert 0.0 < alpha < 1.0 and 0.0 < w0 <= alpha, (alpha, w0)
    assert all(0.0 < value <= 1.0 for value in p), p
    discoveries: list[int] = []
    done = []
    for now, value in enumerate(p, start=1):
        level = w0 * gamma(now)
        for at, then in enumerate(discoveries):
            # The first discovery pays w0 back; without that the levels before it would count twice.
            level += (alpha - w0 if at == 0 else alpha) * gamma(now - then)
        found = value <= level
        if found:
            discoveries.append(now)
        done.append(OnlineTest(level, found))
    return tuple(done)


def benjamini_hochberg(p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values in the order given: each is the least FDR level at which its test is found."""
    assert all(0.0 < value <= 1.0 for value in p), p
    if not p:
        return ()
    from statsmodels.stats.multitest import multipletests

    adjusted = multipletests(list(p), method="fdr_bh")[1]
    return tuple(float(value) for value in adjusted)
