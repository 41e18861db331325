"""The part of the report that lists what did not go as promised, each with its consequence for admissibility.

Found, consequence and why come from the judge's checks and from its one table of declarations; nothing is weighed here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ablate.judge.audit.consequences import MEANS, why
from ablate.judge.verdict import Check
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Paragraph, Section, Table, columns, table_of
from ablate.reporting.context import ReportContext
from ablate.reporting.estimates import NONE
from ablate.reporting.sections.audit import in_order
from ablate.reporting.summaries.proof import describe_decision
from prereg import text as words
from prereg.registry.amendments import Amendment, amendments_of, reached, touched
from prereg.registry.ledger import Entry
from prereg.registry.looks import decisions_before

NONE_FOUND = (
    "Every check held, and no early look is in the ledger; no check can show whether somebody read the records by hand."
)


def deviations_section(context: ReportContext) -> Section:
    """Every check that did not hold, the gravest first, and every amendment."""
    failed = [check for check in in_order(context.decision.checks) if not check.passed]
    blocks: list[Block] = [_found(failed, len(context.decision.checks))] if failed else [Paragraph(NONE_FOUND)]
    earlier = decisions_before(context.evidence.ledger, context.registration.sha256, context.ledger_head)
    if earlier:
        blocks.append(Paragraph(f"Earlier decisions of this registration: {decisions_in_words(earlier)}."))
    amendments = amendments_of(context.evidence.ledger)
    if amendments:
        blocks.append(_amendments(context, amendments))
    return Section("deviations", "Deviations", tuple(blocks))


def decisions_in_words(entries: Sequence[Entry]) -> str:
    """`entry 18 (2026-11-20 23:38 UTC, keep none)`, of each decision."""
    return words.listed(f"entry {one.index} ({words.moment(one.at)}, {describe_decision(one.body)})" for one in entries)


def _found(failed: list[Check], asked: int) -> Table:
    return table_of(
        failed,
        f"Checks that did not hold: {len(failed)} of {asked}.",
        {
            "Check": lambda check: check.name,
            "Found": lambda check: check.found,
            "Required": lambda check: check.required or NONE,
            "Consequence": lambda check: MEANS[check.severity],
            "Why": lambda check: why(check) or NONE,
        },
        note=f"Consequences: {words.listed(MEANS.values(), last='or')}. The whole table of checks: ablate check "
        "--admissibility.",
        marked=frozenset(at for at, check in enumerate(failed) if check.severity != "note"),
    )


def _amendments(context: ReportContext, amendments: tuple[Amendment, ...]) -> Table:
    rows: list[tuple[str, ...]] = []
    marked: set[int] = set()
    for amendment in amendments:
        for field, (hypotheses, arms, rule) in reached(context.study, amendment.differences).items():
            late = amendment.after_evidence and bool(hypotheses or arms or rule)
            difference = next((one for one in amendment.differences if one.field == field), None)
            if late:
                marked.add(len(rows))
            rows.append(
                (
                    f"{words.moment(amendment.at)}, entry {amendment.index}",
                    amendment.reason,
                    amendment.evidence,
                    field,
                    NONE if difference is None else estimates.value(difference.registered),
                    NONE if difference is None else estimates.value(difference.now),
                    _touches(hypotheses, arms, context, rule=rule) if late else "nothing",
                )
            )
    chain = [amendments[0].previous, *(one.registration for one in amendments)]
    marked_findings = {finding.hypothesis for finding in context.decision.findings if finding.amended}
    exploratory = {*touched(context.study, amendments).hypotheses, *marked_findings}
    kept = [name for name in context.study.hypotheses if name not in exploratory]
    return Table(
        f"Amendments: {len(amendments)}. Registrations: {' → '.join(words.short(one) for one in chain)}.",
        columns("When", "Reason given", "Evidence by then", "Field", "Registered", "Now", "Makes exploratory"),
        tuple(rows),
        note="What an amendment after evidence touched is exploratory from then on, whatever later amendments say. "
        + (f"Untouched: {words.listed(kept)}." if kept else "No hypothesis is untouched."),
        marked=frozenset(marked),
    )


def _touches(hypotheses: set[str], arms: set[str], context: ReportContext, *, rule: bool) -> str:
    named = [name for name in context.study.hypotheses if name in hypotheses]
    named += [f"stable({arm})" for arm in context.study.arms if arm in arms]
    return words.listed([*named, *(["the verdict: there is none"] if rule else [])])
