"""Plan of runs: a `RunSpec` for each cell (arm, seed) of a study (`Study.cells` in `prereg/study/spec.py`).

Their order is the registered one (`prereg/registry/run_order.py`); which of them are left: `ablate/runner/logbook.py`.

All variants of the first seed come first, so that whole pairs exist early and an interrupted study
has lost no half pairs. The plan is a pure function of the registration; who runs it, and where, is
`ablate.runner`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from prereg.commits.pins import CommitPin
from prereg.errors import RunError, nearest
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_of
from prereg.registry.ledger_entry import Entry, SealEntry
from prereg.registry.paths import Root
from prereg.registry.registration import (
    CorpusPin,
    Registration,
    TaskPin,
    bases_of,
)
from prereg.registry.run_order import cells_in_order
from prereg.study.analysis import AtStep
from prereg.study.command import MetricsFile, ScriptPin
from prereg.study.measure import Measure
from prereg.study.removed import config_with_removed
from prereg.study.spec import Study
from prereg.study.training import Training

Cell = tuple[str, int]
"""A run by its variant and seed."""


class Planned(FrozenModel):
    """One run to do, on any machine. Of the hypotheses it holds the names of the metrics that they need, no more."""

    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration in whose folder the run lies (`prereg.registry.registration.bases_of`)."""
    variant: str
    """The arm."""
    seed: int
    """The seed."""

    diverged_above: float | None
    """The run has diverged when its training loss exceeds this many times the first that it records; none where only a
    loss that is not finite has diverged."""

    metrics: MetricsFile = MetricsFile()
    """The file it leaves its metrics in, from its own directory, and how it is read."""

    claimed: tuple[str, ...] = ()
    """Metrics that some claim reads. The trainer is not told."""

    needed: dict[str, tuple[int, ...]] = {}
    """Metrics that a finished run must have at its last step, and steps at which it must have them besides."""

    needs_curve: bool = False
    """Whether a finished run must have its training loss at every step, for the rule of stability."""

    @property
    def cell(self) -> Cell:
        """Its variant and seed."""
        return self.variant, self.seed

    @property
    def run_id(self) -> str:
        """Stable name of the run: study, first eight digits of the registration, variant, seed."""
        return f"{self.study}/{self.registration[:8]}/{self.variant}/{self.seed}"

    @property
    def steps(self) -> int:
        """Steps of the whole run; 0 where only its trainer knows."""
        return 0


class RunSpec(Planned):
    """One run of the built-in trainer."""

    config: Training
    """The arm's resolved configuration."""
    measure: Measure
    """What to observe."""
    corpus: CorpusPin
    """The registered corpus that it reads."""
    tokenizer: str | None = None
    """sha256 of the registered tokenizer, where one was registered."""
    tasks: TaskPin | None = None
    """The registered zero- and few-shot tasks, if there are any."""

    @property
    def steps(self) -> int:
        """The budget."""
        return self.config.budget.steps


class CommandSpec(Planned):
    """One run of a user's own trainer."""

    config: dict[str, JsonValue]
    """The arm's resolved configuration."""
    command: tuple[str, ...]
    """Its words, placeholders not yet filled in."""
    scripts: tuple[ScriptPin, ...]
    """The files of its code, as registered."""
    code: tuple[str, ...] = ()
    """What `code:` names: of these folders nothing but the registered files is there for a run."""
    data_files: tuple[ScriptPin, ...] = ()
    """The files that it reads, as registered."""
    working_directory: Literal["run", "root"] = "run"
    """Where it starts: in its own directory, or in the root as it sees it."""
    commit: CommitPin | None = None
    """The commit whose files `scripts` are; none where they are those of the root."""

    @property
    def files(self) -> tuple[ScriptPin, ...]:
        """Every pinned file: of its code, then of its data."""
        return (*self.scripts, *self.data_files)


def plan(registration: Registration) -> tuple[RunSpec | CommandSpec, ...]:
    """Every planned run in the registered order: all arms of the first seed, then of the second, and so on.

    Runs of a pilot come first, and until the ledger has their choice there are no others.

    >>> from prereg.registry.registration import load_registration
    >>> registration = load_registration(Root.find(Path("studies/own.yaml")), "own")
    >>> [run.cell for run in plan(registration)][:3]
    [('slow', 1), ('fast', 1), ('fast', 2)]
    """
    study = registration.study
    make = _built_in if study.trainer == "gpt" else _command
    # Until a pilot's choice is on record, the settings of the tuned arms are not known, and there is nothing to
    # plan.
    arms = study.trained if study.settings_known else study.pilots
    # One model of each arm is validated, and copied for its seeds.
    runs = {variant: make(registration, variant, study.seeds[0]) for variant in arms}
    return tuple(
        runs[variant].model_copy(update={"seed": seed}) for variant, seed in registration.cells if variant in arms
    )


def recipe_sha256(spec: RunSpec | CommandSpec) -> str:
    """Hash over what the values of a run follow from: its configuration, code, data and seed, whatever study and arm it
    belongs to and whatever is measured of it. Of the built-in trainer, its version is not in it."""
    # Neither study nor arm nor metrics: the same run under another name must have the same recipe.
    made_of: dict[str, JsonValue] = {"seed": spec.seed}
    if isinstance(spec, RunSpec):
        # Removed fields are in it: seals of the same run that an earlier version wrote have the same hash.
        made_of["config"] = config_with_removed(spec.config.model_dump(mode="json"))
        made_of["data"] = {spec.corpus.name: spec.corpus.sha256}
        made_of["tokenizer"] = spec.tokenizer
    else:
        made_of["config"] = spec.config
        made_of["command"] = [*spec.command]
        made_of["code"] = {pin.path: pin.sha256 for pin in spec.scripts}
        if spec.commit is not None:  # next to the bytes: which files are executable, and which are links
            made_of["modes"] = {file.path: file.mode for file in spec.commit.files if file.mode != "100644"}
        made_of["data"] = {pin.path: pin.sha256 for pin in spec.data_files}
    return sha256_of(made_of)


