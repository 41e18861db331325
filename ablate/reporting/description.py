"""Descriptive statistics of what runs recorded, as frames: by step, by block, by bin, and final values by arm.

Nothing here infers: no test, no interval, no judgement. Inference is the judge's, and is in the findings. The frames of
lines have the columns of `LINES`; a chart draws them by `charts.lines`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from statistics import fmean, stdev

import numpy as np
import pandas as pd

from ablate.judge.verdict import ArmSummary
from ablate.records.evidence import Evidence
from prereg.metrics.catalogue import METRICS, Better

LINES = ("arm", "x", "mean", "low", "high", "n")
"""Arm, place, mean over its runs, lowest and highest run, number of runs."""
MOST_POINTS = 150
"""Of one drawn line: with more, runs of evaluations are drawn as one point."""
_PRICE = re.compile(r"speed/measure_(\w+)_s")
Series = Mapping[tuple[str, int], "pd.Series[float]"]
"""(arm, seed) -> a metric by step."""


def better_in(better: Better, differences: Iterable[float]) -> tuple[Better, int]:
    """In how many of the pairs the left side is better, and which way that is; lower, where a metric has no better.

    >>> better_in("lower", [-0.2, -0.1, 0.05])
    ('lower', 2)
    """
    way: Better = "higher" if better == "higher" else "lower"
    return way, sum(difference > 0 if way == "higher" else difference < 0 for difference in differences)


def recorded_metrics(evidence: Evidence) -> list[str]:
    """Names of the metrics that finished runs recorded, in alphabetical order; the price of a suite is none of them."""
    names = {str(name) for name in evidence.metrics["metric"].unique()}
    return sorted(name for name in names if not _PRICE.fullmatch(name))


def seconds_by_suite(evidence: Evidence) -> dict[str, float]:
    """Suite -> seconds of measuring it in the sealed rows of all runs, costliest first; empty where none was timed."""
    sums: dict[str, float] = {}
    for metric in evidence.metrics["metric"].unique():
        timed = _PRICE.fullmatch(str(metric))
        if timed is not None:
            sums[timed[1]] = float(evidence.metrics.loc[evidence.metrics["metric"] == metric, "value"].sum())
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def summarise_arms(evidence: Evidence, metric: str, arms: Sequence[str]) -> tuple[ArmSummary, ...]:
    """Mean, standard deviation and number of seeds of the final values, for every arm that has any."""
    final = evidence.final(metric)
    summaries = []
    for arm in arms:
        values = [value for (variant, _), value in sorted(final.items()) if variant == arm]
        if values:
            # Divided by n - 1: the seeds are a sample.
            spread = stdev(values) if len(values) > 1 else None
            summaries.append(ArmSummary(arm=arm, n=len(values), mean=fmean(values), sd=spread))
    return tuple(summaries)


def by_step(evidence: Evidence, metric: str, arms: Sequence[str]) -> pd.DataFrame:
    """A metric by step (`LINES`): empty where no run was evaluated more than once."""
    return _over_runs(_series(evidence, metric), arms)


def differences_by_step(evidence: Evidence, metric: str, arms: Sequence[str], baseline: str) -> pd.DataFrame:
    """Every other arm minus the baseline of the same seed, by step (`LINES`): what the pairs show while they train."""
    recorded = _series(evidence, metric)
    gaps: dict[tuple[str, int], pd.Series[float]] = {}
    for (arm, seed), line in recorded.items():
        if arm != baseline and (baseline, seed) in recorded:
            # pandas aligns by step; a step that only one of the two recorded gives no difference.
            gaps[arm, seed] = (line - recorded[baseline, seed]).dropna()
    return _over_runs(gaps, [arm for arm in arms if arm != baseline])


def at_end(evidence: Evidence, places: Mapping[str, float], arms: Sequence[str]) -> pd.DataFrame:
    """Final values of several metrics along a quantity (`LINES`): metric -> its place on it."""
    rows: list[tuple[str, float, float, float, float, int]] = []
    for metric, place in places.items():
        final = evidence.final(metric)
        for arm in arms:
            values = [value for (variant, _), value in sorted(final.items()) if variant == arm]
            if values:
                rows.append((arm, float(place), fmean(values), min(values), max(values), len(values)))
    # In the order of the study, which is that of colours; along x, so that a line does not turn back.
    rows.sort(key=lambda row: (arms.index(row[0]), row[1]))
    return pd.DataFrame(rows, columns=list(LINES))


def by_block(evidence: Evidence) -> dict[str, dict[str, float]]:
    """Metrics of which there is one a block, of two blocks or more: name without the number -> metric -> block."""
    return _numbered(evidence, METRICS.layer)


def by_bin(evidence: Evidence) -> dict[str, dict[str, float]]:
    """The same of bins of confidence."""
    return _numbered(evidence, METRICS.bin)


def _numbered(evidence: Evidence, number: Callable[[str], int | None]) -> dict[str, dict[str, float]]:
    families: dict[str, dict[str, float]] = {}
    for metric in recorded_metrics(evidence):
        at = number(metric)
        if at is not None:
            families.setdefault(metric.rpartition("_")[0], {})[metric] = float(at)
    # One block is a number, and no curve over blocks.
    return {stem: members for stem, members in families.items() if len(members) > 1}


def _series(evidence: Evidence, metric: str) -> dict[tuple[str, int], pd.Series[float]]:
    """A metric by step of every run; of a step that a run recorded twice, the last value."""
    lines = {cell: pd.Series(values, index=steps) for cell, (steps, values) in evidence.lines(metric).items()}
    return {cell: line[~line.index.duplicated(keep="last")] for cell, line in lines.items()}


def _over_runs(lines: Series, arms: Sequence[str]) -> pd.DataFrame:
    """Mean, lowest and highest run of each arm, at the steps that all its runs reached: a run's end bends no mean."""
    parts = []
    for arm in arms:
        runs = {seed: line for (name, seed), line in lines.items() if name == arm}
        # Rows are steps, columns seeds: a step that any run lacks is dropped, or the mean would jump there.
        table = pd.DataFrame(runs).sort_index().dropna()
        if len(table):
            parts.append(_thinned(arm, table))
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(LINES))
    # One evaluation is a value, and no curve.
    if frame["x"].nunique() < 2:
        frame = frame.iloc[:0]
    # The caption says how many evaluations are in a point.
    frame.attrs["thinned"] = max((_bucket(len(line)) for line in lines.values()), default=1)
    return frame


def _bucket(n: int) -> int:
    """Evaluations behind one drawn point of a line of n; 1 where every evaluation is drawn."""
    return 1 if n <= MOST_POINTS else ceil(n / MOST_POINTS)


def _thinned(arm: str, table: pd.DataFrame) -> pd.DataFrame:
    """One arm's runs as columns -> its line. A point of several evaluations has the mean of its first, and
    the lowest and highest value of all of them: spikes survive. The last evaluation is always a point."""
    size, last = _bucket(len(table)), len(table) - 1
    # `reduceat` reduces from each start up to the next, so the last evaluation has a group of its own.
    starts = np.unique([*range(0, len(table), size), last])
    low, high = table.min(axis=1).to_numpy(), table.max(axis=1).to_numpy()
    return pd.DataFrame(
        {
            "arm": arm,
            "x": table.index.to_numpy()[starts].astype(float),
            "mean": table.mean(axis=1).to_numpy()[starts],
            "low": np.minimum.reduceat(low, starts),
            "high": np.maximum.reduceat(high, starts),
            "n": table.shape[1],
        }
    )
