"""Imports: runs that were made elsewhere, read and judged fit to be taken in, and laid in their places.

Nothing is written before all of it is read; `put` alone writes, a run whole or not at all, and never over another run.

Three forms of a source:

    a folder of run folders       VARIANT/SEED/run.json with metrics.parquet, as `ablate run` leaves them
    a folder with a manifest      manifest.json (`ImportManifest`) next to a metrics.jsonl, .csv or .parquet
    a file of rows                variant, seed, step, metric, value, or wide by a layout; JSON lines, CSV or Parquet

The first two can be *bound*: each run names the registration it was made under, and says that it began after it. That
is its maker's word; the hash shows which registration the maker had, for nobody can name one that was not yet written.
What is not bound is taken in as exploratory or not at all, and then no verdict comes from it
(`ablate.judge.audit.audit`). A name from a source becomes part of a path only after the plan is found to hold it.

To add a form of source: a reader here that gives rows by cell, a branch in `read_runs`, tests/records/test_import.py,
and docs/how-to. A tracker goes into `ablate.records.tracked`, another kind of file into `ablate.records.tables`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from ablate.records.outcome import OF_METRICS, outcome_hash
from ablate.records.provenance import NOT_STATED, of_command
from ablate.records.rows import (
    OWN_RUN,
    LineError,
    Row,
    TableLayout,
    cell_text,
    divergence_of,
    lacking,
    read_bytes,
    require_range,
    rows_by_run,
    until,
)
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder, parquet_bytes, record_bytes
from ablate.records.tables import FREE_ROWS, LONG, MOST_ROWS, read_table
from prereg.errors import EvidenceError, StudyError, Where, nearest
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes, sha256_file, sha256_of
from prereg.registry.disk import move, write_whole
from prereg.registry.ledger_entry import Entry, FailedEntry, SealEntry
from prereg.registry.plan import Cell, needed_metrics
from prereg.registry.registration import Registration
from prereg.study.command import MetricsFile
from prereg.study.removed import config_without_removed
from prereg.study.spec import Study
from prereg.study.training import Training

CLOCKS_APART = timedelta(minutes=10)
"""How far the clocks of two machines may differ before a time is taken for one in the future."""
_OF_IMPORTED = OF_METRICS | {"study": "string", "registration": "string"}
"""Columns of a sealed table that must be the record's own: of another study they could be of another promise."""


class Made(FrozenModel):
    """When one run of a manifest was made."""

    variant: str
    """The arm."""
    seed: int
    """The seed."""
    started_at: str
    """Its start, ISO 8601 with offset."""
    ended_at: str
    """Its end."""


class ImportManifest(FrozenModel):
    """What the maker of tidy rows says of them: under which registration, when, with which code."""

    registration: str
    """sha256 of the registration: what a command is handed as ABLATE_REGISTRATION."""
    runs: tuple[Made, ...]
    """Every run of the file next to it."""
    code: dict[str, str] = {}
    """Path from the root -> sha256, of the files of the trainer's code, and of the data that the study pins; where arms
    are commits, in place of their files ARM -> full hash of the commit."""


@dataclass(frozen=True)
class Piece:
    """One run, ready to be put in its place: the bytes of its record and of its metrics."""

    variant: str
    seed: int
    record: RunRecord
    run_json: bytes
    metrics: bytes
    items: bytes | None = None
    """The scores of single items, where the run has some."""

    @property
    def seal(self) -> dict[str, Any]:
        """Its end and its hashes, as the fields of the entry that seals it."""
        return self.record.seal(sha256_bytes(self.run_json))


@dataclass(frozen=True)
class Terms:
    """What a source is compared with."""

    registration: Registration
    registered_at: str
    """When the ledger took the registration."""
    now: str
    """The time of the import, ISO 8601 with offset."""
    exploratory: bool
    """Whether runs that are not bound are taken in, too; a study that holds one gives no verdict."""
    only: Collection[Cell] = ()
    """(arm, seed) of the runs that are requested; all of the plan where it is empty."""
    layout: TableLayout = LONG
    tracked: dict[Cell, list[Row]] | None = None
    """The rows of a tracker, which is no file."""


