"""When a run counts as unstable or as diverged, and at what value a diverged one is scored."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer, model_validator

from prereg.errors import SpecError, Where
from prereg.part import Part

FALSE_ALARMS = 0.01
"""Of a study that says nothing of its spikes."""


class LossSpike(Part):
    """When one step's training loss counts as a spike: by a rate of false alarms, or by a limit of one's own."""

    above: Annotated[float, Field(gt=0.0)] | None = None
    """Robust z-score (distance from the median in units of 1.4826 x MAD) above which a step is a spike. If it is left
    out, it follows from `false_alarms`."""
    window: Annotated[int, Field(ge=5)] = 20
    """Steps in the trailing window that median and MAD are taken over."""
    false_alarms: Annotated[float, Field(ge=1e-6, le=0.1)] | None = None
    """Chance that any run of a study whose training losses are stationary normal noise has a spike; the limit is the
    lowest that keeps it, given the window, the steps and the runs of the study. Instead of `above`; 0.01 where neither
    is given."""

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if self.above is not None and self.false_alarms is not None:
            raise SpecError(
                f"above is {self.above:g} and false_alarms is {self.false_alarms:g}",
                required="one of the two: the rate of false alarms sets the limit",
                fix=f"loss_spike: {{false_alarms: {self.false_alarms:g}, window: {self.window}}}",
                where=Where(field=("stable", "loss_spike")),
            )
        if self.above is None and self.false_alarms is None:
            # The value is frozen for everyone else; here it is still being made.
            object.__setattr__(self, "false_alarms", FALSE_ALARMS)
        return self

    @model_serializer(mode="wrap")
    def _only_what_decides(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        # A limit that was registered before there were rates keeps its bytes, and a rate is the whole of its rule.
        written: dict[str, JsonValue] = handler(self)
        written.pop("false_alarms" if self.false_alarms is None else "above", None)
        return written


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
    """The value of the metric that a diverged run is given, on the metric's own scale: worse than any value that a
    finished run reaches, or there is no verdict."""
