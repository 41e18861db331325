"""The part of the report that draws reliability: accuracy over confidence, bin by bin, by arm.

Description, not inference. A model whose probabilities mean what they say lies on the diagonal (DeGroot and Fienberg
1983). Withheld while runs are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import Any

import altair as alt

from ablate.records.evidence import Evidence
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Figure, Panel, Paragraph, Section, Table, columns
from ablate.reporting.charts import BLUE, GREY, INK, PANEL_WIDTH, dressed, inline, quantity
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.metrics.catalogue import METRICS

RELIABILITY = "Reliability"
STEMS = ("calibration/bin_share", "calibration/bin_confidence", "calibration/bin_accuracy")
SMALLEST_AREA, LARGEST_AREA = 8, 420
ALL_TOKENS = 1e-4
"""How far from 1 the shares of a run may add up to, in float32 and with a few decimals written."""
MOST_NAMED = 6
MOST_ROWS = 1200
"""Of the table; beyond them it would be a file of its own, and the records are."""


@dataclass(frozen=True)
class Bin:
    """One bin of confidence of one arm, over the runs that recorded it whole: share, confidence and accuracy."""

    number: int
    shares: Mapping[int, float]
    """Seed -> share of the tokens, of every run of which it is known; 0 where the bin is empty."""
    confidences: Mapping[int, float]
    """Seed -> mean confidence."""
    accuracies: Mapping[int, float]
    """Seed -> accuracy."""
    missing: tuple[int, ...]
    """Seeds of the runs that did not record it whole, and in which it is not known to be empty. Only a user's own
    trainer leaves such."""
    n_runs: int
    """Runs of the arm, those in which the bin is empty or missing among them."""

    @property
    def n(self) -> int:
        """Runs that recorded it whole."""
        return len(self.accuracies)

    @property
    def share(self) -> float:
        """The mean share of the tokens over the runs of which it is known: an empty bin holds none."""
        return fmean(self.shares.values())


def binned(evidence: Evidence) -> list[str]:
    """Every recorded metric of single bins that this section shows."""
    return [
        metric
        for metric in recorded_metrics(evidence)
        if METRICS.bin(metric) is not None and metric.rpartition("_")[0] in STEMS
    ]


def shown_by_bin(context: ReportContext) -> set[str]:
    """Metrics of single bins of which this section shows every value; the share of a bin that is always empty is 0."""
    found = bins_of(context.evidence, list(context.study.arms))
    if not drawn(found):
        return set()
    numbers = {one.number for members in found.values() for one in members}
    # Of a run that lacks one of the three, the others stand in no curve.
    partly = {one.number for members in found.values() for one in members if one.missing}
    return {
        one
        for one in binned(context.evidence)
        if (number := METRICS.bin(one)) not in partly and (number in numbers or STEMS[0] in one)
    }


def drawn(found: Mapping[str, list[Bin]]) -> dict[str, list[Bin]]:
    """The bins that have a place on the curve."""
    whole = {arm: [one for one in members if one.n] for arm, members in found.items()}
    return {arm: members for arm, members in whole.items() if members}


def bins_of(evidence: Evidence, arms: Sequence[str]) -> dict[str, list[Bin]]:
    """Arm -> its bins in order at the last step of finished runs, those that are empty in every run left out."""
    ends = {run.cell: run.steps for run in evidence.runs if run.status == "done"}
    frame = evidence.metrics[evidence.metrics["metric"].isin(binned(evidence))].astype({"variant": str, "metric": str})
    last = [ends.get(cell, -1) for cell in zip(frame["variant"], frame["seed"], strict=True)]
    frame = frame[frame["step"] == last]
    named = frame["metric"].str.rsplit("_", n=1)
    frame = frame.assign(stem=named.str[0], bin=named.str[1].astype(int))
    table = frame.pivot_table(index=["variant", "bin", "seed"], columns="stem", values="value", aggfunc="last")
    table = table.reindex(columns=STEMS)
    found: dict[str, list[Bin]] = {}
    for arm in (arm for arm in arms if arm in table.index.unique("variant")):
        mine = table.loc[arm]
        seeds = mine.index.unique("seed").sort_values()
        # Of a run whose recorded shares hold all tokens, a bin without one is empty.
        sums = mine[STEMS[0]].groupby("seed").sum().reindex(seeds)
        whole = (sums - 1.0).abs() < ALL_TOKENS
        for number in sorted(mine.index.unique("bin")):
            one = mine.loc[number].reindex(seeds)
            one.loc[whole & one.isna().all(axis=1), STEMS[0]] = 0.0
            empty = one[STEMS[0]] == 0.0
            held = one[~empty & one.notna().all(axis=1)]
            missing = tuple(seeds[~empty & ~seeds.isin(held.index)])
            if len(held) or missing:
                shares, confidences, accuracies = (
                    values.to_dict() for values in (one[STEMS[0]].dropna(), held[STEMS[1]], held[STEMS[2]])
                )
                of = Bin(int(number), shares, confidences, accuracies, missing, n_runs=len(seeds))
                found.setdefault(arm, []).append(of)
    return found


def reliability_section(context: ReportContext) -> Section | None:
    """The curve of every arm; none where no bins were recorded or nothing may be shown."""
    return context.outcomes("reliability", RELIABILITY, _curve_and_numbers(context))


def _curve_and_numbers(context: ReportContext) -> Iterator[Block]:
    recorded = bins_of(context.evidence, list(context.study.arms))
    found = drawn(recorded)
    if not found:
        return
    lacking = [
        f"bin {one.number} of {arm}, seed{'s' * (len(one.missing) > 1)} {words.listed(map(str, one.missing))}"
        for arm, members in recorded.items()
        for one in members
        if one.missing
    ]
    if lacking:
        yield Paragraph(_missing_in_words(lacking), "warning")
    yield _figure(context, found)
    yield _numbers(context, found)


def _missing_in_words(lacking: Sequence[str]) -> str:
    more = f", and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""
    return (
        f"Not recorded whole: {'; '.join(lacking[:MOST_NAMED])}{more}. A share, a confidence or an accuracy is missing "
        "there. These are not empty bins: the curve is a mean over the other runs, without a bin that no run recorded "
        "whole."
    )


def _bins(context: ReportContext) -> int | None:
    """How many bins were registered; none of a user's own trainer, whose bins are its own."""
    return context.study.measure.calibration.bins if context.study.trainer == "gpt" else None


