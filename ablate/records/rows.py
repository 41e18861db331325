"""Metrics rows of a run (`metrics.jsonl`, CSV) that others wrote, read strictly: every fault is named with its line.

    file -> records: a dict of cells and its line (`json_records`, `csv_records`; Parquet in `ablate.records.tables`)
         -> series: which column holds what, by the columns of a record and a `TableLayout` (`series_of`)
         -> rows by run: every cell by its rule (`RULES`), none twice, none outside its metric's range (`rows_by_run`)

A user's own trainer writes long rows {"step", "metric", "value"} or wide ones, a step and a number per metric; tables
of many runs have `variant` and `seed` besides. The one value that need not be finite is a training loss, because that
is how a run says that it diverged.

No frame of pandas lies in between: it takes a key twice and fills short lines up, cannot tell 1 from 1.0 and true, and
has no lines to name. A frame is what rows become (`ablate.records.tables.read_frame`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ablate.records.run_record import Divergence
from prereg.errors import EvidenceError, Where
from prereg.escape import visible
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import SHARE

if TYPE_CHECKING:
    from prereg.study.command import MetricsFile

CURVE = "train/loss"
"""The metric by which a run diverges, and by which it is stable."""
MOST_BYTES = 256 * 2**20
"""Of a file that is read whole."""
MOST_LINE = 4096
"""Bytes of one line of JSON; of a file that is one object, its reader says another limit."""
ROUNDING = 1e-6
"""Of the width of a range: a mean of shares in single precision can pass 1 by so much."""
_LARGEST_WHOLE = 2**53 - 1
"""Of an integer that every reader of JSON holds exactly (RFC 8259, section 6)."""
_PANEL = re.compile(r"(?P<run>.+) - (?P<metric>[^_].*)(?<!__MIN)(?<!__MAX)")
"""A column of W&B's panel export, but for those of its own _step, _runtime and _timestamp and the ends of bands."""
_RUN_NAME = re.compile(r"(?P<variant>.+?)[-_ ./]*(?:seed|s)?[-_ =]*(?P<seed>[0-9]{1,15})")
"""Names as people give them to runs: wide-1, wide_seed1, wide/s=1."""
RUN_PATTERN = "{variant}/seed{seed}"
"""Of folders of event files, and of the names that a run finds in its environment (WANDB_NAME, MLFLOW_RUN_CONTEXT)."""
_METRIC = re.compile(r"[A-Za-z][^\s()\x00-\x1f\x7f-\x9f]{0,199}")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)

Record = dict[str, Any]
Records = Iterable[tuple[int, Record]]
"""Line (of Parquet: row) and cells."""
Cell = tuple[str, int]
RangeOf = Callable[[str], tuple[float, float] | None]
OWN_RUN: Cell = ("", 0)
"""The key of all rows of a file that one run wrote."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number."""

    step: int
    metric: str
    value: float


class LineError(ValueError):
    """What is wrong with one line."""

    def __init__(self, message: str, *, line: int | None = None, fix: str = "") -> None:
        self.line = line
        """None: the line that is being read."""
        self.fix = fix
        """What to do about it, where that is known."""
        super().__init__(message)


class NotFiniteError(LineError):
    """A value of a metric other than the training loss that is infinite or NaN."""


class RangeError(LineError):
    """A value that its metric cannot have. It is not shown: a run that fails shows nothing of which arm is better."""


Column = Annotated[str, Field(min_length=1)]


class TableLayout(FrozenModel):
    """Which columns hold what. Long rows have `metric` and `value` besides; wide ones a column for each metric.

    None leaves a column to be guessed (`ablate.records.tables.guess_columns`).
    """

    arm: Column | None = "variant"
    """Where the arm is."""

    seed: Column | None = "seed"
    """Where the seed is."""

    step: Column | None = "step"
    """Where the step is."""

    at_step: Annotated[int, Field(ge=0)] | None = None
    """The step of every row, where no column holds it."""

    metrics: dict[str, Column | None] = {}
    """Metric -> column of a wide table, or label of long rows."""

    run_pattern: str | None = None
    """Arm and seed in the names of a tracker's runs, or of those of W&B's panel: `{variant}/seed{seed}`."""


