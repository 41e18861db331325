"""Sequential tests: repeated p values over registered looks, and an e-process for adding seeds until decided.

Pure functions of p values and differences; which look it is, and what the ledger says, is `ablate.judge.interim`'s.

**Looks.** The nominal level c_k(alpha) of look k comes from the exact joint law of the t statistics that the looks see
(`ablate.judge.stats.spending`), under normal differences and whatever their SD: the chance that any look rejects is
alpha. It is the law of the planned numbers of seeds. Where divergence takes pairs away each t keeps its own degrees of
freedom, and the levels are those of the plan.

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
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from ablate.judge.stats.root import root
from ablate.judge.stats.significance_tests import EQUAL, TINY, Floats, Kept, PairedT, Side, Studentized
from ablate.judge.stats.spending import Spending, nominal_levels

if TYPE_CHECKING:
    from scipy import interpolate

EFFECT_VARIANCE: Final = 2.0
"""g: the prior variance of the effect in SDs of the differences. Fixed for ever, since studies were registered with
it: few seeds can only find effects of one SD and more, and for those the stop comes soonest with a g of about 2."""

SPENDING_WORDS: Final = {"obrien_fleming": "O'Brien-Fleming spending", "pocock": "Pocock-type spending"}
_LEAST_ALPHA: Final = 1e-12
"""No correction over hypotheses asks for less; a smaller p is reported as if it had reached no further than here."""
_TOP: Final = 0.5
"""Repeated p values above this are reported as 1: no level so high is ever registered."""
_ALPHAS: Final = 36
"""Levels of alpha that are worked out; those between are interpolated on the normal scale, where they lie nearly on
a line."""


def look_level(alpha: float, looks: tuple[int, ...], look: int, spending: Spending) -> float:
    """The nominal two-sided level of a look: the p whose repeated p is alpha.

    Parameters
    ----------
    alpha : float
        Of the whole study.
    looks : tuple of int
        Numbers of seeds, ascending.
    look : int
        Which of them, counted from 1.

    Examples
    --------
    O'Brien and Fleming's type leaves nearly all of .05 to the last of two looks.

    >>> [round(look_level(0.05, (5, 10), look, "obrien_fleming"), 4) for look in (1, 2)]
    [0.0031, 0.048]
    """
    # The table gives alpha by level; its inverse is found here. Beyond its ends the end itself is taken.
    table = _tables(looks, spending, two_sided=True)[look - 1]
    alpha_quantile = float(special.ndtri(min(max(alpha, _LEAST_ALPHA), _TOP)))
    low, high = table.x[0], table.x[-1]
    if not table(low) < alpha_quantile < table(high):
        return float(special.ndtr(low if alpha_quantile <= table(low) else high))
    return float(special.ndtr(root(lambda level: float(table(level)) - alpha_quantile, low, high, xtol=1e-13)))


def repeated_ps(p: Floats, looks: tuple[int, ...], look: int, spending: Spending, *, two_sided: bool = True) -> Floats:
    """Repeated p values: the smallest alphas whose level at this look the nominal p reach; 1 where that
    is above one half.

    References
    ----------
    Jennison and Turnbull (1989), Interim analyses: the repeated confidence interval approach. JRSS B 51,
    305-361.

    Examples
    --------
    At the nominal level of alpha the repeated p is alpha.

    >>> level = look_level(0.05, (5, 10), 1, "pocock")
    >>> repeated_ps(np.array([level, 0.9]), (5, 10), 1, "pocock").round(9).tolist()
    [0.05, 1.0]
    """
    table = _tables(looks, spending, two_sided)[look - 1]
    # Below the table lies nothing that any level in use could tell apart: its lowest alpha errs upwards only.
    quantile = np.clip(special.ndtri(np.maximum(p, TINY)), table.x[0], table.x[-1])
    # No repeated p lies below its nominal one; the spline could put it there in its last bits.
    repeated = np.clip(special.ndtr(table(quantile)), p, 1.0)
    return np.where(p > special.ndtr(table.x[-1]), 1.0, repeated)


@lru_cache(maxsize=64)
def _tables(looks: tuple[int, ...], spending: Spending, two_sided: bool) -> tuple[interpolate.CubicSpline, ...]:
    """For each look, alpha as a function of the look's level, both on the normal quantile scale."""
    from scipy import interpolate  # here: only studies with looks need it, and every judgement loads this module

    quantile = np.linspace(special.ndtri(_LEAST_ALPHA), special.ndtri(_TOP), _ALPHAS)
    tables = []
    for levels in nominal_levels(special.ndtr(quantile), looks, spending, two_sided=two_sided):
        # Early looks of O'Brien and Fleming's type spend next to nothing of a small alpha: such levels
        # underflow, and have no quantile.
        usable = np.flatnonzero(levels > 1e-290)
        assert (np.diff(levels[usable]) > 0).all(), "a level that falls as alpha grows would make repeated p invalid"
        table = interpolate.CubicSpline(special.ndtri(levels[usable]), quantile[usable])
        assert (table(np.linspace(table.x[0], table.x[-1], 1000), 1) > 0).all(), "the same between levels worked out"
        tables.append(table)
    return tuple(tables)


