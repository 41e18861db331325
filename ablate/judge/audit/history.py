"""Checks of attempts: how often each run was started, resumed, retried and sealed.

Someone who sees live metrics or outcomes could choose among attempts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ablate.judge.audit.checks import (
    AuditContext,
    CheckResult,
    Found,
    built_in,
    check_body,
    first_few,
    named,
    named_run,
)
from prereg.registry.amendments import amendments_of, scope_of
from prereg.registry.ledger_entry import (
    AmendedEntry,
    Entry,
    FailedEntry,
    ImportedEntry,
    RunEntry,
    RunStartedEntry,
    SealedEntry,
    SealEntry,
)
from prereg.registry.plan import Cell, recipes_of
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import counted

MOST_LOST: Final = 1
"""Lost starts that a study may have without a registered number: one accident should not cost it. The verdict must then
be the same with that run at its worst (`ablate.judge.audit.retried`)."""


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
    with_values: int = 0
    """Those among the lost that had recorded a value of a claimed metric, or may have: the ledger does not say that
    they had none. Also resumed ones that replaced such values by others. Of records that an import replaced none."""
    made_with: set[str] = field(default_factory=set)
    """With what they were made, as far as the ledger says."""

    @property
    def words(self) -> str:
        """The counts in words."""
        parts = [f"{self.made} starts", f"{self.resumed} resumed", f"{self.failed} failed on record"]
        parts += [f"{self.restarted} begun again from the first step"] if self.restarted else []
        parts += [f"{self.replaced} replaced by an import"] if self.replaced else []
        parts += [f"{self.removed} removed"]
        parts += [f"{self.with_values} lost with a value of a claimed metric"] if self.with_values else []
        return ", ".join(parts)


@dataclass
class _Record:
    """What a run's present record counts, since it was last removed or sealed."""

    made: int = 0
    resumed: int = 0
    failed: int = 0
    attempt: int = 0
    """Of its last start."""
    with_values: int = 0
    """Starts before the last that had recorded a claimed value, or may have, and were begun again."""
    failed_with: bool | None = None
    """Of a last start that has failed: whether it had."""
    handed_out: bool = False
    """True where the last start was handed to a launcher."""
    last_resumed: bool = False
    """Whether the last start resumed the run."""

    def undo_start(self) -> None:
        """Take back the last start, whose trainer's process never existed: no run was drawn by it."""
        self.made -= 1
        self.attempt -= 1
        self.resumed -= self.last_resumed
        self.failed_with, self.handed_out, self.last_resumed = None, False, False

    def begin(self, entry: RunStartedEntry) -> None:
        """Take in one more start."""
        if self.made:
            self._begin_again(entry)
        else:
            self.resumed += entry.resumed_from is not None
            self.with_values += entry.left_values is True  # of a start that the ledger does not hold
        self.made += 1
        self.attempt = entry.attempt
        self.handed_out, self.last_resumed = entry.launcher is not None, entry.resumed_from is not None

    def _begin_again(self, entry: RunStartedEntry) -> None:
        """Take in the start that follows the last one in the same record."""
        if self.failed_with is not None:
            had = self.failed_with
        else:
            # A start that the ledger does not hold began in between, and cleared away what the one before had left.
            had = entry.left_values is not False or entry.attempt > self.attempt + 1
        if entry.resumed_from is not None:
            self.resumed += 1
        else:
            self.with_values += had
        self.failed_with = None

    def is_taken_over_by(self, entry: RunStartedEntry) -> bool:
        """Whether an entry says that the last start, which had been handed to a launcher, is made here."""
        return entry.taken_over and self.handed_out and entry.attempt == self.attempt


def starts_of(registration: Registration, ledger: Sequence[Entry]) -> dict[Cell, Starts]:
    """The starts of every run of a registration, by cell. Runs of which no start was logged are absent.

    A run's record counts its starts. Where the count falls back, or the run is sealed with fewer, the record had been
    removed. A start that was sealed, and whose run was then made again, was not.
    """
    return starts_under(registration.lineage, ledger)


