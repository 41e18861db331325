"""A claim that can fail, and where on its curve its metric is read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prereg.metrics import Better
from prereg.part import Part

Role = Literal["primary", "secondary", "guardrail", "exploratory"]
Scale = Literal["raw", "log", "log10"]


class AtStep(Part):
    """A metric is read at one step of the run."""

    step: Annotated[int, Field(ge=0)]
    """The step; one at which the metric is evaluated."""


class OverLast(Part):
    """A metric is read as its mean over the last evaluations of a run."""

    last: Annotated[int, Field(ge=2)]
    """How many evaluations, the one at the last step among them; that at step 0 is never one of them."""


class Hypothesis(Part):
    """One claim that will end as supported, refuted or inconclusive."""

    claim: str
    """ARM VERB METRIC [than ARM]; the verb is lowers, raises, changes, does_not_worsen or does_not_change."""
    smallest: Annotated[float, Field(ge=0.0)]
    """The smallest difference that matters, in the metric's own unit on the claim's scale."""
    role: Role = "primary"
    """The family it is corrected in. Exploratory hypotheses are reported and can decide nothing."""
    scale: Scale = "raw"
    """Scale on which differences are taken: raw, natural logarithm, or log10."""
    read: Literal["final", "best", "area"] | AtStep | OverLast = "final"
    """Where on its curve the metric is read: at the last step, at its best evaluation, as its mean over training (the
    area under the curve, over the steps), at {step: N}, or as its mean over the {last: N} evaluations."""
    better: Better | None = None
    """Which way the metric improves; needed for `does_not_worsen` on a metric this tool does not define."""
