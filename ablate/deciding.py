"""From sealed runs to the verdict and its reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.exporting import PAGES, known_forms, pages, report_context, write_forms
from ablate.notebook.results import Decided
from ablate.workspace import (
    HERE,
    StudyContext,
    StudySource,
    Workspace,
    published_beside,
    require_registered,
    with_evidence,
)
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import write_whole

if TYPE_CHECKING:
    from pydantic import JsonValue

    from ablate.judge.verdict import Decision
    from ablate.records.evidence import Evidence
    from prereg.documents.published import LoadedPublished
    from prereg.registry.ledger_entry import Entry
    from prereg.registry.looks import Look
    from prereg.registry.registration import Registration


def decide(
    study: StudySource,
    *,
    workspace: Workspace = HERE,
    announce: Callable[[Decided], None] | None = None,
) -> Decided:
    """Apply the registered rule, log the decision, announce it, write the reports.

    `announce` gets the decision once it is in the ledger and before any report is drawn, so that a report that cannot
    be drawn takes no decision with it; it gets what is not logged (unfinished, a look that settled nothing) too.
    """
    with with_evidence(workspace.open(study)) as (context, used):
        registration = require_registered(context)

        def show(decided: Decided) -> None:
            if announce is not None:
                announce(replace(decided, evidence_path=used))

        return replace(_decide(context, registration, show), evidence_path=used)


def _decide(context: StudyContext, registration: Registration, announce: Callable[[Decided], None] | None) -> Decided:
    from ablate.judge.verdict import verdict_bytes
    from ablate.verification.manifest import this_tool
    from prereg.registry.looks import decisions_before

    def announced(decided: Decided) -> Decided:
        if announce is not None:
            announce(decided)
        return decided

    published = published_beside(context)  # a mistake in it is found before anything is logged
    decision, evidence = _judge(context, registration)
    look = decision.look
    unfit = look is not None and not look.last and decision.status == "inadmissible"
    if evidence.missing or evidence.ledger_faults or unfit:
        # Nothing may be written: either the study is unfinished, or the ledger cannot take an entry.
        return announced(Decided(decision, registration, evidence.ledger_head))
    if look is not None:
        head = _log_look(context, registration, evidence, look, final=decision.status != "continue", at=context.now())
        if decision.status == "continue":
            return announced(Decided(decision, registration, head))
    verdict = verdict_bytes(decision)
    body: dict[str, JsonValue] = {
        "status": decision.status,
        "verdict": decision.verdict,
        "verdict_sha256": sha256_bytes(verdict),
        "evidence": decision.evidence,
    }
    earlier = [entry for entry in evidence.ledger if entry.event == "decided"]
    with context.ledger.hold():
        # A folder that cannot be written is found before the decision is logged.
        folder = _report_folder(context)
        # The same decision by later code is no new decision, unless its words are other bytes.
        if earlier and earlier[-1].registration == registration.sha256 and body.items() <= earlier[-1].stated.items():
            entry = earlier[-1]
        else:
            body |= {"code": this_tool().code}
            entry = context.ledger.append(
                "decided", study=context.study.study, registration=registration.sha256, body=body, at=context.now()
            )
        write_whole(folder / "verdict.json", verdict)
    before = decisions_before(evidence.ledger, registration.lineage, entry.sha256)
    announced(Decided(decision, registration, entry.sha256, folder / "verdict.json", earlier=before))
    return _tell(context, registration, entry, decision, evidence, published=published, at=context.now())


def _log_look(
    context: StudyContext, registration: Registration, evidence: Evidence, look: Look, *, final: bool, at: str
) -> str:
    """Put a look in the ledger, once; returns the ledger's head. Only that it was taken is said, not what it showed."""

    ledger = context.ledger
    body: dict[str, JsonValue] = {
        "look": look.number,
        "of": look.of,
        "seeds": look.n_seeds,
        "evidence": evidence.sha256,
        "final": final,
    }
    if not any(
        entry.event == "looked" and entry.registration in registration.lineage and entry.stated == body
        for entry in evidence.ledger
    ):
        ledger.append("looked", study=context.study.study, registration=registration.sha256, body=body, at=at)
    return ledger.head()