def _is_whole(cell: object) -> bool:
    # bool is an int to Python: without the second test, `true` would be step 1.
    return isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) <= _LARGEST_WHOLE


@lru_cache
def _is_name(text: str) -> bool:
    return _METRIC.fullmatch(text) is not None and visible(text) == text


RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "variant": (lambda cell: isinstance(cell, str), "text"),
    "seed": (_is_whole, "a whole number"),
    "step": (lambda cell: _is_whole(cell) and cell >= 0, "a whole number from 0 to 2^53"),
    "metric": (
        lambda cell: isinstance(cell, str) and _is_name(cell),
        "a name: a letter first, no blanks, at most 200 characters",
    ),
    "value": (lambda cell: isinstance(cell, (int, float)) and not isinstance(cell, bool), "a number"),
}
"""Column -> whether a cell may stand in it, and what it must hold, for the message."""


def checked(role: str, cell: object) -> Any:
    """A cell that keeps the rule of its column. Raises `LineError` for another.

    >>> checked("seed", 3)
    3
    >>> checked("seed", "three")
    Traceback (most recent call last):
    ablate.records.rows.LineError: seed "three", which is not a whole number
    """
    holds, what = RULES[role]
    if not holds(cell):
        raise LineError(f"{role} {cell_in_message(cell)}, which is not {what}")
    return cell


def typed(role: str, text: str) -> Any:
    """A cell of CSV, which has no types, as its column wants it; a blank is none, and what is no number stays text.

    >>> typed("seed", "2.0e+01"), typed("value", "0.5"), typed("value", "1_000"), typed("variant", "10")
    (20, 0.5, '1_000', '10')
    """
    if role in ("variant", "metric") or _NUMBER.fullmatch(text) is None:  # float() also reads 1_000
        return text or None
    number = float(text)
    # pandas writes whole numbers as 20.0 where the column has a blank, numpy as 2.0e+01.
    return int(number) if role in ("seed", "step") and number.is_integer() else number


def value_of(cell: object, metric: str) -> float:
    """Return a finite number; of a training loss, any. Raises `LineError`: `NotFiniteError` where that is the fault.

    >>> value_of(3, "val/loss"), value_of(float("inf"), "train/loss")
    (3.0, inf)
    """
    try:
        number = float(checked("value", cell))
    except OverflowError:  # an integer of JSON may have any number of digits
        number = math.inf
    if not math.isfinite(number) and metric != CURVE:
        raise NotFiniteError(f"{metric} is {number}, which is not finite (a run that diverges says so in its {CURVE})")
    return number


def require_range(metric: str, value: float, limits: tuple[float, float] | None) -> None:
    """Raise `RangeError` for a value that its metric cannot have: a margin means nothing in another unit.

    >>> require_range("val/accuracy", 0.9, (0.0, 1.0))
    >>> require_range("val/accuracy", 90.0, (0.0, 1.0))
    Traceback (most recent call last):
    ablate.records.rows.RangeError: val/accuracy is above 1, the largest value that it can have
    """
    if limits is None or not math.isfinite(value):
        return
    # The value itself stays out of the message: of a failed run, too, it would say which arm is better.
    slack = ROUNDING * (limits[1] - limits[0])
    if not limits[0] - slack <= value <= limits[1] + slack:
        which = f"above {limits[1]:g}, the largest" if value > limits[1] else f"below {limits[0]:g}, the smallest"
        raise RangeError(f"{metric} is {which} value that it can have", fix=range_fix(metric, limits))


def range_fix(metric: str, limits: tuple[float, float]) -> str:
    """What to do about a value outside a range."""
    if limits != SHARE:
        return "record it in the unit that the study declares, or change its range under metrics: declare:"
    return (
        "divide by 100 where it is recorded, or declare its unit: metrics: {declare: "
        f"{{{metric}: {{unit: percent, better: higher, range: [0, 100]}}}}}}"
    )


