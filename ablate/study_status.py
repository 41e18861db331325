"""`ablate status`: the state of each run of a study, progress only; and what `run --dry-run` says of runs and costs.

A reader of this cannot tell which arm is ahead, by design.

Only `run.json` files, checkpoints' dates and live rows of the training loss are read, and of the loss only
whether it falls. A thousand runs must be read in well under a second, so nothing here opens a Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ablate.runner.options import RunOptions
from ablate.runner.slurm import Job, newest_job, queue
from ablate.workspace import HERE, StudyContext, StudySource, Workspace
from prereg.frozen import FrozenModel
from prereg.registry.disk import is_locked

if TYPE_CHECKING:
    from ablate.records.run_record import RunRecord
    from prereg.registry.plan import CommandSpec, RunSpec


class RunHealth(FrozenModel):
    """One run."""

    variant: str
    """The arm."""
    seed: int
    """The seed."""
    state: Literal["waiting", "queued", "running", "stopped", "done", "diverged", "failed"]
    """`queued`: its start is on record, and it has not begun; `stopped`: begun, not ended, and no process makes it."""
    step: int
    """Steps recorded."""
    steps: int
    """Steps planned."""
    falling: bool | None = None
    """Whether the training loss is below where it began."""
    attempts: int = 0
    """Times it was started."""
    error: str | None = None
    """Of a failed run."""
    breaches: tuple[str, ...] = ()
    """Limits of its budget that it has broken, as far as its record knows: of a run at work, up to a checkpoint."""


class StudyHealth(FrozenModel):
    """One study."""

    study: str
    """Its id."""
    title: str
    """Its title."""
    registered: str | None = None
    """The registration, or none."""
    runs_of: str | None = None
    """The registration in whose folder the runs lie: an earlier one where amendments have kept them."""
    unchanged: bool = True
    """Whether the file still means what was registered."""
    active: bool = False
    """Whether a process is at work on it now."""
    job: Job | None = None
    """What was last submitted to Slurm."""
    queued: dict[str, int] = {}
    """Tasks of it by state, where Slurm knows the job."""
    decided: str | None = None
    """The verdict in the ledger, if there is one; of a study that carries out a proposal, how that ended."""
    with_deviations: bool = False
    """Whether it was given with deviations from what was registered."""
    runs: tuple[RunHealth, ...]
    """Every planned run."""
    next_look: str | None = None
    """The first look not taken yet; none for a fixed number of seeds, and after the look that ended the study."""
    peeked: int = 0
    """Looks at unfinished outcomes (`ablate status --results`) that the ledger holds."""
    overruled: bool = False
    """Whether an early look was recorded after the decision, so that by the registered rules there is no verdict."""

    def count(self, state: str) -> int:
        """Runs in a state."""
        return sum(run.state == state for run in self.runs)

    @property
    def ended(self) -> bool:
        """Whether all runs are sealed, or those that are not have failed and no process is at work."""
        # A failed run is final for a call; while one goes on it may be made again.
        left = [run.state for run in self.runs if run.state not in ("done", "diverged")]
        return not left or (set(left) == {"failed"} and not self.active)


def status(study: StudySource, *, workspace: Workspace = HERE) -> StudyHealth:
    """How far a study has come, run by run: progress alone, never a result. Raises `StudyError`.

    >>> ablate.status("studies/own.yaml").count("done")
    6
    """
    from prereg.campaign.record import end_of, proposal_run_as
    from prereg.registry.history import differing_fields
    from prereg.registry.ledger_entry import DecidedEntry
    from prereg.registry.looks import next_look, recorded_afterwards, taken_looks
    from prereg.registry.plan import plan
    from prereg.registry.run_order import cells_in_order

    context = workspace.open(study)
    entries = context.entries  # a damaged ledger is an error here, not an unregistered study
    registration = context.load_registration()
    if registration is None:
        current = context.study
        waiting = tuple(_waiting(arm, seed, _steps(context, arm)) for arm, seed in cells_in_order(current))
        return StudyHealth(study=current.study, title=current.title, runs=waiting)
    registered = registration.study  # as registered: the file may say something else by now
    folder = context.root.runs(registered.study, registration.runs_sha256)
    # A run that has no folder has not begun: of a thousand planned runs only those with one are opened.
    begun = _begun_runs(folder, registered.trained)
    runs = [
        _health(folder, spec) if (spec.variant, str(spec.seed)) in begun else _waiting(*spec.cell, spec.steps)
        for spec in plan(registration)
    ]
    if not registered.settings_known:  # runs whose setting the pilot is still to choose
        runs += [
            _waiting(arm, seed, _steps(context, arm)) for arm, seed in registration.cells if arm in context.study.arms
        ]
    decision = next(
        (
            entry
            for entry in reversed(entries)
            if isinstance(entry, DecidedEntry) and entry.registration == registration.sha256
        ),
        None,
    )
    every = context.ledger.entries()
    proposal = proposal_run_as(every, registered.study)
    ended = None if proposal is None else end_of(every, proposal)
    look = next_look(registered, taken_looks(entries, registration.lineage))
    job = newest_job(folder)
    return StudyHealth(
        study=registered.study,
        title=registration.worded.title,
        registered=registration.sha256,
        runs_of=registration.runs_sha256,
        unchanged=not differing_fields(registered, context.study),
        active=is_locked(folder.parent / ".lock") or any(run.state == "running" for run in runs),
        job=job,
        queued=queue(job),  # asks squeue, which may take its time
        decided=ended if decision is None else decision.verdict or decision.status,
        with_deviations=decision is not None and decision.status == "decided_with_deviations",
        overruled=decision is not None and any(look.index > decision.index for look in recorded_afterwards(entries)),
        runs=tuple(runs),
        next_look=None if look is None else look.words,
        peeked=sum(entry.event == "peeked" for entry in entries),
    )


class RunCosts(FrozenModel):
    """What a call of `ablate run` would make, and about what it costs."""

    study: str
    """The study's id."""
    registered: bool
    """Whether it is registered already; the call registers it otherwise."""
    runs: tuple[str, ...]
    """ARM/SEED of the runs that it would make."""
    slots: int
    """Runs side by side."""
    seconds_per_run: float | None
    """Mean of a run; none where nothing says."""
    timed: str
    """What says so."""
    seconds: float | None
    """In all, with these slots."""
    bytes_per_run: int | None
    """Mean of what a sealed run of this study takes on disk; none without one."""
    free_bytes: int
    """Room on that disk."""


