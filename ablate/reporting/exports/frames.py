"""Frames of pandas: findings, pairs, curves and runs, with the columns of the CSV export and unrounded numbers.

A number that does not exist is NaN. `COLUMNS` says what each column is. Each row names the study and its status, as
in the CSV files, so that a row that left the others still says whether it may be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ablate.judge.verdict import Finding
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics
from ablate.reporting.exports.files import COLUMNS as FILES
from ablate.reporting.exports.files import arms_of_sides, finding_rows, metrics_of
from prereg.errors import EvidenceError, nearest
from prereg.study.spec import Study

_STUDY = {name: about for name, about in FILES["findings.csv"].items() if name in ("study", "status")}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "findings": FILES["findings.csv"],
    "pairs": {
        **_STUDY,
        "hypothesis": "the hypothesis that read the values",
        "metric": "the metric",
        "unit": "its unit, and the scale if not raw",
        "seed": "the seed that both sides share",
        "variant": "the arm on the left side of the claim; missing where that side is several arms",
        "baseline": "the arm on its right side; missing where that side is several arms or a constant",
        "left": "the value of the left side, on the registered scale",
        "right": "the value of the right side",
        "difference": "left minus right",
    },
    "curves": FILES["curves.csv"],
    "runs": {
        **_STUDY,
        "arm": "the arm",
        "seed": "the seed",
        "ended": "done or diverged",
        "steps": "steps taken",
        "attempts": "times the run was started",
        "train_s": "seconds of training steps",
        "wall_s": "seconds in all",
        "device": "where it was trained",
    },
}
"""Frame -> column -> what it is. `runs` has a column more for each metric of `metrics_of`: its value at the last step,
missing where the run diverged."""

_NUMBERS = {"difference", "se", "df", "n_items", "margin", "alpha", "left", "right", "value", "train_s", "wall_s"}
_ENDS = ("_low", "_high", "_level")
_NUMBERS |= {name for name in COLUMNS["findings"] if name.startswith("p_") or name.endswith(_ENDS)}


def findings_frame(study: str, status: str, findings: Sequence[Finding]) -> pd.DataFrame:
    """A row for each hypothesis."""
    return _frame(COLUMNS["findings"], ((study, status, *row) for row in finding_rows(findings)))


def pairs_frame(study: Study, status: str, findings: Sequence[Finding], of: str | None) -> pd.DataFrame:
    """A row for each pair of each hypothesis, or of those of one hypothesis or metric.

    Raises `EvidenceError` for a name that is neither, and for a test without pairs.
    """
    chosen = [finding for finding in findings if of in (None, finding.hypothesis, finding.metric)]
    if not chosen:
        names = [
            *dict.fromkeys([*(finding.hypothesis for finding in findings), *(finding.metric for finding in findings)])
        ]
        raise EvidenceError(
            f"'{of}' is neither a hypothesis nor a metric of one",
            required=f"one of {', '.join(names)}",
            fix=nearest(str(of), names),
        )
    if not study.paired:
        raise EvidenceError(
            f"'{study.study}' has no pairs: its test is {study.analysis.test}",
            required="a paired test",
            fix=".runs has the final value of each run",
        )
    # One row a pair, as in pairs.csv but with both sides in it: a frame is read by people and by plots.
    rows = []
    for finding in chosen:
        arms = arms_of_sides(study, finding)
        about = (study.study, status, finding.hypothesis, finding.metric, finding.unit)
        rows += [
            (*about, pair.seed, arms["left"], arms["right"], pair.left, pair.right, pair.difference)
            for pair in finding.pairs
        ]
    return _frame(COLUMNS["pairs"], rows)


def curves_frame(context: ReportContext, metric: str | None) -> pd.DataFrame:
    """Every recorded value of a metric, or of those of the claims, the tie-breakers and val/loss.

    Raises `EvidenceError` for a metric that no run recorded.
    """
    recorded = recorded_metrics(context.evidence)
    if metric is not None and metric not in recorded:
        raise EvidenceError(
            f"no run recorded '{metric}'", required=f"one of {', '.join(recorded)}", fix=nearest(metric, recorded)
        )
    parts = []
    for name in [name for name in metrics_of(context) if name in recorded] if metric is None else [metric]:
        line = context.evidence.curve(name).rename(columns={"variant": "arm"})
        parts.append(line.assign(study=context.decision.study, status=context.decision.status, metric=name))
    return pd.concat(parts, ignore_index=True)[list(COLUMNS["curves"])] if parts else _frame(COLUMNS["curves"], [])


def runs_frame(context: ReportContext) -> pd.DataFrame:
    """A row for each run that was sealed, in the order of the plan, with its final values."""
    finals = {metric: context.evidence.final(metric) for metric in metrics_of(context)}
    # A metric that nobody recorded has no column, rather than one of NaN.
    finals = {metric: values for metric, values in finals.items() if values}
    by_cell = {run.cell: run for run in context.evidence.runs}
    own = (context.decision.study, context.decision.status)
    rows = []
    for run in (by_cell[cell] for cell in context.evidence.planned if cell in by_cell):
        made = (run.variant, run.seed, run.status, run.steps, run.attempts, run.train_s, run.wall_s)
        rows.append((*own, *made, run.provenance.device, *(values.get(run.cell) for values in finals.values())))
    return _frame([*COLUMNS["runs"], *finals], rows, numbers=finals)


def _frame(columns: Iterable[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[str] = ()) -> pd.DataFrame:
    """A frame whose numbers are numbers, NaN where there is none, in a column without any too."""
    names = list(columns)
    data: list[Any] = list(rows)
    frame = pd.DataFrame(data, columns=names)
    # A column of None would be of type object, and arithmetic on it would fail far from here.
    return frame.astype(dict.fromkeys([name for name in names if name in {*_NUMBERS, *numbers}], float))
