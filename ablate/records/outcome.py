"""Outcome hash of a run, from its rows or from its sealed tables: every bit of every repeatable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
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
_VERSION = b"outcome 1\n"
"""What is hashed first: another way to write values down would be another version."""


def outcome_hash(rows: Iterable[Row], items: Iterable[ItemScore] = ()) -> str:
    """sha256 over the repeatable metrics and the items, every bit of every value: timings are left out.

    Metrics by name: [name, number of values] as a line of JSON, the steps in order as 64-bit integers, the values as
    doubles. Then, where there are items, their metrics, tasks, names and hashes, a JSON list on a line each, and their
    scores, by metric, task and name. All numbers are little-endian. The order of the rows makes no difference.

        >>> from ablate.records.rows import Row
        >>> rows = [Row(1, "val/loss", 2.5), Row(2, "val/loss", 2.25)]
        >>> outcome_hash(rows) == outcome_hash(reversed(rows))
        True
        >>> outcome_hash(rows)[:8]
        '2613372f'
    """
    import numpy as np

    rows, items = list(rows), list(items)
    steps, values = np.array([row.step for row in rows], np.int64), np.array([row.value for row in rows], np.float64)
    # Each row is its own code here; `ranked` then gives equal texts the same rank.
    columns = [ranked(np.arange(len(items)), [getattr(item, name) for item in items]) for name in _ITEM_ORDER]
    metrics = ranked(np.arange(len(rows)), [row.metric for row in rows])
    scores = np.array([item.value for item in items], np.float64)
    return _hashed(metrics, steps, values, columns, scores)


def is_repeatable(name: str) -> bool:
    """Whether a run made again has the same values of a metric; of one that is not ours, it has to.

    >>> is_repeatable("val/loss"), is_repeatable("speed/tokens_per_s"), is_repeatable("my/score")
    (True, False, True)
    """
    metric = METRICS.get(name)
    return metric is None or metric.repeatable


def outcome_of_tables(metrics: pa.Table, items: pa.Table | None = None) -> str:
    """`outcome_hash` of sealed tables. Raises `ValueError` for cells that hold nothing."""
    columns, scores = [], None
    if items is not None:
        columns, scores = [ranked(*coded(items[name])) for name in _ITEM_ORDER], numbers(items["value"])
    steps, values = numbers(metrics["step"]), numbers(metrics["value"])
    return _hashed(ranked(*coded(metrics["metric"])), steps, values, columns, scores)


_ITEM_ORDER = ("metric", "task", "item", "item_sha256")
Ranked = tuple["np.ndarray", list[str]]
"""Texts as numbers into the list of them, each once and in order."""


def _hashed(
    metric: Ranked, steps: np.ndarray, values: np.ndarray, columns: Sequence[Ranked], scores: np.ndarray | None
) -> str:
    import numpy as np

    # Explicit dtypes: the platform's own integers and byte order would make a hash of this machine.
    digest = hashlib.sha256(_VERSION)
    # 1. Metrics in the order of their names, steps rising. lexsort sorts by its last key first.
    ranks, names = metric
    order = np.lexsort((steps, ranks))
    ends = np.searchsorted(ranks[order], np.arange(len(names)), side="right")
    for name, part in zip(names, np.split(order, ends), strict=False):
        if is_repeatable(name) and len(part):
            digest.update(json.dumps([name, len(part)]).encode() + b"\n")
            digest.update(steps[part].astype("<i8").tobytes())
            digest.update(values[part].astype("<f8").tobytes())
    # A run without items and one with an empty table hash alike: neither has a score.
    # 2. Items by metric, task and name; their hashes are hashed too, and do not take part in the order.
    if scores is not None and len(scores):
        order = np.lexsort([ranks for ranks, _ in reversed(columns[:3])])
        for ranks, texts in columns:
            digest.update(json.dumps([texts[rank] for rank in ranks[order].tolist()]).encode() + b"\n")
        digest.update(scores[order].astype("<f8").tobytes())
    return digest.hexdigest()


def ranked(codes: np.ndarray, texts: Sequence[str]) -> Ranked:
    """Codes into texts, of which one may be there twice, and in any order, as ranks.

    >>> import numpy as np
    >>> ranked(np.array([0, 2, 1, 0]), ["loss", "accuracy", "loss"])
    (array([1, 1, 0, 1]), ['accuracy', 'loss'])
    """
    import numpy as np

    # Ranks and not the codes that came: those follow the order of rows, which differs between equal runs.
    rank_of = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    # Sorted by code point, which is the same everywhere, unlike a collation.
    return np.array([rank_of[text] for text in texts], np.int64)[codes], list(rank_of)


def coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Texts as numbers into a list of them. Raises `ValueError` for a cell without one.

    >>> import pyarrow as pa
    >>> coded(pa.chunked_array([["loss", "accuracy"], ["loss"]]))
    (array([0, 1, 0], dtype=int32), ['loss', 'accuracy'])
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    # Chunks have dictionaries of their own, and the same code may mean two texts until they are one.
    encoded = column.unify_dictionaries().combine_chunks()
    texts = encoded.dictionary.to_pylist()
    if encoded.null_count or any(not isinstance(text, str) for text in texts):
        raise ValueError("a cell holds no text")
    return encoded.indices.to_numpy(), texts


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Numbers of a column. Raises `ValueError` for a cell without one.

    >>> import pyarrow as pa
    >>> numbers(pa.chunked_array([[1.0, 2.0], [3.0]]))
    array([1., 2., 3.])
    """
    if column.null_count:
        raise ValueError("a cell holds no number")
    numbers: np.ndarray = column.to_numpy()
    return numbers


def sealed_table(path: Path, kinds: Mapping[str, str]) -> pa.Table:
    """Columns of a sealed table, in their types. Raises `TableError` for what is no such table, or too large a one."""
    import pyarrow as pa

    # Types are compared and never cast: a value that went through float32 would be another outcome.
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
        # The distinct texts of a column are few; comparing them is enough and does not look at every row.
        values = numbers(table[name]) if name == "seed" else np.array(coded(table[name])[1])
        for foreign in values[values != own][:1].tolist():
            raise TableError(f"holds rows of another run: {name} {foreign!a:.70} in the record of {own!a:.70}")
    if "step" in kinds and len(table) and numbers(table["step"]).max() > record.steps:
        # Otherwise an earlier step could be named the last one, at which the claims read.
        raise TableError(f"holds rows after step {record.steps}, the run's last")
    return table
