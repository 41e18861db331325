"""Folders for the while of one process, which leave nothing behind however that process ends.

A process that ends in order removes its own. One that is killed cannot: so a file in each folder is locked by the owner
for as long as it lives, the kernel lets go of the lock with it, and whoever looks next removes the folders whose lock
is free. Locks tell the living from the dead where process numbers do not: those are given out again, and differ from
one container to the next.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = ".ablate-scratch"
"""The file that is locked. A folder without it is none of ours, whatever its name."""

_held: dict[Path, tuple[int, int | None]] = {}
"""This process' folders: its number, which a forked child does not share, and the descriptor that holds the lock."""


def make(kind: str) -> Path:
    """A new folder that only this user may enter. Whoever is done with it says `remove`."""
    sweep()
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"ablate-{kind}-"))
        mark = path / MARK
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks: unmarked, it is left alone by whoever sweeps.
            os.close(descriptor)
            mark.unlink()
            _held[path] = os.getpid(), None
            return path
        if mark.exists():
            _held[path] = os.getpid(), descriptor
            return path
        os.close(descriptor)  # before it was locked, a sweep took it for one that was left


def remove(path: Path) -> None:
    """Remove a folder of this process, and all that is in it."""
    _, descriptor = _held.pop(path, (0, None))
    shutil.rmtree(path, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


@atexit.register
def remove_all() -> None:
    """Remove every folder that this process made: at its end, and before an end that runs no handlers."""
    for path, (process, _) in list(_held.items()):
        if process == os.getpid():
            remove(path)


@contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """A folder for the while of a block."""
    path = make(kind)
    try:
        yield path
    finally:
        remove(path)


def sweep() -> None:
    """Remove what processes of this user that are no more have left. What cannot be told or removed stays."""
    for mark in Path(tempfile.gettempdir()).glob(f"ablate-*/{MARK}"):
        with suppress(OSError):
            _remove_if_left(mark)


def _remove_if_left(mark: Path) -> None:
    if mark.parent in _held or not _mine(mark):
        return
    descriptor = os.open(mark, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(mark.parent, ignore_errors=True)
    finally:
        os.close(descriptor)


def _mine(mark: Path) -> bool:
    """Whether folder and mark are what they should be, and of this user: others may write where they stand."""
    folder, file = mark.parent.lstat(), mark.lstat()
    return stat.S_ISDIR(folder.st_mode) and stat.S_ISREG(file.st_mode) and folder.st_uid == file.st_uid == os.getuid()
