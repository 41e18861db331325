"""Section of a component ablation: what each part of the system is worth, and costs.

Differences, intervals and outcomes are those of the findings. Means and costs are description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from statistics import fmean

from ablate.judge.readings import read_values
from ablate.reporting import estimates, tables
from ablate.reporting.blocks import Block, Paragraph, Section, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.tables import Cost, PartRow
from ablate.reporting.view import FindingView, Shared, views_of
from prereg import text as words
from prereg.documents.sentences import say
from prereg.study.designs.components import Components


def components_section(context: ReportContext) -> Section | None:
    """The ablation table and interactions of a component ablation; none where the study is another design."""
    components = context.study.components
    if components is None:
        return None
    return context.outcomes("components", "Component ablation", _blocks(context, components))


def _blocks(context: ReportContext, components: Components) -> Iterator[Block]:
    yield Paragraph(say("design", context.study))
    views = {view.name: view for view in views_of(context.decision.findings, context.study)}
    if components.design != "factorial":
        yield _one_at_a_time(context, components, views)
    else:
        yield _main_effects(context, components, views)
        pairs = [name for name, effect in components.effects().items() if len(effect) == 2]
        if pairs:
            yield _interactions(context, components, views, pairs)
        yield _arms(context, components, views)


def _one_at_a_time(context: ReportContext, components: Components, views: dict[str, FindingView]) -> Table:
    """A row for the arm that all others are compared with, then one for each part."""
    arms, reasons = components.arms(), components.reasons()
    compared_with, *single = arms
    # The arm that all are compared with is the right side of every claim: any view has its mean.
    against = next((mean for view in views.values() for mean in view.sides[1:]), NONE)
    rows = [
        PartRow(
            NONE,
            compared_with,
            reasons[compared_with],
            _n(context, compared_with),
            None,
            (against,),
            *_costs(context, [compared_with]),
        )
    ]
    # `arms()` begins with the arm compared with, then has one for each part, in their order.
    for part, arm in zip(components.parts, single, strict=True):
        view = views[part]
        costs = _costs(context, [arm], [compared_with])
        rows.append(PartRow(part, arm, reasons[arm], view.finding.n, view, view.sides, *costs))
    left_out = components.design == "leave_one_out"
    return tables.PARTS.of(
        rows, metric=_metric(views), left_out=left_out, other=compared_with, all=Shared([*views.values()])
    )


def _main_effects(context: ReportContext, components: Components, views: dict[str, FindingView]) -> Table:
    groups, rows = components.groups(), []
    for name, part in components.parts.items():
        view, there, absent = views[name], groups[f"with:{name}"], groups[f"without:{name}"]
        costs = _costs(context, there, absent, alone=True)
        rows.append(PartRow(name, "", part.why.strip(), view.finding.n, view, view.sides, *costs))
    # Of a full factorial each part is in one half of the arms.
    half = len(components.arms()) // 2
    return tables.MAIN_EFFECTS.of(rows, metric=_metric(views), half=half, all=Shared([*views.values()]))


def _interactions(
    context: ReportContext, components: Components, views: dict[str, FindingView], names: Iterable[str]
) -> Table:
    arms, rows = components.arms(), []
    for name in names:
        first, second = components.effects()[name]
        view, means = views[name], []
        # In the order of the columns: neither, the first alone, the second alone, both.
        for has_second, has_first in product((False, True), repeat=2):
            inside = [
                arm for arm, parts in arms.items() if (first in parts, second in parts) == (has_first, has_second)
            ]
            means.append(_mean_of(context, view, inside))
        rows.append(PartRow(f"{first}*{second}", "", "", view.finding.n, view, tuple(means)))
    return tables.INTERACTIONS.of(rows)


def _arms(context: ReportContext, components: Components, views: dict[str, FindingView]) -> Table:
    view = views[next(iter(components.parts))]
    rows = [
        PartRow(
            "",
            context.arm(arm),
            reason,
            _n(context, arm),
            None,
            (_mean_of(context, view, [arm]),),
            *_costs(context, [arm]),
        )
        for arm, reason in components.reasons().items()
    ]
    return tables.PART_ARMS.of(rows, metric=view.metric)


def _metric(views: dict[str, FindingView]) -> str:
    view = next(iter(views.values()))
    return estimates.with_unit(view.metric, view.unit)


def _mean_of(context: ReportContext, view: FindingView, arms: Iterable[str]) -> str:
    """Mean of what the finding reads, of some arms over its seeds."""
    final = read_values(context.study, view.name, context.evidence)
    seeds = [pair.seed for pair in view.finding.pairs]
    values = [final[arm, seed] for arm in arms for seed in seeds if (arm, seed) in final]
    return words.number(fmean(values), view.decimals) if values else NONE


def _n(context: ReportContext, arm: str) -> int:
    return sum(run.status == "done" and run.variant == arm for run in context.evidence.runs)


def _costs(
    context: ReportContext, arms: Iterable[str], against: Iterable[str] = (), *, alone: bool = False
) -> tuple[Cost, Cost]:
    """Parameters and seconds of a run, of some arms and of those that they are compared with."""
    here, there = [*arms], [*against]
    parameters, seconds = (
        Cost(_mean_cost(context, here, kind), _mean_cost(context, there, kind), alone)
        for kind in ("parameters", "wall_s")
    )
    return parameters, seconds


def _mean_cost(context: ReportContext, arms: list[str], kind: str) -> float | None:
    costs = [getattr(run, kind) for run in context.evidence.runs if run.status == "done" and run.variant in arms]
    # A trainer that states no cost states 0: a mean with such zeros would be no cost.
    return fmean(costs) if costs and min(costs) > 0 else None
