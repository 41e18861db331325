"""The part of the report that draws reliability: accuracy over confidence, bin by bin, by arm.

Description, not inference. A model whose probabilities mean what they say lies on the diagonal (DeGroot and Fienberg
1983). Withheld while runs are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any

import altair as alt

from ablate.records.evidence import Evidence
from ablate.report import words
from ablate.report.blocks import Block, Column, Figure, Panel, Paragraph, Section, Table
from ablate.report.charts import BLUE, GREY, INK, PANEL_WIDTH, dressed, inline
from ablate.report.description import recorded_metrics
from ablate.report.outcome import NOT_TO_BE_USED
from ablate.report.told import Told
from prereg.metrics import METRICS

RELIABILITY = "Reliability"
STEMS = ("calibration/bin_share", "calibration/bin_confidence", "calibration/bin_accuracy")
SMALLEST_AREA, LARGEST_AREA = 8, 420
MOST_ROWS = 1200
"""Of the table; beyond them it would be a file of its own, and the records are."""


@dataclass(frozen=True)
class Bin:
    """One bin of confidence of one arm, over the runs in which it is not empty."""

    number: int
    shares: Mapping[int, float]
    """Seed -> share of the tokens."""
    confidences: Mapping[int, float]
    """Seed -> mean confidence."""
    accuracies: Mapping[int, float]
    """Seed -> accuracy."""
    n_runs: int
    """Runs of the arm, those in which the bin is empty among them."""

    @property
    def n(self) -> int:
        """Runs in which the bin is not empty."""
        return len(self.accuracies)

    @property
    def shares_of_all(self) -> list[float]:
        """The share of the tokens in every run of the arm; 0 in those that leave the bin empty."""
        return [*(self.shares[seed] for seed in self.accuracies), *[0.0] * (self.n_runs - self.n)]

    @property
    def share(self) -> float:
        """The mean share of the tokens over all runs: an empty bin holds none."""
        return sum(self.shares_of_all) / self.n_runs


def binned(evidence: Evidence) -> list[str]:
    """Every recorded metric of single bins that this section tells."""
    return [
        metric
        for metric in recorded_metrics(evidence)
        if METRICS.bin(metric) is not None and metric.rpartition("_")[0] in STEMS
    ]


def told_by_bin(told: Told) -> set[str]:
    """Metrics of single bins of which this section tells every value; the share of a bin that is always empty is 0."""
    found = curves(told.evidence, list(told.study.arms))
    numbers = {one.number for members in found.values() for one in members}
    return {one for one in binned(told.evidence) if METRICS.bin(one) in numbers or (found and STEMS[0] in one)}


def curves(evidence: Evidence, arms: Sequence[str]) -> dict[str, list[Bin]]:
    """Arm -> its bins in order at the last step of finished runs, those that are empty in every run left out."""
    values: dict[str, dict[int, dict[tuple[str, int], float]]] = {stem: {} for stem in STEMS}
    ends = {(run.variant, run.seed): run.steps for run in evidence.runs if run.status == "done"}
    frame = evidence.metrics[evidence.metrics["metric"].isin(binned(evidence))]
    columns = (frame[name].tolist() for name in ("variant", "seed", "step", "metric", "value"))
    for arm, seed, step, metric, value in zip(*columns, strict=True):
        number = METRICS.bin(metric)
        if number is not None and ends.get((arm, seed)) == step:
            values[metric.rpartition("_")[0]].setdefault(number, {})[arm, seed] = value
    of_share, of_confidence, of_accuracy = (values[stem] for stem in STEMS)
    found: dict[str, list[Bin]] = {}
    for arm in arms:
        runs = {seed for cells in of_share.values() for name, seed in cells if name == arm}
        for number in sorted(of_accuracy):
            share, confidence, accuracy = (
                {seed: value for (name, seed), value in sorted(one.get(number, {}).items()) if name == arm}
                for one in (of_share, of_confidence, of_accuracy)
            )
            whole = share.keys() & confidence.keys() & accuracy.keys()
            if whole:
                shares, confidences, accuracies = (
                    {seed: value for seed, value in one.items() if seed in whole}
                    for one in (share, confidence, accuracy)
                )
                found.setdefault(arm, []).append(Bin(number, shares, confidences, accuracies, n_runs=len(runs)))
    return found


def tell_reliability(told: Told) -> Section | None:
    """The curve of every arm; none where no bins were recorded or nothing may be shown."""
    if told.withheld:
        return None
    found = curves(told.evidence, list(told.study.arms))
    if not found:
        return None
    blocks: list[Block] = [Paragraph(NOT_TO_BE_USED, "warning")] if told.unusable else []
    blocks += [_figure(told, found), _numbers(told, found)]
    return Section("reliability", RELIABILITY, tuple(blocks))


def _bins(told: Told) -> int | None:
    """How many bins were registered; none of a user's own trainer, whose bins are its own."""
    return told.study.measure.calibration.bins if told.study.trainer == "gpt" else None


