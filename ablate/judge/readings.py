"""Reading of a metric's curve, as registered: its value at the end, at a step, at its best, or over its area.

    final          the value at the run's last step
    {step: N}      the value at step N
    best           the best value of any evaluation, in the metric's own direction; it favours noisier curves
    {last: N}      the mean of the last N evaluations, that at step 0 never among them
    area           the area under the curve over steps (trapezoids), divided by the steps: the curve's mean, in the
                   metric's own unit. All arms read as many tokens a step, so it is the mean over tokens too

Under `test: items`, and of the accuracy on one task, it is the mean of the run's items, so that a finding's pairs are
those of its test. Accuracies by task are recorded nowhere else.

A run without the value that the claim needs gives none here, and the audit says so. One that diverged has none.

For a test without pairs the values are the runs of a claim arm by arm: a seed that one arm lacks, because its run
diverged, still counts for the other arms. Values are put on the claim's scale here, for pairs as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log, log10, sqrt

import numpy as np
import pandas as pd

from ablate.judge.stats.null_hypotheses import why_zeros_are_open
from ablate.judge.stats.precision import ROUNDING, Floats, on_a_grid
from ablate.judge.stats.significance_tests import EQUAL, exponent_of
from ablate.judge.stats.unpaired import Sample
from ablate.judge.verdict import ArmSample, SharedSeeds
from ablate.records.evidence import Evidence
from prereg.metrics.catalogue import ITEM_METRICS, task_of
from prereg.registry.plan import Cell
from prereg.rule.divergence import least_of
from prereg.study.analysis import AtStep, OverLast, Scale
from prereg.study.spec import Study


def reading_of(study: Study, hypothesis: str) -> str:
    """Return the metric and where it is read, in words; the metric's name alone at the end of a run."""
    metric, read = study.claims[hypothesis].metric, study.hypotheses[hypothesis].read
    if isinstance(read, AtStep):
        return f"{metric} at {study.step_name} {read.step}"
    if isinstance(read, OverLast):
        return f"mean of the last {read.last} {metric}"
    best = "lowest" if study.claims[hypothesis].better == "lower" else "highest"
    return {"final": metric, "best": f"{best} {metric}", "area": f"mean {metric} over training"}[read]


def read_values(study: Study, hypothesis: str, evidence: Evidence) -> dict[Cell, float]:
    """(arm, seed) -> the value that the claim reads, of every finished run that has it."""
    metric, read = study.claims[hypothesis].metric, study.hypotheses[hypothesis].read
    done = {run.cell: run.steps for run in evidence.runs if run.status == "done"}
    # The pairs of a finding are those of its test, and a test over items has means of them.
    if study.analysis.test == "items" or task_of(metric) is not None:
        means = {} if evidence.items is None else item_means(evidence.items, metric)
        return {cell: value for cell, value in means.items() if cell in done}
    if read == "final":
        return evidence.final(metric)
    value_by_run: dict[Cell, float] = {}
    for cell, (steps, values) in evidence.lines(metric).items():
        # A curve that ends before the run's last step was cut off; the audit names such runs.
        if cell not in done or steps[-1] != done[cell]:
            continue
        if isinstance(read, AtStep):
            here = values[steps == read.step]
            if here.size:
                value_by_run[cell] = float(here[0])
        elif isinstance(read, OverLast):
            late = values[steps > 0][-read.last :]
            if late.size == read.last:
                value_by_run[cell] = float(late.mean())
        elif read == "best":
            value_by_run[cell] = float(values.min() if study.claims[hypothesis].better == "lower" else values.max())
        elif steps.size > 1:
            value_by_run[cell] = float(np.trapezoid(values, steps) / (steps[-1] - steps[0]))
    return value_by_run


def final_values(study: Study, evidence: Evidence) -> dict[str, dict[Cell, float]]:
    """reading -> {(arm, seed): value}; a diverged run has none."""
    name_by_reading = {reading_of(study, name): name for name in study.hypotheses}
    return {reading: read_values(study, name, evidence) for reading, name in name_by_reading.items()}


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
    means: dict[Cell, float] = {}
    # In the order of the items' names: a sum depends on its order in the last bit.
    for (arm, seed), run in rows.sort_values(["task", "item"], kind="stable").groupby(["variant", "seed"], sort=True):
        # Mean of tasks' means where tasks count alike, else of items.
        values = run["value"].to_numpy(np.float64)
        if declared.counts_alike == "tasks":
            codes = pd.factorize(run["task"])[0]
            values = np.bincount(codes, weights=values) / np.bincount(codes)
        means[str(arm), int(str(seed))] = float(values.mean())
    return means


