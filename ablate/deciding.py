"""`ablate decide` and `report`: opens, gathers, has `judge/decide.py` judge, logs the decision, writes the reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ablate.exporting import PAGES, known_forms, pages, report_context, write_forms
from ablate.notebook.results import Decided
from ablate.workspace import (
    HERE,
    StudyContext,
    StudySource,
    Workspace,
    require_registered,
    with_evidence,
)
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import write_whole

if TYPE_CHECKING:
    from ablate.judge.verdict import Decision
    from ablate.records.evidence import Evidence
    from ablate.reporting.context import ReportContext
    from prereg.registry.ledger_entry import DecidedEntry
    from prereg.registry.registration import Registration


def decide(
    study: StudySource,
    *,
    workspace: Workspace = HERE,
    announce: Callable[[Decided], None] = lambda _: None,
) -> Decided:
    """Apply the registered rule, log the decision, announce it, write the reports.

    `announce` gets the decision once it is in the ledger and before any report is drawn, so that a report that cannot
    be drawn takes no decision with it; it gets what is not logged (unfinished, a look that settled nothing) too.

    Returns the decision with its findings; `status` is unfinished where planned runs are missing, and nothing is logged
    then. Raises `StudyError` where the study is not registered, or is no longer what was registered.

    >>> ablate.decide("studies/own.yaml").verdict
    'take fast'
    """
    from ablate.campaigning import refuse_proposal

    with with_evidence(workspace.open(study)) as context:
        registration = require_registered(context)
        refuse_proposal(context, "one decision of each proposal, at the level that the campaign has left")
        # Judged in memory; what follows decides what of it goes on record, in the order look, decision, reports.
        decision, evidence = judge_evidence(context, registration)
        decided = Decided(decision, registration, evidence.ledger_head, evidence_path=context.evidence_path)
        look = decision.look
        unfit = look is not None and not look.last and decision.status == "inadmissible"
        if evidence.missing or evidence.ledger_faults or unfit:
            # Nothing may be written: either the study is unfinished, or the ledger cannot take an entry.
            announce(decided)
            return decided
        if look is not None:
            _log_look(context, registration, decision, evidence)
            if decision.status == "continue":
                decided = replace(decided, head=context.ledger.head())
                announce(decided)
                return decided
        entry = _log_decision(context, registration, decision, evidence)
        text = report_context(registration, entry, decision, evidence)
        announce(_decided(context, text, head=entry.sha256))
        return _write_pages(context, text)


def is_barred(study: StudySource, *, workspace: Workspace = HERE) -> bool:
    """Whether the evidence of an early look forbids a verdict, so that neither a decision nor a later look follows.

    Nothing is written or logged. Raises `StudyError` as `decide` does.

        ablate.deciding.is_barred("studies/harmless-1a2b3c4-5d6e7f8.yaml")
    """
    with with_evidence(workspace.open(study)) as context:
        decision, evidence = judge_evidence(context, require_registered(context))
        return decision.status == "inadmissible" and not (evidence.missing or evidence.ledger_faults)


def judge_evidence(context: StudyContext, registration: Registration) -> tuple[Decision, Evidence]:
    """The decision of what is on disk, and the evidence that it may see."""
    from ablate.judge.decide import decide
    from ablate.judge.interim import view
    from ablate.records.gather import gather

    # The judge sees records; that a registered file was changed since is added here, as evidence of its own.
    evidence = replace(gather(context.root, registration), altered=_altered(context, registration))
    decision = decide(registration, evidence)
    return decision, view(registration, evidence).evidence


def _altered(context: StudyContext, registration: Registration) -> tuple[str, ...]:
    """The registered files of a user's own trainer that are not what they were: `verify` says the same of them."""
    from prereg.commits.held import commit_faults
    from prereg.study.command import differing_files, script_faults

    changed, _ = differing_files(context.root.path, registration.data_files)  # data that are elsewhere are no fault
    data = (f"{path}: its bytes differ from those of the registered data" for path in changed)
    commits = commit_faults(context.root, registration.commits)
    return (*script_faults(registration.scripts or (), context.root.path), *data, *commits)


def _log_look(context: StudyContext, registration: Registration, decision: Decision, evidence: Evidence) -> None:
    """Put a look in the ledger, once. Only that it was taken is said, not what it showed."""
    from prereg.registry.ledger_entry import LookedEntry
    from prereg.registry.looks import taken_looks

    look = decision.look
    assert look is not None, context.study.study
    entry = LookedEntry(
        **context.about(registration.sha256),
        look=look.number,
        of=look.of,
        seeds=look.n_seeds,
        evidence=evidence.sha256,
        final=decision.status != "continue",
    )
    # The same look at the same evidence is one look.
    if not any(earlier.stated == entry.stated for earlier in taken_looks(evidence.ledger, registration.lineage)):
        context.ledger.append(entry)


