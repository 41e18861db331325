"""Alpha spending: levels of group-sequential looks, from the joint law of the t statistics that they will see.

Pure functions of numbers of seeds and a level. Which p is looked at, and when, is `ablate.judge.stats.sequential`'s.

**Spending.** Lan and DeMets (1983): with information fraction t = seeds so far / planned seeds, a level a of one side
is spent as

    O'Brien-Fleming type   f(t) = 2 - 2 Phi(z(1 - a/2) / sqrt t)
    Pocock type            f(t) = a ln(1 + (e - 1) t)

A one-sided claim has a = alpha. A two-sided test at alpha spends a = alpha/2 on each side, as the symmetric designs
of gsDesign and ld98 do: four equal looks at .05 have bounds 4.333, 2.963, 2.359 and 2.014, which are those of one
side at .025. (To put a two-sided alpha into f itself is a usual mistake: its first bound is 1.960 / sqrt(1/4) = 3.920.)
The nominal level c_k of look k is the one at which the t statistics of n_1 < n_2 < .. seeds first cross at look k
with chance f(t_k) - f(t_(k-1)), so that the chance of any rejection is alpha. Levels made for a Brownian motion and
applied to p values of t tests, as is usual (Jennison and Turnbull 2000, chapter 11), err by a tenth for ten seeds.

**The joint law.** Under the null the differences x_1, x_2, .. are N(0, sigma^2), the direction of (x_1 .. x_n) is
uniform on a sphere and independent of its length, and T_n = t_n / sqrt(n - 1) is the cotangent of the angle between it
and (1 .. 1). So sigma plays no part, and (T_n) is a Markov chain in n, forwards and backwards. Backwards its step is
smooth: write N = n + r, rho = sqrt(n/N), kappa = sqrt(r/N). Given T_N = v, the other coordinates are uniform on a
sphere of dimension N - 2; its angle w to the contrast between old and new seeds has density ~ cos^(N-3) w, the share
cos^2 h of the rest that lies among the old seeds is Beta((n-1)/2, (r-1)/2), and

    T_n = (rho v + kappa sin w) / (cos w cos h).

**Recursion.** Let q_k(v) be the chance of no crossing before look k, given T = v there: q_1 = 1, and q_(k+1)(v) is the
mean of q_k(T) over w and h where |T| (one-sided: T) is below look k's bound. Where that holds is an interval of w with
ends in closed form, so Gauss-Legendre quadrature meets no edge. A bound is crossed first at look k with chance
integral of q_k over its tail of Student's law, which is solved for the bound. q_k vanishes beyond the largest v that
can follow a T within the bound, sinh y = hypot(kappa, C) / rho, and does so like a root when r = 1; it is kept as a
Chebyshev series in the arc sine of y = asinh v, in which it is smooth there, and for few seeds and far tails too.

Nothing is drawn at random. Up to alpha .2, with grids twice as fine, two-sided levels move by less than a millionth of
themselves and one-sided ones by less than a hundred-thousandth, from a first look at three seeds on; from a first look
at two seeds, where the integrand has a kink, by less than a ten-thousandth; above alpha .2 by up to three of them. With
n without bound the levels are those of Brownian motion.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import asinh, e, log, pi, sqrt
from typing import Final, Literal

import numpy as np
from scipy import special

from ablate.judge.stats.significance_tests import TINY, Floats

Spending = Literal["obrien_fleming", "pocock"]

_CUT: Final = 1e-11
"""What lies beyond, of a law that is averaged over, is left out."""
_LEAST: Final = 1e-140
"""A look that spends less than this rejects at what it spends, which is a bound by the sum of chances."""
_HELD: Final = 60_000
"""Quadrature points held at a time: few enough to stay in a processor's cache."""