def require_keys(record: Collection[str], allowed: Collection[str]) -> None:
    """Raise `LineError` for other keys or columns than exactly these.

    >>> require_keys(["step", "loss"], allowed=["step", "loss"])
    >>> require_keys(["step", "lss"], allowed=["step", "loss"])
    Traceback (most recent call last):
    ablate.records.rows.LineError: no 'loss' and "lss", which is none of step, loss
    """
    lacking = [key for key in allowed if key not in record]
    extra = [key for key in record if key not in allowed]
    if lacking or extra:
        parts = [f"no {', no '.join(map(repr, lacking))}"] if lacking else []
        parts += [f"{json.dumps(extra[0])[:60]}, which is none of {', '.join(allowed)}"] if extra else []
        raise LineError(" and ".join(parts))


@dataclass(frozen=True)
class Series:
    """Where one series of rows is in a record: for each of `RULES` a column, or the same cell in every row."""

    columns: Mapping[str, str]

    cells: Mapping[str, Any]

    labels: Mapping[str, str] | None = None
    """Label -> metric of long rows, where a blank value is a fault; None: in a wide table a blank is no value."""

    ends: Sequence[str] = ()
    """Columns of the band that a panel of W&B draws around means."""

    def row(self, record: Record) -> tuple[Cell, Row | None]:
        """The run and row of a record; no row where a wide one has no value. Raises `LineError`."""
        # Each role is a cell of the record or the same in every row. The value is checked last, since its
        # metric decides what holds.
        cells = dict(self.cells)
        for role, column in self.columns.items():
            cells[role] = record.get(column) if role == "value" else checked(role, record.get(column))
        cell, value = (cells["variant"], cells["seed"]), cells["value"]
        # A mean is no run's own value. As text, because a loss that is no number equals itself here.
        ends = [record[end] for end in self.ends]
        if any(repr(end) != repr(value) for end in ends):
            raise LineError(
                f"{self.columns['value']!r} is a mean of several points or runs, from {ends[0]} to {ends[-1]}",
                fix="export the panel without grouping and sampling, or use run.scan_history()",
            )
        if value is None and self.labels is None:
            return cell, None
        try:
            metric = checked("metric", cells["metric"])
            metric = metric if self.labels is None else self.labels.get(metric, metric)
            return cell, Row(cells["step"], metric, value_of(value, metric))
        except LineError as fault:
            message = str(fault) if self.labels is not None else f"{self.columns['value']!r}: {fault}"
            raise type(fault)(message) from None


Form = Literal["long", "wide", "panel"]


def form_of(columns: Collection[str], layout: TableLayout, *, own: bool = False) -> Form:
    """How a record of these columns holds its values. `own`: of a file that one run wrote, which may hold two forms."""
    # Three forms. A trainer's own file may mix long and wide rows, so each record is looked at; a table has one
    # form.
    if own:
        long = not layout.metrics and ("metric" in columns or "value" in columns or layout.step not in columns)
    elif layout.arm not in columns and any(map(_PANEL.fullmatch, columns)):
        return "panel"
    else:
        # Long unless a layout names columns of metrics, and even then where the table has none of them but
        # `metric` and `value`.
        both = "metric" in columns and "value" in columns
        long = not layout.metrics or (both and not any(column in columns for column in layout.metrics.values()))
    return "long" if long else "wide"


def series_of(
    columns: Collection[str], layout: TableLayout, *, own: bool = False, header: bool = False
) -> list[Series]:
    """Where the rows are in a record of these columns.

    Raises `LineError` where a column is lacking; that of a metric only in a `header`, which all records share.
    """
    form = form_of(columns, layout, own=own)
    # 1. Where run and step are.
    run = {} if own or form == "panel" else {"variant": str(layout.arm), "seed": str(layout.seed)}
    # A long row of a trainer's own file has `step`, whatever the column of its wide ones is.
    step = {} if layout.at_step is not None else {"step": "step" if own and form == "long" else str(layout.step)}
    places = run | step
    cells: dict[str, Any] = dict(zip(("variant", "seed"), OWN_RUN, strict=True)) if own else {}
    cells |= {} if step else {"step": layout.at_step}
    # 2. Where the values are: one column of long rows, a column for each metric of wide ones, a column for each run
    # of a panel.
    if form == "long":
        require_keys(columns, (*places.values(), "metric", "value"))
        labels = {str(label): metric for metric, label in layout.metrics.items()}
        return [Series(places | {"metric": "metric", "value": "value"}, cells, labels)]
    metrics = layout.metrics or {name: name for name in columns if name not in places.values()}
    # Of JSON lines each may have other metrics; the header of CSV is all there is, and a name that it lacks a mistake.
    required_columns = [*places.values(), *(metrics.values() if header and form == "wide" else ())]
    for column in required_columns:
        if column not in columns:
            raise LineError(f"no column '{column}'; there are {', '.join(columns)[:120]}")
    if form == "panel":
        return _panel_series(columns, layout, places, cells)
    return [Series(places | {"value": str(column)}, cells | {"metric": metric}) for metric, column in metrics.items()]


