"""Which column of a wide table holds what, as a small YAML file: guessed from the table's own columns, then read.

arm: run_name
seed: seed
step: iter
metrics:
  val/loss: valid_loss
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from ablate.records.parquet import TableError, open_bounded
from ablate.records.rows import CURVE, LineError, csv_table, lines_of, object_of, read_bytes
from ablate.records.tables import COLUMNS, TableLayout
from prereg.errors import EvidenceError, StudyError, Where
from prereg.frozen import FrozenModel
from prereg.registry.plan import needed_metrics
from prereg.study.faults import spec_error
from prereg.study.load import Lines, line_of, parse_yaml
from prereg.study.spec import Study

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
        try:
            found = Columns.model_validate_json(json.dumps(document, allow_nan=False))
        except ValidationError as error:
            raise spec_error(error, document, Columns, form="a mapping of columns") from None
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
        found = next((column for name in names for column in free if _plain(column) == _plain(name)), "")
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


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())
