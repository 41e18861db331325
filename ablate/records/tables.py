"""Tables of many runs, made elsewhere: decoded in a process of their own, and the one guess of which column holds what.

`import`, `import --template`, `judge FILE` and `judge_frame` share both. JSON lines, CSV and Parquet; long rows, wide
ones, and what W&B exports from a panel: a column of steps, and for every run `RUN - METRIC` with `__MIN` and `__MAX`.
A layout may be a small YAML file, of which `template` guesses one from the table's own columns:

    arm: run_name
    seed: seed
    step: iter
    metrics:
      val/loss: valid_loss
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ablate.records.limited import MOST_MEMORY, in_limited_process
from ablate.records.parquet import TableError, columns_of_parquet, read_parquet
from ablate.records.rows import (
    CURVE,
    Cell,
    LineError,
    Records,
    Row,
    TableLayout,
    collect,
    csv_records,
    csv_table,
    json_records,
    named,
    read_bytes,
    require_columns,
)
from prereg.errors import EvidenceError, StudyError, Where, nearest
from prereg.frozen import FrozenModel

if TYPE_CHECKING:
    import pandas as pd

    from prereg.study.spec import Study

MOST_ROWS = 2_000_000
"""Rows of one file of an import."""
FREE_ROWS = 200_000
"""Rows that a Parquet file may hold however small it is; beyond, one a byte: every row has a value, and values take
space on a disk too."""
SUFFIXES = (".jsonl", ".csv", ".parquet")
LONG = TableLayout()
RUN_PATTERN = "{variant}/seed{seed}"
"""Of folders of event files, and of the names that a run finds in its environment (WANDB_NAME, MLFLOW_RUN_CONTEXT)."""
_RUN_NAME = re.compile(r"(?P<variant>.+?)[-_ ./]*(?:seed|s)?[-_ =]*(?P<seed>[0-9]{1,15})")
"""Names as people give them to runs: wide-1, wide_seed1, wide/s=1."""
_PANEL = re.compile(r"(?P<run>.+) - (?P<metric>[^_].*)(?<!__MIN)(?<!__MAX)")
"""Of W&B's own _step, _runtime and _timestamp, and of the ends of its bands, no run is read."""

ARMS = ("variant", "arm", "model", "config", "run_name", "name", "group", "method")
SEEDS = ("seed", "random_seed", "rng", "rng_seed", "random_state")
STEPS = ("step", "_step", "global_step", "iter", "iteration", "train_step", "epoch")
_SAME = {"val": ("val", "valid", "validation", "eval", "dev"), "train": ("train", "training")}
_PREFIXES = ("params", "metrics", "tags", "config", "summary")
"""Of columns that MLflow and W&B write for tables of runs: `params.seed`, `metrics.val_loss`."""


def read_table(path: Path, layout: TableLayout = LONG) -> dict[Cell, list[Row]]:
    """The rows of a stranger's file by run, by a layout whose empty names are guessed.

    Raises `EvidenceError` with the line, and where decoding takes more memory than such a file may.
    """
    # Two million rows take 0.9 GiB next to the lines on which their values stand.
    runs = json.loads(in_limited_process(decode, str(path), asdict(layout), memory_bytes=2 * MOST_MEMORY))
    return {(variant, seed): [*map(Row, *columns)] for variant, seed, *columns in runs}


def decode(path: str, fields: dict[str, Any]) -> bytes:
    """`read_table` within the limited process, as JSON: [variant, seed, steps, metrics, values] of every run."""
    layout, place = TableLayout(**fields), Path(path)
    try:
        columns, records = _opened(place)
        layout = complete(columns, layout)
        require_complete(columns, layout)
        runs = collect(_counted(records(layout)), layout)
        if not runs:
            raise LineError("no row", line=1)
    except EvidenceError as fault:
        raise fault.at(file=place) from None
    except LineError as fault:
        raise EvidenceError(
            f"line {fault.line}: {fault}",
            required="rows of " + ", ".join(layout.needed),
            fix=fault.fix or f"--template prints a mapping of {place.name}, for --mapping; or --column METRIC=COLUMN",
            where=Where(file=place, line=fault.line),
        ) from None
    parts = [
        [*cell, [r.step for r in rows], [r.metric for r in rows], [r.value for r in rows]]
        for cell, rows in runs.items()
    ]
    return json.dumps(parts).encode()


