"""How often was each run started and sealed? Someone who sees live metrics or outcomes could choose among attempts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ablate.judge.audit.checks import AuditContext, Found, Result, built_in, check, listed, named, named_run
from prereg.registry.amendments import Amendment, amendments_of, scope_of
from prereg.registry.ledger_entry import SEALS, Entry
from prereg.registry.plan import Cell, cell_of, recipes_of
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import counted

MOST_REMOVED: Final = 1
"""Removed starts that a study may have without a registered number: the tool itself advises to remove a run's folder
whose record is damaged. See docs/decisions.md for what one more does to the error rate."""


@dataclass
class Starts:
    """What the ledger holds of the starts of one run."""

    made: int = 0
    """All starts."""
    resumed: int = 0
    """Those that resumed from the checkpoint of the one before."""
    failed: int = 0
    """Those that ended in an error that the ledger holds."""
    removed: int = 0
    """Those of records that were removed before a seal, less failures."""
    replaced: int = 0
    """Those of records that an import replaced, less failures: a maker's word either way, and not counted."""
    restarted: int = 0
    """Those that ended without seal or failure and whose record was kept: the next began at the first step again."""
    lost: int = 0
    """All that have no seal of their own and were not resumed, failures among them."""
    made_with: set[str] = field(default_factory=set)
    """With what they were made, as far as the ledger says."""

    @property
    def words(self) -> str:
        """The counts in words."""
        parts = [f"{self.made} starts", f"{self.resumed} resumed", f"{self.failed} failed on record"]
        parts += [f"{self.restarted} begun again from the first step"] if self.restarted else []
        parts += [f"{self.replaced} replaced by an import"] if self.replaced else []
        return ", ".join([*parts, f"{self.removed} removed"])


def starts_of(registration: Registration, ledger: Sequence[Entry]) -> dict[Cell, Starts]:
    """The starts of every run of a registration, by cell. Runs of versions that logged no start of a run are absent.

    A run's record counts its starts. Where the count falls back, or the run is sealed with fewer, the record had been
    removed. A start that was sealed, and whose run was then made again, was not.
    """
    found: dict[Cell, Starts] = defaultdict(Starts)
    records: dict[Cell, tuple[Starts, int]] = {}  # what a run's present record counts, and its last attempt

    def close(cell: Cell, *, removed: bool = False, imported: bool = False) -> None:
        (record, _), into = records.pop(cell), found[cell]
        lost = record.made - record.resumed - (not (removed or imported))
        unexplained = max(0, lost - record.failed)
        into.resumed += record.resumed
        into.failed += record.failed
        into.lost += lost
        into.replaced += unexplained * imported
        into.removed += unexplained * (removed and not imported)
        into.restarted += unexplained * (not (removed or imported))

    for entry in ledger:
        if entry.registration not in registration.lineage or "variant" not in entry.body:
            continue
        cell, body = cell_of(entry), entry.body
        record, last = records.get(cell, (Starts(), 0))
        if entry.event == "started":
            # An entry that does not say which attempt it was counts as one whose record was removed.
            attempt = body.get("attempt")
            attempt = attempt if isinstance(attempt, int) else 0
            if record.made and attempt <= last:
                close(cell, removed=True)
                record = Starts()
            record.made += 1
            record.resumed += "resumed_from" in body
            records[cell] = record, attempt
            found[cell].made += 1
            found[cell].made_with.add(str(body.get("made_with")))
        elif entry.event == "failed":
            record.failed = min(record.failed + 1, record.made)
        elif entry.event in SEALS and record.made:
            attempts = body.get("attempts")
            fewer = isinstance(attempts, int) and attempts < last
            close(cell, removed=fewer, imported=entry.event == "imported")
    for cell in list(records):
        close(cell)
    return dict(found)


def _deterministic(study: Study, variant: str) -> bool:
    config = study.trained[variant].config if variant in study.trained else None
    return isinstance(config, Training) and config.numerics.deterministic


@check(
    "every run was made in one go",
    "deviation",
    "note",
    looks_at="attempts, resumptions and `failed` entries of each run",
    why="a remark where numerics are deterministic, since resuming is then exact",
    required="one attempt a run",
)
def _attempts(context: AuditContext) -> Found:
    failures = Counter(map(cell_of, context.of("failed")))
    faults, exact = [], built_in(context)
    for run in context.runs:
        failed = failures[run.cell]
        if run.attempts > 1 or run.resumed_from or failed:
            resumed = f", resumed from step {', '.join(map(str, run.resumed_from))}" if run.resumed_from else ""
            mishaps = f" ({'; '.join(run.mishaps)})" if run.mishaps else ""
            times = f", {failed} failed" if failed else ""
            faults.append(f"{named_run(run)}: {run.attempts} attempts{resumed}{times}{mishaps}")
            exact = exact and _deterministic(context.study, run.variant)
    for cell, one in starts_of(context.registration, context.entries).items():
        if one.removed:
            faults.append(f"{named(cell)}: {counted(one.removed, 'start')} removed before its seal")
            exact = False
    return Result(faults, severity="note" if exact else "deviation")


