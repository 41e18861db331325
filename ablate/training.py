"""`ablate train`: one planned run, for a caller such as a job of a cluster or a person; training itself: `gpt/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ablate.checking import check
from ablate.pinning import require_pinned
from ablate.workspace import HERE, StudyContext, StudySource, Workspace, require_registered
from prereg.errors import RunError

if TYPE_CHECKING:
    from ablate.records.store import RunFolder
    from ablate.runner.messages import Message
    from ablate.runner.process import Spec
    from prereg.registry.registration import Registration


@dataclass(frozen=True)
class Trained:
    """How a call of `train` ended."""

    run: str
    """ARM/SEED."""

    status: Literal["done", "diverged", "failed", "stopped"]
    """Stopped: by a signal; the next call goes on where the trainer can be resumed."""

    step: int
    """Its last step on record."""

    attempts: int
    """Which start of the run it was, from 1."""

    error: str | None = None
    """Of a failed run."""

    divergence: str | None = None
    """Of a diverged run: the value, its step, and the limit that it exceeded."""

    made_before: bool = False
    """Whether the run was sealed already, and nothing was done."""


def train(
    study: StudySource,
    run: str,
    *,
    workspace: Workspace = HERE,
    device: str = "auto",
    checkpoint_every_s: float | None = None,
    on_message: Callable[[Message], None] = lambda _: None,
) -> Trained:
    """Make one planned run of a registered study, ARM/SEED, in its folder; resume it if it can be.

    Nothing is written but the run's own folder, and no ledger: `ablate run` seals what it finds. For the main thread of
    a process, whose SIGTERM and SIGINT stop the run. Raises `StudyError` where the study is not registered, or is no
    longer what was registered, where it has no such run, and where another process makes it.

    >>> made = ablate.train("studies/own.yaml", "fast/1")
    >>> made.status, made.made_before
    ('done', True)
    """
    from ablate.records.store import RunFolder
    from ablate.runner.child import adopt_orphans
    from ablate.runner.listening import Signals
    from ablate.runner.machine import choose_machine, records_of
    from ablate.runner.options import RunOptions
    from ablate.runner.process import Place, held, make_run, name_holder

    context = check(study, workspace)
    registration = require_registered(context)
    spec = _planned(context, registration, run)
    require_pinned(context, registration)
    # The device of the runs that are sealed: pairs across two kinds are not admissible.
    records = records_of(context.root, registration)
    machine = choose_machine(context.study, records.values(), RunOptions(device=device))
    folder = RunFolder(context.root.run(spec.study, spec.registration, spec.variant, spec.seed))
    # Looked at without the lock, so that a sealed run is no wait; and again with it, as another process may have
    # sealed it.
    if (sealed := _made_before(run, folder)) is not None:
        return sealed
    _require_turn(context, registration, spec)
    with held(folder) as lock, name_holder(lock):
        if (sealed := _made_before(run, folder)) is not None:
            return sealed  # by a process that held it a moment ago
        place = Place(context.root.path.resolve(), machine.device, checkpoint_every_s)
        adopt_orphans()
        with Signals().heard() as control:
            ended = make_run(spec, folder, place, control, on_message)
        record = folder.readable_record()
        if record is None and ended.disk_full:
            raise RunError(
                ended.error or "the disk is full",
                required="a disk with room for the record of a run, before the run begins",
                fix=f"free space, then: ablate train {context.path} {run}",
            )
    attempts = 0 if record is None else record.attempts
    return Trained(run, ended.status or "stopped", ended.step, attempts, ended.error, ended.divergence or None)


def _require_turn(context: StudyContext, registration: Registration, spec: Spec) -> None:
    """Refuse a run of a timed promise before those that precede it in the registered order have ended."""
    from ablate.records.store import RunFolder
    from prereg.registry.plan import plan

    for earlier in plan(registration) if registration.timed else ():
        if earlier.cell == spec.cell:
            return
        folder = context.root.run(earlier.study, earlier.registration, *earlier.cell)
        if _made_before("", RunFolder(folder)) is None:
            name = f"{earlier.variant}/{earlier.seed}"
            raise RunError(
                f"{spec.variant}/{spec.seed}, and {name} comes before it and has not ended; {registration.timed[0]}",
                required="one run at a time, in the registered order",
                fix=f"ablate train {context.path} {name}",
            )


def _made_before(run: str, folder: RunFolder) -> Trained | None:
    record = folder.read_record()
    if record is None or record.status not in ("done", "diverged"):
        return None
    divergence = None if record.divergence is None else record.divergence.words
    return Trained(run, record.status, record.steps, record.attempts, divergence=divergence, made_before=True)


def _planned(context: StudyContext, registration: Registration, run: str) -> Spec:
    """The planned run of a name. Raises `RunError` for another, and for one whose setting is still to be chosen."""
    from prereg.registry.plan import plan, planned_runs

    try:
        planned_runs(registration.study, (run,), registration=registration)
    except RunError as error:
        raise RunError(run, required="ARM/SEED of a planned run", fix=error.fix) from None
    spec = next((spec for spec in plan(registration) if f"{spec.variant}/{spec.seed}" == run), None)
    if spec is None:
        raise RunError(
            f"{run}, and the pilot has not chosen its setting yet",
            required=f"the {sum(registration.study.pilot_runs.values())} runs of the pilot first",
            fix=f"ablate run {context.path}",
        )
    return spec
