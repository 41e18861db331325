"""When a run counts as unstable or as diverged, and at what value a diverged one is scored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from prereg.part import Part


class LossSpike(Part):
    """When one step's training loss counts as a spike."""

    above: Annotated[float, Field(gt=0.0)] = 6.0
    """Robust z-score (distance from the median in units of 1.4826 x MAD) above which a step is a spike."""
    window: Annotated[int, Field(ge=5)] = 20
    """Steps in the trailing window that median and MAD are taken over."""


class Diverged(Part):
    """When a run has diverged: it ends there, and its curve is kept."""

    loss_above: Annotated[float, Field(gt=1.0)] = 2.0
    """A training loss above this many times the first step's, or one that is not finite."""


class Stable(Part):
    """What counts as an unstable run; a variant is stable when none of its runs is unstable."""

    loss_spike: LossSpike = LossSpike()
    """A run with any spike is unstable."""
    diverged: Diverged = Diverged()
    """A run that diverged is unstable."""


class Ceiling(Part):
    """A diverged run is scored at a fixed value."""

    ceiling: float
    """The value of the metric that a diverged run is given, on the metric's own scale."""
