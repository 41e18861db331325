"""Taking in runs that were made elsewhere: read all, compare with what is here, then ledger and place, run by run.

The ledger takes a run before its folder is put in place, each at once and whole. A crash in between leaves an entry
whose run is not there yet: the same import again completes it, and adds no second entry. Twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.chain.case import Clock, open_case, require_registered, utc_now

if TYPE_CHECKING:
    from prereg.registry.registration import Registration


@dataclass(frozen=True)
class Imported:
    """What a call of `bring` did."""

    registration: Registration
    taken: tuple[str, ...]
    """Runs taken in now, ARM/SEED."""
    standing: tuple[str, ...]
    """Runs that were here already, the same bytes."""
    bound: bool
    missing: int
    """Planned runs that are neither here nor in the source."""
    head: str


def bring(
    path: str | Path,
    source: Path,
    *,
    note: str,
    exploratory: bool = False,
    only: Sequence[str] = (),
    root: Path | None = None,
    now: Clock = utc_now,
) -> Imported:
    """Take runs of a source into the house; bound to the registration, or exploratory."""
    from ablate.records.imports import Terms, read_source
    from ablate.records.placing import put, standing
    from ablate.records.store import RunFolder
    from ablate.runner.local import study_lock
    from prereg.errors import EvidenceError
    from prereg.registry.canon import sha256_of
    from prereg.registry.ledger import Ledger
    from prereg.registry.plan import plan

    case = open_case(Path(path), root)
    registration = require_registered(case)
    name, ledger = case.study.study, Ledger(case.root.ledger)
    if not note.strip() or len(note) > 2000:
        raise EvidenceError(
            "an import without a note" if not note.strip() else f"a note of {len(note):,} characters",
            required="where the runs come from, in words; it goes into ledger and report",
            fix='--note "eight nodes of the cluster, made by ablate run from the same lock"',
        )
    registered_at = next(
        entry.at
        for entry in ledger.entries()
        if entry.event in ("registered", "amended") and entry.registration == registration.sha256
    )
    at = now()
    terms = Terms(registration, registered_at, at, exploratory, tuple(_cell(word) for word in only))
    with study_lock(case.root, name):
        pieces = read_source(source, terms)
        folders = [RunFolder(case.root.run(name, registration.sha256, one.variant, one.seed)) for one in pieces]
        found = [standing(one, folder, ledger.entries()) for one, folder in zip(pieces, folders, strict=True)]
        whole = sha256_of([piece.body for piece in pieces])
        taken: list[str] = []
        there: list[str] = []
        for piece, folder, (known, placed) in zip(pieces, folders, found, strict=True):
            said = f"{piece.variant}/{piece.seed}"
            (there if known and placed else taken).append(said)
            if not known:
                body = {**piece.body, "bound": not exploratory, "note": note.strip(), "import_sha256": whole}
                ledger.append("imported", study=name, registration=registration.sha256, body=body, at=at)
            if not placed:
                put(piece, folder)
        runs = [RunFolder(case.root.run(name, registration.sha256, s.variant, s.seed)) for s in plan(registration)]
        missing = sum(not folder.record_path.is_file() for folder in runs)
    return Imported(registration, tuple(taken), tuple(there), not exploratory, missing, ledger.head())


def _cell(word: str) -> tuple[str, int]:
    from prereg.errors import EvidenceError

    arm, _, seed = word.rpartition("/")
    if not arm or not seed.isdecimal():
        raise EvidenceError(f"--only {word}", required="ARM/SEED", fix="--only layernorm/3")
    return arm, int(seed)
