"""Lock of a ledger: one process at a time may append, by file locks.

Two files are locked, in this order. The lock file next to the ledger exists before the ledger does, and keeps the whole
of a registration apart from others. Git ignores it, so `git clean` deletes it: a process that opens it anew then locks
another file than those who hold the old one. So each lock is compared with its path once it is held, and the ledger
itself is locked as well, which no cleaning deletes. Nobody reads a line that is being written.

On a file system without locks nothing is appended; what lies there can be read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from prereg.errors import LedgerError, UnsupportedError, Where
from prereg.registry.disk import flock, has_posix_locks, open_regular, posix_locks, sync_folder


@dataclass
class _Claim:
    """This process's hold on the lock file and on the ledger of one path."""

    thread: threading.RLock
    held: bool = False
    ledger: IO[bytes] | None = None


@cache
def _claim(_lock_path: Path) -> _Claim:
    return _Claim(threading.RLock())


class LedgerLock:
    """The locks of the ledger at a path. The kernel lets go of them however the process ends."""

    def __init__(self, ledger: Path) -> None:
        self.ledger = ledger
        self.path = ledger.with_name(".ledger.lock")
        # A kernel lock belongs to an open file, not to a process: a second object of this process that
        # opened the file again would wait for the first for ever. So one claim a path is shared by all.
        self._claim = _claim(self.path.absolute())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process out for as long as the block lasts. May be nested.

        A ledger that does not exist yet is locked by `create`.
        """
        with self._claim.thread:
            if self._claim.held:
                yield
                return
            with self._refusing(f"a folder that can be written to: {self.ledger.parent}"):
                stream = _locked(self.path, "ab", shared=False)
            with stream:  # closing it gives the lock back, and so does the death of the process
                self._claim.held = True
                try:
                    self._hold_ledger("r+b")
                    yield
                finally:
                    self._claim.held = False
                    self._let_go()

    def create(self) -> None:
        """Within `alone`: lock the ledger that lies at the path now, created empty where there is none.

        Raises `LedgerError` where it cannot be opened for writing.
        """
        assert self._claim.held, self.ledger
        if self._claim.ledger is not None and _is_at(self._claim.ledger, self.ledger):
            return
        self._let_go()  # nothing, or a file that was replaced by another, as version control does
        new = not self.ledger.exists()
        self._hold_ledger("ab")
        if new:
            sync_folder(self.ledger.parent)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Wait for an append in progress, so that half a line is seen only when its writer is dead."""
        with self._claim.thread:
            if self._claim.held or not has_posix_locks():  # without locks (Windows) nobody here appends
                yield
                return
            with ExitStack() as held:
                required = f"a lock file that can be read: {self.path}"
                # A file system without locks (`UnsupportedError`) has no writer to wait for.
                with self._refusing(required), suppress(FileNotFoundError, UnsupportedError):
                    held.enter_context(_locked(self.path, "rb", shared=True))
                with suppress(OSError, UnsupportedError):  # a ledger that cannot be opened is the reader's to report
                    held.enter_context(_locked(self.ledger, "rb", shared=True))
                yield

    def _hold_ledger(self, mode: str) -> None:
        with self._refusing(f"a file that can be written to: {self.ledger}"), suppress(FileNotFoundError):
            self._claim.ledger = _locked(self.ledger, mode, shared=False)

    def _let_go(self) -> None:
        if self._claim.ledger is not None:
            self._claim.ledger.close()
            self._claim.ledger = None

    @contextmanager
    def _refusing(self, required: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            found = f"the ledger cannot be locked: {error.strerror}"
            raise LedgerError(found, required=required, where=Where(file=self.ledger)) from None


def _locked(path: Path, mode: str, *, shared: bool) -> IO[bytes]:
    """The file at a path, open and locked: the one that lies there once the lock is held, not one deleted meanwhile."""
    while True:
        with suppress(FileNotFoundError):
            open_regular(path).close()  # one that is none would be waited for
        if not shared:
            posix_locks()  # before the file is created
        new = not path.exists()
        stream = path.open(mode)
        try:
            flock(stream, shared=shared)
            if _is_at(stream, path):
                return stream
        except UnsupportedError:
            stream.close()
            if new:
                path.unlink()
            raise
        except BaseException:
            stream.close()
            raise
        stream.close()


def _is_at(stream: IO[bytes], path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(stream.fileno())
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)
