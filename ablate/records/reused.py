"""Reused runs: sealed runs of base that an earlier comparison made, read as a registration names them.

Their bytes stay what they are: a record names the comparison that made it, and a copy has the same hashes. So whoever
has the copies alone, as a bundle has, can check it against the seal that the ledger holds.
"""

from __future__ import annotations

from ablate.records.imports import Piece
from ablate.records.store import RunFolder
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.paths import Root
from prereg.registry.registration import ReusedRun


def read_reused(root: Root, run: ReusedRun) -> Piece:
    """The run as it was sealed. Raises `EvidenceError` where it is not here, or is other bytes."""
    folder = RunFolder(root.run(run.study, run.registration, *run.cell))
    record = folder.read_record()
    data = folder.record_path.read_bytes() if record is not None else b""
    faults = [f"{root.relative(folder.record_path)} is not what the lock names"]
    if record is not None and sha256_bytes(data) == run.run_sha256:
        faults = [root.shortened(fault) for fault in folder.faults(record)]
        if not faults:
            items = None if record.items_sha256 is None else folder.items_path.read_bytes()
            return Piece(*run.cell, record, data, folder.sealed_path.read_bytes(), items)
    raise EvidenceError(
        f"base seed {run.seed} of '{run.study}' is used again, and {faults[0]}",
        required=f"the run as it was sealed on {run.sealed_at}",
        fix=f"restore {root.relative(folder.path)} from where it was made",
    )
