"""The parts of the report that draw metrics by step, and metrics of every block from the input to the output.

Description, not inference: the claims that read single steps or blocks are in the findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import altair as alt

from ablate.records.evidence import Evidence
from ablate.reporting import charts
from ablate.reporting.blocks import Figure, Panel, Section, Table, columns
from ablate.reporting.charts import BLUE, INK, PANEL_WIDTH, PLAIN, dressed, inline, quantity
from ablate.reporting.context import ReportContext
from ablate.reporting.description import Curves, recorded_metrics, trace, trace_differences
from ablate.reporting.estimates import NONE
from prereg import text as words
from prereg.metrics.catalogue import METRICS


def curves_section(context: ReportContext) -> Section | None:
    """Metrics by step; none where there is nothing to draw or nothing may be shown."""
    return context.outcomes("curves", "Curves", _by_step(context))


def _by_step(context: ReportContext) -> Iterator[Figure]:
    arms, baseline = list(context.study.arms), context.study.baseline
    claimed = [finding.metric for finding in context.decision.findings]
    for metric in dict.fromkeys(["val/loss", *claimed]):
        traced = trace(context.evidence, metric, arms)
        if traced is not None:
            yield _curves(context, traced)
        gaps = trace_differences(context.evidence, metric, arms, baseline) if context.study.paired else None
        if gaps is not None:
            yield _difference_curves(context, gaps)


def _curves(context: ReportContext, traced: Curves) -> Figure:
    baseline, metric = context.study.baseline, traced.metric
    floor = context.floors.get(metric)
    domain = charts.domain_of(traced, *([] if floor is None else [floor]))
    panels = []
    for arm in traced.means:
        diverged = [run.seed for run in context.evidence.runs if run.variant == arm and run.status == "diverged"]
        chart = partial(
            charts.curves,
            traced,
            arm,
            baseline=baseline,
            unit=words.unit_of(metric, own=context.study.own_units),
            floor=floor,
            diverged=diverged,
            domain=domain,
        )
        part = ", the baseline" if arm == baseline else ""
        panels.append(
            Panel(
                f"{arm}{part}, n = {traced.n[arm]}",
                chart,
                f"{metric} by step for {arm}: {words.counted(traced.n[arm], 'run')} and their mean.",
            )
        )
    caption = (
        f"{metric} by optimiser step. Thin lines: single seeds; thick line: their mean, at the steps that every "
        f"run of the arm reached; dashed: the mean of {baseline}. No interval is drawn."
    )
    if floor is not None:
        caption += f" Dotted: {words.compact(round(floor, 4))}, which no model can pass."
    return Figure(f"{metric} by step", caption + _thinning(traced), tuple(panels))


def _tested(context: ReportContext) -> str:
    everywhere = all(hypothesis.read == "final" for hypothesis in context.study.hypotheses.values())
    return "Only the last step was tested" if everywhere else "Only what the claims read was tested"


def _difference_curves(context: ReportContext, gaps: Curves) -> Figure:
    baseline, metric = context.study.baseline, gaps.metric
    domain = charts.domain_of(gaps, 0.0)
    panels = []
    for arm in gaps.means:
        smallest = _smallest_of(context, arm, metric)
        unit = words.unit_of(metric, own=context.study.own_units)
        chart = partial(charts.difference_curves, gaps, arm, unit=unit, smallest=smallest, domain=domain)
        panels.append(
            Panel(
                f"{arm} {words.MINUS} {baseline}, n = {gaps.n[arm]}",
                chart,
                f"{metric} of {arm} minus {baseline} of the same seed, by step, {words.counted(gaps.n[arm], 'pair')}.",
            )
        )
    caption = (
        f"{metric} minus {baseline} of the same seed, by step. Thin lines: single pairs; thick line: their mean; grey, "
        f"where a claim declares one: differences too small to matter. {_tested(context)}; the rest is description."
    )
    return Figure(f"{metric} minus {baseline}, seed by seed", caption + _thinning(gaps), tuple(panels))


def _smallest_of(context: ReportContext, arm: str, metric: str) -> float | None:
    for name, claim in context.study.claims.items():
        plain = dict(claim.left) == {arm: 1.0} and dict(claim.right) == {context.study.baseline: 1.0}
        if plain and claim.metric == metric and context.study.hypotheses[name].scale == "raw":
            return context.study.hypotheses[name].smallest
    return None


def _thinning(traced: Curves) -> str:
    if traced.thinned == 1:
        return ""
    return (
        f" Thinned for size: of every {traced.thinned} evaluations a thin line keeps the lowest and the highest, "
        "and a mean line keeps the first."
    )


Profile = dict[int, float]


@dataclass(frozen=True)
class Profiles:
    """One metric by block: of every run at its last evaluation, and the mean of every arm there and at its first."""

    metric: str
    """Its name without the number of the block."""
    runs: Mapping[tuple[str, int], Profile]
    last: Mapping[str, Profile]
    first: Mapping[str, Profile]
    first_step: int
    n: Mapping[str, int]


def families(evidence: Evidence) -> dict[str, list[str]]:
    """Metrics of which there is one a block: name without the number -> members, for those of two blocks or more."""
    found: dict[str, list[str]] = {}
    for metric in recorded_metrics(evidence):
        if METRICS.layer(metric) is not None:
            found.setdefault(metric.rpartition("_")[0], []).append(metric)
    return {stem: members for stem, members in found.items() if len(members) > 1}


def profile(evidence: Evidence, stem: str, members: Sequence[str], arms: Sequence[str]) -> Profiles:
    """What runs recorded of every block."""
    frame = evidence.metrics[evidence.metrics["metric"].isin(members)].astype({"variant": str, "metric": str})
    frame["block"] = [METRICS.layer(str(name)) for name in frame["metric"]]
    # A run that diverged has a last evaluation too; the mean of an arm is over the runs that have one.
    ends = frame[frame["step"] == frame.groupby(["variant", "seed"])["step"].transform("max")]
    first_step = int(frame["step"].min())
    begins = frame[frame["step"] == first_step]
    runs = {
        (str(arm), int(str(seed))): _by_block(rows)
        for (arm, seed), rows in ends.groupby(["variant", "seed"], sort=True)
    }
    ordered = {key: runs[key] for arm in arms for key in runs if key[0] == arm}
    return Profiles(
        metric=stem,
        runs=ordered,
        last={
            arm: _mean([one for (name, _), one in ordered.items() if name == arm]) for arm in arms if _has(runs, arm)
        },
        first={
            str(arm): _by_block(rows.groupby("block", as_index=False)["value"].mean())
            for arm, rows in begins.groupby("variant")
        },
        first_step=first_step,
        n={arm: sum(name == arm for name, _ in ordered) for arm in arms},
    )


def by_block_section(context: ReportContext) -> Section | None:
    """Profiles over the blocks; none where no metric of every block was recorded or nothing may be shown."""
    profiles = (
        profile(context.evidence, stem, members, list(context.study.arms))
        for stem, members in families(context.evidence).items()
    )
    blocks = (block for found in profiles for block in (_figure(context, found), _table(context, found)))
    return context.outcomes("by-block", "From block to block", blocks)


def _figure(context: ReportContext, found: Profiles) -> Figure:
    values = [value for one in (*found.runs.values(), *found.first.values()) for value in one.values()]
    logarithmic = min(values) > 0.0
    deepest = max(max(one) for one in found.runs.values())
    baseline = context.study.baseline
    panels = [
        Panel(
            f"{arm}{', the baseline' if arm == baseline else ''}, n = {found.n[arm]}",
            partial(_chart, found, arm, baseline, (min(values), max(values)), deepest, logarithmic=logarithmic),
            f"{found.metric} by block for {arm}: {words.counted(found.n[arm], 'run')} and their mean.",
        )
        for arm in found.last
    ]
    caption = (
        f"{found.metric} by block, from the input (0) to the output. Thin lines: single seeds at the last evaluation; "
        f"thick line: their mean; dotted: the mean at step {found.first_step}, the first evaluation; dashed: the last "
        f"of {baseline}. {'The scale is logarithmic. ' if logarithmic else ''}No interval is drawn."
    )
    return Figure(f"{found.metric} from block to block", caption, tuple(panels))


def _table(context: ReportContext, found: Profiles) -> Table:
    rows = []
    definition = METRICS[f"{found.metric}_0"].definition.replace("block 0 (from 0)", "a block")
    for arm, line in found.last.items():
        deepest = max(line)
        # The ratio is taken run by run: a ratio of means would be that of the largest run.
        shares = [
            one[0] / one[max(one)] for (name, _), one in found.runs.items() if name == arm and one[max(one)] != 0.0
        ]
        rows.append(
            (
                arm,
                str(deepest + 1),
                words.compact(_rounded(line[0])),
                words.compact(_rounded(line[deepest])),
                words.compact(_rounded(fmean(shares))) if shares else NONE,
                str(found.n[arm]),
            )
        )
    return Table(
        f"{found.metric} of the first and the last block at the last evaluation: means over seeds.",
        columns("Arm", "Blocks:", "First:", "Last:", "First / last:", "n:"),
        tuple(rows),
        note=f"First / last is the mean of the runs' own ratios; below 1, {found.metric} falls towards the input. "
        f"{definition[0].upper()}{definition[1:]}.",
    )


def _chart(
    found: Profiles, arm: str, baseline: str, domain: tuple[float, float], deepest: int, *, logarithmic: bool
) -> alt.LayerChart:
    x = quantity(alt.X, "block", (0, deepest), title="block", tickMinStep=1, tickCount=min(deepest, 6), format="d")
    scale = alt.Scale(domain=list(domain), type="log" if logarithmic else "linear", nice=logarithmic, zero=False)
    labels: dict[str, Any] = {"format": "~g"} if logarithmic else {"labelExpr": PLAIN}
    axis = alt.Axis(title=found.metric, tickCount=5, titleLimit=210, **labels)
    y = alt.Y("value:Q", scale=scale, axis=axis)
    colour = INK if arm == baseline else BLUE

    def line(values: Profile, **how: Any) -> Any:
        points = [{"block": block, "value": value} for block, value in sorted(values.items())]
        return alt.Chart(inline(points)).mark_line(**how).encode(x=x, y=y)

    layers = [
        line(values, color=colour, strokeWidth=0.8, opacity=0.5)
        for (name, _), values in found.runs.items()
        if name == arm
    ]
    if arm != baseline and baseline in found.last:
        layers.append(line(found.last[baseline], color=INK, strokeDash=[5, 3], strokeWidth=1.5))
    if arm in found.first:
        layers.append(line(found.first[arm], color=colour, strokeDash=[1, 3], strokeWidth=1.6))
    layers.append(line(found.last[arm], color=colour, strokeWidth=2.4))
    return dressed(alt.layer(*layers), PANEL_WIDTH, 220, fit=True)


def _by_block(rows: Any) -> Profile:
    return {int(block): float(value) for block, value in sorted(zip(rows["block"], rows["value"], strict=True))}


def _mean(profiles: Sequence[Profile]) -> Profile:
    shared = set.intersection(*(set(one) for one in profiles))
    return {block: fmean(one[block] for one in profiles) for block in sorted(shared)}


def _has(runs: Mapping[tuple[str, int], Profile], arm: str) -> bool:
    return any(name == arm for name, _ in runs)


def _rounded(value: float) -> float:
    """Three significant digits: these range over many powers of ten."""
    return float(f"{value:.3g}")
