"""What `ablate verify` and `ablate bundle` print: what a study found, then five lines, and the table with `--all`.

Nothing is called fine beside something that was not checked: the line that says what was found counts that too, and
says what to type so that it can be checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Block, Facts, Paragraph, Section
from ablate.reporting.summaries import tables
from ablate.reporting.wording import blocks, phrase
from ablate.verification.result import StudySummary, Verification
from prereg import text as words
from prereg.seals.state import KINDS, LEFT_OPEN_BY_ALL

if TYPE_CHECKING:
    from prereg.seals.examine import SealCheck

MOST_FINDINGS = 8
"""Findings of a study that are shown; the report has the others."""
_SEALS = {
    "holds": "holds",
    "unvouched": "not checked",
    "incomplete": "not checked",
    "unchecked": "not checked",
    "broken": "CHANGED",
}


def verification_sections(found: Verification, *, details: bool = False) -> list[Section]:
    """What each study claims and found, five lines about the check, and every item where `details` are wanted."""
    if len(found.studies) == 1:
        studies = [_study(found.studies[0])]
    else:
        lines = Facts(tuple(("", _in_a_line(study)) for study in found.studies))
        studies = [Section("studies", "", (lines,))]
    sections = [*studies, Section("verification", "", _five_lines(found))]
    if details:
        sections.append(Section("details", "", tuple(_details(found))))
    return sections


def bundle_section(path: Path, found: Verification, *, written: bool) -> Section:
    """The bundle that was written, or existed already; it has been checked."""
    assert found.bundle is not None, path
    line = phrase("verification_parts.bundle", str(path), found.bundle.size_bytes, written)
    hashes = Facts((("Contents sha256", found.bundle.contents_sha256), ("Ledger head", found.head)))
    quoted = Paragraph(phrase("verification_parts.quote"))
    return Section("bundle", "", (Paragraph(line), _left_out(found), quoted, hashes))


def _left_out(found: Verification) -> Facts:
    left_out = () if found.bundle is None else found.bundle.left_out
    return Facts(tuple(("Not in it", phrase("verification_parts.left_out", one)) for one in left_out))


def _study(study: StudySummary) -> Section:
    """The verdict, every finding with its interval and n, and when what happened."""
    made: list[Block] = [Paragraph(study.title)] if study.title else []
    made += [Facts(tuple(("", text) for text in _findings(study))), Paragraph(_dates(study))]
    title = phrase("verification_parts.title", study.study, phrase("verification_parts.ending", study))
    return Section("study", title, tuple(made))


def _in_a_line(study: StudySummary) -> str:
    ending = phrase("verification_parts.ending", study)
    return phrase("verification_parts.in_a_line", study.study, ending, _dates(study))


def _findings(study: StudySummary) -> Iterator[str]:
    decision, registration = study.decision, study.registration
    if decision is None or registration is None:
        return
    if decision.status == "inadmissible":  # its findings are not to be used
        failed = [check for check in decision.checks if not check.passed and check.severity == "inadmissible"]
        yield from (phrase("verification_parts.failed", check) for check in failed)
        return
    from ablate.reporting.view import views_of  # loads the judge

    views = views_of(decision.labelled(registration.study.labels).findings, registration.study)
    yield from (phrase("verification_parts.finding", view) for view in views[:MOST_FINDINGS])
    if views[MOST_FINDINGS:]:
        yield phrase("verification_parts.more_findings", len(views) - MOST_FINDINGS)


def _dates(study: StudySummary) -> str:
    times = (study.registered_at, study.first_run_at, study.decided_at)
    return phrase("verification_parts.dates", study, *(words.moment(at) if at else "" for at in times))


def _five_lines(found: Verification) -> tuple[Block, ...]:
    checked = [item for item in found.items if item.state != "not checked"]
    holding = [(_name(seal), seal) for seal in found.seals if seal.state == "holds"]
    faults = sum(len(item.faults) for item in found.items)
    return blocks(
        "verification",
        n_checked=len(checked),
        n=len(found.items),
        names=[*dict.fromkeys(item.what for item in checked)],
        found=phrase(
            "verification_parts.found", faults, Counter(item.state for item in found.items), found.inadmissible
        ),
        lines=[*_lines(found)],
        head=found.head,
        hashes=phrase(
            "verification_parts.hashes", "" if found.bundle is None else found.bundle.contents_sha256, found.head
        ),
        deviations=_deviations(found),
        held=phrase("verification_parts.held", holding, len(found.seals)),
        next=_next(found),
    )


def _lines(found: Verification) -> Iterator[str]:
    """What has changed, what is judged differently, and what was not checked with what to type."""
    several = len(found.studies) > 1
    for item in sorted(found.items, key=lambda item: item.state == "not checked"):
        name = phrase("verification_parts.named", item.study, item.what) if several else item.what
        yield from (phrase("verification_parts.changed", name, fault) for fault in item.faults)
        yield from (phrase("verification_parts.differently", name, fact) for fact in item.judged_differently)
        if item.inadmissible:
            yield phrase("verification_parts.inadmissible", item.study)
        if item.state == "not checked":
            yield phrase("verification_parts.not_checked", name, item)


def _deviations(found: Verification) -> str:
    several = len(found.studies) > 1
    named = [
        phrase("verification_parts.deviation", study.study if several else "", check)
        for study in found.studies
        if study.decision is not None
        for check in study.decision.deviations
    ]
    judged = any(study.decision is not None for study in found.studies)
    return phrase("verification_parts.deviations", named, judged)


def _name(seal: SealCheck) -> str:
    return "seal" if seal.kind is None else KINDS[seal.kind].name


def _next(found: Verification) -> str:
    """What to type: the remedy of what changed, else of what was not checked, else what comes after a check."""
    decided = bool(found.studies) and all(study.decision is not None for study in found.studies)
    if not found.intact and (found.bundle is not None or not found.studies):
        return phrase("verification_parts.ask_again")
    if not found.intact:
        fix = next(item.fix for item in found.items if item.faults)
        return phrase("verification_parts.mend", fix, found.target)
    missing = next((item.fix for item in found.unchecked if item.fix), "")
    if missing and not found.judged_differently and found.bundle is None:
        return missing
    if found.judged_differently:
        why = "decide"
    elif found.bundle is not None:
        why = "report" if decided else "wait"
    else:
        why = "bundle" if decided else "status"
    return phrase("verification_parts.next", why, found.target or "STUDY")


def _details(found: Verification) -> Iterator[Block]:
    """Every item, and every seal with what such seals are worth."""
    yield tables.ITEMS.of(found.items)
    seals = ((_SEALS[seal.state], phrase("verification_parts.seal", seal, _name(seal))) for seal in found.seals)
    yield Facts(tuple(seals))
    worth = [KINDS[kind] for kind in KINDS if any(seal.kind == kind for seal in found.seals)]
    if worth:
        yield tables.SEALS.of(worth, left_open=LEFT_OPEN_BY_ALL)
    if found.bundle is not None:
        yield _left_out(found)
        file = found.bundle.sha256 or phrase("verification_parts.of_no_file")
        yield Facts((("Made with", found.bundle.made_with.words), ("File sha256", file)))
