"""Plain description of what was recorded: means and standard deviations by arm, curves, thinned lines.

Nothing here infers: no test, no interval, no judgement. Inference is the judge's, and is in the findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, stdev

import pandas as pd

from ablate.judge.verdict import ArmSummary
from ablate.records.evidence import Evidence
from prereg.metrics.catalogue import Better

Line = list[tuple[int, float]]
POINTS_OF_A_FIGURE = 12_000  # about 250 kB of SVG
_PRICE = re.compile(r"speed/measure_(\w+)_s")
LEAST_BUCKETS, MOST_BUCKETS = 20, 150


@dataclass(frozen=True)
class Curves:
    """One metric by step: a line for every run, and of every arm the mean line and the range of its runs."""

    metric: str
    runs: Mapping[tuple[str, int], Line]
    means: Mapping[str, Line]
    ranges: Mapping[str, list[tuple[int, float, float]]]
    """Arm -> step, lowest and highest run, for arms of several runs."""
    n: Mapping[str, int]
    thinned: int
    """Evaluations that stand behind one bucket of a drawn line; 1 when every evaluation is drawn."""

    def values(self) -> list[float]:
        """Every value that is drawn."""
        return [value for lines in (self.runs.values(), self.means.values()) for line in lines for _, value in line]


def better_in(better: Better, differences: Iterable[float]) -> tuple[Better, int]:
    """In how many of the pairs the left side is better, and which way that is; lower, where a metric has no better."""
    way: Better = "higher" if better == "higher" else "lower"
    return way, sum(difference > 0 if way == "higher" else difference < 0 for difference in differences)


def recorded_metrics(evidence: Evidence) -> list[str]:
    """Names of the metrics that finished runs recorded, in alphabetical order; the price of a suite is none of them."""
    names = {str(name) for name in evidence.metrics["metric"].unique()}
    return sorted(name for name in names if not _PRICE.fullmatch(name))


def seconds_by_suite(evidence: Evidence) -> dict[str, float]:
    """Suite -> seconds of measuring it in the sealed rows of all runs; empty where no suite was timed."""
    sums: dict[str, float] = {}
    for metric in evidence.metrics["metric"].unique():
        found = _PRICE.fullmatch(str(metric))
        if found is not None:
            sums[found[1]] = float(evidence.metrics.loc[evidence.metrics["metric"] == metric, "value"].sum())
    return dict(sorted(sums.items(), key=lambda one: -one[1]))


def summarise(evidence: Evidence, metric: str, arms: Sequence[str]) -> tuple[ArmSummary, ...]:
    """Mean, standard deviation and number of seeds of the final values, for every arm that has any."""
    final = evidence.final(metric)
    found = []
    for arm in arms:
        values = [value for (variant, _), value in sorted(final.items()) if variant == arm]
        if values:
            spread = stdev(values) if len(values) > 1 else None
            found.append(ArmSummary(arm=arm, n=len(values), mean=fmean(values), sd=spread))
    return tuple(found)


def trace(evidence: Evidence, metric: str, arms: Sequence[str]) -> Curves | None:
    """A metric by step for every run; none where no run was evaluated more than once."""
    full = _series(evidence, metric)
    ordered = {key: line for arm in arms for key, line in full.items() if key[0] == arm}
    return _drawable(metric, ordered, arms)


def trace_differences(evidence: Evidence, metric: str, arms: Sequence[str], baseline: str) -> Curves | None:
    """Every arm minus the baseline of the same seed, by step: what the pairs show while they train."""
    recorded = {cell: _once(line) for cell, line in _series(evidence, metric).items()}
    if all(arm != baseline for arm, _ in recorded):
        return None
    lines: dict[tuple[str, int], pd.Series[float]] = {}
    for arm in arms:
        for seed in [seed for name, seed in recorded if name == arm != baseline and (baseline, seed) in recorded]:
            gap = (recorded[arm, seed] - recorded[baseline, seed]).dropna()
            if len(gap):
                lines[(arm, seed)] = gap
    return _drawable(metric, lines, arms)


def _series(evidence: Evidence, metric: str) -> dict[tuple[str, int], pd.Series[float]]:
    """A metric by step, of every run."""
    return {cell: pd.Series(values, index=steps) for cell, (steps, values) in evidence.lines(metric).items()}


def _once(line: pd.Series[float]) -> pd.Series[float]:
    """A line with one value a step, the last recorded."""
    return line[~line.index.duplicated(keep="last")]


def _drawable(metric: str, lines: Mapping[tuple[str, int], pd.Series[float]], arms: Sequence[str]) -> Curves | None:
    """Lines of values by step, thinned before they become points: of millions, a figure shows thousands."""
    longest = max((len(line) for line in lines.values()), default=0)
    if longest < 2:
        return None
    buckets = min(MOST_BUCKETS, max(LEAST_BUCKETS, POINTS_OF_A_FIGURE // (2 * len(lines))))
    size = 1 if longest <= 2 * buckets else ceil(longest / buckets)
    arms_runs = {arm: _together([line for (name, _), line in lines.items() if name == arm]) for arm in arms}
    return Curves(
        metric=metric,
        runs={key: thin(line, size) for key, line in lines.items()},
        means={arm: thin_evenly(table.mean(axis=1), size) for arm, table in arms_runs.items() if len(table)},
        ranges={arm: thin_range(table, size) for arm, table in arms_runs.items() if len(table) and table.shape[1] > 1},
        n={arm: sum(name == arm for name, _ in lines) for arm in arms},
        thinned=size,
    )


def _together(lines: Sequence[pd.Series[float]]) -> pd.DataFrame:
    """Runs as columns, at every step that all of an arm's runs reached, so that a run's end never bends their mean."""
    return pd.DataFrame({number: _once(line) for number, line in enumerate(lines)}).sort_index().dropna()


def thin(line: pd.Series[float], size: int) -> Line:
    """The lowest and the highest point of every bucket of `size` points, and both ends: spikes survive."""
    if size <= 1 or len(line) < 3:
        return _points(line)
    values = line.to_numpy()
    kept = {0, len(line) - 1}
    for start in range(0, len(line), size):
        bucket = values[start : start + size]
        kept.update((start + int(bucket.argmin()), start + int(bucket.argmax())))
    return _points(line.iloc[sorted(kept)])


def thin_evenly(line: pd.Series[float], size: int) -> Line:
    """Every `size`-th point and the last."""
    return _points(line) if size <= 1 else [*_points(line.iloc[:-1:size]), *_points(line.iloc[-1:])]


def thin_range(table: pd.DataFrame, size: int) -> list[tuple[int, float, float]]:
    """The lowest and the highest value of every bucket of `size` steps, at its first step and at the last of all."""
    steps, low, high = table.index, table.min(axis=1).to_numpy(), table.max(axis=1).to_numpy()
    starts = range(0, len(table), size)
    found = [(steps[at], low[at : at + size].min(), high[at : at + size].max()) for at in starts]
    if size > 1:
        found.append((steps[-1], low[-1], high[-1]))
    return [(int(step), float(lowest), float(highest)) for step, lowest, highest in found]


def _points(line: pd.Series[float]) -> Line:
    return [(int(step), float(value)) for step, value in zip(line.index, line, strict=True)]
