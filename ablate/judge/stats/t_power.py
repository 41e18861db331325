"""Power of a paired t, exactly, for planning: what difference can be found, and how many seeds it takes.

P(reject) is the normal probability given the sample SD, averaged over its chi distribution by quadrature. That is
the noncentral t without scipy's `nct`, which returns NaN far in its tails. These are textbook numbers for single
tests; the chances of verdicts come from simulating the registered rule (`ablate.judge.design.characteristics`).
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from ablate.judge.stats.paired_t import Floats

Kind = Literal["towards", "either", "margin", "equivalence"]
"""towards: two-sided level, one direction counts; either: both directions count; margin: one-sided against a
margin when the truth is no difference; equivalence: two one-sided tests when the truth is no difference."""

_NODES = 256
MOST_SEEDS = 2_000


def power(
    kind: Kind, size_sd: float, n: float, alpha: float, *, refuted_below: float | None = None, df: float | None = None
) -> float:
    """Chance of rejecting; `size_sd` is the effect, or the margin, in SDs of the differences.

    With `refuted_below`, a margin in the same unit, an effect that is shown to be smaller than it does not count,
    although it is shown not to be zero: a claim of a change is refuted then (`ablate.judge.stats.null_hypotheses`).
    Without pairs n is the number of runs per arm, and `df` the degrees of freedom (`unpaired.welch_df`).
    """
    assert n >= 2 and 0 < alpha < 1, (n, alpha)
    free = n - 1 if df is None else df
    spread, weight = sample_sd(free)
    shift = size_sd * np.sqrt(n)
    critical = float(special.stdtrit(free, 1.0 - (alpha / 2.0 if kind in ("towards", "either") else alpha)))
    if refuted_below is not None:
        one_sided = float(special.stdtrit(free, 1.0 - alpha))
        needed = np.maximum(critical * spread, refuted_below * np.sqrt(n) - one_sided * spread)
        chance = special.ndtr(shift - needed)
        if kind == "either":
            chance = chance + special.ndtr(-shift - needed)
        return float((chance * weight).sum())
    chance = special.ndtr(shift - critical * spread)
    if kind == "either":
        chance = chance + special.ndtr(-shift - critical * spread)
    if kind == "equivalence":
        room = shift - critical * spread
        chance = np.where(room > 0, 2.0 * special.ndtr(room) - 1.0, 0.0)
    return float((chance * weight).sum())


def detectable(kind: Kind, n: float, alpha: float, target: float = 0.8, *, df: float | None = None) -> float:
    """The size, in SDs of the differences, that reaches the target power."""
    from scipy import optimize  # here: it loads much, and `ablate check` needs none of it

    high = 1.0
    while power(kind, high, n, alpha, df=df) < target:
        high *= 2.0
    return float(optimize.brentq(lambda size: power(kind, size, n, alpha, df=df) - target, 0.0, high, xtol=1e-9))


def seeds_for(
    kind: Kind, size_sd: float, alpha: float, target: float, *, refuted_below: float | None = None
) -> int | None:
    """Fewest seeds that reach the target power; none when more than `MOST_SEEDS` are needed."""

    def enough(n: int) -> bool:
        return power(kind, size_sd, n, alpha, refuted_below=refuted_below) >= target

    found = bisect_left(range(MOST_SEEDS + 1), True, 2, key=enough)
    return found if found <= MOST_SEEDS else None


@lru_cache(maxsize=4096)
def sample_sd(df: float) -> tuple[Floats, Floats]:
    """Nodes and weights of sample SD / true SD."""
    node, weight = _legendre()
    spread = np.sqrt(2.0 * special.gammaincinv(df / 2.0, node) / df)  # of the chi-square law
    spread.setflags(write=False)
    return spread, weight


@lru_cache(maxsize=1)
def _legendre() -> tuple[Floats, Floats]:
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    return (node + 1.0) / 2.0, weight / 2.0
