"""Sequential designs: alpha spending over registered looks, and an e-process for adding seeds until decided.

Pure functions of p values and differences; which look it is, and what the ledger says, is `ablate.judge.view`'s.

**Looks.** Lan and DeMets (1983): with information fraction t = seeds so far / planned seeds, a level alpha is
spent as

    O'Brien-Fleming type   f(t) = 2 - 2 Phi(z(1 - alpha/2) / sqrt t)
    Pocock type            f(t) = alpha ln(1 + (e - 1) t)

and the nominal level c_k of look k is the one at which a standard Brownian motion, seen at the t_k, first crosses at
look k with chance f(t_k) - f(t_{k-1}) (recursive integration: Armitage, McPherson and Rowe 1969). The level is a p,
and is applied to the p of a t test with its own degrees of freedom; constants for z statistics (Pocock 1977), applied
to t statistics of three seeds, would err grossly. What remains is that the normal scores of t p values at successive
looks are not exactly jointly normal: for looks at 3, 5 and 10 seeds the size at .05 is about .052.

**Repeated p and intervals** (Jennison and Turnbull 1989), not stage-wise ones: the interval at look k is the ordinary
one at level 1 - c_k(alpha), the p is the smallest alpha at which look k would reject. Because c_k grows with alpha,
the chance that a p at or below alpha is ever seen, at any look, is alpha; so the p goes into Holm's correction like
any other, whatever the reason for stopping. They are wider than stage-wise intervals, but need no ordering of the
sample space, stay valid when a stop is overruled, and at every look agree with the rejection itself.

**The e-process.** Differences x_1, x_2, .. ~ N(mu, sigma^2), null mu = m. Let the effect (mu - m) / sigma be 0 under
the null and N(0, g) under the alternative, and give sigma the right-Haar measure d sigma / sigma in both (Lai 1976).
With Q the sum of (x - m)^2 and xbar the mean of x - m, integrating sigma out leaves Q^(-n/2) under the null and
(1 + n g)^(-1/2) (Q - g n^2 xbar^2 / (1 + n g))^(-n/2) under the alternative, so that

    e_n = (1 + n g)^(-1/2) ((1 + t^2 / (n-1)) / (1 + t^2 / ((n-1) (1 + n g))))^(n/2),     e_1 = 1,

a ratio of densities of the scale-free data. Under the null, whatever sigma, it is a martingale of mean 1 in the
scale-free observations; so the chance that it ever reaches 1/a is at most a (Ville 1939), and p = min(1, 1 / max e)
is a p at every n and at any stopping time. Holm over such p values is valid there too: it needs nothing of them but
that each is a p, and each at any stopping time is at least its own infimum over all n, which is one. Solving
e_n < 1/alpha for m gives, at every n,

    |xbar_n - m| < se_n sqrt((n - 1) (K - 1) / (1 - K / A)),     A = 1 + n g,  K = (A / alpha^2)^(1/n),

unbounded while K >= A, and the intersection of these over n is the anytime-valid interval (Wang and Ramdas 2023).
One-sided evidence against a margin counts only at those n where the mean lies beyond it: there every null on the
far side of the margin is rejected with it.
"""

from __future__ import annotations

from functools import lru_cache
from math import e, log, sqrt
from typing import Final, Literal

import numpy as np
from scipy import interpolate, optimize, special

from ablate.judge.procedure import TINY, Floats, PairedT, Side, Studentized
from prereg.errors import EvidenceError
from prereg.looks import Look, looks_of
from prereg.spec import Looks, Study

Spending = Literal["obrien_fleming", "pocock"]
Times = tuple[float, ...]

EFFECT_VARIANCE: Final = 2.0
"""g: the prior variance of the effect in SDs of the differences. Fixed for ever, since studies were registered with
it: few seeds can only find effects of one SD and more, and for those the stop comes soonest with a g of about 2."""

SPENDING_WORDS: Final = {"obrien_fleming": "O'Brien-Fleming spending", "pocock": "Pocock-type spending"}
_LOWEST: Final = -8.5
"""Where a normal density is taken to end."""
_TOP: Final = 0.5
"""Repeated p values above this are reported as 1: no level so high is ever registered."""


def spent(alpha: float, time: float, spending: Spending) -> float:
    """The part of alpha spent by an information fraction."""
    assert 0.0 < time <= 1.0, time
    if spending == "obrien_fleming":
        return 2.0 * float(special.ndtr(special.ndtri(alpha / 2.0) / sqrt(time)))
    return alpha * log(1.0 + (e - 1.0) * time)


