"""Bins, blocks and further values in the made-up decisions of `report_samples`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from report_samples import decide_by_hand, document, make_evidence, register_by_hand, told

from ablate.records.evidence import METRIC_COLUMNS, Evidence
from ablate.reporting.context import ReportContext
from prereg.metrics.catalogue import METRICS
from prereg.study.spec import study_from_document

BINS = 15


def with_rows(account: ReportContext, rows: list[tuple[str, int, int, str, float]]) -> ReportContext:
    """The same account with more recorded values."""
    more = pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
    frame = pd.concat([account.evidence.metrics, more], ignore_index=True)
    return replace(account, evidence=replace(account.evidence, metrics=frame))


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
    return with_bins(told(ending, **suites))


def as_embnorm() -> ReportContext:
    """Three arms, five seeds, four hypotheses and 300 steps, with the suites of a study that looks into its models."""
    harm = {"claim": "rmsnorm does_not_worsen val/accuracy", "smallest": 0.005}
    claims = document()["hypotheses"] | {"harm_rms": harm}
    account = with_bins(told(hypotheses=claims, measure={"every": 25, "suites": list(_SUITES)}))
    made = ("speed/measure", "val/loss", "val/accuracy", "calibration/ece")
    single = [name for name in METRICS if METRICS[name].suite in _SUITES and not name.startswith(made)]
    by_block = ("grad/layer", "grad/first_layer", "residual/norm", "residual/cosine")
    by_block += ("adam/second_moment",)
    names = [*single, "val/loss_first_quarter", "val/loss_last_quarter"]
    names += [f"{stem}_{block}" for stem in by_block for block in range(8)]
    cells = [(run.variant, run.seed) for run in account.evidence.runs]
    rows = [
        (arm, seed, step, name, 1.0 + at % 7 + 0.1 * len(arm) + 0.01 * seed * (at % 5) + step / 300)
        for arm, seed in cells
        for at, name in enumerate(names)
        for step in (25, 300)
    ]
    return with_rows(account, rows)


_SUITES = ("loss", "calibration", "activations", "gradients", "speed")


def of_many_runs(arms: int = 20, seeds: int = 50) -> ReportContext:
    """A decided study of many runs, 1,000 by default, each with a curve of 13 points."""
    variants: dict[str, Any] = {"none": {}} | {f"arm{at}": {"model.dropout": at / 100} for at in range(1, arms)}
    study = study_from_document(
        document(
            variants=variants,
            seeds=list(range(1, seeds + 1)),
            hypotheses={"gain": {"claim": "arm1 lowers val/loss", "smallest": 0.02}},
            decision=[{"verdict": "adopt", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
            tie_breakers=[],
            assume={"metrics": {"val/loss": {"sd": 0.011, "correlation": 0.8}}},
        )
    )
    registration = register_by_hand(study)
    rng, rows = np.random.default_rng(7), []
    for place, arm in enumerate(variants):
        for seed in study.seeds:
            for step in range(0, 301, 25):
                loss = 2.0 + 2.2 * math.exp(-step / 70) - 0.002 * place + 0.01 * float(rng.normal())
                rows += [(arm, seed, step, "val/loss", loss), (arm, seed, step, "grad/norm", 1.0 + loss / 3)]
    planned = tuple((arm, seed) for seed in study.seeds for arm in variants)
    whole = make_evidence(study_from_document(document()), registration, "decided").runs[0]
    runs = tuple(whole.model_copy(update={"variant": arm, "seed": seed}) for arm, seed in planned)
    frame = pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
    evidence = Evidence(planned=planned, runs=runs, metrics=frame, ledger_head="0" * 64)
    decision = decide_by_hand(study, registration, evidence, "decided")
    return ReportContext(decision, registration, evidence, "0" * 64, "2026-05-04T15:20:11+00:00")


def with_blocks(account: ReportContext, depths: dict[str, int]) -> ReportContext:
    """Gradient norms of every block: 10^block at step 25, twice that and a hundredth more a seed at step 300."""
    rows = []
    for run in account.evidence.runs:
        for block in range(depths.get(run.variant, 0)):
            for step, value in ((25, 10.0**block), (300, 2.0 * 10.0**block * (1 + run.seed / 100))):
                made = {"variant": run.variant, "seed": run.seed, "step": step, "value": value}
                rows.append(made | {"metric": f"grad/layer_{block}"})
    frame = account.evidence.metrics
    more = pd.DataFrame(rows).reindex(columns=frame.columns)
    for column in set(METRIC_COLUMNS) - {"variant", "seed", "step", "metric", "value"}:
        more[column] = frame[column].iloc[0]
    return replace(account, evidence=replace(account.evidence, metrics=pd.concat([frame, more], ignore_index=True)))