def samples_of(
    study: Study, name: str, values: Mapping[Cell, float], *, fewest: int | None = None
) -> tuple[tuple[Sample, ...], tuple[str, ...], str | None]:
    """The runs of every arm of a claim, notes on those that are left out, and why there is no test, if there is none.

    `fewest` is for description, in place of the least number of runs of an arm.
    """
    claim, scale, reading = study.claims[name], study.hypotheses[name].scale, reading_of(study, name)
    samples: list[Sample] = []
    notes: list[str] = []
    refused: str | None = None
    for arm, weight in claim.weights.items():
        # Each arm by itself: a seed that it lacks is no loss to the others.
        planned = study.seeds_of(arm)
        ended_seeds = tuple(seed for seed in planned if (arm, seed) in values)
        notes += [f"{arm}, seed {seed}, is left out: no {reading}" for seed in planned if seed not in ended_seeds]
        used = {(arm, seed): values[arm, seed] for seed in ended_seeds}
        refused = refused or unusable(reading, scale, used)
        least = (
            fewest if fewest is not None else 2 if len(ended_seeds) == len(planned) else least_of(study, len(planned))
        )
        if refused is None and len(ended_seeds) < least:
            refused = f"{len(ended_seeds)} of {len(planned)} runs of {arm}, and at least {least} must be there"
        if refused is None:
            samples.append(Sample(arm, weight, ended_seeds, np.array([scaled(raw, scale) for raw in used.values()])))
    if refused is None:
        with np.errstate(over="ignore"):
            if not isfinite(sum(abs(raw.weight) * float(np.abs(raw.values).max(initial=0.0)) for raw in samples)):
                refused = f"{reading} differs by more than the largest number there is"
    return (tuple(samples) if refused is None else ()), tuple(notes), refused


def notes_on_seeds(samples: Sequence[Sample]) -> tuple[str, ...]:
    """What a reader must know of the seeds: shared by none, or without any effect in an arm."""
    shared = _shared(samples)
    notes = [] if shared else ["the arms share no seed: their runs could not be paired"]
    notes += [
        f"all {sample.values.size} runs of {sample.arm} give the same value: the seed seems to do nothing there"
        for sample in samples
        if sample.values.size > 1 and np.ptp(sample.values) <= 2.0 * ROUNDING * np.abs(sample.values).max()
    ]
    notes += [text for text in [uneven_spread(samples)] if text]
    return tuple(notes)


SPREAD_APART = 4.0
"""One SD this many times another's is said: no test without pairs is at its level there, with few runs of an arm."""


def uneven_spread(samples: Sequence[Sample]) -> str:
    """What a reader must know where the runs of one arm vary many times as much as those of another."""
    sds = {sample.arm: sample.values for sample in samples if sample.values.size > 1}
    power = max((exponent_of(values) for values in sds.values()), default=0)
    # One unit for all arms: their SDs are compared.
    spread = {arm: float(np.ldexp(values, -power).std(ddof=1)) for arm, values in sds.items()}
    if len(spread) < 2:
        return ""
    most, least = (choose(spread, key=lambda arm: spread[arm]) for choose in (max, min))
    if spread[most] <= SPREAD_APART * spread[least] or spread[most] == 0.0:
        return ""
    times = f"{spread[most] / spread[least]:.3g} times" if spread[least] > 0.0 else "infinitely many times"
    return (
        f"the SD of {most} ({sds[most].size} runs) is {times} that of {least} ({sds[least].size}): with few runs of "
        "the arm that varies more the level is only near alpha"
    )


