"""The append-only, hash-chained log of what was done with every study of a repository.

One canonical JSON object a line, each with the hash of the one before: order and edits show. A tail
that was cut off, or a ledger rewritten as a whole, does not show here; that is what the head hash in
every report is for. The clock is the caller's, and what the entries mean is for `prereg.register`
and the judge to say.

A slice (`prereg.ledger_slice`) is a ledger in which the entries of other studies are reduced to their links. It is
told by its file name, which no house uses: in a house, a link that stands for an entry is damage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import JsonValue, ValidationError

from prereg.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_of
from prereg.disk import read_regular, write_from
from prereg.errors import LedgerError, Where
from prereg.ledger_lock import LedgerLock
from prereg.part import Part

Event = Literal[
    "registered",
    "amended",
    "started",
    "breached",
    "sealed",
    "failed",
    "finished",
    "looked",
    "decided",
    "peeked",
    "imported",
    "attested",
    "reported",
]

SEALS: tuple[Event, ...] = ("sealed", "imported")
"""The events that bind a run to its hashes: one made here, one brought from elsewhere."""

_LARGEST_BYTES = 2**30

FIRST = "0" * 64
"""What the first entry names as the hash of the one before."""

SLICE_NAME = "ledger.slice.jsonl"
"""The name of a ledger that may withhold entries. Nothing is ever appended to it."""


class Entry(Part):
    """One line of the ledger."""

    index: int
    """Its position, from 0."""
    at: str
    """When it was appended: ISO 8601 with offset, by the caller's clock. The chain proves the order, not the time."""
    event: Event
    """What happened."""
    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration it happened under."""
    body: dict[str, JsonValue]
    """What else is known of it."""
    previous: str
    """sha256 of the entry before."""
    sha256: str
    """sha256 of the canonical bytes of all other fields."""


class Withheld(Part):
    """What a slice shows of an entry that it does not show: its link in the chain, and nothing that can be checked."""

    index: int
    """Its position."""
    previous: str
    """sha256 of the entry before."""
    sha256: str
    """sha256 of the entry, as the slice states it."""


@dataclass(frozen=True)
class _Reading:
    """A ledger file, read whole."""

    entries: tuple[Entry, ...]
    """Every line that is sound in itself, whatever its place in the chain."""
    faults: tuple[tuple[int, str], ...]
    """(line, what is wrong) of every damaged line."""
    complete: bytes
    """All terminated lines."""
    tail: bytes
    """What follows the last end of line: empty, an entry whose end was not written, or the torso of one."""
    last: str | None
    """What the next entry must name as the hash before it; none after a line that cannot be read."""
    withheld: tuple[Withheld, ...] = ()
    """The links of a slice, in order."""


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
    """Hash of the last sound entry; 64 zeros when there is none."""


class Ledger:
    """The ledger at a path. Reading needs no rights but to read; appending takes a lock beside the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = LedgerLock(path)
        self._known = _NOTHING
        self._sliced = path.name == SLICE_NAME

    def entries(self) -> tuple[Entry, ...]:
        """Every entry. Raises `LedgerError` naming the line when one is damaged."""
        reading = self._read()
        self._refuse_damage(reading)
        whole = self._whole_tail(reading)
        return reading.entries if whole is None else (*reading.entries, whole)

    def withheld(self) -> tuple[Withheld, ...]:
        """The entries that a slice reduces to their links; none in a whole ledger."""
        return self._read().withheld

    def readable(self) -> tuple[Entry, ...]:
        """The entries that are sound in themselves, of a ledger that may be damaged; `faults` tells the rest."""
        try:
            return self.entries()
        except LedgerError:
            return self._read().entries

    def sound(self) -> Sound:
        """What can be believed of a ledger that may be damaged, for a reader; nothing is raised for damage."""
        reading = self._read()
        entries, torso = reading.entries, len(reading.tail)
        n_sound = reading.complete.count(b"\n")
        if reading.faults:
            n_sound = reading.faults[0][0] - 1
        else:
            with suppress(LedgerError):  # `faults` tells of a last line that is whole and damaged
                whole = self._whole_tail(reading)
                if whole is not None:
                    entries, torso = (*entries, whole), 0
                    n_sound += 1
        return Sound(
            entries=entries[:n_sound],
            faults=tuple(self.faults()),
            n_beyond=max(0, reading.complete.count(b"\n") - n_sound),
            torso_bytes=torso,
            head=entries[n_sound - 1].sha256 if n_sound else FIRST,
        )

    def faults(self) -> list[str]:
        """Everything that is wrong, a sentence each, naming the line. Empty when the chain holds."""
        found, reading = self.damage(), self._read()
        if reading.tail:
            last = reading.complete.count(b"\n") + 1
            found.append(f"{self.path.name}, line {last}: not ended; an append was cut off (the next one mends it)")
        return found

    def damage(self) -> list[str]:
        """What is wrong with complete lines. An unfinished last line is what a crash leaves, and no damage."""
        return [f"{self.path.name}, line {line}: {fault}" for line, fault in self._read().faults]

    def mend(self) -> str | None:
        """Finish or cut back what a crash left after the last complete line; a sentence about it, or none."""
        self._refuse_slice()
        with self.hold():
            reading = self._read()
            self._refuse_damage(reading)
            if not reading.tail:
                return None
            if self._whole_tail(reading) is not None:
                self._write(len(reading.complete) + len(reading.tail), b"\n")
                return f"{self.path.name}: the last entry lacked its end of line; it has one again"
            self._write(len(reading.complete), b"")
            return f"{self.path.name}: {len(reading.tail)} bytes of an entry that was never finished are cut back"

    def head(self) -> str:
        """Hash of the last entry; 64 zeros for an empty ledger. Raises `LedgerError` when damaged."""
        reading = self._read()
        self._refuse_damage(reading)
        whole = self._whole_tail(reading)
        last = reading.last if whole is None else whole.sha256
        assert last is not None, self.path  # a line that cannot be read is damage
        return last

    def append(self, event: Event, *, study: str, registration: str, body: Mapping[str, JsonValue], at: str) -> Entry:
        """Add one entry, durably. Other processes wait; a damaged ledger takes nothing more.

        The torso of an entry that a crash left behind is cut back, and the new entry's body says so.
        """
        assert datetime.fromisoformat(at).tzinfo is not None, at
        self._refuse_slice()
        with self.hold():
            reading = self._read()
            self._refuse_damage(reading)
            whole = self._whole_tail(reading)
            before = whole or (reading.entries[-1] if reading.entries else None)
            torso = reading.tail if whole is None else b""
            noted: dict[str, JsonValue] = (
                {} if not torso else {"cut_back": {"bytes": len(torso), "sha256": sha256_bytes(torso)}}
            )
            content: dict[str, JsonValue] = {
                "index": before.index + 1 if before else 0,
                "at": at,
                "event": event,
                "study": study,
                "registration": registration,
                "body": {**body, **noted},
                "previous": before.sha256 if before else FIRST,
            }
            content["sha256"] = sha256_of(content)
            line = canonical_bytes(content) + b"\n"
            # What is read back is what the line says: 1.0 is written as 1.
            entry = Entry.model_validate(from_canonical(line))
            if whole is None:
                self._write(len(reading.complete), line)
            else:
                self._write(len(reading.complete) + len(reading.tail), b"\n" + line)
            return entry

    def hold(self) -> AbstractContextManager[None]:
        """Keep every other process from appending for as long as the block lasts. May be nested."""
        return self._lock.alone()

    def _read(self) -> _Reading:
        """The file as it is now. Bytes that were sound before and have not changed are not checked again."""
        with self._lock.shared():
            try:
                data = read_regular(self.path, _LARGEST_BYTES)
            except FileNotFoundError:
                data = b""
            except OSError as error:
                raise LedgerError(f"cannot be read: {error.strerror}", where=Where(file=self.path)) from None
            known = self._known
            if known.faults or not data.startswith(known.complete):
                known = _NOTHING
            self._known = _read_on(known, data, sliced=self._sliced)
            return self._known

    def _refuse_slice(self) -> None:
        if self._sliced:
            raise LedgerError(
                "a slice takes no entry",
                required="the whole ledger",
                fix="go to the repository that the slice was taken from",
                where=Where(file=self.path),
            )

    def _refuse_damage(self, reading: _Reading) -> None:
        if reading.faults:
            line, fault = reading.faults[0]
            raise LedgerError(
                f"line {line}: {fault}",
                required="every line as it was written, each with the hash of the one before",
                fix=f"restore {self.path.name} from version control",
                where=Where(file=self.path, line=line),
            )

    def _whole_tail(self, reading: _Reading) -> Entry | None:
        """The entry that lacks only its end of line, if the tail is one; None when it is the torso of one."""
        if not reading.tail or self._sliced:  # a slice is written whole: what is not ended there is no entry
            return None
        try:
            # An object that closes is no torso: cutting it back could remove a finished entry.
            json.JSONDecoder().raw_decode(reading.tail.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            return None
        ended = _read_on(reading, reading.complete + reading.tail + b"\n", sliced=self._sliced)
        self._refuse_damage(ended)
        return ended.entries[-1]

    def _write(self, position: int, data: bytes) -> None:
        try:
            write_from(self.path, position, data)
        except OSError as error:
            raise LedgerError(
                f"the entry cannot be written: {error.strerror}",
                required="a disk with room",
                where=Where(file=self.path),
            ) from None


_NOTHING = _Reading((), (), b"", b"", FIRST)


def _read_on(known: _Reading, data: bytes, *, sliced: bool) -> _Reading:
    """Read what follows the known lines of a file."""
    complete, _, tail = data.rpartition(b"\n")
    if complete or data.startswith(b"\n"):
        complete += b"\n"
    entries, withheld, faults, expected = list(known.entries), list(known.withheld), list(known.faults), known.last
    first = known.complete.count(b"\n")
    for index, line in enumerate(complete[len(known.complete) :].split(b"\n")[:-1], start=first):
        found, fault = _link(line, sliced=sliced)
        if found is not None:
            if found.index != index:
                fault = f"holds the entry with index {found.index}; entries are missing, or stand in another order"
            elif expected is not None and found.previous != expected:
                fault = "does not carry the hash of the line before"
            if isinstance(found, Entry):
                entries.append(found)
            else:
                withheld.append(found)
        if fault:
            faults.append((index + 1, fault))
        expected = found.sha256 if found is not None else None
    return _Reading(tuple(entries), tuple(faults), complete, tail, expected, tuple(withheld))


def _link(line: bytes, *, sliced: bool) -> tuple[Entry | Withheld | None, str]:
    """The entry of a line that is sound in itself, or of a slice its link, or what is wrong with the line."""
    try:
        content = from_canonical(line)
        canonical = canonical_bytes(content)
    except (ValueError, RecursionError):
        return None, "is not JSON"
    if canonical != line:
        return None, "is not in canonical bytes: it was edited"
    try:
        if sliced and isinstance(content, dict) and content.keys() == Withheld.model_fields.keys():
            return Withheld.model_validate(content), ""
        entry = Entry.model_validate(content)
    except ValidationError:
        return None, "is not an entry of a ledger"
    if entry.sha256 != sha256_of({key: value for key, value in content.items() if key != "sha256"}):
        return None, "its content does not match its hash: it was edited"
    return entry, ""
