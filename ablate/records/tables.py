"""Tables of many runs, made elsewhere: their rows by run; the guess of which column holds what.

`import`, `import --template`, `judge FILE` and `judge_frame` share both. JSON lines, CSV and Parquet; long rows, wide
ones, and what W&B exports from a panel: a column of steps, and for every run `RUN - METRIC` with `__MIN` and `__MAX`.
A layout may be a small YAML file, of which `template` guesses one from the table's own columns:

    arm: run_name
    seed: seed
    step: iter
    metrics:
      val/loss: valid_loss

To add a kind of file: its ending in `SUFFIXES`, a branch in `_opened` that gives the columns and the records by line,
and tests/records/test_tidy.py. To add a name that people give a column: `ARMS`, `SEEDS`, `STEPS` or `_SAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.records.parquet import TableError, columns_of_parquet, read_parquet
from ablate.records.rows import (
    CURVE,
    Cell,
    LineError,
    Records,
    Row,
    TableLayout,
    csv_records,
    csv_table,
    form_of,
    json_records,
    panel_metrics,
    read_bytes,
    rows_by_run,
    series_of,
)
from prereg.errors import EvidenceError, SpecError, StudyError, Where, nearest

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
"""Long rows under the names that this project writes."""
ARMS = ("variant", "arm", "model", "config", "run_name", "name", "group", "method")
SEEDS = ("seed", "random_seed", "rng", "rng_seed", "random_state")
STEPS = ("step", "_step", "global_step", "iter", "iteration", "train_step", "epoch")
"""Names that columns of arms, seeds and steps have elsewhere; the first that a table has is taken."""
_SAME = {"val": ("val", "valid", "validation", "eval", "dev"), "train": ("train", "training")}
_PREFIXES = ("params", "metrics", "tags", "config", "summary")
"""Of columns that MLflow and W&B write for tables of runs: `params.seed`, `metrics.val_loss`."""


def read_table(path: Path, layout: TableLayout = LONG) -> dict[Cell, list[Row]]:
    """The rows of a stranger's file by run, by a layout whose names that are none are guessed.

    Raises `EvidenceError` with the line, and where a Parquet file takes more memory than such a file may.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "runs.csv")
        ...     _ = path.write_text("arm,seed,iter,val_loss\\nwide,0,10,2.5\\n")
        ...     read_table(path, TableLayout(arm=None, step=None, metrics={"val/loss": None}))
        {('wide', 0): [Row(step=10, metric='val/loss', value=2.5)]}
    """
    try:
        # Columns first, records later: a layout that does not fit is refused before a row is read.
        columns, records = _opened(path)
        layout = guess_columns(columns, layout)
        require_complete(columns, layout)
        runs = rows_by_run(_counted(records(layout)), layout)
        if not runs:
            raise LineError("no row", line=1)
    except EvidenceError as fault:
        raise fault.at(file=path) from None
    except LineError as fault:
        raise EvidenceError(
            f"line {fault.line}: {fault}",
            required="rows of " + ", ".join(_needed(layout)),
            fix=fault.fix or f"--template prints a mapping of {path.name}, for --mapping; or --column METRIC=COLUMN",
            where=Where(file=path, line=fault.line),
        ) from None
    return runs


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
    # Only columns that the layout names are decoded: a stranger's table may have hundreds of others.
    series = series_of(names, layout, header=True)
    columns = dict.fromkeys(column for part in series for column in (*part.columns.values(), *part.ends))
    try:
        table = read_parquet(data, list(columns), most_rows=min(MOST_ROWS, FREE_ROWS + len(data)))
    except TableError as error:
        raise LineError(f"the file {error}", line=1) from None
    # Few at a time: a long text that a dictionary holds once becomes one of each row.
    batches = table.to_batches(max_chunksize=4096)
    yield from enumerate((record for batch in batches for record in batch.to_pylist()), start=1)


def _needed(layout: TableLayout) -> list[str]:
    """The columns of a table, for a message."""
    step = layout.step if layout.at_step is None else None
    return [name for name in (layout.arm, layout.seed, step, *(layout.metrics.values() or ("metric", "value"))) if name]


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

    # Metrics under the names of the study; each is looked for by guesses alone (None).
    runs = read_table(path, layout.model_copy(update={"metrics": dict.fromkeys(metrics)}))
    last = max((row.step for rows in runs.values() for row in rows), default=0)
    records: dict[tuple[str, int, int], dict[str, Any]] = {}
    for (variant, seed), rows in runs.items():
        for step, values in [(row.step, {row.metric: row.value}) for row in rows] or [(last, {})]:
            record = records.setdefault((variant, seed, step), {"variant": variant, "seed": seed, "step": step})
            record.update(values)
    return pd.DataFrame(records.values(), columns=["variant", "seed", "step", *metrics])


def guess_columns(columns: Sequence[str], layout: TableLayout) -> TableLayout:
    """The layout with each name that is none guessed from the columns, whatever their case and punctuation.

    Where no column is likely, a name stays none; without a column for steps every row is of step 0.

        >>> layout = TableLayout(arm=None, seed=None, step=None, metrics={"val/loss": None})
        >>> layout = guess_columns(["run_name", "Seed", "iter", "valid_loss"], layout)
        >>> layout.arm, layout.seed, layout.step, layout.metrics
        ('run_name', 'Seed', 'iter', {'val/loss': 'valid_loss'})
    """
    # Each column is taken once: the arm's before the metrics', so that no name is guessed twice.
    free = [column for column in columns if column not in (layout.arm, layout.seed, layout.step)]

    def take(names: Sequence[str]) -> str | None:
        for name in names:
            for column in free:
                if column == names[0] or plain_name(name) in _plain_forms(column):
                    free.remove(column)
                    return column
        return None

    # 1. The arm, which also shows whether this is a panel of W&B: that has a column for each run and none for the
    # arm.
    layout = layout.model_copy(update={"arm": layout.arm or take(ARMS)})
    is_panel = form_of(columns, layout) == "panel"
    step = None if is_panel and layout.step not in columns else layout.step
    # 2. Seed and step; without a column of steps, every row is of step 0.
    places: dict[str, Any] = {"seed": layout.seed or take(SEEDS), "step": step or take(STEPS)}
    if places["step"] is None and not is_panel:
        places["at_step"] = layout.at_step or 0
    # 3. The metrics, among the columns that are left.
    free = panel_metrics(columns) if is_panel else free
    metrics = {metric: label or take(_names_of(metric)) for metric, label in layout.metrics.items()}
    return layout.model_copy(update=places | {"metrics": metrics})


def require_complete(columns: Sequence[str], layout: TableLayout) -> None:
    """Raise `EvidenceError` for the first name that is still none, or a pattern of names without a panel."""
    form = form_of(columns, layout)
    is_panel = form == "panel"
    if is_panel and layout.step is None and layout.at_step is None:
        raise EvidenceError("a panel of W&B without a column of steps", required="its export by the axis Step")
    if layout.run_pattern is not None and not is_panel:
        raise EvidenceError("--run-pattern, and no panel of W&B", required="columns RUN - METRIC, and one of steps")
    # What a message lists: of a panel its metrics, since its columns are RUN - METRIC, as many as runs.
    there = panel_metrics(columns) if is_panel else columns
    places = {} if is_panel else {"the arm": layout.arm, "the seed": layout.seed}
    for what, name in (places | ({} if form == "long" else layout.metrics)).items():
        if name is None:
            one_of = "one of " + ", ".join(there)
            raise EvidenceError(
                f"no column of the table is known to hold {what}",
                required="columns for arm, seed and values",
                fix=nearest(what, there) or one_of if what in layout.metrics else f"--{what[4:]}-column, {one_of}",
            )


def read_mapping(path: Path) -> TableLayout:
    """The layout that a mapping describes. Raises `StudyError` with the line."""
    # Late: they load every model of a study, and a table is read without.
    from prereg.study.faults import read_model
    from prereg.yaml_reader import Lines, line_of, parse_yaml

    lines: Lines = {}
    try:
        document = parse_yaml(read_bytes(path), lines, first="arm: COLUMN")
        layout = read_model(TableLayout, document, form="a mapping of columns")
        if None in (layout.arm, layout.seed, layout.step, *layout.metrics.values()):
            raise SpecError("a column without a name", required="the name of a column of the table")
    except StudyError as error:
        raise error.at(file=path, line=error.where.line or line_of(error.where.field, lines)) from None
    return layout


def template(path: Path, study: Study) -> str:
    """A mapping for a wide table, guessed by names; what has no likely column is left empty.

    Raises `EvidenceError` where the table cannot be read, or needs none.
    """
    from prereg.registry.plan import needed_metrics

    columns = _column_names(path)
    metrics = dict.fromkeys([*needed_metrics(study), CURVE])
    # 1. What can be guessed, of the metrics that claims read and the training loss.
    layout = guess_columns(columns, TableLayout(arm=None, seed=None, step=None, metrics=metrics))
    form = form_of(columns, layout)
    if form != "wide":
        raise EvidenceError(
            "a panel of W&B already" if form == "panel" else "long rows already",
            required="a wide table",
            fix=f"ablate import STUDY {path}",
            where=Where(file=path),
        )
    if layout.metrics[CURVE] is None and CURVE not in needed_metrics(study):
        del layout.metrics[CURVE]
    # 2. Written as YAML by hand, because an empty value and the comments are the point of a template.
    places = {"arm": layout.arm, "seed": layout.seed, "step": layout.step}
    shown = [f"{name}: {json.dumps(column or '')}" for name, column in places.items()]
    shown += ["metrics:", *(f"  {metric}: {json.dumps(column or '')}" for metric, column in layout.metrics.items())]
    rest = [json.dumps(column) for column in columns if column not in (*places.values(), *layout.metrics.values())]
    note = [f"# other columns: {', '.join(rest)}"] if rest else []
    if layout.step is None:
        note.append("# where no column holds the step, write at_step: N in place of step")
    return "\n".join([*shown, *note]) + "\n"


def _column_names(path: Path) -> list[str]:
    """Return the columns of a table. Raises `EvidenceError` where there are none."""
    try:
        columns, _ = _opened(path)
        if not columns:
            raise LineError("the table is empty")
    except LineError as error:
        raise EvidenceError(f"no columns: {error}", required="a table", where=Where(file=path)) from None
    return columns


def _names_of(metric: str) -> list[str]:
    """A metric's name and those that others give to the same."""
    first, _, rest = metric.partition("/")
    return [f"{word}/{rest}" for word in _SAME.get(first, (first,))] if rest else [metric]


def plain_name(name: str) -> str:
    """A column's name without what people write differently: Val/Loss, val_loss.

    >>> plain_name("Val/Loss") == plain_name("val_loss")
    True
    """
    return re.sub("[^a-z0-9]", "", name.lower())


def _plain_forms(column: str) -> tuple[str, ...]:
    first, _, rest = column.partition(".")
    # `params.seed` is a seed; `layer.seed` is not taken for one.
    return (plain_name(column), plain_name(rest)) if first in _PREFIXES else (plain_name(column),)
