"""Ledger entries of runs (start, seal, failure, broken limit), and which runs are done or left (`Logbook.collect`).

A start is entered before its run begins; a run that was made by another process, or whose end a crash kept out of the
ledger, is found in its folder and entered then (`collect`). Runs keep the order of `prereg.registry.plan.plan`.

The order of a run's life: `log_start` (entry "started") before a process exists, `seal` ("sealed") or `fail` ("failed")
after it has ended. A crash between two steps loses the later entry, and never leaves a run that has no start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ablate.records.provenance import made_with
from ablate.records.run_record import RunRecord
from ablate.records.seals import sealed_in_ledger, unlike
from ablate.records.store import RunFolder
from ablate.runner.failures import left_values
from ablate.runner.process import Begun, BusyError, Place, Spec, held, queue_attempt
from ablate.runner.progress import Tally, Watcher
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import (
    BreachedEntry,
    Entry,
    FailedEntry,
    RunEntry,
    RunStartedEntry,
    SealedEntry,
    SealEntry,
)
from prereg.registry.paths import Root
from prereg.registry.plan import Cell, RunSpec, recipe_sha256
from prereg.registry.registration import Registration, folder_of_study
from prereg.study.training import breach_of
from prereg.text import counted


@dataclass(kw_only=True)
class Logbook:
    """The ledger of one study, and what this call has counted of it. The caller holds the study's lock.

    One process writes the ledger at a time, so what it has read once (`starts`, `logged_breaches`) stays true.
    """

    root: Root
    registration: Registration
    ledger: Ledger
    now: Callable[[], str]
    watcher: Watcher
    tally: Tally
    unbegun: set[Cell] = field(default_factory=set)
    """Runs whose start this call has entered, and whose maker was gone before it could take the run over."""

    @cached_property
    def study_folder(self) -> Path:
        """Where the study's file lies: looked up once, since every look reads the whole ledger."""
        return folder_of_study(self.root, self.registration.study.study)

    def place(self, device: str, checkpoint_every_s: float | None = None) -> Place:
        """Where runs are made."""
        return Place(self.root.path, device, checkpoint_every_s)

    @cached_property
    def logged_breaches(self) -> list[dict[str, JsonValue]]:
        """What the ledger says of broken limits."""
        return [entry.stated for entry in self.ledger.entries() if entry.event == "breached"]

    @cached_property
    def starts(self) -> dict[Cell, AttemptStarts]:
        """What the ledger says of the attempts at each run, kept up with what is entered here."""
        starts: dict[Cell, AttemptStarts] = defaultdict(AttemptStarts)
        for entry in self.ledger.entries():
            if entry.registration in self.registration.lineage and isinstance(entry, RunEntry):
                starts[entry.cell].take_in(entry)
        return starts

    def folder(self, spec: Spec) -> RunFolder:
        """Where a run lies."""
        return RunFolder(self.root.run(spec.study, spec.registration, spec.variant, spec.seed))

    def about(self) -> dict[str, Any]:
        """What an entry about this study says of it: the study, the registration of its runs, and the time."""
        study, registration = self.registration.study.study, self.registration.runs_sha256
        return {"study": study, "registration": registration, "at": self.now()}

    def log(self, entry: Entry, *, durable: bool = True) -> None:
        """Put an entry into the ledger, and keep count of the starts of its run."""
        entry = self.ledger.append(entry, durable=durable)
        if isinstance(entry, RunEntry) and "starts" in self.__dict__:
            self.starts[entry.cell].take_in(entry)

    def hand_out(self, specs: Sequence[Spec], device: str, *, launcher: str, name_busy: bool = True) -> list[Spec]:
        """Put the next attempt at each run on record, in its folder and in the ledger, and make none of them here.

        Returns the runs that the launcher may now start by `ablate train`. A run that another process is making is left
        out, and named unless `name_busy` is false. A start that is on record and has not begun is not entered again.
        """
        handed_out = []
        for spec in specs:
            folder = self.folder(spec)
            try:
                with held(folder):
                    self.log_start(spec, self.queue(spec, self.place(device)), launcher=launcher)
            except BusyError:
                if name_busy:
                    self.watcher.note(f"{spec.run_id}: at work in another process")
                continue
            handed_out.append(spec)
        return handed_out

    def queue(self, spec: Spec, place: Place) -> Begun:
        """Put the next attempt at a run on record in its folder. The caller holds the folder's lock.

        Each start of a run that is made here is an attempt of its own. So an attempt that its record calls queued, and
        whose start by an earlier call is in the ledger, counts as one that may have begun: a record can be edited.
        """
        folder = self.folder(spec)
        record = folder.read_record()
        starts = self.starts[spec.cell]
        has_begun = (
            record is not None
            and record.status == "queued"
            and starts.awaits(record.attempts)
            and not starts.handed_out(record.attempts)
            and spec.cell not in self.unbegun
        )
        failed_before_start = (
            record is not None
            and record.status in ("running", "failed")
            and starts.failed_before_start == record.attempts
        )
        return queue_attempt(spec, folder, place, has_begun=has_begun, failed_before_start=failed_before_start)

    def log_start(self, spec: Spec, begun: Begun, *, launcher: str | None = None) -> None:
        """One start of a run, before it begins; what a folder says of it can be removed, and this cannot.

        A start that is on record already and has not begun is not entered again, unless it had been handed to a
        launcher and is made here now. With a `launcher` the run is made by a process that it starts, on whatever
        machine, so that with what it is made is not known here.
        """
        record = begun.record
        starts = self.starts[spec.cell]
        taken_over = False
        # Between the record `queued` and the start in the ledger a crash is possible: then the start is entered now.
        if begun.waited and starts.awaits(record.attempts):
            taken_over = launcher is None and starts.handed_out(record.attempts)
            if not taken_over:
                return
        started = RunStartedEntry(
            **self.about(),
            variant=spec.variant,
            seed=spec.seed,
            attempt=record.attempts,
            recipe_sha256=recipe_sha256(spec),
            resumed_from=begun.resumed_from,
            left_values=begun.left_values,
            launcher=launcher,
            made_with=None if launcher else made_with(record.provenance),
            taken_over=taken_over,
        )
        # Every run would wait for the disk. A start that a loss of power takes was one of a run that it ended, too.
        self.log(started, durable=False)

    def seal(self, spec: Spec, *, recovered: bool = False) -> int:
        """Bind a sealed run to the ledger; how many of its attempts no start of the ledger explains, which the entry
        says. `recovered`: by a later call than the one that made it."""
        folder = self.folder(spec)
        record = folder.read_record()
        assert record is not None and record.metrics_sha256 is not None, spec.run_id
        self.log_breach(spec, record)
        without_start = self.starts[spec.cell].unexplained(record.attempts)
        sealed = SealedEntry(
            **self.about(),
            **record.seal(sha256_file(folder.record_path)),
            recipe_sha256=recipe_sha256(spec),
            recovered=recovered and not without_start,
            without_start=without_start,
        )
        self.log(sealed)
        self.tally.sealed += 1
        return without_start

    def log_breach(self, spec: Spec, record: RunRecord) -> None:
        """Put a limit that a run broke on record before its seal: a crash in between repeats it, and loses none."""
        if not isinstance(spec, RunSpec):
            return
        assert record.metrics_sha256 is not None, spec.run_id
        # A broken limit is no failure: the run is sealed all the same, and the judge decides what it means.
        breach = breach_of(spec.config.budget, wall_s=record.wall_s)
        if breach is None:
            return
        breached = BreachedEntry(
            **self.about(),
            variant=spec.variant,
            seed=spec.seed,
            **breach.model_dump(),
            metrics_sha256=record.metrics_sha256,
        )
        if breached.stated not in self.logged_breaches:
            self.log(breached)
            self.logged_breaches.append(breached.stated)
            self.watcher.note(f"{spec.run_id}: {breach.words}")

    def fail(self, spec: Spec, error: str, *, wrote_in: Sequence[str] = (), before_start: int | None = None) -> None:
        """One failure. `wrote_in` are files that were written in the folders of other runs meanwhile, `before_start` is
        the attempt that ended before its trainer's process existed."""
        failed = FailedEntry(
            **self.about(),
            variant=spec.variant,
            seed=spec.seed,
            error=error,
            left_values=left_values(spec, self.folder(spec)),
            wrote_in=tuple(wrote_in),
            before_start=before_start,
        )
        self.log(failed)

    def collect(self, specs: Sequence[Spec]) -> list[Spec]:
        """The runs that are left to make. Sealed ones are counted, and entered where the ledger lacks their end; so are
        failures of runs that another process made.

        Raises `EvidenceError` for a seal that does not hold, and for a record of another run; nothing is entered then.
        """
        # All records are checked before the first entry: a fault in the last one must leave the ledger as it is.
        bound = sealed_in_ledger(self.ledger, self.registration.runs_sha256)
        record_by_cell: dict[Cell, RunRecord] = {}
        for spec in specs:
            folder = self.folder(spec)
            record = folder.read_record()
            if record is None:
                continue
            record_by_cell[spec.cell] = record
            if is_sealed(folder, record) and (*spec.cell, record.metrics_sha256) not in bound:
                _require_own(spec, folder, record)
        # Then what the ledger lacks: failures of other processes, seals whose entry a crash kept out.
        waiting: list[Spec] = []
        unexplained_runs: list[Spec] = []
        for spec in specs:
            record = record_by_cell.get(spec.cell)
            made_elsewhere = record is not None and self.starts[spec.cell].handed_out(record.attempts)
            if record is None or record.status not in ENDED:
                if record is not None and record.status == "failed" and made_elsewhere:
                    # Whether its trainer's process existed, only its folder says: it counts as an attempt.
                    self.fail(spec, record.error or "unknown")
                waiting.append(spec)
                continue
            if (*spec.cell, record.metrics_sha256) in bound:
                self.tally.sealed += 1
            else:
                unexplained = self.seal(spec, recovered=not made_elsewhere)
                unexplained_runs += [spec] if unexplained else []
            self.tally.steps_done += spec.steps or record.steps
        if unexplained_runs:
            first = unexplained_runs[0]
            self.watcher.note(
                f"{counted(len(unexplained_runs), 'run')} with attempts of which the ledger has no start, the first "
                f"{first.variant}/{first.seed}: sealed, and a deviation"
            )
        return waiting

    def all_bound(self, specs: Sequence[Spec]) -> bool:
        """Whether the ledger has the seal of every run."""
        cells = {seal[:2] for seal in sealed_in_ledger(self.ledger, self.registration.runs_sha256)}
        return all(spec.cell in cells for spec in specs)


