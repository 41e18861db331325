"""Trackers (MLflow, TensorBoard): their runs as the rows that a file would give, arm, seed, step, metric, value.

MLflow says of a run whether it has finished, and its parameters or tags name arm and seed. TensorBoard says neither: a
pattern over the folder's name gives arm and seed, and a run that lacks a claimed value is taken for unfinished. What is
left out is named, with the reason.

To add a tracker: its name in `KINDS`, an iterator of `TrackedRun` next to `_mlflow` and `_tensorboard`, an extra of
that name in pyproject.toml, and a recorded store in tests/records/trackers. W&B is in `KINDS` for its message alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.records.rows import (
    RUN_PATTERN,
    Cell,
    LineError,
    Row,
    TableLayout,
    cell_text,
    checked,
    compiled_pattern,
    divergence_of,
    lacking,
    value_of,
)
from ablate.records.tables import MOST_ROWS
from prereg.errors import EvidenceError, RunError
from prereg.registry.plan import needed_metrics
from prereg.study.spec import Study

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

KINDS = ("mlflow", "tensorboard", "wandb")
Curves = Mapping[str, Iterable[tuple[int, float]]]
"""Metric -> steps and values."""


@dataclass(frozen=True)
class TrackedRun:
    """One run as a tracker holds it."""

    name: str
    fields: Mapping[str, str]
    """Parameters and tags."""
    state: str
    """`finished`, `unknown` where the tracker does not say, or what it says."""
    curves: Callable[[], Curves]
    """Reads them: a run that is left out need not be read."""


@dataclass(frozen=True)
class Tracked:
    """The runs of a tracker that have ended."""

    rows: dict[Cell, list[Row]]
    left_out: tuple[str, ...]
    """What has not ended, or is no run of a study, and why."""


def is_tracked(source: str) -> bool:
    """Whether a source is a tracker's and no file or folder.

    >>> is_tracked("mlflow:sqlite:///runs.db#width"), is_tracked("runs.csv")
    (True, False)
    """
    return source.partition(":")[0] in KINDS and ":" in source


def read_tracked(source: str, study: Study, layout: TableLayout) -> Tracked:
    """The runs of `mlflow:URI#EXPERIMENT` or `tensorboard:DIR`; a pattern finds arm and seed in the name of a run.

    `layout.arm` and `layout.seed` name parameters or tags where there is no pattern. Raises `EvidenceError` where the
    tracker cannot be read or a value is no number, `RunError` where its library is not installed.

        tracked = read_tracked("tensorboard:runs", study, TableLayout(run_pattern="{variant}-s{seed}"))
        tracked.rows["wide", 0][-1], tracked.left_out
    """
    kind, _, place = source.partition(":")
    if kind == "wandb":
        raise EvidenceError(
            f"the source '{source}'",
            required="a table: W&B has no stable way to read its own files",
            fix="export CSV on its site or by run.history(), then: --column METRIC=COLUMN --step-column _step",
        )
    # Trackers are optional extras: which one is needed is said before anything else.
    _require_installed(kind, source)
    pattern = None
    if layout.run_pattern or kind == "tensorboard":
        pattern = compiled_pattern(layout.run_pattern or RUN_PATTERN)
    # One run after another: the curves of a run are read when its turn comes, and not at all where it is left out.
    runs = _mlflow(source, place) if kind == "mlflow" else _tensorboard(source, place)
    rows: dict[Cell, list[Row]] = {}
    left_out: list[str] = []
    for run in runs:
        try:
            # A run without arm and seed is no run of this study: an experiment may hold others. Left out,
            # and named.
            cell = _cell(run, pattern, layout)
            if isinstance(cell, str) or run.state not in ("finished", "unknown"):
                left_out.append(f"{run.name}: {cell if isinstance(cell, str) else run.state}")
                continue
            # Which of two would count is a choice, and it would be made after their results were seen.
            if cell in rows:
                raise LineError(f"a second run of {cell_text(cell)}")
            run_rows = _rows(run.curves(), layout)
        except LineError as fault:
            raise EvidenceError(f"{source}: {run.name}: {fault}", required="each run once, with numbers") from None
        # A run that diverged has ended whatever it lacks. Where the tracker does not say that a run has finished, one
        # without a claimed value is taken to be at work still.
        absent = lacking(run_rows, needed_metrics(study), whole_curve=False)
        ended = run.state == "finished" or divergence_of(run_rows, study.stable.diverged.loss_above) is not None
        if not run_rows or (absent and not ended):
            left_out.append(f"{cell_text(cell)}: {absent[0]}")
        else:
            rows[cell] = run_rows
        if sum(map(len, rows.values())) > MOST_ROWS:
            raise EvidenceError(f"{source}: more than {MOST_ROWS:,} rows", required="fewer runs at a time")
    if not rows:
        raise EvidenceError(
            f"{source}: no run that has ended" + (f"; {left_out[0]}" if left_out else ""),
            required="arm and seed of every run",
            fix='--arm-column NAME --seed-column NAME (parameters or tags), or --run-pattern "{variant}/seed{seed}"',
        )
    return Tracked(rows, tuple(left_out))


def _cell(run: TrackedRun, pattern: re.Pattern[str] | None, layout: TableLayout) -> Cell | str:
    """Arm and seed of a run, or why it has none."""
    # A pattern decides alone, so that a tag of the same name cannot contradict the run's name.
    if pattern is not None:
        match = pattern.fullmatch(run.name)
        return (match["variant"], int(match["seed"])) if match else "its name is not of the pattern"
    arm_field, seed_field = str(layout.arm), str(layout.seed)
    for name in (arm_field, seed_field):
        if name not in run.fields:
            return f"no {name!r} among its parameters and tags"
    seed = run.fields[seed_field]
    # Tags are texts: int() would also take "1_0", " 1" and digits of other scripts.
    if not re.fullmatch("[0-9]{1,16}", seed):
        raise LineError(f"{seed_field} {seed[:60]!r}, which is not a whole number")
    return run.fields[arm_field], int(seed)


def _rows(curves: Curves, layout: TableLayout) -> list[Row]:
    """Rows by metric and step; a point that was sent twice counts once."""
    columns = layout.metrics or {name: name for name in curves}
    value_by_point: dict[tuple[str, int], float] = {}
    for metric, column in columns.items():
        # A client that retries may send a point twice: the same value is the same point, another value is a
        # fault.
        for step, number in curves.get(str(column), ()):
            key = (checked("metric", metric), checked("step", step if layout.at_step is None else layout.at_step))
            value = value_of(number, metric)
            first = value_by_point.setdefault(key, value)
            if repr(first) != repr(value):  # a loss that is no number equals itself here
                raise LineError(f"{metric} at step {key[1]} is {first} and {value}")
    return [Row(step, metric, value) for (metric, step), value in value_by_point.items()]


def _require_installed(kind: str, source: str) -> None:
    module_spec = find_spec(kind)
    # A folder of that name where the command was typed is no package.
    if module_spec is None or module_spec.origin is None:
        raise RunError(
            f"'{source}', and {kind} is not installed",
            required=f"the extra {kind}",
            fix=f"pip install 'ablate-prereg[{kind}]'",
        )


def _client(source: str, uri: str) -> MlflowClient:
    """A client of a server or store. Raises `RunError` where this installation cannot use it."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at its import: it would call home
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        return MlflowClient(tracking_uri=uri)
    except MlflowException as error:
        raise RunError(
            f"'{source}': {str(error).splitlines()[0]}",
            required="a tracking server, or a store that the installed MLflow can open",
            fix="mlflow:http://HOST:PORT#EXPERIMENT   (sqlite:///FILE needs the whole of it: pip install mlflow)",
        ) from None


