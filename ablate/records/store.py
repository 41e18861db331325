"""Run folder (`RunFolder`), the records of one run on disk: written, sealed and read. One folder a run.

    run.json             what the run is and its status (`RunRecord`), replaced atomically
    metrics.parquet      the sealed metrics; its sha256 is in run.json and in the ledger
    items.parquet        the score of every item, where items were scored; its sha256 likewise
    weights.safetensors  the final weights, where the trainer left them
    work/                the trainer's own directory (docs/trainer-protocol.md)

A file of lines that is killed while it is written keeps all its whole lines; an open Parquet file would lose
everything. So a trainer writes lines, and the sealed form is written once.

run.json is written after the tables whose hashes it holds. A crash in between leaves tables that no record vouches for,
and never a record that vouches for tables that are not there. `RunFolder.seal` hashes the files; the hash over the
values alone, which two runs of the same bits share, is `outcome_hash` of `ablate.records.outcome`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ablate.records.outcome import (
    ITEM_TEXTS,
    OF_ITEMS,
    OF_METRICS,
    outcome_hash,
    outcome_of_tables,
    own_rows,
    sealed_table,
)
from ablate.records.parquet import TableError
from ablate.records.rows import Row
from ablate.records.run_record import RunRecord
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.disk import read_regular, write_in_turn, write_passing, write_whole

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_RECORD = 64 * 2**20
"""Bytes of a run.json that is read."""
_OF_RUN = ("study", "registration", "variant")
"""Fields of a run that every row of its tables carries, with the seed."""


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
    """The folder of one run and what may be done with it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     RunFolder(Path(folder)).read_record() is None
    True
    """

    path: Path

    @property
    def record_path(self) -> Path:
        return self.path / "run.json"

    @property
    def sealed_path(self) -> Path:
        return self.path / "metrics.parquet"

    @property
    def items_path(self) -> Path:
        return self.path / "items.parquet"

    @property
    def weights_path(self) -> Path:
        return self.path / "weights.safetensors"

    def read_record(self) -> RunRecord | None:
        """`run.json`, or none when the run has never begun. Raises `EvidenceError` where it is no run record."""
        try:
            return RunRecord.model_validate_json(read_regular(self.record_path, LARGEST_RECORD))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise EvidenceError(
                f"{self.record_path} is not a run record: {_first_line(error)}",
                required="the file as it was written",
                fix=f"restore it; or rm -r {self.path}   (the run is then made again)",
            ) from error

    def readable_record(self) -> RunRecord | None:
        """The same, and none when it cannot be read: for those who only want to add to what it says."""
        try:
            return self.read_record()
        except EvidenceError:
            return None

    def fail(self, error: str, at: str) -> None:
        """Record the run as failed, if it has a record. On a full disk the old one stays; the caller reports it."""
        # A run that failed before its first record has none to mark.
        record = self.readable_record()
        if record is not None:
            with suppress(OSError):
                self.write_record(record.model_copy(update={"status": "failed", "error": error, "ended_at": at}))

    def write_record(
        self, record: RunRecord, *, durable: bool = True, before: Callable[[], None] = lambda: None
    ) -> None:
        """Replace `run.json`, by a rename: a reader finds the old one or the new one, whole.

        Not `durable`: not synced to the disk either, for what is written every few seconds and may be lost with power.
        `before` is called when the disk has the bytes of the new one, before it takes the place of the old one.
        """
        write = write_whole if durable else write_passing
        write(self.record_path, record_bytes(record), before=before)

    def sealed_rows(self) -> list[Row]:
        """The rows that were sealed, in their order. Raises `EvidenceError` where the table cannot be read."""
        return [Row(*cells) for cells in _cells(self.sealed_path, OF_METRICS, ("step", "metric", "value"))]

    def sealed_items(self) -> list[ItemScore]:
        """The scores of items that were sealed; none where no item was scored."""
        if not self.items_path.is_file():
            return []
        return [ItemScore(*cells) for cells in _cells(self.items_path, OF_ITEMS, (*ITEM_TEXTS, "value"))]

    def clear(self) -> None:
        """Back to before the first step."""
        for path in (self.sealed_path, self.items_path, self.weights_path):
            path.unlink(missing_ok=True)

    def seal(self, record: RunRecord, rows: list[Row], items: Sequence[ItemScore] = ()) -> RunRecord:
        """Write the tables of a run that has ended, then the record that vouches for them. Returns that record.

        `record` has its final status and no hashes yet. Raises `OSError` on a full disk; the run is then not sealed.
        """
        # 1. The bytes in memory, and their hashes.
        data = parquet_bytes(record, rows)
        scored = items_bytes(record, items) if items else None
        sealed = record.model_copy(
            update={
                "metrics_sha256": sha256_bytes(data),
                "items_sha256": None if scored is None else sha256_bytes(scored),
                "outcome_sha256": outcome_hash(rows, items),
            }
        )
        if scored is None:  # of an earlier attempt: a table that the record does not seal is a fault
            self.items_path.unlink(missing_ok=True)
        # 2. On the disk, the record last: it vouches for files that must be there before it.
        tables = [(self.items_path, scored)] if scored is not None else []
        write_in_turn([*tables, (self.sealed_path, data), (self.record_path, record_bytes(sealed))])
        return sealed

    def faults(self, record: RunRecord) -> list[str]:
        """What does not match the record's seals, one sentence each; of a run that has not ended nothing is sealed."""
        if record.status not in ("done", "diverged"):
            return []
        wrong = []
        # By the bytes of the files alone, which is cheap; what the values give is for `outcome_faults`.
        for path, seal in ((self.sealed_path, record.metrics_sha256), (self.items_path, record.items_sha256)):
            if seal is None and path == self.items_path:
                wrong += [f"{path} is there and run.json seals no items"] if path.exists() else []
            elif not path.is_file():
                wrong.append(f"{path} is missing")
            elif sha256_file(path) != seal:
                wrong.append(f"{path} is not what run.json sealed")
        return wrong

    def outcome_faults(self, record: RunRecord) -> list[str]:
        """Whether the sealed tables hold another run's rows, or other values than `outcome_sha256` says; at most one.

        The values are read and hashed again, for a record whose seals match (`faults`): those are hashes of files, and
        anyone who writes a file can write its hash.
        """
        metrics = self.read_metrics(record)
        return [metrics] if isinstance(metrics, str) else []

    def read_metrics(self, record: RunRecord, kinds: Mapping[str, str] = OF_METRICS) -> pa.Table | str:
        """The sealed metrics, or the fault that `outcome_faults` finds in the sealed tables."""
        import pyarrow as pa

        path = self.sealed_path  # the table that is being read, for the message
        try:
            metrics = own_rows(path, record, kinds)
            items = None
            if record.items_sha256 is not None:
                path = self.items_path
                items = own_rows(path, record, OF_ITEMS)
            # From the values that were just read, and not from the file again: what is judged is what was
            # hashed.
            derived = outcome_of_tables(metrics, items)
        except TableError as error:
            return f"{path} {error}"
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            return f"{path} cannot be read as the table of this run: {_first_line(error)}"
        if derived != record.outcome_sha256:
            claimed = str(record.outcome_sha256)[:8]
            return f"the values in {self.sealed_path} have the outcome {derived[:8]}, and run.json says {claimed}"
        return metrics

    def is_sealed(self) -> bool:
        """Whether the run has ended and its seals hold."""
        record = self.read_record()
        return record is not None and record.status in ("done", "diverged") and not self.faults(record)