def _figure(context: ReportContext, found: Mapping[str, list[Bin]]) -> Figure:
    baseline, bins = context.study.baseline, _bins(context)
    largest = max(one.share for members in found.values() for one in members)
    n = {arm: max(one.n_runs for one in members) for arm, members in found.items()}
    panels = tuple(
        Panel(
            f"{context.arm(arm)}{', the baseline' if arm == baseline else ''}: accuracy below confidence in "
            f"{_below(members)} of {words.counted(len(members), 'bin')}, n = {n[arm]}",
            partial(_chart, members, largest, BLUE if arm != baseline else INK),
            _in_words(context.arm(arm), members, n[arm]),
        )
        for arm, members in found.items()
    )
    of = "equal-width bins" if bins is None else f"the {words.counted(bins, 'registered bin')} of equal width"
    partly = any(one.n < one.n_runs for members in found.values() for one in members)
    why = "empty or not recorded" if any(one.missing for members in found.values() for one in members) else "empty"
    hollow = f"Hollow: {why} in some of the runs, and a mean over the others. " if partly else ""
    caption = (
        f"Accuracy over mean confidence in {of} of the largest probability, at the last step; bins that are empty in "
        f"every run are left out. Circles: means over seeds (n over the panel), their area the share of the tokens, at "
        f"most {words.share(largest)}; bars: lowest to highest seed. {hollow}On the dashed diagonal probabilities mean "
        "what they say; below it the model claims too much. No interval is drawn."
    )
    return Figure("Accuracy over confidence", caption, panels)


