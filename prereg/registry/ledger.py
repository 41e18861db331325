"""The append-only, hash-chained log of what was done with every study of a repository.

One canonical JSON object a line, each with the hash of the one before: order and edits show. A tail
that was cut off, or a ledger rewritten as a whole, does not show here; that is what the head hash in
every report is for. The clock is the caller's, and what the entries mean is for `prereg.registry.register`
and the judge to say.

A slice (`prereg.registry.ledger`) is a ledger in which the entries of other studies are reduced to their links. It is
told by its file name, which no house uses: in a house, a link that stands for an entry is damage.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from prereg.errors import LedgerError, Where
from prereg.frozen import Part
from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_of
from prereg.registry.disk import open_regular, write_from
from prereg.registry.ledger_lock import LedgerLock

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
REPAIRS = ("cut_back", "ended_line")
"""What an append adds to the body where it repaired what a crash had left behind."""

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

    @property
    def stated(self) -> dict[str, JsonValue]:
        """The body as it was given, without the repairs that its append made and added."""
        return {key: value for key, value in self.body.items() if key not in REPAIRS}


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
    """A ledger file, read whole, or from the start of some line on."""

    entries: tuple[Entry, ...]
    """Every line that is sound in itself, whatever its place in the chain."""
    faults: tuple[tuple[int, str], ...]
    """(line, what is wrong) of every damaged line."""
    complete: bytes
    """All terminated lines."""
    tail: bytes
    """What follows the last end of line: empty, an entry whose end was not written, or the torso of one."""
    last: str | None
    """What the next entry must name as the hash before it; none where that is not known: after a line that cannot be
    read, and where reading began in the middle."""
    n_lines: int | None
    """Lines of the file up to here; none where reading began in the middle and no entry has said which it is."""
    withheld: tuple[Withheld, ...] = ()
    """The links of a slice, in order."""


@dataclass(frozen=True)
class _End:
    """The end of a ledger file, as far back as an append looks."""

    start: int
    """Where in the file it begins: at the start of a line."""
    reading: _Reading
    """What follows there; of its entries the last only."""


@dataclass
class _Seen:
    """What this process has read of one ledger file. All objects of that path share it, under the lock's thread."""

    whole: _Reading
    """The file, as it was when it was last read whole."""
    end: _End | None = None
    """Its end, as it was after the last append."""


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
    """The ledger at a path. Reading needs no rights but to read; appending takes a lock beside the file.

    Reading reads the whole file and compares every byte with those that were verified before: nothing that `entries`,
    `faults`, `head` or `sound` say rests on times or sizes. An append looks at the end alone, so that its cost does not
    grow with the ledger: at the last `_LOOKS_BACK` bytes, and at all that was added since this process last appended.
    It chains on the last entry there, and refuses damage that it sees. Damage further up goes unnoticed by an append,
    and by no reading, those of `decide` and `verify` among them: the chain shows it whatever was appended since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = LedgerLock(path)
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
        n_lines = n_sound = _count(reading)
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
            n_beyond=max(0, n_lines - n_sound),
            torso_bytes=torso,
            head=entries[n_sound - 1].sha256 if n_sound else FIRST,
        )

    def faults(self) -> list[str]:
        """Everything that is wrong, a sentence each, naming the line. Empty when the chain holds."""
        reading = self._read()
        found = self._damage(reading)
        if reading.tail:
            last = f"{self.path.name}, line {_count(reading) + 1}"
            found.append(f"{last}: not ended; an append was cut off (the next one repairs it)")
        return found

    def damage(self) -> list[str]:
        """What is wrong with complete lines. An unfinished last line is what a crash leaves, and no damage."""
        return self._damage(self._read())

    def _damage(self, reading: _Reading) -> list[str]:
        return [f"{self.path.name}, line {line}: {fault}" for line, fault in reading.faults]

    def unfinished(self) -> str | None:
        """What a crash left after the last complete line, in a sentence, or none. The next append repairs it."""
        self._refuse_slice()
        reading = self._read()
        self._refuse_damage(reading)
        if not reading.tail:
            return None
        if self._whole_tail(reading) is not None:
            return f"{self.path.name}: the last entry lacks its end of line; the next one ends it, and says so"
        return (
            f"{self.path.name}: {len(reading.tail)} bytes of an entry that was never finished follow the last one; "
            "the next one cuts them back, and says so"
        )

    def head(self) -> str:
        """Hash of the last entry; 64 zeros for an empty ledger. Raises `LedgerError` when damaged."""
        reading = self._read()
        self._refuse_damage(reading)
        whole = self._whole_tail(reading)
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

        It is durable, unless the caller can bear that a loss of power takes it; no end of a process does.

        What a crash left behind is repaired first, and the new entry's body says so: the torso of an entry is cut back
        (`cut_back`), a whole one that lacks its end of line gets it (`ended_line`). Raises `LedgerError`.
        """
        assert datetime.fromisoformat(at).tzinfo is not None, at
        self._refuse_slice()
        with self.hold():
            self._lock.create()
            end = self._end()
            reading, position = end.reading, end.start + len(end.reading.complete)
            whole = self._whole_tail(reading)
            before = whole or (reading.entries[-1] if reading.entries else None)
            ended = b"" if whole is None else reading.tail + b"\n"
            content: dict[str, JsonValue] = {
                "index": before.index + 1 if before else 0,
                "at": at,
                "event": event,
                "study": study,
                "registration": registration,
                "body": {**body, **_repaired(reading.tail, whole)},
                "previous": before.sha256 if before else FIRST,
            }
            content["sha256"] = sha256_of(content)
            line = canonical_bytes(content) + b"\n"
            # What is read back is what the line says: 1.0 is written as 1.
            entry = Entry.model_validate(from_canonical(line))
            if whole is None:
                self._write(position, line, durable=durable)
            else:
                self._write(position + len(reading.tail), b"\n" + line, durable=durable)
            self._seen.end = _shortened(end.start, reading.complete + ended + line, entry)
            return entry

    def hold(self) -> AbstractContextManager[None]:
        """Keep every other process from appending for as long as the block lasts. May be nested."""
        return self._lock.alone()

    @property
    def _seen(self) -> _Seen:
        return _seen(self.path.absolute())

    def _read(self) -> _Reading:
        """The file as it is now. Bytes that were verified before and have not changed are not checked again."""
        with self._lock.shared():
            data, seen = self._bytes(0), self._seen
            known = seen.whole
            if known.faults or not data.startswith(known.complete):
                known = _NOTHING
            seen.whole = _read_on(known, data, sliced=self._sliced)
            return seen.whole

    def _end(self) -> _End:
        """The end of the file as it is now, for an append. Raises `LedgerError` where it is damaged."""
        known, size = self._seen.end, self.path.stat().st_size
        if known is not None and size >= known.start + len(known.reading.complete):
            data = self._bytes(known.start)
            if data.startswith(known.reading.complete):
                return self._sound_end(_End(known.start, _read_on(known.reading, data, sliced=False)))
        start, back = 0, _LOOKS_BACK
        while True:
            start = max(0, size - back)
            data = self._bytes(start)
            # Of a line that began before, only the end is here.
            first = data.find(b"\n") + 1 if start else 0
            if not start or data.find(b"\n", first) >= 0:
                break
            back *= 2
        begin = _NOTHING if not start else replace(_NOTHING, last=None, n_lines=None)
        return self._sound_end(_End(start + first, _read_on(begin, data[first:], sliced=False)))

    def _sound_end(self, end: _End) -> _End:
        if end.reading.faults:
            self._refuse_damage(self._read())  # which knows the number of the line
            self._refuse_damage(end.reading)
        return end

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
            raise LedgerError(f"cannot be read: {error.strerror}", where=Where(file=self.path)) from None

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

    def _write(self, position: int, data: bytes, *, durable: bool) -> None:
        try:
            write_from(self.path, position, data, durable=durable)
        except OSError as error:
            raise LedgerError(
                f"the entry cannot be written: {error.strerror}",
                required="a disk with room",
                where=Where(file=self.path),
            ) from None