def _cells(path: Path, kinds: Mapping[str, str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a sealed table. Raises `EvidenceError` where it is none."""
    try:
        table = sealed_table(path, {name: kinds[name] for name in columns})
    except TableError as error:
        raise EvidenceError(f"{path} {error}", required="the table that was sealed") from None
    return zip(*(table[name].to_pylist() for name in columns), strict=True)


def record_bytes(record: RunRecord) -> bytes:
    """The bytes of run.json."""
    return record.model_dump_json(indent=2).encode() + b"\n"


def parquet_bytes(record: RunRecord, rows: list[Row]) -> bytes:
    """The sealed form of a run's rows: an explicit schema with plain strings, so that files can be read together."""
    # Reading a thousand run.json files must not cost the import of Arrow.
    import pyarrow as pa

    return _written(
        _columns_of_run(record, len(rows))
        | {
            "step": _column(pa.int64(), [row.step for row in rows]),
            "metric": _column(pa.string(), [row.metric for row in rows]),
            "value": _column(pa.float64(), [row.value for row in rows]),
        }
    )


def items_bytes(record: RunRecord, items: Sequence[ItemScore]) -> bytes:
    """The sealed form of a run's items, likewise. An item scored twice, or without a finite score, is our own bug."""
    import pyarrow as pa

    # `read_items` refuses both in a trainer's file, so that none can get here.
    twice = [key for key, n in Counter((score.metric, score.task, score.item) for score in items).items() if n > 1]
    assert not twice, twice[:5]
    assert all(math.isfinite(score.value) for score in items), [
        score for score in items if not math.isfinite(score.value)
    ][:5]
    texts = {name: _column(pa.string(), [getattr(score, name) for score in items]) for name in ITEM_TEXTS}
    values = {"value": _column(pa.float64(), [score.value for score in items])}
    return _written(_columns_of_run(record, len(items)) | texts | values)


def _columns_of_run(record: RunRecord, n_rows: int) -> dict[str, pa.Array]:
    """Whose rows they are, on every row."""
    import pyarrow as pa

    texts = {name: _column(pa.string(), [getattr(record, name)] * n_rows) for name in _OF_RUN}
    return texts | {"seed": _column(pa.int64(), [record.seed] * n_rows)}


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """An array without nulls, as `pa.array` makes it: that imports pandas first, half of a worker's start."""
    import numpy as np
    import pyarrow as pa

    if kind != pa.string():
        data = np.array(values, kind.to_pandas_dtype())
        # Buffers: validity (None: no nulls), then the data.
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(data)])
    texts = [text.encode() for text in values]
    # Arrow's layout of texts: offsets of 32 bits into one buffer, one more of them than there are texts.
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def _written(columns: dict[str, pa.Array]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # In memory, because its hash goes into run.json: what is hashed is what is written, whatever happens to the file.
    sink = pa.BufferOutputStream()
    # Nothing of pandas and no time in it: equal rows give equal bytes, by one version of Arrow.
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def rows_at_step(step: int, values: Mapping[str, float]) -> list[Row]:
    """Metrics of one step as rows; values that are not finite are left out (the status says so).

    >>> rows_at_step(10, {"val/loss": 2.5, "train/loss": float("nan")})
    [Row(step=10, metric='val/loss', value=2.5)]
    """
    return [Row(step, metric, value) for metric, value in values.items() if math.isfinite(value)]


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
    return str(error).splitlines()[0]