def _below(members: Sequence[Bin]) -> int:
    return sum(fmean(one.accuracies.values()) < fmean(one.confidences.values()) for one in members)


def _in_words(arm: str, members: Sequence[Bin], n: int) -> str:
    fullest = max(members, key=lambda one: one.share)
    return (
        f"Reliability of {arm}: accuracy over confidence in {words.counted(len(members), 'bin')}, "
        f"{words.counted(n, 'run')}; in {_below(members)} of them accuracy lies below confidence. The fullest bin, "
        f"with {words.share(fullest.share)} of the tokens, has confidence {fmean(fullest.confidences.values()):.2f} "
        f"and accuracy {fmean(fullest.accuracies.values()):.2f}."
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
    x, y = (
        quantity(channel, name, (0, 1), title=name, tickCount=5, format=".0%")
        for channel, name in ((alt.X, "confidence"), (alt.Y, "accuracy"))
    )
    low = alt.Y("low:Q", scale=alt.Scale(domain=[0, 1], nice=False))
    diagonal = inline([{"confidence": end, "accuracy": end} for end in (0, 1)])
    base = alt.Chart(inline(points))
    size = alt.Size("area:Q", scale=None, legend=None)
    layers: list[Any] = [
        alt.Chart(diagonal).mark_line(color=GREY, strokeDash=[5, 3], strokeWidth=1).encode(x=x, y=y),
        base.mark_line(color=colour, strokeWidth=1.2, opacity=0.7).encode(x=x, y=y),
        base.mark_rule(color=colour, strokeWidth=1.6).encode(x=x, y=low, y2=alt.Y2("high:Q")),
        base.transform_filter("datum.whole")
        .mark_circle(color=colour, opacity=0.45, stroke=colour, strokeWidth=1)
        .encode(x=x, y=y, size=size),
        base.transform_filter("!datum.whole")
        .mark_point(filled=False, stroke=colour, strokeWidth=1, opacity=1)
        .encode(x=x, y=y, size=size),
    ]
    return dressed(alt.layer(*layers), PANEL_WIDTH, 280, fit=True)


def _numbers(context: ReportContext, found: Mapping[str, list[Bin]]) -> Block:
    if sum(len(members) for members in found.values()) > MOST_ROWS:
        return Paragraph(
            f"The numbers of every bin are more than {MOST_ROWS:,} rows; they are in the records of the runs "
            f"(metrics.parquet, {words.listed(f'{stem}_N' for stem in STEMS)}).",
            "aside",
        )
    bins = _bins(context)
    rows = tuple(
        (
            context.arm(arm),
            _bin_in_words(one.number, bins),
            *(
                cell
                for values in (list(one.shares.values()), list(one.confidences.values()), list(one.accuracies.values()))
                for cell in _mean_and_sd(values)
            ),
            _n_in_words(one),
        )
        for arm, members in found.items()
        for one in members
    )
    return Table(
        "Reliability bin by bin: means and standard deviations over seeds.",
        columns("Arm", "Bin", "Share:", "SD:", "Confidence:", "SD:", "Accuracy:", "SD:", "n:"),
        rows,
        note="Share: of the validation tokens, over all runs, 0 where the bin is empty. Confidence and accuracy: over "
        "the runs in which it is not, each run weighing alike; a bin of small share may hold a few tokens.",
        folded=True,
        grouped=True,
    )


def _n_in_words(one: Bin) -> str:
    if one.n == one.n_runs:
        return str(one.n)
    missing = f", {len(one.missing)} not recorded" if one.missing else ""
    return f"{one.n} of {one.n_runs}{missing}"


def _bin_in_words(number: int, bins: int | None) -> str:
    return str(number) if bins is None else f"{number}: {number / bins:.3g} to {(number + 1) / bins:.3g}"


def _mean_and_sd(values: Sequence[float]) -> tuple[str, str]:
    mean = estimates.significant(fmean(values), 4)
    return mean, NONE if len(values) < 2 else estimates.significant(stdev(values), 2)
