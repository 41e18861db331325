"""Fields `analysis`, `hypotheses`, `stopping` and `stable`: tests, levels, gates of claims, looks.

Models alone, each with what holds within it; what holds between them is in `prereg.study.conflicts` and `validate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from prereg.errors import field_error
from prereg.frozen import FrozenModel, branch, chosen_by
from prereg.metrics.catalogue import Better
from prereg.study.claim import margin_of
from prereg.study.measure import Name
from prereg.study.words_of_tests import Test
from prereg.text import compact

if TYPE_CHECKING:
    from prereg.study.spec import Study

LEAST_RUNS = 3
"""Of an arm in a test without pairs: at a nominal .05, Welch's t with 12 and 2 runs errs in .107 (docs/designs.md)."""
Zeros = Literal["pratt", "wilcox"]
MOST_ALPHA = 0.1
Alpha = Annotated[float, Field(gt=0.0, le=MOST_ALPHA)]
"""A larger chance of a false finding is no level that a reader would take a verdict from."""


# Gatekeeping: one alpha over all claims, in an order of steps.
#
#     gate: {order: [gain, no_harm, [speed, memory]]}      steps, one after the other; a step of several by Holm
#     gate: {order: [primary, guardrail, secondary]}       the same with whole roles as steps
#
# A fixed sequence where each step is one hypothesis, serial gatekeeping where a step is several
# (`ablate.judge.stats.multiplicity`). To pass is to reject the null that support rejects. Refutations wait for no gate
# and are corrected by Holm's procedure over their role, as without one: harm must be found whether or not a gain was,
# and a rule that says `not refuted(harm)` adopts the more often in error the harder a refutation is made.
Step = tuple[str, ...]
"""Hypotheses that are tested together, by Holm's procedure."""
_Together = Annotated[tuple[Name, ...], Field(min_length=1), branch("list")]
Entry = Annotated[Annotated[Name, branch("text")] | _Together, chosen_by(listed="list")]


class Gate(FrozenModel):
    """Steps that are tested one after the other, each at the full alpha."""

    order: tuple[Entry, ...]
    """Hypotheses or roles, or lists of them. A step is tested when every hypothesis of the earlier steps has passed;
    within a step of several, Holm's procedure holds alpha. Every hypothesis that is not exploratory comes once."""


class Analysis(FrozenModel):
    """How evidence is judged."""

    test: Test = "paired_t"
    """The test that decides, over per-seed paired differences (items: over seeds and items, which asks for claims
    about metrics that are means over items, and for `estimand`). bootstrap_t is refused with fewer than four seeds: it
    uses all n^n resamples of up to ten pairs, and of more 199,999, the same for every study (in `design`: all of up to
    eight, then 9,999). welch compares arm means without pairs; with it arms may have seeds of their own, and different
    numbers of them."""
    alpha: Alpha = 0.05
    """Chance of any false finding of one kind within the hypotheses of one role, or of one line
    `per: task`, which is corrected apart; at most 0.1."""
    correct: Literal["holm", "none"] = "holm"
    """Correction over the hypotheses of one role."""
    also: tuple[Test, ...] = ()
    """Tests reported next to the deciding one; they never decide. Here items always speaks of new items too."""
    zeros: Zeros = "pratt"
    """What wilcoxon does with a difference equal to the null: pratt ranks it with the others
    and then leaves it out, wilcox leaves it out before ranking. Not written where it is pratt."""
    estimand: Literal["new_seeds", "new_seeds_and_items"] = "new_seeds"
    """What the verdict speaks of: new seeds on these validation items, or new seeds and new items. Only `test: items`
    can speak of new items, and it has no default there: the study says which."""
    least_pairs: Annotated[int, Field(ge=2)] | None = None
    """A hypothesis that lost pairs is inconclusive with fewer left. By default
    half the seeds, rounded up, and three where there are as many. Without pairs
    (welch) the same holds for the runs of each arm."""
    most_lost_starts: Annotated[int, Field(ge=0)] | None = None
    """No verdict where more starts of runs than this have no seal and were not resumed: killed and begun again, failed,
    or removed with their folder. By default one may, and only those count that may have recorded a value of a claimed
    metric and need not give the same bits."""
    gate: Gate | None = None
    """One alpha over the hypotheses of all roles, in steps that are tested one after the other. Without it each role
    has an alpha of its own."""


def steps_of(study: Study) -> tuple[Step, ...]:
    """The steps of a study's gate, in the order in which they are tested; none without a gate."""
    gate = study.analysis.gate
    return () if gate is None else tuple(tuple(members(study, step)) for step in gate.order)


