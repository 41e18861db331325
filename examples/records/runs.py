"""One published run, whatever its contest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One published run, as a row that `ablate import` reads."""

    arm: str
    seed: int
    step: int
    day: str
    """Day of its record, ISO 8601."""
    value: float
    """Of the metric that its study claims something about."""
