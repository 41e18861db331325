"""Corrections for several hypotheses: Holm's (1979) step-down procedure, and a gate of steps in order.

Under a gate one alpha holds over the hypotheses of all steps. Each step is tested by Holm's procedure at the full
alpha, and only once every hypothesis of all earlier steps is rejected: a fixed sequence where each step is one
hypothesis (Maurer, Hothorn and Lehmacher 1995), serial gatekeeping where a step is several (Westfall and Krishen 2001).

It is the closed test whose test of an intersection J is Bonferroni's over those hypotheses of J that are in the first
step which J meets. Every such test has level alpha whatever the dependence of the p values, so the chance of any false
rejection is at most alpha (Marcus, Peritz and Gabriel 1976).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ablate.judge.stats.tests import Floats

Step = Sequence[str]
"""The hypotheses of one step of a gate."""


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values in the order given: monotone in p, never above 1."""
    assert all(0.0 < value <= 1.0 for value in p), p
    return tuple(holm_rows(np.array([p]))[0].tolist())


def holm_rows(p: Floats) -> Floats:
    """The same of many studies, one a row."""
    order = np.argsort(p, axis=1, kind="stable")
    steps = np.minimum(1.0, np.arange(p.shape[1], 0, -1) * np.take_along_axis(p, order, axis=1))
    adjusted = np.empty_like(p)
    # The running maximum is what makes it monotone: leaving it out is the classical mistake.
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=1), axis=1)
    return adjusted


def adjusted_rows(steps: Sequence[Step], p: Floats) -> Floats:
    """Adjusted p values of many studies (rows), hypotheses in the order of the steps."""
    adjusted, before, first = np.empty_like(p), np.zeros(len(p)), 0
    for step in steps:
        mine = slice(first, first + len(step))
        # No hypothesis is rejected before all of the earlier steps are: its p is at least the largest of theirs.
        adjusted[:, mine] = np.maximum(holm_rows(p[:, mine]), before[:, None])
        before, first = adjusted[:, mine].max(axis=1), mine.stop
    return adjusted


def adjusted(steps: Sequence[Step], p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values of one study."""
    return tuple(adjusted_rows(steps, np.array([p]))[0].tolist())


def levels_tested(steps: Sequence[Step], rejected: Sequence[bool], alpha: float) -> tuple[float, ...]:
    """The level at which each hypothesis was tested in the end, with all others of its step that were rejected gone; 0
    behind a step that did not pass. It is rejected exactly where its p is at most this."""
    levels: list[float] = []
    is_open = True
    for step in steps:
        mine = rejected[len(levels) : len(levels) + len(step)]
        levels += [alpha / (len(step) - sum(mine) + one) if is_open else 0.0 for one in mine]
        is_open &= all(mine)
    return tuple(levels)
