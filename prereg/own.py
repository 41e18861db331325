"""What a study brings of its own: a metric, or a check of its evidence, each a function whose source is registered."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prereg.metrics import Better
from prereg.part import Part

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*([-.][A-Za-z0-9_]+)*$", max_length=80)]
EntryPoint = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$", max_length=200)]


class OwnMetric(Part):
    """A metric that the study brings: a plain function of a model at rest and the validation text, one number back."""

    name: Annotated[str, Field(pattern=r"^own/[a-z][a-z0-9_]*$", max_length=80)]
    """Its name, beginning with own/. Claims may read it."""
    entry_point: EntryPoint
    """module:function, called with one argument, a `View` (`ablate/measure/own.py` says what it holds). A file beside
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


class OwnCheck(Part):
    """A check of admissibility that the study brings: a plain function over the sealed records, no outcomes."""

    name: Name
    """Its name; told as `own check: NAME`."""
    entry_point: EntryPoint
    """module:function. A file beside the study (studies/MODULE.py), or an installed module. Its source is hashed into
    the registration; it is executed when the study is decided, and never before."""
    consequence: Literal["inadmissible", "deviation", "note"] = "inadmissible"
    """What a failure means: no verdict, listed beside the verdict, or a remark."""
