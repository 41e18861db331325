"""The bytes of a bundle: a zip archive that can be written in one way only.

Any zip program opens it. But where the format leaves a choice (compression, dates, attributes, extra fields, comments,
order, gaps, what comes before and after), there is none here, so every byte of the file follows from the names and
contents of its members. A reader writes the headers again from what it has read and compares them byte for byte: what
is not the same is refused, and with it all that makes hostile archives dangerous (two names for one file, sizes that
lie, members that overlap, encryption, links). Nothing is compressed, so nothing can expand, and the bytes do not depend
on the version of a compression library. Python's `zipfile` is not used: it reads past everything that must be refused
here (bytes before the archive, gaps, twins, extra fields), and does not promise the bytes that it writes.

Nothing here is written to disk, and no name is turned into a path.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from prereg.registry.paths import is_device

MANIFEST = "MANIFEST.json"
LARGEST_BYTES = 2**31 - 1
"""Largest archive: below the sizes at which zip needs a second format."""
MOST_MEMBERS = 20_000
LONGEST_NAME = 400

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_LOCAL_MARK, _CENTRAL_MARK, _END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_READS = 10  # the version of the format that reads plain stored members
_MADE_BY = 3 << 8 | 20  # attributes as Unix has them
_DATE = 1 << 5 | 1  # 1 January 1980, the first day that zip knows
_PLAIN_FILE = 0o100644 << 16
_PIECE = 1 << 20
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+,=()@-]{0,199}")


class UnsoundError(Exception):
    """The file is not, byte for byte, what `write_archive` writes. Says in a sentence what was found first."""


@dataclass(frozen=True)
class Source:
    """Something that is to become a member."""

    name: str
    content: bytes | Path


@dataclass(frozen=True)
class Slot:
    """A member, as it was measured on disk or found in an archive."""

    name: str
    size_bytes: int
    crc32: int
    sha256: str
    offset: int = -1
    """Where its bytes begin in the archive."""


def is_safe(name: str) -> bool:
    """Whether a name is a plain relative path on every system: no `..`, root, drive, backslash, mark or device."""
    parts = name.split("/")
    return len(name) <= LONGEST_NAME and all(
        _PART.fullmatch(part) and part[-1] not in ". " and not is_device(part) for part in parts
    )


def measure(source: Source) -> Slot:
    """Size and hashes of what is to become a member."""
    return _measured(source.name, _pieces(source.content))


def write_archive(stream: BinaryIO, sources: Iterable[tuple[Source, Slot]]) -> None:
    """Write members in the order given, the manifest first and the others by name."""
    central, offset = [], 0
    for source, slot in sources:
        header = _local(slot)
        stream.write(header)
        written = _measured(slot.name, _copied(_pieces(source.content), stream))
        if written != slot:
            raise UnsoundError(f"{slot.name} changed while it was read")
        central.append(_central(slot, offset))
        offset += len(header) + slot.size_bytes
    listing = b"".join(central)
    stream.write(listing + _end(len(central), len(listing), offset))


def begins_a_bundle(stream: BinaryIO) -> bool:
    """Whether a file claims to be a bundle: a zip archive whose first member is the manifest."""
    stream.seek(0)
    first = stream.read(_LOCAL.size + len(MANIFEST))
    return first[:4] == _LOCAL_MARK and first[_LOCAL.size :] == MANIFEST.encode()


def read_archive(stream: BinaryIO) -> tuple[Slot, ...]:
    """Every member, once every byte of the file is accounted for. Raises `UnsoundError`."""
    size = stream.seek(0, 2)
    if size > LARGEST_BYTES:
        raise UnsoundError(f"it has {size:,} bytes, and a bundle at most {LARGEST_BYTES:,}")
    stream.seek(0)
    slots: list[Slot] = []
    central: list[bytes] = []
    seen: set[str] = set()
    while (mark := stream.read(4)) == _LOCAL_MARK:
        start = stream.tell() - 4
        if len(slots) == MOST_MEMBERS:
            raise UnsoundError(f"it has more than {MOST_MEMBERS:,} members")
        slot = _next_slot(stream, mark, size, slots, seen)
        slots.append(slot)
        central.append(_central(slot, start))
    listing = b"".join(central)
    begun = stream.tell() - len(mark)
    _compare_tail(stream, mark, slots, [*central, _end(len(slots), len(listing), begun)])
    return tuple(slots)


def contents(stream: BinaryIO, slot: Slot) -> Iterator[bytes]:
    """The bytes of a member in pieces; raises `UnsoundError` at the end if they are not what was found before."""
    stream.seek(slot.offset)
    digest = hashlib.sha256()
    for piece in _exactly(stream, slot.size_bytes, slot.name):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != slot.sha256:
        raise UnsoundError(f"{slot.name} changed while it was read")


def _next_slot(stream: BinaryIO, mark: bytes, size: int, before: list[Slot], seen: set[str]) -> Slot:
    """Read one member behind its mark: header, name, contents. The header is believed only once it is compared."""
    header = mark + stream.read(_LOCAL.size - len(mark))
    if len(header) < _LOCAL.size:
        raise UnsoundError("it ends within a header: it was cut off")
    _, reads, flags, method, _, _, crc32, packed, size_bytes, name_size, extra = _LOCAL.unpack(header)
    data = stream.read(min(name_size, LONGEST_NAME + 1))
    name = data.decode("ascii", errors="replace")
    _check_name(name, before, seen)
    for wrong, complaint in (
        (flags & 1, "is encrypted"),
        (method, "is compressed, and no member of a bundle is"),
        (packed != size_bytes, "has two sizes"),
        (0xFFFFFFFF in (packed, size_bytes), "hides its size in an extension of the format"),
        (extra, "carries a field that no member of a bundle has"),
        (flags or reads != _READS, "has flags that no member of a bundle has"),
        (size_bytes > size - stream.tell(), "is longer than the file: it was cut off, or its size is false"),
    ):
        if wrong:
            raise UnsoundError(f"{_shown(name)} {complaint}")
    offset = stream.tell()
    found = _measured(name, _exactly(stream, size_bytes, name))
    slot = Slot(name, size_bytes, found.crc32, found.sha256, offset)
    if crc32 != slot.crc32:
        raise UnsoundError(f"{_shown(name)} does not have the checksum in its header: it was changed")
    if header + data != _local(slot):
        raise UnsoundError(f"the header of {_shown(name)} is not the one that ablate writes")
    return slot


def _check_name(name: str, before: list[Slot], seen: set[str]) -> None:
    """One safe name a member, in order; none that a file system could take for another, or for a folder of another."""
    if not before and name != MANIFEST:
        raise UnsoundError(f"its first member is {_shown(name)}, not {MANIFEST}")
    if not is_safe(name):
        raise UnsoundError(f"{_shown(name)} is not a name that a member may have")
    folded = name.casefold()
    folders = {folded[:at] for at, letter in enumerate(folded) if letter == "/"}
    if folded in seen or folders & seen:
        raise UnsoundError(f"{_shown(name)} takes the place of another member")
    if len(before) > 1 and before[-1].name >= name:
        raise UnsoundError(f"{_shown(name)} is out of order")
    seen.add(folded)


def _compare_tail(stream: BinaryIO, mark: bytes, slots: list[Slot], expected: list[bytes]) -> None:
    """Hold the directory at the end of the archive against the one that its members call for."""
    wholes = [f"the entry of {_shown(slot.name)} in the directory" for slot in slots] + ["the end of the directory"]
    kept = mark
    for whole, what in zip(expected, wholes, strict=True):
        found = kept + stream.read(len(whole) - len(kept))
        kept = b""
        if found != whole:
            if len(found) < len(whole):
                raise UnsoundError("it ends within its directory: it was cut off")
            raise UnsoundError(
                f"{what} is not the one that ablate writes: it was changed, or there are bytes before it"
            )
    left = len(stream.read(_PIECE))
    if left:
        raise UnsoundError(f"{left:,}{' or more' if left == _PIECE else ''} bytes follow its end")


def _local(slot: Slot) -> bytes:
    name = slot.name.encode("ascii", errors="replace")
    size, crc32 = slot.size_bytes, slot.crc32
    return _LOCAL.pack(_LOCAL_MARK, _READS, 0, 0, 0, _DATE, crc32, size, size, len(name), 0) + name


def _central(slot: Slot, offset: int) -> bytes:
    name = slot.name.encode("ascii", errors="replace")
    size, crc32 = slot.size_bytes, slot.crc32
    fields = (_MADE_BY, _READS, 0, 0, 0, _DATE, crc32, size, size, len(name), 0, 0, 0, 0, _PLAIN_FILE, offset)
    return _CENTRAL.pack(_CENTRAL_MARK, *fields) + name


def _end(n_members: int, size: int, offset: int) -> bytes:
    return _END.pack(_END_MARK, 0, 0, n_members, n_members, size, offset, 0)


def _measured(name: str, pieces: Iterable[bytes]) -> Slot:
    size, crc32, digest = 0, 0, hashlib.sha256()
    for piece in pieces:
        size += len(piece)
        crc32 = zlib.crc32(piece, crc32)
        digest.update(piece)
    return Slot(name, size, crc32, digest.hexdigest())


def _pieces(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _copied(pieces: Iterable[bytes], stream: BinaryIO) -> Iterator[bytes]:
    write: Callable[[bytes], int] = stream.write
    for piece in pieces:
        write(piece)
        yield piece


def _exactly(stream: BinaryIO, size: int, name: str) -> Iterator[bytes]:
    left = size
    while left:
        piece = stream.read(min(left, _PIECE))
        if not piece:
            raise UnsoundError(f"it ends within {_shown(name)}: it was cut off")
        left -= len(piece)
        yield piece


def _shown(name: str) -> str:
    """A name from a file that nobody vouches for, fit for a terminal."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")
