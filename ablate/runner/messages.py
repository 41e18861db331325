"""What a worker and its scheduler say to each other: one JSON object a line, over pipes. No pickle.

scheduler ─▶ worker   {"do": "run", "spec": ..., "folder": ..., "corpora": ..., "root": ..., "device": ...,
                       "study_folder": ..., "checkpoint_every_s": ..., "until": ...}, {"do": "stop"},
                      {"do": "noted"} once the ledger holds the start of a run
worker ─▶ scheduler   Message, below
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO

from ablate.records.provenance import made_with
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from prereg.errors import StudyError
from prereg.frozen import FrozenModel
from prereg.registry.disk import NO_ROOM

if TYPE_CHECKING:
    from prereg.registry.plan import Planned


class TaskProgress(FrozenModel):
    """How far the tasks of a run have been evaluated: counts and seconds, never an answer."""

    tasks: str
    """The tasks, as the study names them."""
    shots: int = 0
    """Examples in the prompts of the current requests."""
    requests: int = 0
    """Requests answered."""
    of: int = 0
    """Requests in all; 0 before they are known."""
    seconds: float = 0.0
    """Since the evaluation began."""
    seconds_left: float | None = None
    """About how long the rest takes; none before there is a speed to go by."""


class Message(FrozenModel):
    """One line from a worker. It reports health and progress only, never a metric that could favour an arm."""

    event: Literal["ready", "begun", "progress", "ended", "stopped", "note"]
    """ready for a run; begun, with its record written and no step taken; still going; ended (see status); stopped on
    request and saved; something a user should know."""
    run_id: str | None = None
    """Which run."""
    step: int = 0
    """Steps taken."""
    steps: int = 0
    """Steps planned."""
    steps_per_s: float = 0.0
    """Speed since the last line."""
    falling: bool | None = None
    """Whether the training loss is below where it began; none before it is known."""
    doing: str = ""
    """What the run does besides its steps, as its trainer says."""
    seconds_left: float | None = None
    """About how long that takes, as its trainer says."""
    asking: TaskProgress | None = None
    """While the tasks of a trained run are evaluated."""
    measuring: str | None = None
    """While a metric of the study's own is taken: its name. It is code that may never end."""
    status: Literal["done", "diverged", "failed"] | None = None
    """How it ended."""
    error: str | None = None
    """Last line of the error of a failed run."""
    disk_full: bool = False
    """Of a failed run: whether the disk has no room, and every other run would fail too."""
    text: str = ""
    """Of a note: one line. The same line of several workers is shown once."""
    peak_memory_bytes: int | None = None
    """Of an own trainer's run that has ended or was stopped: the most resident memory of a child of this worker."""
    attempt: int = 0
    """Of a run that has begun: which start of its record this is, from 1."""
    resumed: bool = False
    """Of a run that has begun: whether it goes on from a checkpoint, at `step`."""
    made_with: str = ""
    """Of a run that has begun: hash of the parts of its provenance that may move a bit."""
    left_values: bool | None = None
    """Of a run that has begun again: whether the attempt before it had recorded a value of a claimed metric."""
    waits: bool = False
    """Of a run that has begun: whether it takes no step before the scheduler says `noted`."""


class Pipes:
    """Standard input and output of this process. Made once, before anything is printed."""

    def __init__(self) -> None:
        # Libraries may print; the protocol keeps the real standard output to itself.
        self._channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self.stop = threading.Event()
        """Set the moment the scheduler says stop, whatever the process is at."""
        self._arrived = threading.Condition()
        self._noted = threading.Event()
        self._waiting: list[dict[str, Any]] = []

    def say(self, message: Message) -> None:
        """One line to the scheduler. A run that has begun waits here until the ledger holds its start."""
        self.send(message)
        if message.event == "begun":
            self.wait_until_noted()

    def send(self, message: Message) -> None:
        """The same without waiting."""
        if message.event == "begun":
            self._noted.clear()
            message = message.model_copy(update={"waits": True})
        self._channel.write(message.model_dump_json() + "\n")
        self._channel.flush()

    def wait_until_noted(self) -> None:
        """Until the ledger holds the start of the run that has begun."""
        self._noted.wait()

    def orders(self, abandoned: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """Says that the process is ready, and gives every order up to the one that ends them.

        `abandoned` is called in a thread of its own once the scheduler is gone; it must not return. SIGTERM is an order
        to stop: a cluster sends it to every process of a job.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._take({"do": "stop"}))
        threading.Thread(target=self._listen, args=(sys.stdin, abandoned), daemon=True).start()
        self.say(Message(event="ready"))
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: bool(self._waiting))
                order = self._waiting.pop(0)
            if order["do"] == "stop":
                return
            yield order

    def _listen(self, lines: TextIO, abandoned: Callable[[], None]) -> None:
        for line in lines:
            order = json.loads(line)
            if order["do"] == "noted":
                self._noted.set()
                continue
            self._take(order)
        abandoned()

    def _take(self, order: dict[str, Any]) -> None:
        with self._arrived:
            if order["do"] == "stop":
                self.stop.set()
            self._waiting.append(order)
            self._arrived.notify()


def show_trace(error: Exception) -> None:
    """The trace of an error into the worker's log, where there is space for it."""
    with suppress(OSError):
        traceback.print_exception(error)


def said(error: Exception, folder: RunFolder) -> str:
    """An error in one line, with the way out where there is one."""
    if isinstance(error, StudyError):
        return f"{error.found}; try: {error.fix}" if error.fix else error.found
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return (
            f"{error.filename or folder.path} cannot be written, the disk is full ({error.strerror}); try: free space, "
            "and run again: the run resumes from its last checkpoint"
        )
    return f"{type(error).__name__}: {error}"


def begun(spec: Planned, record: RunRecord, step: int | None, *, left_values: bool | None = None) -> Message:
    """That a run has begun, its record written; `step` is where it resumed, none where it starts over. `left_values`
    says whether an attempt whose values are given up had recorded one of a claimed metric."""
    return Message(
        event="begun",
        run_id=spec.run_id,
        attempt=record.attempts,
        step=step or 0,
        resumed=step is not None,
        made_with=made_with(record.provenance),
        left_values=left_values,
    )


def failed(spec: Planned, error: Exception, line: str) -> Message:
    """That a run failed with an error, which the line says."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in NO_ROOM):
        cause = cause.__cause__
    full = cause is not None or any(os.strerror(number) in line for number in NO_ROOM[:2])
    return Message(event="ended", run_id=spec.run_id, status="failed", error=line, disk_full=full)