def starts_under(lineage: Collection[str], ledger: Iterable[Entry]) -> dict[Cell, Starts]:
    """The same, of every run under registrations that share their runs."""
    starts_by_cell: dict[Cell, Starts] = defaultdict(Starts)
    records: dict[Cell, _Record] = {}

    def close(cell: Cell, *, removed: bool = False, imported: bool = False) -> None:
        record, into = records.pop(cell), starts_by_cell[cell]
        # The last start made the seal, unless the record was removed or an import took its place.
        lost = record.made - record.resumed - (0 if removed or imported else 1)
        unexplained = max(0, lost - record.failed)
        into.resumed += record.resumed
        into.failed += record.failed
        into.lost += lost
        # What became of the record says where the unexplained starts went.
        if imported:
            into.replaced += unexplained
        elif removed:
            into.removed += unexplained
        else:
            into.restarted += unexplained
        if not imported:
            into.with_values += record.with_values + (removed and record.failed_with is not False)

    for entry in ledger:
        if entry.registration not in lineage or not isinstance(entry, RunEntry):
            continue
        # A start opens a record or goes on in it; a failure ends a start; a seal closes the record.
        cell = entry.cell
        record = records.get(cell, _Record())
        if isinstance(entry, RunStartedEntry) and record.is_taken_over_by(entry):
            record.handed_out = False
            starts_by_cell[cell].made_with.add(str(entry.made_with))
        elif isinstance(entry, RunStartedEntry):
            if record.made and entry.attempt <= record.attempt:
                close(cell, removed=True)
                record = _Record()
            record.begin(entry)
            records[cell] = record
            starts_by_cell[cell].made += 1
            starts_by_cell[cell].made_with.add(str(entry.made_with))
        elif isinstance(entry, FailedEntry) and record.made and entry.before_start == record.attempt:
            record.undo_start()
            starts_by_cell[cell].made -= 1
            # Nothing of it is left to be removed, unless an earlier start gave values up.
            if not record.made and not record.with_values:
                del records[cell]
        elif isinstance(entry, FailedEntry):
            record.failed = min(record.failed + 1, record.made)
            record.failed_with = entry.left_values
        elif isinstance(entry, SealEntry) and record.made:
            record.with_values += entry.redrawn
            removed = entry.attempts < record.attempt
            close(cell, removed=removed, imported=isinstance(entry, ImportedEntry))
    for cell in list(records):
        close(cell)
    return dict(starts_by_cell)


def _deterministic(study: Study, variant: str) -> bool:
    config = study.trained[variant].config if variant in study.trained else None
    return isinstance(config, Training) and config.numerics.deterministic


@check_body("every run was made in one go")
def _attempts(context: AuditContext) -> Found:
    # A failure before its trainer's process existed is no attempt.
    failures = Counter(entry.cell for entry in context.of(FailedEntry) if entry.before_start is None)
    starts = starts_of(context.registration, context.entries)
    faults, exact = [], built_in(context)
    for run in context.runs:
        failed = failures[run.cell]
        if run.attempts > 1 or run.resumed_from or failed:
            resumed = f", resumed from step {', '.join(map(str, run.resumed_from))}" if run.resumed_from else ""
            mishaps = f" ({'; '.join(run.mishaps)})" if run.mishaps else ""
            times = f", {failed} failed" if failed else ""
            restarted = starts[run.cell].restarted if run.cell in starts else 0
            times += f", {restarted} begun again from the first step" if restarted else ""
            faults.append(f"{named_run(run)}: {run.attempts} attempts{resumed}{times}{mishaps}")
            exact = exact and _deterministic(context.study, run.variant)
    for cell, of_run in starts.items():
        if of_run.removed:
            faults.append(f"{named(cell)}: {counted(of_run.removed, 'start')} removed before its seal")
            exact = False
    return CheckResult(faults, severity="note" if exact else "deviation")


@check_body("no start of a run was lost before its seal")
def _lost(context: AuditContext) -> Found:
    starts = starts_of(context.registration, context.entries)
    most = context.study.analysis.most_lost_starts
    counting = {
        cell: of_run.lost if most is not None else 0 if _same_bits(context.study, cell, of_run) else of_run.with_values
        for cell, of_run in starts.items()
    }
    # Without a registered number only starts that may have shown a value count, and of these none that could only
    # have given the same bits. With one, every lost start counts: that is what was promised.
    limit, n = MOST_LOST if most is None else most, sum(counting.values())
    retried = retried_runs(context)
    shown = {
        cell: of_run
        for cell, of_run in starts.items()
        if of_run.removed or of_run.replaced or cell in retried or (n > limit and counting[cell])
    }
    return CheckResult(
        [f"{named(cell)}: {of_run.words}" for cell, of_run in shown.items()],
        f"{n} {'counts' if n == 1 else 'count'}, and {limit} may",
        severity="inadmissible" if n > limit else "deviation",
    )


