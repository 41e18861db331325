"""Ledger: the append-only, hash-chained log of every study of a repository, read and appended to (`Ledger.append`).

One canonical JSON object a line, each with the hash of the one before: order and edits show. A tail that was cut off,
or a ledger rewritten as a whole, does not show here; that is what the head hash in every report is for. The clock is
the caller's, and what the entries mean is for `prereg.registry.register` and the judge to say.

A merge of git that keeps the lines of both branches may leave them one side after the other or mixed, and a line may
stand above one that it follows. So of a merged ledger the hashes say what follows what, and not the order of its lines.

A slice (`sliced`) is a ledger in which the entries of other studies are reduced to their links. It is recognised by its
file name, which no project uses: in a project's ledger, a link in place of an entry is damage.
"""

from __future__ import annotations

import errno
import json
import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue

from prereg.errors import LedgerError, Where
from prereg.registry.canon import canonical_bytes, sha256_bytes
from prereg.registry.disk import open_regular, write_from
from prereg.registry.ledger_entry import FIRST, Entry
from prereg.registry.ledger_graph import Descent, continued_twice, heads, is_merged, places
from prereg.registry.ledger_lines import K, Reading, Withheld, entry_line, parsed, read_lines
from prereg.registry.ledger_lock import LedgerLock

_LARGEST_BYTES = 2**30
SLICE_NAME = "ledger.slice.jsonl"
"""The name of a ledger that may withhold entries. Nothing is ever appended to it."""


@dataclass(frozen=True)
class Sound:
    """A ledger as far as it is sound: every entry before the first damaged line."""

    entries: tuple[Entry, ...]
    """In order, each with the hash of the one before."""
    faults: tuple[str, ...]
    """Everything that is wrong, a sentence each, as `Ledger.faults` says it."""
    n_beyond: int
    """Complete lines from the first damaged one on: not vouched for, whatever they say."""
    torso_bytes: int
    """Length of an unfinished last line that is no whole entry; 0 when there is none."""
    head: str
    """As `Ledger.head`, of the last sound entry; 64 zeros when there is none."""


