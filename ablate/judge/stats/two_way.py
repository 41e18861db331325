"""Two-way test over seeds x items: each item is scored under every seed, so an item's luck is shared by all seeds.

The paired difference of seed s on item i is y[s, i] = mean + a_s + b_i + e_si. Items are paired by task, item and
content hash. What the verdict speaks of is declared (`estimand`):

    new_seeds             the items are the ones that matter: the paired t over the seeds' means, df = S - 1
    new_seeds_and_items   both are samples: the two-way standard error below

A t over seeds alone ignores that all of them met the same items: where items add as much variance to the mean as seeds
do, its 95% interval at ten seeds covers .856, the chance that |t| of df 9 stays below 2.262 / sqrt 2.

**Two-way standard error** (Cornfield and Tukey 1956). With mean squares of seeds, items and their interaction,

    SE^2 = (MS_S + MS_I - MS_SI) / (S I), but no less than MS_S / (S I) and MS_I / (S I)

**Its interval.** One t with Satterthwaite's degrees of freedom errs where a factor has few levels: at two to five seeds
their mean square is often small by chance, and the df jump to I - 1 just then. So each mean square is weighed with its
own critical value (Banerjee 1960), t_S of df S - 1 and t_I of df I - 1, both two-sided at alpha:

    half width^2 = (t_S^2 MS_S + t_I^2 MS_I - min(t_S, t_I)^2 MS_SI) / (S I), but no less than t^2 MS / (S I) of either

Without the subtraction the level is proven: P(|Z| > x) is convex in x^2, so a weighted mean of exact tests errs no more
often than they do. With it the level is computed: over 2 to 20 seeds, 2 to 5,000 items, alpha from .2 to .0005 and
components from none to dominant, no error exceeds alpha by more than the quadrature's own (how, and what failed:
reports/LOG.md, 2026-11-22). Largest error over S = 2 to 10, I = 2 to 500 and alpha = .05, .0125, .005, in multiples of
alpha, and power at .05 without a seed component, with an item component half the interaction's (a z test with the SE
known has .80):

    procedure                                                error     power at S, I = 3, 50    5, 500
    Satterthwaite df, components not positive taken as 0     18.4                    .667      .761
    the same, df at most S - 1                               12.4 (1.0 if I >= S)    .067      .472
    the same, df at most min(S, I) - 1                       1.0                     .067      .472
    SE^2 = (MS_S + MS_I) / (S I), Satterthwaite df           14.4                    .619      .702
    the same, df min(S, I) - 1                               1.0                     .033      .373
    no component below 0 in SE^2, Satterthwaite df           13.3                    .617      .753
    mean of t_S, t_I by components (Cochran and Cox 1950)    14.9                    .529      .725
    Banerjee, nothing subtracted                             1.0                     .396      .635
    this one                                                 1.0                     .472      .709

**Clusters.** Where a suite says that items of a task belong together (a paradigm), tasks replace items as the second
factor, and the estimate stays the mean over items: task c counts by its share w_c of them. The three terms are then

    seeds: variance of the seeds' means / S        tasks: sum of w_c^2 d_c^2 / (1 - 2 w_c + h), h = sum of w_c^2

and the interaction likewise, with d_c the task's mean minus the mean: unbiased where tasks are a sample, and the mean
squares above where tasks are equal. Where they are not, mean / SE has no t distribution (ten tasks of 10 to 500 items
weigh like 4.6, and a t of df 9 errs .14 at .05), so t_I gives way to the exact quantile, see `tail_of`. The effective
number of tasks, 1 / h, is reported. Sizes are taken as saying nothing of a task's effect: where it rises by half of its
SD with an SD of log size (ten tasks, that SD being 1), the error is .09 at .05.

**Metrics that count tasks alike** (macro accuracy) are means of tasks' means, and those are the values where tasks are
sampled, or nothing but seeds is. With `clusters: none` new items are new items of these very tasks: tasks are strata,
each with 1/K of the weight, and items vary about their own task's mean (Cochran 1977, section 5.3). Of task k with n_k
items, deviations d_i of the items' means over seeds and r_si of the interaction, both within the task:

    items: sum over k of sum d_i^2 / (K^2 n_k (n_k - 1))        interaction: the same of r_si^2 / (S (S - 1))

and t_I has the degrees of freedom of the smallest task. A t with those errs no more often than its level, whatever the
variances of the tasks (Hajek 1962). Satterthwaite's do not hold: with two tasks of 2 and 200 items, whose items have
SDs of 1 and 5, five seeds and no effect they erred in .112 at .05 and in .042 at .005 (3,000 simulated studies).

`ablate.judge.stats.crossed_items` makes the pairs from a table of items; nothing here reads records or a study.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import log, pi, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.root import root
from ablate.judge.stats.significance_tests import (
    EQUAL,
    TINY,
    Floats,
    Kept,
    NoTestError,
    Side,
    SignificanceTest,
    registrable,
)

_FAR: Final = 1e150
"""Where a critical value ends: its square is finite."""
_SHARES: Final = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0)
"""How much of the variance of a task's mean is that of its items, for a task of average size: from none to all."""