class RepeatedT(PairedT):
    """The paired t at a registered look: every p and interval holds over all the looks, whenever the
    study stops.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs that the look sees.
    looks, look, spending
        See `look_level`.

    Notes
    -----
    ::

        Statistic    t as of `PairedT`, over the seeds that the look sees
        Null         the mean of the differences is `null`
        p            the smallest alpha at which this look would reject (`repeated_ps`)
        Interval     that of `PairedT` at the nominal level of this look
        Fails        as `PairedT`; its levels are those of the planned numbers of seeds

    References
    ----------
    Jennison and Turnbull (1989), see `repeated_ps`; Lan and DeMets (1983), see `spending`.

    Examples
    --------
    At a single look the repeated p is the nominal one, and larger with a look before it.

    >>> x = np.array([[0.3, -0.1, 0.5, 0.9, 0.2]])
    >>> nominal = float(PairedT(x).p(0.0, "two")[0])
    >>> once = float(RepeatedT(x, looks=(5,), look=1, spending="pocock").p(0.0, "two")[0])
    >>> twice = float(RepeatedT(x, looks=(3, 5), look=2, spending="pocock").p(0.0, "two")[0])
    >>> abs(once - nominal) < 1e-9, twice > nominal
    (True, True)
    """

    def __init__(self, x: Floats, *, looks: tuple[int, ...], look: int, spending: Spending) -> None:
        super().__init__(x)
        self.looks, self.look, self.spending = looks, look, spending
        self.words = f"paired t repeated at look {look} of {len(looks)}, {SPENDING_WORDS[spending]}"

    def tail(self, null: float, side: Side) -> Floats:
        # p of the look by itself, then the smallest alpha of the whole study that it meets.
        nominal = super().tail(null, side)
        return repeated_ps(nominal, self.looks, self.look, self.spending, two_sided=side == "two")

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        return super().bounds(look_level(alpha, self.looks, self.look, self.spending))

    def describe(self, alpha: float) -> str:
        """The nominal level and p of this look, for a reader who wants to check."""
        nominal = float(np.where(self.usable, super().tail(0.0, "two"), 1.0)[0])
        level = look_level(alpha, self.looks, self.look, self.spending)
        return (
            f"at look {self.look} of {len(self.looks)} the nominal two-sided p against zero is {nominal:.3g} and the "
            f"nominal level {level:.3g}, before any correction over hypotheses; the p and intervals shown are adjusted "
            f"for all looks"
        )


