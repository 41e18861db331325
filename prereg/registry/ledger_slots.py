"""Appending to a ledger from several machines at once, where no lock reaches all of them.

While a folder of slots lies next to the ledger, entry N is what the file N in that folder holds. Such a file is created
whole and once (a hard link), so that of two writers one alone adds entry N, however long the other was stopped between
looking and writing. The lines of the ledger follow from the slots: who appends first writes those that are missing,
each at its place, and writing one twice changes nothing.

Closing renames the folder before it is removed: a writer that was stopped meanwhile finds no place for its entry, and
looks again. A folder's name holds the index it was opened at, so that it never comes back.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from prereg.registry.disk import create_whole

_CLOSED = ".closed"


def newest_open(ledger: Path) -> Path | None:
    """The folder of slots that takes entries, if there is one."""
    return max((place for place in _folders(ledger) if place.suffix != _CLOSED), default=None)


def open_slots(ledger: Path, index: int) -> Path:
    """The folder that takes entries, made where there is none. `index` is that of the next entry."""
    place = newest_open(ledger)
    if place is None:
        place = ledger.with_name(f"{_stem(ledger)}{index:012}")
        place.mkdir(exist_ok=True)
    return place


def put(folder: Path, index: int, line: bytes) -> bool:
    """Make this the entry of that index. False where there is one, or where the folder was closed."""
    try:
        return create_whole(folder / str(index), line)
    except FileNotFoundError:
        return False


def find(ledger: Path, index: int) -> bytes | None:
    """The entry of an index, if a slot holds it."""
    for folder in _folders(ledger):
        with suppress(FileNotFoundError):
            return (folder / str(index)).read_bytes()
    return None


def close(ledger: Path) -> None:
    """Take no more entries. `remove_closed` follows once the ledger holds them all."""
    place = newest_open(ledger)
    if place is not None:
        with suppress(FileNotFoundError):  # closed by another process
            place.rename(place.with_name(place.name + _CLOSED))


def remove_closed(ledger: Path) -> None:
    """Remove closed folders, whose entries the ledger holds."""
    for place in _folders(ledger):
        if place.suffix == _CLOSED:
            shutil.rmtree(place, ignore_errors=True)


def _folders(ledger: Path) -> list[Path]:
    return sorted(ledger.parent.glob(f"{_stem(ledger)}*"))


def _stem(ledger: Path) -> str:
    return f".{ledger.name}.slots-"
