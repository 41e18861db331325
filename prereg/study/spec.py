"""The study: everything that is promised before any data, as one frozen value.

`Study` is the resolved whole: every default filled in, every cross-reference checked. What a study
file leaves out is written here as a default and stored in the registration, so that a later change
of a default changes no old study. What must hold between fields is `prereg.study.validate`' matter, reading
YAML and naming lines `prereg.study.load`'s, and whether this version can carry a study out `ablate.api.support`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from prereg.errors import SpecError
from prereg.frozen import GrownModel
from prereg.metrics.catalogue import METRICS, TASK_METRICS, Better, Metric
from prereg.rule.condition import contradictions
from prereg.rule.rule import DecisionLine, Rule
from prereg.study.analysis import UNPAIRED_TESTS, Analysis, Ceiling, Hypothesis, Role, Stable, Stopping
from prereg.study.arms import Arm, resolve_arms
from prereg.study.claim import Claim, parse_claim, with_groups
from prereg.study.designs import percent
from prereg.study.designs.components import Components
from prereg.study.designs.gate import Stage, stages_of
from prereg.study.designs.path import candidates_of, pilot_sizes, steps_of
from prereg.study.designs.resolve_components import check_components, placed, with_components
from prereg.study.designs.trends import with_weights
from prereg.study.designs.tune import Pilot, Tune, pilots_of
from prereg.study.designs.unpaired import with_arm_seeds
from prereg.study.faults import spec_error
from prereg.study.measure import Assume, Measure, Name, OwnCheck, Seed
from prereg.study.sizes import WIDTH, Count, Match, resolved
from prereg.study.training import Training
from prereg.study.validate import check_promises
from prereg.text import unit_of

Overrides = dict[str, JsonValue]


class MetricsFile(GrownModel):
    """Where a user's own trainer leaves its metrics."""

    later_fields = ("step", "columns")

    file: str = "metrics.jsonl"
    """A file in the run's own directory. JSON objects, one per line, each a long row
    {"step": 10, "metric": "val/loss", "value": 2.31} or a wide one {"step": 10, "val/loss": 2.31, "train/loss": 2.4};
    or, where the name ends in .csv, a wide table with a header. A blank or null is no value."""
    step: str = "step"
    """Key or column of the step in wide rows."""
    columns: dict[str, str] = {}
    """Metric -> key or column of wide rows that holds it, for instance {val/loss: valid_loss}; other columns are left
    out then. Without it every column but the step is a metric of its own name."""


_MAPPING: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


def _components_write_the_rest(schema: dict[str, Any]) -> None:
    written = ["baseline", "hypotheses", "decision"]
    schema["required"] = [field for field in schema["required"] if field not in written]
    schema["anyOf"] = [{"required": written}, {"required": ["components"]}]