def read_runs(source: Path, terms: Terms, unfinished: list[str] | None = None) -> tuple[Piece, ...]:
    """Every run of a source, in the order of the plan. Raises `EvidenceError` for the first thing that is wrong.

    Nothing is written: what comes back is bytes, which `put` lays in their places. Run folders of runs that have not
    ended, or failed, are left out, and named in `unfinished`.

        pieces = read_runs(Path("from-the-cluster"), Terms(registration, registered_at, now, exploratory=False))
        for piece in pieces:
            put(piece, RunFolder(root.run(study, registration.runs_sha256, piece.variant, piece.seed)))
    """
    # 1. Which of the three forms it is. Rows alone say nothing of their origin, so they are exploratory or refused.
    if source.is_dir() and (source / "manifest.json").is_file():
        piece_by_cell = _from_manifest(source, terms)
    elif source.is_dir():
        piece_by_cell = _from_folders(source, terms, [] if unfinished is None else unfinished)
    elif source.is_file() or terms.tracked is not None:
        if not terms.exploratory:
            raise EvidenceError(
                "rows that say neither when they were made nor under which registration",
                required="a manifest.json next to them, or run folders; see `ablate import --help`",
                fix="--exploratory imports them; a study that holds such runs gives no verdict",
                where=Where(file=source),
            )
        piece_by_cell = {
            cell: _sealed(terms, cell, rows, started=terms.now, ended=terms.now, code=NOT_STATED)
            for cell, rows in planned_rows(source, terms).items()
        }
    else:
        raise EvidenceError("no such file or folder", where=Where(file=source))
    # 2. Every requested run is there.
    for cell in terms.only:
        if cell not in piece_by_cell:
            raise EvidenceError(f"no run of {cell_text(cell)}", required="the runs of --only", where=Where(file=source))
    # In the order of the plan and not of the source, so that the ledger takes the same runs in the same order.
    study = terms.registration.study
    pieces = [piece_by_cell.get(cell) for cell in study.cells]
    return tuple(piece for piece in pieces if piece is not None)


def _from_folders(source: Path, terms: Terms, unfinished: list[str]) -> dict[Cell, Piece]:
    piece_by_cell: dict[Cell, Piece] = {}
    for path in sorted(source.rglob("run.json")):
        folder = RunFolder(path.parent)
        run_json = read_bytes(path)
        try:
            record = folder.read_record()
        except StudyError:
            record = None
        if record is None:
            raise EvidenceError("not a run record", required="what the trainer wrote", where=Where(file=path))
        cell = (record.variant, record.seed)
        # 1. Is it a run of the plan, has it ended, and is there no second one?
        if not _is_requested(terms, cell, path):
            continue
        if record.status not in ("done", "diverged"):
            unfinished.append(f"{cell_text(cell)}: {record.status}")
            continue
        if cell in piece_by_cell:
            raise EvidenceError(f"a second run of {cell_text(cell)}", required="each run once", where=Where(file=path))
        # 2. Does it hold what its record says?
        rows, metrics = _sealed_rows(folder, record, terms.registration.study.metrics)
        # An exploratory run is sealed anew: its record is of another registration, and ours must not repeat that.
        if terms.exploratory:
            code, start, end = record.provenance.code, record.started_at, record.ended_at or terms.now
            piece_by_cell[cell] = _sealed(terms, cell, rows, started=start, ended=end, code=code)
            continue
        # 3. Bound: made for this study, under this registration and after it, with the registered
        # configuration.
        study, registered_sha256 = terms.registration.study, terms.registration.sha256
        if record.study != study.study:
            raise _unbound(path, f"{cell_text(cell)} is of study '{record.study}'", f"study '{study.study}'")
        _require_bound(
            path,
            cell,
            terms,
            registration=record.registration,
            started=record.started_at,
            ended=record.ended_at,
        )
        if sha256_of(_recorded(record, study)) != sha256_of(_config(terms, record.variant)):
            raise EvidenceError(
                f"{cell_text(cell)} has another configuration",
                required=f"that of registration {registered_sha256}",
                where=Where(file=path),
            )
        # A bound run keeps its bytes: the hash that its maker may have published stays the one in our ledger.
        items = None if record.items_sha256 is None else read_bytes(folder.items_path)
        piece_by_cell[cell] = Piece(*cell, record, run_json, metrics, items)
    if not piece_by_cell and not terms.only:
        raise EvidenceError(
            f"no run has ended: {unfinished[0]}"
            if unfinished
            else "neither run.json nor manifest.json below this folder",
            required="run folders as `ablate run` leaves them, a manifest, or a file of rows",
            where=Where(file=source),
        )
    return piece_by_cell