class Ledger:
    """The ledger at a path. Reading needs no rights but to read; appending takes a lock next to the file.

    Reading, and an append, which reads first, take in the whole file: nothing that they say rests on times or sizes.
    Lines that this process has verified are compared with what lies there now, and not verified again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = LedgerLock(path)
        self._sliced = path.name == SLICE_NAME

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, in order. Raises `LedgerError` naming the line when one is damaged."""
        reading, unended = self._checked()
        return reading.entries if unended is None else (*reading.entries, unended)

    def withheld(self) -> tuple[Withheld, ...]:
        """The entries that a slice reduces to their links; none in a whole ledger."""
        return self._read().withheld

    def readable(self) -> tuple[Entry, ...]:
        """The entries that are sound in themselves, of a ledger that may be damaged; `faults` says what is wrong."""
        try:
            return self.entries()
        except LedgerError:
            return self._read().entries

    def sound(self) -> Sound:
        """What can be believed of a ledger that may be damaged, for a reader; nothing is raised for damage."""
        reading = self._read()
        # 1. The entries before the first damaged line, and a whole last one that lacks only its end of line.
        entries, torso = reading.entries, len(reading.tail)
        # A merge may have left a line twice: without faults, every entry is sound whatever the number of lines.
        n_sound = reading.faults[0][0] - 1 if reading.faults else len(entries)
        if not reading.faults:
            with suppress(LedgerError):  # `faults` names a last line that is whole and damaged
                unended = self._whole_tail(reading)
                if unended is not None:
                    entries, torso = (*entries, unended), 0
                    n_sound += 1
        # 2. The head of that part; of branches that no entry has joined, the head of each.
        head = entries[n_sound - 1].sha256 if n_sound else FIRST
        if reading.joins and reading.last is not None:
            head = "+".join((reading.last, *reading.joins))
        return Sound(
            entries=entries[:n_sound],
            faults=tuple(self.faults()),
            n_beyond=max(0, reading.n_lines - n_sound) if reading.faults else 0,
            torso_bytes=torso,
            head=head,
        )

    def faults(self) -> list[str]:
        """Everything that is wrong, a sentence each, naming the line. Empty when the chain holds."""
        reading = self._read()
        faults = self._damage(reading)
        if reading.tail:
            last = f"{self.path.name}, line {reading.n_lines + 1}"
            faults.append(f"{last}: not ended; an append was cut off (the next one repairs it)")
        return faults

    def continued_twice(self) -> dict[str, str]:
        """Study -> in a sentence, how two branches continued it that git has merged; of studies that were.

        None of a damaged ledger, where a line that is missed would look like a branch.
        """
        reading = self._read()
        return {} if reading.faults else continued_twice(reading.chain)

    def damage(self) -> list[str]:
        """What is wrong with complete lines. An unfinished last line is what a crash leaves, and no damage."""
        return self._damage(self._read())

    def _damage(self, reading: Reading) -> list[str]:
        return [f"{self.path.name}, line {line}: {fault}" for line, fault in reading.faults]

    def unfinished(self) -> str | None:
        """What a crash left after the last complete line, in a sentence, or none. The next append repairs it."""
        self._refuse_slice()
        reading, unended = self._checked()
        if not reading.tail:
            return None
        if unended is not None:
            return f"{self.path.name}: the last entry lacks its end of line; the next one ends it, and says so"
        return (
            f"{self.path.name}: {len(reading.tail)} bytes of an entry that was never finished follow the last one; "
            "the next one cuts them back, and says so"
        )

    def head(self) -> str:
        """Hash of the last entry; 64 zeros for an empty ledger. Of branches that no entry has joined yet, the hash of
        each, with `+` between them. Raises `LedgerError` when damaged."""
        reading, unended = self._checked()
        last = reading.last if unended is None else unended.sha256
        assert last is not None, self.path  # a line that cannot be read is damage
        return "+".join((last, *(reading.joins if unended is None else ())))

    def append(self, entry: K, *, durable: bool = True) -> K:
        """Add one entry, and return it as the ledger holds it, with its index and hash.

        Other processes wait; a ledger whose end is damaged takes nothing more. Without `durable` a loss of power may
        take it; no end of a process does. What a crash left behind is repaired first, and the new entry says so: the
        torso of an entry is cut back (`cut_back`), a whole one that lacks its end of line gets it (`ended_line`).
        Raises `LedgerError` for a damaged ledger, a slice, and a disk that refuses.

        >>> from prereg.registry.ledger_entry import PeekedEntry
        >>> ledger = Ledger(Path("studies/ledger.jsonl"))
        >>> about = {"study": "own", "registration": "a1", "at": "2026-01-02T03:04:05+00:00"}
        >>> entry = ledger.append(PeekedEntry(**about, reason="a grant", ended=4, planned=6))
        >>> entry.index == len(ledger.entries()) - 1, ledger.head() == entry.sha256, entry.reason
        (True, True, 'a grant')
        """
        assert datetime.fromisoformat(entry.at).tzinfo is not None, entry.at
        self._refuse_slice()
        # Under the lock from the reading on: two processes that read the same head would both append after it.
        with self.hold():
            self._lock.create()
            reading, unended = self._checked()
            position, previous, next_index, joins = reading.n_bytes, reading.last, reading.next_index, reading.joins
            repaired: dict[str, JsonValue] = {}
            # What a crash left is repaired by the write that adds the entry: there is no moment between the two.
            if unended is not None:
                position += len(reading.tail)
                previous, next_index, joins = unended.sha256, unended.index + 1, ()
                repaired = {"ended_line": {"index": unended.index}}
            elif reading.tail:
                repaired = {"cut_back": {"bytes": len(reading.tail), "sha256": sha256_bytes(reading.tail)}}
            assert previous is not None, self.path  # a line that cannot be read is damage
            placed, line = entry_line(entry, index=next_index, previous=previous, joins=joins, repaired=repaired)
            data = b"\n" * ("ended_line" in repaired) + line + b"\n"
            try:
                write_from(self.path, position, data, durable=durable)
            except OSError as error:
                found = f"the entry cannot be written: {error.strerror}"
                raise self._error(found, "a disk with room", "free space, then repeat the command") from None
            return placed

    def hold(self) -> AbstractContextManager[None]:
        """Keep every other process from appending for as long as the block lasts. May be nested."""
        return self._lock.alone()

    def _read(self) -> Reading:
        """The file as it is now."""
        with self._lock.shared():
            return read_file(self._bytes(), sliced=self._sliced)

    def _checked(self) -> tuple[Reading, Entry | None]:
        """The file, and the last entry where it lacks its end of line. Raises `LedgerError` for damage."""
        reading = self._read()
        self._refuse_damage(reading)
        return reading, self._whole_tail(reading)

    def _bytes(self) -> bytes:
        """The file; nothing where there is none."""
        try:
            with open_regular(self.path) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size > _LARGEST_BYTES:
                    raise OSError(errno.EFBIG, f"it has {size:,} bytes, and {_LARGEST_BYTES:,} are the most")
                return stream.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from None

    def _error(self, found: str, required: str = "", fix: str = "", line: int | None = None) -> LedgerError:
        return LedgerError(found, required=required, fix=fix, where=Where(file=self.path, line=line))

    def _refuse_slice(self) -> None:
        if self._sliced:
            fix = "go to the repository that the slice was taken from"
            raise self._error("a slice takes no entry", "the whole ledger", fix)

    def _refuse_damage(self, reading: Reading) -> None:
        for line, fault in reading.faults[:1]:
            required = "every line as it was written, each with the hash of the one before"
            raise self._error(f"line {line}: {fault}", required, f"restore {self.path.name} from version control", line)

    def _whole_tail(self, reading: Reading) -> Entry | None:
        """The entry that lacks only its end of line, if the tail is one; None when it is the torso of one."""
        if not reading.tail or self._sliced:  # a slice is written whole: what is not ended there is no entry
            return None
        try:
            # An object that closes is no torso: cutting it back could remove a finished entry.
            json.JSONDecoder().raw_decode(reading.tail.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            return None
        ended = read_lines(
            reading.tail + b"\n", reading.last, reading.n_lines, next_index=reading.next_index, joins=reading.joins
        )
        self._refuse_damage(ended)
        return ended.entries[-1]


def sliced(entries: Sequence[Entry], study: str | None, also: Collection[str] = ()) -> bytes:
    """The bytes of a ledger for others: the entries of one study and those of the hashes in `also` whole, all others
    as links of the chain; the whole ledger, if no study is named.

    An entry's hash is taken over all its fields, so only its own hash and that of the entry before can stand for one
    that is withheld. The links keep order and head checkable. That a withheld entry is of another study cannot be
    checked: only the slice's author says so. A whole ledger leaves nothing to be believed.
    """
    lines = []
    for entry in entries:
        shown = study is None or entry.study == study or entry.sha256 in also
        # Index, hashes and joins: enough to check the chain, and nothing of what the entry says.
        link = {name: getattr(entry, name) for name in Withheld.model_fields}
        part = entry if shown else Withheld.model_validate(link)
        lines.append(canonical_bytes(part.model_dump(mode="json")) + b"\n")
    return b"".join(lines)


def read_file(data: bytes, *, sliced: bool = False) -> Reading:
    """A whole file. The lines that this process last found sound are compared, and not verified again."""
    global _sound  # noqa: PLW0603 - several objects read one ledger
    # `_sound` holds bytes and not a time stamp: what this process verified is recognised by being the same.
    lines, read_before = _sound  # at once: another thread may read another ledger
    if sliced or not data.startswith(lines):
        lines, read_before = b"", _NOTHING
    new = read_lines(
        data[len(lines) :],
        read_before.last,
        read_before.n_lines,
        next_index=read_before.next_index,
        joins=read_before.joins,
        sliced=sliced,
    )
    reading = replace(new, chain=read_before.chain + new.chain, n_bytes=len(lines) + new.n_bytes)
    # A merged ledger fails as one chain; only then is it read as several branches, which takes longer.
    if reading.faults:
        reading = _read_merged(data, sliced=sliced) or reading
    if not sliced and not reading.faults:
        _sound = data[: reading.n_bytes], reading
    return reading


_NOTHING = Reading((), (), 0, b"", FIRST, 0, 0)
_sound = b"", _NOTHING


def _read_merged(data: bytes, *, sliced: bool) -> Reading | None:
    """A file that holds the lines of several branches; none where it does not.

    Its entries are in the order of `places`; where something is wrong, in that of the lines. A slice was written in the
    order of `places`, and its links have no time: it keeps the order of its lines.
    """
    n_bytes = data.rfind(b"\n") + 1
    lines = [parsed(line, sliced=sliced) for line in data[:n_bytes].split(b"\n")[:-1]]
    # Where two people have merged each other's branches, git may leave a line twice: the same bytes say nothing new.
    numbered: dict[str, tuple[int, Entry | Withheld]] = {}
    for number, (entry, _) in enumerate(lines, start=1):
        if entry is not None:
            numbered.setdefault(entry.sha256, (number, entry))
    if not is_merged(entry for _, entry in numbered.values()):
        return None
    faults = [(number, fault) for number, (_, fault) in enumerate(lines, start=1) if fault]
    n_unreadable = len(faults)
    in_order: list[Entry | Withheld] = []
    waiting: dict[str, list[tuple[int, Entry | Withheld]]] = defaultdict(list)
    # 1. Place each entry after those that it names, in whatever order the lines are.
    descent, indices = Descent(), {FIRST: -1}

    def place(number: int, entry: Entry | Withheld) -> None:
        """Take in an entry once all that it names are there, and then those that waited for it."""
        # A stack and no recursion: a branch whose lines stand last to first is as deep as it is long.
        following = [(number, entry)]
        while following:
            number, entry = following.pop()
            missing = next((sha256 for sha256 in (entry.previous, *entry.joins) if sha256 not in indices), None)
            if missing is not None:
                waiting[missing].append((number, entry))
                continue
            fault = _misplaced(entry, indices, descent)
            if fault:
                faults.append((number, fault))
            indices[entry.sha256] = entry.index
            descent.add(entry)
            in_order.append(entry)
            following += reversed(waiting.pop(entry.sha256, []))

    for number, entry in numbered.values():
        place(number, entry)
    # 2. What is still waited for is missing.
    for missing in [sha256 for sha256 in waiting if sha256 not in numbered]:
        # A line that cannot be read, and is a fault already, may be the one that is missed.
        if n_unreadable:
            n_unreadable -= 1
            continue
        number, entry = waiting[missing][0]
        faults.append(
            (number, f"holds the entry with index {entry.index}, and the entry {missing[:8]} before it is missing")
        )
    if waiting and not faults:  # entries that name each other in a circle, which no hash allows
        faults.append((len(lines), "names entries that name it"))
    faults.sort()
    shown = [entry for entry, _ in lines if entry is not None] if faults else in_order
    if not faults and not sliced:
        # One order on both sides of a merge, whatever the order of the lines, and that of time within a study.
        place_by_hash = places([entry for entry in shown if isinstance(entry, Entry)])
        shown.sort(key=lambda entry: place_by_hash[entry.sha256])
    # 3. The ends of all branches: the next entry names the first as `previous` and the others as `joins`.
    ends = heads(in_order)
    return Reading(
        chain=tuple(shown),
        faults=tuple(faults),
        n_bytes=n_bytes,
        tail=data[n_bytes:],
        last=ends[0].sha256 if ends and not faults else None,
        n_lines=len(lines),
        next_index=ends[0].index + 1 if ends else 0,
        joins=tuple(entry.sha256 for entry in ends[1:]),
    )


def _misplaced(entry: Entry | Withheld, indices: dict[str, int], descent: Descent) -> str:
    """What is wrong with the place that an entry takes after those that it names; empty where nothing is."""
    named = (entry.previous, *entry.joins)
    # On a merge the index goes on from the longest branch, so that it rises along every line of descent.
    if entry.index != 1 + max(indices[named_sha256] for named_sha256 in named):
        return f"holds the entry with index {entry.index}; entries are missing, or in another order"
    # A join must name ends: an entry that another named one follows is no end, and naming it twice is no join.
    if entry.joins and (
        FIRST in named
        or any(a != b and descent.follows(a, b) for a in named for b in named)
        or len(set(named)) < len(named)
    ):
        return "joins entries of which one follows another"
    return ""
