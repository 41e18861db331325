"""Messages of a maker of runs to its scheduler, one JSON object a line; and an error in one line."""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from ablate.records.outputs import RESUMABLE
from ablate.records.store import RunFolder
from prereg.errors import StudyError
from prereg.frozen import FrozenModel
from prereg.registry.disk import NO_ROOM

if TYPE_CHECKING:
    from prereg.registry.plan import Planned


class Message(FrozenModel):
    """One line from the maker of a run: health and progress only. Of metrics it names the loss by which a run diverged,
    and no other value."""

    event: Literal["ready", "progress", "ended", "stopped", "note", "died"]
    """Ready for a first run; still going; ended (see status); stopped on request and saved; something a user should
    know; the process is gone."""

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

    status: Literal["done", "diverged", "failed"] | None = None
    """How it ended."""

    error: str | None = None
    """Last line of the error of a failed run."""

    before_start: bool = False
    """Of a failed run: whether its trainer's process never existed, so that the attempt does not count."""

    divergence: str = ""
    """Of a diverged run: the value, its step, and the limit that it exceeded."""

    disk_full: bool = False
    """Of a failed run: whether the disk has no room, and every other run would fail too."""

    exit_status: int | None = None
    """Of a process that is gone."""

    text: str = ""
    """Of a note: one line. The same line of several runs is shown once."""

    peak_memory_bytes: int | None = None
    """Of a run that has ended or was stopped: the most resident memory of a process of its trainer."""


def show_trace(error: Exception) -> None:
    """The trace of an error into the worker's log, where there is space for it; none of a full disk, of which one line
    says all."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return
    with suppress(OSError):
        traceback.print_exception(error)


def said(error: Exception, folder: RunFolder) -> str:
    """An error in one line, with the way out where there is one."""
    if isinstance(error, StudyError):
        return f"{error.found}; try: {error.fix}" if error.fix else error.found
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        resumes = (folder.path / "work" / RESUMABLE).is_file()
        then = "resumes from what it saved last" if resumes else "begins at its first step"
        return (
            f"{error.filename or folder.path} cannot be written, the disk is full ({error.strerror}); try: free space, "
            f"and run again: the run {then}"
        )
    return f"{type(error).__name__}: {error}"


def failed(spec: Planned, error: Exception, line: str, *, before_start: bool = False) -> Message:
    """That a run failed with an error, which the line says; `before_start`: before its trainer's process existed."""
    # The disk may be full for the trainer alone, which says so in its own words: of those two of `NO_ROOM`.
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno in NO_ROOM):
        cause = cause.__cause__
    full = cause is not None or any(os.strerror(number) in line for number in NO_ROOM[:2])
    return Message(
        event="ended", run_id=spec.run_id, status="failed", error=line, disk_full=full, before_start=before_start
    )
