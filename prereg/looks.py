"""The looks of a sequential study: which are planned, which the ledger says were taken, which comes next.

All seeds up to the last look are planned and registered. A look needs every run of its first seeds, and sees no other.
What a look concludes is the judge's; here are only its place and its record, which running and judging both read.
"""

from __future__ import annotations

from collections.abc import Iterable

from prereg.analysis import Looks
from prereg.ledger import Entry
from prereg.part import Part
from prereg.spec import Study

FIRST_OF_E_PROCESS = 3
"""Seeds before the first look of an e-process: with two, no data whatever could decide at a usual level."""


class Look(Part):
    """A planned look at the evidence."""

    number: int
    """Which look, from 1."""
    of: int
    """How many are planned."""
    n_seeds: int
    """It sees the first so many seeds."""

    @property
    def last(self) -> bool:
        """Whether no look follows."""
        return self.number == self.of

    @property
    def words(self) -> str:
        """The look as a sentence says it."""
        return f"look {self.number} of {self.of}, at {self.n_seeds} seeds"


class Taken(Part):
    """A look that the ledger says was taken."""

    number: int
    """Which look, from 1."""
    evidence: str
    """sha256 of the evidence it saw."""
    final: bool
    """Whether it ended the study."""


def looks_of(study: Study) -> tuple[Look, ...]:
    """The planned looks; none for a fixed number of seeds."""
    if study.stopping == "fixed":
        return ()
    if isinstance(study.stopping, Looks):
        sizes: tuple[int, ...] = study.stopping.looks
    else:
        most = study.stopping.max_seeds
        sizes = tuple(range(min(FIRST_OF_E_PROCESS, most), most + 1))
    return tuple(Look(number=at, of=len(sizes), n_seeds=size) for at, size in enumerate(sizes, start=1))


def taken_looks(entries: Iterable[Entry], registration: str) -> tuple[Taken, ...]:
    """Every look the ledger holds of a registration, in its order."""
    return tuple(
        Taken(
            number=int(str(entry.body.get("look"))),
            evidence=str(entry.body.get("evidence")),
            final=entry.body.get("final") is True,
        )
        for entry in entries
        if entry.event == "looked" and entry.registration == registration
    )


def next_look(study: Study, taken: tuple[Taken, ...]) -> Look | None:
    """The first look after the last one taken; none after the one that ended the study."""
    if any(look.final for look in taken):
        return None
    done = max((look.number for look in taken), default=0)
    return next((look for look in looks_of(study) if look.number > done), None)
