"""Fields `measure` and `assume`: suites of metrics, tasks; what is believed of metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, field_validator, model_serializer

from prereg.errors import FieldPath, field_error, nearest
from prereg.frozen import FrozenModel, once
from prereg.metrics.catalogue import METRICS, SUITES, TASK_METRICS, TASK_NAMES, Metric, Suite, task_of

if TYPE_CHECKING:
    from prereg.study.spec import Study

# Names become folders, columns and words of claims and rules: no blanks, no signs that one of them reads as its own.
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*([-.][A-Za-z0-9_]+)*$", max_length=80)]


Seed = Annotated[int, Field(ge=0, lt=2**31)]
_PACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_OWN = re.compile(r"lm_eval:[A-Za-z0-9][\w.-]*(,[A-Za-z0-9][\w.-]*)*")


class Harness(FrozenModel):
    """Zero- and few-shot tasks by the language-model evaluation harness (Gao et al. 2023), at the end of each run."""

    tasks: Annotated[str, Field(min_length=1, max_length=400)]
    """A task pack (`blimp`, `zorro`, `blimp-prompts`, `zorro-prompts`), a folder of tasks, from the root (with a slash
    in it), or tasks of the harness itself, which need a network: `lm_eval:NAME` or `lm_eval:NAME,NAME`."""
    items_per_task: Annotated[int, Field(ge=1)] = 100
    """How many items of each task are scored, from its first."""
    shots: Annotated[
        tuple[Annotated[int, Field(ge=0, le=64)], ...], Field(min_length=1), once("number of examples")
    ] = (0,)
    """Numbers of examples in the prompt. Examples are never among the scored items, and the same for every run."""
    examples_seed: Seed = 1234
    """Which examples are drawn."""
    clusters: Literal["none", "tasks"] = "none"
    """What comes together when items are a sample: each item comes by itself (none), or the items of a task belong
    together and it is tasks that are sampled (tasks), as for the paradigms of a pack of minimal pairs. A macro accuracy
    over new items speaks under none of new items of these very tasks, which are then strata, and under tasks of new
    tasks."""

    @field_validator("tasks")
    @classmethod
    def _name_tasks(cls, tasks: str) -> str:
        # The same rule as for code and data: a study must mean the same on every machine, so nothing outside the root.
        if is_folder(tasks):
            if tasks.startswith("/") or ".." in tasks.split("/"):
                required = "a folder of tasks, from the root, so that the study means the same on every machine"
                raise ValueError(f"the folder '{tasks}' does not lie under the root", required, "tasks: tasks/mine")
        elif not (_OWN if tasks.startswith(OWN_TASKS) else _PACK).fullmatch(tasks):
            required = "the name of a pack, a folder with a slash in it, or lm_eval:NAME"
            raise ValueError(f"'{tasks}' names no tasks", required, "tasks: blimp")
        return tasks


# To add a pack: a row here, its folder in `PACK_FOLDERS` (`prereg.study.designs.per_task`), and where it comes from in
# `ablate.evaluation.harness.packs`.
PACKS: dict[str, tuple[int, int]] = {
    "blimp": (67, 1_000),
    "blimp-prompts": (67, 1_000),
    "zorro": (23, 0),
    "zorro-prompts": (5, 0),
}
"""Known task packs: how many tasks they hold, and how many items each task has at least (0: not known here)."""


OWN_TASKS = "lm_eval:"
"""What begins the names of tasks that the harness itself defines."""


def is_folder(tasks: str) -> bool:
    """Whether the tasks are a folder from the root, and not a name.

    >>> is_folder("./tasks"), is_folder("blimp")
    (True, False)
    """
    return not tasks.startswith(OWN_TASKS) and "/" in tasks


def units_of(metric: str, harness: Harness) -> int | None:
    """How many items, or tasks where these are what is sampled, a mean of this metric is over; none where it is not
    known before the tasks are read. Of one task it is the items that are asked for."""
    n_tasks, items_of_each = PACKS.get(harness.tasks, (0, 0))
    # Of one task: its own items, however many tasks the pack has.
    if task_of(metric) is not None:
        return harness.items_per_task
    if harness.clusters == "tasks":
        return n_tasks or None
    # Tasks of unequal size: how many items there are is known only while each has as many as are asked for.
    return n_tasks * harness.items_per_task if harness.items_per_task <= items_of_each else None


class Calibration(FrozenModel):
    """How the calibration suite looks at probabilities."""

    bins: Annotated[int, Field(ge=1, le=1000)] = 15
    """Bins of the calibration errors and of the reliability curve (Guo et al. 2017 take 15)."""


class Inference(FrozenModel):
    """What the cost suite runs a trained model on."""

    batch: Annotated[int, Field(ge=1)] = 16
    """Sequences at once."""
    length: Annotated[int, Field(ge=1)] | None = None
    """Tokens of each sequence; the model's context if left out."""
    repeats: Annotated[int, Field(ge=1)] = 5
    """Timed passes, after one that is not timed; the median is reported."""


