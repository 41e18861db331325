"""What `ablate verify` and `ablate bundle` print: what a study found, then five lines, and the table with `--all`.

Nothing is called fine beside something that was not checked: the line that says what was found counts that too, and
says what to type so that it can be checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.verification.result import StudySummary, Verification
from prereg import text as words
from prereg.seals.state import KINDS, LEFT_OPEN_BY_ALL
from prereg.verification import Item

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
        studies = [Section("studies", "", (Facts(tuple(("", _in_a_line(study)) for study in found.studies)),))]
    sections = [*studies, Section("verification", "", tuple(_five_lines(found)))]
    if details:
        sections.append(Section("details", "", tuple(_details(found))))
    return sections


def bundle_section(path: Path, found: Verification, *, written: bool) -> Section:
    """The bundle that was written, or existed already; it has been checked."""
    assert found.bundle is not None, path
    line = f"{'wrote' if written else 'exists already:'} {path} ({found.bundle.size_bytes:,} bytes)"
    left_out = Facts(tuple(("Not in it", f"{one.what}: {one.why}.") for one in found.bundle.left_out))
    hashes = Facts((("Contents sha256", found.bundle.contents_sha256), ("Ledger head", found.head)))
    return Section("bundle", "", (Paragraph(line), left_out, Paragraph("Quote one of these to others:"), hashes))


def _study(study: StudySummary) -> Section:
    """The verdict, every finding with its interval and n, and when what happened."""
    blocks: list[Block] = [Paragraph(study.title)] if study.title else []
    blocks += [Facts(tuple(_findings(study))), Paragraph(_dates(study))]
    return Section("study", f"{study.study}: {_ending(study)}", tuple(blocks))


def _ending(study: StudySummary) -> str:
    if study.decision is not None:
        verdict = study.decision.verdict or f"no verdict: {study.decision.status}"
        n = len(study.decision.deviations)
        return f"{verdict}, with {words.counted(n, 'deviation')}" if n else verdict
    if study.decided_at is not None:
        return "decided; its findings are not shown, as they were not judged again here"
    return "not registered" if study.registered is None else "not decided yet"


def _in_a_line(study: StudySummary) -> str:
    return f"{study.study}: {_ending(study)}. {_dates(study)}"


def _findings(study: StudySummary) -> Iterator[tuple[str, str]]:
    decision, registration = study.decision, study.registration
    if decision is None or registration is None:
        return
    if decision.status == "inadmissible":  # its findings are not to be used
        failed = [check for check in decision.checks if not check.passed and check.severity == "inadmissible"]
        yield from (("", f"{check.name}, failed: {check.found}") for check in failed)
        return
    from ablate.reporting.view import FindingView  # loads the judge

    findings = decision.labelled(registration.study.labels).findings
    for finding in findings[:MOST_FINDINGS]:
        yield "", f"{finding.label}, {finding.outcome}: {FindingView(finding, registration.study).clause}"
    if findings[MOST_FINDINGS:]:
        yield "", f"{words.counted(len(findings) - MOST_FINDINGS, 'more finding')}: ablate report"


def _dates(study: StudySummary) -> str:
    if study.registered_at is None:
        return "Nothing is frozen yet."
    dates = [f"Registered {words.moment(study.registered_at)}"]
    dates.append(f"first run {words.moment(study.first_run_at)}" if study.first_run_at else "no run yet")
    dates += [f"decided {words.moment(study.decided_at)}"] if study.decided_at else []
    dates += [words.counted(study.n_runs, "sealed run")] if study.first_run_at else []
    return f"{', '.join(dates)}."


def _five_lines(found: Verification) -> Iterator[Block]:
    checked = [item for item in found.items if item.state != "not checked"]
    names = list(dict.fromkeys(item.what for item in checked))
    yield Facts((("Checked", f"{len(checked)} of {len(found.items)} items: {', '.join(names) or 'none'}."),))
    yield Facts((("Found", _found(found)),))
    yield Facts(tuple(_lines(found)))
    yield Facts(
        (("No check shows", f"that all of it was not made up, or that nobody ran it earlier. {_compare(found)}"),)
    )
    yield Facts((("Deviations", f"{_deviations(found)} Held by others: {_held_by_others(found)}"),))
    yield Facts((("Next", _next(found)),))


def _found(found: Verification) -> str:
    """Three states in one sentence; an empty one is left out."""
    counts = Counter(item.state for item in found.items)
    n_faults = sum(len(item.faults) for item in found.items)
    parts = []
    if n_faults:
        parts.append(f"CHANGED: {words.counted(n_faults, 'fault')}")
    elif counts["ok"]:
        parts.append("all of that is as it was frozen")
    if counts["judged differently"]:
        parts.append("this version judges the same evidence differently")
    if n := counts["not checked"]:
        parts.append(f"{words.counted(n, 'item')} not checked")
    if found.inadmissible:
        parts.append("inadmissible")
    return "; ".join(parts) + ("." if set(counts) == {"ok"} and not found.inadmissible else ":")


def _lines(found: Verification) -> Iterator[tuple[str, str]]:
    """What has changed, what is judged differently, and what was not checked with what to type."""
    several = len(found.studies) > 1
    for item in sorted(found.items, key=lambda item: item.state == "not checked"):
        name = f"{item.study}, {item.what}" if several else item.what
        yield from (("", f"CHANGED {name}: {fault}") for fault in item.faults)
        differently = f"judged differently by this version, {name}"
        yield from (("", f"{differently}: {fact}") for fact in item.judged_differently)
        if item.inadmissible:
            yield "", f"{item.study}: inadmissible, so no verdict comes from these records."
        if item.state == "not checked":
            fix = f". To check: {item.fix}" if item.fix else ""
            yield "", f"not checked, {name}: {item.unchecked}{fix}"


def _hashes(found: Verification) -> str:
    head = f"ledger head {found.head or 'unknown'}"
    return f"contents sha256 {found.bundle.contents_sha256}, {head}" if found.bundle is not None else head


def _compare(found: Verification) -> str:
    return f"Compare with a copy that somebody else holds: {_hashes(found)}." if found.head else ""


def _deviations(found: Verification) -> str:
    told = []
    for study in found.studies:
        for check in () if study.decision is None else study.decision.deviations:
            told.append(f"{f'{study.study}, ' if len(found.studies) > 1 else ''}{check.name} ({check.found})")
    if told:
        return f"{'; '.join(told)}."
    judged = [study for study in found.studies if study.decision is not None]
    return "none." if judged else "none known, as nothing was judged."


def _held_by_others(found: Verification) -> str:
    """Who else could have seen the registration when it was made, as far as that was checked."""
    holding = [seal for seal in found.seals if seal.state == "holds"]
    if not holding:
        waiting = len(found.seals)
        return (
            f"{words.counted(waiting, 'seal')}, none of which was found to hold."
            if waiting
            else "no signature, timestamp or commit."
        )
    return (
        "; ".join(f"{_name(seal)}, {seal.says}{'; made after runs had begun' * seal.after_runs}" for seal in holding)
        + "."
    )


def _name(seal: SealCheck) -> str:
    return "seal" if seal.kind is None else KINDS[seal.kind].name


def _next(found: Verification) -> str:
    """What to type: the remedy of what changed, else of what was not checked, else what comes after a check."""
    target = found.target or "STUDY"
    decided = bool(found.studies) and all(study.decision is not None for study in found.studies)
    if not found.intact and (found.bundle is not None or not found.studies):
        return "ask for the bundle again, and compare its contents sha256 with the one that its author quotes"
    if not found.intact:
        fix = next(item.fix for item in found.items if item.faults) or "restore it from version control or a backup"
        return f"{fix}; then ablate verify {found.target}".rstrip()
    if found.judged_differently:
        return f"ablate decide {target}   (judges by this version, and logs it)"
    if found.bundle is not None:
        return f"ablate report {target}   (writes its report again)" if decided else "nothing until it is decided"
    if missing := next((item for item in found.unchecked if item.fix), None):
        return missing.fix
    return f"ablate bundle {target}   (one file for others to check)" if decided else f"ablate status {target}"


def _details(found: Verification) -> Iterator[Block]:
    """Every item, and every seal with what such seals are worth."""
    states = {"ok": "ok", "changed": "CHANGED", "judged differently": "DIFFERS", "not checked": "not checked"}
    rows = tuple((states[item.state], f"{item.study}: {item.what}", _note(item)) for item in found.items)
    marked = frozenset(at for at, item in enumerate(found.items) if item.state in ("changed", "judged differently"))
    yield Table("", columns("State", "Item", "Found"), rows, marked=marked)
    seals = []
    for seal in found.seals:
        earlier = " of an amended registration" * seal.superseded
        file = "" if seal.file is None else f", {seal.file}"
        late = "; runs had begun when it was made" * seal.after_runs
        seals.append((_SEALS[seal.state], f"{seal.study}, {_name(seal)}{earlier}{file}; {seal.says}{late}"))
    yield Facts(tuple(seals))
    kinds = [KINDS[kind] for kind in KINDS if any(seal.kind == kind for seal in found.seals)]
    worth = tuple((kind.name, kind.proves, kind.leaves_open) for kind in kinds)
    if worth:
        yield Table("", columns("Seal", "Proves", "Does not prove"), worth, note=LEFT_OPEN_BY_ALL)
    if found.bundle is not None:
        yield Facts(tuple(("Not in it", f"{one.what}: {one.why}.") for one in found.bundle.left_out))
        yield Facts(
            (("Made with", found.bundle.made_with.words), ("File sha256", found.bundle.sha256 or "of no one file"))
        )


def _note(item: Item) -> str:
    if item.faults:
        return words.counted(len(item.faults), "fault")
    return item.unchecked or item.note
