"""`ablate run`: from a registration to sealed runs, up to the look that is due; `import` of runs made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.checking import check
from ablate.notebook.results import Ran
from ablate.pinning import require_pinned
from ablate.registering import Prepared, prepare, register_once
from ablate.runner.options import RunOptions
from ablate.workspace import HERE, StudyContext, StudySource, Workspace, require_registered
from prereg.errors import EvidenceError, RunError
from prereg.registry.canon import sha256_of
from prereg.registry.ledger_entry import ImportedEntry, PromiseEntry, TunedEntry
from prereg.registry.run_order import order_in_words
from prereg.study.timed import timed_promises

if TYPE_CHECKING:
    from ablate.records.rows import TableLayout
    from ablate.records.run_record import RunRecord
    from prereg.registry.looks import Look
    from prereg.registry.paths import Root
    from prereg.registry.registration import Registration


def run(
    study: StudySource,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    workspace: Workspace = HERE,
    accept_underpowered: str | None = None,
    pilot: str | None = None,
) -> Ran:
    """Register if need be, then train what is left of the plan; of a sequential study, what its next look needs.

    `options` say how many runs side by side, where, and which; `accept_underpowered` is the reason to register a design
    that cannot decide, `pilot` an earlier study whose noise the design assumes. Returns how far the plan is: failed
    runs and an interruption are in it, not raised. Raises `StudyError` where study or options cannot be carried out.

    >>> ablate.run("studies/own.yaml", ablate.RunOptions(slots=2))
    Ran(study='own', sealed=6, planned=6, failed=0)
    """
    from ablate.runner.local import run_study, study_lock
    from ablate.runner.machine import choose_machine, records_of
    from prereg.campaign.record import proposal_run_as
    from prereg.documents.facts import unknown_power
    from prereg.registry.history import repeated, require_unchanged

    # Everything that can be refused comes before the lock and the first entry.
    context = check(study, workspace)
    name = context.study.study
    registered = context.load_registration()
    _require_options(context, options, registered)
    prepared: Prepared | None = None
    if registered is None:
        prepared = prepare(context, accept_underpowered=accept_underpowered, pilot=pilot)
    else:
        require_unchanged(registered, context.loaded)
        require_pinned(context, registered)
        look_to_run_up_to(context, registered)  # refused where a look has ended the study
    records = records_of(context.root, registered) if registered is not None else {}
    machine = choose_machine(context.study, records.values(), options)
    watcher = workspace.watcher
    with study_lock(context.root, name):
        if unfinished := context.ledger.unfinished():
            watcher.note(unfinished)
        registration, entry = register_once(context, lambda: prepared or prepare(context))
        if entry is not None:
            watcher.note(f"registered {name} before any run; registration {registration.sha256}")
            watcher.note(f"ledger head {entry.sha256}")
            for repetition in repeated(context.root, registration.study):
                watcher.note(repetition.words)
            if registration.timed:
                watcher.note(order_in_words(registration.study, registration.timed))
        # What a proposal can find says the design of its campaign.
        is_proposal = proposal_run_as(context.ledger.readable(), name) is not None
        if not is_proposal and (unknown := unknown_power(registration)):
            watcher.note(unknown)
        look = look_to_run_up_to(context, registration)
        registration = freeze_choice(context, registration, watcher.note)
        _require_choice(context, registration, options.only)
        make = partial(
            run_study, context.root, options=options, machine=machine, now=workspace.clock, watcher=watcher, look=look
        )
        summary = make(registration=registration)
        # Once the pilot's runs have ended they choose the settings of the runs that are judged.
        chosen = freeze_choice(context, registration, watcher.note)
        if chosen is not registration:
            registration, summary = chosen, summary if options.only else make(registration=chosen)
    return Ran(registration, entry is not None, summary, look)


def _require_options(context: StudyContext, options: RunOptions, registered: Registration | None) -> None:
    """Refuse options that this study cannot be run with; `registered` is its registration, where it has one."""
    from ablate.runner.machine import require_devices
    from prereg.registry.plan import planned_runs

    require_devices(context.study, options)
    _require_launcher(context, options)
    # With what a pilot chose so far, which only the registration has. Raises for a run that is not planned.
    planned_runs(context.study if registered is None else registered.study, options.only, registration=registered)
    timed = timed_promises(context.study) if registered is None else registered.timed
    if timed and options.slots != 0:  # with no slot nothing is made
        require_one_at_a_time(timed, options, context.root)
        _require_registered_order(context, options, registered)
    if options.next_look and context.study.stopping == "fixed":
        raise RunError(
            f"'{context.study.study}' has a fixed number of seeds, and so no next look",
            required="stopping: {looks: [...]}",
            fix=f"ablate run {context.path}",
        )
    if options.checkpoint_every_s is not None and context.study.trainer != "gpt":
        raise RunError(
            "--checkpoint-every is for the built-in trainer",
            required="a user's own trainer to save its own checkpoints, and to leave a file named resumable",
            fix=f"ablate run {context.path}",
        )


def require_one_at_a_time(timed: Sequence[str], options: RunOptions, root: Root) -> None:
    """Refuse options by which runs would be made side by side, where `timed` says why they must not be."""
    if not timed:
        return
    tasks = options.tasks
    if options.on == "slurm":
        from ablate.runner.local import slurm_settings

        tasks = slurm_settings(root, options).tasks
    for flag, number in (("--jobs", options.slots), ("--tasks", tasks)):
        if number is not None and number > 1:
            raise RunError(
                f"{flag} {number}, and {timed[0]}",
                required="one run at a time: a run takes longer while another shares its machine, and which has "
                "company for how long follows from how fast they are",
                fix=f"{flag} 1, or leave it out; of a metric that is no time, say its unit: metrics: {{declare: ...}}",
            )


def _require_registered_order(context: StudyContext, options: RunOptions, registered: Registration | None) -> None:
    """Refuse a choice of runs that leaves out one which comes before them."""
    from prereg.registry.plan import planned_runs

    if not options.only:
        return
    study = context.study if registered is None else registered.study
    left = planned_runs(study, registration=registered)
    if registered is not None:
        left = runs_left(context, registered, left)[0]
    last = max((at for at, name in enumerate(left) if name in options.only), default=-1)
    skipped = next((name for name in left[: last + 1] if name not in options.only), None)
    if skipped is not None:
        raise RunError(
            f"--only {left[last]}, and {skipped} comes before it",
            required="runs in their registered order: it treats all arms alike on a machine that grows slower, which "
            "a claim on a time needs",
            fix=f"ablate run {context.path}   (or first: --only {skipped})",
        )


def _require_launcher(context: StudyContext, options: RunOptions) -> None:
    """Refuse options of a launcher that is another one, or is not here."""
    # A flag -> its value, and the launchers that take it.
    launchers_by_flag: dict[str, tuple[object, tuple[str, ...]]] = {
        "--slurm": (options.slurm, ("slurm",)),
        "--tasks": (options.tasks, ("slurm", "ray")),
        "--address": (options.address, ("ray",)),
    }
    wrong = [
        f"{flag} without --on {launchers[0]}"
        for flag, (value, launchers) in launchers_by_flag.items()
        if value and options.on not in launchers
    ]
    if options.on not in ("local", "slurm", "ray"):
        wrong = [f"--on {options.on}"]
    if wrong:
        raise RunError(wrong[0], required="--on local, slurm or ray", fix=f"ablate run {context.path} --on slurm")
    if options.slots == 0:  # nothing is launched
        return
    if options.on == "slurm":
        from ablate.runner.local import slurm_settings
        from ablate.runner.slurm import require_slurm

        slurm_settings(context.root, options)
        require_slurm()
    elif options.on == "ray":
        from ablate.runner.ray_cluster import require_ray

        require_ray()


def freeze_choice(context: StudyContext, registration: Registration, note: Callable[[str], None]) -> Registration:
    """The registration at the settings that its pilot chose, which the ledger then holds.

    Returns it as it is where nothing is left to choose, or runs of the pilot are missing. Raises `RunError` where every
    setting of an arm has a run without a value: there is nothing to choose from.
    """
    study, tune = registration.study, registration.study.tune
    if tune is None or tune.chosen:
        return registration
    from ablate.records.gather import gather
    from prereg.study.designs.tune import choose

    newest = context.load_registration()
    assert newest is not None and newest.study.tune is not None, study.study
    if newest.study.tune.chosen:  # by another call, since `registration` was read
        return newest
    evidence = gather(context.root, registration)
    if evidence.withheld:
        return registration
    choices = choose(study, evidence.final(tune.choose_by))
    without = sorted({pilot.of for pilot in study.pilots.values()} - {choice.arm for choice in choices})
    if without:
        raise RunError(
            f"no setting of {without[0]} ended every run of the pilot with a {tune.choose_by}",
            required="a setting of each tuned arm none of whose pilot runs diverges",
            fix=f"smaller values in tune.grid, then: ablate amend {context.path} --reason TEXT",
        )
    # The entry is the choice: reading the registration again must give the settings that were just logged.
    chosen = {choice.arm: choice.setting for choice in choices}
    context.ledger.append(
        TunedEntry(
            **context.about(registration.sha256),
            chosen=chosen,
            by=tune.choose_by,
            means={name: mean for choice in choices for name, mean in choice.means.items()},
            pilot_runs=sum(len(choice.means) for choice in choices) * len(tune.seeds),
        )
    )
    for arm, setting in chosen.items():
        note(f"the pilot chose for {arm}: " + ", ".join(f"{key} {json.dumps(value)}" for key, value in setting.items()))
    chosen_now = context.load_registration()
    assert chosen_now is not None and chosen_now.study.tune is not None, study.study
    assert chosen_now.study.tune.chosen == chosen, (study.study, chosen)
    return chosen_now


def _require_choice(context: StudyContext, registration: Registration, only: Sequence[str]) -> None:
    """Refuse chosen runs that need a choice that the pilot has not made."""
    study = registration.study
    early = [name for name in only if name.rpartition("/")[0] in study.arms]
    if early and not study.settings_known:
        raise RunError(
            f"--only {early[0]}, and the pilot has not chosen its setting yet",
            required=f"the {sum(study.pilot_runs.values())} runs of the pilot first",
            fix=f"ablate run {context.path}",
        )


def look_to_run_up_to(context: StudyContext, registration: Registration) -> Look | None:
    """The first look not taken yet, or none for a fixed number of seeds. Refused once a look has ended the study.

    >>> context = HERE.open("studies/own.yaml")
    >>> look_to_run_up_to(context, require_registered(context)) is None  # a fixed number of seeds
    True
    """
    from prereg.registry.looks import looks_of, next_look, taken_looks

    study = registration.study
    if not looks_of(study):
        return None
    # From the ledger and not from the runs: a look is taken when it is on record, whatever has been trained beyond
    # it.
    taken = taken_looks(context.ledger.entries(), registration.lineage)
    look = next_look(study, taken)
    if look is None:
        raise RunError(
            f"'{study.study}' was decided at look {taken[-1].look} of {len(looks_of(study))}",
            required="no seed added after the verdict: more of them would undo the error rate that was promised",
            fix=f"ablate report {context.path}",
        )
    return look


def runs_left(
    context: StudyContext, registration: Registration, names: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, RunRecord]]:
    """Of the ARM/SEED in `names` those that a call of `run` would make now; and the records of all sealed runs.

    >>> context = HERE.open("studies/own.yaml")
    >>> left, records = runs_left(context, require_registered(context), ["fast/1", "slow/1"])
    >>> left, records["fast/1"].status
    ((), 'done')
    """
    from ablate.runner.machine import records_of

    look, records = look_to_run_up_to(context, registration), records_of(context.root, registration)
    seeds = {seed for _, seed in registration.study.cells} if look is None else registration.study.seeds[: look.n_seeds]
    ended = ("done", "diverged")
    sealed = {f"{arm}/{seed}": record for (arm, seed), record in records.items() if record.status in ended}
    # Within the look, and not sealed.
    return tuple(name for name in names if name not in sealed and int(name.rpartition("/")[2]) in seeds), sealed


def plan_commands(
    study: StudySource, *, workspace: Workspace = HERE, device: str = "auto"
) -> tuple[tuple[str, ...], ...]:
    """The words of a command for each run of a registered study that is left, for a scheduler of the user's own.

    Takes in what such commands have made before, and puts the start of each run on record before it is handed out.
    Raises `StudyError` where the study is not registered, or no longer what was registered.

    >>> ablate.plan_commands("studies/own.yaml")  # every run is sealed
    ()
    """
    from ablate.runner.local import hand_out, study_lock
    from ablate.runner.machine import choose_machine, records_of

    # As `run` does, up to the point where runs would be made: they are put on record and printed instead.
    context = check(study, workspace)
    registration = require_registered(context, fix=f"ablate register {context.path}")
    require_pinned(context, registration)
    records = records_of(context.root, registration)
    machine = choose_machine(context.study, records.values(), RunOptions(device=device))
    with study_lock(context.root, context.study.study):
        watcher = workspace.watcher
        registration = freeze_choice(context, registration, watcher.note)
        look = look_to_run_up_to(context, registration)
        commands = hand_out(context.root, registration, machine, now=workspace.clock, watcher=watcher, look=look)
    return tuple(("ablate", *words) for words in commands)


@dataclass(frozen=True)
class Imported:
    """What `import_runs` did."""

    study: str
    imported: tuple[str, ...]
    """Runs imported now, ARM/SEED."""
    already_here: tuple[str, ...]
    """Runs that were here already, the same bytes."""
    unfinished: tuple[str, ...]
    """Runs of the source that had not ended, or failed, and were left there."""
    bound: bool
    missing: int
    """Planned runs that are neither here nor in the source."""
    head: str


def import_runs(
    study: StudySource,
    source: str | Path,
    *,
    note: str,
    exploratory: bool = False,
    only: Sequence[str] = (),
    layout: TableLayout | None = None,
    run_pattern: str | None = None,
    workspace: Workspace = HERE,
) -> Imported:
    """Import runs of a source; bound to the registration, or exploratory. `layout` is that of a wide table.

    A tracker is a source too, `mlflow:URI#EXPERIMENT` or `tensorboard:DIR`; `run_pattern` finds arm and seed in the
    names of its runs, and of those of a panel that W&B exported. `note` says where the runs come from and goes into the
    report; `only` names some of the source's runs, ARM/SEED. Raises `StudyError` for the first thing that is wrong,
    before anything is written.

        done = ablate.import_runs("studies/own.yaml", "results.csv", note="the cluster of 2025", exploratory=True)
        done.imported, done.missing
    """
    from ablate.records.imports import Terms, already_placed, is_replayed, put, read_runs
    from ablate.records.store import RunFolder
    from ablate.records.tables import LONG
    from ablate.records.tracked import is_tracked, read_tracked
    from ablate.runner.local import study_lock
    from prereg.registry.plan import recipes_of

    context = workspace.open(study)
    registration = require_registered(context, fix=f"ablate register {context.path}, then import again")
    name, ledger = context.study.study, context.ledger
    if not note.strip() or len(note) > 2000:
        raise EvidenceError(
            "an import without a note" if not note.strip() else f"a note of {len(note):,} characters",
            required="where the runs come from, in words; it goes into ledger and report",
            fix='--note "eight nodes of the cluster, made by ablate run from the same lock"',
        )
    # Of the first registration of the lineage: a run made under an earlier one was not made before the promise.
    registered_at = next(
        entry.at
        for entry in context.entries
        if isinstance(entry, PromiseEntry) and entry.registration in registration.lineage
    )
    at = context.now()
    layout = layout or LONG
    if run_pattern is not None:
        layout = layout.model_copy(update={"run_pattern": run_pattern})
    terms = Terms(registration, registered_at, at, exploratory, tuple(map(_cell, only)), layout)
    left_out: list[str] = []
    if is_tracked(str(source)):
        tracked = read_tracked(str(source), registration.study, layout)
        terms, left_out = replace(terms, tracked=tracked.rows), list(tracked.left_out)
    elif layout.run_pattern is not None and Path(source).is_dir():
        raise EvidenceError(
            "--run-pattern", required="a tracker, or a panel of W&B, as the source", fix=f"tensorboard:{source}"
        )

    def folder_of(arm: str, seed: int) -> RunFolder:
        return RunFolder(context.root.run(name, registration.runs_sha256, arm, seed))

    # The lock of `run`: imports and runs of one study enter its ledger one after another.
    with study_lock(context.root, name):
        pieces = read_runs(Path(source), terms, left_out)
        early = [piece.variant for piece in pieces if piece.variant in registration.study.arms]
        if early and not registration.study.settings_known:
            raise EvidenceError(
                f"a run of {early[0]}, and the ledger has no choice of the pilot yet",
                required="the runs of the pilot, which choose its setting, before it",
                fix="import the runs of the pilot, then those of the arms",
            )
        folders = [folder_of(piece.variant, piece.seed) for piece in pieces]
        # All are compared with what is here before the first is written.
        entries = ledger.entries()
        # Raises for a run that is here with other bytes.
        states = [already_placed(piece, folder, entries) for piece, folder in zip(pieces, folders, strict=True)]
        import_sha256 = sha256_of([piece.seal for piece in pieces])
        recipes = recipes_of(registration)
        imported: list[str] = []
        already_here: list[str] = []
        for piece, folder, (in_ledger, in_folder) in zip(pieces, folders, states, strict=True):
            (already_here if in_ledger and in_folder else imported).append(f"{piece.variant}/{piece.seed}")
            # The entry first: a crash in between leaves an entry without its run, which a second import completes.
            if not in_ledger:
                entry = ImportedEntry(
                    study=name,
                    registration=registration.runs_sha256,
                    at=at,
                    **piece.seal,
                    recipe_sha256=recipes[piece.variant, piece.seed],
                    bound=not exploratory,
                    note=note.strip(),
                    import_sha256=import_sha256,
                    replayed=exploratory and is_replayed(piece.record, registered_at),
                )
                ledger.append(entry)
            if not in_folder:
                put(piece, folder)
        # By folders: runs of the ledger whose files are elsewhere are missing too.
        missing = sum(not folder_of(*cell).record_path.is_file() for cell in registration.study.cells)
        # What was imported may be the last runs of a pilot: then they choose, as if they had been made here.
        freeze_choice(context, registration, lambda _: None)
    return Imported(
        name, tuple(imported), tuple(already_here), tuple(left_out), not exploratory, missing, ledger.head()
    )


def write_manifest(
    study: StudySource,
    source: Path,
    *,
    layout: TableLayout | None = None,
    workspace: Workspace = HERE,
) -> Path:
    """Write a manifest.json next to a file of rows, in which the times of its runs are to be filled in.

    Returns where. Raises `EvidenceError` where the rows are not of planned runs, or a manifest is there.
    """
    from ablate.records.imports import ImportManifest, Made, Terms, planned_rows
    from ablate.records.tables import LONG
    from prereg.registry.disk import create_whole

    context = workspace.open(study)
    registration = require_registered(context, fix=f"ablate register {context.path}, then import again")
    place = source.parent / "manifest.json"
    # Of the rows alone: which runs there are. When they were made nobody can read from them, so the times are left
    # empty.
    rows = planned_rows(source, Terms(registration, "", context.now(), False, (), layout or LONG))
    made = tuple(Made(variant=arm, seed=seed, started_at="", ended_at="") for arm, seed in rows)
    manifest = ImportManifest(registration=registration.sha256, runs=made).model_dump_json(indent=2)
    if not create_whole(place, manifest.encode() + b"\n"):
        raise EvidenceError(f"{place} is there already", required="a folder without one", fix=f"rm {place}")
    return place


def mapping_template(study: StudySource, source: Path, *, workspace: Workspace = HERE) -> str:
    """A mapping for a wide table, as YAML to be checked and completed. Raises `EvidenceError` where it is none."""
    from ablate.records.tables import template

    return template(source, workspace.open(study).study)


def _cell(word: str) -> tuple[str, int]:
    arm, _, seed = word.rpartition("/")
    if not arm or not seed.isdecimal():
        raise EvidenceError(f"--only {word}", required="ARM/SEED", fix="--only layernorm/3")
    return arm, int(seed)
