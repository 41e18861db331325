"""Checkpoints, from which a run is resumed: two generations; and `metrics.jsonl`, hashed as it is written.

    metrics.jsonl                     one {"step", "metric", "value"} a line
    checkpoint.safetensors            the newest
    checkpoint.previous.safetensors   the one before, kept until the next is safely on disk
    checkpoints.json                  sha256 of every file that may be there, written before the file itself

However a writer is killed, and wherever, one whole checkpoint is left, and a file that is not what was written shows.
A checkpoint holds the length and the hash of the rows that it goes with (`ablate.gpt.trainer.TrainerState`); what else
is in it is the trainer's business, and here it is bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ablate.records.rows import Row, read_rows
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.disk import move, write_whole

_REMEMBERED = 3
"""Hashes that are kept: of both files, and of one that a killed writer announced and never moved to its place."""


class LiveRows:
    """The file of metrics, as one process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_bytes = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of the rows as this object wrote them, from the first or from where the file was cut back."""
        return self._digest.hexdigest()

    def append(self, rows: Iterable[Row], *, durable: bool = False) -> None:
        """Add rows. A value that is not finite is refused: it is an outcome, not a number."""
        lines = []
        for row in rows:
            # JSON has no NaN, and Python would write one that no other reader takes.
            assert math.isfinite(row.value), row
            lines.append(json.dumps({"step": row.step, "metric": row.metric, "value": row.value}) + "\n")
        data = "".join(lines).encode()
        try:
            with self.path.open("ab") as stream:
                stream.write(data)
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None  # a failed write names no file
        self.n_bytes += len(data)
        self._digest.update(data)

    def fault(self, n_bytes: int, sha256: str) -> str | None:
        """Why the first bytes of the file are not those with this length and hash; none where they are."""
        data = self._first(n_bytes)
        if len(data) < n_bytes:
            return f"{self.path.name} has {len(data):,} of the {n_bytes:,} bytes that were written"
        if sha256_bytes(data) != sha256:
            return f"{self.path.name} is not what was written (its sha256 does not hold)"
        return None

    def cut_back(self, n_bytes: int) -> None:
        """Forget rows after so many bytes, so that what is repeated is not recorded twice."""
        data = self._first(n_bytes)
        # A new file moved into place: a writer killed here leaves the old rows or the cut ones, never half of them.
        write_whole(self.path, data)
        self.n_bytes, self._digest = len(data), hashlib.sha256(data)

    def clear(self) -> None:
        """Back to before the first row."""
        self.path.unlink(missing_ok=True)
        self.n_bytes, self._digest = 0, hashlib.sha256()

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """Step and value of every row of a metric."""
        rows = read_rows(self.path) if self.path.exists() else []
        return [(row.step, row.value) for row in rows if row.metric == metric]

    def _first(self, n_bytes: int) -> bytes:
        try:
            with self.path.open("rb") as stream:
                return stream.read(n_bytes)
        except FileNotFoundError:
            return b""


@dataclass(frozen=True)
class Generation:
    """One checkpoint file."""

    path: Path
    """Its path, whether or not it exists."""

    fault: str | None
    """Why it cannot be used; none where its bytes are those that were written."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a run's directory."""

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
        hashes = [sha256_bytes(data), *self._hashes_on_file()][:_REMEMBERED]
        # Announced before it is written: a file that a killed writer has moved to its place is then believed,
        # and one that it has not is only a hash too many.
        write_whole(self.hashes, json.dumps({"sha256": hashes}).encode() + b"\n")
        # Three on disk for a moment: both old ones stay until the new one is whole.
        write_whole(self.newest, data, earlier=self.previous)

    def generations(self) -> Iterator[Generation]:
        """The checkpoints that exist, the newest first, each with its fault. Empty where none was written."""
        if not self.exist():
            return
        hashes = self._hashes_on_file()
        for path in (self.newest, self.previous):
            yield Generation(path, _fault(path, hashes))

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

    def _hashes_on_file(self) -> list[str]:
        """The hashes on file; none where the file is gone or damaged, and then no checkpoint is believed."""
        try:
            hashes = json.loads(self.hashes.read_bytes())["sha256"]
        # A damaged list costs time, as each run starts again; to believe a file without its hash would cost the
        # evidence.
        except (OSError, ValueError, KeyError, TypeError):
            return []
        return [sha256 for sha256 in hashes if isinstance(sha256, str)] if isinstance(hashes, list) else []


def _fault(path: Path, hashes: list[str]) -> str | None:
    try:
        sha256 = sha256_file(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if sha256 in hashes else "is not what was written (its sha256 does not hold)"