def spent(alpha: Floats | float, time: float, spending: Spending, *, two_sided: bool = True) -> Floats:
    """The part of alpha spent by an information fraction, on both sides together where there are two.

    Parameters
    ----------
    alpha : float or array
        Of the whole study.
    time : float
        The information fraction: seeds so far over planned seeds.

    References
    ----------
    Lan and DeMets (1983), Discrete sequential boundaries for clinical trials. Biometrika 70, 659-663.

    Examples
    --------
    Everything at the end; halfway Pocock's type has spent .62 of it: ln(1 + (e - 1) / 2).

    >>> [round(float(spent(0.05, time, "pocock")), 4) for time in (0.5, 1.0)]
    [0.031, 0.05]
    """
    assert 0.0 < time <= 1.0, time
    alpha_array, sides = np.asarray(alpha, dtype=np.float64), 2.0 if two_sided else 1.0
    # f(t) = 2 Phi(z(a / 2) / sqrt t) with a = alpha / sides, once for each side.
    if spending == "obrien_fleming":
        spent_alpha: Floats = sides * 2.0 * special.ndtr(special.ndtri(alpha_array / sides / 2.0) / sqrt(time))
        return spent_alpha
    return alpha_array * log(1.0 + (e - 1.0) * time)


@dataclass(frozen=True)
class _Grid:
    """How finely everything is cut."""

    series: int
    """Terms of a Chebyshev series."""
    angles: int
    """Nodes over w."""
    shares: int
    """Nodes over h."""
    tail: int = 40
    """Nodes over a tail."""


def _grid(last: int, two_sided: bool, finer: int) -> _Grid:
    """One-sided laws are not symmetric, and two seeds leave kinks: both want more."""
    from_two = 2 if last == 2 else 1
    return _Grid((48 if two_sided else 80) * from_two * finer, 40 * finer, 20 * from_two * finer, 40 * finer)


def nominal_levels(
    alphas: Floats, looks: tuple[int, ...], spending: Spending, *, two_sided: bool = True, finer: int = 1
) -> Floats:
    """The p at or below which each look rejects, so that the chance of any rejection is alpha.

    Parameters
    ----------
    alphas : array
        Levels of the whole study, above 0 and up to .5.
    looks : tuple of int
        Numbers of seeds, ascending, the last of them all that are planned.
    spending : "obrien_fleming" or "pocock"
        How alpha is spent, see the head of this module.
    finer : int
        Multiplies every grid, for a check of the quadrature.

    Returns
    -------
    array, looks x alphas.

    Examples
    --------
    With very many seeds the t statistics are a Brownian motion, for which ld98 and gsDesign give, at four
    equal looks and .05, bounds of 4.333, 2.963, 2.359 and 2.014 normal SDs.

    >>> looks = (2500, 5000, 7500, 10000)
    >>> levels = nominal_levels(np.array([0.05]), looks, "obrien_fleming")[:, 0]
    >>> special.ndtri(1.0 - levels / 2.0).round(2).tolist()
    [4.33, 2.96, 2.36, 2.01]
    """
    assert looks[0] >= 2 and list(looks) == sorted(set(looks)), looks
    assert alphas.ndim == 1 and (alphas > 0.0).all() and (alphas <= 0.5).all(), alphas
    sides = 2.0 if two_sided else 1.0
    levels = np.empty((len(looks), alphas.size))
    before = np.zeros(alphas.size)
    bound = np.zeros(alphas.size)
    uncrossed: _Uncrossed | None = None
    for look, n in enumerate(looks):
        # What this look may spend is what the function gives up to here, less what was spent before.
        total = spent(alphas, n / looks[-1], spending, two_sided=two_sided)
        chance = np.maximum((total - before) / sides, TINY)
        before = total
        # At the first look nothing was crossed before: the nominal level is what is spent.
        if look == 0:
            p = chance
        else:
            last = looks[look - 1]
            step = _Step(last, n, bound, two_sided, _grid(last, two_sided, finer))
            uncrossed = _after(step, uncrossed, _highest(step, chance))
            p = np.where(chance < _LEAST, chance, _tail_of(uncrossed, np.maximum(chance, _LEAST), n, step.grid.tail))
        levels[look] = np.maximum(sides * p, TINY)
        bound = _from_p(np.maximum(p, _LEAST), n)
    return levels


def _from_p(p: Floats, n: int) -> Floats:
    """T of n seeds beyond which Student's law has p."""
    cotangent: Floats = -special.stdtrit(n - 1.0, p) / sqrt(n - 1.0)
    return cotangent


