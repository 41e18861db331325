"""The records of one run on disk: live JSONL, sealed Parquet, `run.json`. One folder a run.

    run.json             what the run is and how it stands (`RunRecord`), replaced atomically
    metrics.jsonl        one {"step", "metric", "value"} a line while the run lives
    checkpoint.safetensors   where a killed run is taken up again, in two generations (`ablate.records.checkpoints`);
                         gone once sealed
    metrics.parquet      the sealed metrics; its sha256 is in run.json and in the ledger
    items.parquet        the score of every item, where items were scored; its sha256 likewise
    weights.safetensors  the final weights

A JSONL killed while writing keeps all its whole lines; an open Parquet file would lose everything. So the
live form is JSONL, cut back to the checkpoint's step on resume, and the sealed form is written once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ablate.records.checkpoints import Checkpoints
from ablate.records.run_record import RunRecord
from prereg.canon import sha256_bytes, sha256_file
from prereg.disk import write_whole
from prereg.errors import EvidenceError
from prereg.metrics import METRICS

if TYPE_CHECKING:
    import pyarrow as pa

_OF_RUN = ("study", "registration", "variant")
"""Fields of a run that every row of its tables carries, with the seed."""


@dataclass(frozen=True)
class Row:
    """One number."""

    step: int
    metric: str
    value: float


@dataclass(frozen=True)
class ItemScore:
    """The score of one item at the end of a run. An item is known by its task, its id and the hash of its text."""

    task: str
    item: str
    item_sha256: str
    metric: str
    value: float


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run and what may be done with it."""

    path: Path

    @property
    def record_path(self) -> Path:
        return self.path / "run.json"

    @property
    def live_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def sealed_path(self) -> Path:
        return self.path / "metrics.parquet"

    @property
    def items_path(self) -> Path:
        return self.path / "items.parquet"

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path)

    @property
    def checkpoint_path(self) -> Path:
        return self.checkpoints.newest

    @property
    def weights_path(self) -> Path:
        return self.path / "weights.safetensors"

    def read_record(self) -> RunRecord | None:
        """`run.json`, or none when the run has never begun."""
        try:
            return RunRecord.model_validate_json(self.record_path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise EvidenceError(
                f"{self.record_path} is not a run record: {_first_line(error)}",
                required="what the trainer wrote",
                fix=f"rm -r {self.path}   (the run is then made again)",
            ) from error

    def readable_record(self) -> RunRecord | None:
        """The same, and none when it cannot be read: for those who only want to add to what it says."""
        try:
            return self.read_record()
        except EvidenceError:
            return None

    def fail(self, error: str, at: str) -> None:
        """Record the run as failed, if it has a record. On a full disk the old one stays; the caller tells it."""
        record = self.readable_record()
        if record is not None:
            with suppress(OSError):
                self.write_record(record.model_copy(update={"status": "failed", "error": error, "ended_at": at}))

    def write_record(self, record: RunRecord) -> None:
        """Replace `run.json`."""
        write_whole(self.record_path, record.model_dump_json(indent=2).encode() + b"\n")

    def append(self, rows: Iterable[Row], *, durable: bool = False) -> None:
        """Add live rows. A value that is not finite is refused: it is an outcome, not a number."""
        lines = _lines(rows)
        with self.live_path.open("a", encoding="utf-8") as stream:
            stream.write(lines)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())

    def rows(self) -> list[Row]:
        """Live rows; an unterminated last line is what a crash leaves, and is dropped."""
        try:
            text = self.live_path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        whole = text[: text.rfind("\n") + 1]
        try:
            return [
                Row(int(d["step"]), str(d["metric"]), float(d["value"])) for d in map(json.loads, whole.splitlines())
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise EvidenceError(
                f"{self.live_path} is damaged: {error}",
                required="one JSON object a line",
                fix=f"rm -r {self.path}   (the run is then made again)",
            ) from error

    def sealed_rows(self) -> list[Row]:
        """The rows that were sealed, in their order."""
        import pyarrow.parquet as pq

        table = pq.read_table(self.sealed_path, columns=["step", "metric", "value"]).to_pydict()
        return [
            Row(int(step), str(metric), float(value))
            for step, metric, value in zip(table["step"], table["metric"], table["value"], strict=True)
        ]

    def cut_back(self, step: int) -> None:
        """Forget live rows after a step, so that what is repeated is not recorded twice."""
        write_whole(self.live_path, _lines(row for row in self.rows() if row.step <= step).encode())

    def forget(self, prefix: str) -> None:
        """Forget live rows of some metrics, before they are recorded again."""
        rows = self.rows()
        kept = [row for row in rows if not row.metric.startswith(prefix)]
        if len(kept) < len(rows):
            write_whole(self.live_path, _lines(kept).encode())

    def clear(self) -> None:
        """Back to before the first step."""
        # Checkpoints first: one without the rows it vouches for must not survive a crash in between.
        self.checkpoints.clear()
        for path in (self.live_path, self.sealed_path, self.items_path, self.weights_path):
            path.unlink(missing_ok=True)

    def seal(self, record: RunRecord, weights: bytes | None, items: Sequence[ItemScore] = ()) -> RunRecord:
        """Write the sealed form, then the record that vouches for it, then drop the live form.

        A user's own trainer keeps its weights itself, and gives none.
        """
        rows = self.rows()
        data = parquet_bytes(record, rows)
        scored = items_bytes(record, items) if items else None
        if weights is not None:
            write_whole(self.weights_path, weights)
        if scored is None:
            self.items_path.unlink(missing_ok=True)
        else:
            write_whole(self.items_path, scored)
        write_whole(self.sealed_path, data)
        sealed = record.model_copy(
            update={
                "metrics_sha256": sha256_bytes(data),
                "items_sha256": None if scored is None else sha256_bytes(scored),
                "weights_sha256": None if weights is None else sha256_bytes(weights),
                "outcome_sha256": outcome_hash(rows, items),
            }
        )
        self.write_record(sealed)
        self.checkpoints.clear()
        self.live_path.unlink(missing_ok=True)
        return sealed

    def faults(self, record: RunRecord) -> list[str]:
        """What does not match the record's seals, one sentence each."""
        if record.status not in ("done", "diverged"):
            return []
        wrong = []
        for path, seal in ((self.sealed_path, record.metrics_sha256), (self.items_path, record.items_sha256)):
            if seal is None and path == self.items_path:
                wrong += [f"{path} is there and run.json seals no items"] if path.exists() else []
            elif not path.is_file():
                wrong.append(f"{path} is missing")
            elif sha256_file(path) != seal:
                wrong.append(f"{path} is not what run.json sealed")
        return wrong

    def is_sealed(self) -> bool:
        """Whether the run has ended and its seals hold."""
        record = self.read_record()
        return record is not None and record.status in ("done", "diverged") and not self.faults(record)


def parquet_bytes(record: RunRecord, rows: list[Row]) -> bytes:
    """The sealed form of a run's rows: an explicit schema with plain strings, so that files can be read together."""
    # Reading a thousand run.json files must not cost the import of Arrow.
    import pyarrow as pa

    return _written(
        _columns_of_run(record, len(rows))
        | {
            "step": pa.array([row.step for row in rows], pa.int64()),
            "metric": pa.array([row.metric for row in rows], pa.string()),
            "value": pa.array([row.value for row in rows], pa.float64()),
        }
    )


def items_bytes(record: RunRecord, items: Sequence[ItemScore]) -> bytes:
    """The sealed form of a run's items, likewise. An item scored twice, or without a finite score, is our own bug."""
    import pyarrow as pa

    twice = [key for key, n in Counter((one.metric, one.task, one.item) for one in items).items() if n > 1]
    assert not twice, twice[:5]
    assert all(math.isfinite(one.value) for one in items), [one for one in items if not math.isfinite(one.value)][:5]
    texts = {
        name: pa.array([getattr(one, name) for one in items], pa.string())
        for name in ("task", "item", "item_sha256", "metric")
    }
    values = {"value": pa.array([one.value for one in items], pa.float64())}
    return _written(_columns_of_run(record, len(items)) | texts | values)


def _columns_of_run(record: RunRecord, n_rows: int) -> dict[str, pa.Array]:
    """Whose rows they are, on every row."""
    import pyarrow as pa

    texts = {name: pa.array([getattr(record, name)] * n_rows, pa.string()) for name in _OF_RUN}
    return texts | {"seed": pa.array([record.seed] * n_rows, pa.int64())}


def _written(columns: dict[str, pa.Array]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def outcome_hash(rows: Iterable[Row], items: Iterable[ItemScore] = ()) -> str:
    """sha256 over the repeatable metrics and the items, every bit of every value: timings are left out."""
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda r: (r.step, r.metric)):
        metric = METRICS.get(row.metric)
        if metric is None or metric.repeatable:
            digest.update(f"{row.step}\t{row.metric}\t{row.value.hex()}\n".encode())
    for one in sorted(items, key=lambda i: (i.metric, i.task, i.item)):
        identity = json.dumps([one.metric, one.task, one.item, one.item_sha256])
        digest.update(f"{identity}\t{one.value.hex()}\n".encode())
    return digest.hexdigest()


def rows_of(step: int, values: Mapping[str, float]) -> list[Row]:
    """Metrics of one step as rows; values that are not finite are left out (the status tells of them)."""
    return [Row(step, metric, value) for metric, value in values.items() if math.isfinite(value)]


def _lines(rows: Iterable[Row]) -> str:
    """Rows as JSON, one a line."""
    lines = []
    for row in rows:
        assert math.isfinite(row.value), row
        lines.append(json.dumps({"step": row.step, "metric": row.metric, "value": row.value}) + "\n")
    return "".join(lines)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
