"""The whole account in order: banner and sections. Renderers take it from here and add no content of their own."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.judge.verdict import Check, Decision
from ablate.reporting.blocks import Section
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.audit import checks_section, in_order, pairs_section, runs_section
from ablate.reporting.sections.by_block import by_block_section
from ablate.reporting.sections.curves import curves_section
from ablate.reporting.sections.deviations import deviations_section
from ablate.reporting.sections.final_values import final_values_section
from ablate.reporting.sections.findings import findings_section
from ablate.reporting.sections.hindsight import hindsight_section
from ablate.reporting.sections.methods import glossary_section, methods_section
from ablate.reporting.sections.published import published_section
from ablate.reporting.sections.registration import registration_section
from ablate.reporting.sections.reliability import reliability_section

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