@dataclass(frozen=True)
class _Uncrossed:
    """q of one look for every alpha: alphas x terms of a series in asin y, y = asinh T, between two ends."""

    series: Floats
    low: Floats
    high: Floats
    even: bool
    """The same for T and -T: a series in even terms from 0 on."""

    def __call__(self, value: Floats) -> Floats:
        """Alphas x any shape of T."""
        shape = (-1,) + (1,) * (value.ndim - 1)
        low, high = self.low.reshape(shape), self.high.reshape(shape)
        x = np.arcsin(np.clip((2.0 * np.arcsinh(value) - (high + low)) / (high - low), -1.0, 1.0)) * (2.0 / pi)
        if self.even:
            x = 2.0 * x * x - 1.0
        double = 2.0 * x
        b1, b2 = np.zeros_like(x), np.zeros_like(x)
        for term in range(self.series.shape[1] - 1, 0, -1):  # Clenshaw (1955)
            b1, b2 = double * b1 - b2 + self.series[:, term].reshape(shape), b1
        clipped: Floats = np.clip(x * b1 - b2 + self.series[:, 0].reshape(shape), 0.0, 1.0)
        return clipped


@dataclass(frozen=True)
class _Step:
    """From the bound of one look, alphas of it, to the next look."""

    last: int
    n: int
    bound: Floats
    two_sided: bool
    grid: _Grid

    @property
    def old(self) -> float:
        """rho."""
        return sqrt(self.last / self.n)

    @property
    def new(self) -> float:
        """kappa."""
        return sqrt((self.n - self.last) / self.n)


def _highest(step: _Step, chance: Floats) -> Floats:
    """y beyond which nothing matters: no crossing before is impossible there, or the tail is nothing to the chance
    that is looked for."""
    # The largest T at n seeds that can follow a T within the bound: sinh y = hypot(kappa, C) / rho.
    edge = np.arcsinh(np.hypot(step.new, step.bound) / step.old)
    highest: Floats = np.minimum(edge, np.arcsinh(_from_p(1e-9 * np.maximum(chance, _LEAST), step.n)))
    return highest


def _after(step: _Step, uncrossed: _Uncrossed | None, highest: Floats) -> _Uncrossed:
    """q at n seeds from q at `last` and the bound there."""
    size, two_sided = step.grid.series, step.two_sided
    # Values at Chebyshev nodes in x, where y is the sine of pi x / 2: smooth where q vanishes like
    # a root.
    terms = np.arange(size)
    angle = (terms + 0.5) * pi / size
    node = np.cos(angle)
    low = -highest if two_sided else np.full(highest.size, asinh(float(_from_p(np.array(1.0 - _CUT), step.n))))
    x = np.sqrt((1.0 + node) / 2.0) if two_sided else node
    y = (highest + low)[:, None] / 2.0 + (highest - low)[:, None] / 2.0 * np.sin(pi / 2.0 * x)[None, :]
    values = _mean(step, uncrossed, np.sinh(y))
    # Discrete cosine transform: from values at the nodes to coefficients.
    transform = np.cos(np.outer(angle, terms)) * (2.0 / size)
    transform[:, 0] /= 2.0
    series = np.einsum("ap,pt->at", values, transform)
    return _Uncrossed(series, low, highest, two_sided)


