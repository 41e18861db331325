"""Runs side by side on this machine: one worker process a core, each with one thread.

Two runs with one thread each finish sooner than one run with two threads twice, so a study's own
parallelism is used before a run's. This module says what is left to do and when a study is finished; how it is
done is the scheduler's.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ablate.gpt.device import CPU
from ablate.records.gather import Seal, sealed_in_ledger, unlike
from ablate.records.provenance import code_hash
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner.claims import Claims
from ablate.runner.machine import Machine
from ablate.runner.options import RunOptions
from ablate.runner.part import PartScheduler
from ablate.runner.processes import Spec
from ablate.runner.progress import Tally, Watcher
from ablate.runner.scheduler import Scheduler
from prereg.errors import EvidenceError, RunError
from prereg.registry.disk import NO_LOCKS, flock
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import SEALS
from prereg.registry.looks import Look
from prereg.registry.paths import Root
from prereg.registry.plan import cell_of, plan, planned_runs
from prereg.registry.registration import Registration
from prereg.study.command import code_sha256
from prereg.study.spec import Study
from prereg.text import counted


@dataclass(frozen=True)
class Summary:
    """How a call of `ablate run` ended."""

    planned: int
    """Runs of the plan, or of those that were chosen."""
    sealed: int
    failed: tuple[str, ...]
    interrupted: bool
    head: str
    gave_up: str = ""
    """The error after which nothing more was started: two runs had failed in the same way, and none had ended well."""
    disk_full: bool = False
    """Whether that was because the disk has no room."""
    stderr: tuple[str, ...] = ()
    """What failed runs of a user's own trainer said, by path."""

    whole: bool = True
    """Whether no run of the plan was left out by choice."""

    @property
    def complete(self) -> bool:
        return self.sealed == self.planned


def run_study(
    root: Root,
    registration: Registration,
    options: RunOptions,
    machine: Machine,
    *,
    now: Callable[[], str],
    watcher: Watcher,
    look: Look | None = None,
) -> Summary:
    """Carry out what is left of a registration's plan, up to a look if there is one. The caller holds the lock."""
    runs = root.runs(registration.study.study, registration.runs_sha256)
    with Claims(runs, options.part or "", options.lost_after_s) as claims:
        if not options.part:
            claims.require_alone(watcher.note)
            claims.collect(plan(registration))
            Ledger(root.ledger).settle(close=True)
            return _run(root, registration, options, machine, now=now, watcher=watcher, look=look)
        claims.require_parts_only()
        Ledger(root.ledger).share()
        summary = _run(root, registration, options, machine, now=now, watcher=watcher, look=look, claims=claims)
        last = claims.leave()
        Ledger(root.ledger).settle(close=last)
        if last and summary.complete and summary.whole:
            claims.forget()
        return summary


def _run(
    root: Root,
    registration: Registration,
    options: RunOptions,
    machine: Machine,
    *,
    now: Callable[[], str],
    watcher: Watcher,
    look: Look | None,
    claims: Claims | None = None,
) -> Summary:
    ledger = Ledger(root.ledger)
    specs = plan(registration)
    whole = len(registration.study.cells)
    wanted = planned_runs(registration.study, options.only)
    specs = tuple(spec for spec in specs if f"{spec.variant}/{spec.seed}" in wanted)
    if look is not None:
        specs = tuple(spec for spec in specs if spec.seed in registration.study.seeds[: look.n_seeds])
    if claims is not None:
        first = claims.first_of(len(specs))
        specs = (*specs[first:], *specs[:first])
    tally = Tally(
        planned=len(specs),
        steps_planned=sum(spec.steps for spec in specs),
        has_tasks=registration.study.measure.harness is not None,
    )
    shared = (root, registration, ledger, now, watcher, tally, deque[Spec](), machine)
    scheduler = (
        Scheduler(*shared) if claims is None else PartScheduler(*shared, claims=claims, began=len(ledger.entries()))
    )
    scheduler.checkpoint_every_s = options.checkpoint_every_s
    slots = options.slots or slots_of(registration.study, machine)
    known = sealed_in_ledger(ledger, registration.runs_sha256)
    waiting = _waiting(scheduler, specs, known)
    tally.steps_before, tally.ended_before = tally.steps_done, tally.sealed + tally.failed
    scheduler.pending.extend(waiting)
    interrupted = False
    decided = [e for e in ledger.entries() if e.event == "decided" and e.registration in registration.lineage]
    if waiting and decided:
        watcher.note(
            f"decided on {decided[0].at}: a run that is trained now gives no verdict, unless to the outcome it had then"
        )
    if waiting:
        again = sum(any(cell[:2] == s.cell for cell in known) for s in waiting)
        scheduler.log(
            "started",
            {
                "runs": len(waiting),
                "of": len(specs),
                "slots": slots,
                **scheduler.stated,
                "code": code_hash() if registration.scripts is None else code_sha256(registration.files),
                **({"trained_again": again} if again else {}),
            },
        )
        with watcher.watching(tally):
            interrupted = scheduler.serve(slots)
    # Where nothing was left to do, this entry repairs what a crash left in the ledger, and says so.
    mine = [entry for entry in ledger.entries() if entry.registration in registration.lineage]
    unsaid = all(entry.event != "finished" for entry in mine) or ledger.unfinished()
    bound = tally.sealed == whole and unsaid and _all_bound(scheduler, specs)
    if bound and (claims is None or claims.first("finished")):
        scheduler.log("finished", {"runs": whole})
    return Summary(
        len(specs),
        tally.sealed,
        tuple(scheduler.failed),
        interrupted,
        ledger.head(),
        scheduler.gave_up,
        scheduler.disk_full,
        tuple(scheduler.stderr),
        whole=not options.only,
    )