def _log_decision(
    context: StudyContext, registration: Registration, decision: Decision, evidence: Evidence
) -> DecidedEntry:
    """Write verdict.json, and put the decision in the ledger unless it is its last one; the entry that holds it."""
    from ablate.judge.verdict import verdict_bytes
    from ablate.verification.manifest import this_tool
    from prereg.registry.ledger_entry import DecidedEntry

    verdict = verdict_bytes(decision)
    last = next((entry for entry in reversed(evidence.ledger) if isinstance(entry, DecidedEntry)), None)
    with context.ledger.hold():
        # A folder that cannot be written is found before the decision is logged.
        folder = _report_folder(context)
        decided = DecidedEntry(
            **context.about(registration.sha256),
            status=decision.status,
            verdict=decision.verdict,
            verdict_sha256=sha256_bytes(verdict),
            code=this_tool().code,
            evidence=decision.evidence,
            **claims_in_entry(context, decision),
        )
        # The same decision by later code is no new decision, unless its words are other bytes.
        if last is None or last.registration != registration.sha256 or _decision_in(last) != _decision_in(decided):
            last = context.ledger.append(decided)
        write_whole(folder / "verdict.json", verdict)
    return last


def claims_in_entry(context: StudyContext, decision: Decision) -> dict[str, Any]:
    """Return the part of a decision's entry about claims: how each ended, and earlier studies that claimed the same."""
    from prereg.registry.earlier_claims import earlier_claims, promised_claims

    entries = context.ledger.entries()
    before = earlier_claims(promised_claims(context.root, entries), entries, decision.study)
    fields: dict[str, Any] = {}
    # Left out where there is nothing to say, as in entries of earlier versions.
    if decision.findings and decision.status != "inadmissible":
        fields["outcomes"] = {finding.hypothesis: finding.outcome for finding in decision.findings}
    if before.words:
        fields["claimed_before"] = before
    return fields


def _decision_in(entry: DecidedEntry) -> dict[str, JsonValue]:
    """Return an entry's facts about its decision, without the code that gave it and what was known of other studies."""
    return {key: value for key, value in entry.stated.items() if key not in ("code", "outcomes", "claimed_before")}


def report(study: StudySource, *, workspace: Workspace = HERE, forms: Sequence[str] = tuple(PAGES)) -> Decided:
    """Write the reports of a decision again, from the evidence and the ledger; decides nothing new.

    `forms`: html, markdown, latex, figures, csv, or all. Another version of this tool may write other pages; the ledger
    then takes their hashes. Where no sealed record is on this disk, those of the committed evidence are read. Raises
    `EvidenceError` where nothing was decided, where the evidence does not give the decision, for an unknown form, and
    where records are gone.

    >>> [path.name for path in ablate.report("studies/own.yaml", forms=["csv"]).exported][:3]
    ['findings.csv', 'pairs.csv', 'curves.csv']
    """
    from ablate.judge.verdict import verdict_bytes
    from ablate.reporting.document import compose
    from ablate.verification.rejudge import require_same_decision

    forms = known_forms(forms)
    with with_evidence(workspace.open(study)) as context:
        registration = require_registered(context)
        entry = _last_decision(context, registration)
        # Judged again, and not read from verdict.json: what a report shows is what the records give.
        decision, evidence = judge_evidence(context, registration)
        if sha256_bytes(verdict_bytes(decision)) != entry.verdict_sha256:
            require_same_decision(context.root, entry, decision)
        text = report_context(registration, entry, decision, evidence)
        written = Decided(decision, registration, evidence.ledger_head, evidence_path=context.evidence_path)
        if chosen := [page for form, page in PAGES.items() if form in forms]:
            written = _write_pages(context, text, chosen)
        if exports := [form for form in forms if form not in PAGES]:
            files = write_forms(_report_folder(context), text, compose(text), exports)
            written = replace(written, exported=files, context=text)
        return written


