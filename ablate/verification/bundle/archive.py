"""The bytes of a bundle as `ablate` writes it: a zip archive that can be written in one way only.

Any zip program opens it. But where the format leaves a choice (compression, dates, attributes, extra fields, comments,
order) there is none here: the same files give the same bytes, whatever the version of a compression library. Nothing is
compressed; git and the tables inside compress what they hold. Python's `zipfile` does not promise the bytes it writes.

Reading does not ask for these bytes (`ablate.verification.bundle.container`): what counts is what the manifest lists.
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

LOCAL = struct.Struct("<4sHHHHHIIIHH")
CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
END = struct.Struct("<4sHHHHIIH")
LOCAL_MARK, CENTRAL_MARK, END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_READS = 10  # the version of the format that reads plain stored members
_MADE_BY = 3 << 8 | 20  # attributes as Unix has them
_DATE = 1 << 5 | 1  # 1 January 1980, the first day that zip knows
_PLAIN_FILE = 0o100644 << 16
PIECE = 1 << 20
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+,=()@-]{0,199}")


class UnsoundError(Exception):
    """A bundle does not hold what it says it holds. Says in a sentence what was found first."""


@dataclass(frozen=True)
class Source:
    """Something that is to become a member."""

    name: str
    content: bytes | Path


@dataclass(frozen=True)
class Slot:
    """A member, as it was measured on disk."""

    name: str
    size_bytes: int
    crc32: int
    sha256: str


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


def _local(slot: Slot) -> bytes:
    name = slot.name.encode("ascii", errors="replace")
    size, crc32 = slot.size_bytes, slot.crc32
    return LOCAL.pack(LOCAL_MARK, _READS, 0, 0, 0, _DATE, crc32, size, size, len(name), 0) + name


def _central(slot: Slot, offset: int) -> bytes:
    name = slot.name.encode("ascii", errors="replace")
    size, crc32 = slot.size_bytes, slot.crc32
    fields = (_MADE_BY, _READS, 0, 0, 0, _DATE, crc32, size, size, len(name), 0, 0, 0, 0, _PLAIN_FILE, offset)
    return CENTRAL.pack(CENTRAL_MARK, *fields) + name


def _end(n_members: int, size: int, offset: int) -> bytes:
    return END.pack(END_MARK, 0, 0, n_members, n_members, size, offset, 0)


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
        while piece := stream.read(PIECE):
            yield piece


def _copied(pieces: Iterable[bytes], stream: BinaryIO) -> Iterator[bytes]:
    write: Callable[[bytes], int] = stream.write
    for piece in pieces:
        write(piece)
        yield piece
