"""Metrics that others wrote, read strictly: JSON lines or CSV, every fault named with its line.

A trainer of the user's own writes long rows {"step", "metric", "value"} or wide ones, a step and a number per metric;
records made elsewhere have {"variant", "seed"} besides (`ablate.records.imports`). Nothing is repaired, skipped or
guessed. The one value that need not be finite is a training loss, because that is how a run says that it diverged.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ablate.records.store import Row
from prereg.errors import EvidenceError, Where
from prereg.escape import visible
from prereg.metrics.catalogue import SHARE
from prereg.study.command import MetricsFile

CURVE = "train/loss"
"""The metric by which a run diverges, and by which it is stable."""
LONG = MetricsFile()
MOST_BYTES = 256 * 2**20
MOST_LINE = 4096
ROUNDING = 1e-6
"""Of the width of a range: a mean of shares in single precision can pass 1 by so much."""

_METRIC = re.compile(r"[A-Za-z][^\s()\x00-\x1f\x7f-\x9f]{0,199}")
_LARGEST_STEP = 2**53 - 1


class LineError(ValueError):
    """What is wrong with one line."""

    fix = ""
    """What to do about it, where that is known."""


class RangeError(LineError):
    """A value that its metric cannot have. It is not shown: a run that fails shows nothing of which arm is better."""

    def __init__(self, metric: str, limits: tuple[float, float], *, above: bool) -> None:
        which = f"above {limits[1]:g}, the largest" if above else f"below {limits[0]:g}, the smallest"
        super().__init__(f"{metric} is {which} value that it can have")
        self.fix = range_fix(metric, limits)


def range_fix(metric: str, limits: tuple[float, float]) -> str:
    """What to do about a value outside a range."""
    if limits != SHARE:
        return "record it in the unit that the study declares, or change its range under metrics: declare:"
    return (
        "divide by 100 where it is recorded, or declare its unit: metrics: {declare: "
        f"{{{metric}: {{unit: percent, better: higher, range: [0, 100]}}}}}}"
    )


def require_range(metric: str, value: float, limits: tuple[float, float] | None) -> None:
    """Raise `RangeError` for a value that its metric cannot have: a margin means nothing in another unit."""
    if limits is None or not math.isfinite(value):
        return
    slack = ROUNDING * (limits[1] - limits[0])
    if not limits[0] - slack <= value <= limits[1] + slack:
        raise RangeError(metric, limits, above=value > limits[1])


def read_rows(path: Path, layout: MetricsFile = LONG, *, torn: bool = False) -> list[Row]:
    """Every row of a metrics file. Raises `EvidenceError` with the line.

    `torn` says that its writer was killed: then a last line without an end is no line yet, and is dropped.
    """
    data = read_bytes(path)
    if torn:
        data = data[: data.rfind(b"\n") + 1]
    rows: list[Row] = []
    seen: dict[tuple[int, str], int] = {}
    number = 0
    try:
        for number, found in _wide_csv(data, layout) if path.suffix == ".csv" else json_lines(data):
            for row in rows_of(found, layout):
                first = seen.setdefault((row.step, row.metric), number)
                if first != number:
                    raise LineError(f"{row.metric} at step {row.step} is already on line {first}")
                require_range(row.metric, row.value, layout.range_of(row.metric))
                rows.append(row)
    except LineError as fault:
        raise _at(path, fault.line if isinstance(fault, AtLineError) else number, str(fault), fault.fix) from None
    return rows


def readable_rows(path: Path, layout: MetricsFile) -> list[Row]:
    """The rows of a faulty file up to its first line that is none: to say whether it holds a value, not to judge it."""
    rows: list[Row] = []
    with suppress(LineError, EvidenceError):
        data = read_bytes(path)
        for _, found in _wide_csv(data, layout) if path.suffix == ".csv" else json_lines(data):
            with suppress(LineError):
                rows += rows_of(found, layout)
    return rows


def rows_of(found: dict[str, object], layout: MetricsFile) -> list[Row]:
    """The rows of one JSON object or line of a table: one of a long row, and of a wide one as many as it has values."""
    if not layout.columns and ("metric" in found or "value" in found or layout.step not in found):
        return [row_of(found)]
    if layout.step not in found:
        raise LineError(f"no '{layout.step}', which is to hold the step")
    step = step_of(found[layout.step])
    columns = layout.columns or {name: name for name in found if name != layout.step}
    rows = []
    for metric, column in columns.items():
        value = found.get(column)
        if value is None:
            continue
        try:
            rows.append(Row(step, metric_of(metric), value_of(value, metric)))
        except LineError as fault:
            raise LineError(f"{column!r}: {fault}") from None
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


def lines_of(data: bytes) -> Iterator[bytes]:
    """Lines without their ends, one at a time; the end of the last line may be missing."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield data[start:end]
        start = end + 1


def object_of(line: bytes, most: int = MOST_LINE) -> dict[str, object]:
    """The JSON object of one line; a key that is given twice is a fault."""
    if len(line) > most:
        raise LineError(f"a line of {len(line):,} bytes, and {most:,} are the most")
    if not line.strip():
        raise LineError("an empty line")
    try:
        found = json.loads(line.decode("utf-8"), object_pairs_hook=_single)
    except UnicodeDecodeError:
        raise LineError("text that is not UTF-8") from None
    except (json.JSONDecodeError, RecursionError):
        raise LineError("not JSON") from None
    except LineError:
        raise
    except ValueError:
        raise LineError("a number with too many digits") from None
    if not isinstance(found, dict):
        raise LineError("not a JSON object")
    return found


