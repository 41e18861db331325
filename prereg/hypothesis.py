"""A claim that can fail, and where on its curve its metric is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from prereg.claim import margin_of
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


def _smallest_may_be_in_the_claim(schema: dict[str, Any]) -> None:
    schema["required"] = [field for field in schema["required"] if field != "smallest"]


class Hypothesis(Part):
    """One claim that will end as supported, refuted or inconclusive."""

    model_config = ConfigDict(json_schema_extra=_smallest_may_be_in_the_claim)

    claim: str
    """ARM VERB METRIC [by at least D] [than ARM]; the verb is lowers, raises, changes, does_not_worsen or
    does_not_change. `lowers M by at least D` is supported only by an effect of D or more; `lowers M` by any effect."""
    smallest: Annotated[float, Field(ge=0.0)]
    """The smallest difference that matters, in the metric's own unit on the claim's scale. A claim `by at least D` says
    it already, and `smallest` is then D."""
    role: Role = "primary"
    """The family it is corrected in. Exploratory hypotheses are reported and can decide nothing."""
    scale: Scale = "raw"
    """Scale on which differences are taken: raw, natural logarithm, or log10."""
    read: Literal["final", "best", "area"] | AtStep | OverLast = "final"
    """Where on its curve the metric is read: at the last step, at its best evaluation, as its mean over training (the
    area under the curve, over the steps), at {step: N}, or as its mean over the {last: N} evaluations."""
    better: Better | None = None
    """Which way the metric improves; needed for `does_not_worsen` on a metric this tool does not define."""

    @model_validator(mode="before")
    @classmethod
    def _smallest_of_the_claim(cls, data: Any) -> Any:
        if isinstance(data, dict) and "smallest" not in data and isinstance(data.get("claim"), str):
            least = margin_of(data["claim"])
            return data if least is None else data | {"smallest": least}
        return data
