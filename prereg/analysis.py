"""How evidence is judged, and when its seeds are enough."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from prereg.part import Part

Test = Literal["paired_t", "bootstrap_t", "sign_flip", "wilcoxon", "items", "percentile", "bca"]
Zeros = Literal["pratt", "wilcox"]
Alpha = Annotated[float, Field(gt=0.0, le=0.5)]


class Analysis(Part):
    """How evidence is judged."""

    test: Test = "paired_t"
    """The test that decides, over per-seed paired differences (items: over seeds and items, which asks for claims about
    metrics that are means over items, and for `estimand`). percentile and bca are for `also`: as `test` they are
    refused, because they err too often, and so is bootstrap_t with fewer than four seeds."""
    alpha: Alpha = 0.05
    """Chance of any false finding of one kind within the hypotheses of one role."""
    correct: Literal["holm", "max_t", "none"] = "holm"
    """Correction over the hypotheses of one role. max_t is for sign_flip and wilcoxon, whose sign-flips are joint."""
    also: tuple[Test, ...] = ()
    """Tests reported next to the deciding one; they never decide. Here items always speaks of new items too."""
    zeros: Zeros = "pratt"
    """What wilcoxon, and ranked diverged runs, do with a difference equal to the null: pratt ranks it with the others
    and then leaves it out, wilcox leaves it out before ranking. Not written where it is pratt."""
    estimand: Literal["new_seeds", "new_seeds_and_items"] = "new_seeds"
    """What the verdict speaks of: new seeds on these validation items, or new seeds and new items. Only `test: items`
    can speak of new items, and it has no default there: the study says which."""
    least_pairs: Annotated[int, Field(ge=2)] | None = None
    """Under `on_divergence: exclude_pair`: a hypothesis that lost pairs is inconclusive with fewer left. By default
    half the seeds, rounded up, and three where there are as many; not written where it is the default."""

    most_lost_starts: Annotated[int, Field(ge=0)] | None = None
    """No verdict where more starts of runs than this have no seal and were not resumed: killed and begun again, failed,
    or removed with their folder. By default only removed ones count that need not give the same bits, and one may; not
    written where it is the default."""

    @model_serializer(mode="wrap")
    def _as_before_without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A promise without them keeps the bytes that were hashed before the format had them. In one place: of two
        # serializers of a model, the library takes the last.
        written: dict[str, Any] = handler(self)
        if self.zeros == "pratt":
            written.pop("zeros", None)
        if self.least_pairs is None:
            written.pop("least_pairs", None)
        if self.most_lost_starts is None:
            written.pop("most_lost_starts", None)
        return written


class Looks(Part):
    """A group-sequential design."""

    looks: tuple[Annotated[int, Field(ge=2)], ...]
    """Numbers of seeds at which the data are looked at, ascending; the last equals the number of seeds."""
    spending: Literal["obrien_fleming", "pocock"] = "obrien_fleming"
    """Lan-DeMets spending function."""


class EProcess(Part):
    """Seeds are added until the e-process decides."""

    evidence: Literal["e_process"]
    """Anytime-valid evidence over paired differences."""
    max_seeds: Annotated[int, Field(ge=2)]
    """No more seeds than this."""
