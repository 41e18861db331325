"""The verb that signs or timestamps a registration, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ablate.verbs.options import Exit, Ots, RootFolder, Sign, StudyFile, Timestamp, put

if TYPE_CHECKING:
    from ablate.attest import Sealing

_HELD = {
    "the same bytes": "it holds the lock, byte for byte",
    "other bytes": "it holds other bytes in place of the lock: git commit, then ablate seal again",
    "absent": "it does not hold the lock yet: git commit, then ablate seal",
}


def seal(
    study: StudyFile,
    root: RootFolder = None,
    *,
    sign: Sign = None,
    timestamp: Timestamp = None,
    ots: Ots = False,
) -> None:
    """Sign or timestamp a registration; retry what is pending.

    With no option: retries what is pending, completes what calendars promised, and records the git commit. Ends
    with 5 while a seal is pending. What seals prove is printed by ablate verify.

    Example:  ablate seal studies/embnorm.yaml --sign ~/.ssh/id_ed25519
    """
    from ablate import attest

    sealing = attest.seal(study, root=root, sign=sign, timestamp=timestamp, ots=ots)
    tell_seals(sealing, study)
    if sealing.owed:
        raise typer.Exit(Exit.INCOMPLETE)


def tell_seals(sealing: Sealing, study: Path) -> None:
    """Print what was sealed, what is pending, and the ledger's head after it."""
    from prereg.seals.state import PROOFS

    for told in sealing.made:
        when = "" if told.time is None else f" at {told.time}"
        put(f"{PROOFS[told.kind].name}: {told.by}{when}")
        if told.file is not None:
            put(f"  wrote {told.file}")
        if told.git is not None:
            put(f"  {_HELD[told.git.lock]}")
            if not told.git.clean:
                put(f"  other files that differ from it, or are not in it: {told.git.n_changed}")
    for note in sealing.notes:
        put(note)
    for told in sealing.owed:
        put(f"{PROOFS[told.kind].name} PENDING: {told.why}")
        put(f"  retry:  ablate seal {study}")
    put(f"ledger head {sealing.head}")
