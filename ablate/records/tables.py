"""Tidy rows of many runs from JSON lines, CSV or Parquet: variant, seed, step, metric, value, and nothing else.

As strict as `ablate.records.tidy`: every fault is named by its line, and nothing is repaired or guessed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

from ablate.records.bounded import TableError, open_bounded, rows_of_table
from ablate.records.store import Row
from ablate.records.tidy import (
    LineError,
    lines_of,
    metric_of,
    object_of,
    read_bytes,
    require_keys,
    step_of,
    value_of,
)
from prereg.errors import EvidenceError, Where
from prereg.registry.plan import Cell

MOST_ROWS = 2_000_000
"""Rows of one file of an import."""
FREE_ROWS = 200_000
"""Rows that it may hold however small it is; beyond, one a byte."""
COLUMNS = ("variant", "seed", "step", "metric", "value")

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)


def read_table(path: Path) -> dict[Cell, list[Row]]:
    """The rows of a file by run. Raises `EvidenceError` with the line."""
    read = {".jsonl": _json_lines, ".csv": _csv, ".parquet": _parquet}.get(path.suffix)
    if read is None:
        raise EvidenceError(
            f"'{path.name}' is of no known kind",
            required="a name ending in .jsonl, .csv or .parquet",
            where=Where(file=path),
        )
    found: dict[Cell, list[Row]] = {}
    seen: dict[tuple[Cell, int, str], int] = {}
    number = 0
    try:
        for number, row in read(read_bytes(path)):
            if number > MOST_ROWS:
                raise LineError(f"more than {MOST_ROWS:,} rows: import fewer runs at a time")
            cell, one = _tidy_row(row)
            first = seen.setdefault((cell, one.step, one.metric), number)
            if first != number:
                raise LineError(f"{one.metric} of {said(cell)} at step {one.step} is already on line {first}")
            found.setdefault(cell, []).append(one)
        if not found:
            raise LineError("no row")
    except LineError as fault:
        line = fault.line if isinstance(fault, _AtLineError) else number
        raise EvidenceError(
            f"line {line}: {fault}", required="rows of " + ", ".join(COLUMNS), where=Where(file=path, line=line)
        ) from None
    return found


def said(cell: Cell) -> str:
    """A run in words; a name from elsewhere cannot move a terminal's cursor."""
    return f"{json.dumps(cell[0])[1:-1][:60]} seed {cell[1]}"


def _tidy_row(row: dict[str, object]) -> tuple[Cell, Row]:
    require_keys(row, COLUMNS)
    variant, seed, metric = row["variant"], row["seed"], metric_of(row["metric"])
    if not isinstance(variant, str):
        raise LineError(f"variant {json.dumps(variant)[:60]}, which is not text")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise LineError(f"seed {json.dumps(seed)[:60]}, which is not a whole number")
    return (variant, seed), Row(step_of(row["step"]), metric, value_of(row["value"], metric))


class _AtLineError(LineError):
    def __init__(self, line: int, found: str) -> None:
        self.line = line
        super().__init__(found)


Numbered = Iterator[tuple[int, dict[str, object]]]


def _json_lines(data: bytes) -> Numbered:
    for number, line in enumerate(lines_of(data), start=1):
        try:
            row = object_of(line)
        except LineError as fault:
            raise _AtLineError(number, str(fault)) from None
        yield number, row


def _csv(data: bytes) -> Numbered:
    try:
        reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""), strict=True)
        header = next(reader, [])
        if sorted(header) != sorted(COLUMNS):
            raise _AtLineError(1, f"columns {', '.join(header)[:80] or 'none'}")
        for cells in reader:
            if len(cells) != len(header):
                raise _AtLineError(reader.line_num, f"{len(cells)} fields under {len(header)} columns")
            yield reader.line_num, {name: _typed(name, text) for name, text in zip(header, cells, strict=True)}
    except UnicodeDecodeError:
        raise _AtLineError(1, "text that is not UTF-8") from None
    except csv.Error as error:
        raise _AtLineError(1, f"not CSV: {error}") from None


def _typed(column: str, text: str) -> object:
    """A field of CSV as the type of its column, or as it stands, to be refused there."""
    if column in ("seed", "step"):
        return int(text) if re.fullmatch(r"[0-9]{1,16}", text) else text
    if column == "value":
        return float(text) if _NUMBER.fullmatch(text) else text
    return text


def _parquet(data: bytes) -> Numbered:
    try:
        with open_bounded(data, COLUMNS, most_rows=most_rows(data)) as file:
            names = file.schema_arrow.names
            if len(names) != len(COLUMNS):
                raise _AtLineError(1, f"columns {', '.join(names)[:80]}")
            yield from enumerate(rows_of_table(file, COLUMNS), start=1)
    except TableError as error:
        raise _AtLineError(1, f"the file {error}") from None


def most_rows(data: bytes) -> int:
    """Rows that a Parquet file from elsewhere may hold: every one has a value, and values take room on a disk too."""
    return min(MOST_ROWS, FREE_ROWS + len(data))