def results(study: StudySource, *, workspace: Workspace = HERE) -> Decided:
    """The last decision, with its evidence: `decide` without writing or logging anything. Where the runs are here it is
    judged again, and what is shown is what was judged.

    `study` may be a bundle too, which is checked as a stranger would, and so judged again. Raises `EvidenceError` where
    nothing was decided, where verdict.json or the evidence is not what was decided, and where an early look that was
    recorded afterwards overrules the decision.

    >>> found = ablate.results("studies/own.yaml").findings
    >>> found[["hypothesis", "outcome", "n"]].to_dict("records")
    [{'hypothesis': 'gain', 'outcome': 'supported', 'n': 3}]
    """
    from ablate.judge.interim import view
    from ablate.records.gather import gather
    from ablate.verification.archive import is_bundle
    from ablate.verification.rejudge import judged_here
    from prereg.registry.looks import recorded_afterwards

    if isinstance(study, (str, Path)) and is_bundle(Path(study)):
        from ablate.proving import results_of_bundle

        return results_of_bundle(Path(study))
    with with_evidence(workspace.open(study)) as context:
        registration = require_registered(context)
        entry = _last_decision(context, registration)
        gathered = gather(context.root, registration)
        evidence = view(registration, gathered).evidence
        path = context.root.report(context.study.study) / "verdict.json"
        data = path.read_bytes() if path.is_file() else b""
        wrong = ""
        if any(look.index > entry.index for look in recorded_afterwards(context.entries)):
            wrong = "an early look was recorded after the decision, and by the registered rules there is no verdict"
        elif sha256_bytes(data) != entry.verdict_sha256:
            wrong = f"{path} is not the decision taken {entry.at}"
        elif evidence.sha256 != entry.evidence:
            wrong = f"the evidence is not what was decided {entry.at}"
        if wrong:
            fix = f"ablate decide {context.path}"
            raise EvidenceError(wrong, required="the last decision as it was taken", fix=fix)
        decision = judged_here(context.root, registration, gathered, entry)  # what is shown
        text = report_context(registration, entry, decision, evidence)
        return _decided(context, text, head=context.ledger.head())


def _last_decision(context: StudyContext, registration: Registration) -> DecidedEntry:
    """The last decision of a registration, whose sealed runs are here. Raises `EvidenceError` for each that is not."""
    from prereg.registry.ledger_entry import DecidedEntry
    from prereg.registry.plan import places_of

    # First that the runs of the last decision are all here, whichever registration it was of: without them nothing
    # can be shown. Then the decisions of the registration in force.
    decisions = [entry for entry in context.entries if isinstance(entry, DecidedEntry)]
    if decisions:
        present = [path.exists() for path in places_of(context.root, context.entries, decisions[-1].registration)]
        if not all(present):
            raise EvidenceError(
                f"the sealed records of {present.count(False)} of {len(present)} runs are not here",
                required="the sealed records that were decided on, or the committed evidence",
                fix="restore them from version control or a backup",
            )
    decisions = [entry for entry in decisions if entry.registration == registration.sha256]
    if not decisions:
        raise EvidenceError(
            f"'{context.study.study}' has not been decided",
            required="a decision to report",
            fix=f"ablate decide {context.path}",
        )
    return decisions[-1]


def _write_pages(context: StudyContext, text: ReportContext, only: Collection[str] = tuple(PAGES.values())) -> Decided:
    """Write report.md and report.html for the decision of a ledger entry, and put their hashes in the ledger.

    Of one of them `only`, the other is written too where it exists: one entry vouches for both.

    A report holds the hash of the decision's entry, so its own hash can only stand in a later one.
    """
    from prereg.registry.ledger_entry import ReportedEntry

    folder = _report_folder(context)
    written = {page: data for page, data in pages(text).items() if page in only or (folder / page).exists()}
    with context.ledger.hold():  # no page is replaced that the ledger cannot vouch for
        for page, data in written.items():
            write_whole(folder / page, data)
        entry = ReportedEntry(
            **context.about(text.registration.sha256),
            decision=text.ledger_head,
            report_md=sha256_bytes(written["report.md"]) if "report.md" in written else None,
            report_html=sha256_bytes(written["report.html"]) if "report.html" in written else None,
        )
        earlier = [entry for entry in context.entries if entry.event == "reported"]
        # The last entry may vouch for another page too.
        if not earlier or not entry.stated.items() <= earlier[-1].stated.items():
            context.ledger.append(entry)
    markdown, html = (folder / page if page in written else None for page in ("report.md", "report.html"))
    return replace(_decided(context, text, head=context.ledger.head()), markdown_path=markdown, html_path=html)


def _decided(context: StudyContext, text: ReportContext, *, head: str) -> Decided:
    """A decision that the ledger holds, with those of the same registration before it."""
    from prereg.registry.looks import decisions_before

    return Decided(
        text.decision,
        text.registration,
        head,
        context.root.report(context.study.study) / "verdict.json",
        earlier=decisions_before(text.evidence.ledger, text.registration.lineage, text.ledger_head),
        evidence_path=context.evidence_path,
        context=text,
    )


def _report_folder(context: StudyContext) -> Path:
    folder = context.root.report(context.study.study)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
