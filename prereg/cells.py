"""Which run an entry of the ledger is of, and the newest seal of every run.

Nothing is raised for an entry that lacks parts: a ledger may have been made by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from prereg.ledger import SEALS, Entry
from prereg.root import Root

Cell = tuple[str, int]
"""A run by its variant and seed."""


def cell_of(entry: Entry) -> Cell:
    """The run that an entry speaks of; the seed is -1 where it does not say, and then no run has it."""
    variant, seed = entry.body.get("variant"), entry.body.get("seed")
    return str(variant), seed if isinstance(variant, str) and isinstance(seed, int) else -1


def newest_seals(entries: Iterable[Entry], registration: str) -> dict[Cell, Entry]:
    """The newest seal of every run of a registration, whoever made it, in the order of their first seals.

    A seal may lack every hash. One that does not name its run stands under a cell with the seed -1.
    """
    return {cell_of(entry): entry for entry in entries if entry.event in SEALS and entry.registration == registration}


def sealed_places(root: Root, entries: Sequence[Entry]) -> dict[str, dict[Path, Entry]]:
    """Under each registration: the folder of every run that the ledger sealed, and its newest seal.

    A registration without seals is absent, and so is a seal that does not name its run.
    """
    return {
        registration: {
            root.run(entry.study, registration, *cell): entry
            for cell, entry in newest_seals(entries, registration).items()
            if cell[1] >= 0
        }
        for registration in dict.fromkeys(entry.registration for entry in entries if entry.event in SEALS)
    }
