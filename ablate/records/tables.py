"""Tables of many runs, made elsewhere: JSON lines, CSV or Parquet, read strictly, every fault named with its line.

Long rows have variant, seed, step, metric, value. Wide rows have a column for each metric; a layout says which columns
hold what. It may be a small YAML file, of which `template` guesses one from the table's own columns:

    arm: run_name
    seed: seed
    step: iter
    metrics:
      val/loss: valid_loss
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ablate.records.parquet import TableError, open_bounded, rows_of_table
from ablate.records.rows import (
    CURVE,
    NUMBER,
    AtLineError,
    LineError,
    Numbered,
    csv_table,
    json_lines,
    lines_of,
    metric_of,
    object_of,
    read_bytes,
    require_keys,
    step_of,
    value_of,
)
from ablate.records.store import Row
from prereg.errors import EvidenceError, StudyError, Where
from prereg.frozen import FrozenModel
from prereg.registry.plan import Cell, needed_metrics
from prereg.study.faults import read_model
from prereg.study.spec import Study
from prereg.yaml_reader import Lines, line_of, parse_yaml

MOST_ROWS = 2_000_000
"""Rows of one file of an import."""
FREE_ROWS = 200_000
"""Rows that it may hold however small it is; beyond, one a byte."""
COLUMNS = ("variant", "seed", "step", "metric", "value")


@dataclass(frozen=True)
class TableLayout:
    """Which columns of a wide table hold what. With no metric named, the table is long."""

    variant: str = "variant"
    seed: str = "seed"
    step: str = "step"
    at_step: int | None = None
    """The step of every row, where no column holds it."""
    metrics: dict[str, str] = field(default_factory=dict)
    """Metric -> column."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Every column that a row must have."""
        step = () if self.at_step is not None else (self.step,)
        return (self.variant, self.seed, *step, *self.metrics.values())


LONG = TableLayout()


def read_table(path: Path, layout: TableLayout = LONG) -> dict[Cell, list[Row]]:
    """The rows of a file by run. Raises `EvidenceError` with the line."""
    wide, kinds = bool(layout.metrics), dict[str, Callable[[bytes], Numbered]]()
    wide_kinds = {".csv": partial(_wide_csv, layout=layout), ".parquet": partial(_parquet, layout=layout)}
    kinds |= {".jsonl": json_lines, **wide_kinds} if wide else _LONG_KINDS
    read = kinds.get(path.suffix)
    if read is None:
        raise EvidenceError(
            f"'{path.name}' is of no known kind",
            required=f"a name ending in {' or '.join(kinds)}",
            where=Where(file=path),
        )
    found: dict[Cell, list[Row]] = {}
    seen: dict[tuple[Cell, int, str], int] = {}
    number = 0
    try:
        for number, row in read(read_bytes(path)):
            if number > MOST_ROWS:
                raise LineError(f"more than {MOST_ROWS:,} rows: import fewer runs at a time")
            cell, rows = _wide_row(row, layout) if wide else _tidy_row(row)
            for one in rows:
                first = seen.setdefault((cell, one.step, one.metric), number)
                if first != number:
                    raise LineError(f"{one.metric} of {said(cell)} at step {one.step} is already on line {first}")
            found.setdefault(cell, []).extend(rows)
        if not found:
            raise LineError("no row")
    except LineError as fault:
        line = fault.line if isinstance(fault, AtLineError) else number
        raise EvidenceError(
            f"line {line}: {fault}",
            required="rows of " + ", ".join(layout.needed if wide else COLUMNS),
            fix="--column METRIC=COLUMN, --arm-column, --seed-column and --step-column with columns that there are"
            if wide
            else "a wide table: --column METRIC=COLUMN for each metric, --arm-column, --seed-column",
            where=Where(file=path, line=line),
        ) from None
    return found


def said(cell: Cell) -> str:
    """A run in words; a name from elsewhere cannot move a terminal's cursor."""
    return f"{json.dumps(cell[0])[1:-1][:60]} seed {cell[1]}"


def _cell(variant: object, seed: object) -> Cell:
    if not isinstance(variant, str):
        raise LineError(f"variant {json.dumps(variant)[:60]}, which is not text")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise LineError(f"seed {json.dumps(seed)[:60]}, which is not a whole number")
    return variant, seed


def _tidy_row(row: dict[str, object]) -> tuple[Cell, list[Row]]:
    require_keys(row, COLUMNS)
    metric = metric_of(row["metric"])
    cell = _cell(row["variant"], row["seed"])
    return cell, [Row(step_of(row["step"]), metric, value_of(row["value"], metric))]


def _wide_row(row: dict[str, object], layout: TableLayout) -> tuple[Cell, list[Row]]:
    """The run of a row, and a value for each metric that is not blank there."""
    for column in layout.needed[: -len(layout.metrics)]:
        if column not in row:
            raise LineError(f"no {column!r}")
    step = step_of(layout.at_step if layout.at_step is not None else row[layout.step])
    rows = []
    for metric, column in layout.metrics.items():
        if (value := row.get(column)) is not None:
            rows.append(Row(step, metric_of(metric), value_of(value, metric)))
    return _cell(row[layout.variant], row[layout.seed]), rows


def _csv(data: bytes) -> Numbered:
    header, lines = csv_table(data)
    if sorted(header) != sorted(COLUMNS):
        raise AtLineError(1, f"columns {', '.join(header)[:80] or 'none'}")
    return ((number, {name: _typed(name, text) for name, text in found.items()}) for number, found in lines)


