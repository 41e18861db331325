"""The records of one run on disk: live JSONL, sealed Parquet, `run.json`. One folder a run.

    run.json             what the run is and how it stands (`RunRecord`), replaced atomically
    metrics.jsonl        one {"step", "metric", "value"} a line while the run lives
    checkpoint.safetensors   where a killed run is taken up again; gone once sealed
    metrics.parquet      the sealed metrics; its sha256 is in run.json and in the ledger
    weights.safetensors  the final weights

A JSONL killed while writing keeps all its whole lines; an open Parquet file would lose everything. So the
live form is JSONL, cut back to the checkpoint's step on resume, and the sealed form is written once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ablate.records.run_record import RunRecord
from prereg.canon import sha256_bytes, sha256_file
from prereg.disk import write_whole
from prereg.errors import EvidenceError
from prereg.metrics import METRICS


@dataclass(frozen=True)
class Row:
    """One number."""

    step: int
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
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoint.safetensors"

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

    def write_record(self, record: RunRecord) -> None:
        """Replace `run.json`."""
        write_whole(self.record_path, record.model_dump_json(indent=2).encode() + b"\n")

    def append(self, rows: Iterable[Row], *, durable: bool = False) -> None:
        """Add live rows. A value that is not finite is refused: it is an outcome, not a number."""
        lines = []
        for row in rows:
            assert math.isfinite(row.value), row
            lines.append(json.dumps({"step": row.step, "metric": row.metric, "value": row.value}))
        with self.live_path.open("a", encoding="utf-8") as stream:
            stream.write("".join(line + "\n" for line in lines))
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

    def cut_back(self, step: int) -> None:
        """Forget live rows after a step, so that what is repeated is not recorded twice."""
        kept = [row for row in self.rows() if row.step <= step]
        lines = "".join(json.dumps({"step": r.step, "metric": r.metric, "value": r.value}) + "\n" for r in kept)
        write_whole(self.live_path, lines.encode())

    def clear(self) -> None:
        """Back to before the first step."""
        # The checkpoint first: one without the rows it vouches for must not survive a crash in between.
        for path in (self.checkpoint_path, self.live_path, self.sealed_path, self.weights_path):
            path.unlink(missing_ok=True)

    def seal(self, record: RunRecord, weights: bytes) -> RunRecord:
        """Write the sealed form, then the record that vouches for it, then drop the live form."""
        rows = self.rows()
        data = parquet_bytes(record, rows)
        write_whole(self.weights_path, weights)
        write_whole(self.sealed_path, data)
        sealed = record.model_copy(update={"metrics_sha256": sha256_bytes(data), "outcome_sha256": outcome_hash(rows)})
        self.write_record(sealed)
        self.checkpoint_path.unlink(missing_ok=True)
        self.live_path.unlink(missing_ok=True)
        return sealed

    def faults(self, record: RunRecord) -> list[str]:
        """What does not match the record's seals, one sentence each."""
        if record.status not in ("done", "diverged"):
            return []
        if not self.sealed_path.is_file():
            return [f"{self.sealed_path} is missing"]
        if sha256_file(self.sealed_path) != record.metrics_sha256:
            return [f"{self.sealed_path} is not what run.json sealed"]
        return []

    def is_sealed(self) -> bool:
        """Whether the run has ended and its seals hold."""
        record = self.read_record()
        return record is not None and record.status in ("done", "diverged") and not self.faults(record)


def parquet_bytes(record: RunRecord, rows: list[Row]) -> bytes:
    """The sealed form of a run's rows: an explicit schema with plain strings, so that files can be read together."""
    # Reading a thousand run.json files must not cost the import of Arrow.
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "study": pa.array([record.study] * len(rows), pa.string()),
        "registration": pa.array([record.registration] * len(rows), pa.string()),
        "variant": pa.array([record.variant] * len(rows), pa.string()),
        "seed": pa.array([record.seed] * len(rows), pa.int64()),
        "step": pa.array([row.step for row in rows], pa.int64()),
        "metric": pa.array([row.metric for row in rows], pa.string()),
        "value": pa.array([row.value for row in rows], pa.float64()),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def outcome_hash(rows: Iterable[Row]) -> str:
    """sha256 over the repeatable metrics, every bit of every value: timings are left out."""
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda r: (r.step, r.metric)):
        metric = METRICS.get(row.metric)
        if metric is None or metric.repeatable:
            digest.update(f"{row.step}\t{row.metric}\t{row.value.hex()}\n".encode())
    return digest.hexdigest()


def rows_of(step: int, values: Mapping[str, float]) -> list[Row]:
    """Metrics of one step as rows; values that are not finite are left out (the status tells of them)."""
    return [Row(step, metric, value) for metric, value in values.items() if math.isfinite(value)]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