_NOTHING = _Reading((), (), b"", b"", FIRST, 0)

_LOOKS_BACK = 64 * 2**10
"""Bytes before the end of a ledger that an append verifies: the whole of a small one, some hundred entries."""

_PATHS_SEEN = 4
"""Ledgers that a process keeps in memory, besides those it reads for the first time."""


@lru_cache(maxsize=_PATHS_SEEN)
def _seen(_path: Path) -> _Seen:
    return _Seen(_NOTHING)


def _repaired(tail: bytes, whole: Entry | None) -> dict[str, JsonValue]:
    """What the body of an entry says of the repair that its append made."""
    if whole is not None:
        return {"ended_line": {"index": whole.index}}
    return {} if not tail else {"cut_back": {"bytes": len(tail), "sha256": sha256_bytes(tail)}}


def _count(reading: _Reading) -> int:
    """Lines of a file that was read from its start."""
    assert reading.n_lines is not None
    return reading.n_lines


def _shortened(start: int, complete: bytes, last: Entry) -> _End:
    """The end of a file after an append, cut where it has become twice as long as an append looks back."""
    cut = 0
    if len(complete) > 2 * _LOOKS_BACK:
        cut = complete.find(b"\n", len(complete) - _LOOKS_BACK, len(complete) - 1) + 1
        cut = cut or complete.rfind(b"\n", 0, len(complete) - 1) + 1  # the last line is longer than all that
    return _End(start + cut, _Reading((last,), (), complete[cut:], b"", last.sha256, last.index + 1))