def row_of(found: dict[str, object]) -> Row:
    """Step, metric and value of an object that has these keys and no other."""
    require_keys(found, ("step", "metric", "value"))
    metric = metric_of(found["metric"])
    return Row(step_of(found["step"]), metric, value_of(found["value"], metric))


def require_keys(found: dict[str, object], wanted: tuple[str, ...]) -> None:
    """Exactly these keys."""
    lacking = [key for key in wanted if key not in found]
    more = [key for key in found if key not in wanted]
    if lacking or more:
        said = [f"no {', no '.join(map(repr, lacking))}"] if lacking else []
        said += [f"{json.dumps(more[0])[:60]}, which is none of {', '.join(wanted)}"] if more else []
        raise LineError(" and ".join(said))


def step_of(value: object) -> int:
    """A step: a whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_STEP:
        raise LineError(f"step {shown(value)}, which is not a whole number from 0 to 2^53")
    return value


def metric_of(value: object) -> str:
    """The name of a metric, such as a claim could hold."""
    if not isinstance(value, str) or _METRIC.fullmatch(value) is None or visible(value) != value:
        raise LineError(
            f"metric {shown(value)}, which is not a name: a letter first, no blanks, at most 200 characters"
        )
    return value


def value_of(value: object, metric: str) -> float:
    """A finite number; of a training loss, any."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LineError(f"value {shown(value)}, which is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) and metric != CURVE:
        raise LineError(f"{metric} is {number}, which is not finite (a run that diverges says so in its {CURVE})")
    return number


def diverged_at(rows: Iterable[Row], above: float) -> int | None:
    """The first step whose training loss is not finite, or above so many times the first one's; none if there is none.

    The same rule as the built-in trainer's. Of a first loss that is not above 0, such as a log density, multiples mean
    nothing: then only a loss that is not finite has diverged.
    """
    curve = sorted((row for row in rows if row.metric == CURVE), key=lambda row: row.step)
    if not curve:
        return None
    limit = above * curve[0].value if curve[0].value > 0 else math.inf
    return next((row.step for row in curve if not math.isfinite(row.value) or row.value > limit), None)


def lacking(rows: Iterable[Row], needed: Mapping[str, tuple[int, ...]], *, whole_curve: bool) -> list[str]:
    """What a finished run should have recorded and has not: claimed metrics where they are read, the whole curve."""
    has: dict[str, set[int]] = {}
    for row in rows:
        has.setdefault(row.metric, set()).add(row.step)
    if not has:
        return ["it is empty"]
    last = max(max(steps) for steps in has.values())
    found = [
        f"no {metric} at step {step}" + (", its last" if step == last else "")
        for metric, steps in needed.items()
        for step in sorted({*steps, last})
        if step not in has.get(metric, set())
    ]
    if whole_curve and has.get(CURVE, set()) - {0} != set(range(1, last + 1)):
        found.append(f"no {CURVE} at every step from 1 to {last}, which the rule of stability reads")
    return found


def until(rows: Iterable[Row], diverged: int | None) -> tuple[list[Row], int]:
    """The rows that count, up to the divergence where there was one, and the last step."""
    rows = list(rows)
    last = diverged if diverged is not None else max(row.step for row in rows)
    return [row for row in rows if row.step <= last and math.isfinite(row.value)], last


def _single(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LineError("a key that is given twice")
    return found


def shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."


def _at(path: Path, line: int, found: str, fix: str) -> EvidenceError:
    return EvidenceError(
        f"line {line}: {found}",
        required="a header with a column for the step, then a line per step"
        if path.suffix == ".csv"
        else 'a line {"step": 10, "val/loss": 2.31} or {"step": 10, "metric": "val/loss", "value": 2.31}',
        fix=fix,
        where=Where(file=path, line=line),
    )


NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)


class AtLineError(LineError):
    def __init__(self, line: int, found: str) -> None:
        self.line = line
        super().__init__(found)


Numbered = Iterator[tuple[int, dict[str, object]]]


def json_lines(data: bytes) -> Numbered:
    for number, line in enumerate(lines_of(data), start=1):
        try:
            row = object_of(line)
        except LineError as fault:
            raise AtLineError(number, str(fault)) from None
        yield number, row


def _wide_csv(data: bytes, layout: MetricsFile) -> Numbered:
    header, lines = csv_table(data)
    for column in (layout.step, *layout.columns.values()):
        if header and column not in header:
            raise AtLineError(1, f"no column '{column}'; there are {', '.join(header)[:120]}")
    for number, found in lines:
        yield number, typed_wide(found, layout)


def typed_wide(found: Mapping[str, str], layout: MetricsFile) -> dict[str, object]:
    """One line of a wide table by column: numbers as numbers, blanks as none, other text as it is."""
    row: dict[str, object] = {}
    for name, text in found.items():
        row[name] = float(text) if NUMBER.fullmatch(text) else text or None
    step = row.get(layout.step)
    return row | {layout.step: int(step) if isinstance(step, float) and step.is_integer() else step}


def csv_table(data: bytes) -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """The header of CSV, and its lines by column."""

    def lines() -> Iterator[tuple[int, dict[str, str]]]:
        try:
            for cells in reader:
                if len(cells) != len(header):
                    raise AtLineError(reader.line_num, f"{len(cells)} fields under {len(header)} columns")
                yield reader.line_num, dict(zip(header, cells, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise _not_csv(error, reader.line_num) from None

    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""), strict=True)
    try:
        header = next(reader, [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise _not_csv(error, 1) from None
    if len(set(header)) < len(header):
        raise AtLineError(1, f"a column twice: {', '.join(header)[:120]}")
    return header, lines()


def _not_csv(error: Exception, line: int) -> LineError:
    return AtLineError(line, "text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"not CSV: {error}")