@dataclass
class AttemptStarts:
    """What the ledger says of the attempts at one run, since its last seal."""

    attempts: set[int] = field(default_factory=set)
    """Those that may have led to what lies in its folder: after the removal of a record they count anew."""

    last: RunEntry | None = None
    """The last entry about an attempt, or its end."""

    def take_in(self, entry: RunEntry) -> None:
        """Count one more entry of the run."""
        if isinstance(entry, RunStartedEntry):
            # A removed record counts from 1 again.
            self.attempts = {earlier for earlier in self.attempts if earlier < entry.attempt} | {entry.attempt}
        elif isinstance(entry, SealEntry):
            self.attempts = set()
        elif not isinstance(entry, FailedEntry):
            return
        self.last = entry

    def awaits(self, attempt: int) -> bool:
        """Whether the start of an attempt is the last that the ledger says of the run."""
        return isinstance(self.last, RunStartedEntry) and self.last.attempt == attempt

    def handed_out(self, attempt: int) -> bool:
        """Whether it is, and a launcher made the attempt elsewhere."""
        return self.awaits(attempt) and isinstance(self.last, RunStartedEntry) and self.last.launcher is not None

    @property
    def failed_before_start(self) -> int | None:
        """The attempt that, by the last entry, ended before its trainer's process existed; none otherwise."""
        return self.last.before_start if isinstance(self.last, FailedEntry) else None

    def unexplained(self, n_attempts: int) -> int:
        """How many of the attempts that a sealed record counts have no start that can have led to it."""
        explained = self.attempts & set(range(1, n_attempts + 1))
        if not self.awaits(n_attempts):  # the ledger has another end of the last one
            explained.discard(n_attempts)
        return n_attempts - len(explained)


ENDED = ("done", "diverged")
"""What a record says of a run that is sealed."""


def _require_own(spec: Spec, folder: RunFolder, record: RunRecord) -> None:
    """A record that no entry knows is sealed only where it is of the run whose folder it lies in."""
    if difference := unlike(record, spec):
        raise EvidenceError(
            f"{folder.path} holds a sealed record of another run: {difference}",
            required=f"a record of {spec.variant} seed {spec.seed}",
            fix=f"move it elsewhere, then: ablate run {spec.study}",
        )


def is_sealed(folder: RunFolder, record: RunRecord) -> bool:
    """Whether a run is sealed; a seal that does not hold is never trained over in silence.

    Raises `EvidenceError` for such a seal.
    """
    if record.status not in ENDED:
        return False
    faults = folder.faults(record)
    if faults:
        raise EvidenceError(
            f"{faults[0]}",
            required="the record that was sealed",
            fix=f"restore it, or rm -r {folder.path} to train it again (the ledger keeps both)",
        )
    return True
