"""Spikes of a loss curve: a robust z-score against the trailing window, and how often noise alone exceeds a limit.

A step is a spike where (loss - median) / scale of the window before it exceeds a limit. `spike_chance` gives the chance
S of one step of stationary normal noise. Windows of neighbouring steps overlap and their alarms come together, so that
1 - (1 - S)^steps is an upper bound for the chance of any alarm: 2% too high at a limit of 10 over a window of 20, 5% at
6.

Pure functions of arrays: which runs and arms are called stable is `ablate.judge.audit.stability`.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, expm1, lgamma, log, log1p, pi, sqrt
from typing import Final

import numpy as np
from scipy import special

from ablate.judge.stats.root import root
from ablate.judge.stats.significance_tests import Floats

_SCALE: Final = 1.4826
"""From MAD to SD under a normal law: 1 / Phi^-1(3/4)."""
EARLY: Final = 0.02
"""Chance of an alarm in the first steps over that in the steps with a full window before them; an upper bound."""
_WIDEST: Final = 199
_HIGHEST: Final = 1e6


def any_of(chance: float, times: int) -> float:
    """The chance that any of so many independent events happens, each with the given chance.

    Examples
    --------
    >>> any_of(0.5, 2)
    0.75
    """
    return 1.0 if chance >= 1.0 else -expm1(times * log1p(-chance))


def each_of(chance: float, times: int) -> float:
    """The chance of each of so many independent events of which any happens with the given chance.

    Examples
    --------
    >>> each_of(0.75, 2)
    0.5
    """
    # 1 - (1 - chance)^(1 / times), which keeps its digits where the chance is small.
    return -expm1(log1p(-chance) / times)


@lru_cache(maxsize=1024)
def limit_of(chance: float, window: int) -> float:
    """The limit that one step of noise exceeds with a chance, rounded up to two decimals, so that every machine
    finds the same.

    Examples
    --------
    >>> limit = limit_of(1e-6, 20)
    >>> spike_chance(limit, 20) <= 1e-6 < spike_chance(limit - 0.02, 20)
    True
    """
    target = log(chance)
    if spike_chance(_HIGHEST, window) >= chance:
        return _HIGHEST
    # In logarithms of both, where the chance falls as a power of the limit: nearly a straight line.
    log_limit = root(lambda at: log(spike_chance(exp(at), window)) - target, log(0.01), log(_HIGHEST), xtol=1e-9)
    return ceil(round(100.0 * exp(log_limit), 4)) / 100.0


@lru_cache(maxsize=1024)
def spike_chance(above: float, window: int) -> float:
    """P(z > above) of a normal loss after a window of normal ones, all independent.

    Examples
    --------
    By simulation: the MAD of three losses is often so small that a fourth lies more than 10 scales above.

    >>> draws = np.random.default_rng(0).standard_normal((200_000, 4))
    >>> median = np.median(draws[:, :3], axis=1)
    >>> mad = np.median(np.abs(draws[:, :3] - median[:, None]), axis=1)
    >>> share = float((draws[:, 3] - median > 10.0 * 1.4826 * mad).mean())
    >>> bool(abs(share - spike_chance(10.0, 3)) < 4.0 * np.sqrt(share / 200_000))
    True

    Notes
    -----
    Given the median m and the MAD s of the window, the chance is Phi(-(m + 1.4826 above s)). Over an odd window of
    2k + 1 the joint law of the two is known: beyond the median lie k values on either side, each side a sample of the
    normal law cut off at m, and the MAD is at most s if k of these 2k lie within s of m. The double integral is taken
    by Gauss-Legendre, relative error below 1e-6. An even window takes the average of two middle values; there the
    chance is that of the next odd window over 1 - 0.53 / window, which differs from the integral over all four middle
    values by less than 0.6% at limits of 5 and more, and 2.3% from 2 on. Windows of more than 199 steps are taken as
    199: an upper bound.
    """
    window = min(window, _WIDEST)
    k = window // 2
    b = _SCALE * above
    # The SD of the median of n normal values is about 1.25 / sqrt(n): 11 / sqrt(n) is nearly nine of them.
    far = np.array(min(6.0, 11.0 / sqrt(window)))
    m, of_m = _nodes(32, -far, far)
    # Density of the median of 2k + 1 values: (2k + 1)! / k!^2 Phi(m)^k Phi(-m)^k phi(m). In logarithms: its
    # factorials overflow.
    log_density = (
        lgamma(2 * k + 2) - 2.0 * lgamma(k + 1) + k * (special.log_ndtr(m) + special.log_ndtr(-m)) - m * m / 2.0
    )
    of_m = of_m * np.exp(log_density) / sqrt(2.0 * pi)
    # Beyond the end either the MAD is never so large, or the loss is never so far out.
    end = np.minimum((9.0 - m) / b, 1.0 + np.abs(m) + 12.0 / sqrt(window))
    s, of_s = _nodes(40 + window // 4, np.zeros_like(m), end)
    m = m[:, None]
    # The k values below m are a sample of the normal law cut off at m: the chance that one of them lies within s of
    # m.
    below = _binomial(k, 1.0 - special.ndtr(m - s) / special.ndtr(m))
    beyond = _binomial(k, 1.0 - special.ndtr(-m - s) / special.ndtr(-m))
    # i of the values below the median, and at least k - i of those beyond it.
    within = (below * np.cumsum(beyond[..., ::-1], axis=-1)).sum(axis=-1)
    integrand = b * np.exp(-((m + b * s) ** 2) / 2.0) / sqrt(2.0 * pi) * within
    odd = float((of_m * ((integrand * of_s).sum(axis=1) + special.ndtr(-(m[:, 0] + b * end)))).sum())
    return odd if window % 2 else odd / (1.0 - 0.53 / window)


def _binomial(k: int, chance: Floats) -> Floats:
    """The chances of 0 to k successes, along a last axis."""
    i, chance = np.arange(k + 1), chance[..., None]
    return np.asarray(special.binom(k, i) * chance**i * (1.0 - chance) ** (k - i))


def _nodes(n: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss-Legendre between two ends, along a last axis."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    half = (high - low)[..., None] / 2.0
    return low[..., None] + half * (1.0 + nodes), half * weights


def spike_places(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Indices of upward spikes: (loss - median) / scale above the limit, over the full window just before.

    Examples
    --------
    >>> losses = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 3.0, 1.0])
    >>> spike_places(losses, above=6.0, window=5).tolist()
    [5]

    Notes
    -----
    The scale is 1.4826 x MAD, which estimates the SD under a normal law; where more than half of a window is one value
    the MAD is 0, and 1.2533 x the mean absolute deviation is taken (Iglewicz and Hoaglin 1993). After a window that is
    constant throughout any rise is a spike. A value that is not finite is a spike, and no window that holds one is
    judged: such a run has diverged anyway.

    Of losses that were logged with few digits each lies within half a step of their grid from the true one. A rise is
    then taken as one step smaller and the MAD as one step larger: a spike of the logged losses is one of the true ones,
    so that rounding adds no false alarm.
    """
    losses = np.asarray(losses, dtype=np.float64)
    broken = np.flatnonzero(~np.isfinite(losses))
    if losses.size <= window:
        return broken
    # Few steps can be spikes at all: the median and the MAD are computed for those.
    maybe = _maybe_risen(losses, above=above, window=window)
    before = np.lib.stride_tricks.sliding_window_view(losses, window)[maybe]
    finite = np.isfinite(before).all(axis=1) & np.isfinite(losses[window:][maybe])
    maybe = maybe[finite]
    before, now = before[finite], losses[window:][maybe]
    # before: places x window. All of it is per place, so a curve of any length needs no loop.
    median = np.median(before, axis=1)
    distance = np.abs(before - median[:, None])
    mad = np.median(distance, axis=1)
    grid = grids(losses, maybe, window)
    with np.errstate(over="ignore"):
        scale = np.where((mad > 0) | (grid > 0), _SCALE * (mad + grid), 1.2533 * distance.mean(axis=1))
        risen = now - median - grid > above * scale
    return np.union1d(broken, maybe[risen] + window).astype(np.int64)


