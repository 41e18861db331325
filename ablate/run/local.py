"""Runs side by side on this machine: one worker process a core, each with one thread.

Two runs with one thread each finish sooner than one run with two threads twice, so a study's own
parallelism is used before a run's. The scheduler is the only writer of the ledger; workers write only
their run's folder. A killed worker's run is taken up from its checkpoint by another; an error inside a
run is final for this call, because trying the same thing again would give the same error.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from pydantic import JsonValue, ValidationError

from ablate.gpt.device import CPU, ENVIRONMENT
from ablate.records.gather import sealed_in_ledger
from ablate.records.layout import layout_of
from ablate.records.provenance import code_hash
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.run.child import end_leftover
from ablate.run.messages import Message
from ablate.run.seating import Machine, records_of, seating
from ablate.run.spread import Spread
from ablate.run.watch import Tally, Watcher
from prereg.canon import sha256_bytes, sha256_file
from prereg.command import code_sha256
from prereg.errors import EvidenceError, RunError
from prereg.ledger import Event, Ledger
from prereg.limits import breaches
from prereg.looks import Look
from prereg.plan import CommandSpec, RunSpec, plan
from prereg.registration import Registration, newest_promise
from prereg.root import Root
from prereg.spec import Study

Spec = RunSpec | CommandSpec

ALONE: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # Freed memory stays with the process, and comes in large pages: a step otherwise asks the kernel for the same
    # pages again and again, a tenth of its time. Other C libraries ignore it.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=8589934592"
    ":glibc.malloc.mmap_threshold=8589934592:glibc.malloc.top_pad=268435456",
}
"""Environment of a worker that trains many runs side by side."""
WORKER_DEATHS_ALLOWED = 2
STOP_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Job:
    """What a worker is sent: one run, or the runs of a variant that are trained together."""

    specs: tuple[Spec, ...]
    seats: tuple[int, ...] = ()
    """The seeds of a cohort, with those that have ended; none for a run by itself."""


@dataclass(frozen=True)
class Summary:
    """How a call of `ablate run` ended."""

    planned: int
    sealed: int
    failed: tuple[str, ...]
    interrupted: bool
    head: str

    @property
    def complete(self) -> bool:
        return self.sealed == self.planned


@dataclass
class WorkerProcess:
    """One worker, the job it is on, and the runs of the job that have not ended."""

    process: subprocess.Popen[str]
    number: int
    job: Job | None = None
    open: dict[str, Spec] = field(default_factory=dict)
    stopping: bool = False
    heard: float = field(default_factory=time.monotonic)
    """When it last said something."""

    def send(self, command: dict[str, object]) -> None:
        """One command. A worker that has just died is noticed by its reader, not here."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()

    def end(self, patience_s: float | None = None) -> None:
        """No more commands, which ends an idle worker; one that outlasts the patience is killed."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_worker(*, own: bool, log: IO[str], device: str = CPU) -> subprocess.Popen[str]:
    """A worker process: of a user's own trainer, or of the built-in one for a device."""
    # A user's own trainer keeps its threads to itself; the built-in one trains many runs side by side.
    needed = ALONE if device == CPU else {**ALONE, **ENVIRONMENT}
    return subprocess.Popen(
        [sys.executable, "-m", "ablate.run.command" if own else "ablate.run.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
        env=None if own else {**os.environ, **needed},
    )


@dataclass
class Scheduler:
    """Everything one call of `run_study` keeps in mind."""

    root: Root
    registration: Registration
    ledger: Ledger
    now: Callable[[], str]
    watcher: Watcher
    tally: Tally
    pending: deque[Job]
    machine: Machine = field(default_factory=Machine)
    workers: dict[int, WorkerProcess] = field(default_factory=dict)
    events: queue.Queue[tuple[int, Message | None]] = field(default_factory=queue.Queue)
    spread: Spread = field(default_factory=Spread)
    deaths: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    checkpoint_every_s: float | None = None
    spawned: int = 0
    interrupts: int = 0
    stopped: bool = False

    def folder(self, spec: Spec) -> RunFolder:
        return RunFolder(self.root.run(spec.study, spec.registration, spec.variant, spec.seed))

    def log(self, event: Event, body: Mapping[str, JsonValue]) -> None:
        """One ledger entry about this study."""
        self.ledger.append(
            event,
            study=self.registration.study.study,
            registration=self.registration.sha256,
            body=body,
            at=self.now(),
        )

    def seal_in_ledger(self, spec: Spec, *, recovered: bool = False) -> None:
        """Bind a sealed run to the ledger."""
        folder = self.folder(spec)
        record = folder.read_record()
        assert record is not None and record.metrics_sha256 is not None, spec.run_id
        self.tell_breaches(spec, record)
        self.log(
            "sealed",
            {
                "variant": spec.variant,
                "seed": spec.seed,
                "status": record.status,
                "attempts": record.attempts,
                "metrics_sha256": record.metrics_sha256,
                "outcome_sha256": record.outcome_sha256,
                **({} if record.items_sha256 is None else {"items_sha256": record.items_sha256}),
                "run_sha256": sha256_file(folder.record_path),
                **({"recovered": True} if recovered else {}),
            },
        )
        self.tally.sealed += 1

    def tell_breaches(self, spec: Spec, record: RunRecord) -> None:
        """Limits that a run broke go on record before its seal: a crash in between repeats them, and loses none."""
        if not isinstance(spec, RunSpec):
            return
        broken = breaches(spec.config.budget, wall_s=record.wall_s, peak_memory_bytes=record.peak_memory_bytes)
        for breach in broken:
            body = {"variant": spec.variant, "seed": spec.seed, **breach.model_dump(mode="json")}
            body |= {"metrics_sha256": record.metrics_sha256}
            mine = (e.body for e in self.ledger.entries() if e.event == "breached")
            if body not in mine:
                self.log("breached", body)
                self.watcher.note(f"{spec.run_id}: {breach.words}")

    def spawn(self) -> None:
        """One more worker."""
        number = self.spawned
        self.spawned += 1
        logs = self.root.runs(self.registration.study.study, self.registration.sha256)
        with (logs / f"worker-{number}.log").open("a", encoding="utf-8") as log:
            own = self.registration.study.trainer == "command"
            process = start_worker(own=own, log=log, device=self.machine.device)
        self.workers[number] = WorkerProcess(process, number)
        assert process.stdout is not None
        threading.Thread(target=self._read, args=(number, process.stdout), daemon=True).start()

    def _read(self, number: int, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                try:
                    self.events.put((number, Message.model_validate_json(line)))
                except ValidationError:
                    break
        self.events.put((number, None))

    def assign(self, worker: WorkerProcess) -> None:
        """The next job, or rest."""
        worker.job, worker.open = None, {}
        if not self.pending or worker.stopping:
            worker.send({"do": "stop"})
            worker.stopping = True
            return
        job = worker.job = self.pending.popleft()
        worker.open = {spec.run_id: spec for spec in job.specs}
        for spec in job.specs:
            self.tally.running[spec.run_id] = Message(event="progress", run_id=spec.run_id, steps=spec.steps)
        worker.send(
            {
                **self._command(job),
                "corpora": str(self.root.corpora),
                "root": str(self.root.path),
                "device": self.machine.device,
                "checkpoint_every_s": self.checkpoint_every_s,
                "spread": asdict(self.spread),
                "beside": str(study_folder(self.root, self.registration.study.study)),
            }
        )

    def _command(self, job: Job) -> dict[str, object]:
        first = job.specs[0]
        if not job.seats:
            return {"do": "run", "spec": first.model_dump(mode="json"), "folder": str(self.folder(first).path)}
        return {
            "do": "cohort",
            "specs": [spec.model_dump(mode="json") for spec in job.specs],
            "folders": [str(self.folder(spec).path) for spec in job.specs],
            "seats": list(job.seats),
            "checkpoint": str(self.cohort_checkpoint(first.variant, job.seats)),
        }

    def cohort_checkpoint(self, variant: str, seats: tuple[int, ...]) -> Path:
        """Where the runs of a cohort are taken up again: one file for all, in two generations, beside their folders."""
        name = f"cohort-{variant}-{sha256_bytes(layout_of(seats).encode())[:8]}-checkpoint.safetensors"
        return self.root.runs(self.registration.study.study, self.registration.sha256) / name

    def handle(self, number: int, message: Message | None) -> None:
        """One thing a worker said, or its end."""
        worker = self.workers[number]
        if message is None:
            self._bury(worker)
            return
        worker.heard = time.monotonic()
        if message.event == "ready":
            self.assign(worker)
        elif message.event == "progress" and message.run_id:
            self.tally.hear(message.run_id, message)
        elif message.event == "stopped":
            self.tally.running.pop(str(message.run_id), None)
            worker.open.pop(str(message.run_id), None)
        elif message.event == "ended" and message.run_id in worker.open:
            self._end(worker.open.pop(message.run_id), message)
            if not worker.open:
                self.assign(worker)

    def _end(self, spec: Spec, message: Message) -> None:
        self.tally.running.pop(spec.run_id, None)
        self.tally.steps_done += spec.steps or message.step
        if message.status == "failed":
            self.failed.append(f"{spec.run_id}: {message.error}")
            self.tally.failed += 1
            self.log("failed", {"variant": spec.variant, "seed": spec.seed, "error": message.error or "unknown"})
        else:
            self.seal_in_ledger(spec)
        self.watcher.ended(spec.run_id, message)

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has gone. If it was at work, its runs go to another, a bounded number of times."""
        del self.workers[worker.number]
        worker.end()
        if worker.job is None or not worker.open:
            return
        self._end_overdue(worker)
        for spec in worker.open.values():
            self.tally.running.pop(spec.run_id, None)
            end_leftover(self.folder(spec).path)
        if worker.stopping:
            return
        unfinished = []
        for spec in worker.open.values():
            if self.folder(spec).is_sealed():
                # It sealed the run and died before it could say so.
                self.seal_in_ledger(spec)
            else:
                unfinished.append(spec)
        if unfinished:
            self._again(Job(tuple(unfinished), worker.job.seats), worker.process.returncode)
        if self.pending:
            self.spawn()

    def _end_overdue(self, worker: WorkerProcess) -> None:
        """A run whose own metric outlasted its limit has ended its worker. It would do so again: it has failed."""
        for run_id, spec in list(worker.open.items()):
            said = self.tally.running.get(run_id)
            overdue = None if said is None else said.overdue(time.monotonic() - worker.heard, worker.process.returncode)
            if overdue is None:
                continue
            del worker.open[run_id]
            folder = self.folder(spec)
            record = folder.read_record()
            if record is not None:
                ended = {"status": "failed", "error": overdue, "ended_at": self.now()}
                folder.write_record(record.model_copy(update=ended))
            self._end(spec, Message(event="ended", run_id=run_id, status="failed", error=overdue))

    def _again(self, job: Job, exit_status: int) -> None:
        """Runs whose worker died: taken up again, or given up. A cohort's die together."""
        names = ", ".join(spec.run_id for spec in job.specs)
        if all(self.deaths.get(spec.run_id, 0) < WORKER_DEATHS_ALLOWED for spec in job.specs):
            for spec in job.specs:
                self.deaths[spec.run_id] = self.deaths.get(spec.run_id, 0) + 1
            self.pending.appendleft(job)
            runs = "run" if len(job.specs) == 1 else "runs"
            self.watcher.note(f"the worker of {names} died (exit {exit_status}); taking the {runs} up again")
            return
        error = f"its worker died {WORKER_DEATHS_ALLOWED + 1} times, last with exit {exit_status}"
        for spec in job.specs:
            self._end(spec, Message(event="ended", run_id=spec.run_id, status="failed", error=error))

    def serve(self, slots: int) -> bool:
        """Until nothing is left to do. True when the user interrupted."""
        for _ in range(min(slots, len(self.pending))):
            self.spawn()
        try:
            with self._interrupts_counted():
                while self.workers and self.interrupts < 2:
                    self._next_event()
                    if self.interrupts and not self.stopped:
                        self._stop_all()
        finally:
            self._dismiss()
        return self.stopped

    def _stop_all(self) -> None:
        self.stopped = True
        self.watcher.note("stopping: each run saves where it stands (again to stop at once)")
        self.pending.clear()
        for worker in self.workers.values():
            worker.stopping = True
            worker.send({"do": "stop"})

    @contextmanager
    def _interrupts_counted(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM become a count, so that no ledger append is ever cut in two by an exception."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(_signal: int, _frame: object) -> None:
            self.interrupts += 1

        earlier = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _next_event(self) -> None:
        try:
            number, message = self.events.get(timeout=0.25)
        except queue.Empty:
            self.watcher.tick(self.tally)
            return
        if number in self.workers:
            self.handle(number, message)
        self.watcher.tick(self.tally)

    def _dismiss(self) -> None:
        for worker in self.workers.values():
            worker.end(STOP_PATIENCE_S)


def study_folder(root: Root, study: str) -> Path:
    """Where a registered study's file lies, and with it the code of its own metrics."""
    entry = newest_promise(Ledger(root.ledger), study)
    assert entry is not None, study
    return (root.path / str(entry.body["file"])).parent


def run_study(
    root: Root,
    registration: Registration,
    *,
    slots: int,
    now: Callable[[], str],
    watcher: Watcher,
    look: Look | None = None,
    machine: Machine,
    checkpoint_every_s: float | None = None,
    spread: Spread | None = None,
) -> Summary:
    """Carry out what is left of a registration's plan, up to a look if there is one. The caller holds the lock."""
    ledger = Ledger(root.ledger)
    specs = plan(registration)
    whole = len(specs)
    if look is not None:
        specs = tuple(spec for spec in specs if spec.seed in registration.study.seeds[: look.n_seeds])
    folder = root.runs(registration.study.study, registration.sha256)
    folder.mkdir(parents=True, exist_ok=True)
    tally = Tally(
        planned=len(specs),
        steps_planned=sum(spec.steps for spec in specs),
        asks=registration.study.measure.harness is not None,
    )
    scheduler = Scheduler(
        root,
        registration,
        ledger,
        now,
        watcher,
        tally,
        deque(),
        machine,
        spread=spread or Spread(),
        checkpoint_every_s=checkpoint_every_s,
    )
    waiting: list[Spec] = []
    known = sealed_in_ledger(ledger, registration.sha256)
    _require_started_here(
        ledger, registration, [spec for spec in specs if _unknown(scheduler.folder(spec), spec, known)]
    )
    for spec in specs:
        if _stands(scheduler.folder(spec)):
            record = scheduler.folder(spec).read_record()
            assert record is not None
            if (spec.variant, spec.seed, record.metrics_sha256) in known:
                tally.sealed += 1
            else:
                scheduler.seal_in_ledger(spec, recovered=True)
            tally.steps_done += spec.steps or record.steps
        else:
            waiting.append(spec)
    tally.steps_before = tally.steps_done
    scheduler.pending.extend(_jobs(root, registration, machine, waiting))
    interrupted = False
    if waiting:
        again = sum(any(cell[:2] == (s.variant, s.seed) for cell in known) for s in waiting)
        scheduler.log(
            "started",
            {
                "runs": len(waiting),
                "of": len(specs),
                "slots": slots,
                "code": code_hash() if registration.scripts is None else code_sha256(registration.scripts),
                **({"trained_again": again} if again else {}),
            },
        )
        with watcher.watching(tally):
            interrupted = scheduler.serve(slots)
        if tally.sealed == len(specs):
            # What a cohort would have been taken up from, where a crash kept the last of its runs from clearing it.
            for left in folder.glob("cohort-*-checkpoint*"):
                left.unlink()
    if tally.sealed == whole and not _finished(ledger, registration.sha256):
        scheduler.log("finished", {"runs": whole})
    return Summary(len(specs), tally.sealed, tuple(scheduler.failed), interrupted, ledger.head())


def _jobs(root: Root, registration: Registration, machine: Machine, waiting: list[Spec]) -> Iterator[Job]:
    """The runs that wait, those of a cohort together, in the order of the plan."""
    study = registration.study
    if study.trainer == "command":
        yield from (Job((spec,)) for spec in waiting)
        return
    seats = seating(study, machine, records_of(root, registration))
    together: dict[tuple[str, tuple[int, ...]], list[Spec]] = {}
    for spec in waiting:
        together.setdefault((spec.variant, seats[spec.seed]), []).append(spec)
    for (_, seeds), specs in together.items():
        yield Job(tuple(specs), seeds if len(seeds) > 1 else ())


def _unknown(folder: RunFolder, spec: Spec, known: Collection[tuple[str, int, str]]) -> bool:
    """Whether a run is sealed on disk and no entry says so."""
    record = folder.read_record() if _stands(folder) else None
    return record is not None and (spec.variant, spec.seed, record.metrics_sha256) not in known


def _require_started_here(ledger: Ledger, registration: Registration, unknown: list[Spec]) -> None:
    """A crash leaves sealed runs without an entry only after the ledger said that runs were started."""
    mine = [entry for entry in ledger.entries() if entry.registration == registration.sha256]
    if unknown and not any(entry.event == "started" for entry in mine):
        first = unknown[0]
        raise RunError(
            f"{len(unknown)} runs lie sealed on disk, the first {first.variant} seed {first.seed}, "
            "and the ledger started none",
            required="runs that were started here, or imported on record",
            fix='move them elsewhere, then: ablate import STUDY FOLDER --note "where they come from"',
        )


@contextmanager
def study_lock(root: Root, study: str) -> Iterator[None]:
    """Hold a study for one `ablate run`. The kernel lets go of it however the process ends."""
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
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            stream.seek(0)
            holder = stream.read().strip() or "unknown"
            raise RunError(
                f"'{study}' is being run by another process (pid {holder})",
                required="one run of a study at a time",
                fix=f"wait for it, or: ablate status {root.study(study)}",
            ) from error
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


def default_slots() -> int:
    """As many runs side by side as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def slots_of(study: Study, machine: Machine, spread: Spread | None = None) -> int:
    """Workers side by side unless told: as many as there are cores for all the devices of a run; one of a user's own
    trainer or on an accelerator, which may want the whole of it."""
    devices = spread.devices if spread is not None else 1
    alone = study.trainer != "gpt" or machine.device != CPU
    return 1 if alone else max(1, default_slots() // devices)


def _stands(folder: RunFolder) -> bool:
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


def _finished(ledger: Ledger, registration: str) -> bool:
    return any(entry.event == "finished" and entry.registration == registration for entry in ledger.entries())