def _mean(step: _Step, uncrossed: _Uncrossed | None, value: Floats) -> Floats:
    """The mean of q over the last look's T within its bound, given T = value at n seeds: alphas x values."""
    n, new, grid, two_sided = step.n, step.new, step.grid, step.two_sided
    # The angle w between the last T and this one has density ~ cos^(n-3) w: beyond `furthest` it is nothing.
    node, weight = _legendre(grid.angles)
    furthest = float(np.arctan(_from_p(np.array(_CUT), n - 1)))
    log_scale = -special.betaln(0.5, (n - 2) / 2.0)
    mean = np.zeros_like(value)
    # A few alphas at a time: alphas x values x shares x angles in one array.
    some = max(1, _HELD // (value.shape[1] * grid.angles * (grid.shares if n - step.last > 1 else 1)))
    for start in range(0, len(value), some):
        rows = slice(start, start + some)
        shifted, limit = step.old * value[rows, :, None], step.bound[rows, None, None]
        # For every share h of the rest, the interval of w in which the last |T| is below its bound: sin and cos of w
        # against the bound have a sum of one phase (tilt), so that its ends are in closed form.
        share, share_weight = _shares(step, shifted, limit)
        limit = limit * np.cos(share)
        reach = np.hypot(new, limit)
        tilt, opening = np.arctan2(new, limit), np.arccos(np.clip(shifted / reach, -1.0, 1.0))
        turned = tilt + opening
        left = np.minimum(turned, pi - turned) if two_sided else turned
        left = np.maximum(-left, -furthest)
        right = np.minimum(opening - tilt, furthest)
        half = np.where(shifted < reach, np.maximum(right - left, 0.0) / 2.0, 0.0)
        w = ((right + left) / 2.0)[..., None] + half[..., None] * node
        cosine = np.cos(w)
        density = np.exp((n - 3) * np.log(np.maximum(cosine, TINY)) + log_scale) * weight
        # Weighed by the chance that no earlier look was crossed, given the last T.
        if uncrossed is not None:
            earlier = (shifted[..., None] + new * np.sin(w)) / (np.maximum(cosine, TINY) * np.cos(share)[..., None])
            part = _Uncrossed(uncrossed.series[rows], uncrossed.low[rows], uncrossed.high[rows], uncrossed.even)
            density = density * part(np.abs(earlier) if two_sided else earlier)
        mean[rows] = (density.sum(axis=-1) * half * share_weight).sum(axis=-1)
    return mean


def _shares(step: _Step, shifted: Floats, limit: Floats) -> tuple[Floats, Floats]:
    """Nodes and weights over h, up to where no w is left."""
    last, added = step.last, step.n - step.last
    if added == 1:
        return np.zeros_like(shifted), np.ones_like(shifted)
    node, weight = _legendre(step.grid.shares)
    # cos^2 h ~ Beta((n - 1) / 2, (r - 1) / 2), the share of the rest that lies among the old seeds.
    a, b = (last - 1) / 2.0, (added - 1) / 2.0
    least, most = (float(np.arccos(np.sqrt(special.betaincinv(a, b, q)))) for q in (1.0 - _CUT, _CUT))
    beyond = np.sqrt(np.maximum(shifted**2 - step.new**2, 0.0)) * (shifted > 0.0)
    end = np.minimum(most, np.arccos(np.minimum(1.0, beyond / limit)))
    length = np.maximum(end - least, 0.0)
    # h runs as a sine, whose nodes crowd where the w interval closes like a root.
    turn = pi / 4.0 * (node + 1.0)
    h = np.minimum(least + length * np.sin(turn), pi / 2.0)
    with np.errstate(divide="ignore"):
        logs = special.xlogy(last - 2.0, np.cos(h)) + special.xlogy(added - 2.0, np.sin(h))
    density = 2.0 * np.exp(logs - special.betaln(a, b)) * np.cos(turn) * weight * (pi / 4.0) * length
    return h, density


def _tail_of(uncrossed: _Uncrossed, target: Floats, n: int, nodes: int) -> Floats:
    """The p of Student's law whose tail holds the wanted chance of a first crossing."""
    node, weight = _legendre(nodes)
    w, weight = (node + 1.0) / 2.0, weight / 2.0
    df = n - 1.0

    # Student's density in y = asinh T, times q: it is ~ cosh(y)^-df, which no power overflows in logarithms.
    def inside(y: Floats) -> Floats:
        logs = -df * np.logaddexp(y, -y) + df * log(2.0) - special.betaln(0.5, df / 2.0)
        density: Floats = np.exp(logs) * uncrossed(np.sinh(y))
        return density

    # q is at most 1, so that the tail beyond Student's own bound holds less than the target: the bound lies below.
    low, high = np.zeros(target.size), uncrossed.high.copy()
    at = np.minimum(np.arcsinh(_from_p(target, n)), high)
    for _ in range(60):
        length = uncrossed.high - at
        chance = (inside(uncrossed.high[:, None] - length[:, None] * w**2) * (2.0 * w * weight)).sum(axis=1) * length
        over = chance >= target
        low, high = np.where(over, at, low), np.where(over, high, at)
        # Newton's step on the logarithm of the chance, where it stays within the bracket; else bisection.
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = at + chance / inside(at[:, None])[:, 0] * np.log(chance / target)
        inner = (newton > low) & (newton < high)
        moved = np.where(inner, newton, (low + high) / 2.0)
        if float(np.abs(moved - at).max()) < 1e-13:
            break
        at = moved
    p: Floats = special.stdtr(df, -np.sinh(at) * sqrt(df))
    return p


def _legendre(size: int) -> tuple[Floats, Floats]:
    node, weight = np.polynomial.legendre.leggauss(size)
    return node, weight
