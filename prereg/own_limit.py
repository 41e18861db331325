"""A limit on how long code that a study brings may take, whatever that code is at.

Python is interrupted at the limit by a signal, and every second again where it swallows the interruption. What cannot
be interrupted so, a loop inside a library or code that swallows everything, ends its whole process some seconds later:
by a watchdog that needs no lock of the interpreter, and that first writes to stderr where the code stood. The second
is for worker processes alone, whose scheduler is told beforehand what they are at. What a limit means is for whoever
set it to say: an own metric that is late fails its run, an own check that is late leaves nothing decided.

A signal comes when it comes, also between two steps of what is done here. So it interrupts only where the code that is
limited is what stands on the stack, and nothing of this module above it: neither what was in time, nor what is tidied
up after it, can be taken for late.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import TypeVar

GRACE_S = 3.0
"""What code that was interrupted has to end, before its process is."""
AGAIN_S = 1.0
"""Seconds between interruptions."""
EXIT_STATUS = 1
"""Of a process that the watchdog has ended."""
_SOON_S = 1e-3
"""When an alarm of somebody else rings that should have rung meanwhile."""

T = TypeVar("T")
_Ended = tuple[float, tuple[T, ...], BaseException | None]
"""When a piece of work ended, what it returned (nothing where it raised), and what it raised."""


class Overdue(BaseException):
    """The limit has passed. No `Exception`: what the interrupted code makes of its own errors must not catch it."""


def at_most(seconds: float, work: Callable[[], T], *, deadly: bool = False) -> T:
    """What the work returns; `Overdue` where it takes longer, however it ends. `deadly` ends a process that cannot be
    stopped.

    The work is a function of Python: in one of C no signal is looked at. Outside a process's main thread nothing can be
    interrupted, and lateness is told once the work has ended.
    """
    given: object = work
    assert isinstance(given, FunctionType), given
    due = time.monotonic() + seconds
    with _ending(seconds + GRACE_S, deadly=deadly):
        here = threading.current_thread() is threading.main_thread()
        at, values, error = _under_alarm(seconds, due, work) if here else _carried_out(work)
    try:
        if at >= due:
            # Whatever the code made of the interruption.
            raise Overdue from error
        if error is not None:
            raise error
        return values[0]
    finally:
        del error  # which knows of this call, and this call would know of it


def _carried_out(work: Callable[[], T]) -> _Ended[T]:
    # `_inside` looks for this frame. Nothing but the work may have a frame above it, and a class of ours would.
    try:
        value = work()
        return time.monotonic(), (value,), None
    except BaseException as error:
        return time.monotonic(), (), error


def _under_alarm(seconds: float, due: float, work: Callable[[], T]) -> _Ended[T]:
    def interrupt(_number: int, frame: FrameType | None) -> None:
        # Before its time it is somebody else's alarm, which says nothing of the work.
        if time.monotonic() >= due and _inside(frame):
            raise Overdue

    began = time.monotonic()
    left = every = 0.0
    try:
        # Theirs stands still first: one that has rung already is still heard by whoever set it.
        left, every = signal.setitimer(signal.ITIMER_REAL, 0.0)
        handler = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
            return _carried_out(work)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, handler)
    finally:
        rest = max(left - (time.monotonic() - began), _SOON_S) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, every)


def _inside(frame: FrameType | None) -> bool:
    """Whether what is interrupted is the work of the innermost limit, and no line of this module."""
    interrupted = frame
    while frame is not None and frame.f_code is not _under_alarm.__code__:
        if frame.f_code is _carried_out.__code__:
            return frame is not interrupted
        frame = frame.f_back
    return False


@contextmanager
def _ending(seconds: float, *, deadly: bool) -> Iterator[None]:
    if not deadly:
        yield
        return
    try:
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.stderr)
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
