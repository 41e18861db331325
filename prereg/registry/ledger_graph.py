"""Order of the entries of a ledger that git has merged: a graph of which line names which as the one before.

An entry names the entry before it by its hash, and the first one after a merge names the last of both sides. So the
order within a branch shows, as in git. Of entries of two branches neither of which had the other's, the clocks alone
say which came first.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from prereg.registry.ledger_entry import Entry, Event
from prereg.registry.ledger_lines import Withheld

_ON_ANY_BRANCH: set[Event] = {"reported", "attested"}
"""Events beside which another branch may have done anything with a study."""
_READ_ALONE: set[Event] = {"decided", "reported", "attested"}
"""Events that two branches may each have written, since nothing of a study changes by them."""


@dataclass(frozen=True)
class _Place:
    """A place in the graph: which stretch without a fork, how far in it, and how far other stretches lie behind it."""

    stretch: int
    at: int
    behind: Mapping[int, int]


class Descent:
    """Which entries were written by somebody who had which others."""

    def __init__(self, entries: Iterable[Entry | Withheld] = ()) -> None:
        self._places: dict[str, _Place] = {}
        self._ends: dict[int, str] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry | Withheld) -> None:
        """Take in an entry; those that it names come before it, or are not known."""
        # A stretch is a run of entries without a fork. `behind` says for each other stretch how far back its
        # entries are ancestors, so that `follows` compares two numbers and walks no graph.
        named = [self._places[sha256] for sha256 in (entry.previous, *entry.joins) if sha256 in self._places]
        if len(named) == 1 and self._ends[named[0].stretch] == entry.previous:
            place = _Place(named[0].stretch, named[0].at + 1, named[0].behind)
        else:
            behind: dict[int, int] = {}
            for earlier in named:
                for stretch, at in (*earlier.behind.items(), (earlier.stretch, earlier.at)):
                    behind[stretch] = max(at, behind.get(stretch, 0))
            place = _Place(len(self._ends), 0, behind)
        self._places[entry.sha256] = place
        self._ends[place.stretch] = entry.sha256

    def follows(self, later: str, earlier: str) -> bool:
        """Whether the entry of one hash is that of the other, or comes after it on the same line of descent."""
        after, before = self._places[later], self._places[earlier]
        if after.stretch == before.stretch:
            return after.at >= before.at
        return after.behind.get(before.stretch, -1) >= before.at


def is_merged(entries: Iterable[Entry | Withheld]) -> bool:
    """Whether the entries are of more than one branch: some name two before them, or two name the same.

    >>> first = Withheld(index=0, previous="0", joins=(), sha256="a")
    >>> here, there = (Withheld(index=1, previous="a", joins=(), sha256=sha256) for sha256 in "bc")
    >>> is_merged([first, here]), is_merged([first, here, there])
    (False, True)
    """
    previous: set[str] = set()
    for entry in entries:
        if entry.joins or entry.previous in previous:
            return True
        previous.add(entry.previous)
    return False


def heads(entries: Iterable[Entry | Withheld]) -> list[Entry | Withheld]:
    """The entries that no other follows, the one with the largest index first: of several, the next entry names all.

    >>> first = Withheld(index=0, previous="0", joins=(), sha256="a")
    >>> here, there = (Withheld(index=1, previous="a", joins=(), sha256=sha256) for sha256 in "bc")
    >>> [entry.sha256 for entry in heads([first, here, there])]
    ['b', 'c']
    >>> joined = Withheld(index=2, previous="b", joins=("c",), sha256="d")
    >>> [entry.sha256 for entry in heads([first, here, there, joined])]
    ['d']
    """
    # By index, then hash: the order must be the same on every machine, whatever side of the merge its lines are.
    unfollowed = {entry.sha256: entry for entry in entries}
    for entry in tuple(unfollowed.values()):
        for sha256 in (entry.previous, *entry.joins):
            unfollowed.pop(sha256, None)
    return sorted(unfollowed.values(), key=lambda entry: (-entry.index, entry.sha256))


def places(entries: Sequence[Entry]) -> dict[str, int]:
    """Hash -> place of every entry in one order that all descent keeps; between branches, the earlier time is first.

    It depends on the entries alone, and not on which side of a merge their lines stand.
    """
    if not is_merged(entries):
        return {entry.sha256: at for at, entry in enumerate(entries)}
    # Kahn's (1962) topological order with a heap: of entries whose ancestors are all placed, the earliest comes
    # next.
    here = {entry.sha256: entry for entry in entries}
    following: dict[str, list[Entry]] = defaultdict(list)
    waits_for: Counter[str] = Counter()
    for entry in entries:
        for sha256 in (entry.previous, *entry.joins):
            if sha256 in here:
                following[sha256].append(entry)
                waits_for[entry.sha256] += 1
    # By hash where times are equal, so that every machine has one order.
    free = [(_time(entry), entry.sha256) for entry in entries if not waits_for[entry.sha256]]
    heapq.heapify(free)
    place_by_hash: dict[str, int] = {}
    while free:
        _, sha256 = heapq.heappop(free)
        place_by_hash[sha256] = len(place_by_hash)
        for entry in following[sha256]:
            waits_for[entry.sha256] -= 1
            if not waits_for[entry.sha256]:
                heapq.heappush(free, (_time(entry), entry.sha256))
    return place_by_hash


def _time(entry: Entry) -> datetime:
    """The time of an entry; one that anybody wrote by hand may have none, and comes first."""
    try:
        at = datetime.fromisoformat(entry.at)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def continued_twice(chain: Sequence[Entry | Withheld]) -> dict[str, str]:
    """Study -> how it was continued on two branches, in a sentence; of studies that were.

    Of a slice the links count too: two entries of a study follow each other through those of other studies.
    Their runs, amendments and looks have no order, so that one side may have chosen by what the other had found.
    """
    if not is_merged(chain):
        return {}
    # Over the whole chain, links too; then study by study.
    descent, of_study = Descent(chain), defaultdict[str, list[Entry]](list)
    for entry in chain:
        if isinstance(entry, Entry):
            of_study[entry.study].append(entry)
    text_by_study = {}
    for study, mine in of_study.items():
        apart = _first_apart(descent, mine)
        if apart is not None:
            earlier, later = (f"{entry.event} of {entry.at}, {entry.sha256[:8]}" for entry in apart)
            text_by_study[study] = (
                f"'{study}' was continued on two branches ({earlier}; {later}), and has no verdict: undo the merge "
                "(git merge --abort, or git reset --merge ORIG_HEAD) and merge a branch without the commits that "
                "continued it, or register its question as another study"
            )
    return text_by_study


def _first_apart(descent: Descent, mine: Sequence[Entry]) -> tuple[Entry, Entry] | None:
    """Two entries of a study neither of which had the other, unless both may be written on any branch."""
    ends: list[Entry] = []
    for entry in mine:
        ends = [end for end in ends if not descent.follows(entry.sha256, end.sha256)]
        if ends:
            # Not the ends alone: entries of the other branch lie behind its end.
            for earlier in mine:
                if _matters(earlier, entry) and _are_apart(descent, earlier, entry):
                    return earlier, entry
        ends.append(entry)
    return None


def _matters(entry: Entry, other_entry: Entry) -> bool:
    """Whether it matters which of two entries of a study came first."""
    events = {entry.event, other_entry.event}
    return not (events & _ON_ANY_BRANCH or events <= _READ_ALONE)


def _are_apart(descent: Descent, entry: Entry, other_entry: Entry) -> bool:
    a, b = entry.sha256, other_entry.sha256
    return not descent.follows(a, b) and not descent.follows(b, a)
