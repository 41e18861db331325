"""Published figures beside the made-up decisions of `report_samples`, and the bins of a reliability curve in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from report_samples import told

from ablate.records.evidence import METRIC_COLUMNS
from ablate.reporting.context import ReportContext
from prereg.documents.published import LoadedPublished, check_published, published_from_document
from prereg.registry.canon import sha256_of

BINS = 15


def published_document(**changes: Any) -> dict[str, Any]:
    """Two figures and two looks, as plain data."""
    return {
        "source": "A made-up table, Table 1",
        "runs": 3,
        "looks": [{"step": 150, "seeds": 3}, {"step": 300, "seeds": 5}],
        "figures": [
            {
                "label": "loss",
                "metric": "val/loss",
                "published": {"none": 2.10, "layernorm": 2.05, "rmsnorm": 2.08},
                "spread": {"none": 0.01},
                "note": "Another text, and <b>another</b> tokenizer.",
            },
            {
                "label": "proxy accuracy",
                "metric": "val/accuracy",
                "published": {"none": 0.35, "layernorm": 0.37},
                "note": "Measured over a part of the split.",
            },
        ],
    } | changes


def with_published(account: ReportContext, **changes: Any) -> ReportContext:
    """The same account with figures beside it."""
    published = published_from_document(published_document(**changes))
    check_published(published, account.study)
    file = "studies/embnorm.published.yaml"
    return replace(account, published=LoadedPublished(published, file, sha256_of(published.model_dump(mode="json"))))


def with_rows(account: ReportContext, rows: list[tuple[str, int, int, str, float]]) -> ReportContext:
    """The same account with more recorded values."""
    more = pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
    frame = pd.concat([account.evidence.metrics, more], ignore_index=True)
    return replace(account, evidence=replace(account.evidence, metrics=frame))


def without(account: ReportContext, metric: str, *, arm: str = "", seed: int = 0, step: int = -1) -> ReportContext:
    """The same account without some of a metric's values."""
    frame = account.evidence.metrics
    gone = frame["metric"] == metric
    for column, value in (("variant", arm), ("seed", seed), ("step", step)):
        if value not in ("", 0, -1):
            gone &= frame[column] == value
    return replace(account, evidence=replace(account.evidence, metrics=frame[~gone]))


def with_bins(account: ReportContext, *, bins: int = BINS) -> ReportContext:
    """Bins 2 to `bins` - 1 of every run, bin 2 of the first seed alone; confidence lies about 0.04 above accuracy."""
    rows = []
    held = bins - 2
    for run in account.evidence.runs:
        for number in range(bins):
            empty = number < 2 or (number == 2 and run.seed != 1)
            cell = (run.variant, run.seed, 300)
            share = 0.0 if empty else 2.0 * (bins - number) / (held * (held + 1))
            rows.append((*cell, f"calibration/bin_share_{number}", share))
            if not empty:
                confidence = (number + 0.5) / bins
                rows.append((*cell, f"calibration/bin_confidence_{number}", confidence))
                rows.append((*cell, f"calibration/bin_accuracy_{number}", confidence - 0.05 + 0.004 * run.seed))
        rows.append((run.variant, run.seed, 300, "calibration/ece", 0.04 + 0.001 * run.seed))
    return with_rows(account, rows)


def full(ending: Any = "decided") -> ReportContext:
    """Everything that the parts under test can show."""
    suites = {"measure": {"every": 25, "suites": ["loss", "calibration", "gradients", "speed"]}}
    return with_bins(with_published(told(ending, **suites)))