def report(study: StudySource, *, workspace: Workspace = HERE, forms: Sequence[str] = tuple(PAGES)) -> Decided:
    """Write the reports of a decision again, from the evidence and the ledger; decides nothing new.

    `forms`: html, markdown, latex, figures, csv. Another version of this tool may write other pages; the ledger then
    takes their hashes. Where no sealed record is on this disk, those of the committed evidence are read. Raises
    `EvidenceError` where nothing was decided, where the evidence does not give the decision, for an unknown form, and
    where records are gone.
    """
    known = known_forms(forms)
    with with_evidence(workspace.open(study)) as (context, used):
        return replace(_report(context, known), evidence_path=used)


def results(study: StudySource, *, workspace: Workspace = HERE) -> Decided:
    """The last decision, with its evidence: `decide` without writing or logging anything. Where the runs are here it is
    judged again, and what is shown is what was judged.

    `study` may be a bundle too, which is checked as a stranger would, and so judged again. Raises `EvidenceError` where
    nothing was decided, where verdict.json or the evidence is not what was decided, and where an early look that was
    recorded afterwards overrules the decision.
    """
    from ablate.verification.archive import is_bundle

    if isinstance(study, (str, Path)) and is_bundle(Path(study)):
        from ablate.proving import results_of_bundle

        return results_of_bundle(Path(study))
    with with_evidence(workspace.open(study)) as (context, used):
        return replace(_as_decided(context), evidence_path=used)


def _as_decided(context: StudyContext) -> Decided:
    from ablate.judge.interim import view
    from ablate.records.gather import gather
    from ablate.verification.rejudge import judged_here
    from prereg.registry.looks import decisions_before, recorded_afterwards

    registration, ledger = require_registered(context), context.ledger
    mine = [entry for entry in ledger.entries() if entry.study == context.study.study]
    entry = _last_decision(context, registration, mine)
    path = context.root.report(context.study.study) / "verdict.json"
    data = path.read_bytes() if path.is_file() else b""
    gathered = gather(context.root, registration)
    evidence = view(registration, gathered).evidence
    _require_records(context, entry, mine)
    wrong = ""
    if any(look.index > entry.index for look in recorded_afterwards(mine)):
        wrong = "an early look was recorded after the decision, and by the registered rules there is no verdict"
    elif sha256_bytes(data) != entry.body["verdict_sha256"]:
        wrong = f"{path} is not the decision taken {entry.at}"
    elif evidence.sha256 != entry.body["evidence"]:
        wrong = f"the evidence is not what was decided {entry.at}"
    if wrong:
        raise EvidenceError(wrong, required="the last decision as it was taken", fix=f"ablate decide {context.path}")
    decision = judged_here(context.root, registration, gathered, entry)  # what is shown
    before = decisions_before(mine, registration.lineage, entry.sha256)
    shown = report_context(registration, entry, decision, evidence, published_beside(context))
    return Decided(decision, registration, ledger.head(), path, earlier=before, context=shown)


def _last_decision(context: StudyContext, registration: Registration, mine: Sequence[Entry]) -> Entry:
    """The last decision of a registration, among the entries of its study."""
    decided = [entry for entry in mine if entry.event == "decided" and entry.registration == registration.sha256]
    if not decided:
        raise EvidenceError(
            f"'{context.study.study}' has not been decided",
            required="a decision to report",
            fix=f"ablate decide {context.path}",
        )
    return decided[-1]


def _report(context: StudyContext, forms: Sequence[str]) -> Decided:
    from ablate.judge.verdict import verdict_bytes
    from ablate.reporting.document import compose
    from ablate.verification.rejudge import require_same_decision

    exports = [form for form in forms if form not in PAGES]
    registration = require_registered(context)
    published = published_beside(context)
    mine = context.entries
    decided = [entry for entry in mine if entry.event == "decided"]
    if decided:
        _require_records(context, decided[-1], mine)
    entry = _last_decision(context, registration, mine)
    decision, evidence = _judge(context, registration)
    if sha256_bytes(verdict_bytes(decision)) != entry.body["verdict_sha256"]:
        require_same_decision(context.root, entry, decision)
    done = Decided(decision, registration, evidence.ledger_head)
    chosen = [page for form, page in PAGES.items() if form in forms]
    if chosen:
        done = _tell(
            context, registration, entry, decision, evidence, published=published, at=context.now(), only=chosen
        )
    if not exports:
        return done
    text = report_context(registration, entry, decision, evidence, published)
    files = write_forms(_report_folder(context), text, compose(text), exports)
    return replace(done, exported=files, context=text)


