"""Precision of recorded values: which differences are equal as far as records can tell, and which values are counts.

Trainers compute metrics in single precision. .90 - .88, .91 - .89 and .89 - .87 then differ by 6e-8, and a t test would
read that as noise of next to no spread: a t of a million. In double precision the same happens at 1e-16. Nothing in a
record says how its numbers were computed: a mean of float32 values is a double like any other, and
a text keeps the eight digits that were printed. So every value is taken to be known to `ROUNDING` of its size, as one
that was computed in single precision, and differences that could all be one number are made that number
(`levelled`), before any test sees them: every test has its rule for equal differences already.

What that costs: a spread of less than 1e-6 of the values is no evidence here even where they were computed in double
precision. Losses of 3 would have to vary over seeds by less than .000006. A metric of which that is the noise (a total
energy, a time since 1970) is to be recorded less its offset.

Values of a coarser grid need no such rule: differences of numbers with four decimals are equal, or differ by .0001.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ROUNDING: Final = 2.0**-21
"""How far a recorded value may lie from the one that was meant, as a share of its size: eight half units in the last
place of a float32, one of the value and seven of what it was computed from (a mean, a quotient, a change of unit)."""

_FINE: Final = 2_000
"""Values that are all multiples of 1 / m, m up to here, are counts, or have few digits."""
_ROUND: Final = (
    *(lead * 10**power for power in (3, 4) for lead in (2, 2.5, 3, 4, 5, 6, 8, 10)),
    *(2**power for power in range(11, 17)),
)
"""The same of these m: decimals with four or five digits, shares of test sets of such a size, half precision."""


def levelled(x: Floats, rounding: Floats, *, within: float = 0.0) -> Floats:
    """Differences, studies x pairs, where those of a study that could all be one number are that number.

    Parameters
    ----------
    x : array, studies x pairs
        Differences.
    rounding : array of the same shape
        How far each may lie from the difference that was meant.
    within : float
        Differences that are smaller than this, however they were rounded, stay as they are: that they are small does
        not rest on their spread, and a margin asks no more.

    Returns
    -------
    The same array for a study whose differences vary by more; else their mean, and exactly 0 where each of them could
    be 0. A study with a difference that is not finite is left as it is.

    Examples
    --------
    >>> gains = (np.float32([0.90, 0.91, 0.89]) - np.float32([0.88, 0.89, 0.87])).astype(np.float64)[None, :]
    >>> len(set(gains[0].tolist())), len(set(levelled(gains, np.full((1, 3), 1.8 * ROUNDING))[0].tolist()))
    (2, 1)
    """
    with np.errstate(invalid="ignore"):
        lowest, highest = (x + rounding).min(axis=1), (x - rounding).max(axis=1)
        # Every difference d lies in d -+ rounding: one number is in all of these where the highest lower end is not
        # above the lowest upper end.
        equal = (highest <= lowest) & np.isfinite(x).all(axis=1)
        zero = equal & (highest <= 0.0) & (lowest >= 0.0)
    made_equal = equal & ((np.abs(x) + rounding).max(axis=1) >= within)
    if not made_equal.any():
        return x
    # Halved before they are added: the sum of two large values could overflow.
    middle = np.where(made_equal & ~zero, x.min(axis=1) / 2.0 + x.max(axis=1) / 2.0, 0.0)
    return np.where(made_equal[:, None], middle[:, None], x)


def on_a_grid(values: Floats) -> bool:
    """Whether values are multiples of one fraction 1 / m, as counts, shares of few items and rounded decimals are.

    Three random values lie on such a grid by chance in less than one case of a hundred, five in next to none.

    Examples
    --------
    >>> on_a_grid(np.array([0.91, 0.87, 0.9])), on_a_grid(np.array([3.2783, 3.2766, 3.2801]))
    (True, True)
    >>> on_a_grid(np.random.default_rng(1).standard_normal(3))
    False
    """
    steps = np.concatenate([np.arange(1.0, _FINE + 1.0), _ROUND])
    multiples = values[None, :] * steps[:, None]
    slack = ROUNDING * np.abs(multiples)
    # Where rounding blurs more of a grid's step, any three values would seem to lie on one of so many grids.
    seen = slack.max(axis=1) < 0.02
    return bool((seen & (np.abs(multiples - np.round(multiples)) <= slack).all(axis=1)).any())
