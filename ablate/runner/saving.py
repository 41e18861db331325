"""Failures in words, and checkpoints: taken up from the newest sound generation, written with words for failure.

One run has its own; the runs of a cohort share one, so that no crash can leave two of them at different steps.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.records.checkpoints import Checkpoints
from ablate.records.store import RunFolder
from prereg.errors import EvidenceError, RunError, StudyError
from prereg.registry.disk import NO_ROOM

if TYPE_CHECKING:
    from ablate.gpt.train import Progress  # torch is not for workers of a user's own trainer


def take_up(
    checkpoints: Checkpoints, restore: Callable[[Path], None], begin_anew: Callable[[], None], faults: list[str]
) -> Path | None:
    """The generation from which `restore` brought everything back, if any. `faults` gets what is wrong with others."""
    for generation in checkpoints.generations():
        if generation.fault is not None:
            faults.append(f"{generation.path.name} {generation.fault}")
            continue
        try:
            restore(generation.path)
        except EvidenceError as error:
            faults.append(error.found)
            begin_anew()  # half a state may have been taken in
        else:
            return generation.path
    return None


def rows_fault(folder: RunFolder, progress: Progress) -> str | None:
    """Why the live rows are not those that a restored checkpoint counts; none where they are."""
    if not progress.live_sha256:
        return "the checkpoint does not say which rows it goes with"
    return folder.live_fault(progress.live_bytes, progress.live_sha256)


def save(checkpoints: Checkpoints, data: bytes, step: int) -> None:
    """Make this the newest checkpoint; a disk that has no room for it is named, with what to do."""
    try:
        checkpoints.write(data)
    except OSError as error:
        raise RunError(
            f"the checkpoint of step {step} ({len(data) / 2**20:.1f} MiB) cannot be written "
            f"to {checkpoints.folder}: {error.strerror}; the one before it is still there",
            required="room for three checkpoints: two are kept while the next is written",
            fix="make room, and run again: the run goes on from the checkpoint that is there",
        ) from error


def show_trace(error: Exception) -> None:
    """The trace of an error into the worker's log, where there is room for it."""
    with suppress(OSError):
        traceback.print_exception(error)


def said(error: Exception, folder: RunFolder) -> str:
    """An error in one line, with the way out where there is one."""
    if isinstance(error, StudyError):
        return f"{error.found}; try: {error.fix}" if error.fix else error.found
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return (
            f"{error.filename or folder.path} cannot be written, the disk is full ({error.strerror}); try: make room, "
            "and run again: the run goes on from its last checkpoint"
        )
    return f"{type(error).__name__}: {error}"
