"""Who may append to a ledger: one process at a time by locks, and several machines by slots where no lock reaches.

Two files are locked, in this order. The lock file next to the ledger exists before the ledger does, and keeps the whole
of a registration apart from others. Git ignores it, so `git clean` deletes it: a process that opens it anew then locks
another file than those who hold the old one. So each lock is compared with its path once it is held, and the ledger
itself is locked as well, which no cleaning deletes. Nobody reads a line that is being written.

While a folder of slots lies next to the ledger, entry N is what the file N in that folder holds. Such a file is created
whole and once (a hard link), so that of two writers one alone adds entry N, however long the other was stopped between
looking and writing. The lines of the ledger follow from the slots: who appends first writes those that are missing,
each at its place, and writing one twice changes nothing. Closing renames the folder before it is removed: a writer that
was stopped meanwhile finds no place for its entry, and looks again. A folder's name holds the index it was opened at,
so that it never comes back.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from prereg.errors import LedgerError, Where
from prereg.registry.disk import (
    NO_LOCKS,
    create_whole,
    flock,
    has_posix_locks,
    open_regular,
    posix_locks,
    sync_folder,
)

_CLOSED = ".closed"


@dataclass
class _Claim:
    """This process's hold on the lock file and on the ledger of one path."""

    thread: threading.RLock
    held: bool = False
    ledger: IO[bytes] | None = None
    kernel: bool = True
    """Whether the file system has locks; where it has none, holding one keeps nobody out."""


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
                stream, self._claim.kernel = _locked(self.path, "ab", shared=False)
            with stream:  # closing it gives the lock back, and so does the death of the process
                self._claim.held = True
                try:
                    self._hold_ledger("r+b")
                    yield
                finally:
                    self._claim.held = False
                    self._let_go()

    @property
    def excludes(self) -> bool:
        """Within `alone`: whether other processes of this machine are kept out indeed."""
        return self._claim.kernel

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
                with self._refusing(f"a lock file that can be read: {self.path}"), suppress(FileNotFoundError):
                    held.enter_context(_locked(self.path, "rb", shared=True)[0])
                with suppress(OSError):  # a ledger that cannot be opened is the reader's to report
                    held.enter_context(_locked(self.ledger, "rb", shared=True)[0])
                yield

    def _hold_ledger(self, mode: str) -> None:
        with self._refusing(f"a file that can be written to: {self.ledger}"), suppress(FileNotFoundError):
            self._claim.ledger, _ = _locked(self.ledger, mode, shared=False)

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


def _locked(path: Path, mode: str, *, shared: bool) -> tuple[IO[bytes], bool]:
    """The file at a path, open and locked: the one that lies there once the lock is held, not one deleted meanwhile.

    Also whether the file system has locks.
    """
    while True:
        with suppress(FileNotFoundError):
            open_regular(path).close()  # one that is none would be waited for
        if not shared:
            posix_locks()  # before the file is created
        stream = path.open(mode)
        try:
            flock(stream, shared=shared)
            if _is_at(stream, path):
                return stream, True
        except OSError as error:
            if error.errno in NO_LOCKS:
                return stream, False
            stream.close()
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


def newest_slots(ledger: Path) -> Path | None:
    """The folder of slots that takes entries, if there is one."""
    return max((place for place in _folders(ledger) if place.suffix != _CLOSED), default=None)


def open_slots(ledger: Path, index: int) -> Path:
    """The folder that takes entries, made where there is none. `index` is that of the next entry."""
    place = newest_slots(ledger)
    if place is None:
        place = ledger.with_name(f"{_stem(ledger)}{index:012}")
        place.mkdir(exist_ok=True)
    return place


def put_in_slot(folder: Path, index: int, line: bytes) -> bool:
    """Make this the entry of that index. False where there is one, or where the folder was closed."""
    try:
        return create_whole(folder / str(index), line)
    except FileNotFoundError:
        return False


def line_in_slot(ledger: Path, index: int) -> bytes | None:
    """The entry of an index, if a slot holds it."""
    for folder in _folders(ledger):
        with suppress(FileNotFoundError):
            return (folder / str(index)).read_bytes()
    return None


def close_slots(ledger: Path) -> None:
    """Take no more entries. `remove_closed_slots` follows once the ledger holds them all."""
    place = newest_slots(ledger)
    if place is not None:
        with suppress(FileNotFoundError):  # closed by another process
            place.rename(place.with_name(place.name + _CLOSED))


def remove_closed_slots(ledger: Path) -> None:
    """Remove closed folders, whose entries the ledger holds."""
    for place in _folders(ledger):
        if place.suffix == _CLOSED:
            shutil.rmtree(place, ignore_errors=True)


def _folders(ledger: Path) -> list[Path]:
    return sorted(ledger.parent.glob(f"{_stem(ledger)}*"))


def _stem(ledger: Path) -> str:
    return f".{ledger.name}.slots-"
