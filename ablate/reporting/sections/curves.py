"""The part of the report that tells how the runs went: metrics by step.

Description, not inference. Like the findings it is withheld while runs are missing, and marked
where the evidence is inadmissible.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ablate.reporting import charts
from ablate.reporting.blocks import Figure, Panel, Section
from ablate.reporting.context import ReportContext
from ablate.reporting.description import Curves, trace, trace_differences
from prereg import text as words


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
        gaps = trace_differences(context.evidence, metric, arms, baseline)
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
        f"{metric} minus {baseline} of the same seed, by step. Thin lines: single pairs; thick line: their "
        "mean; grey, where a claim declares one: differences too small to matter. "
        f"{_tested(context)}; the rest is description."
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