def _read_on(known: _Reading, data: bytes, *, sliced: bool) -> _Reading:
    """Read what follows the known lines of a file."""
    n_complete = data.rfind(b"\n") + 1
    complete, tail = data[:n_complete], data[n_complete:]
    entries: list[Entry] = []
    withheld: list[Withheld] = []
    faults: list[tuple[int, str]] = []
    expected, n_lines = known.last, known.n_lines
    for line in complete[len(known.complete) :].split(b"\n")[:-1]:
        plain = _plain_entry(line)
        found, fault = (plain, "") if plain is not None else _link(line, sliced=sliced)
        index = n_lines if n_lines is not None else found.index if found is not None else 0
        if found is not None:
            if found.index != index:
                fault = f"holds the entry with index {found.index}; entries are missing, or in another order"
            elif expected is not None and found.previous != expected:
                fault = "does not carry the hash of the line before"
            if isinstance(found, Entry):
                entries.append(found)
            else:
                withheld.append(found)
        if fault:
            faults.append((index + 1, fault))
        expected = found.sha256 if found is not None else None
        n_lines = None if n_lines is None and found is None else index + 1
    return _Reading(
        entries=(*known.entries, *entries) if entries else known.entries,
        faults=(*known.faults, *faults),
        complete=complete,
        tail=tail,
        last=expected,
        n_lines=n_lines,
        withheld=(*known.withheld, *withheld) if withheld else known.withheld,
    )


_PLAIN = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)


def _plain_entry(line: bytes) -> Entry | None:
    """The entry of a line that is sound and plain; none for every other line, sound or not.

    Canonical JSON (RFC 8785) and `json.dumps` differ in fractions, in whole numbers from 2^53 on, in NaN, and in the
    order of names beyond ASCII. A line without any of these is checked by the standard library, several times as fast.
    """
    if not line.isascii():
        return None
    try:
        entry = Entry.model_validate_json(line)
        if not _is_plain(entry.__dict__) or _PLAIN.encode(entry.__dict__).encode() != line:
            return None
    except (ValueError, RecursionError):
        return None
    # The names of a canonical line are in order: the hash, then the study. Quotes within a text are escaped.
    study = line.rindex(b',"study":"') + 1
    hashed = line[: study - len('"sha256":"",') - len(entry.sha256)] + line[study:]
    return entry if sha256_bytes(hashed) == entry.sha256 else None


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(abs(value) < 2**53)
    if kind is dict:
        return all(map(_is_plain, value.values()))
    if kind is list:
        return all(map(_is_plain, value))
    return kind is str or kind is bool or value is None


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


def sliced(entries: Sequence[Entry], study: str | None, also: Collection[int] = ()) -> bytes:
    """The bytes of a slice that shows the entries of one study and those of the indices in `also`; of the whole ledger,
    if no study is named."""
    lines = []
    for entry in entries:
        shown = study is None or entry.study == study or entry.index in also
        part = entry if shown else Withheld(index=entry.index, previous=entry.previous, sha256=entry.sha256)
        lines.append(canonical_bytes(part.model_dump(mode="json")) + b"\n")
    return b"".join(lines)