def read_costs(context: StudyContext, options: RunOptions) -> RunCosts:
    """What `ablate run` would make now, from the records that are here. Raises `StudyError` as `run` would.

    >>> read_costs(HERE.open("studies/own.yaml"), RunOptions()).runs  # every run is sealed
    ()
    """
    import shutil

    from ablate.runner.local import slots_of
    from ablate.runner.machine import choose_machine
    from ablate.running import require_one_at_a_time, runs_left
    from prereg.registry.plan import planned_runs
    from prereg.study.timed import timed_promises

    registration = context.load_registration()
    study = context.study if registration is None else registration.study
    require_one_at_a_time(timed_promises(study) if registration is None else registration.timed, options, context.root)
    left, records = planned_runs(study, options.only, registration=registration), dict[str, "RunRecord"]()
    if registration is not None:
        left, records = runs_left(context, registration, left)
    slots = options.slots or slots_of(study, choose_machine(study, records.values(), options), records.values())
    walls = [record.wall_s for record in records.values() if record.wall_s]
    # Measured where a run was sealed here, assumed where none was; the label says which.
    each = sum(walls) / len(walls) if walls else study.assume.seconds_per_run
    timed = f"mean of {len(walls)} sealed runs" if walls else "assume.seconds_per_run" if each else "unknown"
    # By file sizes and not by the records: weights and tables are most of it.
    sizes = [
        _size(context.root.run(study.study, record.registration, record.variant, record.seed))
        for record in records.values()
    ]
    return RunCosts(
        study=study.study,
        registered=registration is not None,
        runs=left,
        slots=slots,
        seconds_per_run=each,
        timed=timed,
        # Rounds of `slots` runs, the last one perhaps not full.
        seconds=None if each is None else each * -(-len(left) // slots),
        bytes_per_run=sum(sizes) // len(sizes) if sizes else None,
        free_bytes=shutil.disk_usage(context.root.path).free,
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _steps(context: StudyContext, arm: str) -> int:
    from prereg.study.training import Training

    config = context.study.trained[arm].config
    return config.budget.steps if isinstance(config, Training) else 0


def _waiting(arm: str, seed: int, steps: int) -> RunHealth:
    return RunHealth(variant=arm, seed=seed, state="waiting", step=0, steps=steps)


def _begun_runs(runs: Path, arms: Iterable[str]) -> set[tuple[str, str]]:
    """Arm and seed of every run that was begun, by one look at each arm's folder."""
    begun = set()
    for arm in arms:
        with suppress(OSError):
            begun |= {(arm, path.name) for path in (runs / arm).iterdir()}
    return begun


def _health(runs: Path, spec: RunSpec | CommandSpec) -> RunHealth:
    from ablate.records.store import RunFolder

    folder = RunFolder(runs / spec.variant / str(spec.seed))
    record = folder.read_record()
    if record is None:  # the folder is there and nothing has begun in it
        return _waiting(*spec.cell, spec.steps)
    state: dict[str, object] = {
        "state": record.status,
        "step": record.steps,
        "attempts": record.attempts,
        "error": record.error,
        "breaches": _breaches(record, spec),
    }
    # "running" is what the run last wrote; the kernel knows whether its process still holds the lock.
    if record.status == "running":
        from ablate.runner.glance import Glance

        glance = Glance(folder.path / "work" / spec.metrics.file, spec.metrics)
        glance.look()
        state |= {
            "state": "running" if is_locked(folder.path / ".lock") else "stopped",
            "step": max(record.steps, glance.step),
            "error": None,
            "falling": glance.falling,
        }
    return _waiting(*spec.cell, spec.steps).model_copy(update=state)


def _breaches(record: RunRecord, spec: RunSpec | CommandSpec) -> tuple[str, ...]:
    from prereg.registry.plan import RunSpec
    from prereg.study.training import breach_of

    breach = breach_of(spec.config.budget, wall_s=record.wall_s) if isinstance(spec, RunSpec) else None
    return () if breach is None else (breach.words,)
