"""Section of findings: what was found about each hypothesis, and the pairs behind it.

The forest plot of all findings opens the report, but for findings that are not to be used. While runs are missing there
are no findings, and nothing that separates the arms may be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ablate.judge.design.retrospective import LOW_POWER, Retrospective, look_back
from ablate.reporting import charts, tables
from ablate.reporting.blocks import Block, Facts, Figure, Panel, Section, Table
from ablate.reporting.context import ReportContext
from ablate.reporting.description import better_in
from ablate.reporting.forest import forest_figure
from ablate.reporting.headline import headline_of
from ablate.reporting.sections.tasks import summary_of_family, task_tables
from ablate.reporting.view import FindingView, Shared, views_of
from ablate.reporting.wording import blocks, phrase
from prereg import text as words
from prereg.documents.procedures import after_correction, at_level
from prereg.documents.sentences import counted_as
from prereg.study.analysis import in_words
from prereg.study.designs.per_task import said_once

MOST_PAIRS = 4
"""Contrasts whose pairs are drawn; the pairs of the others are in pairs.csv."""


def findings_section(context: ReportContext) -> Section:
    """Every hypothesis in a sentence, the claims of a family per task in a row each, or why nothing may be shown."""
    decision, study = context.decision, context.study
    views = views_of(decision.findings, study)
    together = Shared(views)
    by_name = {view.name: view for view in views}
    # In the order of the gate, not of the file: level flows along it.
    gated = [by_name[name] for step in study.gate_steps for name in step if by_name and by_name[name].finding.gate]
    also = [(view, estimate) for view in views for estimate in view.finding.also]
    shared = [view for view in views if view.finding.shared is not None]
    # Every other finding has a sentence with its numbers, and a row of the forest.
    of_tasks = [view for view in views if study.hypotheses[view.name].family]
    made = blocks(
        "findings",
        withheld=context.withheld,
        unusable=context.unusable,
        because=decision.because,
        amended=any(finding.amended for finding in decision.findings),
        said=[] if context.withheld else [*_said(context, by_name)],
        hindsight=[] if context.withheld else [*_hindsight(context, by_name)],
        findings=tables.FINDINGS.of(of_tasks, all=Shared(of_tasks)) if of_tasks else None,
        gate=tables.GATE.of(gated, order=in_words(study), alpha=words.compact(study.analysis.alpha)) if gated else None,
        pairing=tables.PAIRING.of(shared) if shared else None,
        also=tables.ALSO.of(also, notes=_notes(also)) if also else None,
        forest=forest_figure(views) if context.unusable and views else None,
        legend=phrase("finding.legend", together) if context.unusable and views else "",
        stopped_early=decision.look is not None and not decision.look.last,
        tie_breakers=_tie_breakers(context) if decision.tie_breakers else None,
    )
    if context.withheld:
        return Section("findings", "What was found", made)
    # Tables by task follow the sentences, and explain the rows of the findings.
    at = 1 + max(place for place, block in enumerate(made) if isinstance(block, Facts))
    return Section("findings", "What was found", (*made[:at], *task_tables(context), *made[at:]))


def _notes(also: Sequence[tuple[FindingView, object]]) -> str:
    from ablate.reporting.estimates import sentences

    return sentences(note for _, estimate in also for note in getattr(estimate, "notes", ()))


def _said(context: ReportContext, by_name: dict[str, FindingView]) -> Iterator[tuple[str, str]]:
    """A sentence for each hypothesis, and one for each family per task."""
    # A clause that the banner has said is not said again.
    above = () if context.unusable else headline_of(context.decision, context.registration).clauses
    # Claims may ask several things of one contrast; the first of them has the sentence.
    label_by_clause: dict[str, str] = {}
    for label, name in said_once(context.study).items():
        names = context.study.task_families.get(label)
        if names is not None:
            yield (
                phrase("findings_parts.family", label),
                summary_of_family([by_name[member].finding for member in names]),
            )
        else:
            view = by_name[name]
            yield phrase("findings_parts.term", view), phrase("findings_parts.sentence", view, above, label_by_clause)
            label_by_clause.setdefault(view.clause, view.label)


def _hindsight(context: ReportContext, by_name: dict[str, FindingView]) -> Iterator[dict[str, str]]:
    """What an inconclusive finding would take, and how far luck may have carried one: post hoc, it decides nothing."""
    study = context.study
    correct = study.analysis.correct
    # `look_back` takes the SD from the data and the effect from the registration: no observed power.
    for hindsight in look_back(context.registration, context.decision.findings):
        view = by_name[hindsight.hypothesis]
        text = phrase(
            "findings_parts.hindsight",
            hindsight,
            view,
            stated_at(view, hindsight),
            low=LOW_POWER,
            level=at_level(correct),
            corrected=after_correction(correct),
        )
        if text:
            yield {"label": view.label, "text": counted_as(study, text)}


def stated_at(view: FindingView, hindsight: Retrospective) -> str:
    """At which true effect a power, or seeds that give it, are stated: of a claim of no change where there is none."""
    return phrase("findings_parts.stated_at", view, hindsight.effect)


def _tie_breakers(context: ReportContext) -> Table:
    """Means of tie-breaking metrics by arm."""
    rows = []
    for metric, value in context.decision.tie_breakers.items():
        unit = words.unit_of(metric, own=context.study.own_units)
        means = value if isinstance(value, dict) else {"": value}
        rows += [
            tables.TieBreakerRow(context.metric(metric), context.arm(arm), mean, unit) for arm, mean in means.items()
        ]
    return tables.TIE_BREAKERS.of(rows)


def pairs_figure(context: ReportContext) -> Figure | None:
    """The pairs of each contrast once, seed by seed: claims that read the same values share a panel."""
    drawn: dict[object, list[FindingView]] = {}
    for view in views_of(context.decision.findings, context.study):
        # Dozens of claims per task would be dozens of panels.
        if view.finding.pairs and not context.study.hypotheses[view.name].family:
            drawn.setdefault((view.finding.metric, view.finding.pairs), []).append(view)
    if not drawn:
        return None
    panels = tuple(_panel(views) for views in [*drawn.values()][:MOST_PAIRS])
    left_out = len(drawn) - len(panels)
    paired = any(view.paired for views in drawn.values() for view in views)
    return Figure("Pairs" if paired else "Seeds", phrase("findings_parts.pairs", paired, left_out), panels)


def _panel(views: list[FindingView]) -> Panel:
    view = views[0]
    left, right = (
        # A label needs no brackets around a sum of arms.
        side[1:-1] if side.startswith("(") else side
        for side in (view.claim.left_side, view.claim.right_side)
    )
    way, count = better_in(view.finding.better, (pair.difference for pair in view.finding.pairs))
    names = words.listed(claim_view.label for claim_view in views)
    title = phrase("findings_parts.pairs_title", names, view, way, count)
    return Panel(title, partial(charts.paired, view, left, right), f"{view.metric}: {title}.")


def runs_as_pairs(context: ReportContext) -> list[Block]:
    """The figure of pairs, where there are any."""
    figure = pairs_figure(context)
    return [] if figure is None else [figure]