def in_words(study: Study) -> str:
    """The gate in a sentence's part; nothing without one."""
    if not study.gate_steps:
        return ""
    # A step of one hypothesis needs no correction within itself.
    steps = [" and ".join(step) + " (by Holm)" * (len(step) > 1) for step in study.gate_steps]
    return f"in this order, each step at the full alpha and only if all before it passed: {', then '.join(steps)}"


def members(study: Study, step: str | tuple[str, ...]) -> Iterator[str]:
    """The hypotheses of one step as the gate writes it, by their names or by their role."""
    for entry in (step,) if isinstance(step, str) else step:
        # A hypothesis may not have the name of a role (`validate`), so the order of the two tests means
        # nothing.
        if entry in study.hypotheses:
            yield entry
        else:
            yield from study.families.get(entry, ())


class Looks(FrozenModel):
    """A group-sequential design."""

    looks: tuple[Annotated[int, Field(ge=2)], ...]
    """Numbers of seeds at which the data are looked at, ascending; the last equals the number of seeds."""
    spending: Literal["obrien_fleming", "pocock"] = "obrien_fleming"
    """Lan-DeMets spending function. A two-sided test spends alpha/2 on each side, as in gsDesign."""
    if_identical: Literal["continue", "stop"] = "continue"
    """stop: the study ends at the first look at which both runs of every pair recorded the same values to the bit."""


Stopping = Annotated[
    Annotated[Literal["fixed"], branch("text, or a mapping")] | Annotated[Looks, branch("Looks")],
    chosen_by(Looks, text="text, or a mapping"),
]
Role = Literal["primary", "secondary", "guardrail", "exploratory"]
Scale = Literal["raw", "log", "log10"]


class AtStep(FrozenModel):
    """A metric is read at one step of the run."""

    step: Annotated[int, Field(ge=0)]
    """The step; one at which the metric is evaluated."""


class OverLast(FrozenModel):
    """A metric is read as its mean over the last evaluations of a run."""

    last: Annotated[int, Field(ge=2)]
    """How many evaluations, counted back from the one at the last step; step 0 is never among them."""


Read = Annotated[
    Annotated[Literal["final", "best", "area"], branch("text, or a mapping")]
    | Annotated[AtStep, branch("AtStep")]
    | Annotated[OverLast, branch("OverLast")],
    chosen_by(AtStep, OverLast, text="text, or a mapping"),
]


_SMALLEST: dict[str, Any] = {
    "anyOf": [{"type": "number", "minimum": 0.0}, {"type": "string", "pattern": r"^([0-9]+\.?[0-9]*|\.[0-9]+)%$"}]
}


def _smallest_may_be_in_the_claim(schema: dict[str, Any]) -> None:
    schema["required"] = [field for field in schema["required"] if field != "smallest"]


class Hypothesis(FrozenModel):
    """One claim that will end as supported, refuted or inconclusive."""

    model_config = ConfigDict(json_schema_extra=_smallest_may_be_in_the_claim)

    claim: str
    """ARM VERB METRIC [by at least D] [than ARM]; the verb is lowers, raises, changes, does_not_worsen or
    does_not_change. `lowers M by at least D` is supported only by an effect of D or more; `lowers M` by any effect. In
    place of an arm: mean(a, b), or (a - b) on both sides. With a constant: ARM lowers METRIC below NUMBER, ARM raises
    METRIC above NUMBER, and [by at least D] after it; one-sided. D may be a percentage, of geometric means."""
    smallest: Annotated[float, Field(ge=0.0), WithJsonSchema(_SMALLEST)]
    """The smallest difference that matters, in the metric's own unit on the claim's scale. A claim `by at least D` says
    it already, and `smallest` is then D. A percentage, 2%, is a ratio of geometric means over
    seeds, and not of arithmetic ones: it is turned into a margin on `scale: log`. 0 is allowed, but of a claim that
    there is no difference, or no harm (`prereg.study.validate`)."""
    role: Role = "primary"
    """The family it is corrected in. Exploratory hypotheses are reported and can decide nothing."""
    scale: Scale = "raw"
    """Scale on which differences are taken: raw, natural logarithm, or log10."""
    read: Read = "final"
    """Where on its curve the metric is read: at the last step, at its best evaluation, as its mean over training (the
    area under the curve, over the steps), at {step: N}, or as its mean over the {last: N} evaluations."""
    better: Better | None = None
    """Which way the metric improves; needed for `does_not_worsen` on a metric this tool does not define."""
    percent: Annotated[float, Field(gt=0.0)] | None = None
    """The margin in percent, where `smallest` or the claim says it so: filled in when the study is read, and not
    written by hand."""
    per: Literal["task"] | None = None
    """task: one such claim for each task of measure.harness, NAME.TASK, written when the study is read. They are a
    family of their own: corrected over the tasks, apart from others of their role. The claim is about harness/accuracy
    or harness/accuracy_shots_N; the decision asks `all supported(NAME)` or `any refuted(NAME)`."""
    family: Annotated[str, Field(max_length=80)] | None = None
    """The line `per: task` that the claim is written from: filled in when the study is read, and not written by
    hand."""

    @model_validator(mode="before")
    @classmethod
    def _smallest_of_the_claim(cls, data: Any) -> Any:
        # A claim `by at least D` says it already. In percent it is on another scale, and `prereg.study.macros` sets it.
        if isinstance(data, dict) and "smallest" not in data and isinstance(data.get("claim"), str):
            least = margin_of(data["claim"])
            return data if least is None else data | {"smallest": least}
        return data