def shared_seeds(samples: Sequence[Sample]) -> SharedSeeds | None:
    """What pairing would have given over the seeds that every arm has; none where there are fewer than two."""
    shared = _shared(samples)
    if len(shared) < 2:
        return None
    columns = np.array([[sample.values[sample.seeds.index(seed)] for seed in shared] for sample in samples])
    weights = np.array([sample.weight for sample in samples])
    power = exponent_of(columns)
    parts = weights[:, None] * np.ldexp(columns, -power)
    n = len(shared)
    # The two sides of the claim, each a weighted sum of arms; their correlation is what pairing would have bought.
    sides = [parts[weights > 0].sum(axis=0), -parts[weights < 0].sum(axis=0)]
    correlation = None
    # Two points always lie on a line.
    if n > 2 and all(np.ptp(side) > EQUAL * np.abs(side).max() for side in sides):
        correlation = float(np.corrcoef(*sides)[0, 1])
    return SharedSeeds(
        n=n,
        se_paired=float(np.ldexp(parts.sum(axis=0).std(ddof=1) / sqrt(n), power)),
        se_unpaired=float(np.ldexp(sqrt(float(parts.var(axis=1, ddof=1).sum()) / n), power)),
        correlation=correlation,
    )


def stated(samples: Sequence[Sample]) -> tuple[ArmSample, ...]:
    """The runs as a finding lists them."""
    return tuple(
        ArmSample(arm=sample.arm, weight=sample.weight, seeds=sample.seeds, values=tuple(map(float, sample.values)))
        for sample in samples
    )


def _shared(samples: Sequence[Sample]) -> tuple[int, ...]:
    first, *others = samples
    return tuple(seed for seed in first.seeds if all(seed in sample.seeds for sample in others))


def unusable(metric: str, scale: Scale, used: Mapping[Cell, float]) -> str | None:
    """Why these values cannot be put on the scale: dropping them in silence would choose the data.

    Examples
    --------
    >>> unusable("val/loss", "log", {("rope", 3): 0.0})
    'val/loss of rope, seed 3, is 0, which has no logarithm'
    """
    for (arm, seed), value in used.items():
        if not isfinite(value):
            return f"{metric} of {arm}, seed {seed}, is not finite"
        if scale != "raw" and value <= 0.0:
            return f"{metric} of {arm}, seed {seed}, is {value:g}, which has no logarithm"
    return None


def scaled(value: float, scale: Scale) -> float:
    """A value of the metric on the claim's scale.

    Examples
    --------
    >>> scaled(100.0, "log10"), scaled(-1.0, "raw")
    (2.0, -1.0)
    """
    if scale == "raw":
        return value
    return log(value) if scale == "log" else log10(value)


def rounding_of(value: float, scale: Scale) -> float:
    """How far a value may lie from the one that was meant, on the claim's scale (`ablate.judge.stats.precision`).

    Examples
    --------
    >>> rounding_of(2.0, "raw") == 2.0 * ROUNDING, rounding_of(2.0, "log") == ROUNDING
    (True, True)
    """
    if scale == "raw":
        return ROUNDING * abs(value)
    # A share of a value is a step of its logarithm.
    return ROUNDING if scale == "log" else ROUNDING / log(10.0)


def why_zeros_were_open(
    study: Study, name: str, values: Mapping[Cell, float], seeds: Sequence[int], rounding: Floats
) -> str:
    """Why recorded differences of a claim that are all exactly zero say nothing about its margin (`why_zeros_are_open`,
    then what only values can say); empty where they do. `rounding` is how far each difference may lie from the one that
    was meant."""
    claim = study.claims[name]
    by_arm = {arm: np.array([values[arm, seed] for seed in seeds]) for arm in claim.named}
    if reason := why_zeros_are_open(study, name):
        return reason
    constant = [arm for arm, of_arm in by_arm.items() if np.unique(of_arm).size < len(seeds)]
    if constant:
        return f"{claim.metric} of {constant[0]} has one value under several seeds, so that equal values are no rarity"
    if on_a_grid(np.concatenate(list(by_arm.values()))):
        return (
            f"the values of {claim.metric} are multiples of one number, as counts and rounded numbers are, and arms "
            "that differ can have equal ones"
        )
    if study.hypotheses[name].smallest <= rounding.max():
        return f"the margin is less than single precision can tell at such values ({rounding.max():.2g})"
    return ""
