"""Writing so that a crash leaves the old file or the new one, never half of either."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: temporary file, fsync, rename, fsync of the folder."""
    _write(path, data, earlier=None)


def rotate_whole(path: Path, data: bytes, *, earlier: Path) -> None:
    """The same, and the file that is replaced is kept under the name `earlier`, in place of what stood there.

    At no moment are both gone, and between the two renames only `earlier` is there.
    """
    _write(path, data, earlier=earlier)


def _write(path: Path, data: bytes, *, earlier: Path | None) -> None:
    # The process id keeps two writers apart; a leftover of a killed one is overwritten or ignored.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if earlier is not None and path.exists():
            move(path, earlier)
        move(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def move(source: Path, target: Path) -> None:
    """Rename within a folder, durably."""
    source.replace(target)
    sync_folder(target.parent)


def write_from(path: Path, position: int, data: bytes) -> None:
    """Cut a file back to a position and write on from there, durably. What fails halfway is cut back again."""
    new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(descriptor, position)
        os.lseek(descriptor, position, os.SEEK_SET)
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, position)
        raise
    finally:
        os.close(descriptor)
    if new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's own entries durable: a new name is not on disk before this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