def _mlflow(source: str, place: str) -> Iterator[TrackedRun]:
    uri, _, name = place.rpartition("#")
    if not uri or not name:
        raise EvidenceError(f"the source '{source}'", required="mlflow:URI#EXPERIMENT")
    client = _client(source, uri)
    from mlflow.exceptions import MlflowException

    # The history, since a run itself holds only the last value of each metric.
    def curves(run: str, names: Iterable[str]) -> Curves:
        return {name: [(m.step, m.value) for m in client.get_metric_history(run, name)] for name in names}

    try:
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            raise EvidenceError(f"{source}: no experiment {name!r}", required="the name of one that is there")
        # The server gives runs a page at a time, and a token for the next one as long as there is one.
        token: str | None = ""
        while token is not None:
            page = client.search_runs([experiment.experiment_id], page_token=token or None)
            token = page.token or None
            for run in page:
                info, data = run.info, run.data
                state = str(info.status).lower()
                names = sorted(data.metrics)
                yield TrackedRun(
                    str(info.run_name),
                    {**data.tags, **data.params},
                    state,
                    partial(curves, info.run_id, names),
                )
    except MlflowException as error:
        message = str(error).splitlines()[0][:300]
        raise EvidenceError(f"{source}: {message}", required="a tracking server or store that answers") from None


def _tensorboard(source: str, place: str) -> Iterator[TrackedRun]:
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    base = Path(place).expanduser()
    if not base.is_dir():
        raise EvidenceError(f"{source}: no such folder", required="a folder with a folder of event files for each run")

    def curves(folder: Path) -> Curves:
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})  # 0 is all; by default it samples 10
        events.Reload()
        names = events.PluginTagToContent("scalars") if "scalars" in events.ActivePlugins() else ()
        return {n: [(e.step, float(make_ndarray(e.tensor_proto).item())) for e in events.Tensors(n)] for n in names}

    # A folder may hold several event files, of a run that was resumed: the accumulator reads them as one.
    for folder in sorted({path.parent for path in base.rglob("*tfevents*")}):
        yield TrackedRun(folder.relative_to(base).as_posix(), {}, "unknown", partial(curves, folder))
