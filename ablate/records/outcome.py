"""The outcome of a run in one hash, from its rows or from its sealed tables: every bit of every repeatable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.records.parquet import TableError, read_parquet
from ablate.records.run_record import RunRecord
from prereg.metrics.catalogue import METRICS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ablate.records.rows import Row
    from ablate.records.store import ItemScore

ITEM_TEXTS = ("task", "item", "item_sha256", "metric")
"""What an item is known by, and what was scored."""
_WHOSE = {"variant": "string", "seed": "int64"}
OF_METRICS = _WHOSE | {"step": "int64", "metric": "string", "value": "double"}
OF_ITEMS = _WHOSE | dict.fromkeys(ITEM_TEXTS, "string") | {"value": "double"}
"""The columns that an outcome is derived from, and their types."""
MEANS_OF_COLUMNS: Mapping[str, str] = {
    "study": "the study's id",
    "registration": "sha256 of the registration",
    "variant": "the arm",
    "seed": "the seed",
    "step": "optimiser steps before the value was measured",
    "metric": "the metric",
    "value": "its value; always finite",
    "task": "the task of the item",
    "item": "the item's id within its task",
    "item_sha256": "sha256 of the item's text",
}
"""The columns of the sealed tables, for the documentation."""
ROWS_AT_ONCE = 1 << 16
_VERSION = b"outcome 1\n"
"""What is hashed first: another way to write values down would be another version."""


def outcome_hash(rows: Iterable[Row], items: Iterable[ItemScore] = ()) -> str:
    """sha256 over the repeatable metrics and the items, every bit of every value: timings are left out."""
    digest = hashlib.sha256(_VERSION)
    for row in sorted(rows, key=lambda r: (r.step, r.metric)):
        if is_repeatable(row.metric):
            digest.update(f"{row.step}\t{row.metric}\t{row.value.hex()}\n".encode())
    for one in sorted(items, key=lambda i: (i.metric, i.task, i.item)):
        identity = json.dumps([one.metric, one.task, one.item, one.item_sha256])
        digest.update(f"{identity}\t{one.value.hex()}\n".encode())
    return digest.hexdigest()


def is_repeatable(name: str) -> bool:
    """Whether a run made again has the same values of a metric; of one that is not ours, it has to."""
    metric = METRICS.get(name)
    return metric is None or metric.repeatable


def outcome_of_tables(metrics: pa.Table, items: pa.Table | None = None) -> str:
    """`outcome_hash` of sealed tables, some million rows a second. Raises `ValueError` for cells that hold nothing.

    A table is sorted by position and written out in slices, so that no more than the slices' text is in memory.
    """
    digest = hashlib.sha256(_VERSION)
    for lines in (_metric_lines(metrics), () if items is None else _item_lines(items)):
        for part in lines:
            digest.update(part)
    return digest.hexdigest()


def _metric_lines(table: pa.Table) -> Iterator[memoryview]:
    """The lines that `outcome_hash` takes of metrics: STEP, METRIC, VALUE."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    ranks, names = _ranked(table["metric"])
    steps, values = (_plain(table[name]) for name in ("step", "value"))
    order = np.lexsort((ranks, steps))
    kept = np.array([is_repeatable(name) for name in names], dtype=bool)
    if not kept.all():
        order = order[kept[ranks[order]]]
    texts = pa.array([f"\t{name}\t" for name in names], pa.string())
    for part in _slices(order, longest=max(map(len, names), default=0)):
        step = pc.cast(pa.array(steps[part]), pa.string())
        yield _joined(step, texts.take(pa.array(ranks[part])), _hex_lines(values[part]))


def _item_lines(table: pa.Table) -> Iterator[memoryview]:
    """The lines that `outcome_hash` takes of items: the identity as JSON, VALUE."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [_ranked(table[name]) for name in ("metric", "task", "item", "item_sha256")]
    values = _plain(table["value"])
    order = np.lexsort([ranks for ranks, _ in reversed(columns[:3])])
    # As JSON, each text once: names of metrics and tasks are few, and those of items come under every metric.
    written = [pa.array([json.dumps(text) for text in texts], pa.string()) for _, texts in columns]
    longest = sum(max((len(text) for text in texts), default=0) for _, texts in columns)
    for part in _slices(order, longest=6 * longest):
        taken = [texts.take(pa.array(ranks[part])) for (ranks, _), texts in zip(columns, written, strict=True)]
        identity = pc.binary_join_element_wise(*taken, ", ")
        yield _joined("[", identity, "]\t", _hex_lines(values[part]))


def _ranked(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Texts as numbers into the list of them, each once and in order: a dictionary may hold one twice, and in any."""
    import numpy as np

    codes, texts = _coded(column)
    rank_of = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    return np.array([rank_of[text] for text in texts], dtype=np.int64)[codes], list(rank_of)


def _coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Texts as numbers into a list of them. Raises `ValueError` for a cell without one."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    found = column.unify_dictionaries().combine_chunks()
    texts = found.dictionary.to_pylist()
    if found.null_count or any(not isinstance(text, str) for text in texts):
        raise ValueError("a cell holds no text")
    return found.indices.to_numpy(), texts


