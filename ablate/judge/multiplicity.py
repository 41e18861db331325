"""Holm's step-down correction over the hypotheses of one role.

Holm (1979) keeps the chance of any false rejection at alpha whatever the dependence between the tests. It has
no simple matching interval, so published simultaneous intervals are Bonferroni's and say so. `max_t` is a later
addition and is refused where it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values in the order given: monotone in p, never above 1."""
    m = len(p)
    assert all(0.0 < value <= 1.0 for value in p), p
    adjusted = [0.0] * m
    running = 0.0
    for step, place in enumerate(sorted(range(m), key=lambda i: p[i])):
        # The running maximum is what makes it monotone: leaving it out is the classical mistake.
        running = max(running, min(1.0, (m - step) * p[place]))
        adjusted[place] = running
    return tuple(adjusted)