def _judge(context: StudyContext, registration: Registration) -> tuple[Decision, Evidence]:
    """The decision of what is on disk, and the evidence that it may see."""
    from ablate.judge.audit.user_checks import run_own_checks
    from ablate.judge.decide import decide
    from ablate.judge.interim import view
    from ablate.records.gather import gather

    evidence = replace(gather(context.root, registration), altered=_altered(context, registration))
    decision = decide(registration, evidence, partial(run_own_checks, registration, folder=context.path.parent))
    return decision, view(registration, evidence).evidence


def _altered(context: StudyContext, registration: Registration) -> tuple[str, ...]:
    """The registered files of a user's own trainer that are not what they were: `verify` says the same of them."""
    from prereg.study.command import differing_files, script_faults

    changed, _ = differing_files(context.root.path, registration.data_files)  # data that are elsewhere are no fault
    data = (f"{path}: its bytes differ from those of the registered data" for path in changed)
    return (*script_faults(registration.scripts or (), context.root.path), *data)


def _require_records(context: StudyContext, decision: Entry, mine: Sequence[Entry]) -> None:
    """Raise `EvidenceError` where a run that the ledger sealed under the registration of a decision is not here."""
    from prereg.registry.plan import places_of

    present = [path.exists() for path in places_of(context.root, mine, decision.registration)]
    if not all(present):
        raise EvidenceError(
            f"the sealed records of {present.count(False)} of {len(present)} runs are not here",
            required="the sealed records that were decided on, or the committed evidence",
            fix="restore them from version control or a backup",
        )


def _tell(
    context: StudyContext,
    registration: Registration,
    entry: Entry,
    decision: Decision,
    evidence: Evidence,
    *,
    published: LoadedPublished | None,
    at: str,
    only: Collection[str] = tuple(PAGES.values()),
) -> Decided:
    """Write report.md and report.html for the decision of a ledger entry, and put their hashes in the ledger.

    Of one of them `only`, the other is written too where it exists: one entry vouches for both.

    A report holds the hash of the decision's entry, so its own hash can only stand in a later one. With it goes that of
    the published figures that the report tells, so that `verify` can say when the two have parted.
    """
    from prereg.registry.looks import decisions_before

    folder = _report_folder(context)
    made = pages(registration, entry, decision, evidence, published)
    written = {page: data for page, data in made.items() if page in only or (folder / page).exists()}
    ledger, name = context.ledger, context.study.study
    body: dict[str, JsonValue] = {"decision": entry.sha256, **{p: sha256_bytes(data) for p, data in written.items()}}
    if published is not None:
        body["published"] = published.sha256
    with ledger.hold():  # no page is replaced that the ledger cannot vouch for
        for page, data in written.items():
            write_whole(folder / page, data)
        earlier = [one for one in ledger.entries() if one.event == "reported" and one.study == name]
        # The entry may hold more than its body was given: what a crash had left before it.
        if not earlier or not body.items() <= earlier[-1].body.items():
            ledger.append("reported", study=name, registration=registration.sha256, body=body, at=at)
    markdown, html = (folder / page if page in written else None for page in ("report.md", "report.html"))
    before = decisions_before(evidence.ledger, registration.lineage, entry.sha256)
    text = report_context(registration, entry, decision, evidence, published)
    paths = (folder / "verdict.json", markdown, html)
    return Decided(decision, registration, ledger.head(), *paths, earlier=before, context=text)


def _report_folder(context: StudyContext) -> Path:
    folder = context.root.report(context.study.study)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