def _same_bits(study: Study, cell: Cell, starts: Starts) -> bool:
    """Whether the starts of a run can only give the same bits: deterministic numerics, all made with the same."""
    return len(starts.made_with) == 1 and _deterministic(study, cell[0])


def retried_runs(context: AuditContext) -> list[Cell]:
    """The sealed runs of which a start was lost that may have recorded a claimed value, and that another was made of
    which need not give the same bits."""
    starts = starts_of(context.registration, context.entries)
    lost = [c for c, made in starts.items() if made.with_values and not _same_bits(context.study, c, made)]
    ended = {run.cell for run in context.ended}
    return [cell for cell in lost if cell in ended]


@check_body("every run wrote in its own folder only")
def _wrote_elsewhere(context: AuditContext) -> Found:
    faults = []
    for entry in context.of(FailedEntry):
        if files := entry.wrote_in:
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            faults.append(f"{named(entry.cell)} wrote {', '.join(files[:3])}{more}")
    return faults


@check_body("no sealed run was trained again")
def _trained_again(context: AuditContext) -> Found:
    ends: dict[Cell, list[tuple[str, str]]] = defaultdict(list)
    for cell, entry in _seals_of_every_registration(context):
        ends[cell].append((entry.status, entry.outcome_sha256))
    again = {cell: seals for cell, seals in ends.items() if len(seals) > 1}
    # The same values under another status are another outcome.
    differing = {cell: seals for cell, seals in again.items() if len(set(seals)) > 1}
    same = {cell: seals for cell, seals in again.items() if cell not in differing}
    # The values of an earlier seal are gone: that they were the same is the ledger's word.
    after = f"; {len(same)} sealed again with the same outcome by the ledger{first_few(_ends(same))}" if same else ""
    return CheckResult(
        _ends(differing),
        f"{len(differing)} with another outcome" if differing else "none",
        after,
        passed=not again,
        severity="inadmissible" if differing else "note",
    )


def _seals_of_every_registration(context: AuditContext) -> list[tuple[Cell, SealEntry]]:
    """Every seal of a planned run in the ledger's order, those under other registrations of the study among them: the
    same configuration, code, data and seed. Not from before an amendment of what is measured: outcomes then hash other
    metrics, and every claim is exploratory in any case."""
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell, recipe in recipes_of(context.registration).items():
        cells[recipe].append(cell)
    measured_since = max(
        (amendment.index for amendment in amendments_of(context.evidence.ledger) if _measures_else(amendment)),
        default=-1,
    )
    seals = []
    for entry in context.evidence.ledger:
        if not isinstance(entry, SealEntry):
            continue
        cell = entry.cell
        if entry.registration in context.registration.lineage:
            seals.append((cell, entry))
        elif entry.index > measured_since and (alike := cells.get(entry.recipe_sha256 or "")):
            # Of arms that are configured alike, the one of that name.
            seals.append((cell if cell in alike else alike[0], entry))
    return seals


def _measures_else(amendment: AmendedEntry) -> bool:
    fields = ("measure", "metrics", "stable", "tasks")
    return any(
        scope_of(difference.field) == "everything" and difference.field.replace("[", ".").split(".")[0] in fields
        for difference in amendment.differences
    )


def _ends(ends: dict[Cell, list[tuple[str, str]]]) -> list[str]:
    """`rope seed 3 (1f0c9a2e, then 77b1d0c4)`, of each run; with the status where that is not always the same."""
    lines = []
    for cell, seals in ends.items():
        differ = len({status for status, _ in seals}) > 1
        words = [outcome[:8] + (f" {status}" if differ else "") for status, outcome in seals]
        lines.append(f"{named(cell)} ({', then '.join(words)})")
    return lines


@check_body("every attempt at a run was put on record before it began")
def _without_start(context: AuditContext) -> Found:
    n_by_cell = {entry.cell: entry.without_start for entry in context.of(SealedEntry)}
    return [f"{named(cell)}: {n} without a logged start" for cell, n in n_by_cell.items() if n]


@check_body("every seal was reported by the run that made it")
def _recovered(context: AuditContext) -> Found:
    return [named(entry.cell) for entry in context.of(SealedEntry) if entry.recovered] or None
