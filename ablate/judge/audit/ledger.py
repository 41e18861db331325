"""Checks of the ledger's order: registered first, nothing looked at early, nothing amended or chosen afterwards.

What these checks find rests on entries that later ones do not change: a study judged again is found to be what it was.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from ablate.judge.audit.checks import AuditContext, CheckResult, Found, check_body, named, named_run
from ablate.judge.verdict import Severity
from ablate.records.imports import CLOCKS_APART
from prereg.registry.amendments import affected, amendments_of, chain_faults, promise_in_force
from prereg.registry.compared import compared_of, faults_of_comparison
from prereg.registry.ledger_entry import (
    CallStartedEntry,
    DecidedEntry,
    FailedEntry,
    FinishedEntry,
    ImportedEntry,
    PeekedEntry,
    PromiseEntry,
    RunStartedEntry,
    SealedEntry,
    SealEntry,
)
from prereg.text import counted


@check_body("registered before any run")
def _registered_first(context: AuditContext) -> Found:
    promised = [entry.index for entry in context.of(PromiseEntry)]
    runs = context.of(CallStartedEntry, RunStartedEntry, SealEntry, FailedEntry, FinishedEntry)
    ran = [entry.index for entry in runs]
    if not promised:
        return CheckResult(passed=False, found="the registration is not in the ledger")
    # By place in the ledger, not by clocks: the chain of hashes fixes the order, and a clock can be set.
    first = f"first run as entry {min(ran)}" if ran else "no run yet"
    passed = not ran or min(promised) < min(ran)
    return CheckResult(passed=passed, found=f"registered as entry {min(promised)}, {first}")


@check_body("the ledger and the registration are intact")
def _intact(context: AuditContext) -> Found:
    evidence = context.evidence
    return [*evidence.ledger_faults, *evidence.history_faults, *chain_faults(evidence.ledger)]


@check_body("the registered code and data are as they were registered")
def _as_registered(context: AuditContext) -> Found:
    return [*context.evidence.altered]


def _late_amendments(context: AuditContext, evidence: str, severity: Severity) -> CheckResult:
    """The severity given is that of the check when it holds.

    A late amendment forbids a verdict only if it changed what the verdict is made of. Otherwise what it touched is
    exploratory (`ablate.judge.audit.sensitivity`). Nothing rests on one that touched nothing: a remark.
    """
    late = [amendment for amendment in amendments_of(context.evidence.ledger) if amendment.evidence == evidence]
    touched = affected(context.study, late)
    spoilt = touched.verdict
    if late:
        by_reach: list[tuple[bool, Severity]] = [
            (bool(spoilt), "inadmissible"),
            (bool(touched.hypotheses or touched.arms), "deviation"),
        ]
        severity = next((graver for reached, graver in by_reach if reached), "note")
    after = f"; changed: {'; '.join(spoilt)}" if spoilt else ""
    return CheckResult(
        [f"entry {amendment.index} ({amendment.reason})" for amendment in late], severity=severity, after=after
    )


@check_body("no amendment after outcomes were read")
def _amended_after_outcomes(context: AuditContext) -> Found:
    return _late_amendments(context, "outcomes read", "inadmissible")


@check_body("no amendment after runs started")
def _amended_after_starts(context: AuditContext) -> Found:
    return _late_amendments(context, "runs started", "deviation")


@check_body("the design could reach every verdict")
def _design(context: AuditContext) -> Found:
    override = context.registration.override
    if override is None:
        return None
    text = f"underpowered, and accepted before any run: {override.obstacle}. Reason given: {override.reason}"
    return CheckResult(passed=False, found=text)


@check_body("no look before the last run ended")
def _early_looks(context: AuditContext) -> Found:
    # Runs leave `waiting` as the ledger seals them: an entry is early where some are still in it.
    waiting, looks = set(context.evidence.planned), []
    # One that was recorded afterwards is recorded only where it was an early one, wherever its entry is.
    for entry in context.evidence.ledger:
        if isinstance(entry, SealedEntry) and entry.registration in context.registration.lineage:
            waiting.discard(entry.cell)
        elif isinstance(entry, PeekedEntry) and entry.took_place:
            looks.append(f"entry {entry.index}, recorded afterwards: the look took place at {entry.took_place}")
        elif isinstance(entry, PeekedEntry) and (waiting or context.study.stopping != "fixed"):
            looks.append(f"entry {entry.index}, at {entry.at}")
    return looks


@check_body("no run was sealed after the decision")
def _sealed_after_decision(context: AuditContext) -> Found:
    decided = next(iter(context.of(DecidedEntry)), None)
    if decided is None:
        return None
    seals = [(entry.index, entry.cell, entry.outcome_sha256) for entry in context.of(SealEntry)]
    # Every seal before the decision, not the newest of each run: what was known by then is known.
    before = {(cell, outcome) for index, cell, outcome in seals if index < decided.index}
    late = [
        f"{named(cell)} (entry {index})"
        for index, cell, outcome in seals
        if index > decided.index and (cell, outcome) not in before
    ]
    verdict = decided.verdict or decided.status
    text = f"decided as entry {decided.index} ({verdict}, {decided.at}); sealed afterwards {len(late)}"
    return CheckResult(late, text)


def _is_comparison(context: AuditContext) -> bool:
    return compared_of(context.evidence.ledger, context.study.study) is not None


@check_body("a comparison of commits is the one that its entry announced", applies=_is_comparison)
def _as_announced(context: AuditContext) -> Found:
    return [*faults_of_comparison(context.registration, context.evidence.ledger)]


@check_body("no run repeats one of another study")
def _repeated_elsewhere(context: AuditContext) -> Found:
    place = context.evidence.place
    seals: dict[str, list[SealEntry]] = defaultdict(list)
    for entry in context.evidence.elsewhere:
        if isinstance(entry, SealEntry):
            seals[entry.study].append(entry)
    promise = promise_in_force(context.evidence.ledger, context.registration.lineage)
    promised = -1 if promise is None else place(promise)
    faults = []
    # Whether somebody saw those outcomes before this registration was made: what `registered first` alone would not
    # show.
    for study, entries in seals.items():
        read = [
            entry
            for entry in context.evidence.elsewhere
            if entry.study == study
            and entry.event in ("decided", "looked", "peeked")
            and place(entries[0]) < place(entry) < promised
        ]
        faults.append(
            f"{counted(len({entry.cell for entry in entries}), 'run')} of '{study}'"
            ", the first sealed "
            f"{'before' if place(entries[0]) < promised else 'after'} this registration as entry {entries[0].index} "
            f"({entries[0].at}), "
            + (f"{read[0].event} as entry {read[0].index} ({read[0].at})" if read else "no look before it on record")
        )
    before = any(place(entries[0]) < promised for entries in seals.values())
    return CheckResult(faults, severity="inadmissible" if before else "note")


@check_body("the ledger's times run forward")
def _times(context: AuditContext) -> Found:
    faults, latest = [], None
    for entry in context.evidence.ledger:
        at = datetime.fromisoformat(entry.at)
        if latest is not None and latest[0] - at > CLOCKS_APART:
            before = latest[1]
            faults.append(f"entry {entry.index} ({entry.event}) at {entry.at}, entry {before.index} at {before.at}")
        if latest is None or at > latest[0]:
            latest = (at, entry)
    return faults


@check_body("no run began before its registration")
def _begun_before(context: AuditContext) -> Found:
    promised = next((entry.at for entry in context.of(PromiseEntry)), None)
    if promised is None:
        return None
    # Of imports their maker says when, which is a check of its own.
    imported = {entry.cell for entry in context.of(ImportedEntry)}
    faults = []
    for run in (run for run in context.runs if run.cell not in imported):
        times = {"started": run.started_at, "ended": run.ended_at}
        early = [f"{what} at {moment}" for what, moment in times.items() if moment and _before(moment, promised)]
        faults += [f"{named_run(run)} {times_of_run}, registered at {promised}" for times_of_run in early[:1]]
    return faults


@check_body("every sealed run was started here")
def _started_here(context: AuditContext) -> Found:
    first = {entry.cell: entry.index for entry in reversed(context.of(RunStartedEntry))}
    calls, faults = context.of(CallStartedEntry), []
    for entry in context.of(SealedEntry):
        if entry.without_start:
            continue  # named by the check of attempts
        begun = first.get(entry.cell)
        if begun is None and not first and calls and entry.recipe_sha256 is None:
            begun = calls[0].index  # a tool that logs calls, and no starts of runs
        if begun is None or begun > entry.index:
            faults.append(f"{named(entry.cell)} (entry {entry.index})")
    return faults


def _before(moment: str, promised: str) -> bool:
    """Whether a record's time lies before the ledger's by more than clocks differ; without offset it is in UTC."""
    at = datetime.fromisoformat(promised)
    try:
        recorded = datetime.fromisoformat(moment)
    except ValueError:
        return False
    return at - (recorded if recorded.tzinfo is not None else recorded.replace(tzinfo=at.tzinfo)) > CLOCKS_APART