FALSE_ALARMS = 0.01
"""Of a study that says nothing of its spikes."""


class LossSpike(FrozenModel):
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
    first_steps: bool = False
    """Whether steps before the first full window are judged too, by the window that follows them. A study without
    `loss_spike` has it; beside a window or a limit of one's own it must be named. Not written where they are not
    judged."""

    @model_validator(mode="before")
    @classmethod
    def _some_limit(cls, data: Any) -> Any:
        # Here and not as a default: a study that names a limit of its own must not get a rate next to it.
        neither = isinstance(data, dict) and data.get("above") is None and data.get("false_alarms") is None
        return data | {"false_alarms": FALSE_ALARMS} if neither else data

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if self.above is not None and self.false_alarms is not None:
            raise field_error(
                ("stable", "loss_spike"),
                f"above is {self.above:g} and false_alarms is {self.false_alarms:g}",
                "one of the two: the rate of false alarms sets the limit",
                f"loss_spike: {{false_alarms: {self.false_alarms:g}, window: {self.window}}}",
            )
        return self

    @model_serializer(mode="wrap")
    def _only_what_decides(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        written: dict[str, JsonValue] = handler(self)
        # One of the two is none; written as null it would read as a limit that somebody left out on purpose.
        written.pop("false_alarms" if self.false_alarms is None else "above", None)
        return written


class Diverged(FrozenModel):
    """When a run has diverged: it ends there, and its curve is kept."""

    loss_above: Annotated[float, Field(gt=1.0)] | None = 2.0
    """A training loss above this many times the first that is recorded, or one that is not finite. Null: only one that
    is not finite, which is the default for a trainer of your own."""


BY = "by"
_REACHED: dict[str, Any] = {
    "type": "object",
    "properties": {BY: {"type": "integer", "minimum": 1}},
    "additionalProperties": {"type": "number"},
}


class Stable(FrozenModel):
    """What counts as an unstable run; a variant is stable when none of its runs is unstable."""

    loss_spike: LossSpike = LossSpike(first_steps=True)
    """A run with any spike is unstable. Left out, the first steps are judged too."""
    diverged: Diverged = Diverged()
    """A run that diverged is unstable."""
    reached: Annotated[dict[str, float], WithJsonSchema(_REACHED)] = Field(default_factory=dict)
    """{METRIC: LEVEL, by: STEP}: a run is unstable that has no value as good as the level, or better, at any evaluation
    after step 0 and up to that step. It finds a blow-up in the first steps after which a run stays at a bad loss. Not
    written where there is none."""

    @property
    def levels(self) -> dict[str, float]:
        """Metric -> the level that each run must reach."""
        return {metric: level for metric, level in self.reached.items() if metric != BY}

    @property
    def by(self) -> int:
        """The step by which they must be reached; 0 where none is registered."""
        return int(self.reached.get(BY, 0))

    @model_validator(mode="after")
    def _levels_and_a_step(self) -> Self:
        # The step lies among the levels, where a user writes it, so its type is that of a level.
        step = self.reached.get(BY, 0.0)
        if self.reached and not (self.levels and step >= 1 and step == int(step)):
            raise field_error(
                ("stable", "reached"),
                f"{', '.join(self.levels) or 'no metric'}, by {compact(step) if BY in self.reached else 'no step'}",
                "a metric with its level, and the step by which each run must reach it",
                "reached: {val/loss: 3.0, by: 80}",
            )
        return self
