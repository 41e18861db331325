"""The whole account in order: banner and sections. Renderers take it from here and add no content of their own."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.judge.verdict import Check, Decision
from ablate.reporting.blocks import Section
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.audit import in_order, tell_checks, tell_pairs, tell_runs
from ablate.reporting.sections.by_block import tell_by_block
from ablate.reporting.sections.curves import tell_curves
from ablate.reporting.sections.deviations import tell_deviations
from ablate.reporting.sections.final_values import tell_final_values
from ablate.reporting.sections.findings import tell_findings
from ablate.reporting.sections.hindsight import tell_hindsight
from ablate.reporting.sections.methods import tell_glossary, tell_methods
from ablate.reporting.sections.published import tell_beside
from ablate.reporting.sections.registration import tell_promise
from ablate.reporting.sections.reliability import tell_reliability

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


def compose(told: ReportContext) -> Document:
    """The document of a decision."""
    promised = told.registration.sha256
    assert told.decision.registration == promised, (told.decision.registration, promised)
    sections = (
        tell_promise(told),
        tell_findings(told),
        tell_hindsight(told),
        tell_curves(told),
        tell_by_block(told),
        tell_reliability(told),
        tell_final_values(told),
        tell_beside(told),
        tell_pairs(told),
        tell_deviations(told),
        tell_checks(told),
        tell_runs(told),
        tell_methods(told),
        tell_glossary(told),
    )
    return Document(
        told.decision.study,
        told.decision.title,
        banner_of(told.decision),
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
