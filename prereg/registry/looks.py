"""Looks of a sequential study: which are planned, which the ledger says were taken, which comes next.

All seeds up to the last look are planned and registered. A look needs every run of its first seeds, and sees no other.
What a look concludes is the judge's; here are only its place and its record, which running and judging both read.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

from prereg.errors import EvidenceError
from prereg.frozen import FrozenModel
from prereg.registry.ledger_entry import DecidedEntry, Entry, LookedEntry, PeekedEntry
from prereg.registry.plan import newest_seals, plan
from prereg.registry.registration import Registration
from prereg.study.analysis import Looks
from prereg.study.spec import Study


class Look(FrozenModel):
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
        """The look as a sentence says it.

        >>> Look(number=1, of=2, n_seeds=3).words
        'look 1 of 2, at 3 seeds'
        """
        return f"look {self.number} of {self.of}, at {self.n_seeds} seeds"


def looks_of(study: Study) -> tuple[Look, ...]:
    """The planned looks; none for a fixed number of seeds.

    >>> study = Study.from_yaml("studies/own.yaml")
    >>> looks_of(study)
    ()
    >>> sequential = study.model_copy(update={"stopping": Looks(looks=(2, 3))})
    >>> [look.words for look in looks_of(sequential)]
    ['look 1 of 2, at 2 seeds', 'look 2 of 2, at 3 seeds']
    """
    sizes = study.stopping.looks if isinstance(study.stopping, Looks) else ()
    return tuple(Look(number=at, of=len(sizes), n_seeds=size) for at, size in enumerate(sizes, start=1))


def require_registered_look(study: Study, look: Look | None) -> None:
    """Refuse a sequential study judged by a fixed rule, and the reverse: the error rate would not be the promised."""
    # Both mistakes break the error rate: no look where there are some, and a look that is none of them.
    looks = looks_of(study)
    if looks and look is None:
        raise EvidenceError(
            f"'{study.study}' has {len(looks)} registered looks and was to be judged as if its seeds were fixed",
            required="a look: tests at the full level at each of several looks err more often than alpha",
            fix="ablate decide, which finds the look that is due",
        )
    if look is not None and look not in looks:
        raise EvidenceError(
            f"'{study.study}' was to be judged at {look.words}, which is not registered",
            required="one of its looks: " + "; ".join(planned.words for planned in looks)
            if looks
            else "all its seeds at once: the study has a fixed number of them",
            fix="ablate decide, which judges what was registered",
        )


def taken_looks(entries: Iterable[Entry], lineage: Collection[str]) -> tuple[LookedEntry, ...]:
    """Every look the ledger holds of registrations that share their runs, in its order.

    >>> from prereg.registry.ledger_entry import LookedEntry
    >>> about = {"study": "own", "registration": "a1", "at": "2026-01-02T03:04:05+00:00", "evidence": "e0"}
    >>> first = LookedEntry(**about, look=1, of=2, seeds=3, final=False)
    >>> [entry.look for entry in taken_looks([first], lineage=["a1"])], taken_looks([first], lineage=["b2"])
    ([1], ())
    """
    return tuple(entry for entry in entries if isinstance(entry, LookedEntry) and entry.registration in lineage)


def next_look(study: Study, taken: Sequence[LookedEntry]) -> Look | None:
    """The first look after the last one taken; none after the one that ended the study."""
    # A look that ended the study is the last word; seeds that were added later open no further one.
    if any(entry.final for entry in taken):
        return None
    done = max((entry.look for entry in taken), default=0)
    return next((look for look in looks_of(study) if look.number > done), None)


def due_look(registration: Registration, entries: Iterable[Entry], begun: Container[int]) -> Look | None:
    """The look that is due in a study of which the seeds in `begun` have runs; none for a fixed number of seeds.

    The first that was not taken, but for two: a look that ended the study stays the last word, and a look is reported
    again while no run of a later seed exists.
    """
    study = registration.study
    # 1. No look was taken: the first is due.
    looks, taken = looks_of(study), taken_looks(entries, registration.lineage)
    if not looks or not taken:
        return looks[0] if looks else None
    # 2. One ended the study: it stays.
    ended = next((entry for entry in taken if entry.final), None)
    if ended is not None:
        return _numbered(looks, ended.look)
    # 3. Otherwise the next one, as soon as a run of a later seed exists; until then the last is shown again.
    last = _numbered(looks, max(entry.look for entry in taken))
    due = next_look(study, taken)
    return last if due is None or not any(seed in begun for seed in study.seeds[last.n_seeds :]) else due


def _numbered(looks: tuple[Look, ...], number: int) -> Look:
    """The planned look of that number; a number that no plan holds is read as the last, and the audit names it."""
    return next((look for look in looks if look.number == number), looks[-1])


def recorded_afterwards(entries: Iterable[Entry]) -> tuple[PeekedEntry, ...]:
    """The early looks that were recorded after they took place: their place in the ledger is not that of the look."""
    return tuple(entry for entry in entries if isinstance(entry, PeekedEntry) and entry.took_place)


def decisions_before(entries: Iterable[Entry], lineage: Collection[str], head: str) -> tuple[DecidedEntry, ...]:
    """The decisions on runs of these registrations before the entry with the hash `head`; all if none has it."""
    decisions: list[DecidedEntry] = []
    for entry in entries:
        if entry.sha256 == head:
            break
        if isinstance(entry, DecidedEntry) and entry.registration in lineage:
            decisions.append(entry)
    return tuple(decisions)


def is_unfinished(registration: Registration, entries: Iterable[Entry]) -> bool:
    """Whether planned runs of a registration are not sealed and the ledger has no decision on it.

    A look that ended it is a decision too: the proposal of a campaign has no other.
    """
    # Runs and decisions of registrations that share their runs with this one count too.
    mine = [entry for entry in entries if entry.registration in registration.lineage]
    sealed = newest_seals(mine, registration.runs_sha256)
    decided = any(entry.event == "decided" or (isinstance(entry, LookedEntry) and entry.final) for entry in mine)
    return not decided and any(spec.cell not in sealed for spec in plan(registration))
