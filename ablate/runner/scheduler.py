"""Scheduler of one `ablate run`: deals runs to processes, resumes killed ones (`retry`), logs how each ended.

It is the only writer of the ledger; a run's process writes only its run's folder. The run of a killed process resumes
in another; an error inside a run is final for this call: trying the same thing again would give the same error.
"""

from __future__ import annotations

import select
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, Protocol

from ablate.gpt.device import CPU
from ablate.records.outputs import RESUMABLE
from ablate.records.run_record import RunRecord
from ablate.records.seals import unlike
from ablate.records.store import RunFolder
from ablate.runner.child import end_leftover
from ablate.runner.failures import failure_kind
from ablate.runner.logbook import ENDED, Logbook
from ablate.runner.machine import Machine
from ablate.runner.messages import Message
from ablate.runner.pool import Maker, Pool
from ablate.runner.process import BusyError, Spec, fail, held
from ablate.runner.slurm import Job
from prereg.errors import RunError
from prereg.registry.disk import NO_ROOM, sweep
from prereg.registry.plan import Cell, plan

DEATHS_ALLOWED = 2
"""How often a run is resumed whose process was killed, and how often the server of runs is started again."""
BUSY_PATIENCE_S = 10.0
"""How long the last runs may be held by others: a process whose scheduler was killed takes a moment to end."""
_LOOK_EVERY_S = 0.25
Stamp = tuple[int, int, int]
"""Inode, size and time of last change of a file: its content is not hashed, since there may be a thousand of them."""


class Interruptible(Protocol):
    """What counts how often it was interrupted."""

    interrupts: int