def _wide_csv(data: bytes, layout: TableLayout) -> Iterator[tuple[int, dict[str, object]]]:
    header, lines = csv_table(data)
    for column in layout.needed:
        if column not in header:
            raise AtLineError(1, f"no column '{column}'; there are {', '.join(header)[:120]}")
    kinds = {layout.variant: "variant", layout.seed: "seed", layout.step: "step"}
    for number, found in lines:
        yield number, {name: _typed(kinds.get(name, "value"), text) if text else None for name, text in found.items()}


def _typed(kind: str, text: str) -> object:
    """A field of CSV as the type of its column, or unchanged, to be refused there."""
    if kind in ("seed", "step"):
        return int(text) if re.fullmatch(r"[0-9]{1,16}", text) else text
    if kind == "value":
        return float(text) if NUMBER.fullmatch(text) else text
    return text


def _parquet(data: bytes, layout: TableLayout = LONG) -> Numbered:
    columns = tuple(dict.fromkeys(layout.needed)) if layout.metrics else COLUMNS
    try:
        with open_bounded(data, columns, most_rows=most_rows(data)) as file:
            names = file.schema_arrow.names
            if not layout.metrics and len(names) != len(columns):
                raise AtLineError(1, f"columns {', '.join(names)[:80]}")
            yield from enumerate(rows_of_table(file, columns), start=1)
    except TableError as error:
        raise AtLineError(1, f"the file {error}") from None


_LONG_KINDS: dict[str, Callable[[bytes], Numbered]] = {".jsonl": json_lines, ".csv": _csv, ".parquet": _parquet}


def most_rows(data: bytes) -> int:
    """Rows that a Parquet file from elsewhere may hold: every one has a value, and values take space on a disk too."""
    return min(MOST_ROWS, FREE_ROWS + len(data))


Column = Annotated[str, Field(min_length=1)]
ARMS = ("variant", "arm", "model", "config", "run_name", "name", "group", "method")
SEEDS = ("seed", "random_seed", "rng", "rng_seed", "random_state")
STEPS = ("step", "_step", "global_step", "iter", "iteration", "train_step", "epoch")
_SAME = {"val": ("val", "valid", "validation", "eval", "dev"), "train": ("train", "training")}


class Columns(FrozenModel):
    """The columns of a wide table."""

    arm: Column
    """Where the arm is."""
    seed: Column
    """Where the seed is."""
    step: Column = "step"
    """Where the step is."""
    at_step: Annotated[int, Field(ge=0)] | None = None
    """The step of every row, where no column holds it."""
    metrics: Annotated[dict[str, Column], Field(min_length=1)]
    """Metric -> column."""


def read_mapping(path: Path) -> TableLayout:
    """The layout that a mapping describes. Raises `StudyError` with the line."""
    lines: Lines = {}
    try:
        document = parse_yaml(read_bytes(path), lines, first="arm: COLUMN")
        found = read_model(Columns, document, form="a mapping of columns")
    except StudyError as error:
        raise error.at(file=path, line=error.where.line or line_of(error.where.field, lines)) from None
    return TableLayout(found.arm, found.seed, found.step, found.at_step, dict(found.metrics))


def template(path: Path, study: Study) -> str:
    """A mapping for a wide table, guessed by names; what has no likely column is left empty.

    Raises `EvidenceError` where the table cannot be read, or needs none.
    """
    columns = columns_of(path)
    if sorted(columns) == sorted(COLUMNS):
        raise EvidenceError(
            "long rows already", required="a wide table", fix=f"ablate import STUDY {path}", where=Where(file=path)
        )
    free = [*columns]

    def taken(names: Iterable[str]) -> str:
        found = next((column for name in names for column in free if plain_name(column) == plain_name(name)), "")
        if found:
            free.remove(found)
        return found

    metrics = {metric: taken(_names(metric)) for metric in dict.fromkeys([*needed_metrics(study), CURVE])}
    if not metrics[CURVE] and CURVE not in needed_metrics(study):
        del metrics[CURVE]
    places = {"arm": taken(ARMS), "seed": taken(SEEDS), "step": taken(STEPS)}
    shown = [f"{name}: {json.dumps(column)}" for name, column in places.items()]
    shown += ["metrics:", *(f"  {metric}: {json.dumps(column)}" for metric, column in metrics.items())]
    rest = ", ".join(json.dumps(column) for column in free)
    note = [f"# other columns: {rest}"] if rest else []
    if not places["step"]:
        note.append("# where no column holds the step, write at_step: N in place of step")
    return "\n".join([*shown, *note]) + "\n"


def columns_of(path: Path) -> Sequence[str]:
    """The columns of a table; of JSON lines the keys of the first. Raises `EvidenceError` where there are none."""
    data = read_bytes(path)
    try:
        if path.suffix == ".csv":
            found: Sequence[str] = csv_table(data)[0]
        elif path.suffix == ".parquet":
            with open_bounded(data, ()) as file:
                found = list(file.schema_arrow.names)
        else:
            found = list(object_of(next(lines_of(data), b"")))
        if not found:
            raise LineError("the table is empty")
    except (LineError, TableError) as error:
        raise EvidenceError(f"no columns: {error}", required="a table", where=Where(file=path)) from None
    return found


def _names(metric: str) -> list[str]:
    """A metric's name and those that others give to the same."""
    first, _, rest = metric.partition("/")
    return [f"{word}/{rest}" for word in _SAME.get(first, (first,))] if rest else [metric]


def plain_name(name: str) -> str:
    """A column's name without what people write differently: Val/Loss, val_loss."""
    return re.sub("[^a-z0-9]", "", name.lower())
