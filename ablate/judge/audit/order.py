"""Checks of the order of runs, where a claim is about a time: made as registered, and one at a time.

A machine that slows down, or that makes two runs at once, changes seconds and not losses. So these checks are made of
studies with a timed promise alone (`prereg/study/timed.py`), and say nothing of any other.

Of a run that was made here, the ledger shows by its chain of hashes when the attempt began that was sealed, and when it
was sealed. A launcher's runs are put on record all at once, so of these run.json says when they began and ended. Of an
imported run nobody here knows either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise

from ablate.judge.audit.checks import AuditContext, CheckResult, Found, check_body, first_few, named
from ablate.records.run_record import RunRecord
from prereg.registry.ledger_entry import ImportedEntry, RunStartedEntry
from prereg.registry.plan import Cell
from prereg.study.timed import timed_promises
from prereg.text import counted

CLOCK_STEP = timedelta(seconds=2)
"""Times of records are whole seconds, and a clock may be set by a moment between two runs."""


@dataclass(frozen=True)
class MadeRun:
    """When the sealed attempt at a run was made, by the ledger and by its own record."""

    run: RunRecord
    start: int | None
    """The place of its start in the ledger; none of a run that a launcher made, or that has no start on record."""
    seal: int
    """The place of its seal in the ledger."""

    @property
    def name(self) -> str:
        """Its arm and seed."""
        return named(self.run.cell)

    @cached_property
    def began(self) -> datetime:
        """When its first attempt began, by its record."""
        return _moment(self.run.started_at)

    @cached_property
    def ended(self) -> datetime:
        """When its last attempt ended, by its record."""
        return _moment(self.run.ended_at or self.run.started_at)


def _is_timed(context: AuditContext) -> bool:
    return bool(timed_promises(context.study))


@check_body("timed runs were made in the registered order", applies=_is_timed)
def _in_order(context: AuditContext) -> Found:
    if context.registration.run_order is None:
        text = "no order was registered: the arms of each seed came in the order of the file"
        return CheckResult(passed=False, found=text, severity="deviation")
    made, elsewhere = _made_here(context), _made_elsewhere(context)
    swapped = [
        f"{second.name} began before {first.name}{_times(second, first)}"
        for first, second in pairwise(made)
        if _began_before(second, first)
    ]
    unknown = f"; the order of {counted(len(elsewhere), 'run')} that were made elsewhere is not known"
    return CheckResult(
        swapped,
        f"{len(made)} runs in order" if not swapped else "",
        unknown + first_few([named(cell) for cell in elsewhere]) if elsewhere else "",
        passed=not swapped and not elsewhere,
        severity="inadmissible" if swapped else "deviation",
    )


@check_body("timed runs were made one at a time", applies=_is_timed)
def _one_at_a_time(context: AuditContext) -> Found:
    made = _made_here(context)
    # In the order in which they began: then a run that overlaps any other overlaps the next one.
    by_ledger = sorted((run for run in made if run.start is not None), key=lambda run: run.start or 0)
    by_clock = sorted(made, key=lambda run: run.began)
    together = dict.fromkeys(
        (
            *_overlaps(by_ledger, lambda first, second: (second.start or 0) < first.seal),
            *_overlaps(by_clock, lambda first, second: second.began < first.ended - CLOCK_STEP),
        )
    )
    return CheckResult(
        [*together],
        f"{len(together)} pairs side by side" if together else f"{len(made)} runs, none next to another",
        # A study without a registered order never promised it.
        severity="inadmissible" if context.registration.run_order is not None else "deviation",
    )


def _overlaps(runs: list[MadeRun], are_together: Callable[[MadeRun, MadeRun], bool]) -> Iterator[str]:
    for first, second in pairwise(runs):
        if are_together(first, second):
            yield f"{first.name} and {second.name}{_times(first, second)}"


def _began_before(second: MadeRun, first: MadeRun) -> bool:
    """Whether a run began before the one that it follows in the registered order, by the ledger or by their records."""
    if first.start is not None and second.start is not None and second.start < first.start:
        return True
    return second.began < first.began - CLOCK_STEP


def _times(first: MadeRun, second: MadeRun) -> str:
    """The times of two runs by their records."""
    spans = [f"{run.began:%H:%M:%S} to {run.ended:%H:%M:%S}" for run in (first, second)]
    return f" ({spans[0]}, and {spans[1]})"


def _made_here(context: AuditContext) -> list[MadeRun]:
    """The sealed runs that were made here, in the registered order."""
    run_by_cell = {run.cell: run for run in context.ended}
    elsewhere = set(_made_elsewhere(context))
    place_by_seal = {entry.sha256: place for place, entry in enumerate(context.entries)}
    made = []
    for cell in context.registration.cells:
        if cell in run_by_cell and cell in context.seals and cell not in elsewhere:
            seal = place_by_seal[context.seals[cell].sha256]
            made.append(MadeRun(run_by_cell[cell], _start_before(context, cell, seal), seal))
    return made


def _start_before(context: AuditContext, cell: Cell, seal: int) -> int | None:
    """The place of the last start of a run before its seal, where it was made by the process that wrote the entry."""
    for place in range(seal - 1, -1, -1):
        entry = context.entries[place]
        if isinstance(entry, RunStartedEntry) and entry.cell == cell:
            return place if entry.launcher is None else None
    return None


def _made_elsewhere(context: AuditContext) -> list[Cell]:
    """The runs of which nobody here knows when they were made: imported ones."""
    return [run.cell for run in context.ended if isinstance(context.seals.get(run.cell), ImportedEntry)]


def _moment(text: str) -> datetime:
    """A record's time; without an offset it is in UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
