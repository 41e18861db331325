"""Sequential tests: repeated p values over registered looks.

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
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from ablate.judge.stats.root import root
from ablate.judge.stats.significance_tests import TINY, Floats, PairedT, Side
from ablate.judge.stats.spending import Spending, nominal_levels

if TYPE_CHECKING:
    from scipy import interpolate

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