def nominal_levels(alpha: float, times: Times, spending: Spending, *, two_sided: bool = True) -> Times:
    """The p at or below which each look rejects, so that the chance of any rejection is alpha."""
    assert list(times) == sorted(set(times)) and times[0] > 0.0, times
    levels: list[float] = []
    node, weight = _legendre()
    at, mass, before = np.zeros(1), np.ones(1), 0.0  # sub-density of Brownian motion that has not crossed yet
    last = 0.0
    for time in times:
        wanted = spent(alpha, time, spending) - last
        step = sqrt(time - before)
        bound = _boundary(at, mass, step, max(wanted, TINY), two_sided, guess=sqrt(time))
        levels.append(max(TINY, float(special.ndtr(-bound / sqrt(time))) * (2.0 if two_sided else 1.0)))
        low = -bound if two_sided else min(_LOWEST * sqrt(time), bound)
        # Beyond eight and a half deviations there is no mass: nodes are spent where it lies.
        low, high = max(low, _LOWEST * sqrt(time)), min(bound, -_LOWEST * sqrt(time))
        grid = (high - low) / 2.0 * node + (high + low) / 2.0
        density = np.exp(-0.5 * ((grid[:, None] - at[None, :]) / step) ** 2) / (step * sqrt(2.0 * np.pi))
        mass = (density @ mass) * weight * (high - low) / 2.0
        at, before, last = grid, time, last + max(wanted, 0.0)
    return tuple(levels)


@lru_cache(maxsize=1)
def _legendre() -> tuple[Floats, Floats]:
    node, weight = np.polynomial.legendre.leggauss(96)
    return node, weight


def _boundary(at: Floats, mass: Floats, step: float, wanted: float, two_sided: bool, *, guess: float) -> float:
    """Where Brownian motion must be crossed at this look for the wanted chance."""

    def excess(bound: float) -> float:
        crossing = special.ndtr((at - bound) / step)
        if two_sided:
            crossing = crossing + special.ndtr((-at - bound) / step)
        return float(np.log(max(float(crossing @ mass), TINY)) - np.log(wanted))

    low, high = 0.0 if two_sided else -9.0 * guess, 40.0 * guess
    return low if excess(low) <= 0.0 else float(optimize.brentq(excess, low, high, xtol=1e-13))


def look_level(alpha: float, times: Times, look: int, spending: Spending, *, two_sided: bool = True) -> float:
    """The nominal level of look `look`, counted from 1."""
    return _levels(alpha, times[:look], spending, two_sided)[-1]


@lru_cache(maxsize=1024)
def _levels(alpha: float, times: Times, spending: Spending, two_sided: bool) -> Times:
    return nominal_levels(alpha, times, spending, two_sided=two_sided)


def repeated_p(p: float, times: Times, look: int, spending: Spending, *, two_sided: bool = True) -> float:
    """The smallest alpha whose level at this look the nominal p reaches; 1 where that is above one half."""
    return float(repeated_ps(np.array([p]), times, look, spending, two_sided=two_sided)[0])


def repeated_ps(p: Floats, times: Times, look: int, spending: Spending, *, two_sided: bool = True) -> Floats:
    """`repeated_p` of many."""
    table, lowest, highest = _inverse(times[:look], spending, two_sided)
    # Below the table lies nothing that any level in use could tell apart: its lowest alpha errs upwards only.
    alphas = special.ndtr(table(special.ndtri(np.clip(p, lowest, highest))))
    found: Floats = np.where(p > highest, 1.0, np.clip(alphas, p, 1.0))
    return found


@lru_cache(maxsize=64)
def _inverse(times: Times, spending: Spending, two_sided: bool) -> tuple[interpolate.PchipInterpolator, float, float]:
    """alpha as a function of the level of the last of these looks, on the normal quantile scale."""
    quantile = np.linspace(special.ndtri(1e-12), special.ndtri(_TOP), 160)
    alphas = special.ndtr(quantile)
    levels = np.array([nominal_levels(float(a), times, spending, two_sided=two_sided)[-1] for a in alphas])
    kept = np.flatnonzero(levels > 1e-290)
    levels, quantile = levels[kept], quantile[kept]
    assert (np.diff(levels) > 0).all(), "a level that falls as alpha grows would make repeated p values invalid"
    return interpolate.PchipInterpolator(special.ndtri(levels), quantile), float(levels[0]), float(levels[-1])


class RepeatedT(PairedT):
    """The paired t at a registered look: every p and interval holds over all the looks, whenever the study stops."""

    def __init__(self, differences: Floats, *, times: Times, look: int, spending: Spending) -> None:
        super().__init__(differences)
        self.times, self.look, self.spending = times, look, spending
        self.words = f"paired t repeated at look {look} of {len(times)}, {SPENDING_WORDS[spending]}"

    def p(self, null: float, side: Side) -> float:
        return repeated_p(super().p(null, side), self.times, self.look, self.spending, two_sided=side == "two")

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        return super().bounds(look_level(alpha, self.times, self.look, self.spending))

    def describe(self, alpha: float) -> str:
        """The nominal level and p of this look, for a reader who wants to check."""
        nominal = super().p(0.0, "two")
        level = look_level(alpha, self.times, self.look, self.spending)
        return (
            f"at look {self.look} of {len(self.times)} the nominal two-sided p against zero is {nominal:.3g} and the "
            f"nominal level {level:.3g}, before any correction over hypotheses; the p and intervals shown are adjusted "
            f"for all looks"
        )