def _panel_series(
    columns: Collection[str], layout: TableLayout, places: Mapping[str, str], cells: Mapping[str, Any]
) -> list[Series]:
    """The series of every run that the header of a panel names."""
    pattern = compiled_pattern(layout.run_pattern) if layout.run_pattern else _RUN_NAME
    metric_of = {label: metric for metric, label in layout.metrics.items()}
    series: dict[tuple[Cell, str], Series] = {}
    for part in filter(None, map(_PANEL.fullmatch, columns)):
        # A pattern that misses one run stops all: a run that is left out in silence may be the one that
        # matters.
        run = pattern.fullmatch(part["run"].strip())
        if run is None:
            raise LineError(
                f"the name '{part['run']}' does not say its arm and seed",
                fix="--run-pattern 'exp-{variant}-s{seed}', in the place of names such as wide-1 or wide_seed1",
            )
        # With a layout, metrics that it does not name are passed over; without one, all are taken.
        metric = metric_of.get(part["metric"], "" if layout.metrics else part["metric"])
        cell = run["variant"], int(run["seed"])
        if metric and (cell, metric) in series:
            raise LineError(f"two runs of {cell_text(cell)}: '{part['run']}' and one before it")
        if metric:
            own = {"variant": cell[0], "seed": cell[1], "metric": metric}
            ends = [end for end in (part[0] + "__MIN", part[0] + "__MAX") if end in columns]
            series[cell, metric] = Series({**places, "value": part[0]}, {**cells, **own}, ends=ends)
    return list(series.values())


def panel_metrics(columns: Iterable[str]) -> list[str]:
    """The metrics of a panel, each once.

    >>> panel_metrics(["Step", "wide-1 - val/loss", "wide-1 - val/loss__MIN", "wide-2 - val/loss"])
    ['val/loss']
    """
    return list(dict.fromkeys(part["metric"] for part in filter(None, map(_PANEL.fullmatch, columns))))


def compiled_pattern(text: str) -> re.Pattern[str]:
    """A pattern of run names with {variant} and {seed}, each once. Raises `EvidenceError` for another.

    >>> compiled_pattern("run_{variant}_s{seed}").fullmatch("run_no_norm_s12").groupdict()
    {'variant': 'no_norm', 'seed': '12'}
    """
    # The split keeps what it splits at, at the odd places; everything else is matched literally.
    words = re.split(r"(\{variant\}|\{seed\})", text)
    if sorted(words[1::2]) != ["{seed}", "{variant}"]:
        raise EvidenceError(
            f"--run-pattern {text}", required="{variant} and {seed}, each once", fix=f'--run-pattern "{RUN_PATTERN}"'
        )
    kinds = {"{variant}": "(?P<variant>.+)", "{seed}": "(?P<seed>[0-9]{1,15})"}
    return re.compile("".join(kinds.get(word, re.escape(word)) for word in words))


