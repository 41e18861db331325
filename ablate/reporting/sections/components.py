"""The part of the report that a component ablation is made for: what each part of the system is worth, and costs.

Differences, intervals and outcomes are those of the findings. Means and costs are description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from statistics import fmean

from ablate.judge.readings import read_values
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Paragraph, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.view import FindingView, is_corrected, views_of
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
    if components.design != "factorial":
        yield _one_at_a_time(context, components)
    else:
        yield _main_effects(context, components)
        pairs = [name for name, effect in components.effects().items() if len(effect) == 2]
        if pairs:
            yield _interactions(context, components, pairs)
        yield _arms(context, components)


def _one_at_a_time(context: ReportContext, components: Components) -> Table:
    """A row for the arm that all others are compared with, then one for each part."""
    left_out = components.design == "leave_one_out"
    arms, reasons, found = components.arms(), components.reasons(), _findings(context)
    other, *single = arms
    against = next((mean for one in found.values() for mean in one.sides[1:]), NONE)
    rows = [(NONE, other, reasons[other], *_n(context, [other]), against, NONE, NONE, NONE, *_cost(context, [other]))]
    for part, arm in zip(components.parts, single, strict=True):
        finding = found[part]
        rows.append(
            (
                part,
                arm,
                reasons[arm],
                str(finding.finding.n),
                finding.sides[0],
                finding.amount,
                finding.interval,
                finding.outcome,
                *_cost(context, [arm], [other]),
            )
        )
    return Table(
        f"{_metric(found)} by part: what {'is lost without it' if left_out else 'it brings'}.",
        columns("Part", "Arm", "Reason", "n:", "Mean:", "Difference:", "Interval:", "Outcome", *_COSTS),
        tuple(rows),
        note=f"Difference: the arm minus {other}. {_noted(found.values())} {_SAID_COST} In brackets: minus {other}.",
    )


def _main_effects(context: ReportContext, components: Components) -> Table:
    groups, found, rows = components.groups(), _findings(context), []
    for part, one in components.parts.items():
        finding, there, absent = found[part], groups[f"with:{part}"], groups[f"without:{part}"]
        rows.append(
            (
                part,
                one.why.strip() or NONE,
                str(finding.finding.n),
                *finding.sides,
                finding.amount,
                finding.interval,
                finding.outcome,
                *_cost(context, there, absent, whole=False),
            )
        )
    half = len(components.arms()) // 2
    heads = ("Part", "Reason", "n:", "With it:", "Without it:", "Difference:", "Interval:", "Outcome", *_COSTS)
    return Table(
        f"{_metric(found)} by part: the mean of the {half} arms with it and of the {half} without it.",
        columns(*heads),
        tuple(rows),
        note=f"Difference: with it minus without it. {_noted(found.values())} {_SAID_COST} Of a part: the mean of the "
        "arms with it minus that of the arms without it.",
    )


def _interactions(context: ReportContext, components: Components, names: Iterable[str]) -> Table:
    found, arms, rows = _findings(context), components.arms(), []
    for name in names:
        one, other = components.effects()[name]
        finding, cells = found[name], []
        for has_other, has_one in product((False, True), repeat=2):
            inside = [arm for arm, parts in arms.items() if (one in parts, other in parts) == (has_one, has_other)]
            cells.append(_mean_of(context, finding, inside))
        shown = finding.amount, finding.interval, finding.outcome
        rows.append((f"{one}*{other}", *cells, str(finding.finding.n), *shown))
    heads = (
        "Parts",
        "Neither:",
        "First alone:",
        "Second alone:",
        "Both:",
        "n:",
        "Interaction:",
        "Interval:",
        "Outcome",
    )
    return Table(
        "Interactions: means of the arms with neither, one and both of two parts.",
        columns(*heads),
        tuple(rows),
        note="Interaction: half the difference between the effect of one part with the other and without it. Means are "
        "of the metric itself, over the seeds of the finding.",
    )


def _arms(context: ReportContext, components: Components) -> Table:
    found = _findings(context)
    finding = found[next(iter(components.parts))]
    rows = tuple(
        (context.arm(arm), reason, *_n(context, [arm]), _mean_of(context, finding, [arm]), *_cost(context, [arm]))
        for arm, reason in components.reasons().items()
    )
    return Table(
        f"Arms, with the mean of {finding.metric}.",
        columns("Arm", "Reason", "n:", "Mean:", *_COSTS),
        rows,
        note=_SAID_COST,
        folded=True,
    )


_COSTS = ("Parameters:", "Seconds per run:")
_SAID_COST = "Parameters and mean seconds per run are those of the records, as description; a dash: not known."


def _noted(findings: Iterable[FindingView]) -> str:
    corrected = "over all claims of the role" if is_corrected(findings) else "of each claim alone"
    return f"n: pairs of seeds. Intervals are those of the findings, {corrected}."


def _metric(found: dict[str, FindingView]) -> str:
    one = next(iter(found.values()))
    return estimates.with_unit(one.metric, one.unit)


def _findings(context: ReportContext) -> dict[str, FindingView]:
    return {view.name: view for view in views_of(context.decision.findings, context.study)}


def _mean_of(context: ReportContext, finding: FindingView, arms: Iterable[str]) -> str:
    """Mean of what the finding reads, of some arms over its seeds."""
    final = read_values(context.study, finding.name, context.evidence)
    seeds = [pair.seed for pair in finding.finding.pairs]
    values = [final[arm, seed] for arm in arms for seed in seeds if (arm, seed) in final]
    return words.number(fmean(values), finding.decimals) if values else NONE


def _n(context: ReportContext, arms: Iterable[str]) -> tuple[str]:
    names = set(arms)
    return (str(sum(run.status == "done" and run.variant in names for run in context.evidence.runs)),)


def _cost(
    context: ReportContext, arms: Iterable[str], against: Iterable[str] = (), *, whole: bool = True
) -> tuple[str, str]:
    """Parameters and seconds per run: of the arms, and in brackets minus those of others; or the difference alone."""
    cells = []
    for kind, least in (("parameters", 0), ("wall_s", 1)):
        here, there = (_mean_cost(context, names, kind) for names in (arms, against))
        decimals = least if here is None or here < 100 else 0
        text = NONE if here is None else words.number(here, decimals)
        if here is not None and there is not None:
            difference = estimates.signed(here - there, decimals)
            text = f"{text} ({difference})" if whole else difference
        cells.append(text)
    return cells[0], cells[1]


def _mean_cost(context: ReportContext, arms: Iterable[str], kind: str) -> float | None:
    names = set(arms)
    found = [getattr(run, kind) for run in context.evidence.runs if run.status == "done" and run.variant in names]
    return fmean(found) if found and min(found) > 0 else None
