"""Root of a function by Brent's method, because importing `scipy.optimize` for it takes a fifth of a second.

The steps and their order are those of `scipy.optimize.brentq`, so that the roots are equal to the last bit, and a test
holds them to it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign

_RELATIVE = 2.0**-50
"""Four times the distance of 1 from the next double: nothing closer can be told apart."""


def root(function: Callable[[float], float], low: float, high: float, *, xtol: float) -> float:
    """A zero of a continuous function between two points at which its signs differ, to `xtol` (Brent 1973, ch. 4).

    Raises `AssertionError` where the signs are equal: the caller brackets.

    Examples
    --------
    >>> round(root(lambda x: x * x - 2.0, 0.0, 2.0, xtol=1e-12), 9)
    1.414213562
    """
    before, x = float(low), float(high)
    f_before, f_x = function(before), function(x)
    if f_before == 0.0:
        return before
    if f_x == 0.0:
        return x
    assert _crosses(f_before, f_x), (low, high, f_before, f_x)
    across, f_other, step, step_before = before, f_before, x - before, x - before
    for _ in range(100):
        # `x` is the best point so far, `other` lies across the zero from it, `before` is the best of the last step.
        if f_before != 0.0 and _crosses(f_before, f_x):
            across, f_other, step, step_before = before, f_before, x - before, x - before
        if abs(f_other) < abs(f_x):
            before, x, across = x, across, x
            f_before, f_x, f_other = f_x, f_other, f_x
        smallest = (xtol + _RELATIVE * abs(x)) / 2.0
        half = (across - x) / 2.0
        if f_x == 0.0 or abs(half) < smallest:
            return x
        if abs(step_before) > smallest and abs(f_x) < abs(f_before):
            if before == across:  # two points: the secant
                tried = -f_x * (x - before) / (f_x - f_before)
            else:  # three: inverse quadratic interpolation
                slope_before, slope_other = (f_before - f_x) / (before - x), (f_other - f_x) / (across - x)
                tried = -f_x * (f_other * slope_other - f_before * slope_before)
                tried /= slope_other * slope_before * (f_other - f_before)
            # A step that shrinks too slowly gives way to bisection, which ends in any case.
            good = 2.0 * abs(tried) < min(abs(step_before), 3.0 * abs(half) - smallest)
            step_before, step = (step, tried) if good else (half, half)
        else:
            step_before = step = half
        before, f_before = x, f_x
        x += step if abs(step) > smallest else copysign(smallest, half)
        f_x = function(x)
    raise AssertionError(f"no zero within {xtol} of {x} after 100 steps")


def _crosses(a: float, b: float) -> bool:
    return copysign(1.0, a) != copysign(1.0, b)