def _figure(told: Told, found: Mapping[str, list[Bin]]) -> Figure:
    baseline, bins = told.study.baseline, _bins(told)
    largest = max(one.share for members in found.values() for one in members)
    n = {arm: max(one.n_runs for one in members) for arm, members in found.items()}
    panels = tuple(
        Panel(
            f"{arm}{', the baseline' if arm == baseline else ''}, n = {n[arm]}",
            partial(_chart, members, largest, BLUE if arm != baseline else INK),
            _in_words(arm, members, n[arm]),
        )
        for arm, members in found.items()
    )
    of = "equal-width bins" if bins is None else f"the {words.counted(bins, 'registered bin')} of equal width"
    partly = any(one.n < one.n_runs for members in found.values() for one in members)
    hollow = "Hollow: empty in some of the runs, and a mean over the others. " if partly else ""
    caption = (
        f"Accuracy over mean confidence in {of} of the largest probability, at the last step; bins that are empty in "
        f"every run are left out. Circles: means over seeds (n over the panel), their area the share of the tokens, at "
        f"most {words.share(largest)}; bars: lowest to highest seed. {hollow}On the dashed diagonal probabilities mean "
        "what they say; below it the model claims too much. No interval is drawn."
    )
    return Figure("Accuracy over confidence", caption, panels)


def _in_words(arm: str, members: Sequence[Bin], n: int) -> str:
    below = sum(fmean(one.accuracies.values()) < fmean(one.confidences.values()) for one in members)
    fullest = max(members, key=lambda one: one.share)
    return (
        f"Reliability of {arm}: accuracy over confidence in {words.counted(len(members), 'bin')}, "
        f"{words.counted(n, 'run')}; in {below} of them accuracy lies below confidence. The fullest bin, with "
        f"{words.share(fullest.share)} of the tokens, has confidence {fmean(fullest.confidences.values()):.2f} and "
        f"accuracy {fmean(fullest.accuracies.values()):.2f}."
    )


def _chart(members: Sequence[Bin], largest: float, colour: str) -> alt.LayerChart:
    points = [
        {
            "confidence": fmean(one.confidences.values()),
            "accuracy": fmean(one.accuracies.values()),
            "low": min(one.accuracies.values()),
            "high": max(one.accuracies.values()),
            "area": SMALLEST_AREA + (LARGEST_AREA - SMALLEST_AREA) * one.share / largest,
            "whole": one.n == one.n_runs,
        }
        for one in members
    ]
    scale = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("confidence:Q", scale=scale, axis=alt.Axis(title="confidence", tickCount=5, format=".0%"))
    y = alt.Y("accuracy:Q", scale=scale, axis=alt.Axis(title="accuracy", tickCount=5, format=".0%"))
    diagonal = inline([{"confidence": end, "accuracy": end} for end in (0, 1)])
    base = alt.Chart(inline(points))
    size = alt.Size("area:Q", scale=None, legend=None)
    layers: list[Any] = [
        alt.Chart(diagonal).mark_line(color=GREY, strokeDash=[5, 3], strokeWidth=1).encode(x=x, y=y),
        base.mark_line(color=colour, strokeWidth=1.2, opacity=0.7).encode(x=x, y=y),
        base.mark_rule(color=colour, strokeWidth=1.6).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        base.transform_filter("datum.whole")
        .mark_circle(color=colour, opacity=0.45, stroke=colour, strokeWidth=1)
        .encode(x=x, y=y, size=size),
        base.transform_filter("!datum.whole")
        .mark_point(filled=False, stroke=colour, strokeWidth=1, opacity=1)
        .encode(x=x, y=y, size=size),
    ]
    return dressed(alt.layer(*layers), PANEL_WIDTH, 280, fit=True)


def _numbers(told: Told, found: Mapping[str, list[Bin]]) -> Block:
    if sum(len(members) for members in found.values()) > MOST_ROWS:
        return Paragraph(
            f"The numbers of every bin are more than {MOST_ROWS:,} rows, and stand in the records of the runs "
            f"(metrics.parquet, {words.listed(f'{stem}_N' for stem in STEMS)}).",
            "aside",
        )
    bins = _bins(told)
    rows = tuple(
        (
            arm,
            _bin_in_words(one.number, bins),
            *(
                cell
                for values in (one.shares_of_all, list(one.confidences.values()), list(one.accuracies.values()))
                for cell in _mean_and_sd(values)
            ),
            str(one.n) if one.n == one.n_runs else f"{one.n} of {one.n_runs}",
        )
        for arm, members in found.items()
        for one in members
    )
    return Table(
        "Reliability bin by bin: means and standard deviations over seeds.",
        (
            Column("Arm"),
            Column("Bin"),
            *(Column(name, True) for of in ("Share", "Confidence", "Accuracy") for name in (of, "SD")),
            Column("n", True),
        ),
        rows,
        note="Share: of the validation tokens, over all runs, 0 where the bin is empty. Confidence and accuracy: over "
        "the runs in which it is not, each run weighing alike; a bin of small share may hold a few tokens.",
        folded=True,
        grouped=True,
    )


def _bin_in_words(number: int, bins: int | None) -> str:
    return str(number) if bins is None else f"{number}: {number / bins:.3g} to {(number + 1) / bins:.3g}"


def _mean_and_sd(values: Sequence[float]) -> tuple[str, str]:
    mean = words.compact(float(f"{fmean(values):.4g}"))
    return mean, words.NONE if len(values) < 2 else words.compact(float(f"{stdev(values):.2g}"))