def recipes_of(registration: Registration) -> dict[Cell, str]:
    """What each planned run is made of, by its hash."""
    return {spec.cell: recipe_sha256(spec) for spec in plan(registration)}


def sealed_elsewhere(entries: Iterable[Entry], registration: Registration) -> dict[str, list[tuple[Cell, SealEntry]]]:
    """Other study -> seals of runs that are made of the same as planned runs of this one, in the ledger's order."""
    seals = [entry for entry in entries if isinstance(entry, SealEntry) and entry.study != registration.study.study]
    # Reversed, so that of planned runs with one recipe the first is named.
    cells = {recipe: cell for cell, recipe in reversed(recipes_of(registration).items())} if seals else {}
    seals_by_study: dict[str, list[tuple[Cell, SealEntry]]] = {}
    for entry in seals:
        # An older seal may lack a recipe; no recipe is the empty text.
        cell = cells.get(entry.recipe_sha256 or "")
        if cell is not None:
            seals_by_study.setdefault(entry.study, []).append((cell, entry))
    return seals_by_study


def planned_runs(
    study: Study, only: Sequence[str] = (), *, registration: Registration | None = None
) -> tuple[str, ...]:
    """ARM/SEED of every planned run, or of those in `only`, in the order of a registration, or in that which the study
    will have. Raises `RunError` for a run that is not planned."""
    cells = cells_in_order(study) if registration is None else registration.cells
    runs = tuple(f"{arm}/{seed}" for arm, seed in cells)
    for name in only:
        if name not in runs:
            raise RunError(f"--only {name}", required="ARM/SEED of a planned run", fix=nearest(name, runs))
    return tuple(name for name in runs if name in only) if only else runs


def _built_in(registration: Registration, variant: str, seed: int) -> RunSpec:
    study, corpus = registration.study, registration.corpus_of(variant)
    assert corpus is not None, study.study
    return RunSpec(
        study=study.study,
        registration=registration.runs_sha256,
        variant=variant,
        seed=seed,
        config=study.training(variant),
        measure=study.measure,
        diverged_above=study.stable.diverged.loss_above,
        corpus=corpus,
        tokenizer=registration.tokenizer_of(variant),
        tasks=registration.tasks,
        claimed=tuple(needed_metrics(study)),
    )


def _command(registration: Registration, variant: str, seed: int) -> CommandSpec:
    study, config = registration.study, registration.study.trained[variant].config
    assert isinstance(config, dict) and registration.scripts is not None, study.study
    return CommandSpec(
        study=study.study,
        registration=registration.runs_sha256,
        variant=variant,
        seed=seed,
        config=config,
        command=study.command,
        scripts=registration.code_of(variant),
        commit=registration.commit_of(variant),
        code=study.code,
        data_files=registration.data_files,
        working_directory=study.working_directory,
        metrics=study.metrics,
        # Names and steps alone. A trainer that knew the claims could stop, or report, by what they say.
        claimed=tuple(needed := needed_metrics(study)),
        needed=needed,
        needs_curve=bool(study.rule.arms_read),
        diverged_above=study.stable.diverged.loss_above,
    )


def needed_metrics(study: Study) -> dict[str, tuple[int, ...]]:
    """Metric -> steps at which some claim reads it, next to the last."""
    # A pilot chooses by a metric's last value, whether or not a claim reads it.
    steps_by_metric: dict[str, set[int]] = {} if study.tune is None else {study.tune.choose_by: set()}
    for name, claim in study.claims.items():
        read = study.hypotheses[name].read
        steps_by_metric.setdefault(claim.metric, set()).update([read.step] if isinstance(read, AtStep) else [])
    return {metric: tuple(sorted(steps)) for metric, steps in steps_by_metric.items()}


def newest_seals(entries: Iterable[Entry], registration: str) -> dict[Cell, SealEntry]:
    """The newest seal of every run of a registration, by any machine, in the order of their first seals.

    >>> from prereg.registry.ledger import Ledger
    >>> from prereg.registry.registration import load_registration
    >>> root = Root.find(Path("studies/own.yaml"))
    >>> seals = newest_seals(Ledger(root.ledger).entries(), load_registration(root, "own").sha256)
    >>> {entry.status for entry in seals.values()}, len(seals)
    ({'done'}, 6)
    """
    return {
        entry.cell: entry for entry in entries if isinstance(entry, SealEntry) and entry.registration == registration
    }


def sealed_places(root: Root, entries: Sequence[Entry]) -> dict[str, dict[Path, SealEntry]]:
    """Under each registration that has seals: the folder of every run that the ledger sealed, and its newest seal."""
    return {
        registration: {
            root.run(entry.study, registration, *cell): entry
            for cell, entry in newest_seals(entries, registration).items()
        }
        for registration in dict.fromkeys(entry.registration for entry in entries if isinstance(entry, SealEntry))
    }


def places_of(root: Root, entries: Sequence[Entry], registration: str) -> dict[Path, SealEntry]:
    """The folder of every sealed run that counts for a registration, and its newest seal: those that it shares too."""
    # By the study of this registration: its base may be an earlier registration, in whose folder the runs are.
    mine = [entry for entry in entries if entry.registration == registration]
    of_study = [entry for entry in entries if mine and entry.study == mine[0].study]
    return sealed_places(root, entries).get(bases_of(of_study).get(registration, registration), {})
