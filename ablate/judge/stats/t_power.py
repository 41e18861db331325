"""Power of a paired t, exactly, and seeds needed (`ablate check`); of a whole rule: `design/power.py` (`design`).

P(reject) is the normal probability given the sample SD, averaged over its chi distribution by quadrature. That is
the noncentral t without scipy's `nct`, which returns NaN far in its tails. These are textbook numbers for single
tests; the chances of verdicts come from simulating the registered rule (`ablate.judge.design.characteristics`).

Plain floats throughout: `ablate check` states a power, and importing numpy and scipy for it would take longer than
everything else that `check` does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from math import erf, erfc, exp, expm1, inf, log, pi, sqrt
from typing import Literal

from ablate.judge.stats.root import root

Kind = Literal["towards", "either", "margin", "equivalence"]
"""towards: two-sided level, one direction counts; either: both directions count; margin: one-sided against a
margin when the truth is no difference; equivalence: two one-sided tests when the truth is no difference."""

MOST_SEEDS = 2_000
_NEGLIGIBLE = -40.0
"""Logarithm of a weight, relative to the largest, from which on nodes are left out."""
_STEP = 1.0 / 32.0
_FIRST, _LAST = -3.5, 5.0
MOST_SPREAD = 40.0
"""In true SDs: of all samples of two or more, none that a double can count has a larger SD."""


@lru_cache(maxsize=4096)
def t_test_power(
    kind: Kind, size_sd: float, n: float, alpha: float, *, refuted_below: float | None = None, df: float | None = None
) -> float:
    """Power of a t test: the chance of rejecting.

    Parameters
    ----------
    kind : "towards", "either", "margin" or "equivalence"
        Which test, see `Kind`.
    size_sd : float
        The effect, or the margin, in SDs of the differences.
    n : float
        Pairs; without pairs the runs per arm.
    alpha : float
        The level: two-sided against zero, one-sided against a margin.
    refuted_below : float, optional
        A margin in the same unit. An effect that is shown to be smaller than it does not count, although
        it is shown not to be zero: a claim of a change is refuted then
        (`ablate.judge.stats.null_hypotheses`).
    df : float, optional
        The degrees of freedom without pairs (`unpaired.welch_df`).

    Notes
    -----
    Given the sample SD S, in true SDs, a two-sided t rejects towards the effect with chance
    Phi(d sqrt(n) - t(1 - alpha / 2) S); the mean over the chi law of S is the noncentral t.

    Examples
    --------
    Half an SD, twenty pairs, next to scipy's noncentral t:

    >>> from scipy.stats import nct, t
    >>> critical, shift = t.ppf(0.975, 19), 0.5 * sqrt(20)
    >>> expected = nct.sf(critical, 19, shift) + nct.cdf(-critical, 19, shift)
    >>> bool(abs(t_test_power("either", 0.5, 20, 0.05) - expected) < 1e-9)
    True
    """
    assert n >= 2 and 0 < alpha < 1, (n, alpha)
    free = n - 1 if df is None else df
    shift = size_sd * sqrt(n)  # the effect in standard errors, as is everything below
    critical = t_quantile(free, alpha / 2.0 if kind in ("towards", "either") else alpha)
    if kind == "equivalence":
        # Both one-sided tests reject where the mean lies within shift - critical S of the truth, which is 0.
        return _mean(lambda spread: max(0.0, erf((shift - critical * spread) / sqrt(2.0))), free, shift / critical)
    # Of a claim that too small an effect refutes, the mean must also lie beyond margin - t S: short
    # of the margin is not shown.
    margin, one_sided = 0.0, 0.0
    if refuted_below is not None:
        margin, one_sided = refuted_below * sqrt(n), t_quantile(free, alpha)

    def rejects(spread: float) -> float:
        needed = max(critical * spread, margin - one_sided * spread)
        chance = _normal(shift - needed)
        return chance + _normal(-shift - needed) if kind == "either" else chance

    # Where the larger of the two bounds changes hands the chance has a kink; else where it falls
    # off.
    corner = margin / (critical + one_sided) if margin > 0.0 else shift / critical
    # No sample has an SD at which an enormous effect would be missed, and its steep rise need not be resolved.
    rise = (shift / critical, shift) if shift < MOST_SPREAD * critical else (0.0, 0.0)
    return _mean(rejects, free, corner, rise=rise)


@lru_cache(maxsize=4096)
def detectable(kind: Kind, n: float, alpha: float, target: float = 0.8, *, df: float | None = None) -> float:
    """The size, in SDs of the differences, that reaches the target power.

    Examples
    --------
    >>> size = detectable("towards", 8, 0.05)
    >>> round(size, 3), round(t_test_power("towards", size, 8, 0.05), 6)
    (1.156, 0.8)
    """
    high = 1.0
    # Power rises with the size: doubled until it brackets the target, then Brent.
    while t_test_power(kind, high, n, alpha, df=df) < target:
        high *= 2.0
    return root(lambda size: t_test_power(kind, size, n, alpha, df=df) - target, 0.0, high, xtol=1e-9)


@lru_cache(maxsize=4096)
def seeds_for(
    kind: Kind, size_sd: float, alpha: float, target: float, *, refuted_below: float | None = None
) -> int | None:
    """Fewest seeds that reach the target power; none when more than `MOST_SEEDS` are needed.

    Examples
    --------
    >>> n = seeds_for("either", 0.5, 0.05, 0.9)
    >>> n, t_test_power("either", 0.5, n - 1, 0.05) < 0.9 <= t_test_power("either", 0.5, n, 0.05)
    (44, True)
    """

    def enough(n: int) -> bool:
        return t_test_power(kind, size_sd, n, alpha, refuted_below=refuted_below) >= target

    fewest = bisect_left(range(MOST_SEEDS + 1), True, 2, key=enough)
    return fewest if fewest <= MOST_SEEDS else None


@lru_cache(maxsize=4096)
def t_quantile(df: float, tail: float) -> float:
    """The value that Student's t with `df` degrees of freedom exceeds with a chance of `tail`, at most one half.

    Examples
    --------
    >>> round(t_quantile(4.0, 0.025), 6)  # any table: 2.776
    2.776445
    """
    assert 0.0 < tail <= 0.5, tail
    # T = Z / S, so that P(T > c) = E[Phi(-c S)]. Newton's method on its logarithm, which is nearly straight in c.
    spreads, weights = sample_sd(df)
    critical = 0.0
    for _ in range(100):
        chance = sum(w * _normal(-critical * s) for s, w in zip(spreads, weights, strict=True))
        slope = sum(w * s * exp(-0.5 * (critical * s) ** 2) for s, w in zip(spreads, weights, strict=True))
        step = log(chance / tail) * chance * sqrt(2.0 * pi) / slope
        critical += step
        if abs(step) <= 1e-13 * critical:
            break
    return critical


@lru_cache(maxsize=4096)
def sample_sd(df: float, *, largest_shift: float = 0.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights of sample SD / true SD, for averages of Phi(a - b S) with `a` up to `largest_shift`.

    Examples
    --------
    The mean of S^2 is 1, whatever the degrees of freedom.

    >>> nodes, weights = sample_sd(3.0)
    >>> round(sum(w * s * s for s, w in zip(nodes, weights)), 9)
    1.0

    Notes
    -----
    The trapezoidal rule in u = log S, whose error falls exponentially in 1 / step (Trefethen and Weideman 2014). The
    step resolves the density (its SD is about 1 / sqrt(2 df)), its singularities at Im u = pi / 4 and the edge of Phi
    (width 1 / a).
    """
    step = min(0.12, 0.7 / sqrt(2.0 * df), 0.7 / max(largest_shift, 1.0))
    weights: dict[float, float] = {}
    for sign in (1, -1):
        u = 0.0
        # Outwards from the mode on both sides, until nothing is added.
        while (log_weight := _log_weight(u, df)) > _NEGLIGIBLE:
            weights[exp(u)] = exp(log_weight)
            u += sign * step
    total = sum(weights.values())
    return tuple(weights), tuple(weight / total for weight in weights.values())


