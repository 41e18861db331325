"""Output of `ablate verify` and `ablate bundle`: what a study found, then four lines, and the table with `--all`.

Nothing is called fine next to something that was not checked: the line that says what was found counts that too, and
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


def verification_sections(checked: Verification, *, details: bool = False) -> list[Section]:
    """What each study claims and found, four lines about the check, and every item where `details` are wanted."""
    # One study in full; of several a line each, as a repository may have hundreds.
    if len(checked.studies) == 1:
        studies = [_study(checked.studies[0])]
    else:
        lines = Facts(tuple(("", _in_a_line(study)) for study in checked.studies))
        studies = [Section("studies", "", (lines,))]
    sections = [*studies, Section("verification", "", _four_lines(checked))]
    if details:
        sections.append(Section("details", "", tuple(_details(checked))))
    return sections


def bundle_section(path: Path, checked: Verification, *, written: bool) -> Section:
    """The bundle that was written, or existed already; it has been checked."""
    assert checked.bundle is not None, path
    line = phrase("verification_parts.bundle", str(path), checked.bundle.size_bytes, written)
    hashes = Facts((("Contents sha256", checked.bundle.contents_sha256), ("Ledger head", checked.head)))
    quoted = Paragraph(phrase("verification_parts.quote"))
    return Section("bundle", "", (Paragraph(line), _left_out(checked), quoted, hashes))


def _left_out(checked: Verification) -> Facts:
    left_out = () if checked.bundle is None else checked.bundle.left_out
    return Facts(tuple(("Not in it", phrase("verification_parts.left_out", omission)) for omission in left_out))


def _study(study: StudySummary) -> Section:
    """The verdict, every finding with its interval and n, and when what happened."""
    made: list[Block] = [Paragraph(study.title)] if study.title else []
    made += [Facts(tuple(("", text) for text in _findings(study))), Paragraph(_dates(study))]
    if study.claimed_before is not None:
        made.append(Paragraph(f"{study.claimed_before.words}."))
    title = phrase("verification_parts.title", study.study, phrase("verification_parts.ending", study))
    return Section("study", title, tuple(made))


def _in_a_line(study: StudySummary) -> str:
    ending = phrase("verification_parts.ending", study)
    line = phrase("verification_parts.in_a_line", study.study, ending, _dates(study))
    return line if study.claimed_before is None else f"{line} {study.claimed_before.words}."


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


def _four_lines(verification: Verification) -> tuple[Block, ...]:
    # What was checked, what that found, what deviated, and which seals hold: always all four, so that a line that is
    # missing cannot be taken for a good one.
    checked = [item for item in verification.items if item.state != "not checked"]
    holding = [(_name(seal), seal) for seal in verification.seals if seal.state == "holds"]
    faults = sum(len(item.faults) for item in verification.items)
    return blocks(
        "verification",
        n_checked=len(checked),
        n=len(verification.items),
        names=[*dict.fromkeys(item.what for item in checked)],
        found=phrase(
            "verification_parts.found",
            faults,
            Counter(item.state for item in verification.items),
            verification.inadmissible,
        ),
        lines=[*_lines(verification)],
        head=verification.head,
        hashes=phrase(
            "verification_parts.hashes",
            "" if verification.bundle is None else verification.bundle.contents_sha256,
            verification.head,
        ),
        deviations=_deviations(verification),
        held=phrase("verification_parts.held", holding, len(verification.seals)),
    )


def _lines(checked: Verification) -> Iterator[str]:
    """What has changed, what is judged differently, what is remarked, and what was not checked with what to type."""
    several = len(checked.studies) > 1
    # Stable: faults in the order of checking, then what was not checked.
    for item in sorted(checked.items, key=lambda item: item.state == "not checked"):
        name = phrase("verification_parts.named", item.study, item.what) if several else item.what
        yield from (phrase("verification_parts.changed", name, fault) for fault in item.faults)
        yield from (phrase("verification_parts.differently", name, fact) for fact in item.judged_differently)
        yield from (phrase("verification_parts.remark", name, remark) for remark in item.remarks)
        if item.inadmissible:
            yield phrase("verification_parts.inadmissible", item.study)
        if item.state == "not checked":
            yield phrase("verification_parts.not_checked", name, item)


def _deviations(checked: Verification) -> str:
    several = len(checked.studies) > 1
    named = [
        phrase("verification_parts.deviation", study.study if several else "", check)
        for study in checked.studies
        if study.decision is not None
        for check in study.decision.deviations
    ]
    judged = any(study.decision is not None for study in checked.studies)
    return phrase("verification_parts.deviations", named, judged)


def _name(seal: SealCheck) -> str:
    return "seal" if seal.kind is None else KINDS[seal.kind].name


def next_step(checked: Verification) -> str:
    """What to type: the remedy of what changed, else of what was not checked, else what comes after a check."""
    decided = bool(checked.studies) and all(study.decision is not None for study in checked.studies)
    # The gravest first. A bundle that changed cannot be repaired here, and is to be had again; a study in a
    # repository can be restored.
    if not checked.intact and (checked.bundle is not None or not checked.studies):
        return phrase("verification_parts.ask_again")
    if not checked.intact:
        fix = next(item.fix for item in checked.items if item.faults)
        return phrase("verification_parts.mend", fix, checked.target)
    # Nothing changed, but something could not be checked.
    missing = next((item.fix for item in checked.unchecked if item.fix), "")
    if missing and not checked.judged_differently and checked.bundle is None:
        return missing
    if checked.judged_differently:
        verb = "decide"  # so that this version's judgement is on record next to the earlier one
    elif checked.bundle is not None and not decided:
        return phrase("verification_parts.nothing_yet")
    elif checked.bundle is not None:
        verb = "report"
    elif decided:
        verb = "bundle"
    else:
        return f"ablate status {checked.target or 'STUDY'}"
    return f"ablate {verb} {checked.target or 'STUDY'}   ({phrase('verification_parts.why', verb)})"


def _details(checked: Verification) -> Iterator[Block]:
    """Every item, and every seal with what such seals are worth."""
    yield tables.ITEMS.of(checked.items)
    seals = ((_SEALS[seal.state], phrase("verification_parts.seal", seal, _name(seal))) for seal in checked.seals)
    yield Facts(tuple(seals))
    # Each kind of seal once, with what it proves and what it leaves open.
    worth = [KINDS[kind] for kind in KINDS if any(seal.kind == kind for seal in checked.seals)]
    if worth:
        yield tables.SEALS.of(worth, left_open=LEFT_OPEN_BY_ALL)
    if checked.bundle is not None:
        yield _left_out(checked)
        file = checked.bundle.sha256 or phrase("verification_parts.of_no_file")
        yield Facts((("Made with", checked.bundle.made_with.words), ("File sha256", file)))