def rows_by_run(
    records: Records, layout: TableLayout, range_of: RangeOf = lambda _: None, *, own: bool = False
) -> dict[Cell, list[Row]]:
    """Rows by (arm, seed), in their order; an empty list for a run without a value. Raises `LineError` with the line.

    `own` says that one run wrote all of it, under the key `OWN_RUN`: then there are no columns of arm and seed.

        >>> records = [(1, {"variant": "wide", "seed": 0, "step": 10, "metric": "val/loss", "value": 2.5})]
        >>> rows_by_run(records, TableLayout())
        {('wide', 0): [Row(step=10, metric='val/loss', value=2.5)]}
    """
    runs: dict[Cell, list[Row]] = {}
    series_by_columns: dict[tuple[str, ...], list[Series]] = {}
    # Run -> (step, metric) -> the line that has it: a second value would be a choice between the two.
    line_by_value: dict[Cell, dict[tuple[int, str], int]] = {}
    # The first value of a run's own file that is not finite, and whether its training loss was ever like that.
    not_finite: NotFiniteError | None = None
    has_diverged = False
    number = 1
    try:
        for number, record in records:
            columns = tuple(record)
            # A file has few sets of columns and many lines: what a column holds is worked out once for each set.
            if columns not in series_by_columns:
                series_by_columns[columns] = series_of(columns, layout, own=own)
            for series in series_by_columns[columns]:
                try:
                    cell, row = series.row(record)
                except NotFiniteError as fault:
                    # A loss that is NaN makes other metrics NaN: those of a run that diverged are dropped, at the end.
                    if not own:
                        raise
                    fault.line = number
                    not_finite = not_finite or fault
                    continue
                rows = runs.setdefault(cell, [])
                if row is None:
                    continue
                has_diverged = has_diverged or (row.metric == CURVE and not math.isfinite(row.value))
                lines = line_by_value.setdefault(cell, {})
                key = row.step, row.metric
                if key in lines:
                    whose = "" if own else f" of {cell_text(cell)}"
                    raise LineError(f"{row.metric}{whose} at step {row.step} is already on line {lines[key]}")
                lines[key] = number
                require_range(row.metric, row.value, range_of(row.metric))
                rows.append(row)
        if not_finite is not None and not has_diverged:
            raise not_finite
    except LineError as fault:
        fault.line = number if fault.line is None else fault.line
        raise
    return runs


def json_records(data: bytes) -> Records:
    """The objects of JSON lines. Raises `LineError` with the line.

    >>> list(json_records(b'{"step": 1, "val/loss": 2.5}'))
    [(1, {'step': 1, 'val/loss': 2.5})]
    """
    for number, line in enumerate(lines_of(data), start=1):
        try:
            record = object_of(line)
        except LineError as fault:
            fault.line = number
            raise
        yield number, record


def lines_of(data: bytes) -> Iterator[bytes]:
    """Lines without their ends, one at a time; the end of the last line may be missing.

    >>> list(lines_of(b"first\\nlast without an end"))
    [b'first', b'last without an end']
    """
    return (line.removesuffix(b"\n") for line in io.BytesIO(data))


def object_of(line: bytes, most: int = MOST_LINE) -> Record:
    """The JSON object of one line; a key that is given twice is a fault.

    >>> object_of(b'{"step": 1, "step": 2}')
    Traceback (most recent call last):
    ablate.records.rows.LineError: a key that is given twice
    """
    # Before it is parsed: a long line of brackets would be a deep recursion, and a long number slow.
    if len(line) > most:
        raise LineError(f"a line of {len(line):,} bytes, and {most:,} are the most")
    if not line.strip():
        raise LineError("an empty line")
    try:
        record = json.loads(line.decode("utf-8"), object_pairs_hook=_single)
    except UnicodeDecodeError:
        raise LineError("text that is not UTF-8") from None
    except (json.JSONDecodeError, RecursionError):
        raise LineError("not JSON") from None
    except LineError:
        raise  # a ValueError, too, and of `_single`
    except ValueError:
        raise LineError("a number with too many digits") from None
    if not isinstance(record, dict):
        raise LineError("not a JSON object")
    return record


