"""A decision as a document: the whole report, and the short one that `ablate decide` prints.

Banner and sections in order. Renderers take them from here and add no content of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.judge.verdict import Check, Decision, Finding
from ablate.judge.wording import same_in_every_pair
from ablate.reporting import estimates
from ablate.reporting.blocks import Block, Paragraph, Section, Table, columns
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.audit import (
    checks_section,
    decisions_in_words,
    deviations_section,
    in_order,
    pairs_section,
    runs_section,
)
from ablate.reporting.sections.components import components_section
from ablate.reporting.sections.curves import by_block_section, curves_section
from ablate.reporting.sections.design import hindsight_section
from ablate.reporting.sections.final_values import final_values_section
from ablate.reporting.sections.findings import findings_section, test_of
from ablate.reporting.sections.methods import glossary_section, methods_section
from ablate.reporting.sections.published import published_section
from ablate.reporting.sections.registration import registration_section
from ablate.reporting.sections.reliability import reliability_section
from ablate.reporting.sections.tuning import tuning_section
from ablate.reporting.sections.unpaired import any_unpaired
from ablate.reporting.tasks import summary_of_family
from prereg import text as words
from prereg.registry.ledger_entry import Entry
from prereg.study.designs.per_task import by_family

STATUS_WORDS = {
    "decided": "Decided",
    "inconclusive": "Not decided",
    "inadmissible": "INADMISSIBLE",
    "continue": "Continue",
}


@dataclass(frozen=True)
class Banner:
    """The first thing a reader sees."""

    status: str
    word: str
    headline: str
    because: str
    reasons: tuple[str, ...]
    """Checks that forbid a verdict, then deviations, each in one sentence."""


@dataclass(frozen=True)
class Document:
    """A report before it has a format."""

    study: str
    title: str
    banner: Banner
    sections: tuple[Section, ...]


def compose(context: ReportContext) -> Document:
    """The document of a decision."""
    promised = context.registration.sha256
    assert context.decision.registration == promised, (context.decision.registration, promised)
    sections = (
        registration_section(context),
        findings_section(context),
        components_section(context),
        tuning_section(context),
        hindsight_section(context),
        curves_section(context),
        by_block_section(context),
        reliability_section(context),
        final_values_section(context),
        published_section(context),
        pairs_section(context),
        deviations_section(context),
        checks_section(context),
        runs_section(context),
        methods_section(context),
        glossary_section(context),
    )
    return Document(
        context.decision.study,
        context.decision.title,
        banner_of(context.decision),
        tuple(section for section in sections if section is not None),
    )


def banner_of(decision: Decision) -> Banner:
    """Status, verdict and reasons of a decision, in words."""
    headline = "No verdict" if decision.verdict is None else decision.verdict
    if decision.status == "continue":
        headline = "no verdict yet, more seeds are planned"
    return Banner(
        decision.status,
        STATUS_WORDS[decision.status],
        headline,
        decision.because,
        tuple(reason_of(check) for check in in_order(decision.checks) if not check.passed and check.severity != "note"),
    )


def reason_of(check: Check) -> str:
    """A failed check in one sentence, naming its weight."""
    weight = "Fails" if check.severity == "inadmissible" else "Deviation"
    return f"{weight}: {check.name}. Found: {check.found}"


def decision_document(
    decision: Decision, *, report_path: Path | None, ledger_head: str, earlier: Sequence[Entry] = ()
) -> Document:
    """The report's banner, every finding in short, earlier decisions of the registration, and where to read on."""
    banner = banner_of(decision)
    if decision.status == "inadmissible" and decision.findings and banner.reasons:
        # What makes a complete study inadmissible is all in the reasons; `because` would say it twice.
        banner = replace(banner, because="")
    blocks = [*_findings(decision)]
    if earlier:
        blocks.append(Paragraph(f"Earlier decisions of this registration: {decisions_in_words(earlier)}"))
    blocks += [
        Paragraph(f"Report: {report_path}" if report_path is not None else "No report was written."),
        Paragraph(f"Ledger head: {ledger_head}"),
    ]
    return Document(decision.study, decision.title, banner, (Section("decision", "", tuple(blocks)),))


