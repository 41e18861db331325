"""The study: everything that is promised before any data, as one frozen value.

`Study` is the resolved whole: every default filled in, every cross-reference checked. What a study
file leaves out is written here as a default and stored in the registration, so that a later change
of a default changes no old study. What must hold between fields is `prereg.promises`' matter, reading
YAML and naming lines `prereg.load`'s, and whether this version can carry a study out `ablate.support`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from prereg.arms import Arm, resolve_arms
from prereg.claim import Claim, parse_claim
from prereg.converses import contradictions
from prereg.faults import spec_error
from prereg.harness_metrics import harness_metric
from prereg.match import WIDTH, Match, resolved
from prereg.metrics import METRICS, Better, Metric, Suite
from prereg.part import Part
from prereg.promises import check_promises
from prereg.rule import DecisionLine, Rule
from prereg.size import Count
from prereg.training import Training

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*([-.][A-Za-z0-9_]+)*$", max_length=80)]
Overrides = dict[str, JsonValue]
Role = Literal["primary", "secondary", "guardrail", "exploratory"]
Test = Literal["paired_t", "bootstrap_t", "sign_flip", "wilcoxon", "items", "percentile", "bca"]
Scale = Literal["raw", "log", "log10"]
Alpha = Annotated[float, Field(gt=0.0, le=0.5)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Harness(Part):
    """Zero- and few-shot tasks by the language-model evaluation harness (Gao et al. 2023), at the end of each run."""

    tasks: Annotated[str, Field(min_length=1, max_length=400)]
    """A task pack (`blimp`, `zorro`, `blimp-prompts`), a folder of tasks, from the root (with a slash in it), or tasks
    of the harness itself, which want a network: `lm_eval:NAME` or `lm_eval:NAME,NAME`."""
    items_per_task: Annotated[int, Field(ge=1)] = 100
    """The first so many items of each task."""
    shots: Annotated[tuple[Annotated[int, Field(ge=0, le=64)], ...], Field(min_length=1)] = (0,)
    """Numbers of examples in the prompt. Examples are never among the scored items, and the same for every run."""
    examples_seed: Seed = 1234
    """Which examples are drawn."""
    clusters: Literal["none", "tasks"] = "none"
    """What comes together when items are a sample: each item comes by itself (none), or the items of a task belong
    together and it is tasks that are sampled (tasks), as for the paradigms of a pack of minimal pairs."""


class Calibration(Part):
    """How the calibration suite looks at probabilities."""

    bins: Annotated[int, Field(ge=1, le=1000)] = 15
    """Bins of the calibration errors and of the reliability curve (Guo et al. 2017 take 15)."""


class Inference(Part):
    """What the cost suite runs a trained model on."""

    batch: Annotated[int, Field(ge=1)] = 16
    """Sequences at once."""
    length: Annotated[int, Field(ge=1)] | None = None
    """Tokens of each; the model's context if left out."""
    repeats: Annotated[int, Field(ge=1)] = 5
    """Passes, of whose times the median counts; one more before them is not counted."""


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
    limit_s: Annotated[float, Field(gt=0.0, le=604_800.0)] = 3600.0
    """Seconds that one measurement may take. One that takes longer is ended, and the run fails. Not written where it
    is the default."""

    @model_serializer(mode="wrap")
    def _as_before_without_a_limit(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As of a study: a promise that says nothing of what came later keeps the bytes that were hashed before.
        written: dict[str, Any] = handler(self)
        if self.limit_s == type(self).model_fields["limit_s"].default:
            del written["limit_s"]
        return written


class Measure(Part):
    """What is observed while a run trains."""

    every: Annotated[int, Field(ge=1)] = 50
    """Steps between evaluations; step 0 and the last step are always evaluated."""
    suites: tuple[Suite, ...] = ("loss", "activations", "gradients", "speed")
    """Families of metrics to record, at every evaluation."""
    at_end: tuple[Suite, ...] = ()
    """Families of metrics to record at the last step alone: dear ones, whose course is not asked for. `cost` can be
    measured nowhere else. Not written where there are none."""
    calibration: Calibration = Calibration()
    """How calibration is measured; written where its suite is named."""
    inference: Inference = Inference()
    """What the cost of inference is measured on; written where the suite cost is named."""
    loss_level: Annotated[float, Field(gt=0.0)] | None = None
    """A validation loss in nats a token: val/steps_to_level tells how many steps it takes to get there. Not written
    where there is none."""
    own: tuple[OwnMetric, ...] = ()
    """The study's own metrics, beside the tool's; not written where there are none."""
    harness: Harness | None = None
    """Zero-shot tasks at the end of each run."""

    @property
    def recorded(self) -> tuple[Suite, ...]:
        """Every suite that some step of a run records."""
        return (*self.suites, *self.at_end)

    def due(self, *, last: bool) -> tuple[Suite, ...]:
        """The suites of one evaluation."""
        return self.recorded if last else self.suites

    @model_serializer(mode="wrap")
    def _as_before_without_what_came_later(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As of a study: a promise that says nothing of what came later keeps the bytes that were hashed before.
        written: dict[str, Any] = handler(self)
        asked = {
            "at_end": bool(self.at_end),
            "calibration": "calibration" in self.recorded,
            "inference": "cost" in self.recorded,
            "loss_level": self.loss_level is not None,
            "own": bool(self.own),
        }
        return {field: value for field, value in written.items() if asked.get(field, True)}


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


class Analysis(Part):
    """How evidence is judged."""

    test: Test = "paired_t"
    """The test that decides, over per-seed paired differences (items: over seeds and items, which asks for claims about
    metrics that are means over items, and for `estimand`). percentile and bca decide from twenty seeds on, and below
    only describe."""
    alpha: Alpha = 0.05
    """Chance of any false finding of one kind within the hypotheses of one role."""
    correct: Literal["holm", "max_t", "none"] = "holm"
    """Correction over the hypotheses of one role."""
    also: tuple[Test, ...] = ()
    """Tests reported beside the deciding one; they never decide. Here items always speaks of new items too."""
    estimand: Literal["new_seeds", "new_seeds_and_items"] = "new_seeds"
    """What the verdict speaks of: new seeds on these validation items, or new seeds and new items. Only `test: items`
    can speak of new items, and it has no default there: the study says which."""


class Ceiling(Part):
    """A diverged run is scored at a fixed value."""

    ceiling: float
    """The value of the metric that a diverged run is given, on the metric's own scale."""


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


class Assumption(Part):
    """What is believed of a metric before data, for the design."""

    sd: Annotated[float, Field(gt=0.0)]
    """Standard deviation of one variant's value over seeds, on the claim's scale."""
    correlation: Annotated[float, Field(gt=-1.0, lt=1.0)] = 0.0
    """Correlation between two variants over shared seeds."""


class Assume(Part):
    """Beliefs that the design needs; never used by the verdict."""

    metrics: dict[str, Assumption] = Field(default_factory=dict)
    """By metric."""
    seconds_per_run: Annotated[float, Field(gt=0.0)] | None = None
    """Time of one run, for the cost of a design."""
    divergence: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    """Share of runs that diverge, whatever the arm, in the design's scenarios with divergence; 0 leaves them out."""


class OwnCheck(Part):
    """A check of admissibility that the study brings: a plain function over the sealed records, no outcomes."""

    name: Name
    """Its name; told as `own check: NAME`."""
    entry_point: EntryPoint
    """module:function. A file beside the study (studies/MODULE.py), or an installed module. Its source is hashed into
    the registration; it is executed when the study is decided, and never before."""
    consequence: Literal["inadmissible", "deviation", "note"] = "inadmissible"
    """What a failure means: no verdict, listed beside the verdict, or a remark."""


class MetricsFile(Part):
    """Where a user's own trainer leaves its metrics."""

    file: str = "metrics.jsonl"
    """A file in the run's own directory, of JSON objects, one a line:
    {"step": 10, "metric": "val/loss", "value": 2.31}."""


_MAPPING: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


class Study(Part):
    """One pre-registered comparison of training configurations."""

    study: Name
    """The study's id; equals the file's name without its ending."""
    title: str
    """One line for people."""
    question: str = ""
    """The question in a sentence or two."""
    trainer: Literal["gpt", "command"] = "gpt"
    """The built-in GPT trainer, or a command of the user's own."""
    base: Training | dict[str, JsonValue] = Field(default_factory=dict)
    """The configuration that all variants share: for `trainer: gpt` the fields of Training, for a command any mapping,
    handed over as it stands."""
    command: tuple[str, ...] = ()
    """The user's own trainer, as words; run without a shell, in the run's own directory. {seed}, {variant}, {python}
    and dotted paths of the arm's configuration, such as {optim.lr}, are filled in."""
    code: tuple[str, ...] = ()
    """Files and folders of the user's own trainer, from the root: pinned at registration, like files that the command
    itself names."""
    metrics: MetricsFile = MetricsFile()
    """Where the user's own trainer writes."""
    variants: dict[Name, Overrides] = Field(default_factory=dict)
    """Arms by name, each a set of dotted overrides of the base."""
    factors: dict[Name, dict[Name, Overrides]] = Field(default_factory=dict)
    """Factors and their levels; arms are all combinations, named by their levels in the order of the factors."""
    match: Match | Count | None = None
    """Make arms as large as the baseline by the width of their feed-forward layers, set when the study is read:
    `parameters`, `flops` (of training on a token), or a mapping that says more."""
    baseline: Name
    """The arm that claims compare with unless they say otherwise."""
    seeds: tuple[Seed, ...]
    """A seed fixes initial weights, batches and dropout, the same for every variant."""
    measure: Measure = Measure()
    """What is observed."""
    stable: Stable = Stable()
    """What counts as an unstable run."""
    on_divergence: Literal["exclude_pair", "rank"] | Ceiling = "exclude_pair"
    """How a diverged run enters the tests: its pair is left out (stability rules then decide), it ranks worst,
    or it is scored at a registered ceiling."""
    hypotheses: dict[Name, Hypothesis]
    """The claims, by name."""
    analysis: Analysis = Analysis()
    """The tests."""
    stopping: Literal["fixed"] | Looks | EProcess = "fixed"
    """When the number of seeds is settled."""
    decision: tuple[DecisionLine, ...]
    """Read from the top; the first line that holds is the verdict."""
    tie_breakers: tuple[str, ...] = ()
    """Metrics shown beside the verdict when several adopting lines hold; they never decide."""
    assume: Assume = Assume()
    """Beliefs for the design."""
    checks: tuple[OwnCheck, ...] = ()
    """The study's own checks of admissibility, beside the tool's; not written where there are none."""

    @field_validator("base", mode="wrap")
    @classmethod
    def _base_is_what_the_trainer_takes(
        cls, value: Any, _handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Training | dict[str, JsonValue]:
        # Left to itself, the union would take a misspelt Training for a free mapping, and a command's
        # mapping that happens to fit for a Training, all its defaults filled in.
        trainer = info.data.get("trainer")
        if trainer == "gpt":
            return value if isinstance(value, Training) else Training.model_validate_json(json.dumps(value))
        return _MAPPING.validate_python(value) if trainer == "command" else {}

    @model_validator(mode="after")
    def _promises_fit_together(self) -> Self:
        if isinstance(self.match, str):
            # The value is frozen for everyone else; here it is still being made.
            object.__setattr__(self, "match", Match(by=self.match))
        check_promises(self)
        object.__setattr__(self, "match", self._matched(self._as_written))
        return self

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """Every arm with its resolved configuration, in the order of the file."""
        match = self._matched(self._as_written)
        if match is None:
            return self._as_written
        matched: dict[str, Overrides] = {arm: {WIDTH: width} for arm, width in match.feed_width.items()}
        return resolve_arms(self.base, self.variants, self.factors, matched)

    @cached_property
    def _as_written(self) -> dict[str, Arm]:
        """The arms before any of them is made as large as the baseline."""
        return resolve_arms(self.base, self.variants, self.factors)

    def _matched(self, arms: Mapping[str, Arm]) -> Match | None:
        """`match` with its widths; none where there is none, or where it has no baseline to match to."""
        if not isinstance(self.match, Match) or self.baseline not in arms or self.trainer != "gpt":
            return None
        return resolved(self.match, arms, self.baseline)

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """Every hypothesis' claim, parsed."""
        return {name: parse_claim(h.claim, baseline=self.baseline) for name, h in self.hypotheses.items()}

    @cached_property
    def rule(self) -> Rule:
        """The decision list, parsed and proved."""
        return Rule.parse(
            self.decision,
            hypotheses=tuple(self.hypotheses),
            variants=tuple(self.arms),
            exploratory=tuple(n for n, h in self.hypotheses.items() if h.role == "exploratory"),
            contradictions=contradictions(self.hypotheses, self.claims, self.better),
        )

    @model_serializer(mode="wrap")
    def _as_before_without_later_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A promise without them keeps the bytes that were hashed before the format had them. All in one place:
        # of two serializers of a model, the library takes the last.
        written: dict[str, Any] = handler(self)
        for field in ("checks", "code", "match"):
            if not getattr(self, field):
                written.pop(field, None)
        return written

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with fields replaced and every promise checked again; nothing cached is carried over."""
        assert not deep, "a study is frozen: a deep copy is the study itself"
        return type(self).model_validate(
            {name: getattr(self, name) for name in type(self).model_fields} | dict(update or {})
        )

    def family(self, role: Role) -> tuple[str, ...]:
        """Names of the hypotheses corrected together."""
        return tuple(name for name, hypothesis in self.hypotheses.items() if hypothesis.role == role)

    def better(self, hypothesis: str) -> Better:
        """Which way the hypothesis' metric improves."""
        stated = self.hypotheses[hypothesis].better
        if stated is not None:
            return stated
        name = self.claims[hypothesis].metric
        metric = self.metric(name) or harness_metric(name)
        return metric.better if metric is not None else "neither"

    def metric(self, name: str) -> Metric | None:
        """The declaration of a metric: the tool's, or the study's own; none where only the user's trainer knows it."""
        for one in self.measure.own:
            if one.name == name:
                return Metric(one.name, one.unit, one.better, "own", one.definition.rstrip("."))
        return METRICS.get(name)

    @property
    def own_units(self) -> dict[str, str]:
        """Unit of each of the study's own metrics."""
        return {one.name: one.unit for one in self.measure.own}

    def training(self, arm: str) -> Training:
        """The configuration of an arm of a `trainer: gpt` study."""
        config = self.arms[arm].config
        assert isinstance(config, Training), (arm, self.trainer)
        return config


def study_from_document(document: Mapping[str, Any]) -> Study:
    """A study from plain data (what YAML or a lock holds). Raises `SpecError` naming the field."""
    try:
        return Study.model_validate_json(json.dumps(document, allow_nan=False))
    except ValidationError as error:
        raise spec_error(error, document, Study) from None