Tail = Callable[[float], float]
"""c -> the chance that the mean is more than c standard errors of units alone away from its expectation."""


@lru_cache(maxsize=256)
def critical_values(n_seeds: int, tail: Tail, alpha: float) -> tuple[float, float]:
    """The two-sided critical values of seeds and of units, which is what `Spread.half` takes; `alpha` is below 1.

    Examples
    --------
    Of 5 seeds and 5 equal units both are Student's of four degrees of freedom.

    >>> [round(value, 6) for value in critical_values(5, tail_of(np.full(5, 0.2)), 0.05)]
    [2.776445, 2.776445]
    """
    high = 2.0
    while tail(high) > alpha:
        high *= 2.0
    # In logarithms a tail is nearly straight in its argument, down to any alpha in use.
    units = root(lambda at: log(tail(at) / alpha), 0.0, high, xtol=1e-13)
    return _critical(n_seeds - 1, alpha), units


def _critical(df: float, alpha: float) -> float:
    """Two-sided critical value of t, from the lower tail, where it loses no digits; finite where alpha underflows."""
    return min(abs(float(special.stdtrit(df, alpha / 2.0))), _FAR) if alpha > 0.0 else _FAR


@dataclass(frozen=True)
class Spread:
    """What seeds, units (items or tasks) and their interaction add to the variance of the mean.

    Each of the first two holds the interaction once: together they count it twice. Arrays are many studies.
    """

    seeds: float | Floats
    units: float | Floats
    both: float | Floats

    def of(self, row: int) -> Spread:
        """Those of one study."""
        return Spread(*(np.asarray(term).reshape(-1)[row] for term in (self.seeds, self.units, self.both)))

    def half(self, seeds: float, units: float) -> Floats:
        """Half the width of the interval with these critical values of seeds and units; the SE where both are 1."""
        by_seeds, by_units = seeds**2 * self.seeds, units**2 * self.units
        least = np.maximum(by_seeds, by_units)
        return np.sqrt(np.maximum(by_seeds + by_units - min(seeds, units) ** 2 * self.both, least))


def spread_of(table: Floats, weights: Floats) -> Spread:
    """The two-way analysis of variance of seeds x units.

    Parameters
    ----------
    table : array, ... x seeds x units
        Paired differences; more axes before these two are many studies at once.
    weights : array, one a unit
        Share of each unit in the mean.

    Examples
    --------
    Shrout and Fleiss (1979, tables 2 and 3), four judges and six targets: mean squares 32.49, 11.24, 1.02.

    >>> judges = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7.0]])
    >>> spread = spread_of(judges, np.full(6, 1 / 6))
    >>> [round(24 * float(one), 2) for one in (spread.seeds, spread.units, spread.both)]
    [32.49, 11.24, 1.02]
    """
    n_seeds = table.shape[-2]
    rows, columns = table @ weights, table.mean(axis=-2)
    mean = rows.mean(axis=-1)
    # Interaction: what neither the seed nor the unit explains.
    rest = table - rows[..., :, None] - columns[..., None, :] + mean[..., None, None]
    counts = weights**2 / (1.0 - 2.0 * weights + (weights**2).sum())
    return Spread(
        seeds=rows.var(axis=-1, ddof=1) / n_seeds,
        units=(columns - mean[..., None]) ** 2 @ counts,
        both=(rest**2).sum(axis=-2) @ counts / (n_seeds * (n_seeds - 1)),
    )


def spread_within(table: Floats, strata: npt.NDArray[np.int64]) -> tuple[Spread, float]:
    """`spread_of` seeds x items within strata that weigh alike, and the degrees of freedom of the smallest stratum.

    Raises `NoTestError` where a stratum has one item.

    Examples
    --------
    By hand: two strata of two items, 0 and 2 in each under both seeds. The variance of each stratum's
    mean is 2 / 2 = 1, and that of the mean of both strata (1 + 1) / 4.

    >>> spread, df = spread_within(np.array([[0.0, 2.0, 0.0, 2.0]] * 2), np.array([0, 0, 1, 1]))
    >>> spread.units, spread.seeds, spread.both, df
    (0.5, 0.0, 0.0, 1.0)
    """
    sizes = np.bincount(strata).astype(np.float64)
    if sizes.min() < 2.0:
        raise NoTestError(f"{int((sizes < 2.0).sum())} task(s) have one item: the variance over items is unknown")
    by_task = np.stack([np.bincount(strata, weights=row) for row in table]) / sizes
    n_seeds, share = table.shape[0], 1.0 / (sizes.size**2 * sizes * (sizes - 1.0))
    # Items about their own task's mean, and what is left of each seed there.
    apart = table.mean(axis=0) - by_task.mean(axis=0)[strata]
    rest = table - by_task[:, strata] - apart
    units = np.bincount(strata, weights=apart**2) * share
    both = np.bincount(strata, weights=(rest**2).sum(axis=0)) * share / (n_seeds * (n_seeds - 1))
    by_seeds = float(by_task.mean(axis=1).var(ddof=1)) / n_seeds
    return Spread(seeds=by_seeds, units=float(units.sum()), both=float(both.sum())), float(sizes.min() - 1.0)


