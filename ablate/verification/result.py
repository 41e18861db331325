"""What a verification says: one item for each thing that was checked."""

from __future__ import annotations

from prereg.frozen import FrozenModel
from prereg.seals.examine import SealCheck


class Item(FrozenModel):
    """One thing that was checked."""

    study: str
    """The study, or `ledger`."""
    what: str
    """For instance 'sealed records'."""
    faults: tuple[str, ...]
    """What has changed, one sentence each; empty when nothing has."""
    note: str = ""
    """What was found, with counts, or why it could not be checked."""
    inadmissible: bool = False
    """Whether the judge gives no verdict from what is here, be it as it was decided."""


class Verification(FrozenModel):
    """Everything that was checked."""

    items: tuple[Item, ...]
    """In order."""
    head: str
    """The ledger's head hash, to be compared with one that somebody else holds."""
    seals: tuple[SealCheck, ...] = ()
    """Every seal that the ledger names or owes; what is broken is among the faults of `items` too."""

    @property
    def intact(self) -> bool:
        """Whether nothing has changed."""
        return not any(item.faults for item in self.items)

    @property
    def inadmissible(self) -> bool:
        """Whether a decided study is one of which `ablate decide` gives no verdict."""
        return any(item.inadmissible for item in self.items)
