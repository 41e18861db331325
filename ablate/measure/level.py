"""Steps to a level of the loss: where the curve of evaluations first comes down to it."""

from __future__ import annotations

from collections.abc import Sequence


def steps_to_level(curve: Sequence[tuple[int, float]], level: float) -> float:
    """The step at which (step, loss) first is at or below the level, on straight lines between evaluations.

    While no evaluation has been there, the last step of the curve: a run that never comes there counts its whole
    length, which can only make it look better than it is.
    """
    assert curve, level
    before: tuple[int, float] | None = None
    for step, loss in curve:
        if loss <= level:
            if before is None:
                return float(step)
            share = (before[1] - level) / (before[1] - loss)
            return before[0] + share * (step - before[0])
        before = (step, loss)
    return float(curve[-1][0])
