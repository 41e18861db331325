"""Cache of the user for what can be made again: one JSON note a key. A damaged cache costs time only."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from prereg.registry.canon import sha256_of
from prereg.registry.disk import write_whole

Value = TypeVar("Value")


def cached(
    folder: Path, key: object, make: Callable[[], Value], read: Callable[[Any], Value], write: Callable[[Value], Any]
) -> Value:
    """The value of a key, read from its note, or made and noted. A key names all that its value depends on.

    `read` may raise KeyError, TypeError or ValueError for a note that is none; the value is then made again.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     [cached(Path(folder), {"of": "a"}, make, int, str) for make in (lambda: 41 + 1, lambda: 0)]
        [42, 42]
    """
    try:
        return read(json.loads(note_of(folder, key).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        value = make()
        keep(folder, key, write(value))
        return value


def keep(folder: Path, key: object, content: object) -> None:
    """Note the value of a key."""
    note = note_of(folder, key)
    with suppress(OSError):  # a full or read-only cache costs time, like a damaged one
        note.parent.mkdir(parents=True, exist_ok=True)
        write_whole(note, json.dumps(content).encode())


def note_of(folder: Path, key: object) -> Path:
    """Where the value of a key is noted."""
    return folder / f"{sha256_of(key)[:32]}.json"