@check(
    "no start of a run was removed before its seal",
    "inadmissible",
    "deviation",
    looks_at="`started` entries of runs without a seal, a failure or a resumption of their own",
    why="metrics can be read while a run lives, and a start removed for them is a choice; "
    "no verdict above `analysis.most_lost_starts`, or without it above one start that need not give the same bits",
    required="every start sealed, failed on record, or resumed",
    only_failed=True,
)
def _removed(context: AuditContext) -> Found:
    starts = starts_of(context.registration, context.entries)
    most = context.study.analysis.most_lost_starts
    if most is None:
        # Starts that can only give the same bits are no choice: deterministic numerics, all made with the same.
        counting = {
            cell: 0 if len(one.made_with) == 1 and _deterministic(context.study, cell[0]) else one.removed
            for cell, one in starts.items()
        }
    else:
        counting = {cell: one.lost for cell, one in starts.items()}
    limit, n = MOST_REMOVED if most is None else most, sum(counting.values())
    shown = {cell: one for cell, one in starts.items() if one.removed or one.replaced or (n > limit and counting[cell])}
    removed = sum(one.removed + one.replaced for one in shown.values())
    of = f"{n} count, and {limit} may" if most is None else f"{n} lost, and {limit} registered at most"
    return Result(
        [f"{named(cell)}: {one.words}" for cell, one in shown.items()],
        f"{removed} removed ({of})",
        severity="inadmissible" if n > limit else "deviation",
    )


@check(
    "no sealed run was trained again",
    "inadmissible",
    "note",
    looks_at="several `sealed` entries of one run, under any registration of the study, and their outcomes",
    why="no verdict where the outcomes differ, since one of them may have been chosen; a remark where they agree",
    required="each run sealed once",
)
def _trained_again(context: AuditContext) -> Found:
    ends: dict[Cell, list[tuple[str, str]]] = defaultdict(list)
    for cell, entry in _seals_of_every_registration(context):
        ends[cell].append((str(entry.body.get("status")), str(entry.body.get("outcome_sha256") or "")))
    again = {cell: found for cell, found in ends.items() if len(found) > 1}
    # A seal that names no outcome agrees with none; the same values under another status are another outcome.
    other = {cell: found for cell, found in again.items() if len(set(found)) > 1 or not found[0][1]}
    same = {cell: found for cell, found in again.items() if cell not in other}
    # The values of an earlier seal are gone: that they were the same is the ledger's word.
    after = f"; {len(same)} sealed again with the same outcome by the ledger{listed(_ends(same))}" if same else ""
    return Result(
        _ends(other),
        f"{len(other)} with another outcome" if other else "none",
        after,
        passed=not again,
        severity="inadmissible" if other else "note",
    )


def _seals_of_every_registration(context: AuditContext) -> list[tuple[Cell, Entry]]:
    """Every seal of a planned run in the ledger's order, those under other registrations of the study among them: the
    same configuration, code, data and seed. Not from before an amendment of what is measured: outcomes then hash other
    metrics, and every claim is exploratory in any case."""
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell, recipe in recipes_of(context.registration).items():
        cells[recipe].append(cell)
    measured_since = max(
        (one.index for one in amendments_of(context.evidence.ledger) if _measures_else(one)), default=-1
    )
    found = []
    for entry in context.evidence.ledger:
        if entry.event not in SEALS:
            continue
        cell = cell_of(entry)
        if entry.registration in context.registration.lineage:
            found.append((cell, entry))
        elif entry.index > measured_since and (alike := cells.get(str(entry.body.get("recipe_sha256")))):
            # Of arms that are configured alike, the one of that name.
            found.append((cell if cell in alike else alike[0], entry))
    return found


def _measures_else(amendment: Amendment) -> bool:
    fields = ("measure", "metrics", "stable", "tasks")
    return any(
        scope_of(one.field) == "everything" and one.field.replace("[", ".").split(".")[0] in fields
        for one in amendment.differences
    ) or any(one.field.split(".")[0] == "own_checks" for one in amendment.differences)


def _ends(ends: dict[Cell, list[tuple[str, str]]]) -> list[str]:
    """`rope seed 3 (1f0c9a2e, then 77b1d0c4)`, of each run; with the status where that is not always the same."""
    found = []
    for cell, seals in ends.items():
        differ = len({status for status, _ in seals}) > 1
        words = [(outcome[:8] or "no outcome") + (f" {status}" if differ else "") for status, outcome in seals]
        found.append(f"{named(cell)} ({', then '.join(words)})")
    return found


@check(
    "every seal was reported by the run that made it",
    "deviation",
    looks_at="`sealed` entries that a later `ablate run` took in, marked `recovered`",
    why="listed only where there are some; a crash leaves such runs, and a folder copied by hand looks the same",
    required="a seal in the ledger the moment a run ends",
)
def _recovered(context: AuditContext) -> Found:
    return [named(cell_of(entry)) for entry in context.of("sealed") if entry.body.get("recovered")] or None