def _from_manifest(source: Path, terms: Terms) -> dict[Cell, Piece]:
    place = source / "manifest.json"
    try:
        manifest = ImportManifest.model_validate_json(read_bytes(place))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise EvidenceError(f"{where}: {fault['msg']}", required="a manifest", where=Where(file=place)) from None
    # 1. One file of rows: with two, which one is judged would be a choice.
    files = [file for file in (source / f"metrics.{end}" for end in ("jsonl", "csv", "parquet")) if file.is_file()]
    if len(files) != 1:
        raise EvidenceError(
            f"{len(files)} files of rows next to the manifest",
            required="one of metrics.jsonl, metrics.csv, metrics.parquet",
            where=Where(file=place),
        )
    # 2. Manifest and rows name the same runs.
    made: dict[Cell, Made] = {}
    for times in manifest.runs:
        cell = (times.variant, times.seed)
        if made.setdefault(cell, times) is not times:
            raise EvidenceError(f"{cell_text(cell)} is given twice", where=Where(file=place))
        _is_requested(terms, cell, place)
    # Runs of one and not of the other: with --only the manifest may name more than is requested.
    table = planned_rows(files[0], terms)
    odd = sorted((made.keys() ^ table.keys()) if not terms.only else table.keys() - made.keys())
    if odd:
        lacks = "manifest" if odd[0] in table else "file of rows"
        raise EvidenceError(
            f"the {lacks} does not hold {cell_text(odd[0])}", required="the same runs in both", where=Where(file=place)
        )
    piece_by_cell = {}
    # 3. Each run sealed by our rules, in the words of the manifest on when and with what it was made.
    for cell, rows in table.items():
        started, ended = made[cell].started_at, made[cell].ended_at
        if not terms.exploratory:
            _require_bound(place, cell, terms, registration=manifest.registration, started=started, ended=ended)
        code = _code_of(terms, manifest.code, cell)
        piece_by_cell[cell] = _sealed(terms, cell, rows, started=started, ended=ended, code=code)
    return piece_by_cell


def _code_of(terms: Terms, stated: Mapping[str, str], cell: Cell) -> str:
    """The hash of the code and data that a manifest states of a run: file by file, or by the commit of its arm."""
    registration, (arm, _) = terms.registration, cell
    # An arm that is a commit states the commit and the data; otherwise every pinned file is stated by its path.
    pin = registration.commit_of(arm)
    if pin is not None:
        data = {path: sha256 for path, sha256 in stated.items() if path not in registration.study.arms}
        same = stated.get(arm) == pin.commit and data == {file.path: file.sha256 for file in registration.data_files}
        return registration.code_sha256(arm) if same else NOT_STATED if arm not in stated else sha256_of(dict(stated))
    # Of no pinned file there is nothing to state.
    return sha256_of(dict(stated)) if stated or not registration.files else NOT_STATED


def _sealed(terms: Terms, cell: Cell, rows: list[Row], *, started: str, ended: str, code: str) -> Piece:
    """A record and its seals for rows that had none, by the rules that hold for a run that is made here."""
    study = terms.registration.study
    divergence = divergence_of(rows, study.stable.diverged.loss_above)
    # A run that diverged lacks its last values by right: what it has up to there is the outcome.
    absent = lacking(rows, needed_metrics(study), whole_curve=bool(study.rule.arms_read)) if divergence is None else []
    # Exploratory runs may lack what claims read, since no verdict comes from them; a run without any row is none.
    if absent and (not rows or not terms.exploratory):
        raise EvidenceError(f"{cell_text(cell)}: {'; '.join(absent)}", required="what the claims read")
    rows_that_count, last = until(rows, None if divergence is None else divergence.step)
    record = RunRecord(
        format=1,
        study=study.study,
        registration=terms.registration.runs_sha256,
        variant=cell[0],
        seed=cell[1],
        status="done" if divergence is None else "diverged",
        divergence=divergence,
        attempts=1,
        config=_config(terms, cell[0]),
        steps=last,
        # Rows state neither tokens nor parameters: 0, and no guess.
        tokens=0,
        parameters=0,
        # This machine has not made the run: what it is stays out of the record.
        provenance=of_command(code).model_copy(update={"platform": NOT_STATED, "processor": NOT_STATED}),
        started_at=started,
        ended_at=ended,
    )
    metrics = parquet_bytes(record, rows_that_count)
    record = record.model_copy(
        update={"metrics_sha256": sha256_bytes(metrics), "outcome_sha256": outcome_hash(rows_that_count)}
    )
    return Piece(*cell, record, record_bytes(record), metrics)


