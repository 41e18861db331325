"""The part of the report that tells what every metric came to: first what the verdict could rest on, then the rest.

Description, not inference. No recorded number is left out: what has a section of its own is pointed to, and what is one
of a family by block is in one table of its family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean

from ablate.judge.verdict import ArmSummary
from ablate.reporting import arm_charts, estimates
from ablate.reporting.blocks import Block, Figure, Panel, Paragraph, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.description import recorded_metrics, summarise
from ablate.reporting.estimates import NONE
from ablate.reporting.sections.curves import families
from ablate.reporting.sections.reliability import RELIABILITY, shown_by_bin
from prereg import text as words
from prereg.metrics.catalogue import METRICS, SUITES, TASK_METRICS

EACH_BY_ITSELF = (
    "Description of finished runs, each arm by itself. Arms share seeds, so the standard deviations here do not say "
    "how certain a difference is; the findings do."
)
OWN, TASKS, OTHERS = "own", "tasks", "others"
_ABOUT: Mapping[str, str] = {
    **{suite: declared.about for suite, declared in SUITES.items()},
    OWN: "the study's own metrics",
    TASKS: "zero- and few-shot tasks",
    OTHERS: "metrics that only the study's trainer knows",
}
"""Group -> what it looks at, in the order of the report."""


def final_values_section(context: ReportContext) -> Section | None:
    """Mean, SD and n of every recorded metric by arm, in groups."""
    return context.outcomes("final-values", "Final values", _blocks(context))


def _blocks(context: ReportContext) -> Iterator[Block]:
    recorded = recorded_metrics(context.evidence)
    by_block, by_bin = families(context.evidence), shown_by_bin(context)
    claimed = [metric for metric in _named(context) if metric in recorded]
    elsewhere = {*claimed, *(one for members in by_block.values() for one in members), *by_bin}
    grouped: dict[str, list[str]] = {group: [] for group in _ABOUT}
    for metric in recorded:
        if metric not in elsewhere:
            grouped[_group_of(context, metric)].append(metric)
    first = _rows(context, claimed)
    if first:
        of = "hypotheses and tie-breakers" if context.study.tie_breakers else "hypotheses"
        caption = (
            f"Final values of the metrics of {of}: mean and standard deviation over seeds of the value at the last "
            f"{context.study.step_name}."
        )
        yield Table(caption, _COLUMNS, first, note=EACH_BY_ITSELF, grouped=True)
    yield from _cost_and_quality(context, claimed)
    for group, metrics in grouped.items():
        if metrics:
            about = _ABOUT[group] if group in (OWN, TASKS, OTHERS) else f"suite {group}, {_ABOUT[group]}"
            caption = f"Final values, {about}: {words.counted(len(metrics), 'metric')}."
            yield Table(caption, _COLUMNS, _rows(context, metrics), folded=True, grouped=True)
    for stem, members in by_block.items():
        yield _family(context, stem, members)
    if by_bin:
        yield Paragraph(f"What was recorded bin by bin is under {RELIABILITY}.", "aside")


def _cost_and_quality(context: ReportContext, claimed: Sequence[str]) -> Iterator[Figure]:
    """The first claimed metric over the time of training, for arms whose runs recorded both."""
    seconds = {run.cell: run.train_s for run in context.evidence.runs if run.status == "done" and run.train_s > 0.0}
    final = context.evidence.final(claimed[0]) if claimed else {}
    points: dict[str, list[tuple[float, float]]] = {}
    for cell, value in sorted(final.items()):
        if cell in seconds:
            points.setdefault(cell[0], []).append((seconds[cell], value))
    found = {arm: points[arm] for arm in context.study.arms if arm in points}
    if len(found) < 2:
        return
    metric, baseline, n = claimed[0], context.study.baseline, {arm: len(runs) for arm, runs in found.items()}
    unit, shown = words.unit_of(metric, own=context.study.own_units), context.metric(metric)
    mean = {arm: tuple(fmean(one[side] for one in runs) for side in (0, 1)) for arm, runs in found.items()}
    panels = []
    for arms in arm_charts.shared(list(found), baseline):
        said = "; ".join(
            f"{context.arm(arm)}: {estimates.significant(mean[arm][1], 4)} in {words.duration(mean[arm][0])}"
            for arm in arms
        )
        chart = partial(
            arm_charts.scatter,
            {context.arm(arm): found[arm] for arm in arms},
            ("seconds of training of a run", estimates.with_unit(shown, unit)),
            baseline=context.arm(baseline),
        )
        panels.append(Panel(said, chart, f"{shown} over the time of training. Means over seeds: {said}."))
    caption = (
        f"{shown} at the last {context.study.step_name} over the seconds in training steps. Small marks: runs; "
        f"large: means over seeds (n: {words.listed(f'{context.arm(arm)} {n[arm]}' for arm in found)}). "
        "What else the machine did at the time moves a run sideways. No interval is drawn."
    )
    yield Figure(f"Cost and {shown}", caption, tuple(panels))


def _named(context: ReportContext) -> list[str]:
    """Metrics of the hypotheses, in their order, and of the tie-breakers."""
    return list(
        dict.fromkeys([*(claim.metric for claim in context.study.claims.values()), *context.study.tie_breakers])
    )


def _group_of(context: ReportContext, metric: str) -> str:
    if metric in context.study.own_units:
        return OWN
    declared = METRICS.get(metric)
    if declared is not None:
        return declared.suite
    return TASKS if metric in TASK_METRICS else OTHERS


_COLUMNS = columns("Metric", "Arm", "Mean:", "SD:", "n:", "Unit")


def _rows(context: ReportContext, metrics: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for metric in metrics:
        found = summarise(context.evidence, metric, list(context.study.arms))
        decimals = estimates.decimals_of((one.sd for one in found), [one.mean for one in found])
        unit = words.unit_of(metric, own=context.study.own_units) or NONE
        for summary in found:
            spread = NONE if summary.sd is None else words.number(summary.sd, decimals)
            named = context.metric(metric), context.arm(summary.arm)
            rows.append((*named, words.number(summary.mean, decimals), spread, str(summary.n), unit))
    return tuple(rows)


def _family(context: ReportContext, stem: str, members: Sequence[str]) -> Table:
    """A metric of every block: a row a block, a column an arm."""
    arms = list(context.study.arms)
    found: Mapping[int, Mapping[str, ArmSummary]] = {
        number: {summary.arm: summary for summary in summarise(context.evidence, metric, arms)}
        for metric in members
        for number in [METRICS.layer(metric)]
        if number is not None
    }
    shown = [arm for arm in arms if any(arm in row for row in found.values())]
    n = {arm: max(row[arm].n for row in found.values() if arm in row) for arm in shown}
    rows = tuple(
        (str(block), *(_cell(found[block].get(arm), n[arm]) for arm in shown))
        for block in sorted(found)
        if found[block]
    )
    unit = words.unit_of(members[0])
    return Table(
        f"Final values block by block, {estimates.with_unit(stem, unit)}: {words.counted(len(rows), 'block')}.",
        columns("Block:", *(f"{context.arm(arm)}, n = {n[arm]}:" for arm in shown)),
        rows,
        note="Mean over seeds, and in brackets the standard deviation; blocks are counted from the input, from 0.",
        folded=True,
    )


def _cell(summary: ArmSummary | None, n: int) -> str:
    if summary is None:
        return NONE
    text = estimates.significant(summary.mean)
    if summary.sd is not None:
        text += f" ({estimates.significant(summary.sd, 2)})"
    return text if summary.n == n else f"{text}, n = {summary.n}"


def tie_breakers_table(context: ReportContext) -> Table:
    """Means of tie-breaking metrics by arm."""
    rows: list[tuple[str, ...]] = []
    for metric, value in context.decision.tie_breakers.items():
        for arm, mean in (value if isinstance(value, dict) else {"": value}).items():
            shown = words.compact(float(mean)) if isinstance(mean, int | float) else str(mean)
            unit = words.unit_of(metric, own=context.study.own_units)
            rows.append((context.metric(metric), context.arm(arm), shown, unit))
    return Table(
        "Tie-breaking metrics: means by arm, as a later line that holds gives another verdict. They decide nothing.",
        columns("Metric", "Arm", "Mean:", "Unit"),
        tuple(rows),
    )
