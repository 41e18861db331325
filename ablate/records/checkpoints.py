"""Two generations of a run's checkpoint: the one before is kept until the next is safely on disk.

    checkpoint.safetensors            the newest
    checkpoint.previous.safetensors   the one before it
    checkpoints.json                  sha256 of every file that may be there, written before the file itself

However a writer is killed, and wherever, one whole checkpoint is left, and a file that is not what was written shows.
What is in a checkpoint is the trainer's business; here it is bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.disk import move, write_whole

_REMEMBERED = 3
"""Hashes that are kept: of both files, and of one that a killed writer announced and never moved to its place."""


@dataclass(frozen=True)
class Generation:
    """One checkpoint file."""

    path: Path
    """Its path, whether or not it exists."""
    fault: str | None
    """Why it cannot be used; none where its bytes are those that were written."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a run's folder."""

    folder: Path

    @property
    def newest(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def previous(self) -> Path:
        return self.folder / "checkpoint.previous.safetensors"

    @property
    def hashes(self) -> Path:
        return self.folder / "checkpoints.json"

    def write(self, data: bytes) -> None:
        """Make this the newest; what was the newest becomes the one before. Raises `OSError` with both as they were."""
        known = [sha256_bytes(data), *self._known()][:_REMEMBERED]
        write_whole(self.hashes, json.dumps({"sha256": known}).encode() + b"\n")
        write_whole(self.newest, data, earlier=self.previous)

    def generations(self) -> Iterator[Generation]:
        """The checkpoints that exist, the newest first, each with its fault. Empty where none was written."""
        if not self.exist():
            return
        known = self._known()
        for path in (self.newest, self.previous):
            yield Generation(path, _fault(path, known))

    def fall_back(self) -> None:
        """The one before is the newest from now on; what was in its place could not be used, and is gone."""
        move(self.previous, self.newest)

    def exist(self) -> bool:
        """Whether any checkpoint exists, sound or not."""
        return self.newest.exists() or self.previous.exists()

    def clear(self) -> None:
        """None is left. Hashes go last: without them no file would be believed, and without files they do no harm."""
        for path in (self.newest, self.previous, self.hashes):
            path.unlink(missing_ok=True)

    def _known(self) -> list[str]:
        """The hashes on file; none where the file is gone or damaged, and then no checkpoint is believed."""
        try:
            known = json.loads(self.hashes.read_bytes())["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [one for one in known if isinstance(one, str)] if isinstance(known, list) else []


def _fault(path: Path, known: list[str]) -> str | None:
    try:
        found = sha256_file(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if found in known else "is not what was written (its sha256 does not hold)"
