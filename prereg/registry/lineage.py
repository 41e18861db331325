"""Which registrations of a study share their runs: an amendment that changes nothing that runs depend on keeps them.

The runs of a study lie in the folder of the registration that first planned them, and their records and entries name
that one, its base. An `amended` entry that keeps the runs names the base in `runs_of`; without it the runs are made
anew, under the amended registration itself. So no change of words, beliefs, claims or rule gives runs another chance.
"""

from __future__ import annotations

from collections.abc import Iterable

from prereg.registry.ledger_entry import PROMISES, Entry


def bases_of(entries: Iterable[Entry]) -> dict[str, str]:
    """Registration -> the registration whose folder holds its runs, of every registration in these entries."""
    bases: dict[str, str] = {}
    for entry in entries:
        if entry.event in PROMISES:
            stated = entry.body.get("runs_of")
            # A study that is amended back to what it was has the runs that it had.
            bases[entry.registration] = bases.get(entry.registration) or (
                stated if isinstance(stated, str) and stated in bases.values() else entry.registration
            )
    return bases


def lineage_of(entries: Iterable[Entry], registration: str) -> tuple[str, ...]:
    """The registrations that share their runs with one, itself among them: first the one whose folder holds them."""
    bases = bases_of(entries)
    base = bases.get(registration, registration)
    return (base, *(one for one, its in bases.items() if its == base and one != base))