def _waiting(scheduler: Scheduler, specs: Sequence[Spec], known: Collection[Seal]) -> list[Spec]:
    """The runs left to do. Sealed ones are counted, and sealed in the ledger where a crash prevented it."""
    unknown = [spec for spec in specs if _unknown(scheduler.folder(spec), spec, known)]
    for spec in unknown:
        _require_of(spec, scheduler.folder(spec))
    if foreign := foreign_seals(scheduler, unknown):
        first = foreign[0]
        raise RunError(
            f"{counted(len(foreign), 'run')} {'lies' if len(foreign) == 1 else 'lie'} sealed on disk, the first "
            f"{first.variant} seed {first.seed}, and the ledger has no start from which "
            f"{'it' if len(foreign) == 1 else 'they'} can have come",
            required="runs that were started here, or imported on record",
            fix='move them elsewhere, then: ablate import STUDY FOLDER --note "where they come from"',
        )
    waiting: list[Spec] = []
    for spec in specs:
        folder = scheduler.folder(spec)
        if not _is_sealed(folder):
            waiting.append(spec)
            continue
        record = folder.read_record()
        assert record is not None
        if (*spec.cell, record.metrics_sha256) in known or not scheduler.binds(spec):
            scheduler.tally.sealed += 1
        else:
            scheduler.seal_in_ledger(spec, recovered=True)
        scheduler.tally.steps_done += spec.steps or record.steps
    return waiting


def _all_bound(scheduler: Scheduler, specs: Sequence[Spec]) -> bool:
    """Whether the ledger has the seal of every run. Another part may be about to write one, or have died before it."""
    known = {seal[:2] for seal in sealed_in_ledger(scheduler.ledger, scheduler.registration.runs_sha256)}
    missing = [spec for spec in specs if spec.cell not in known]
    for spec in [spec for spec in missing if scheduler.binds(spec)]:
        _require_of(spec, scheduler.folder(spec))
        scheduler.seal_in_ledger(spec, recovered=True, counted=True)
        missing.remove(spec)
    return not missing


def _unknown(folder: RunFolder, spec: Spec, known: Collection[Seal]) -> bool:
    """Whether a run is sealed on disk and no entry says so."""
    record = folder.read_record() if _is_sealed(folder) else None
    return record is not None and (*spec.cell, record.metrics_sha256) not in known


def foreign_seals(scheduler: Scheduler, unknown: Sequence[Spec]) -> list[Spec]:
    """The sealed runs without an entry that no crash can have left: the last that the ledger says of such a run is the
    start that its record counts."""
    last = {
        cell_of(entry): entry
        for entry in scheduler.ledger.entries()
        if entry.registration in scheduler.registration.lineage and entry.event in ("started", "failed", *SEALS)
    }
    found = []
    for spec in unknown:
        record, entry = scheduler.folder(spec).read_record(), last.get(spec.cell)
        assert record is not None, spec.run_id
        started = entry is not None and entry.event == "started" and entry.body.get("attempt") == record.attempts
        # Another part may have sealed it since the ledger was read.
        sealed = entry is not None and entry.body.get("metrics_sha256") == record.metrics_sha256
        if not started and not sealed:
            found.append(spec)
    return found


def _require_of(spec: Spec, folder: RunFolder) -> None:
    """A record that no entry knows is sealed only where it is of the run whose folder it lies in."""
    record = folder.read_record()
    other = "" if record is None else unlike(record, spec)
    if other:
        raise EvidenceError(
            f"{folder.path} holds a sealed record of another run: {other}",
            required=f"a record of {spec.variant} seed {spec.seed}",
            fix=f"move it elsewhere, then: ablate run {spec.study}",
        )


def default_slots() -> int:
    """As many runs side by side as this process may use cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Slurm need not bind a job to the cores that it was given.
    given = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE") or ""
    return min(cores, int(given)) if given.isdecimal() and int(given) else cores


def slots_of(study: Study, machine: Machine) -> int:
    """Workers side by side by default: one per core; of a user's own trainer or on an accelerator as many as there are
    GPUs, or one, which may want the whole machine."""
    return machine.gpu_slots if study.trainer != "gpt" or machine.device != CPU else default_slots()


def _is_sealed(folder: RunFolder) -> bool:
    """Whether a run is sealed; a seal that does not hold is never trained over in silence."""
    record: RunRecord | None = folder.read_record()
    if record is None or record.status in ("running", "failed"):
        return False
    faults = folder.faults(record)
    if faults:
        raise EvidenceError(
            f"{faults[0]}",
            required="the record that was sealed",
            fix=f"restore it, or rm -r {folder.path} to train it again (the ledger keeps both)",
        )
    return True


@contextmanager
def study_lock(root: Root, study: str, *, part: str | None = None) -> Iterator[None]:
    """Hold a study for one `ablate run`, or share it with other parts. The kernel lets go of it however that ends."""
    folder = root.path / "data" / "runs" / study
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{folder} cannot be written: {error.strerror}",
            required="a writable data/runs folder",
            fix=f"ls -ld {root.path / 'data'}   (or use --root)",
        ) from error
    with stream:
        try:
            flock(stream, shared=part is not None, wait=False)
        except OSError as error:
            if error.errno in NO_LOCKS:
                yield  # the presence of another is noticed by its file
                return
            stream.seek(0)
            holder = stream.read().strip() or "unknown"
            raise RunError(
                f"'{study}' is being run by another process ({holder})",
                required="one run of a study at a time, or parts of it alone (--part I/N)",
                fix=f"wait for it, or: ablate status {root.study(study)}",
            ) from error
        stream.truncate(0)
        own = f"pid {os.getpid()} on {socket.gethostname()}"
        stream.write(f"{own}, part {part}\n" if part else f"{own}\n")
        stream.flush()
        yield