@contextmanager
def interrupts_heard(heard: Interruptible) -> Iterator[None]:
    """Ctrl-C and SIGTERM become a count, so that no ledger append is ever cut in two by an exception."""
    if threading.current_thread() is not threading.main_thread():  # Python lets only the main thread set handlers
        yield
        return

    def count_one(_signal: int, _frame: object) -> None:
        heard.interrupts += 1

    earlier = {number: signal.signal(number, count_one) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@dataclass(kw_only=True)
class Scheduler(Logbook):
    """Everything that one call keeps in mind while it makes runs.

    Where a claim is about a time (`Registration.timed`), runs are made one at a time in the registered order: a run
    that cannot be made now is waited for, and one that failed ends the call, so that the next makes it in its place.

    One thread and one `select` over all makers: whatever changes a run's state, or the ledger, happens in one place and
    in one order. A run is in exactly one of `pending`, `busy`, or a maker's `spec`, until it has ended.
    """

    machine: Machine = field(default_factory=Machine)
    checkpoint_every_s: float | None = None
    pending: deque[Spec] = field(default_factory=deque)
    busy: deque[Spec] = field(default_factory=deque)
    """Runs whose folder another process held a moment ago."""

    elsewhere: list[str] = field(default_factory=list)
    """Runs that another process was making to the end of this call, ARM/SEED."""

    makers: dict[int, Maker] = field(default_factory=dict)
    """One for each slot, by the number of its connection."""

    deaths: dict[str, int] = field(default_factory=dict)
    """How often the process of a run was killed in this call, by run."""
    failed: list[str] = field(default_factory=list)
    """RUN: ERROR, for the summary."""
    failures: set[str] = field(default_factory=set)
    """Kinds of failure so far (`failure_kind`)."""
    stderr: list[str] = field(default_factory=list)
    """Where runs that failed left what they said."""

    gave_up: str = ""
    """The error after which nothing more was started."""

    disk_full: bool = False
    no_room: RunError | None = None
    """That the record of a start could not be written."""
    interrupts: int = 0
    """Ctrl-C or SIGTERM: the first stops runs, which save their state; after the second nobody waits for that."""
    stopped: bool = False
    job: Job | None = None
    """What was submitted to Slurm."""

    records: dict[Cell, Stamp | None] = field(default_factory=dict)
    """The record of every run, as it was when that run was last made or looked at; empty for the built-in trainer."""
    pool: Pool | None = None
    server_deaths: int = 0
    """Servers that died in a row, before one of them had started a run."""

    _noted: set[str] = field(default_factory=set)
    _seen_busy: set[Cell] = field(default_factory=set)
    _busy_since: float | None = None

    @property
    def keeps_order(self) -> bool:
        """Whether no run may be made before one that precedes it in the registered order."""
        return bool(self.registration.timed)

    def may_start(self) -> bool:
        """Whether runs may be started now; why not is noted."""
        return True

    def default_slots(self, on_this_machine: int) -> int:
        """Runs side by side where the user names no number."""
        return on_this_machine

    @property
    def busy_patience_s(self) -> float:
        """Seconds for which runs that other processes hold are waited for, when nothing else is left."""
        return BUSY_PATIENCE_S

    def serve(self, slots: int) -> bool:
        """Until nothing is left to do. True when the user interrupted."""
        if self.registration.study.trainer == "command":
            self.records = {spec.cell: self._stamp(spec.cell) for spec in plan(self.registration)}
        try:
            with interrupts_heard(self):
                while (self.at_work or self._left()) and self.interrupts < 2:
                    self._fill(slots)
                    self._next_event()
                    if self.interrupts and not self.stopped:
                        self._stop_all()
        finally:
            self._dismiss()
            sweep()  # what processes left that were killed
        if self.no_room is not None:
            raise self.no_room
        return self.stopped

    def _left(self) -> bool:
        """Whether there is something to start, now or in a moment."""
        if not self.busy or (self.pending and not self.keeps_order):
            return bool(self.pending)
        if self.at_work:
            return True
        # Nothing but runs that others hold: the process of a scheduler that was killed ends soon, another does not.
        self._busy_since = self._busy_since or time.monotonic()
        if time.monotonic() - self._busy_since < self.busy_patience_s:
            return True
        for spec in self.busy:
            self.watcher.note(f"{spec.run_id}: at work in another process")
            self.elsewhere.append(f"{spec.variant}/{spec.seed}")
        self.busy.clear()
        self.pending.clear()  # of runs in order, none that follows
        return False

    @property
    def at_work(self) -> list[Maker]:
        """The makers that make a run."""
        return [maker for maker in self.makers.values() if maker.spec is not None]

    def _fill(self, slots: int) -> None:
        """Start runs where slots are free."""
        self.take_up_busy()
        while self.pending and not self.stopped and (maker := self._free_maker(slots)) is not None:
            self._start(self.pending.popleft(), maker)
            if self.busy and self.keeps_order:
                break  # nothing before the run that another process holds

    def take_up_busy(self) -> None:
        """Put runs that another process held in line again: last, or first where order is kept."""
        if self.busy and (self.keeps_order or not self.pending):
            self.pending, self.busy = self.busy + self.pending, deque()

    def _free_maker(self, slots: int) -> Maker | None:
        """A maker that is ready and makes nothing. Where there is none, one is forked if there is a slot for it."""
        for maker in self.makers.values():
            if maker.is_ready and maker.spec is None:
                return maker
        n_wanted = min(slots, len(self.at_work) + len(self.pending))  # never more processes than runs
        while len(self.makers) < n_wanted:
            if self.pool is None:
                self.pool = self._start_server()
            # The lowest free lane, so that the maker after one that died gets its GPUs.
            lanes = {maker.lane for maker in self.makers.values()}
            maker = self.pool.fork(next(lane for lane in count() if lane not in lanes))
            self.makers[maker.connection.fileno()] = maker
        return None

    def _start_server(self) -> Pool:
        # Next to the runs and not in one of them: it is of no single run.
        logs = self.root.runs(self.registration.study.study, self.registration.runs_sha256)
        logs.mkdir(parents=True, exist_ok=True)
        place = self.place(self.machine.device, self.checkpoint_every_s)
        with (logs / "server.log").open("a", encoding="utf-8") as log:  # the server has its own copy
            return Pool(tuple(self.pending), place, log).__enter__()

    def _start(self, spec: Spec, maker: Maker) -> None:
        """Put the next attempt at a run on record and start it.

        In this order, so that no crash leaves a run that was started and is not on record: lock the folder, write the
        queued record, enter the start in the ledger, hand the lock to the maker.
        """
        folder = self.folder(spec)
        place = self.place(self.machine.device, self.checkpoint_every_s)
        if self._holds_a_seal(folder):
            record = folder.readable_record()
            handed_out = record is not None and self.starts[spec.cell].handed_out(record.attempts)
            if spec.cell in self._seen_busy or handed_out:
                self.collect([spec])  # by the process that held it
                self._settle(spec)
                return
            # It waited for this run when the call began, and nothing but the run itself may seal its record.
            error = "its folder holds a sealed record, and it had not been started; remove it, and run again"
            self.end(spec, Message(event="ended", run_id=spec.run_id, status="failed", error=error))
            return
        try:
            with held(folder) as lock:
                try:
                    begun = self.queue(spec, place)
                except Exception as error:
                    if isinstance(error, OSError) and error.errno in NO_ROOM:
                        self._stop_for_room(error)
                    else:  # what is wrong with a run becomes its record
                        self.end(spec, fail(spec, folder, place, error))
                    return
                self.log_start(spec, begun)
                own = self.registration.study.trainer == "command"
                gpus = self.machine.gpus_of(maker.lane) if own or self.machine.device != CPU else ()
                maker.make(spec, folder, lock, gpus=gpus)
        except BusyError:
            self.busy.append(spec)
            self._seen_busy.add(spec.cell)
            return
        except ConnectionError:  # the maker died a moment ago
            self.pending.appendleft(spec)  # its start is on record, and waits for another maker
            self.unbegun.add(spec.cell)
            self._lost(maker)
            return
        self.unbegun.discard(spec.cell)
        self.server_deaths = 0
        self._busy_since = None
        self.tally.hear(spec.run_id, Message(event="progress", run_id=spec.run_id, steps=spec.steps))

    def _stop_for_room(self, error: OSError) -> None:
        """A start could not be put on record, because the disk is full: nothing more is started, and the call ends with
        a mistake once the runs at work have ended. Nothing is entered of the run, which has not begun."""
        self.disk_full = True
        self.pending.clear()
        self.no_room = RunError(
            f"{error.filename} cannot be written: {error.strerror}",
            required="a disk with room for the record of a run, before the run begins",
            fix=f"free space, then: ablate run {self.root.study(self.registration.study.study)}",
        )

    def _bury_server(self) -> None:
        """The server has died. Another may live, but not without end; the makers that it forked go on."""
        assert self.pool is not None
        pool, self.pool = self.pool, None
        pool.__exit__()
        for maker in [maker for maker in self.makers.values() if not maker.is_ready]:
            self._lost(maker)
        self.server_deaths += 1
        if self.server_deaths > DEATHS_ALLOWED:
            raise RunError(
                f"the server of runs died {self.server_deaths} times in a row (the last with exit "
                f"{pool.process.returncode})",
                required="a process that starts",
                fix=f"what its log says: {pool.log.name}",
            )
        self.watcher.note(f"the server of runs died (exit {pool.process.returncode}); starting another")

    def _next_event(self) -> None:
        """Wait a moment for something to happen, and handle it."""
        server = None if self.pool is None else self.pool.connection.fileno()
        sources = [*self.makers, *([] if server is None else [server])]
        ready, _, _ = select.select(sources, [], [], _LOOK_EVERY_S)
        for descriptor in ready:
            if descriptor in self.makers:
                self._hear(self.makers[descriptor])
        if server in ready and self.pool is not None:
            self._bury_server()
        self.watcher.tick(self.tally)

    def _hear(self, maker: Maker) -> None:
        messages = maker.receive()
        if messages is None:
            self._lost(maker)
            if maker.spec is not None:
                self._died(maker)
            elif not maker.is_ready and self.pool is not None:
                self._bury_server()
            return
        for message in messages:
            self._handle(maker, message)

    def _lost(self, maker: Maker) -> None:
        del self.makers[maker.connection.fileno()]
        maker.connection.close()

    def _handle(self, maker: Maker, message: Message) -> None:
        """One thing that the maker of a run reported."""
        spec = maker.spec
        assert spec is not None, message
        if message.event == "note" and message.text not in self._noted:
            self._noted.add(message.text)
            self.watcher.note(message.text)
        elif message.event == "progress":
            self.tally.hear(spec.run_id, message)
        elif message.event in ("ended", "stopped"):
            maker.spec = None  # free for the next run, whatever became of this one
            changed = self._written_elsewhere(spec)
            if changed:
                self.end(spec, self._trespassed(spec, message, changed), changed=changed)
            elif message.event == "ended":
                self.end(spec, message)
            else:
                self.tally.running.pop(spec.run_id, None)
                self._settle(spec)
                if not maker.stopping:  # a signal reached the maker and not this process
                    self.pending.appendleft(spec)

    def end(self, spec: Spec, message: Message, *, recovered: bool = False, changed: Sequence[str] = ()) -> None:
        """A run has ended: its seal, or its failure, goes into the ledger. `changed` are files that were written in the
        folders of other runs meanwhile."""
        self.tally.running.pop(spec.run_id, None)
        self.tally.steps_done += spec.steps or message.step
        if message.status == "failed":
            error = message.error or "unknown"
            self.failed.append(f"{spec.run_id}: {message.error}")
            self.tally.failed += 1
            if (output := self.folder(spec).path / "stderr.txt").is_file():
                self.stderr.append(str(output.relative_to(self.root.path)))
            self.fail(spec, error, wrote_in=changed, before_start=self._unbegun_attempt(spec, message))
            self._give_up_or_go_on(spec, error)
            if message.disk_full and not self.disk_full:
                self.disk_full = True
                self.pending.clear()
                self.watcher.note("the disk is full: nothing more is started")
            if self.keeps_order and self.pending:
                self.pending.clear()
                self.watcher.note(
                    f"{spec.run_id} failed: nothing more is started, so that its next attempt is in its place "
                    f"({self.registration.timed[0]})"
                )
        else:
            self.seal(spec, recovered=recovered)
        self._settle(spec)
        self.watcher.ended(spec.run_id, message)  # last: what a user sees end is on record

    def _unbegun_attempt(self, spec: Spec, message: Message) -> int | None:
        """The attempt that ended before its trainer's process existed, by its maker; none of any other failure."""
        record = self.folder(spec).readable_record() if message.before_start else None
        return None if record is None else record.attempts

    def _give_up_or_go_on(self, spec: Spec, error: str) -> None:
        """Stop after two failures of the same kind where no run has been sealed: the rest would fail in the same way.

        After the first, the next run is of the same arm: what two arms leave behind can be compared, and is evidence.
        """
        if self.tally.sealed or self.stopped or self.disk_full:
            return
        kind = failure_kind(error, spec)
        if kind in self.failures:
            self.gave_up = error
            self.pending.clear()
            self.watcher.note("two runs failed in the same way, and none has ended well: nothing more is started")
        self.failures.add(kind)
        same_arm = [waiting for waiting in self.pending if waiting.variant == spec.variant]
        self.pending = deque([*same_arm, *(waiting for waiting in self.pending if waiting.variant != spec.variant)])

    def _died(self, maker: Maker) -> None:
        """The process of a run is gone, and had not said how the run ended."""
        spec = maker.spec
        assert spec is not None
        folder = self.folder(spec)
        self.tally.running.pop(spec.run_id, None)
        end_leftover(folder.path)  # its trainer may have outlived it, and may be writing still
        self._settle(spec)
        ended = Message(event="ended", run_id=spec.run_id, status="failed")
        if changed := self._written_elsewhere(spec):
            died = ended.model_copy(update={"error": "its process died"})
            self.end(spec, self._trespassed(spec, died, changed), changed=changed)
        elif (record := folder.read_record() if folder.is_sealed() else None) is not None:
            self.end_sealed(spec, record, recovered=True)  # it died before it could say so
        elif not maker.stopping:
            self.retry(spec, maker.exit_status)

    def end_sealed(self, spec: Spec, record: RunRecord, *, recovered: bool = False) -> None:
        """A run that its own process did not report, and whose folder holds a sealed record: its own, or another's."""
        status: Literal["done", "diverged"] = "diverged" if record.status == "diverged" else "done"
        why = "" if record.divergence is None else record.divergence.words
        ended = Message(event="ended", run_id=spec.run_id, status=status, step=record.steps, divergence=why)
        if difference := unlike(record, spec):
            error = f"its folder holds a sealed record of another run: {difference}"
            ended = Message(event="ended", run_id=spec.run_id, status="failed", error=error)
        self.end(spec, ended, recovered=recovered)

    def retry(self, spec: Spec, status: int | None) -> None:
        """A run whose process died: resumed, or given up."""
        # A kill may be anyone's (the kernel's, when memory is short, most of all), so the run is resumed, but not for
        # ever.
        deaths = self.deaths.get(spec.run_id, 0)
        exit_status = "unknown" if status is None else status
        if deaths < DEATHS_ALLOWED:
            self.deaths[spec.run_id] = deaths + 1
            self.pending.appendleft(spec)
            resumes = (self.folder(spec).path / "work" / RESUMABLE).is_file()
            then = "resuming the run" if resumes else "beginning the run again at its first step"
            self.watcher.note(f"the process of {spec.run_id} died (exit {exit_status}); {then}")
            return
        error = f"its process died {DEATHS_ALLOWED + 1} times, last with exit {exit_status}"
        self.end(spec, Message(event="ended", run_id=spec.run_id, status="failed", error=error))

    def _holds_a_seal(self, folder: RunFolder) -> bool:
        record = folder.readable_record()
        return record is not None and record.status in ENDED

    def _stamp(self, cell: Cell) -> Stamp | None:
        """Return what tells whether the record in a run's folder was written; none where it has no record."""
        study, registration = self.registration.study.study, self.registration.runs_sha256
        try:
            stat = RunFolder(self.root.run(study, registration, *cell)).record_path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _written_elsewhere(self, spec: Spec) -> list[str]:
        """Return the records of other runs that were written while this one was made, as ARM/SEED/run.json.

        A trainer that writes a record in the folder of a run that is still to be made would choose its outcome. What
        else it writes there is found when it is read: sealed tables have their hash in the ledger.
        """
        # Of runs at work the records change, and rightly so; of the rest, the run that has just ended is the suspect.
        at_work = {maker.spec.cell for maker in self.makers.values() if maker.spec is not None}
        at_work |= {spec.cell} | self._seen_busy  # other processes make the busy ones
        stamps = {cell: self._stamp(cell) for cell in self.records if cell not in at_work}
        # A record that is gone is another matter: its run is made again, on record.
        written = [cell for cell, stamp in stamps.items() if stamp not in (None, self.records[cell])]
        self.records |= {cell: stamps[cell] for cell in written}  # each is named once
        return [f"{arm}/{seed}/run.json" for arm, seed in written]

    def _settle(self, spec: Spec) -> None:
        """Nobody makes this run now: its record is to stay as it is."""
        if self.records:
            self.records[spec.cell] = self._stamp(spec.cell)

    def _trespassed(self, spec: Spec, message: Message, changed: Sequence[str]) -> Message:
        """A run that wrote in the folder of another has failed, however it ended."""
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        error = "while it was made, files were written in the folders of other runs: "
        error += f"{', '.join(changed[:3])}{more}"
        if message.error:
            error = f"{message.error}; {error}"
        self.folder(spec).fail(error, self.now())
        return message.model_copy(update={"event": "ended", "status": "failed", "error": error})

    def _stop_all(self) -> None:
        self.stopped = True
        saves = (
            "saves its state" if self.registration.study.trainer == "gpt" else "saves its state where its trainer can"
        )
        self.watcher.note(f"stopping: each run {saves} (again to stop at once)")
        self.pending.clear()
        self.busy.clear()
        for maker in self.at_work:
            maker.stop()

    def _dismiss(self) -> None:
        """End the server, and with their connections all makers, with the runs that are still at work."""
        for maker in list(self.makers.values()):
            self._lost(maker)  # its connection closed, it stops its trainer and ends
        if self.pool is not None:
            self.pool.__exit__()
            self.pool = None
