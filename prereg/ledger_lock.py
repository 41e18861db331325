"""The lock beside a ledger: one process appends at a time, and nobody reads a line that is being written."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prereg.disk import open_regular
from prereg.errors import LedgerError, Where


@dataclass
class _Claim:
    """This process's hold on one lock file."""

    thread: threading.RLock
    held: bool = False


@cache
def _claim(_lock_path: Path) -> _Claim:
    return _Claim(threading.RLock())


class LedgerLock:
    """The lock of the ledger at a path. The kernel lets go of it however the process ends."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.path = ledger.with_name(".ledger.lock")
        # A kernel lock belongs to an open file, not to a process: a second object of this process that
        # opened the file again would wait for the first for ever. So one claim a path is shared by all.
        self._claim = _claim(self.path.absolute())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process out for as long as the block lasts. May be nested."""
        with self._claim.thread:
            if self._claim.held:
                yield
                return
            try:
                if self.path.exists():
                    open_regular(self.path).close()  # one that is none would be waited for
                stream = self.path.open("ab")
            except OSError as error:
                raise self._cannot(error, f"a folder that can be written to: {self.ledger.parent}") from None
            with stream:  # closing it gives the lock back, and so does the death of the process
                fcntl.flock(stream, fcntl.LOCK_EX)
                self._claim.held = True
                try:
                    yield
                finally:
                    self._claim.held = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Wait for an append in progress, so that half a line is seen only when its writer is dead."""
        with self._claim.thread:
            if self._claim.held or not self.path.exists():
                yield
                return
            try:
                stream = open_regular(self.path)
            except OSError as error:
                raise self._cannot(error, f"a lock file that can be read: {self.path}") from None
            with stream:
                fcntl.flock(stream, fcntl.LOCK_SH)
                yield

    def _cannot(self, error: OSError, required: str) -> LedgerError:
        return LedgerError(
            f"the ledger cannot be locked: {error.strerror}", required=required, where=Where(file=self.ledger)
        )