def _require_bound(
    place: Path, cell: Cell, terms: Terms, *, registration: str, started: str, ended: str | None
) -> None:
    registered_sha256 = terms.registration.runs_sha256
    if registration not in terms.registration.lineage:
        raise _unbound(
            place, f"{cell_text(cell)} was made under registration {registration}", f"registration {registered_sha256}"
        )
    # Aware times of any offset: texts with different offsets do not compare.
    # A missing end is "" and no time: refused like any other text that is none.
    times = [_moment(text, place, cell) for text in (terms.registered_at, started, ended or "", terms.now)]
    registered, start, end, now = times
    # Only the start is held against the registration strictly: clocks that differ can at worst refuse an honest
    # run.
    if start < registered:
        raise _unbound(
            place,
            f"{cell_text(cell)} began {started}, before the registration of {terms.registered_at}",
            "runs made after the registration",
        )
    if end < start or end > now + CLOCKS_APART:
        wrong = "before it began" if end < start else "which has not come yet"
        raise _unbound(place, f"{cell_text(cell)} ended {ended}, {wrong}", "times that can be")


def _moment(text: str, place: Path, cell: Cell) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _unbound(place, f"{cell_text(cell)} has the time '{text[:40]}'", "ISO 8601 with an offset from UTC")
    return moment


def _unbound(place: Path, fault: str, required: str) -> EvidenceError:
    return EvidenceError(
        fault,
        required=required,
        fix="--exploratory takes it in all the same; a study that holds such runs gives no verdict",
        where=Where(file=place),
    )


def _is_requested(terms: Terms, cell: Cell, place: Path) -> bool:
    """Whether a cell is requested. Nothing outside the plan is passed over in silence."""
    study = terms.registration.study
    # Before the plan: with --only, what else a source holds is its owner's affair.
    if terms.only and cell not in terms.only:
        return False
    if cell[0] not in study.trained:
        fault = f"{json.dumps(cell[0])[:80]} is no variant of '{study.study}'"
        fix = nearest(cell[0], study.trained)
        raise EvidenceError(fault, required="one of " + ", ".join(study.trained), fix=fix, where=Where(file=place))
    if cell[1] not in study.seeds_of(cell[0]):
        raise EvidenceError(
            f"seed {cell[1]} of {cell[0]} is not planned",
            required="no seed added: one of " + ", ".join(map(str, study.seeds_of(cell[0]))),
            where=Where(file=place),
        )
    return True


def planned_rows(path: Path, terms: Terms) -> dict[Cell, list[Row]]:
    """The rows of those runs of a file that are requested."""
    table = read_table(path, terms.layout) if terms.tracked is None else terms.tracked
    rows_by_cell = {cell: rows for cell, rows in table.items() if _is_requested(terms, cell, path)}
    for cell, rows in rows_by_cell.items():
        for row in rows:
            try:
                require_range(row.metric, row.value, terms.registration.study.metrics.range_of(row.metric))
            except LineError as fault:
                raise EvidenceError(
                    f"{cell_text(cell)}, step {row.step}: {fault}",
                    required="values in the unit in which the claims and their margins are written",
                    fix=fault.fix,
                    where=Where(file=path),
                ) from None
    return rows_by_cell