class Measure(FrozenModel):
    """What is observed while a run trains."""

    every: Annotated[int, Field(ge=1)] = 50
    """Steps between evaluations; step 0 and the last step are always evaluated."""
    suites: tuple[Suite, ...] = ("loss", "activations", "gradients", "speed")
    """Families of metrics to record, at every evaluation."""
    at_end: tuple[Suite, ...] = ()
    """Families of metrics to record at the last step alone: expensive ones, whose course is not needed. `cost` can be
    measured nowhere else. Not written where there are none."""
    calibration: Calibration = Calibration()
    """How calibration is measured; written where its suite is named."""
    inference: Inference = Inference()
    """What the cost of inference is measured on; written where the suite cost is named."""
    loss_level: Annotated[float, Field(gt=0.0)] | None = None
    """A validation loss in nats a token: val/steps_to_level is how many steps it takes to get there."""
    harness: Harness | None = None
    """Zero-shot tasks at the end of each run."""

    @field_validator("at_end")
    @classmethod
    def _each_suite_once(cls, at_end: tuple[Suite, ...], info: ValidationInfo) -> tuple[Suite, ...]:
        suites = info.data.get("suites", ())
        for suite in at_end:
            if (*at_end, *suites).count(suite) > 1:
                required = "each suite at every evaluation (suites) or at the last step alone (at_end)"
                fix = f"suites: [{', '.join(name for name in suites if name != suite)}]"
                raise ValueError(f"the suite '{suite}' is named twice", required, fix)
        return at_end

    @field_validator("loss_level")
    @classmethod
    def _of_a_loss(cls, level: float | None, info: ValidationInfo) -> float | None:
        # "suites" is not there where it is refused itself: one fault is enough.
        suites = info.data.get("suites", ("loss",))
        if level is not None and "loss" not in suites:
            fault = "a level of the loss, and the loss is not evaluated during training"
            raise ValueError(fault, "'loss' among the suites", f"suites: [{', '.join([*suites, 'loss'])}]")
        return level

    @property
    def recorded(self) -> tuple[Suite, ...]:
        """Every suite that some step of a run records."""
        return (*self.suites, *self.at_end)

    def due(self, *, last: bool) -> tuple[Suite, ...]:
        """The suites of one evaluation."""
        return self.recorded if last else self.suites

    @model_serializer(mode="wrap")
    def _without_settings_of_other_suites(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        # Bins of a suite that nobody records would be one more thing that two registrations differ in.
        belongs = {"calibration": "calibration" in self.recorded, "inference": "cost" in self.recorded}
        return {field: value for field, value in written.items() if belongs.get(field, True)}


class ItemSpread(FrozenModel):
    """How the difference of two variants is believed to vary over the items that a run is scored on."""

    sd_items: Annotated[float, Field(ge=0.0)]
    """Standard deviation between items of the difference of two variants, each item's own over all seeds: how unequally
    items gain."""
    sd_residual: Annotated[float, Field(gt=0.0)]
    """Standard deviation of that difference on one item and under one seed about what the item and the seed explain."""
    items: Annotated[int, Field(ge=2)] | None = None
    """How many items there are. Left out where the task pack says it: blimp, and the number of tasks of zorro."""


class Assumption(FrozenModel):
    """What is believed of a metric before data, for the design."""

    sd: Annotated[float, Field(gt=0.0)]
    """Standard deviation of one variant's value over seeds, on the claim's scale; where the value is a mean over items,
    of that mean."""
    correlation: Annotated[float, Field(gt=-1.0, lt=1.0)] = 0.0
    """Correlation between two variants over shared seeds."""
    over_items: ItemSpread | None = None
    """For `estimand: new_seeds_and_items`: without it such a test is not simulated. Under `clusters: tasks` its
    items are the tasks, of equal size; of a macro accuracy under `clusters: none` they are all items, and `sd_items` is
    that within a task."""


class Assume(FrozenModel):
    """Assumptions for the design before any data; the verdict never uses them."""

    metrics: dict[str, Assumption] = Field(default_factory=dict)
    """By metric. harness/accuracy/* is that of each task, where a task has no entry of its own."""
    seconds_per_run: Annotated[float, Field(gt=0.0)] | None = None
    """Time of one run, for the cost of a design."""
    divergence: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of runs that diverge, whatever the arm, in the design's scenarios with divergence; 0 leaves them out."""
    effects: dict[Name, Annotated[float, Field(gt=0.0)]] = Field(default_factory=dict)
    """Hypothesis -> size of the effect that is expected, in the claimed direction: where its power is stated. Without
    one, power is stated at `smallest`, and at twice that for a claim `by at least D`."""
    metric_correlation: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Correlation of the noise of two metrics in one run, each turned so that up is better. Without it, the
    false-positive rate of the whole rule is the largest over correlations from 0 to 1."""
    power_floor: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Registration is refused where a claim that the decision needs has less power than this, unless you give a
    reason, which goes on record."""

    def of(self, metric: str) -> Assumption | None:
        """What is assumed of a metric; of one task's what is assumed of each task, if nothing is of this one."""
        return self.metrics.get(self.name_of(metric))

    def name_of(self, metric: str) -> str:
        """The name that what is assumed of a metric has; of a task without an entry of its own that of each task."""
        # An entry of the task itself goes before that of all tasks.
        return metric if metric in self.metrics else of_each_task(metric)


def of_each_task(metric: str) -> str:
    """`harness/accuracy/*` of a task's `harness/accuracy/TASK`; any other metric as it is.

    >>> of_each_task("harness/accuracy/anaphor"), of_each_task("val/loss")
    ('harness/accuracy/*', 'val/loss')
    """
    task = task_of(metric)
    return metric if task is None else f"{metric.removesuffix(task)}*"


def check_known(study: Study, metric: str, place: FieldPath, reader: str) -> None:
    """Raise `SpecError` where the built-in trainer does not record a metric, or not for shots that are declared."""
    harness = study.measure.harness
    # What a user's own trainer records is known when its runs have ended.
    if study.trainer != "gpt" or study.metric(metric) is not None:
        return
    # What is near differs by kind: a slip in the name of a task's metric is no slip in that of a curve.
    if not metric.startswith("harness/"):
        fix = nearest(metric, [*METRICS, *study.own_units])
        raise field_error(place, f"'{metric}' is not a metric", "a recorded metric", fix)
    if metric not in TASK_METRICS:
        fix = nearest(metric, TASK_NAMES)
        raise field_error(place, f"'{metric}' is not a metric", "a recorded metric of the tasks", fix)
    # A metric of a number of shots that nobody asks for would have no value.
    shots = TASK_METRICS.number(metric, "shots")
    if harness is not None and shots is not None and shots not in harness.shots:
        raise field_error(
            ("measure", "harness", "shots"),
            f"{reader}, and shots are {list(harness.shots)}",
            f"{shots} among the shots",
            f"shots: {sorted({*harness.shots, shots})}",
        )


def check_suite(study: Study, metric: Metric, reader: str) -> None:
    """Raise `SpecError` where the built-in trainer does not record the suite of a metric that the study reads."""
    measure, suite = study.measure, metric.suite
    if study.trainer != "gpt" or suite in measure.recorded:
        return
    # What measures a whole run is refused under `suites`, so the advice must not be to write it there.
    field, recorded = ("at_end", measure.at_end) if SUITES[suite].only_at_end else ("suites", measure.suites)
    raise field_error(
        ("measure", "suites"),
        f"{reader} {metric.name}, of the suite '{suite}'",
        f"'{suite}' among the suites",
        f"{field}: [{', '.join([*recorded, suite])}]",
    )
