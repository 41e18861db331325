"""Does the ledger show a choice among starts, among trainings, or among studies? And do its times run forward?

All of these are reported only when they fail, so that a verdict that was given before they existed keeps its bytes.
What they find rests on entries that later ones do not change: a study judged again is found to be what it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ablate.judge.audit.checks import listed, named, named_run, none_against
from ablate.judge.verdict import Check
from ablate.records.evidence import Evidence
from ablate.records.imports import CLOCKS_APART
from prereg.registry.ledger import SEALS, Entry
from prereg.registry.plan import Cell, cell_of
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import counted

REMOVED: Final = "no start of a run was removed before its seal"
AFTER: Final = "no run was sealed after the decision"
ELSEWHERE: Final = "no run repeats one of another study"
FORWARD: Final = "the ledger's times run forward"
BEGUN: Final = "no run began before its registration"
READ: Final = ("decided", "looked", "peeked")
"""Events after which outcomes of a study were known."""
MOST_REMOVED: Final = 1
"""Removed starts that a study may have without a registered number: the tool itself advises to remove a run's folder
whose record is damaged. See docs/decisions.md for what one more does to the error rate."""


@dataclass
class _Made:
    made: int = 0
    """All starts."""
    resumed: int = 0
    """Those that went on from the checkpoint of the one before."""
    failed: int = 0
    """Those that ended in an error that the ledger holds."""


@dataclass
class Starts(_Made):
    """What the ledger holds of the starts of one run."""

    removed: int = 0
    """Those of records that were removed before a seal, less failures."""
    replaced: int = 0
    """Those of records in whose place an import came, less failures: a maker's word either way, and not counted."""
    restarted: int = 0
    """Those that ended without seal or failure and whose record was kept: the next began at the first step again."""
    lost: int = 0
    """All that have no seal of their own and were not resumed, failures among them."""
    made_with: set[str] = field(default_factory=set)
    """With what they were made, as far as the ledger says."""

    @property
    def words(self) -> str:
        parts = [f"{self.made} starts", f"{self.resumed} resumed", f"{self.failed} failed on record"]
        if self.restarted:
            parts.append(f"{self.restarted} begun again from the first step")
        if self.replaced:
            parts.append(f"{self.replaced} replaced by an import")
        return ", ".join([*parts, f"{self.removed} removed"])


@dataclass
class _Record(_Made):
    """The starts that one folder of a run counts."""

    attempt: int = 0


def starts_of(registration: Registration, ledger: Sequence[Entry]) -> dict[Cell, Starts]:
    """The starts of every run of a registration, by cell. Runs of versions that logged no start of a run are absent.

    A run's record counts its starts. Where the count falls back, or the run is sealed with fewer, the record had been
    removed. A start that was sealed, and whose run was then made again, was not.
    """
    found: dict[Cell, Starts] = defaultdict(Starts)
    records: dict[Cell, _Record] = {}

    def close(cell: Cell, *, removed: bool = False, imported: bool = False) -> None:
        record, into = records.pop(cell), found[cell]
        into.failed += record.failed
        into.resumed += record.resumed
        lost = record.made - record.resumed - (0 if removed or imported else 1)
        into.lost += lost
        unexplained = max(0, lost - record.failed)
        if imported:
            into.replaced += unexplained
        elif removed:
            into.removed += unexplained
        else:
            into.restarted += unexplained

    for entry in ledger:
        if entry.registration != registration.sha256 or "variant" not in entry.body:
            continue
        cell, body = cell_of(entry), entry.body
        if entry.event == "started":
            # An entry that does not say which attempt it was counts as one whose record was removed.
            attempt = body.get("attempt")
            attempt = attempt if isinstance(attempt, int) else 0
            if cell in records and attempt <= records[cell].attempt:
                close(cell, removed=True)
            record = records.setdefault(cell, _Record())
            record.made, record.attempt = record.made + 1, attempt
            record.resumed += "resumed_from" in body
            found[cell].made += 1
            found[cell].made_with.add(str(body.get("made_with")))
        elif entry.event == "failed" and cell in records:
            record = records[cell]
            record.failed = min(record.failed + 1, record.made)
        elif entry.event in SEALS and cell in records:
            attempts = body.get("attempts")
            fewer = isinstance(attempts, int) and attempts < records[cell].attempt
            close(cell, removed=fewer, imported=entry.event == "imported")
    for cell in list(records):
        close(cell)
    return dict(found)


def check_removed(registration: Registration, ledger: Sequence[Entry]) -> tuple[Check, ...]:
    """Starts whose record was removed: whoever saw live metrics could choose. Above a number there is no verdict.

    Without a registered number, starts are not counted that can only give the same bits. A registered one counts every
    start that has no seal and was not resumed.
    """
    study = registration.study
    starts = starts_of(registration, ledger)
    most = study.analysis.most_lost_starts
    if most is None:
        limit = MOST_REMOVED
        counting = {cell: one.removed for cell, one in starts.items() if not _same(study, cell, one)}
    else:
        limit, counting = most, {cell: one.lost for cell, one in starts.items()}
    n = sum(counting.values())
    shown = {
        cell: one for cell, one in starts.items() if one.removed or one.replaced or (n > limit and counting.get(cell))
    }
    if not shown:
        return ()
    removed = sum(one.removed + one.replaced for one in shown.values())
    said = [f"{named(cell)}: {one.words}" for cell, one in shown.items()]
    of = f"{n} count, and {limit} may" if most is None else f"{n} lost, and {limit} registered at most"
    return (
        Check(
            name=REMOVED,
            passed=False,
            severity="inadmissible" if n > limit else "deviation",
            found=f"{removed} removed ({of}){listed(said)}",
            required="every start sealed, failed on record, or resumed",
        ),
    )