def _opened(path: Path) -> tuple[list[str], Callable[[TableLayout], Records]]:
    """The columns of a file, and its records by a layout. Raises `EvidenceError`, or `LineError` with the line."""
    if path.suffix not in SUFFIXES:
        raise EvidenceError(
            f"'{path.name}' is of no known kind",
            required=f"a name ending in {' or '.join(SUFFIXES)}",
            where=Where(file=path),
        )
    data = read_bytes(path)
    if path.suffix == ".csv":
        header, lines = csv_table(data)
        return header, lambda layout: csv_records(header, lines, layout)
    if path.suffix == ".jsonl":
        # Records of one file may have different keys, such as those of an evaluation on some steps alone.
        keys = dict.fromkeys(key for _, record in islice(json_records(data), 1000) for key in record)
        return list(keys), lambda layout: json_records(data)
    try:
        names = columns_of_parquet(data)
    except TableError as error:
        raise LineError(f"the file {error}", line=1) from None
    return names, lambda layout: _parquet_records(data, names, layout)


def _parquet_records(data: bytes, names: Sequence[str], layout: TableLayout) -> Records:
    require_columns(names, layout)
    columns = [name for name in names if name in layout.needed]
    try:
        table = read_parquet(data, columns, most_rows=min(MOST_ROWS, FREE_ROWS + len(data)))
    except TableError as error:
        raise LineError(f"the file {error}", line=1) from None
    # Few at a time: a long text that a dictionary holds once becomes one of each row.
    batches = table.to_batches(max_chunksize=4096)
    yield from enumerate((record for batch in batches for record in batch.to_pylist()), start=1)


def _counted(records: Records) -> Records:
    for at, (number, record) in enumerate(records):
        if at >= MOST_ROWS:
            raise LineError(f"more than {MOST_ROWS:,} rows: import fewer runs at a time", line=number)
        yield number, record


def read_frame(path: Path, metrics: Iterable[str], layout: TableLayout) -> pd.DataFrame:
    """A stranger's file as a frame: variant, seed, step and a column for each metric, in the order of its rows.

    A run without any value has one row, of none, at the last step. Raises as `read_table` does.
    """
    import pandas as pd

    runs = read_table(path, replace(layout, metrics=dict.fromkeys(metrics, "")))
    last = max((row.step for rows in runs.values() for row in rows), default=0)
    records: dict[tuple[str, int, int], dict[str, Any]] = {}
    for (variant, seed), rows in runs.items():
        for step, values in [(row.step, {row.metric: row.value}) for row in rows] or [(last, {})]:
            record = records.setdefault((variant, seed, step), {"variant": variant, "seed": seed, "step": step})
            record.update(values)
    return pd.DataFrame(records.values(), columns=["variant", "seed", "step", *metrics])


def complete(columns: Sequence[str], layout: TableLayout) -> TableLayout:
    """The layout with each empty name guessed from the columns, whatever their case and punctuation; where no column is
    likely, a name stays empty, and without a column for steps every row is of step 0.

    Raises `LineError` where a panel of W&B does not name its runs, or another table is to have a pattern of names.
    """
    free = [column for column in columns if column not in (layout.variant, layout.seed, layout.step)]

    def take(names: Sequence[str]) -> str:
        likely = (one for name in names for one in free if one == names[0] or plain_name(name) in _plain_forms(one))
        column = next(likely, "")
        if column:
            free.remove(column)
        return column

    series = [part for part in map(_PANEL.fullmatch, columns) if part]
    own = [column for column in columns if " - " not in column]
    if series and layout.variant not in columns and not any(plain_name(one) in map(plain_name, ARMS) for one in own):
        free = [*dict.fromkeys(part["metric"] for part in series)]
        metrics = {metric: label or take(_names_of(metric)) for metric, label in layout.metrics.items()}
        free = own
        step = layout.step if layout.step in own else take(STEPS)
        return _of_panel(series, replace(layout, step=step, metrics=metrics))
    if layout.run_pattern is not None:
        raise LineError("a pattern of the names of runs, and no panel of W&B (columns RUN - METRIC and a step)", line=1)
    metrics = {metric: label or take(_names_of(metric)) for metric, label in layout.metrics.items()}
    step = layout.step or take(STEPS)
    return replace(
        layout,
        variant=layout.variant or take(ARMS),
        seed=layout.seed or take(SEEDS),
        step=step,
        at_step=layout.at_step if step else layout.at_step or 0,
        metrics=metrics,
    )


def require_complete(columns: Sequence[str], layout: TableLayout) -> None:
    """Raise `EvidenceError` for the first name of a layout that is still empty."""
    places = {"the arm": layout.variant, "the seed": layout.seed}
    for what, column in (places | ({} if layout.is_long(columns) else layout.metrics)).items():
        if column == "" and not layout.panel:
            options = {"the arm": "--arm-column, ", "the seed": "--seed-column, "}
            raise EvidenceError(
                f"no column of the table is known to hold {what}",
                required="columns for arm, seed and values: one of " + ", ".join(columns),
                fix=options[what] + "one of " + ", ".join(columns) if what in options else nearest(what, columns),
            )


