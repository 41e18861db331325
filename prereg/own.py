"""What a study brings of its own: a metric, or a check of its evidence, each a function whose source is registered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from prereg.metrics import Better
from prereg.part import Part

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*([-.][A-Za-z0-9_]+)*$", max_length=80)]
Limit = Annotated[float, Field(gt=0.0, le=604_800.0)]
AN_HOUR_S = 3600.0
EntryPoint = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$", max_length=200)]


class OwnMetric(Part):
    """A metric that the study brings: a plain function of a model at rest and the validation text, one number back."""

    name: Annotated[str, Field(pattern=r"^own/[a-z][a-z0-9_]*$", max_length=80)]
    """Its name, beginning with own/. Claims may read it."""
    entry_point: EntryPoint
    """module:function, called with one argument, a `View` (`ablate/measure/own.py` says what it holds). A file next to
    the study (studies/MODULE.py), or an installed module. Its source is hashed into the registration, and code that has
    changed since is not executed: the run fails."""
    better: Better
    """Which way it improves."""
    unit: Annotated[str, Field(max_length=30)] = ""
    """Its unit, if it has one."""
    definition: Annotated[str, Field(min_length=1, max_length=500)]
    """What it is, in a sentence for readers of the registration."""
    at_end: bool = True
    """Whether it is measured at the last step alone, or at every evaluation."""
    limit_s: Limit = AN_HOUR_S
    """Seconds that one measurement may take. One that takes longer is ended, and the run fails. Not written where it
    is the default."""

    @model_serializer(mode="wrap")
    def _as_before_without_a_limit(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As of a study: a promise that says nothing of what came later keeps the bytes that were hashed before.
        return _without_the_usual_limit(handler(self), self.limit_s)


class OwnCheck(Part):
    """A check of admissibility that the study brings: a plain function over the sealed records, no outcomes."""

    name: Name
    """Its name; reported as `own check: NAME`."""
    entry_point: EntryPoint
    """module:function. A file next to the study (studies/MODULE.py), or an installed module. Its source is hashed into
    the registration; it is executed when the study is decided, and never before."""
    consequence: Literal["inadmissible", "deviation", "note"] = "inadmissible"
    """What a failure means: no verdict, listed next to the verdict, or a remark."""
    limit_s: Limit = AN_HOUR_S
    """Seconds that it may take. One that takes longer is interrupted, and nothing is decided: how fast a machine is
    says nothing of the evidence. Not written where it is the default."""

    @model_serializer(mode="wrap")
    def _as_before_without_a_limit(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_the_usual_limit(handler(self), self.limit_s)


def _without_the_usual_limit(written: dict[str, Any], limit_s: float) -> dict[str, Any]:
    if limit_s == AN_HOUR_S:
        del written["limit_s"]
    return written
