"""Words for a p value, equal pairs and stability, parts of sentences; those of reports: `reporting/wording.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.precision import ROUNDING
from ablate.judge.verdict import Stability
from prereg.text import p_value


def said_p(p: float, levels: Sequence[float] = ()) -> str:
    """A p value as `= .0004` or `< .0001`, never rounded across one of the levels in use.

    Examples
    --------
    >>> said_p(0.0004), said_p(1e-9)
    ('= .0004', '< .0001')
    """
    text = p_value(p, levels)
    return text if text[0] in "<>" else f"= {text}"


def same_in_every_pair(left: npt.ArrayLike, right: npt.ArrayLike, *, paired: bool = True) -> str:
    """What a reader must know where every pair has the same difference; nothing where they differ.

    Without `paired` each seed gives one number, and the right side is the same for all.

    Examples
    --------
    >>> same_in_every_pair([0.5, 0.7], [0.25, 0.5])
    ''
    >>> same_in_every_pair([0.5, 0.75], [0.25, 0.5])[:34]
    'all 2 differences are the same: th'
    """
    sides = [np.asarray(side_, dtype=np.float64) for side_ in (left, right)]
    differences = sides[0] - sides[1]
    # Equal up to rounding, relative to the values and not to the differences: 0.1 + 0.2 - 0.3 is no difference.
    size = max(float(np.abs(side).max(initial=0.0)) for side in sides)
    if differences.size < 2 or not np.isfinite(size) or np.ptp(differences) > 2.0 * ROUNDING * size:
        return ""
    n = differences.size
    if not paired:
        return f"all {n} seeds give the same value: the seed seems to do nothing to it"
    if all(np.ptp(side) <= 2.0 * ROUNDING * size for side in sides):
        return (
            f"all {n} seeds give the same values: the seed seems to do nothing, or the metric does not depend on it, "
            f"and {n} pairs are then no more evidence than one"
        )
    if np.abs(differences).max() <= ROUNDING * size:
        return (
            f"all {n} differences are zero: the arms seem not to differ, or the metric does not depend on what they "
            "change"
        )
    return (
        f"all {n} differences are the same: the seed seems to do nothing to them, or the metric does not depend on it"
    )


def unstable_runs(arm: Stability) -> int:
    """Runs that diverged, had a loss spike or did not reach a registered level; one that did several counts once."""
    return len({*arm.diverged, *arm.not_reached, *(seed for seed, steps in arm.spikes.items() if steps)})


def share_of_bound(arm: Stability) -> str:
    """The one-sided 95% upper bound of Clopper and Pearson (1934) for the chance that a run is unstable."""
    return f"{100.0 * upper_bound(unstable_runs(arm), arm.runs):.0f}%"


def upper_bound(k: int, n: int) -> float:
    """The largest chance of an event under which at most k of n would still have a probability of 5%.

    Examples
    --------
    None of n: about 3 / n, the rule of three. Exactly 1 - .05^(1 / n).

    >>> round(upper_bound(0, 10), 4) == round(1 - 0.05**0.1, 4)
    True
    """
    return 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, 0.95))