def _sealed_rows(folder: RunFolder, record: RunRecord, layout: MetricsFile) -> tuple[list[Row], bytes]:
    """The rows of a run folder, each of them the record's own and as strict as any, and the bytes that hold them."""
    path = folder.sealed_path
    # 1. The files are those that run.json sealed, and give its outcome.
    fault = next(iter(folder.faults(record)), "")
    table = fault or folder.read_metrics(record, _OF_IMPORTED)
    if isinstance(table, str):
        raise EvidenceError(table, required="the run as its run.json sealed it")
    # A seal is the maker's own hash. It says nothing of how many rows a few bytes decode to, nor of their values.
    data = read_bytes(path)
    if len(table) > (most := min(MOST_ROWS, FREE_ROWS + len(data))):
        raise EvidenceError(f"{len(table):,} rows", required=f"at most {most:,}", where=Where(file=path))
    # 2. The values pass the rules for any stranger's rows: none twice, none out of range, all finite.
    records = ({"step": row.step, "metric": row.metric, "value": row.value} for row in folder.sealed_rows())
    try:
        rows = rows_by_run(enumerate(records, start=1), LONG, layout.range_of, own=True).get(OWN_RUN, [])
        odd = next((number for number, row in enumerate(rows, start=1) if not isfinite(row.value)), None)
        if odd is not None:
            raise LineError("a value that is not finite", line=odd)
    except LineError as error:
        required = "finite values, in the unit in which the claims and their margins are written, each once"
        raise EvidenceError(
            f"row {error.line}: {error}", required=required, fix=error.fix, where=Where(file=path)
        ) from None
    return rows, data


def _recorded(record: RunRecord, study: Study) -> dict[str, JsonValue]:
    """Return the configuration in a record, without the removed fields that an earlier version wrote."""
    try:
        return record.config if study.trainer == "command" else config_without_removed(record.config)
    except ValueError:  # it uses one, so that it is not the registered configuration
        return record.config


def _config(terms: Terms, variant: str) -> dict[str, JsonValue]:
    config = terms.registration.study.trained[variant].config
    return config.model_dump(mode="json") if isinstance(config, Training) else dict(config)


def put(piece: Piece, folder: RunFolder) -> None:
    """Lay a run in its place, whole or not at all: a folder next to it is filled and then renamed.

    Raises `OSError` where the place holds anything: no run is ever replaced.
    """
    # Next to it, since a rename across file systems would be a copy that a crash can cut in two.
    # The record is written last and the rename is the only step that shows the run: a crash leaves a hidden folder.
    staging = folder.path.with_name(f".{folder.path.name}.import")
    staging.mkdir(parents=True, exist_ok=True)
    write_whole(staging / folder.sealed_path.name, piece.metrics)
    if piece.items is not None:
        write_whole(staging / folder.items_path.name, piece.items)
    write_whole(staging / folder.record_path.name, piece.run_json)
    if folder.path.is_dir():
        folder.path.rmdir()  # only an empty one: anything else in it is an error, and stays
    move(staging, folder.path)


def already_placed(piece: Piece, folder: RunFolder, entries: Iterable[Entry]) -> tuple[bool, bool]:
    """(in the ledger, in its place) of this very run. Another run of the cell is never replaced: `EvidenceError`."""
    # The newest end and not the newest seal: a run that failed on record is not replaced either.
    ends_on_record = [
        entry
        for entry in entries
        if isinstance(entry, SealEntry | FailedEntry)
        and entry.registration == piece.record.registration
        and entry.cell == (piece.variant, piece.seed)
    ]
    cell = cell_text((piece.variant, piece.seed))
    run_sha256 = piece.seal["run_sha256"]
    if ends_on_record and not (
        isinstance(ends_on_record[-1], SealEntry) and ends_on_record[-1].run_sha256 == run_sha256
    ):
        raise EvidenceError(
            f"the ledger has another run of {cell} ({ends_on_record[-1].event}, entry {ends_on_record[-1].index})",
            required="cells that have no run yet: no run is ever replaced",
            fix="--only ARM/SEED takes some runs of a source",
        )
    # An empty folder is what an interrupted command may leave, and is free.
    is_occupied = folder.path.is_dir() and any(folder.path.iterdir())
    if is_occupied and not (folder.record_path.is_file() and sha256_file(folder.record_path) == run_sha256):
        raise EvidenceError(
            f"a run of {cell} lies in {folder.path}",
            required="cells that have no run yet: no run is ever replaced",
            fix="ablate run, if it was interrupted; --only ARM/SEED takes other runs of the source",
        )
    return bool(ends_on_record), is_occupied


def is_replayed(record: RunRecord, registered_at: str) -> bool:
    """Whether a run says that it began before the registration: its outcome may have been known by then."""
    try:
        return datetime.fromisoformat(record.started_at) < datetime.fromisoformat(registered_at)
    except (ValueError, TypeError):  # no time, or one without an offset
        return False
