"""A run from elsewhere in its place, whole or not at all, and never over another run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ablate.records.imports import Piece
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.records.tables import said
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_file
from prereg.registry.disk import move, write_whole
from prereg.registry.ledger_entry import SEALS, Entry
from prereg.registry.plan import cell_of


def put(piece: Piece, folder: RunFolder) -> None:
    """Lay a run in its place, whole or not at all: a folder next to it is filled and then renamed."""
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
    known = [
        entry
        for entry in entries
        if entry.event in (*SEALS, "failed")
        and entry.registration == piece.record.registration
        and cell_of(entry) == (piece.variant, piece.seed)
    ]
    cell = said((piece.variant, piece.seed))
    wanted = piece.body["run_sha256"]
    if known and known[-1].body.get("run_sha256") != wanted:
        raise EvidenceError(
            f"the ledger has another run of {cell} ({known[-1].event}, entry {known[-1].index})",
            required="cells that have no run yet: no run is ever replaced",
            fix="--only ARM/SEED takes some runs of a source",
        )
    there = folder.path.is_dir() and any(folder.path.iterdir())
    if there and not (folder.record_path.is_file() and sha256_file(folder.record_path) == wanted):
        raise EvidenceError(
            f"a run of {cell} lies in {folder.path}",
            required="cells that have no run yet: no run is ever replaced",
            fix="ablate run, if it was interrupted; --only ARM/SEED takes other runs of the source",
        )
    return bool(known), there


def is_replayed(record: RunRecord, registered_at: str) -> bool:
    """Whether a run says that it began before the registration: its outcome may have been known by then."""
    try:
        return datetime.fromisoformat(record.started_at) < datetime.fromisoformat(registered_at)
    except (ValueError, TypeError):  # no time, or one without an offset
        return False