def early_spike_places(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Indices of spikes before the first full window: above the median of all that came before, and of the window that
    follows, by so many of that window's scale.

    Stationary noise is the same backwards, so that the chance of one step is at most `spike_chance` of its limit. The
    limit is higher than that of later steps: the first steps add `EARLY` to their chance. A loss that falls is below
    what came before, and no spike.

    Examples
    --------
    >>> losses = 1.0 + 0.1 * np.sin(np.arange(60.0))
    >>> losses[2] = 90.0
    >>> early_spike_places(losses, above=6.0, window=20).tolist()
    [2]
    """
    losses = np.asarray(losses, dtype=np.float64)
    # Steps 1 to window - 1 have no full window before them; each needs a full one after it.
    judged = min(window - 1, losses.size - 1 - window)
    if judged < 1:
        return np.empty(0, dtype=np.int64)
    chance = EARLY * spike_chance(above, window) * (losses.size - window) / judged
    limit = max(above, limit_of(chance, window)) if chance > 0.0 else above
    end, spikes = judged + window, []
    backwards = losses[: end + 1][::-1]
    for place in end - spike_places(backwards, above=limit, window=window):
        before, after = losses[:place], losses[place + 1 : place + 1 + window]
        if 1 <= place <= judged and np.isfinite(losses[: place + 1]).all():
            # The same spike with the median of what follows raised to that of what came before.
            lowered = np.append(after[::-1], losses[place] - max(float(np.median(before) - np.median(after)), 0.0))
            if spike_places(lowered, above=limit, window=window).size:
                spikes.append(int(place))
    return np.array(sorted(spikes), dtype=np.int64)


def grids(losses: Floats, places: np.ndarray, window: int) -> Floats:
    """The step of the grid on which the losses of some windows lie, each with the loss after it; 0 where on none.

    Decimals up to the eighth, of double or single precision, and the numbers of bfloat16 and of half precision. A grid
    counts where all losses of a window lie on it, which those that were not rounded do not.

    Examples
    --------
    >>> losses = np.array([1.23, 1.25, 1.21, 1.22])
    >>> grids(losses, np.array([0]), 3).tolist(), grids(losses + np.pi, np.array([0]), 3).tolist()
    ([0.01], [0.0])
    """
    grid = np.zeros(places.size)
    if not places.size:
        return grid
    decimal = np.zeros(losses.size)
    with np.errstate(over="ignore", invalid="ignore"):
        single = losses.astype(np.float32)
        is_single = single.astype(np.float64) == losses
        for digits in range(8, -1, -1):
            step = 10.0**-digits
            rounded = np.rint(losses * 10.0**digits) / 10.0**digits
            near = is_single & (rounded.astype(np.float32) == single) & (step > 8.0 * np.spacing(np.abs(single)))
            decimal[((rounded == losses) & (step > 8.0 * np.spacing(np.abs(losses)))) | near] = step
        fraction, exponent = np.frexp(losses)
    grid = np.lib.stride_tricks.sliding_window_view(decimal, window + 1)[places].min(axis=1)
    fraction = np.where(np.isfinite(losses), fraction, np.pi)  # on no grid
    # Significant bits of bfloat16 and of half precision, the leading one counted.
    for bits in (8, 11):
        on_grid = np.ldexp(fraction, bits) % 1.0 == 0.0
        spacing = np.where(on_grid, np.ldexp(1.0, exponent - bits), np.inf)
        widest = np.lib.stride_tricks.sliding_window_view(spacing, window + 1)[places].max(axis=1)
        grid = np.maximum(grid, np.where(np.isfinite(widest), widest, 0.0))
    return np.asarray(grid, dtype=np.float64)


def _maybe_risen(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Places after the first window that may be spikes: all that are, and few others, for a tenth of the time.

    A quarter of a window's length of neighbouring windows is judged by all their values, sorted once. A median is no
    lower than the value that has its rank among them. Half of a window lies within its MAD, so that the MAD is no
    smaller than half of the shortest range of so many values. More values than those of the windows do no harm.
    """
    half, step = (window + 1) // 2, window // 4
    finite = np.where(np.isfinite(losses), losses, 0.0)  # a window with another value is not judged
    finite = np.append(finite, np.zeros(step))
    values = np.lib.stride_tricks.sliding_window_view(finite, window + step)[::step]
    ranked = np.sort(values, axis=1)
    with np.errstate(over="ignore"):
        shortest = (ranked[:, half - 1 :] - ranked[:, : window + step - half + 1]).min(axis=1)
        rise = values[:, window:].max(axis=1) - ranked[:, (window - 1) // 2]
        maybe = rise * (1.0 + 1e-6) >= above * _SCALE * shortest / 2.0
    return np.flatnonzero(np.repeat(maybe, step)[: losses.size - window])