class Study(GrownModel):
    """One pre-registered comparison of training configurations."""

    model_config = ConfigDict(json_schema_extra=_components_write_the_rest)
    later_fields = ("arm_seeds", "checks", "code", "components", "data", "match", "tune", "working_directory")

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
    passed on unchanged."""
    command: tuple[str, ...] = ()
    """The user's own trainer, as words; run without a shell. {seed}, {variant}, {python}, {root}, {run_dir} and dotted
    paths of the arm's configuration, such as {optim.lr}, are filled in. A word "{--amp if optim.amp}" is --amp where
    that value is true, and left out where it is false."""
    working_directory: Literal["run", "root"] = "run"
    """Where the command starts: in the run's own directory, or in the root as the run sees it, with the pinned code as
    a private copy. Either way its metrics belong in the run's own directory, {run_dir}."""
    code: tuple[str, ...] = ()
    """Files and folders of the user's own trainer, from the root: pinned at registration, like files that the command
    itself names."""
    data: tuple[str, ...] = ()
    """Files and folders that the user's own trainer reads, from the root: pinned at registration, compared before and
    after each run, and read where they lie; not written where there are none."""
    metrics: MetricsFile = MetricsFile()
    """Where the user's own trainer writes."""
    variants: dict[Name, Overrides] = Field(default_factory=dict)
    """Arms by name, each a set of dotted overrides of the base."""
    factors: dict[Name, dict[Name, Overrides]] = Field(default_factory=dict)
    """Factors and their levels; arms are all combinations, named by their levels in the order of the factors."""
    components: Components | None = None
    """A component ablation: arms, claims, baseline and decision are written from the parts of a system when the study
    is read, next to those that the study has itself; not written where there is none."""
    match: Match | Count | None = None
    """Make arms as large as the baseline by the width of their feed-forward layers, set when the study is read:
    `parameters`, `flops` (of training on a token), or a mapping that says more."""
    baseline: Name
    """The arm that claims compare with unless they say otherwise."""
    seeds: tuple[Seed, ...]
    """A seed fixes initial weights, batches and dropout, the same for every variant. In a file also `fresh 5`: the five
    lowest that no other study registered beside it uses. With a test without pairs (welch, permutation) also a mapping
    ARM -> list, kept as `arm_seeds`; here is then every seed once."""
    arm_seeds: dict[Name, tuple[Seed, ...]] = Field(default_factory=dict)
    """Arm -> its seeds, where `seeds` is such a mapping; not written otherwise."""
    tune: Tune | None = None
    """Choose the settings of each arm by a pilot on seeds of its own before the runs that are judged."""
    measure: Measure = Measure()
    """What is observed."""
    stable: Stable = Stable()
    """What counts as an unstable run."""
    on_divergence: Literal["exclude_pair", "rank"] | Ceiling = "exclude_pair"
    """How a diverged run enters the tests: its pair is left out (and a verdict is given only if it is the same with
    the pair at its worst), it ranks worst, or it is scored at a registered ceiling. In a test without pairs the run
    itself is left out, under the same condition."""
    hypotheses: dict[Name, Hypothesis]
    """The claims, by name."""
    analysis: Analysis = Analysis()
    """The tests."""
    stopping: Stopping = "fixed"
    """When the number of seeds is settled."""
    decision: tuple[DecisionLine, ...]
    """Read from the top; the first line that holds is the verdict."""
    tie_breakers: tuple[str, ...] = ()
    """Metrics shown next to the verdict when several adopting lines hold; they never decide."""
    assume: Assume = Assume()
    """Beliefs for the design."""
    checks: tuple[OwnCheck, ...] = ()
    """The study's own checks of admissibility, in addition to the tool's; not written where there are none."""

    @field_validator("hypotheses", mode="before")
    @classmethod
    def _percentages_are_margins_on_the_logarithm(cls, value: Any, info: ValidationInfo) -> Any:
        return percent.resolved(value, info.data.get("measure"))

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
        try:
            check_components(self)
            check_promises(self)
        except SpecError as error:
            raise error if self.components is None else placed(error, self.components) from None
        object.__setattr__(self, "match", self._matched(self._as_written))
        return self

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """Every arm with its resolved configuration, in the order of the file; a tuned arm at the setting that the
        ledger froze, a step of a path with the parts that it froze, and as they are written until then."""
        if self.tune is None or not self.tune.chosen:
            return self.untuned | steps_of(self)
        return self.untuned | {
            pilot.of: Arm(pilot.of, self.untuned[pilot.of].overrides, pilot.config)
            for pilot in self.pilots.values()
            if pilot.setting == self.tune.chosen.get(pilot.of)
        }

    @cached_property
    def untuned(self) -> dict[str, Arm]:
        """Every arm as it is written, in the order of the file."""
        match = self._matched(self._as_written)
        if match is None:
            return self._as_written
        matched: dict[str, Overrides] = {arm: {WIDTH: width} for arm, width in match.feed_width.items()}
        return resolve_arms(self.base, self.variants, self.factors, matched)

    @cached_property
    def pilots(self) -> dict[str, Pilot]:
        """The arms of the pilot by name: all that are tuned, or of a path those of the rounds whose start is known;
        none where nothing is chosen."""
        return pilots_of(self) or candidates_of(self)

    @cached_property
    def trained(self) -> dict[str, Arm]:
        """Every arm that is trained: those of the pilot, and those that are judged."""
        return {**self.pilots, **self.arms}

    @property
    def piloting(self) -> Tune | Components | None:
        """What is chosen by a pilot before the runs that are judged: settings, or a path; none where nothing is."""
        on_path = self.components is not None and self.components.design == "path"
        return self.tune or (self.components if on_path else None)

    @property
    def settings_known(self) -> bool:
        """Whether the configurations of all arms are known: nothing is chosen by a pilot, or the ledger has it all."""
        if isinstance(self.piloting, Components):
            return len(self.piloting.path) == len(self.piloting.parts)
        return self.tune is None or bool(self.tune.chosen)

    @property
    def pilot_seeds(self) -> tuple[int, ...]:
        """The seeds of the pilot; none where nothing is chosen by one."""
        return () if self.piloting is None else self.piloting.seeds

    @cached_property
    def pilot_runs(self) -> dict[str, int]:
        """Arm -> how many runs of the pilot choose for it, those of later rounds of a path included."""
        return {arm: size * len(self.pilot_seeds) for arm, size in pilot_sizes(self).items()}

    @property
    def n_runs(self) -> int:
        """Every run that will be made: more than `cells` while later rounds of a path are not known."""
        return sum(self.pilot_runs.values()) + len(self.judged)

    @cached_property
    def cells(self) -> tuple[tuple[str, int], ...]:
        """Every planned run by arm and seed: those of the pilot, of a path as far as it is known, then those that are
        judged, seed by seed."""
        return (*((arm, seed) for seed in self.pilot_seeds for arm in self.pilots), *self.judged)

    @cached_property
    def judged(self) -> tuple[tuple[str, int], ...]:
        """Every planned run that is judged: all arms of the first seed, then of the second, and so on."""
        return tuple(
            (arm, seed) for seed in self.seeds for arm in self.arms if seed in self.arm_seeds.get(arm, (seed,))
        )

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The planned seeds of an arm that is judged, or of one of the pilot."""
        if arm in self.pilots:
            return self.pilot_seeds
        return self.arm_seeds.get(arm, self.seeds)

    @property
    def n_seeds(self) -> int:
        """Seeds of each arm; where arms have seeds of their own, of the arm with most."""
        return max((len(seeds) for seeds in self.arm_seeds.values()), default=len(self.seeds))

    @property
    def paired(self) -> bool:
        """Whether the deciding test is over pairs of runs of one seed."""
        return self.analysis.test not in UNPAIRED_TESTS

    @cached_property
    def _as_written(self) -> dict[str, Arm]:
        """The arms before any of them is made as large as the baseline."""
        tuned = () if self.tune is None else (*self.tune.arms, *self.tune.settings)
        return resolve_arms(self.base, self.variants, self.factors, tuned=tuned)

    def _matched(self, arms: Mapping[str, Arm]) -> Match | None:
        """`match` with its widths; none where there is none, or where it has no baseline to match to."""
        if not isinstance(self.match, Match) or self.baseline not in arms or self.trainer != "gpt":
            return None
        return resolved(self.match, arms, self.baseline)

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """Every hypothesis' claim, parsed, and which way its metric improves."""
        parsed = {
            name: with_groups(with_weights(parse_claim(h.claim, baseline=self.baseline), self.factors), self.arm_groups)
            for name, h in self.hypotheses.items()
        }
        return {
            name: replace(
                claim,
                better=self.hypotheses[name].better or self._better(claim.metric),
                percent=self.hypotheses[name].percent,
            )
            for name, claim in parsed.items()
        }

    @cached_property
    def arm_groups(self) -> dict[str, tuple[str, ...]]:
        """Groups of arms that a claim can name: those of a factorial of `components`."""
        return {} if self.components is None else self.components.groups()

    @property
    def open_steps(self) -> tuple[str, ...]:
        """Arms of a path whose parts its pilot has still to choose; until then their configuration is not theirs."""
        return () if self.components is None else self.components.open_steps

    def part_of(self, hypothesis: str) -> str:
        """The part that a step of a path takes, by its hypothesis; empty where it is not known, and elsewhere."""
        return "" if self.components is None else self.components.part_of(hypothesis)

    @cached_property
    def compares_sides(self) -> bool:
        """Whether any claim compares two sides of each seed; else each seed gives one number."""
        return any(claim.is_paired for claim in self.claims.values())

    @cached_property
    def families(self) -> dict[Role, tuple[str, ...]]:
        """Role -> its hypotheses, of every role that has any: corrected together, but for support under a gate."""
        roles = dict.fromkeys(hypothesis.role for hypothesis in self.hypotheses.values())
        return {role: tuple(name for name, one in self.hypotheses.items() if one.role == role) for role in roles}

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The graphs of the gate in the order in which they are tested; none without a gate."""
        return stages_of(self)

    @cached_property
    def corrected_together(self) -> dict[str, tuple[str, ...]]:
        """What is corrected together for support: role -> its hypotheses; under a gate "gate" -> all that it holds, in
        the order of its stages."""
        if not self.stages:
            return dict(self.families.items())
        apart = {role: names for role, names in self.families.items() if role == "exploratory"}
        return {"gate": tuple(name for stage in self.stages for name in stage.names)} | apart

    def corrected_with(self, name: str) -> tuple[str, ...]:
        """The hypotheses that one is corrected with for support, itself among them."""
        return next(names for names in self.corrected_together.values() if name in names)

    @cached_property
    def rule(self) -> Rule:
        """The decision list, parsed and proved."""
        return Rule.parse(
            self.decision,
            hypotheses=tuple(self.hypotheses),
            variants=tuple(self.arms),
            exploratory=tuple(n for n, h in self.hypotheses.items() if h.role == "exploratory"),
            contradictions=contradictions(self.hypotheses, self.claims),
        )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with fields replaced and every promise checked again; nothing cached is carried over."""
        assert not deep, "a study is frozen: a deep copy is the study itself"
        return type(self).model_validate(
            {name: getattr(self, name) for name in type(self).model_fields} | dict(update or {})
        )

    def _better(self, name: str) -> Better:
        metric = self.metric(name) or TASK_METRICS.get(name)
        return metric.better if metric is not None else "neither"

    def unit(self, hypothesis: str) -> str:
        """The unit of a claim's effect; of a trend per unit of its values."""
        claim = self.claims[hypothesis]
        unit = unit_of(claim.metric, self.hypotheses[hypothesis].scale, self.own_units)
        return unit if claim.trend is None else f"{unit} {claim.trend.per}".strip()

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
        config = self.trained[arm].config
        assert isinstance(config, Training), (arm, self.trainer)
        return config


def study_from_document(document: Mapping[str, Any]) -> Study:
    """A study from plain data (what YAML or a lock holds). Raises `SpecError` naming the field."""
    document = with_arm_seeds(with_components(document))
    try:
        return Study.model_validate_json(json.dumps(document, allow_nan=False))
    except ValidationError as error:
        raise spec_error(error, document, Study) from None
