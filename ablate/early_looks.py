"""`ablate status --results`: an early look at an unfinished study, in the ledger before anything is shown.

A look that somebody took by hand, past these doors, can be recorded afterwards; it counts like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ablate.workspace import HERE, StudyContext, StudySource, Workspace, require_registered
from prereg.errors import EvidenceError

if TYPE_CHECKING:
    from ablate.judge.interim import EarlyLook
    from prereg.registry.ledger_entry import PeekedEntry


@dataclass(frozen=True)
class EarlyResults:
    """What was seen, and the entry that says so."""

    early_look: EarlyLook
    entry: PeekedEntry


def early_results(study: StudySource, *, reason: str, workspace: Workspace = HERE) -> EarlyResults:
    """Log a look at the runs that have ended, then describe them. Refused where a registered way to look is open.

    `reason` goes into the ledger; a study that was looked at before its last run ended gives no verdict. Returns what
    was seen, claim by claim and without a test, and the ledger's entry. Raises `EvidenceError` where every planned run
    has ended, none has, or records are not what was sealed.

        ablate.early_results("studies/own.yaml", reason="the loss curve looked flat").early_look
    """
    from ablate.campaigning import refuse_proposal
    from ablate.judge.interim import early_look, view
    from ablate.records.gather import gather, open_tables
    from prereg.registry.ledger_entry import PeekedEntry

    context = workspace.open(study)
    registration = require_registered(context)
    # A look would make the proposal inadmissible, and the next one would be chosen with it in view.
    refuse_proposal(context, "nothing of a proposal is shown but which runs failed, until it has ended")
    _require_reason(context, reason)
    evidence = gather(context.root, registration)
    due = view(registration, evidence)
    if not due.evidence.missing:
        what = (
            "every planned run has ended" if due.look is None else f"{due.look.words} is due, and its runs have ended"
        )
        raise EvidenceError(
            f"there is nothing to look at early: {what}",
            required="a study whose runs have not all ended",
            fix=f"ablate decide {context.path}",
        )
    # Values that were not sealed would be shown, and the look still counted.
    if evidence.broken or evidence.ledger_faults:
        raise EvidenceError(
            f"what lies on disk is not what was sealed: {[*evidence.broken, *evidence.ledger_faults][0]}",
            required="sealed records as they were written",
            fix=f"ablate verify {context.path}",
        )
    ended = len(evidence.planned) - len(evidence.missing)
    if not ended:
        raise EvidenceError(
            f"none of the {len(evidence.planned)} planned runs of '{context.study.study}' has ended",
            required="at least one run that has ended",
            fix=f"ablate status {context.path}",
        )
    # First the entry, then the numbers: a look that a crash kept from being logged would be a free one.
    entry = context.ledger.append(
        PeekedEntry(
            **context.about(registration.sha256),
            reason=reason.strip(),
            ended=ended,
            planned=len(evidence.planned),
            evidence=evidence.sha256,
        )
    )
    return EarlyResults(early_look(registration, open_tables(context.root, evidence, look=entry)), entry)


def record_look(study: StudySource, *, reason: str, took_place: str, workspace: Workspace = HERE) -> PeekedEntry:
    """Put an early look into the ledger that took place before, and show nothing. Needs no records.

    Returns the entry. Raises `EvidenceError` where `took_place` is no time, or not one at which a look was early.
    """
    from prereg.registry.ledger_entry import CallStartedEntry, PeekedEntry, RunStartedEntry, SealEntry
    from prereg.registry.plan import Cell

    context = workspace.open(study)
    registration = require_registered(context)
    _require_reason(context, reason)
    entries, now = context.entries, context.now()
    when = _moment(context, took_place)
    planned = set(registration.study.cells)
    seals: dict[Cell, datetime] = {}  # the first of each run, not the newest: its values were there to see from then on
    for entry in entries:
        if isinstance(entry, SealEntry) and entry.registration in registration.lineage and entry.cell in planned:
            seals.setdefault(entry.cell, datetime.fromisoformat(entry.at))
    begun = [
        datetime.fromisoformat(entry.at)
        for entry in entries
        if isinstance(entry, CallStartedEntry | RunStartedEntry | SealEntry)
    ]
    finals = [datetime.fromisoformat(entry.at) for entry in entries if entry.event == "decided"]
    # With a fixed number of seeds nothing is early once all have ended; in a sequence every look but the planned ones.
    ends = [max(seals.values())] if context.study.stopping == "fixed" and len(seals) == len(planned) else finals[:1]
    # Too early, in the future, or after the end: whatever the ledger can contradict is not taken down.
    wrong = ""
    if not begun or when < min(begun):
        wrong = f"the first run was started at {min(begun).isoformat()}" if begun else "no run has been started"
    elif when > datetime.fromisoformat(now):
        wrong = f"it is {now} now"
    elif ends and when > ends[0]:
        wrong = f"the last run ended, or the decision was taken, at {ends[0].isoformat()}"
    if wrong:
        raise EvidenceError(
            f"a look at {took_place} was no early look at '{context.study.study}': {wrong}",
            required="a time after the first run was started and before the last planned run ended",
            fix=f'ablate status {context.path} --reason "..." --past TIME',
        )
    n_ended = sum(ended <= when for ended in seals.values())
    return context.ledger.append(
        PeekedEntry(
            **context.about(registration.sha256),
            reason=reason.strip(),
            ended=n_ended,
            planned=len(planned),
            took_place=when.isoformat(timespec="seconds"),
        )
    )


def _require_reason(context: StudyContext, reason: str) -> None:
    if not reason.strip():
        raise EvidenceError(
            "a look without a reason",
            required="why the numbers are needed before the last run has ended, in words",
            fix=f'ablate status {context.path} --results --reason "..."',
        )


def _moment(context: StudyContext, text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise EvidenceError(
            f"'{text}' is not a time with its offset from UTC",
            required="when the look took place, as in 2026-11-22T00:31:20+00:00",
            fix=f'ablate status {context.path} --reason "..." --past 2026-11-22T00:31:20+00:00',
        )
    return when.astimezone(UTC)  # a time without its offset could be hours from the one that is meant
