"""A limit on how long code that a study brings may take, whatever that code is at.

Python is interrupted at the limit by a signal, and every second again where it swallows the interruption. What cannot
be interrupted so, a loop inside a library or code that swallows everything, ends its whole process some seconds later:
by a watchdog that needs no lock of the interpreter, and that first writes to stderr where the code stood. The second
is for worker processes alone, whose scheduler is told beforehand what they are at.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_S = 3.0
"""What code that was interrupted has to end, before its process is."""
AGAIN_S = 1.0
"""Seconds between interruptions."""
EXIT_STATUS = 1
"""Of a process that the watchdog has ended."""


class Overdue(BaseException):
    """The limit has passed. No `Exception`: what the interrupted code makes of its own errors must not catch it."""


@contextmanager
def at_most(seconds: float, *, deadly: bool = False) -> Iterator[None]:
    """Raise `Overdue` where the block takes longer, however it ends; `deadly` ends a process that cannot be stopped.

    Outside a process's main thread nothing can be interrupted, and lateness is told once the block has ended.
    """
    began = time.monotonic()
    try:
        with _interrupting(seconds), _ending(seconds + GRACE_S, deadly=deadly):
            yield
    except BaseException as error:
        if time.monotonic() - began < seconds:
            raise
        # Whatever the code made of the interruption.
        raise Overdue from error
    if time.monotonic() - began >= seconds:
        raise Overdue


@contextmanager
def _interrupting(seconds: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if armed:
            raise Overdue

    began = time.monotonic()
    left = every = 0.0
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        left, every = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
        yield
    finally:
        # First of all: an interruption of what follows would leave the alarm set.
        armed = False
        rest = max(left - (time.monotonic() - began), 1e-3) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, rest, every)  # of whoever had set one before


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
