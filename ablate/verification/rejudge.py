"""Judging again, from the records of a bundle or a repository: verdict and reports against what is written.

Only what was decided is judged: an unfinished study, or one that nobody has decided, shows no contrast here either.
A number that differs has three answers: the evidence has changed, this version judges it differently (where the ledger
says that other code decided), or, by the same code, the file is not what was decided.

    records + ledger up to the decision ─▶ the judge here (`then`) ─▶ compared with the entry and with verdict.json
    records + the whole ledger ─▶ the judge here (`decision`) ─▶ what later entries have made of it (`_overruled`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ablate.judge.decide import decide
from ablate.judge.interim import view
from ablate.judge.verdict import Decision, verdict_bytes, with_deviations
from ablate.records.evidence import Evidence
from ablate.records.gather import gather
from ablate.verification.comparison import Comparison, compare_pages, compare_verdicts
from ablate.verification.manifest import Tool, is_this, this_tool, version_note
from prereg.errors import EvidenceError, StudyError
from prereg.registry.canon import sha256_bytes
from prereg.registry.ledger_entry import DecidedEntry, Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration
from prereg.verification import Item, item, not_checked


def require_same_decision(root: Root, entry: DecidedEntry, now: Decision) -> None:
    """Raise `EvidenceError` where verdict.json is not the one of a ledger entry, or states other facts than `now`.

    `now` is the decision judged here, and what is shown afterwards is `now`.
    """
    path = root.report(entry.study) / "verdict.json"
    data = path.read_bytes() if path.is_file() else b""
    registration = load_registration(root, entry.study)
    assert registration is not None, entry.study
    facts: tuple[str, ...] = ("verdict.json is not the file of the decision in the ledger",)
    here = "the evidence on disk does not give the decision in the ledger"
    if sha256_bytes(data) == entry.verdict_sha256:
        then = _as_of(registration, gather(root, registration), entry)
        facts = compare_verdicts(data, verdict_bytes(then)).facts or _overruled(then, now)
        # Same evidence and other code: what differs is the judge.
        if by_other_code(entry) and then.evidence == entry.evidence:
            here = "this version judges the same evidence differently"
    if facts:
        study = root.study(entry.study)
        raise EvidenceError(
            f"{here}: {facts[0]}",
            required=f"the evidence of the decision taken {entry.at}",
            fix=f"ablate verify {study}, then ablate decide {study}",
        )


def by_other_code(entry: DecidedEntry) -> bool:
    """Whether the ledger says that other code than this gave a decision."""
    return entry.code != this_tool().code


_AFTERWARDS = ("decided", "reported", "attested", "reworded")
"""Entries that leave a decision before them as it is."""


def _as_of(registration: Registration, evidence: Evidence, entry: DecidedEntry) -> Decision:
    """What the judge here gives with the ledger as it was before a decision."""
    before = tuple(logged for logged in evidence.ledger if logged.index < entry.index)
    return decide(registration, replace(evidence, ledger=before))


def _overruled(then: Decision, now: Decision) -> tuple[str, ...]:
    """What entries after a decision have made of it, where that is more than a deviation."""
    # A deviation that came afterwards (a late amendment, say) qualifies the verdict and does not take it back.
    if now.status != then.status and (then.status, now.status) != ("decided", "decided_with_deviations"):
        return (f"status is {then.status}, and {now.status} by entries of the ledger since then",)
    if (then.verdict, then.line, then.findings) != (now.verdict, now.line, now.findings):
        return ("its verdict or a finding is another by entries of the ledger since then",)
    return ()


ReportsOf = Callable[[Root, Registration, DecidedEntry, Decision, Evidence], Mapping[str, bytes]]
"""Writes the reports of a decision: file name -> bytes. The root holds what a report tells next to the records."""

JUDGED, WRITTEN = "verdict judged again", "reports written again"


def judged_again(
    root: Root,
    study: str,
    entries: tuple[Entry, ...],
    maker: Tool | None = None,
    reports_of: ReportsOf | None = None,
) -> tuple[list[Item], Decision | None]:
    """What the judge here makes of the records under a root, compared with the last decision of `entries`; and that
    decision, where it is the same or only judged differently.

    `maker` is what made a bundle; of a repository nobody says which version decided. `reports_of` writes reports.
    """
    # Only the last decision counts; the caller has made sure that there is one.
    last = [entry for entry in entries if entry.study == study and isinstance(entry, DecidedEntry)][-1]
    try:
        return _judged_again(root, study, last, maker, reports_of)
    except StudyError as error:
        return [item(study, JUDGED, f"cannot be judged: {error.found}")], None
    except Exception as error:
        # Whatever a stranger's records make the judge stumble over is a fault of theirs until shown otherwise.
        return [item(study, JUDGED, f"cannot be judged: {type(error).__name__}: {str(error)[:200]}")], None


def _judged_again(
    root: Root, study: str, entry: DecidedEntry, maker: Tool | None, reports_of: ReportsOf | None
) -> tuple[list[Item], Decision | None]:
    registration = load_registration(root, study)
    assert registration is not None, study
    again = f"ablate decide {root.relative(root.study(study))}"
    # 1. What can be judged at all: the lock of the decision, a sound ledger, every run it rests on.
    if entry.registration != registration.sha256:
        why = f"decided under {entry.registration[:8]} and amended since; the lock it was judged by is not here"
        return [not_checked(study, JUDGED, why, again)], None
    evidence = gather(root, registration)
    if evidence.ledger_faults:
        return [item(study, JUDGED, "the ledger is damaged, and nothing is judged")], None
    evidence_read = view(registration, evidence).evidence
    if evidence_read.missing:
        lacking, total = len(evidence_read.missing), len(evidence_read.planned)
        return [item(study, JUDGED, f"{lacking} of the {total} runs it rests on are not here as sealed")], None
    path = root.report(study) / "verdict.json"
    # 2. As it was decided, and as it is now.
    then = _as_of(registration, evidence, entry)
    # Most often nothing has happened since, and the judge, which takes seconds, is asked once.
    afterwards = all(logged.index < entry.index or logged.event in _AFTERWARDS for logged in evidence.ledger)
    decision = then if afterwards else decide(registration, evidence)
    # 3. Compared: the verdict, then the pages that show it.
    judged = _verdict_item(study, then, path.read_bytes() if path.is_file() else None, entry, decision)
    items = [judged.model_copy(update={"inadmissible": decision.status == "inadmissible"})]
    if judged.faults:
        return items, None
    # A verdict that this version judges differently gives other pages by right: to compare them would find nothing
    # new.
    if reports_of is not None and not judged.judged_differently:
        pages = reports_of(root, registration, entry, decision, evidence_read)
        items += _report_items(root.report(study), study, pages, maker)
    return items, decision


def judged_here(root: Root, registration: Registration, evidence: Evidence, entry: DecidedEntry) -> Decision:
    """The decision of a ledger entry, judged again.

    Raises `EvidenceError` where verdict.json is not that of the entry, or states other facts.
    """
    decision = decide(registration, evidence)
    require_same_decision(root, entry, decision)
    return decision


def _verdict_item(study: str, then: Decision, written: bytes | None, entry: DecidedEntry, now: Decision) -> Item:
    """Evidence that changed, a verdict that this version judges differently, or the same."""
    verdict = _said(now)
    # From the gravest on: later entries that overturn it, other evidence, other facts.
    if overruled := _overruled(then, now):
        return item(study, JUDGED, *overruled)
    if then.evidence != entry.evidence:
        return item(study, JUDGED, "the evidence has changed: its sha256 is not that of the decision in the ledger")
    # The ledger has the status, the verdict and a hash; only verdict.json has the numbers.
    if written is None:
        outcomes = {finding.hypothesis: finding.outcome for finding in then.findings}
        facts = tuple(
            f"{name} is {logged}, and {judged} when judged here"
            for name, logged, judged in (
                ("status", entry.status, then.status),
                ("verdict", entry.verdict, then.verdict),
                *(
                    (f"the outcome of '{name}'", outcome, outcomes.get(name))
                    for name, outcome in entry.outcomes.items()
                ),
            )
            if logged != judged
        )
        compared = Comparison(facts)
        how = "as the ledger recorded; verdict.json is not here, and its numbers were not compared"
        if sha256_bytes(verdict_bytes(then)) == entry.verdict_sha256:
            compared, how = Comparison(), "the bytes that the ledger recorded"
    else:
        compared = compare_verdicts(written, verdict_bytes(then))
        how = "the same bytes"
        if compared.digits:
            how = "the same but for digits beyond the ninth, as on another processor"
    # No fault: nobody changed a file. The item says that versions differ, and `verify` has an exit code for it.
    if compared.facts and by_other_code(entry):
        note = f"code {entry.code[:8]} decided, and this is {this_tool().words}"
        return item(study, JUDGED, note=note).model_copy(update={"judged_differently": compared.facts})
    if compared.facts:
        return item(study, JUDGED, *(f"verdict.json: {what}" for what in compared.facts[:8]))
    since = "" if then.status == now.status else "; deviations came about afterwards"
    return item(study, JUDGED, note=f"{verdict}; {how}{since}")


def _report_items(folder: Path, study: str, pages: Mapping[str, bytes], maker: Tool | None) -> Iterator[Item]:
    """The pages of a bundle against those that are written here. Another version may write them otherwise."""
    faults, same, elsewhere = [], [], []
    for name, data in pages.items():
        if not (folder / name).is_file():
            continue
        comparison = compare_pages(name, (folder / name).read_bytes(), data)
        text = f"{name} is not what the decision gives here: {'; '.join(comparison.parts)}"
        if not comparison.parts:
            same.append(f"{name} the same" + (" but for last digits" if comparison.digits else " bytes"))
        # The same version writes the same text; a drawing depends on more than the libraries that are compared.
        elif is_this(maker) and any("text" in part for part in comparison.parts):
            faults.append(text)
        else:
            elsewhere.append(text)  # other libraries draw otherwise; another version writes other sentences
    if faults:
        yield item(study, WRITTEN, *faults, "the same version wrote it, so somebody changed it afterwards")
    elif same:
        yield item(study, WRITTEN, note="; ".join(same))
    if elsewhere and not faults:
        yield not_checked(study, f"{WRITTEN}, by another version", "; ".join([*elsewhere, version_note(maker)]))


def _said(decision: Decision) -> str:
    return ", ".join(filter(None, [decision.verdict or decision.status, with_deviations(decision)]))
