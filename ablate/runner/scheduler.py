"""The scheduler of one `ablate run`: runs to workers, what they say into the ledger, the dead replaced.

It is the only writer of the ledger; workers write only their run's folder. A killed worker's run resumes from its
checkpoint by another; an error inside a run is final for this call, because trying the same thing again would give the
same error.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import IO, Literal

from pydantic import JsonValue, ValidationError

from ablate.gpt.device import CPU
from ablate.records.gather import unlike
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner.child import end_leftover
from ablate.runner.failures import kind_of, left_values
from ablate.runner.machine import Machine
from ablate.runner.messages import Message
from ablate.runner.neighbours import Neighbours
from ablate.runner.processes import Spec, WorkerProcess, interrupts_heard, start_worker
from ablate.runner.progress import Tally, Watcher
from prereg.errors import RunError
from prereg.registry.canon import sha256_file
from prereg.registry.disk import sweep
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Event
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec, plan, recipe_sha256
from prereg.registry.registration import Registration, folder_of_study
from prereg.study.analysis import breaches

WORKER_DEATHS_ALLOWED = 2
STOP_PATIENCE_S = 60.0


@dataclass
class Scheduler:
    """Everything one call of `run_study` keeps in mind."""

    root: Root
    registration: Registration
    ledger: Ledger
    now: Callable[[], str]
    watcher: Watcher
    tally: Tally
    pending: deque[Spec]
    machine: Machine = field(default_factory=Machine)
    workers: dict[int, WorkerProcess] = field(default_factory=dict)
    events: queue.Queue[tuple[int, Message | None]] = field(default_factory=queue.Queue)
    """Worker, and what it said (none: it is gone)."""
    deaths: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    failures: set[str] = field(default_factory=set)
    stderr: list[str] = field(default_factory=list)
    """Where runs of a user's own trainer that failed left what they said."""
    gave_up: str = ""
    """The error after which nothing more was started."""
    disk_full: bool = False
    noted: set[str] = field(default_factory=set)
    checkpoint_every_s: float | None = None
    spawned: int = 0
    interrupts: int = 0
    stopped: bool = False
    neighbours: Neighbours | None = None
    early_deaths: int = 0
    """Workers in a row that died before their first order."""

    @property
    def stated(self) -> dict[str, JsonValue]:
        """What an entry says of the process that makes runs."""
        return {}

    @property
    def log_stem(self) -> str:
        """How names of workers' logs begin."""
        return "worker"

    @cached_property
    def study_folder(self) -> Path:
        """Where the study's file lies: looked up once, since every look reads the whole ledger."""
        return folder_of_study(self.root, self.registration.study.study)

    @cached_property
    def logged_breaches(self) -> list[dict[str, JsonValue]]:
        """What the ledger says of broken limits."""
        return [entry.stated for entry in self.ledger.entries() if entry.event == "breached"]

    def folder(self, spec: Spec) -> RunFolder:
        return RunFolder(self.root.run(spec.study, spec.registration, spec.variant, spec.seed))

    def log(self, event: Event, body: Mapping[str, JsonValue], *, durable: bool = True) -> None:
        """One ledger entry about this study."""
        self.ledger.append(
            event,
            study=self.registration.study.study,
            registration=self.registration.runs_sha256,
            body=body,
            at=self.now(),
            durable=durable,
        )

    def seal_in_ledger(self, spec: Spec, *, recovered: bool = False, counted: bool = False) -> None:
        """Bind a sealed run to the ledger."""
        folder = self.folder(spec)
        record = folder.read_record()
        assert record is not None and record.metrics_sha256 is not None, spec.run_id
        self.log_breaches(spec, record)
        seal = record.seal(sha256_file(folder.record_path)) | {"recipe_sha256": recipe_sha256(spec)}
        self.log("sealed", seal | {"recovered": True} if recovered else seal)
        self.tally.sealed += not counted

    def log_breaches(self, spec: Spec, record: RunRecord) -> None:
        """Limits that a run broke go on record before its seal: a crash in between repeats them, and loses none."""
        if not isinstance(spec, RunSpec):
            return
        broken = breaches(spec.config.budget, wall_s=record.wall_s, peak_memory_bytes=record.peak_memory_bytes)
        for breach in broken:
            body = {"variant": spec.variant, "seed": spec.seed, **breach.model_dump(mode="json")}
            body |= {"metrics_sha256": record.metrics_sha256}
            if body not in self.logged_breaches:
                self.log("breached", body)
                self.logged_breaches.append(body)
                self.watcher.note(f"{spec.run_id}: {breach.words}")

    def binds(self, spec: Spec) -> bool:
        """Whether a run that is sealed, and that the ledger does not know, is for this process to bind."""
        return True

    def spawn(self) -> None:
        """One more worker."""
        number = self.spawned
        self.spawned += 1
        logs = self.root.runs(self.registration.study.study, self.registration.runs_sha256)
        with (logs / f"{self.log_stem}-{number}.log").open("a", encoding="utf-8") as log:
            own = self.registration.study.trainer == "command"
            lane = next(lane for lane in count() if all(worker.lane != lane for worker in self.workers.values()))
            gpus = self.machine.gpus_of(lane) if own or self.machine.device != CPU else ()
            process = start_worker(own=own, log=log, device=self.machine.device, gpus=gpus)
        self.workers[number] = WorkerProcess(process, number, lane)
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
        """The next run, or rest."""
        worker.spec = None
        spec = None if worker.stopping else self.next_run()
        while spec is not None and self._holds_a_seal(spec):
            # It waited for this run when the call began, and nothing but the run itself may seal its record.
            error = "its folder holds a sealed record, and it had not been started; remove it, and run again"
            self.end(spec, Message(event="ended", run_id=spec.run_id, status="failed", error=error))
            spec = self.next_run()
        worker.idle = spec is None and bool(self.pending) and not worker.stopping
        if worker.idle:
            return  # others are at work on what is left, and may be lost
        if spec is None:
            worker.send({"do": "stop"})
            worker.stopping = True
            return
        worker.spec = spec
        self.tally.running[spec.run_id] = Message(event="progress", run_id=spec.run_id, steps=spec.steps)
        worker.send(
            {
                "do": "run",
                "spec": spec.model_dump(mode="json"),
                "folder": str(self.folder(spec).path),
                "corpora": str(self.root.corpora),
                "root": str(self.root.path),
                "device": self.machine.device,
                "checkpoint_every_s": self.checkpoint_every_s,
                "study_folder": str(self.study_folder),
            }
        )

    def _holds_a_seal(self, spec: Spec) -> bool:
        record = self.folder(spec).readable_record()
        return record is not None and record.status in ("done", "diverged")

    def next_run(self) -> Spec | None:
        """The next run; none where there is none for this process."""
        return self.pending.popleft() if self.pending else None

    def handle(self, number: int, message: Message | None) -> None:
        """One thing a worker said, or its end."""
        worker = self.workers[number]
        if message is None:
            self._bury(worker)
            return
        spec = worker.spec if worker.spec is not None and worker.spec.run_id == message.run_id else None
        if message.event == "ready":
            self.early_deaths, worker.ready = 0, True
            self.assign(worker)
        elif message.event == "begun":
            if spec is not None:
                self.log_start(spec, message)
            if message.waits:
                worker.send({"do": "noted"})
        elif message.event == "note" and message.text not in self.noted:
            self.noted.add(message.text)
            self.watcher.note(message.text)
        elif message.event == "progress" and message.run_id:
            self.tally.hear(message.run_id, message)
        elif message.event == "stopped" and worker.stopping:
            self._stopped(worker, message, spec)
        elif message.event == "ended" and spec is not None:
            self._ended(worker, message, spec)

    def _stopped(self, worker: WorkerProcess, message: Message, spec: Spec | None) -> None:
        self.tally.running.pop(str(message.run_id), None)
        if spec is None:
            return
        changed = self._written_elsewhere(spec)
        worker.spec = None
        self._settle(spec)
        if changed:
            self.end(spec, self._trespassed(spec, message, changed), changed=changed)

    def _ended(self, worker: WorkerProcess, message: Message, spec: Spec) -> None:
        changed = self._written_elsewhere(spec)
        worker.spec = None
        if changed:
            message = self._trespassed(spec, message, changed)
        if message.status == "failed":
            self.end(spec, message, changed=changed)  # first: it may be the last
        self.assign(worker)  # before a seal goes to the disk
        if message.status != "failed":
            self.end(spec, message)

    def log_start(self, spec: Spec, begun: Message) -> None:
        """One start of a run, before its first step: what the folder says of it can be removed, and this cannot."""
        body: dict[str, JsonValue] = {"variant": spec.variant, "seed": spec.seed, "attempt": begun.attempt}
        body["recipe_sha256"] = recipe_sha256(spec)
        if begun.resumed:
            body["resumed_from"] = begun.step
        if begun.left_values is not None:
            body["left_values"] = begun.left_values
        # Every run would wait for the disk. A start that a loss of power takes was one of a run that it ended, too.
        self.log("started", {**body, **self.stated, "made_with": begun.made_with}, durable=False)

    def _neighbours(self) -> Neighbours | None:
        """The folders of all runs, where a user's own trainer makes them and no other process does."""
        if self.registration.study.trainer != "command":
            return None
        return Neighbours({spec.cell: self.folder(spec).path for spec in plan(self.registration)})

    def _written_elsewhere(self, ended: Spec) -> list[str]:
        """What was written in folders of runs that were not at work, while this one was."""
        if self.neighbours is None:
            return []
        working = {worker.spec.cell for worker in self.workers.values() if worker.spec is not None}
        changed = self.neighbours.changed(working | {ended.cell})
        for cell in {(arm, int(seed)) for arm, seed, *_ in (name.split("/") for name in changed)}:
            self.neighbours.settle(cell)  # said once
        return changed

    def _settle(self, spec: Spec) -> None:
        """Nobody makes this run now: its folder is to stay as it is."""
        if self.neighbours is not None:
            self.neighbours.settle(spec.cell)

    def _trespassed(self, spec: Spec, message: Message, changed: Sequence[str]) -> Message:
        """A run that wrote in the folder of another has failed, however it ended."""
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        error = f"while it was made, files were written in the folders of other runs: {', '.join(changed[:3])}{more}"
        if message.error:
            error = f"{message.error}; {error}"
        self.folder(spec).fail(error, self.now())
        return message.model_copy(update={"event": "ended", "status": "failed", "error": error})

    def end(self, spec: Spec, message: Message, *, recovered: bool = False, changed: Sequence[str] = ()) -> None:
        """A run has ended: its seal, or its failure, goes into the ledger. `changed` are files that were written in the
        folders of other runs meanwhile."""
        self.tally.running.pop(spec.run_id, None)
        self.tally.steps_done += spec.steps or message.step
        if message.status == "failed":
            self.failed.append(f"{spec.run_id}: {message.error}")
            self.tally.failed += 1
            if (said := self.folder(spec).path / "stderr.txt").is_file():
                self.stderr.append(str(said.relative_to(self.root.path)))
            error, left = message.error or "unknown", left_values(spec, self.folder(spec))
            body: dict[str, JsonValue] = {"variant": spec.variant, "seed": spec.seed, "error": error}
            body |= {"left_values": left} | ({"wrote_in": list(changed)} if changed else {})
            self.log("failed", body)
            self.give_up_or_go_on(spec, error)
            if message.disk_full and not self.disk_full:
                self.disk_full = True
                self.pending.clear()
                self.watcher.note("the disk is full: nothing more is started")
        else:
            self.seal_in_ledger(spec, recovered=recovered)
        self._settle(spec)
        self.watcher.ended(spec.run_id, message)

    def give_up_or_go_on(self, spec: Spec, error: str) -> None:
        """Stop after two failures of the same kind where no run has been sealed: the rest would fail in the same way.

        After the first, the next run is of the same arm: what two arms leave behind can be compared, and is evidence.
        """
        if self.tally.sealed or self.stopped or self.disk_full:
            return
        kind = kind_of(error, spec)
        if kind in self.failures:
            self.gave_up = error
            self.pending.clear()
            self.watcher.note("two runs failed in the same way, and none has ended well: nothing more is started")
        self.failures.add(kind)
        same_arm = [other for other in self.pending if other.variant == spec.variant]
        self.pending = deque([*same_arm, *(other for other in self.pending if other.variant != spec.variant)])

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has gone. If it was at work, its run goes to another, a bounded number of times."""
        del self.workers[worker.number]
        worker.end()
        if not worker.ready and not worker.stopping:
            self._count_early_death(worker)
        if worker.spec is not None:
            self._settle_dead(worker, worker.spec)
        if self.pending:
            self.spawn()

    def _settle_dead(self, worker: WorkerProcess, spec: Spec) -> None:
        """What becomes of the run whose worker has died."""
        self.tally.running.pop(spec.run_id, None)
        end_leftover(self.folder(spec).path)
        self._settle(spec)
        ended = Message(event="ended", run_id=spec.run_id, status="failed")
        if changed := self._written_elsewhere(spec):
            died = ended.model_copy(update={"error": "its worker died"})
            self.end(spec, self._trespassed(spec, died, changed), changed=changed)
        elif worker.stopping:
            return
        elif (record := self.folder(spec).read_record() if self.folder(spec).is_sealed() else None) is None:
            self._retry(spec, worker.process.returncode)
        elif other := unlike(record, spec):
            error = f"its folder holds a sealed record of another run: {other}"
            self.end(spec, ended.model_copy(update={"error": error}))
        else:
            # It sealed the run and died before it could say so; or somebody put the record there.
            status: Literal["done", "diverged"] = "diverged" if record.status == "diverged" else "done"
            self.end(spec, ended.model_copy(update={"status": status, "step": record.steps}), recovered=True)

    def _count_early_death(self, worker: WorkerProcess) -> None:
        """A worker died before its first order. Another may live, but not without end."""
        self.early_deaths += 1
        exit_status = worker.process.returncode
        logs = self.root.runs(self.registration.study.study, self.registration.runs_sha256)
        if self.early_deaths > WORKER_DEATHS_ALLOWED:
            raise RunError(
                f"{self.early_deaths} workers in a row died before they were ready (the last with exit {exit_status})",
                required="a worker that starts",
                fix=f"what its log says: {logs / f'{self.log_stem}-{worker.number}.log'}",
            )
        self.watcher.note(f"a worker died before it was ready (exit {exit_status}); starting another")

    def _retry(self, spec: Spec, exit_status: int) -> None:
        """A run whose worker died: resumed, or given up."""
        deaths = self.deaths.get(spec.run_id, 0)
        if deaths < WORKER_DEATHS_ALLOWED:
            self.deaths[spec.run_id] = deaths + 1
            self.pending.appendleft(spec)
            self.watcher.note(f"the worker of {spec.run_id} died (exit {exit_status}); resuming the run")
            return
        error = f"its worker died {WORKER_DEATHS_ALLOWED + 1} times, last with exit {exit_status}"
        self.end(spec, Message(event="ended", run_id=spec.run_id, status="failed", error=error))

    def serve(self, slots: int) -> bool:
        """Until nothing is left to do. True when the user interrupted."""
        self.neighbours = self._neighbours()
        for _ in range(min(slots, len(self.pending))):
            self.spawn()
        try:
            with interrupts_heard(self):
                while self.workers and self.interrupts < 2:
                    self.next_event()
                    if self.interrupts and not self.stopped:
                        self._stop_all()
        finally:
            self._dismiss()
            sweep()  # what workers left that were killed
        return self.stopped

    def _stop_all(self) -> None:
        self.stopped = True
        self.watcher.note("stopping: each run saves a checkpoint (again to stop at once)")
        self.pending.clear()
        for worker in self.workers.values():
            worker.stopping = True
            worker.send({"do": "stop"})

    def next_event(self) -> None:
        """Wait a moment for something to happen, and handle it."""
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
