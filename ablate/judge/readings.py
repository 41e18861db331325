"""Where on its curve a claim reads its metric, as registered: at the end, at a step, at its best, or over its area.

    final          the value at the run's last step
    {step: N}      the value at step N
    best           the best value of any evaluation, in the metric's own direction; it favours noisier curves
    {last: N}      the mean of the last N evaluations, that at step 0 never among them
    area           the area under the curve over steps (trapezoids), divided by the steps: the curve's mean, in the
                   metric's own unit. All arms read as many tokens a step, so it is the mean over tokens too

Under `test: items`, and of the accuracy on one task, it is the mean of the run's items, so that a finding's pairs are
those of its test. Accuracies by task are recorded nowhere else.

A run without the value that the claim needs gives none here, and the audit says so.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd

from ablate.records.evidence import Evidence
from prereg.metrics.catalogue import ITEM_METRICS, task_of
from prereg.registry.plan import Cell
from prereg.study.analysis import AtStep, Ceiling, OverLast
from prereg.study.spec import Study


def reading_of(study: Study, hypothesis: str) -> str:
    """The metric and where it is read, in words; the metric's name alone at the end of a run."""
    metric, read = study.claims[hypothesis].metric, study.hypotheses[hypothesis].read
    if isinstance(read, AtStep):
        return f"{metric} at step {read.step}"
    if isinstance(read, OverLast):
        return f"mean of the last {read.last} {metric}"
    best = "lowest" if study.claims[hypothesis].better == "lower" else "highest"
    return {"final": metric, "best": f"{best} {metric}", "area": f"mean {metric} over training"}[read]


def read_values(study: Study, hypothesis: str, evidence: Evidence) -> dict[Cell, float]:
    """(arm, seed) -> the value that the claim reads, of every finished run that has it."""
    metric, read = study.claims[hypothesis].metric, study.hypotheses[hypothesis].read
    done = {run.cell: run.steps for run in evidence.runs if run.status == "done"}
    if study.analysis.test == "items" or task_of(metric) is not None:
        means = {} if evidence.items is None else item_means(evidence.items, metric)
        return {cell: value for cell, value in means.items() if cell in done}
    if read == "final":
        return evidence.final(metric)
    found: dict[Cell, float] = {}
    for cell, (steps, values) in evidence.lines(metric).items():
        if cell not in done or steps[-1] != done[cell]:
            continue
        if isinstance(read, AtStep):
            here = values[steps == read.step]
            if here.size:
                found[cell] = float(here[0])
        elif isinstance(read, OverLast):
            late = values[steps > 0][-read.last :]
            if late.size == read.last:
                found[cell] = float(late.mean())
        elif read == "best":
            found[cell] = float(values.min() if study.claims[hypothesis].better == "lower" else values.max())
        elif steps.size > 1:
            found[cell] = float(np.trapezoid(values, steps) / (steps[-1] - steps[0]))
    return found


def final_values(study: Study, evidence: Evidence) -> dict[str, dict[Cell, float]]:
    """reading -> {(arm, seed): value}; a diverged run has the registered ceiling, the worst, or no value."""
    diverged = [run.cell for run in evidence.runs if run.status == "diverged"]
    values = {}
    for reading, name in {reading_of(study, name): name for name in study.hypotheses}.items():
        found = read_values(study, name, evidence)
        if isinstance(study.on_divergence, Ceiling):
            found |= dict.fromkeys(diverged, study.on_divergence.ceiling)
        if study.on_divergence == "rank":
            # Claims about one metric agree on which end of the line is worse (`prereg.study.validate`).
            found |= dict.fromkeys(diverged, inf if study.claims[name].better == "lower" else -inf)
        values[reading] = found
    return values


def rows_of(items: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of an items table that a mean over items is over."""
    task = task_of(metric)
    if task is not None:
        items = items[items["task"] == task]
    return items[items["metric"] == ITEM_METRICS[metric].scores]


def item_means(items: pd.DataFrame, metric: str) -> dict[Cell, float]:
    """(arm, seed) -> the metric's value, from the scores of the run's items; not a number where a score is none."""
    declared = ITEM_METRICS[metric]
    rows = rows_of(items, metric)
    found: dict[Cell, float] = {}
    # In the order of the items' names: a sum depends on its order in the last bit.
    for (arm, seed), run in rows.sort_values(["task", "item"], kind="stable").groupby(["variant", "seed"], sort=True):
        values = run["value"].to_numpy(np.float64)
        if declared.counts_alike == "tasks":
            codes = pd.factorize(run["task"])[0]
            values = np.bincount(codes, weights=values) / np.bincount(codes)
        found[str(arm), int(str(seed))] = float(values.mean())
    return found