def _of_panel(series: Sequence[re.Match[str]], layout: TableLayout) -> TableLayout:
    """The layout of a panel: the columns of each run that its header names."""
    if not layout.step and layout.at_step is None:
        raise LineError(
            "a panel of W&B without a column of steps", line=1, fix="export it with the horizontal axis Step"
        )
    pattern = compiled_pattern(layout.run_pattern) if layout.run_pattern else _RUN_NAME
    name_of = {label: metric for metric, label in layout.metrics.items()}
    panel: dict[Cell, dict[str, str]] = {}
    for part in series:
        run = pattern.fullmatch(part["run"].strip())
        if run is None:
            raise LineError(
                f"the name '{part['run']}' does not say its arm and seed",
                line=1,
                fix="--run-pattern 'exp-{variant}-s{seed}', in the place of names such as wide-1 or wide_seed1",
            )
        metric = name_of.get(part["metric"], "" if layout.metrics else part["metric"])
        columns = panel.setdefault((run["variant"], int(run["seed"])), {})
        if metric and columns.setdefault(metric, part[0]) != part[0]:
            raise LineError(f"two runs of {named((run['variant'], int(run['seed'])))}: {part[0]}", line=1)
    return replace(layout, variant=None, seed=None, panel=tuple(panel.items()))


def compiled_pattern(text: str) -> re.Pattern[str]:
    """A pattern of run names with {variant} and {seed}, each once. Raises `EvidenceError` for another."""
    words = re.split(r"(\{variant\}|\{seed\})", text)
    if sorted(words[1::2]) != ["{seed}", "{variant}"]:
        raise EvidenceError(
            f"--run-pattern {text}", required="{variant} and {seed}, each once", fix=f'--run-pattern "{RUN_PATTERN}"'
        )
    kinds = {"{variant}": "(?P<variant>.+)", "{seed}": "(?P<seed>[0-9]{1,15})"}
    return re.compile("".join(kinds.get(word, re.escape(word)) for word in words))


Column = Annotated[str, Field(min_length=1)]


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
    # The limited process does without these: they load every model of a study.
    from prereg.study.faults import read_model
    from prereg.yaml_reader import Lines, line_of, parse_yaml

    lines: Lines = {}
    try:
        document = parse_yaml(read_bytes(path), lines, first="arm: COLUMN")
        columns = read_model(Columns, document, form="a mapping of columns")
    except StudyError as error:
        raise error.at(file=path, line=error.where.line or line_of(error.where.field, lines)) from None
    return TableLayout(columns.arm, columns.seed, columns.step, columns.at_step, dict(columns.metrics))


def template(path: Path, study: Study) -> str:
    """A mapping for a wide table, guessed by names; what has no likely column is left empty.

    Raises `EvidenceError` where the table cannot be read, or needs none.
    """
    from prereg.registry.plan import needed_metrics

    columns: list[str] = json.loads(in_limited_process(column_names, str(path)))
    metrics = dict.fromkeys([*needed_metrics(study), CURVE], "")
    layout = complete(columns, TableLayout("", "", "", metrics=metrics))
    if layout.panel or sorted(columns) == sorted(LONG.needed):
        raise EvidenceError(
            "a panel of W&B already" if layout.panel else "long rows already",
            required="a wide table",
            fix=f"ablate import STUDY {path}",
            where=Where(file=path),
        )
    if not layout.metrics[CURVE] and CURVE not in needed_metrics(study):
        del layout.metrics[CURVE]
    places = {"arm": layout.variant, "seed": layout.seed, "step": layout.step}
    shown = [f"{name}: {json.dumps(column)}" for name, column in places.items()]
    shown += ["metrics:", *(f"  {metric}: {json.dumps(column)}" for metric, column in layout.metrics.items())]
    rest = ", ".join(json.dumps(column) for column in columns if column not in layout.needed)
    note = [f"# other columns: {rest}"] if rest else []
    if not layout.step:
        note.append("# where no column holds the step, write at_step: N in place of step")
    return "\n".join([*shown, *note]) + "\n"


def column_names(path: str) -> bytes:
    """The columns of a table as JSON, within the limited process. Raises `EvidenceError` where there are none."""
    try:
        columns, _ = _opened(Path(path))
        if not columns:
            raise LineError("the table is empty")
    except LineError as error:
        raise EvidenceError(f"no columns: {error}", required="a table", where=Where(file=Path(path))) from None
    return json.dumps(columns).encode()


def _names_of(metric: str) -> list[str]:
    """A metric's name and those that others give to the same."""
    first, _, rest = metric.partition("/")
    return [f"{word}/{rest}" for word in _SAME.get(first, (first,))] if rest else [metric]


def plain_name(name: str) -> str:
    """A column's name without what people write differently: Val/Loss, val_loss."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _plain_forms(column: str) -> tuple[str, ...]:
    first, _, rest = column.partition(".")
    return (plain_name(column), plain_name(rest)) if first in _PREFIXES else (plain_name(column),)
