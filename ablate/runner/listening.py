"""Signals to the process of one run, messages of its scheduler if it has one, and the moment its trainer ends."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol


class Abandoned(BaseException):
    """The scheduler is gone: nothing may go on on its behalf. No `Exception`, so that it is no failure of the run."""


class Control(Protocol):
    """Whether a run is to stop, and how to wait until something happens."""

    @property
    def stopped(self) -> bool:
        """Whether the run is to save its state and end."""

    def wait(self, timeout_s: float, output: Sequence[IO[bytes]] = ()) -> None:
        """Until the trainer has ended or printed something, a stop has arrived, or the time is up. Raises
        `Abandoned`."""


class Signals:
    """SIGTERM and SIGINT stop the run; so does its scheduler, over a socket whose end means that it is gone.

    For the main thread of a process that makes one run and has no other children. Used in `heard`.
    """

    def __init__(self, scheduler: socket.socket | None = None) -> None:
        self.stopped = False
        self._scheduler = scheduler
        # The wakeup pipe must not block: a handler that waits for room in it would stop the process.
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)

    @contextmanager
    def heard(self) -> Iterator[Signals]:
        """Signals arrive here for as long as the block lasts."""
        # The end of a child is written into the pipe by the interpreter itself, whatever the process is at.
        earlier_pipe = signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        # SIGCHLD needs a handler of Python, or the interpreter writes nothing for it.
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGCHLD: lambda *_: None}
        earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield self
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(earlier_pipe)
            os.close(self._wake)
            os.close(self._woken)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def wait(self, timeout_s: float, output: Sequence[IO[bytes]] = ()) -> None:
        """Until a signal or a message arrives, the trainer has ended or printed something, or the time is up. Raises
        `Abandoned`."""
        sources: list[Any] = [self._wake, *output, *([] if self._scheduler is None else [self._scheduler])]
        ready, _, _ = select.select(sources, [], [], max(0.0, timeout_s))
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._scheduler in ready:
            self._hear()

    def _hear(self) -> None:
        assert self._scheduler is not None
        try:
            data = self._scheduler.recv(4096)
        except OSError:
            data = b""
        if not data:
            raise Abandoned
        for line in data.splitlines():  # a stop is a few bytes, and arrives whole
            self.stopped = self.stopped or json.loads(line)["do"] == "stop"


def wait_for_stop(control: Control, seconds: float) -> bool:
    """Whether a stop arrives within some seconds."""
    deadline = time.monotonic() + seconds
    while not control.stopped and (left := deadline - time.monotonic()) > 0:
        control.wait(left)
    return control.stopped
