"""Fields of a study file, its schema: name, type, default and text of each; `spec.py` adds what follows from them.

What a study file leaves out is written here as a default and stored in the registration, so that a later change
of a default changes no old study. `prereg.study.spec` adds what follows from the fields.

To add a field, see `Study` there. The docstring below a field is its text in the JSON schema, in an editor and in
docs/reference/study-file.md.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from prereg.frozen import once
from prereg.rule.rule import DecisionLine
from prereg.study.analysis import Analysis, Diverged, Hypothesis, Stable, Stopping
from prereg.study.command import MetricsFile, is_inside
from prereg.study.designs.components import Components
from prereg.study.designs.tune import Tune
from prereg.study.measure import Assume, Measure, Name, Seed
from prereg.study.presentation import NO_LABELS, Labels, Report
from prereg.study.training import Training
from prereg.yaml_model import YamlModel

Overrides = dict[str, JsonValue]


# Built once: an adapter in the validator would be compiled for every study that is read.
_MAPPING: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])

EACH_ONCE = once("seed", "each seed once: a repeated seed is the same run, not new evidence")


def _two_or_more(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(seeds) < 2:
        required = "at least two; one seed has no variance"
        raise ValueError(f"{len(seeds)} seed(s)", required, "seeds: [1, 2, 3, 4, 5]")
    return seeds


def _below_the_root(path: str) -> str:
    if not is_inside(path):
        raise ValueError(f"'{path}'", "a path inside the root: no leading '/', no '..'", "[studies/NAME]")
    return path


class StudyFields(YamlModel):
    """What a study file can say, each field with its default."""

    study: Name
    """The study's id; equals the file's name without its ending."""
    title: str
    """One line for people."""
    question: str = ""
    """The question in a sentence or two."""
    trainer: Literal["gpt", "command"] = "gpt"
    """The built-in GPT trainer, or a command of your own."""
    command: tuple[str, ...] = ()
    """Your own trainer, as a list of words; run without a shell. `{seed}`, `{variant}`, `{python}`, `{root}`,
    `{run_dir}` and dotted paths of the arm's configuration, such as `{optim.lr}`, are filled in. A word
    `{--amp if optim.amp}` is `--amp` where that value is true, and left out where it is false."""
    base: Training | dict[str, JsonValue] = Field(default_factory=dict)
    """The configuration that all variants share: for `trainer: gpt` model, data, optim, budget and numerics; for a
    command any mapping, passed on unchanged, but for `commit`, which is that of every arm without one of its own."""
    working_directory: Literal["run", "root"] = "run"
    """Where the command starts: in `{run_dir}`, where its metrics belong, or in the root as the run sees it."""
    code: tuple[Annotated[str, AfterValidator(_below_the_root)], ...] = ()
    """Files and folders of your own trainer, from the root: pinned at registration, like files that the command itself
    names."""
    data: tuple[Annotated[str, AfterValidator(_below_the_root)], ...] = ()
    """Files and folders that your own trainer reads, from the root: pinned at registration, compared before and after
    each run."""
    metrics: MetricsFile = MetricsFile()
    """Where your own trainer writes."""
    labels: Labels = NO_LABELS
    """What people read in place of the ids of arms, claims and metrics, in reports and figures."""
    report: Report = Report()
    """What the report draws in addition to the claims."""
    variants: dict[Name, Overrides] = Field(default_factory=dict)
    """Arms by name, each a set of dotted overrides of the base. Of a trainer of your own `commit` names, next to them,
    the commit whose files the arm is started from: a tag, a branch or a hash, or `WORKTREE` for the files as they lie
    here. Registration pins its full hash and every file."""
    factors: dict[Name, dict[Name, Overrides]] = Field(default_factory=dict)
    """Factors and their levels; arms are all combinations, named by their levels in the order of the factors."""
    components: Components | None = None
    """Parts of a system, from which arms, claims, baseline and decision are written when the study is read."""
    baseline: Name
    """The arm that claims compare with unless they say otherwise."""
    seeds: Annotated[tuple[Seed, ...], EACH_ONCE, AfterValidator(_two_or_more)]
    """A seed fixes initial weights, batches and dropout, the same for every variant. `fresh 5` takes the lowest five
    that no registered study uses. With a test without pairs also a mapping ARM -> list, kept as `arm_seeds`."""
    arm_seeds: dict[Name, Annotated[tuple[Seed, ...], EACH_ONCE]] = Field(default_factory=dict)
    """Arm -> its seeds, where `seeds` is such a mapping: filled in when the study is read, and not written by hand."""
    tune: Tune | None = None
    """Choose the settings of each arm by a pilot on separate seeds, before the runs that are judged."""
    measure: Measure = Measure()
    """What is recorded of each run."""
    stable: Annotated[Stable, Field(validate_default=True)] = Stable()
    """What counts as an unstable run."""
    hypotheses: dict[Name, Hypothesis]
    """The claims, by name."""
    analysis: Analysis = Analysis()
    """The tests and their error rates."""
    stopping: Stopping = "fixed"
    """When the number of seeds is settled."""
    decision: tuple[DecisionLine, ...]
    """Read from the top; the first line that holds is the verdict."""
    tie_breakers: tuple[str, ...] = ()
    """Metrics that are shown next to the verdict when several adopting lines hold. They decide nothing: what decides is
    a claim, and a line of the decision."""
    assume: Assume = Assume()
    """Assumptions for the design."""

    @field_validator("stable")
    @classmethod
    def _limit_of_the_trainer(cls, value: Stable, info: ValidationInfo) -> Stable:
        # A script may log the loss of single batches, of which the first is no measure of the others. A lock always
        # states the limit, so that one that was registered before this default keeps its own.
        if info.data.get("trainer") != "command" or "loss_above" in value.diverged.model_fields_set:
            return value
        return value.model_copy(update={"diverged": Diverged(loss_above=None)})

    @field_validator("base", mode="wrap")
    @classmethod
    def _base_is_what_the_trainer_takes(
        cls, value: Any, _handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Training | dict[str, JsonValue]:
        # Left to itself, the union would take a misspelt Training for a free mapping, and a command's
        # mapping that happens to fit for a Training, all its defaults filled in.
        trainer = info.data.get("trainer")
        # `trainer: command` was forgotten, or the command is faulty. prereg.study.conflicts refuses the first and
        # pydantic the second, and reading a command's base as a Training would add an error for each of its fields.
        if trainer == "gpt" and info.data.get("command", True):
            return Training()
        if trainer == "gpt":
            return value if isinstance(value, Training) else Training.model_validate_json(json.dumps(value))
        # With a trainer that is none of the two, the base is nobody's, and the error about the trainer is enough.
        return _MAPPING.validate_python(value) if trainer == "command" else {}