class EProcessT(Studentized):
    """The t-test e-process over the differences in the order of their seeds."""

    name = "e_process"
    words = "t-test e-process, anytime-valid"
    against_mean = "the strongest evidence came with fewer seeds and points the other way than the mean of them all"

    def __init__(self, differences: Floats) -> None:
        super().__init__(differences)
        count = np.arange(1, self.n + 1)
        means = np.cumsum(self.differences) / count
        squares = np.array([((self.differences[:k] - means[k - 1]) ** 2).sum() for k in count])
        # Seeds so far that do not differ have no standard error, and say nothing: e counts as 1 there.
        spreads = np.array([np.ptp(self.differences[:k]) for k in count])
        usable = spreads > 1e-12 * self.size
        self._n, self._means = count[usable].astype(np.float64), means[usable]
        self._squares = squares[usable]

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """1 / the largest e that n differences can reach, which is the limit of t without end."""
        return min(1.0, float((1.0 + EFFECT_VARIANCE * n) ** (-(n - 1) / 2.0)))

    def e_values(self, null: float) -> Floats:
        """e against the null after each number of seeds at which the differences have a spread."""
        t2_by_df = self._n * (self._means - null) ** 2 / self._squares  # t^2 / (n - 1)
        return e_from(t2_by_df, self._n)

    def p(self, null: float, side: Side) -> float:
        if self.statistic(null) is None:
            return 1.0
        values = self.e_values(null)
        if side != "two":
            values = values[np.sign(self._means - null) == (1.0 if side == "greater" else -1.0)]
        return min(1.0, max(TINY, 1.0 / float(values.max(initial=1.0))))

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.all_zero:
            return None
        scale = 1.0 + EFFECT_VARIANCE * self._n
        reach = (scale / alpha**2) ** (1.0 / self._n)
        bounded = reach < scale
        if not bounded.any():
            return None
        scale, reach = scale[bounded], reach[bounded]
        half = np.sqrt(self._squares[bounded] / self._n[bounded] * (reach - 1.0) / (1.0 - reach / scale))
        low, high = float((self._means[bounded] - half).max()), float((self._means[bounded] + half).min())
        return (low, high) if low <= high else None

    @property
    def leaning(self) -> int:
        """Where the strongest evidence against zero points: what a rejection rests on."""
        values = self.e_values(0.0) if self._n.size and not self.all_zero else np.empty(0)
        return int(np.sign(self._means[int(values.argmax())])) if values.size else 0

    def without_interval(self, alpha: float) -> str:
        if self.floor(self.n) > alpha:
            return super().without_interval(alpha)
        return (
            f"{self.words} gives no {1.0 - alpha:.6g} interval: the intervals of successive seeds have no value in "
            f"common, as when differences drift from seed to seed, or do not vary"
        )

    def describe(self, alpha: float) -> str:
        """The evidence itself, for a reader who wants to check."""
        values = self.e_values(0.0) if not self.all_zero else np.empty(0)
        return (
            f"e against zero reached at most {values.max(initial=1.0):.4g} in {self.n} seeds; p is 1 over it, and "
            f"{1.0 / alpha:.4g} is needed before any correction over hypotheses"
        )


def e_from(t2_by_df: Floats, n: Floats) -> Floats:
    """e_n from t^2 / (n - 1), in logarithms: its powers overflow."""
    scale = 1.0 + EFFECT_VARIANCE * n
    logs = 0.5 * n * (np.log1p(t2_by_df) - np.log1p(t2_by_df / scale)) - 0.5 * np.log(scale)
    found: Floats = np.exp(np.minimum(logs, 700.0))
    return found


Sequential = RepeatedT | EProcessT


def prepare_at(differences: Floats, study: Study, look: Look) -> Sequential:
    """The registered sequential test bound to the differences that a look sees."""
    require_own_rule(study, look)
    if isinstance(study.stopping, Looks):
        looks = study.stopping.looks
        times = tuple(n_seeds / looks[-1] for n_seeds in looks)
        return RepeatedT(differences, times=times, look=look.number, spending=study.stopping.spending)
    return EProcessT(differences)


def require_own_rule(study: Study, look: Look | None) -> None:
    """Refuse a sequential study judged by a fixed rule, and the reverse: the error rate would not be the promised."""
    looks = looks_of(study)
    if looks and look is None:
        raise EvidenceError(
            f"'{study.study}' has {len(looks)} registered looks and was to be judged as if its seeds were fixed",
            required="a look: tests at the full level at each of several looks err more often than alpha",
            fix="ablate decide, which finds the look that is due",
        )
    if look is not None and look not in looks:
        raise EvidenceError(
            f"'{study.study}' was to be judged at {look.words}, which is not registered",
            required="one of its looks: " + "; ".join(one.words for one in looks)
            if looks
            else "all its seeds at once: the study has a fixed number of them",
            fix="ablate decide, which judges what was registered",
        )