def tail_of(weights: Floats) -> Tail:
    """c -> P(|mean - effect| > c sqrt(units' variance)), exactly, for normal means of units without seeds.

    With equal weights that is the tail of t. With others mean and variance are dependent quadratic forms: the event is
    that a form with one positive eigenvalue is positive, and with P(|Z| > x) = 2/pi int exp(-x^2 / 2 sin^2) over a
    quarter turn (Craig 1991) its probability is one smooth integral. The means' variances are 1 + r / items up to
    scale; r is unknown, and the tail is the largest over `_SHARES`.

    References
    ----------
    Craig (1991), A new, simple and exact result for calculating the probability of error for
    two-dimensional signal constellations.

    Examples
    --------
    Equal units have Student's tail; of unequal ones the tail is heavier.

    >>> equal, unequal = tail_of(np.full(5, 0.2)), tail_of(np.array([0.6, 0.1, 0.1, 0.1, 0.1]))
    >>> round(equal(2.776445), 6), unequal(2.776445) > equal(2.776445)
    (0.05, True)
    """
    count = weights.size
    if np.ptp(weights) <= EQUAL:
        return lambda critical: 2.0 * float(special.stdtr(count - 1, -critical))
    # The event |mean| > c SE is that (weights y)^2 - c^2 y' form y is positive, y the means of the units.
    counts = weights**2 / (1.0 - 2.0 * weights + (weights**2).sum())
    centred = np.eye(count) - weights[None, :]
    form = centred.T @ (counts[:, None] * centred)
    # SDs of the units' means for each share of the items' own variance: smaller tasks vary more.
    shares = np.array(_SHARES)[:, None]
    deviations = np.sqrt(1.0 - shares + shares / (count * weights))
    values, vectors = np.linalg.eigh(form * deviations[:, :, None] * deviations[:, None, :])
    values = np.maximum(values, 0.0)
    values[:, 0] = 0.0  # a constant has no variance
    # The mean's weights in the basis of the form's eigenvectors.
    squared = np.einsum("kij,ki->kj", vectors, deviations * weights) ** 2
    nodes, steps = np.polynomial.legendre.leggauss(64)
    # Gauss-Legendre over the quarter turn of Craig's integral, sin^2 of the angle.
    turns = np.sin((nodes + 1.0) * pi / 4.0) ** 2

    def tail(critical: float) -> float:
        scaled = critical**2 * values
        # The positive eigenvalue, where sum of squared / (x + scaled) is 1: Newton from the left of a convex fall.
        root = squared[:, :1]
        for _ in range(100):
            parts = squared / (root + scaled)
            step = (parts.sum(axis=1) - 1.0) / (parts / (root + scaled)).sum(axis=1)
            root = root + step[:, None]
            if (step <= 1e-15 * root[:, 0]).all():
                break
        at, scaled = (root * turns)[:, :, None], scaled[:, None, :]
        beyond = np.log1p(scaled[:, :, 1:] / at).sum(axis=2)
        beyond += np.log((at * squared[:, None, :] / (root[:, :, None] + scaled) / (at + scaled)).sum(axis=2))
        return min(float((np.exp(-0.5 * beyond) @ steps).max()) / 2.0, 1.0)

    return tail