def check_after_decision(registration: Registration, ledger: Sequence[Entry]) -> tuple[Check, ...]:
    """Runs sealed when the findings were known, unless with the very outcome that they had by then."""
    mine = [entry for entry in ledger if entry.registration == registration.sha256]
    decided = next((entry for entry in mine if entry.event == "decided"), None)
    if decided is None:
        return ()
    # Every seal before the decision, not the newest of each run: what was known by then is known.
    before = {(cell_of(e), e.body.get("outcome_sha256")) for e in mine if e.event in SEALS and e.index < decided.index}
    late = [
        f"{named(cell_of(entry))} (entry {entry.index})"
        for entry in mine
        if entry.event in SEALS
        and entry.index > decided.index
        and (cell_of(entry), entry.body.get("outcome_sha256")) not in before
    ]
    if not late:
        return ()
    verdict = decided.body.get("verdict") or decided.body.get("status")
    return (
        none_against(
            AFTER,
            late,
            "after a decision no run, or one with the outcome that was judged",
            found=f"decided as entry {decided.index} ({verdict}, {decided.at}); sealed afterwards {len(late)}",
        ),
    )


def check_elsewhere(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Outcomes that another study had sealed before this one. Sealed before this registration, they may have chosen its
    claim, whether or not a look is on record: whoever reads records by hand leaves no trace. Sealed later, they are
    runs that two studies share, whose verdicts are then not independent: a remark.
    """
    first: dict[str, int] = {}
    promised = -1
    for entry in evidence.ledger:
        if entry.registration == registration.sha256:
            if entry.event in ("registered", "amended"):
                promised = entry.index
            elif entry.event in SEALS:
                first.setdefault(str(entry.body.get("outcome_sha256")), entry.index)
    seals: dict[str, list[Entry]] = defaultdict(list)
    for entry in evidence.elsewhere:
        if entry.event in SEALS and entry.index < first.get(str(entry.body.get("outcome_sha256")), -1):
            seals[entry.study].append(entry)
    said, before = [], False
    for study, entries in seals.items():
        runs = len({entry.body.get("outcome_sha256") for entry in entries})
        read = next(
            (
                entry
                for entry in evidence.elsewhere
                if entry.study == study and entry.event in READ and entries[0].index < entry.index < promised
            ),
            None,
        )
        before = before or entries[0].index < promised
        when = "before this registration" if entries[0].index < promised else "after this registration"
        known = f"{read.event} as entry {read.index} ({read.at})" if read else "no look before it on record"
        said.append(
            f"{counted(runs, 'run')} of '{study}', the first sealed {when} as entry {entries[0].index} "
            f"({entries[0].at}), {known}"
        )
    required = "outcomes that no earlier study of this ledger has"
    return (none_against(ELSEWHERE, said, required, "deviation" if before else "note"),) if said else ()


def check_times(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Entries of this study dated before earlier ones, and runs before their promise, by more than clocks differ."""
    back, latest = [], None
    for entry in evidence.ledger:
        at = datetime.fromisoformat(entry.at)
        if latest is not None and latest[0] - at > CLOCKS_APART:
            back.append(f"entry {entry.index} ({entry.event}) at {entry.at}, entry {latest[1].index} at {latest[1].at}")
        if latest is None or at > latest[0]:
            latest = (at, entry)
    minutes = int(CLOCKS_APART.total_seconds() // 60)
    checks = []
    if back:
        required = f"each entry no earlier than those before it (clocks may differ by {minutes} minutes)"
        checks.append(none_against(FORWARD, back, required, "deviation"))
    early = list(_early(registration, evidence))
    if early:
        required = f"starts after the registration's entry (clocks may differ by {minutes} minutes)"
        checks.append(none_against(BEGUN, early, required, "deviation"))
    return tuple(checks)


def _early(registration: Registration, evidence: Evidence) -> Iterator[str]:
    """Runs whose record dates their start before the registration; of imports, their maker says when."""
    mine = [entry for entry in evidence.ledger if entry.registration == registration.sha256]
    promised = next((entry for entry in mine if entry.event in ("registered", "amended")), None)
    imported = {cell_of(entry) for entry in mine if entry.event == "imported"}
    if promised is None:
        return
    at = datetime.fromisoformat(promised.at)
    for run in evidence.runs:
        if (run.variant, run.seed) in imported:
            continue
        for what, moment in (("started", run.started_at), ("ended", run.ended_at)):
            if moment is not None and _before(moment, at):
                yield f"{named_run(run)} {what} at {moment}, registered at {promised.at}"
                break


def _before(moment: str, at: datetime) -> bool:
    """Whether a record's time lies before another by more than clocks differ. A time without offset is in UTC."""
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return False
    return at - (found if found.tzinfo is not None else found.replace(tzinfo=at.tzinfo)) > CLOCKS_APART


def _same(study: Study, cell: Cell, starts: Starts) -> bool:
    """Whether all starts of a run can only give the same bits: deterministic numerics, and all made with the same."""
    arm = study.arms.get(cell[0])
    exact = arm is not None and isinstance(arm.config, Training) and arm.config.numerics.deterministic
    return exact and len(starts.made_with) == 1