def _findings(decision: Decision) -> Iterator[Block]:
    findings = decision.findings
    if not findings:
        if decision.status == "inadmissible":
            early = decision.look is not None and not decision.look.last
            why = "before a verdict" if early else "while runs are missing or broken, or the ledger cannot log the look"
            yield Paragraph(f"No contrast is shown {why}.")
        return
    if decision.status == "inadmissible":
        yield Paragraph("These findings are shown for the record. They are not to be used.", "lead")
    heads = columns("Outcome", "Claim", "Difference [interval]:", "p:", "n:")
    yield Table("", heads, tuple(map(_row, findings)))
    for label, members in by_family(findings).items():
        yield Paragraph(
            _sentence(members[0]) if len(members) == 1 else f"{label}, per task: {summary_of_family(members)}"
        )
    if any(finding.amended for finding in findings):
        yield Paragraph("Exploratory: touched by an amendment after evidence; no verdict rests on it.", "lead")
    yield Paragraph(legend(findings), "aside")
    unstable = [f"'{arm.variant}'" for arm in decision.stability if not arm.stable]
    if unstable:
        yield Paragraph(f"Unstable by the registered rule: {words.listed(unstable)}")


def _row(finding: Finding) -> tuple[str, ...]:
    estimate, n = finding.estimate, str(finding.n)
    difference = "no estimate"
    if estimate is not None:
        decimals, bounds = estimates.finding_decimals(finding), estimates.shown_interval(finding)
        interval = estimates.interval(bounds, decimals) if bounds is not None else "[none]"
        difference = f"{estimates.signed(estimate.difference, decimals)} {interval}"
        n += f" x {estimate.items.n_units:,}" if estimate.items else ""
    p = finding.p_refute_adjusted if finding.outcome == "refuted" else finding.p_support_adjusted
    claim = finding.claim + " (exploratory)" * bool(finding.amended)
    return finding.outcome, claim, difference, estimates.p_cell(p, estimates.levels_of(finding)), n


def _sentence(finding: Finding) -> str:
    """`no_harm: supported - b does not worsen val/accuracy by 0.01 share or more; zone: less than the margin`."""
    text = f"{finding.label}: {finding.outcome} - {estimates.meaning_of(finding)}"
    if finding.margin is not None:
        text += f"; zone: {estimates.zone_of(finding)}"
    left, right = ([getattr(pair, side) for pair in finding.pairs] for side in ("left", "right"))
    same = same_in_every_pair(left, right, paired=estimates.claim_of(finding).is_paired)
    return f"{text}. Note: {same}" if same else text


def legend(findings: Sequence[Finding]) -> str:
    """What n, the tests, the intervals and the p values of the table are."""
    levels: dict[bool, dict[str, None]] = {False: {}, True: {}}
    for finding in findings:
        bounds = estimates.shown_interval(finding)
        if finding.estimate and bounds:
            levels[estimates.rests_on_margin(finding)][words.level(bounds.level)] = None
    claims = [estimates.claim_of(finding) for finding in findings]
    constant = all(claim.constant is not None for claim in claims)
    kinds = {
        False: "(1 − 2 alpha) against a constant, on one side" if constant else "against zero",
        True: "(1 − 2 alpha) against a margin, on one side",
    }
    counted = "pairs of seeds" if any(claim.is_paired for claim in claims) else "seeds"
    intervals = "; ".join(f"{words.listed(found)} {kinds[margin]}" for margin, found in levels.items() if found)
    shown = [finding.estimate for finding in findings if finding.estimate]
    methods = words.listed(dict.fromkeys(test_of(one) if one.items else one.method for one in shown))
    units = words.listed(dict.fromkeys(one.items.unit for one in shown if one.items), last="or")
    corrected = estimates.is_corrected(findings)
    over, how = "over all claims of a role, ", "corrected over a role, "
    if any(finding.gate for finding in findings):
        over = "against zero by the share of alpha that a claim starts with, or alone where that is 0, "
        how = "adjusted by the gate, or for refutation over the role, "
    counted = "runs of all arms" if any_unpaired(shown) else counted
    return (
        f"n: {counted}{' x ' + units if units else ''}. Test: {methods or 'none'}. Intervals: "
        f"{over * corrected}{intervals or 'none'}. p: "
        f"{how * corrected}of refutation where refuted, else of support."
    )