def _plain(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers of a column. Raises `ValueError` for a cell without one."""
    if column.null_count:
        raise ValueError("a cell holds no number")
    numbers: np.ndarray = column.to_numpy()
    return numbers


def _slices(order: np.ndarray, *, longest: int) -> Iterator[np.ndarray]:
    """Positions in order, so many at once that their text takes some megabytes, however long a name is."""
    at_once = max(1, min(ROWS_AT_ONCE, (1 << 26) // (longest + 64)))
    for start in range(0, len(order), at_once):
        yield order[start : start + at_once]


def _joined(*parts: pa.Array | str) -> memoryview:
    """The bytes of arrays of text, joined row by row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    joined = pc.binary_join_element_wise(*parts, "")
    _, offsets, data = joined.buffers()
    ends = memoryview(offsets).cast("i")
    assert pa.types.is_string(joined.type) and joined.offset == 0, joined.type
    return memoryview(data)[: ends[len(joined)]]


def _hex_lines(values: np.ndarray) -> pa.Array:
    """`float.hex` of every value, with a line's end: sign, 0x1., thirteen digits, p, exponent; or 0x0.0p+0, inf, nan.

    The parts of a value lie in eight words of four bytes, filled up with zero bytes, which are taken out at the end.
    """
    import numpy as np
    import pyarrow as pa

    table = _hex_tables()
    bits = np.ascontiguousarray(values, dtype="<f8").view("<u8")
    quarters = bits.view("<u2").reshape(-1, 4)
    negative, exponents = bits >> np.uint64(63), (quarters[:, 3] >> 4) & 0x7FF
    words = np.empty((len(bits), 8), dtype="<u4")
    words[:, 0] = negative * np.uint64(ord("-"))
    words[:, 1] = table.heads[exponents]
    words[:, 2] = table.one[quarters[:, 3] & 0xF]
    for at, quarter in ((3, 2), (4, 1), (5, 0)):
        words[:, at] = table.four[quarters[:, quarter]]
    words.view("<u8")[:, 3] = table.ends[exponents]
    lengths = table.lengths[exponents] + negative.astype(np.int32)
    for text, special in ((b"0x0.0p+0\n", values == 0), (b"inf\n", np.isinf(values)), (b"nan\n", np.isnan(values))):
        if special.any():
            words[special, 1:] = np.frombuffer(text.ljust(28, b"\0"), dtype="<u4")
            signed = negative[special] if text != b"nan\n" else 0  # that of what is no number is not written
            words[special, 0] = signed * np.uint64(ord("-"))
            lengths[special] = len(text) + signed
    offsets = np.zeros(len(bits) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = words.tobytes().translate(None, b"\0")
    assert len(data) == offsets[-1], (len(data), offsets[-1])
    return pa.Array.from_buffers(pa.string(), len(bits), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@dataclass(frozen=True)
class _HexTables:
    """Parts of a value's text, by its bits."""

    one: np.ndarray
    """The digit of four bits."""
    four: np.ndarray
    """The digits of sixteen bits."""
    heads: np.ndarray
    """What comes before the digits, by exponent."""
    ends: np.ndarray
    """What comes after them, by exponent."""
    lengths: np.ndarray
    """Characters of a value without its sign, by exponent."""


@cache
def _hex_tables() -> _HexTables:
    import numpy as np

    # A biased exponent of 0 is that of subnormal numbers: -1022, like the smallest of the others.
    ends = [b"p%+d\n" % (max(biased, 1) - 1023) for biased in range(1 << 11)]
    return _HexTables(
        one=np.frombuffer(b"".join(b"%x\0\0\0" % number for number in range(1 << 4)), dtype="<u4"),
        four=np.frombuffer(b"".join(b"%04x" % number for number in range(1 << 16)), dtype="<u4"),
        heads=np.frombuffer(b"0x0." + b"0x1." * (len(ends) - 1), dtype="<u4"),
        ends=np.frombuffer(b"".join(end.ljust(8, b"\0") for end in ends), dtype="<u8"),
        lengths=np.array([4 + 13 + len(end) for end in ends], dtype=np.int32),
    )


def sealed_table(path: Path, kinds: Mapping[str, str]) -> pa.Table:
    """Columns of a sealed table, in their types. Raises `TableError` for what is no such table, or too large a one."""
    import pyarrow as pa

    table = read_parquet(path, list(kinds))
    for name, kind in kinds.items():
        field = table.schema.field(name).type
        plain = field.value_type if pa.types.is_dictionary(field) else field
        if str(plain) != kind:
            raise TableError(f"holds {plain} in column {name}, and not {kind}")
    return table


def own_rows(path: Path, record: RunRecord, kinds: Mapping[str, str]) -> pa.Table:
    """A sealed table of a run. Raises `TableError` where rows are of another run: a forged seal can say anything."""
    import numpy as np

    table = sealed_table(path, kinds)
    for name in kinds.keys() & {"study", "registration", "variant", "seed"}:
        # Texts that the column names, whether or not a row has them: a file of ours names one.
        own = getattr(record, name)
        values = _plain(table[name]) if name == "seed" else np.array(_coded(table[name])[1])
        for other in values[values != own][:1].tolist():
            raise TableError(f"holds rows of another run: {name} {other!a:.70} in the record of {own!a:.70}")
    if "step" in kinds and len(table) and _plain(table["step"]).max() > record.steps:
        # Otherwise an earlier step could be named the last one, at which the claims read.
        raise TableError(f"holds rows after step {record.steps}, the run's last")
    return table