def _mean(
    chance: Callable[[float], float], df: float, corner: float, *, rise: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Mean of a chance over the law of the sample SD. At `corner` the chance may have a kink; at another SD it may rise
    as steeply as Phi(slope (1 - S / SD)): `rise` is (SD, slope)."""
    # From the corner outwards on both sides by v = exp(t - exp(-t)), whose nodes crowd towards it: the double
    # exponential rule (Takahasi and Mori 1974). A corner where nearly no sample SD lies is moved to where some do.
    start = log(corner) if corner > 0.0 else 0.0
    while _log_weight(start, df) < _NEGLIGIBLE:
        start *= 0.9
    step, (at, slope) = _STEP, rise
    if at > 0.0 and at != corner:
        # At a distance v from the corner nodes are about v * step apart.
        step = min(step, 0.5 / (slope * abs(log(at) - start)))
    total = mean = 0.0
    for sign in (1, -1):
        t = _FIRST
        while t < _LAST:
            v = exp(t - exp(-t))
            log_weight = _log_weight(start + sign * v, df)
            if log_weight > _NEGLIGIBLE:
                weight = v * (1.0 + exp(-t)) * exp(log_weight)
                total += weight
                mean += weight * chance(exp(start + sign * v))
            elif sign * (start + sign * v) > 0.0:
                break  # beyond the density, which falls on both sides of u = 0
            t += step
    return mean / total


def _log_weight(u: float, df: float) -> float:
    """Logarithm of the density of u = log(sample SD / true SD) relative to its largest, at u = 0."""
    return df * (u - expm1(2.0 * u) / 2.0) if u < 300.0 else -inf


def _normal(z: float) -> float:
    """Phi, the standard normal distribution function."""
    return 0.5 * erfc(-z / sqrt(2.0))