@registrable
class TwoWay(SignificanceTest):
    """The two-way test of seeds and items.

    Parameters
    ----------
    x : array, studies x seeds
        The seeds' means over items.
    spread : Spread
        What seeds, units (items or tasks) and their interaction add to the variance of the mean, in the
        unit of `x`.
    tail : function of a number of standard errors
        Of the mean over units (`tail_of`).
    levels : tuple of float, descending, optional
        Those at which the correction may test. Nothing is solved for then: p is a number just below the
        lowest of these levels at which the null is rejected, and 1 where it is rejected at none. After
        the correction that gives the outcomes of the exact p, for thousands of studies.

    Notes
    -----
    ::

        Statistic    the mean over seeds and items
        Null         its expectation is `null`
        p            the alpha whose interval ends at the null: a root in the units' critical value,
                     which sets alpha
        Interval     mean -+ the square root of t_S^2 MS_S + t_I^2 MS_I - min(t_S, t_I)^2 MS_SI, each
                     over S I (above)
        Fails        where sizes of tasks say something of their effect; undefined without a standard
                     error

    References
    ----------
    Cornfield and Tukey (1956), Average values of mean squares in factorials. Ann. Math. Statist. 27,
    907-949. Banerjee (1960), Approximate confidence interval for linear functions of means of k
    populations when the population variances are not equal.

    Examples
    --------
    With equal mean squares of seeds and interaction, and no item component, the items alone remain: a t
    of three degrees of freedom. By hand its p is 1 - 2 (atan(2.5 / sqrt 3) + 2.5 sqrt 3 / 9.25) / pi.

    >>> spread = Spread(seeds=np.array([0.0]), units=np.array([0.04]), both=np.array([0.0]))
    >>> test = TwoWay(np.array([[0.5, 0.5]]), spread, tail_of(np.full(4, 0.25)))
    >>> test.p(0.0, "two").round(6).tolist()
    [0.087707]
    """

    name = "items"
    words = "two-way t over seeds and items"
    of_pairs = False

    def __init__(self, x: Floats, spread: Spread, tail: Tail, *, levels: tuple[float, ...] | None = None) -> None:
        super().__init__(x)
        scale = -2 * self.exponent  # variances are in the unit of squares
        self.spread = Spread(*(np.ldexp(part, scale) for part in (spread.seeds, spread.units, spread.both)))
        self.unit_tail, self.levels = tail, levels
        self.usable: Kept = self.spread.half(1.0, 1.0) > EQUAL * self.size
        self.standard_error = self.from_unit(self.spread.half(1.0, 1.0))

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return TINY

    def tail(self, null: float, side: Side) -> Floats:
        distance = self.mean - self.to_unit(null)
        if self.levels is not None:
            return self._at_levels(distance, side, self.levels)
        # Solved row by row: one root each, which a simulation cannot afford (`levels`).
        both = np.array([self._two_sided(row, abs(float(from_mean))) for row, from_mean in enumerate(distance)])
        if side == "two":
            two_sided: Floats = np.maximum(both, TINY)
            return two_sided
        # The statistic is symmetric: one-sided p values are halves of the two-sided one, or 1 less
        # that.
        beyond = np.where((distance > 0.0) == (side == "greater"), both / 2.0, 1.0 - both / 2.0)
        one_sided: Floats = np.maximum(np.where(distance == 0.0, 0.5, beyond), TINY)
        return one_sided

    def _at_levels(self, distance: Floats, side: Side, levels: tuple[float, ...]) -> Floats:
        towards = np.abs(distance) if side == "two" else distance if side == "greater" else -distance
        p = np.ones(len(distance))
        for level in levels:  # descending
            # A one-sided test at `level` is the two-sided one at twice that, in its direction.
            both = level if side == "two" else 2.0 * level
            if both >= 1.0:
                rejected = towards > 0.0
            else:
                rejected = towards >= self.spread.half(*critical_values(self.n, self.unit_tail, both))
            p[rejected] = level * (1.0 - 1e-9)
        return p

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        half = self.spread.half(*critical_values(self.n, self.unit_tail, alpha))
        return self.from_unit(self.mean - half), self.from_unit(self.mean + half)

    def refusal(self, null: float = 0.0) -> str:
        return "" if self.usable[0] else f"the standard error over {self.n} seeds is zero: there is no p"

    def _two_sided(self, row: int, distance: float) -> float:
        """The alpha whose interval ends at `distance`: a root in the units' critical value."""
        spread = self.spread.of(row)
        if distance == 0.0:
            return 1.0
        if spread.units == 0.0:
            if spread.seeds == 0.0:
                return 1.0
            return 2.0 * float(special.stdtr(self.n - 1, -distance / sqrt(float(spread.seeds))))

        def beyond(units: float) -> float:
            # For each critical value of the units, the alpha that it stands for, the seeds' value
            # there, and whether the interval of both reaches the null. Capped, so that the root
            # search stays finite.
            half = float(spread.half(_critical(self.n - 1, self.unit_tail(units)), units))
            return min(half / distance, 1e6) - 1.0

        # No interval is narrower than that of the units alone.
        high = min(distance / sqrt(float(spread.units)) * (1.0 + 1e-9), _FAR)
        return self.unit_tail(root(beyond, 0.0, high, xtol=1e-13)) if beyond(high) > 0.0 else 0.0
