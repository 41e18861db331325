"""The append-only, hash-chained log of what was done with every study of a repository.

One canonical JSON object a line, each with the hash of the one before: order and edits show. A tail that was cut off,
or a ledger rewritten as a whole, does not show here; that is what the head hash in every report is for. The clock is
the caller's, and what the entries mean is for `prereg.registry.register` and the judge to say.

A slice (`sliced`) is a ledger in which the entries of other studies are reduced to their links. It is recognised by its
file name, which no project uses: in a project's ledger, a link in place of an entry is damage.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import JsonValue, ValidationError

from prereg.errors import LedgerError, Where
from prereg.frozen import FrozenModel
from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_of
from prereg.registry.disk import open_regular, write_from
from prereg.registry.ledger_lock import LedgerLock

Event = Literal[
    "registered", "amended", "started", "breached", "sealed", "failed", "finished", "looked", "decided", "peeked",
    "imported", "attested", "reported",
]  # fmt: skip

SEALS: tuple[Event, ...] = ("sealed", "imported")
"""The events that bind a run to its hashes: one made here, one brought from elsewhere."""

_LARGEST_BYTES = 2**30
REPAIRS = ("cut_back", "ended_line")
"""What an append adds to the body where it repaired what a crash had left behind."""

FIRST = "0" * 64
"""What the first entry names as the hash of the one before."""

SLICE_NAME = "ledger.slice.jsonl"
"""The name of a ledger that may withhold entries. Nothing is ever appended to it."""


class Entry(FrozenModel):
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

    @property
    def stated(self) -> dict[str, JsonValue]:
        """The body as it was given, without the repairs that its append made and added."""
        return {key: value for key, value in self.body.items() if key not in REPAIRS}


class Withheld(FrozenModel):
    """What a slice shows of an entry that it does not show: its link in the chain, and nothing that can be checked."""

    index: int
    """Its position."""
    previous: str
    """sha256 of the entry before."""
    sha256: str
    """sha256 of the entry, as the slice states it."""


@dataclass(frozen=True)
class _Reading:
    """A ledger file, read whole, or from the start of some line on."""

    entries: tuple[Entry, ...]
    """Every line that is sound in itself, whatever its place in the chain."""
    withheld: tuple[Withheld, ...]
    faults: tuple[tuple[int, str], ...]
    """(line, what is wrong) of every damaged line."""
    n_bytes: int
    """Of all terminated lines."""
    tail: bytes
    """What follows the last end of line: empty, an entry whose end was not written, or the torso of one."""
    last: str | None
    """The hash that the next entry must name; none where reading began in the middle or a line cannot be read."""
    n_lines: int | None
    """Lines of the file up to here; none where reading began in the middle and no entry has said which it is."""


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
    """The ledger at a path. Reading needs no rights but to read; appending takes a lock next to the file.

    Reading reads the whole file: nothing that `entries`, `faults`, `head` or `sound` say rests on times or sizes. An
    append looks at the last `_LOOKS_BACK` bytes alone, so that its cost does not grow with the ledger. It chains on the
    last entry there, and refuses damage that it sees. Damage further up goes unnoticed by an append, and by no reading,
    those of `decide` and `verify` among them: the chain shows it whatever was appended since. A line whose bytes this
    process has verified is not verified again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = LedgerLock(path)
        self._sliced = path.name == SLICE_NAME

    def entries(self) -> tuple[Entry, ...]:
        """Every entry. Raises `LedgerError` naming the line when one is damaged."""
        reading, whole = self._checked()
        return reading.entries if whole is None else (*reading.entries, whole)

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
        entries, torso = reading.entries, len(reading.tail)
        assert reading.n_lines is not None
        n_sound = reading.faults[0][0] - 1 if reading.faults else reading.n_lines
        if not reading.faults:
            with suppress(LedgerError):  # `faults` names a last line that is whole and damaged
                whole = self._whole_tail(reading)
                if whole is not None:
                    entries, torso = (*entries, whole), 0
                    n_sound += 1
        return Sound(
            entries=entries[:n_sound],
            faults=tuple(self.faults()),
            n_beyond=max(0, reading.n_lines - n_sound),
            torso_bytes=torso,
            head=entries[n_sound - 1].sha256 if n_sound else FIRST,
        )

    def faults(self) -> list[str]:
        """Everything that is wrong, a sentence each, naming the line. Empty when the chain holds."""
        found, reading = self.damage(), self._read()
        if reading.tail:
            last = f"{self.path.name}, line {(reading.n_lines or 0) + 1}"
            found.append(f"{last}: not ended; an append was cut off (the next one repairs it)")
        return found

    def damage(self) -> list[str]:
        """What is wrong with complete lines. An unfinished last line is what a crash leaves, and no damage."""
        return [f"{self.path.name}, line {line}: {fault}" for line, fault in self._read().faults]

    def unfinished(self) -> str | None:
        """What a crash left after the last complete line, in a sentence, or none. The next append repairs it."""
        self._refuse_slice()
        reading, whole = self._checked()
        if not reading.tail:
            return None
        if whole is not None:
            return f"{self.path.name}: the last entry lacks its end of line; the next one ends it, and says so"
        return (
            f"{self.path.name}: {len(reading.tail)} bytes of an entry that was never finished follow the last one; "
            "the next one cuts them back, and says so"
        )

    def head(self) -> str:
        """Hash of the last entry; 64 zeros for an empty ledger. Raises `LedgerError` when damaged."""
        reading, whole = self._checked()
        last = reading.last if whole is None else whole.sha256
        assert last is not None, self.path  # a line that cannot be read is damage
        return last

    def append(
        self,
        event: Event,
        *,
        study: str,
        registration: str,
        body: Mapping[str, JsonValue],
        at: str,
        durable: bool = True,
    ) -> Entry:
        """Add one entry. Other processes wait; a ledger whose end is damaged takes nothing more.

        Without `durable` a loss of power may take it; no end of a process does. What a crash left behind is repaired
        first, and the new entry's body says so: the torso of an entry is cut back (`cut_back`), a whole one that lacks
        its end of line gets it (`ended_line`). Raises `LedgerError`.
        """
        assert datetime.fromisoformat(at).tzinfo is not None, at
        self._refuse_slice()
        with self.hold():
            self._lock.create()
            position, reading = self._end()
            whole = self._whole_tail(reading)
            before = whole or (reading.entries[-1] if reading.entries else None)
            repaired: dict[str, JsonValue] = {}
            if whole is not None:
                repaired = {"ended_line": {"index": whole.index}}
                position += len(reading.tail)
            elif reading.tail:
                repaired = {"cut_back": {"bytes": len(reading.tail), "sha256": sha256_bytes(reading.tail)}}
            content: dict[str, JsonValue] = {
                "index": before.index + 1 if before else 0,
                "at": at,
                "event": event,
                "study": study,
                "registration": registration,
                "body": {**body, **repaired},
                "previous": before.sha256 if before else FIRST,
            }
            content["sha256"] = sha256_of(content)
            line = canonical_bytes(content)
            # What is read back is what the line says: 1.0 is written as 1.
            entry, fault = _parsed(line, sliced=False)
            assert isinstance(entry, Entry), fault
            try:
                write_from(self.path, position, b"\n" * (whole is not None) + line + b"\n", durable=durable)
            except OSError as error:
                raise self._error(f"the entry cannot be written: {error.strerror}", "a disk with room") from None
            return entry

    def hold(self) -> AbstractContextManager[None]:
        """Keep every other process from appending for as long as the block lasts. May be nested."""
        return self._lock.alone()

    def _read(self) -> _Reading:
        """The file as it is now."""
        with self._lock.shared():
            return _reading(self._bytes(0), FIRST, 0, sliced=self._sliced)

    def _checked(self) -> tuple[_Reading, Entry | None]:
        """The file, and the last entry where it lacks its end of line. Raises `LedgerError` for damage."""
        reading = self._read()
        self._refuse_damage(reading)
        return reading, self._whole_tail(reading)

    def _end(self) -> tuple[int, _Reading]:
        """Where the last line of the file ends, and what its end says. Raises `LedgerError` where that is damaged."""
        size, back = self.path.stat().st_size, _LOOKS_BACK
        while True:
            start = max(0, size - back)
            data = self._bytes(start)
            # Of a line that began before, only the end is here.
            first = data.find(b"\n") + 1 if start else 0
            if not start or data.find(b"\n", first) >= 0:
                break
            back *= 2
        reading = _reading(data[first:], None, None) if start else _reading(data, FIRST, 0)
        if reading.faults:
            self._refuse_damage(self._read())  # which knows the number of the line
            self._refuse_damage(reading)
        return start + first + reading.n_bytes, reading

    def _bytes(self, start: int) -> bytes:
        """The file from a position on; nothing where there is no file."""
        try:
            with open_regular(self.path) as stream:
                size = os.fstat(stream.fileno()).st_size
                if size > _LARGEST_BYTES:
                    raise OSError(errno.EFBIG, f"it has {size:,} bytes, and {_LARGEST_BYTES:,} are the most")
                stream.seek(start)
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

    def _refuse_damage(self, reading: _Reading) -> None:
        for line, fault in reading.faults[:1]:
            required = "every line as it was written, each with the hash of the one before"
            raise self._error(f"line {line}: {fault}", required, f"restore {self.path.name} from version control", line)

    def _whole_tail(self, reading: _Reading) -> Entry | None:
        """The entry that lacks only its end of line, if the tail is one; None when it is the torso of one."""
        if not reading.tail or self._sliced:  # a slice is written whole: what is not ended there is no entry
            return None
        try:
            # An object that closes is no torso: cutting it back could remove a finished entry.
            json.JSONDecoder().raw_decode(reading.tail.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            return None
        ended = _reading(reading.tail + b"\n", reading.last, reading.n_lines)
        self._refuse_damage(ended)
        return ended.entries[-1]


_LOOKS_BACK = 64 * 2**10
"""Bytes before the end of a ledger that an append verifies: the whole of a small one, some hundred entries."""


def _reading(data: bytes, previous: str | None, n_lines: int | None, *, sliced: bool = False) -> _Reading:
    """What lines say that follow so many others, the last of which has the hash `previous`; none where unknown."""
    n_bytes = data.rfind(b"\n") + 1
    entries: list[Entry] = []
    withheld: list[Withheld] = []
    faults: list[tuple[int, str]] = []
    for line in data[:n_bytes].split(b"\n")[:-1]:
        found, fault = _parsed(line, sliced=sliced)
        index = n_lines if n_lines is not None else found.index if found is not None else 0
        if found is not None:
            if found.index != index:
                fault = f"holds the entry with index {found.index}; entries are missing, or in another order"
            elif previous is not None and found.previous != previous:
                fault = "does not carry the hash of the line before"
            if isinstance(found, Entry):
                entries.append(found)
            else:
                withheld.append(found)
        if fault:
            faults.append((index + 1, fault))
        previous = found.sha256 if found is not None else None
        n_lines = None if n_lines is None and found is None else index + 1
    return _Reading(tuple(entries), tuple(withheld), tuple(faults), n_bytes, data[n_bytes:], previous, n_lines)


_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_NO_SMALL_INTEGER = re.compile(rb'(?:":|[\[,])-?\d+(?:[.eE]|\d{15})')
"""Finds every number that is a fraction or not far from 2^53; what it finds in a text as well does no harm."""


@lru_cache(maxsize=2**16)
def _parsed(line: bytes, *, sliced: bool) -> tuple[Entry | Withheld | None, str]:
    """The entry of a line that is sound in itself, or of a slice its link, or what is wrong with the line."""
    try:
        content = from_canonical(line)
        # Canonical JSON (RFC 8785) differs from `json.dumps` in fractions, in whole numbers from 2^53 on, and in the
        # order of names beyond ASCII; a line without any of these is checked faster.
        plain = line.isascii() and not _NO_SMALL_INTEGER.search(line)
        if line != (_PLAIN.encode(content).encode() if plain else canonical_bytes(content)):
            return None, "is not in canonical bytes: it was edited"
    except (ValueError, RecursionError):
        return None, "is not JSON"
    try:
        if sliced and isinstance(content, dict) and content.keys() == Withheld.model_fields.keys():
            return Withheld.model_validate(content), ""
        entry = Entry.model_validate(content)
    except ValidationError:
        return None, "is not an entry of a ledger"
    # The names of a canonical line are in order: the hash, then the study. Quotes within a text are escaped.
    before, _, after = line.rpartition(b'"sha256":"%s","study":' % entry.sha256.encode())
    sound = sha256_bytes(before + b'"study":' + after) == entry.sha256
    return (entry, "") if sound else (None, "its content does not match its hash: it was edited")


def sliced(entries: Sequence[Entry], study: str | None, also: Collection[int] = ()) -> bytes:
    """The bytes of a ledger for others: the entries of one study and those of the indices in `also` whole, all others
    as links of the chain; the whole ledger, if no study is named.

    An entry's hash is taken over all its fields, so only its own hash and that of the entry before can stand for one
    that is withheld. The links keep order and head checkable. That a withheld entry is of another study cannot be
    checked: only the slice's author says so. A whole ledger leaves nothing to be believed.
    """
    lines = []
    for entry in entries:
        shown = study is None or entry.study == study or entry.index in also
        part = entry if shown else Withheld(index=entry.index, previous=entry.previous, sha256=entry.sha256)
        lines.append(canonical_bytes(part.model_dump(mode="json")) + b"\n")
    return b"".join(lines)