def _single(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise LineError("a key that is given twice")
    return record


def csv_table(data: bytes) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header of CSV (RFC 4180) and its lines as text. Raises `LineError`, the iterator too.

    By the standard library: the readers of pandas and pyarrow take a quote without an end, text after a closing quote
    and empty lines.

    >>> header, lines = csv_table(b"seed,val/loss\\n1,2.5\\n")
    >>> header, list(lines)
    (['seed', 'val/loss'], [(2, ['1', '2.5'])])
    """

    def lines() -> Iterator[tuple[int, list[str]]]:
        try:
            for cells in reader:
                yield reader.line_num, cells
        except UnicodeDecodeError:
            raise LineError("text that is not UTF-8", line=max(reader.line_num, 1)) from None
        except csv.Error as error:
            raise LineError(f"not CSV: {error}", line=max(reader.line_num, 1)) from None

    # utf-8-sig: Excel begins its files with a mark, which would be part of the first column's name.
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""), strict=True)
    numbered = lines()
    _, header = next(numbered, (1, []))
    if len(set(header)) < len(header):
        raise LineError(f"a column twice: {', '.join(header)[:120]}", line=1)
    return header, numbered


def csv_records(
    header: list[str], lines: Iterable[tuple[int, list[str]]], layout: TableLayout, *, own: bool = False
) -> Records:
    """The lines of CSV, typed by their columns. Raises `LineError` with the line."""
    series = series_of(header, layout, own=own, header=True) if header else []  # an empty file has no rows
    role_of = {column: role for part in series for role, column in part.columns.items()}
    # A column that the layout does not name is read as a value and then ignored.
    roles = [role_of.get(column, "value") for column in header]
    for number, cells in lines:
        # Never filled up: a short line is a line that was cut.
        if len(cells) != len(header):
            raise LineError(f"{len(cells)} fields under {len(header)} columns", line=number)
        yield number, dict(zip(header, map(typed, roles, cells), strict=True))


def _own_records(path: Path, metrics: MetricsFile, *, torn: bool = False) -> tuple[Records, TableLayout]:
    """The records of a trainer's own file. `torn`: its writer was killed, and a last line without an end is none."""
    data = read_bytes(path)
    if torn:
        data = data[: data.rfind(b"\n") + 1]
    layout = own_layout(metrics)
    return csv_records(*csv_table(data), layout, own=True) if path.suffix == ".csv" else json_records(data), layout


def own_layout(metrics: MetricsFile) -> TableLayout:
    """The layout that a study declares for the files of its trainer."""
    return TableLayout(step=metrics.step, metrics={**metrics.columns})


def read_rows(path: Path, metrics: MetricsFile | None = None, *, torn: bool = False) -> list[Row]:
    """Every row of a trainer's own metrics file. Raises `EvidenceError` with the line.

    `torn` says that its writer was killed: then a last line without an end is no line yet, and is dropped.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "metrics.jsonl")
        ...     _ = path.write_text('{"step": 10, "val/loss": 2.5}\\n{"step": 20, "val/l')
        ...     read_rows(path, torn=True)
        [Row(step=10, metric='val/loss', value=2.5)]
    """
    # Late: it loads every model of a study, and most tables are read without.
    if metrics is None:
        from prereg.study.command import MetricsFile

        metrics = MetricsFile()
    try:
        return rows_by_run(*_own_records(path, metrics, torn=torn), metrics.range_of, own=True).get(OWN_RUN, [])
    except LineError as fault:
        raise EvidenceError(
            f"line {fault.line}: {fault}",
            required="a header with a column for the step, then a line per step"
            if path.suffix == ".csv"
            else 'a line {"step": 10, "val/loss": 2.31} or {"step": 10, "metric": "val/loss", "value": 2.31}',
            fix=fault.fix,
            where=Where(file=path, line=fault.line),
        ) from None


def readable_rows(path: Path, metrics: MetricsFile) -> list[Row]:
    """The rows of a faulty file as far as it can be read: to say whether it holds a value, not to judge it."""
    rows: list[Row] = []
    # The outer one ends at the first line that is no record; the inner one skips a record with a faulty cell.
    with suppress(LineError, EvidenceError):
        records, layout = _own_records(path, metrics)
        for _, record in records:
            with suppress(LineError):
                rows += own_rows_of(record, layout)
    return rows


def own_rows_of(record: Record, layout: TableLayout) -> list[Row]:
    """Return the rows of one record of a trainer's own file, without values that are not finite. Raises `LineError`."""
    rows: list[Row] = []
    for series in series_of(record, layout, own=True):
        # Other metrics in the record of a NaN loss are often NaN too; the loss must still be read.
        with suppress(NotFiniteError):
            row = series.row(record)[1]
            if row is not None:
                rows.append(row)
    return rows


def read_bytes(path: Path) -> bytes:
    """A regular file of a size that can be read whole."""
    if not path.is_file():
        raise EvidenceError(
            f"{path.name} is not there" if not path.exists() else f"{path.name} is not a file",
            required="the file of metrics that the study declares, in the run's own directory",
            where=Where(file=path),
        )
    if path.stat().st_size > MOST_BYTES:
        raise EvidenceError(
            f"{path.stat().st_size:,} bytes",
            required=f"at most {MOST_BYTES:,}: log less often, or fewer metrics",
            where=Where(file=path),
        )
    return path.read_bytes()


def divergence_of(rows: Iterable[Row], above: float | None) -> Divergence | None:
    """The first training loss that is not finite, or above so many times the first one; none where there is none.

    The same rule as the built-in trainer's. Without a multiple (`above` is none), and of a first loss that is not above
    0, such as a log density, only a loss that is not finite has diverged.

        >>> divergence_of([Row(1, "train/loss", 5.0), Row(2, "train/loss", 16.0)], above=3.0).step
        2
        >>> divergence_of([Row(1, "train/loss", 5.0), Row(2, "train/loss", 16.0)], above=None) is None
        True
    """
    # By step and not by line: rows may be written in any order, and the first loss sets the limit.
    curve = sorted((row for row in rows if row.metric == CURVE), key=lambda row: row.step)
    if not curve:
        return None
    first = curve[0].value
    limit = above * first if above is not None and first > 0 and math.isfinite(first) else None
    for row in curve:
        if not math.isfinite(row.value) or (limit is not None and row.value > limit):
            value = row.value if math.isfinite(row.value) else None
            return Divergence(step=row.step, value=value, first=None if limit is None else first, limit=limit)
    return None


def lacking(rows: Iterable[Row], needed: Mapping[str, tuple[int, ...]], *, whole_curve: bool) -> list[str]:
    """What a finished run should have recorded and has not, a sentence each; empty where nothing is lacking.

    `needed` is metric -> steps at which a claim reads it, besides the last. `whole_curve` asks for a training loss at
    every step, which the rule of stability reads.

        >>> lacking([Row(10, "train/loss", 2.0)], {"val/loss": ()}, whole_curve=False)
        ['no val/loss at step 10, its last']
    """
    steps_by_metric: dict[str, set[int]] = {}
    for row in rows:
        steps_by_metric.setdefault(row.metric, set()).add(row.step)
    if not steps_by_metric:
        return ["it is empty"]
    # The last step of any metric is that of the run.
    last = max(max(steps) for steps in steps_by_metric.values())
    absent = [
        f"no {metric} at step {step}" + (", its last" if step == last else "")
        for metric, steps in needed.items()
        for step in sorted({*steps, last})
        if step not in steps_by_metric.get(metric, set())
    ]
    # A loss at step 0 is that of the initial weights: allowed, and not asked for.
    if whole_curve and steps_by_metric.get(CURVE, set()) - {0} != set(range(1, last + 1)):
        absent.append(f"no {CURVE} at every step from 1 to {last}, which the rule of stability reads")
    return absent


def until(rows: Iterable[Row], diverged: int | None) -> tuple[list[Row], int]:
    """The rows that count, up to the divergence where there was one, and the last step.

    A loss that is not finite is dropped, and the status says it: no table, mean or hash then holds a NaN.

    >>> rows = [Row(step=step, metric="val/loss", value=value) for step, value in ((1, 2.5), (2, math.inf))]
    >>> until(rows, diverged=2)
    ([Row(step=1, metric='val/loss', value=2.5)], 2)
    """
    rows = list(rows)
    # Rows after the divergence are dropped: how long a trainer goes on after it is no part of the outcome.
    last = diverged if diverged is not None else max(row.step for row in rows)
    return [row for row in rows if row.step <= last and math.isfinite(row.value)], last


def cell_text(cell: Cell) -> str:
    """A run in a message; a name from elsewhere cannot move a terminal's cursor.

    >>> cell_text(("wide", 3))
    'wide seed 3'
    """
    return f"{json.dumps(cell[0])[1:-1][:60]} seed {cell[1]}"


def cell_in_message(cell: object) -> str:
    """A cell in a message, as JSON, cut to 60 characters.

    >>> cell_in_message("1_0"), cell_in_message(None)
    ('"1_0"', 'null')
    """
    text = json.dumps(cell, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