class EProcessT(Studentized):
    """The t-test e-process over the differences in the order of their seeds.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs, in the order in which they were planned.

    Notes
    -----
    ::

        Statistic    e_n after each number n of seeds, above
        Null         the differences are normal with mean `null`, whatever their SD
        p            1 / the largest e so far, and 1 at most: valid whenever the study stops (Ville 1939)
        Interval     every null whose e has nowhere reached 1 / alpha
        Fails        few seeds can only show effects of one SD and more; undefined where all
                     differences are equal

    References
    ----------
    Lai (1976), On confidence sequences. Ann. Statist. 4, 265-280. Wang and Ramdas (2023), Anytime-valid
    t-tests and confidence sequences for Gaussian means with unknown variance.

    Examples
    --------
    By hand, n = 2: t^2 = 4 against zero, and e = (1 + 2 g)^(-1/2) (1 + 4) / (1 + 4 / (1 + 2 g)), g = 2.

    >>> (1.0 / EProcessT(np.array([[1.0, 3.0]])).p(0.0, "two")).round(6).tolist()
    [1.24226]

    No worked example with this prior is published. Gonen, Johnson, Lu and Westfall (2005, eq. 1) give
    its Bayes factor as the ratio of two Student densities of t, another way to the same numbers:

    >>> from scipy import stats
    >>> x, n, g = np.array([[0.3, -0.1, 0.5, 0.9, 0.2]]), np.arange(2.0, 6.0), 2.0
    >>> t = np.array([stats.ttest_1samp(x[0, : int(k)], 0.0).statistic for k in n])
    >>> scale = np.sqrt(1.0 + n * g)
    >>> ratio = stats.t.pdf(t / scale, n - 1) / scale / stats.t.pdf(t, n - 1)
    >>> bool(np.allclose(ratio, EProcessT(x).e_values(0.0)[0, 1:], rtol=1e-12))
    True
    """

    name = "e_process"
    words = "t-test e-process, anytime-valid"
    against_mean = "the strongest evidence came with fewer seeds and points the other way than the mean of them all"

    def __init__(self, x: Floats) -> None:
        super().__init__(x)
        self.count = np.arange(1.0, self.n + 1)
        self.means = np.cumsum(self.x, axis=1) / self.count
        # Sums of squares about each running mean, from the values: running sums lose digits where the
        # mean is large.
        each = [((self.x[:, :k] - self.means[:, k - 1, None]) ** 2).sum(axis=1) for k in range(1, self.n + 1)]
        self.squares = np.stack(each, axis=1)
        spread = np.maximum.accumulate(self.x, axis=1) - np.minimum.accumulate(self.x, axis=1)
        # Seeds so far that do not differ have no standard error, and say nothing: e counts as 1 there.
        self.spread_so_far: Kept = spread > EQUAL * self.size[:, None]

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """1 / the largest e that n differences can reach, which is the limit of t without end."""
        return min(1.0, float((1.0 + EFFECT_VARIANCE * n) ** (-(n - 1) / 2.0)))

    def e_values(self, null: float) -> Floats:
        """e against the null after each number of seeds; 1 where the differences so far have no spread.

        >>> differences = np.array([[0.1, 0.3, 0.2, 0.4, 0.25]])
        >>> EProcessT(differences).e_values(0.0).round(2)
        array([[ 1.  ,  1.24,  2.77,  4.96, 13.86]])
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            t2_by_df = self.count * (self.means - self.to_unit(null)[:, None]) ** 2 / self.squares  # t^2 / (n - 1)
        return np.where(self.spread_so_far, e_from(np.where(self.spread_so_far, t2_by_df, 0.0), self.count), 1.0)

    def tail(self, null: float, side: Side) -> Floats:
        values = self.e_values(null)
        if side != "two":
            # One-sided: only where the running mean lies beyond the null, see the head of this
            # module.
            beyond = np.sign(self.means - self.to_unit(null)[:, None]) == (1.0 if side == "greater" else -1.0)
            values = np.where(beyond, values, 1.0)
        p: Floats = np.clip(1.0 / values.max(axis=1), TINY, 1.0)
        return p

    def leaning_at(self, null: float) -> Floats:
        """Where the strongest evidence points: what a rejection rests on."""
        # Not the last n: a rejection rests on the largest e, which may have come earlier.
        best = np.where(self.spread_so_far, self.e_values(null), -np.inf).argmax(axis=1)
        strongest = np.take_along_axis(self.means, best[:, None], axis=1)[:, 0] - self.to_unit(null)
        return np.where(self.spread_so_far.any(axis=1), np.sign(strongest), 0.0)

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        return self.by_row([self._bounds(row, alpha) for row in range(len(self.x))])

    def _bounds(self, row: int, alpha: float) -> tuple[float, float] | None:
        has_spread = self.spread_so_far[row]
        n, means, squares = self.count[has_spread], self.means[row, has_spread], self.squares[row, has_spread]
        # A = 1 + n g and K of the head of this module: unbounded where K >= A.
        scale = 1.0 + EFFECT_VARIANCE * n
        reach = (scale / alpha**2) ** (1.0 / n)
        bounded = reach < scale
        if not bounded.any():
            return None
        scale, reach = scale[bounded], reach[bounded]
        half = np.sqrt(squares[bounded] / n[bounded] * (reach - 1.0) / (1.0 - reach / scale))
        # Intersection over n: each is a confidence sequence's interval, valid all at once (Ville
        # 1939).
        low, high = float((means[bounded] - half).max()), float((means[bounded] + half).min())
        return (low, high) if low <= high else None

    def without_interval(self, alpha: float) -> str:
        if self.floor(self.n) > alpha:
            return super().without_interval(alpha)
        return (
            f"{self.words} gives no {1.0 - alpha:.6g} interval: the intervals of successive seeds have no value in "
            f"common, as when differences drift from seed to seed, or do not vary"
        )

    def describe(self, alpha: float) -> str:
        """The evidence itself, for a reader who wants to check."""
        return (
            f"e against zero reached at most {self.e_values(0.0)[0].max(initial=1.0):.4g} in {self.n} seeds; p is 1 "
            f"over it, and {1.0 / alpha:.4g} is needed before any correction over hypotheses"
        )


def e_from(t2_by_df: Floats, n: Floats) -> Floats:
    """e_n from t^2 / (n - 1), by the formula above.

    Examples
    --------
    Without any effect two differences speak against one: e = (1 + 2 g)^(-1/2) with g = 2.

    >>> e_from(np.array([0.0]), np.array([2.0])).round(6).tolist()
    [0.447214]
    """
    scale = 1.0 + EFFECT_VARIANCE * n
    # In logarithms: its powers overflow. exp(700) is near the largest double.
    logs = 0.5 * n * (np.log1p(t2_by_df) - np.log1p(t2_by_df / scale)) - 0.5 * np.log(scale)
    e_values: Floats = np.exp(np.minimum(logs, 700.0))
    return e_values
