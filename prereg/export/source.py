"""What a document is written from: a study, and where it is registered its lock and its entries in the ledger.

Entries that come after the registration (starts, seals, decisions) are left out, so that the document of a registration
does not change while the study runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from prereg.ledger import Entry, Ledger
from prereg.registration import Registration, load_registration
from prereg.root import Root
from prereg.spec import Study


@dataclass(frozen=True)
class Source:
    """A study to be told."""

    study: Study
    registration: Registration | None = None
    """None for a draft."""
    entries: tuple[Entry, ...] = ()
    """The ledger's entries that registered and amended it, oldest first."""

    @property
    def draft(self) -> bool:
        return self.registration is None

    @property
    def entry(self) -> Entry:
        """The entry of the registration in force."""
        assert self.entries, self.study.study
        return self.entries[-1]


def registered_source(root: Root, name: str) -> Source | None:
    """The source of a registered study; none when it is not registered."""
    registration = load_registration(root, name)
    if registration is None:
        return None
    entries = tuple(
        entry
        for entry in Ledger(root.ledger).readable()
        if entry.study == name and entry.event in ("registered", "amended")
    )
    return Source(registration.study, registration, entries)
