"""Zip archives: written in one way only, and read whoever wrote them.

They are written by Python's `zipfile`, with every choice that the format leaves (compression, dates, attributes, order)
taken here: the same files give the same bytes. Nothing is compressed; git and the tables inside compress enough.

An archive that is read may have other order, dates, compression, extra fields. But two programs must not see two
archives in one file, so that what is checked here is what a reader unpacks elsewhere. Therefore members lie one after
the other from the first byte to the directory, each header says what the directory says, and nothing follows the end.
`zipfile` reads past all of that. Nothing expands beyond the size that was announced, and no name becomes a
path here. `UnsoundError` is raised for a damaged archive, and for what the format allows and no bundle needs:
encryption, links, the 64-bit form, parts on several disks, compression other than deflate.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

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
_UNIX = 3  # whose attributes members have, wherever they are written
_DATE = (1980, 1, 1, 0, 0, 0)  # the first day that zip knows
_PLAIN_FILE = 0o100644 << 16
PIECE = 1 << 20
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+,=()@-]{0,199}")

_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 1, 8, 0x800
_FLAGS = _ENCRYPTED | 2 | 4 | _SIZES_FOLLOW | _UTF8
"""Flags that are understood; 2 and 4 say how hard the compression tried."""
_STORED, _DEFLATED = 0, 8
_LONG = 0xFFFFFFFF
_NEWEST = 63  # version 6.3 of the format; what unpacks a bundle elsewhere refuses any above
_LARGEST_LISTING = 1 << 23
_MOST_ENTRIES = 2 * MOST_MEMBERS  # folders have entries too
_DESCRIPTOR, _DESCRIPTOR_MARK = struct.Struct("<III"), b"PK\x07\x08"
_UNICODE_PATH = 0x7075
_TWO_NAMES = "has a second name in other letters: rename its folder in plain letters, and zip it again"
_AGAIN = "zip it again with the usual compression"


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

    size_bytes: int
    sha256: str


def is_safe(name: str) -> bool:
    """Whether a name is a plain relative path on every system: no `..`, root, drive, backslash, mark or device."""
    parts = name.split("/")
    return len(name) <= LONGEST_NAME and all(
        _PART.fullmatch(part) and part[-1] not in ". " and not is_device(part) for part in parts
    )


def measure(source: Source) -> Slot:
    """Size and hash of what is to become a member."""
    return _copied(source.content, None)


def write_archive(stream: BinaryIO, sources: Iterable[tuple[Source, Slot]]) -> None:
    """Write members in the order given, the manifest first and the others by name."""
    with zipfile.ZipFile(stream, "w", allowZip64=False) as archive:
        for source, slot in sources:
            info = zipfile.ZipInfo(source.name, _DATE)
            info.external_attr, info.create_system, info.file_size = _PLAIN_FILE, _UNIX, slot.size_bytes
            with archive.open(info, "w") as member:
                written = _copied(source.content, member)
            if written != slot:
                raise UnsoundError(f"{source.name} changed while it was read")


def _copied(content: bytes | Path, target: IO[bytes] | None) -> Slot:
    """Size and hash of what is read, which is written to `target` if there is one."""
    size, digest = 0, hashlib.sha256()
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as stream:
        while piece := stream.read(PIECE):
            size += len(piece)
            digest.update(piece)
            if target is not None:
                target.write(piece)
    return Slot(size, digest.hexdigest())


@dataclass(frozen=True)
class Member:
    """One file of a bundle as it lies in an archive or a folder, not read yet."""

    name: str
    """As it is named there, with every folder around it; it ends with a slash where it is a folder."""
    size_bytes: int
    pieces: Callable[[], Iterator[bytes]]
    """Its bytes, never more than its size. Raises `UnsoundError`."""


@dataclass(frozen=True)
class _Entry:
    """A member as the directory at the end has it."""

    raw: bytes
    extra: bytes
    flags: int
    method: int
    crc32: int
    packed: int
    size: int
    mode: int
    offset: int

    @property
    def name(self) -> str:
        return self.raw.decode("utf-8" if self.flags & _UTF8 else "cp437", errors="replace")


def read_zip(stream: BinaryIO) -> list[Member]:
    """Every member of an archive, folders included, in the order in which they lie."""
    size = stream.seek(0, 2)
    if size > LARGEST_BYTES:
        raise UnsoundError(f"it has {size:,} bytes, and a bundle at most {LARGEST_BYTES:,}")
    n_entries, listing_size, begun = _find_listing(stream, size)
    entries = sorted(_listing(stream, n_entries, listing_size, begun), key=lambda entry: entry.offset)
    for entry in entries:
        _check_entry(entry)
    ends = [*(entry.offset for entry in entries[1:]), begun]
    if (entries[0].offset if entries else begun) != 0:
        raise UnsoundError("there are bytes before its first member")
    return [_member(stream, entry, end) for entry, end in zip(entries, ends, strict=True)]


def _find_listing(stream: BinaryIO, size: int) -> tuple[int, int, int]:
    """Number of entries of the directory, its size, and where it begins."""
    start = max(0, size - END.size - 0xFFFF)
    stream.seek(start)
    tail = stream.read()
    at = tail.rfind(END_MARK)
    if at < 0 or len(tail) - at < END.size:
        raise UnsoundError("it has no directory at its end: it was cut off")
    _, disk, first_disk, n_here, n_entries, listing_size, begun, remark = END.unpack_from(tail, at)
    if start + at + END.size + remark != size:
        raise UnsoundError("bytes follow its end, or it was cut off")
    if 0xFFFF in (n_here, n_entries) or _LONG in (listing_size, begun):
        raise UnsoundError(f"it has the 64-bit form of zip, which no bundle needs: {_AGAIN}")
    if disk or first_disk or n_here != n_entries:
        raise UnsoundError("it is one part of an archive on several disks")
    if n_entries > _MOST_ENTRIES or listing_size > _LARGEST_LISTING:
        raise UnsoundError(f"it has more than {MOST_MEMBERS:,} members")
    if begun + listing_size != start + at:
        raise UnsoundError("its directory does not lie where its end says: bytes were added or cut off")
    return n_entries, listing_size, begun


def _listing(stream: BinaryIO, n_entries: int, listing_size: int, begun: int) -> Iterator[_Entry]:
    stream.seek(begun)
    data, at = stream.read(listing_size), 0
    for _ in range(n_entries):
        if data[at : at + 4] != CENTRAL_MARK or len(data) - at < CENTRAL.size:
            raise UnsoundError("its directory is damaged")
        fields = CENTRAL.unpack_from(data, at)
        if fields[2] & 0xFF > _NEWEST:
            raise UnsoundError(f"it needs version {(fields[2] & 0xFF) / 10:.1f} of the format, which there is not")
        flags, method, crc32, packed, size, name, extra, remark = (fields[3], fields[4], *fields[7:13])
        at += CENTRAL.size
        named, more = data[at : at + name], data[at + name : at + name + extra]
        yield _Entry(named, more, flags, method, crc32, packed, size, fields[15] >> 16, fields[16])
        at += name + extra + remark
    if at != listing_size:
        raise UnsoundError("its directory is damaged")


def _check_entry(entry: _Entry) -> None:
    kind = stat.S_IFMT(entry.mode)
    for wrong, complaint in (
        (entry.flags & _ENCRYPTED, "is encrypted"),
        (entry.flags & ~_FLAGS, "has flags of the format that no bundle needs"),
        (entry.method not in (_STORED, _DEFLATED), f"is compressed by method {entry.method}: {_AGAIN}"),
        (_LONG in (entry.packed, entry.size, entry.offset), f"has the 64-bit form of zip: {_AGAIN}"),
        (entry.method == _STORED and entry.packed != entry.size, "has two sizes"),
        (kind == stat.S_IFLNK, "is a symbolic link, and a bundle holds none"),
        (kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK), "is no plain file"),
        (kind == stat.S_IFDIR and not entry.name.endswith("/"), "is a folder and is not named as one"),
        (entry.name.endswith("/") and entry.size, "is a folder with contents"),
        (_renames(entry.extra), _TWO_NAMES),
    ):
        if wrong:
            raise UnsoundError(f"{shown(entry.name)} {complaint}")


def _member(stream: BinaryIO, entry: _Entry, end: int) -> Member:
    """A member, once its own header says what the directory says, and it reaches up to what follows it."""
    stream.seek(entry.offset)
    header = stream.read(LOCAL.size)
    if len(header) < LOCAL.size or header[:4] != LOCAL_MARK:
        raise UnsoundError(f"the header of {shown(entry.name)} is damaged")
    _, _, flags, method, _, _, crc32, packed, size, name, extra = LOCAL.unpack(header)
    later = bool(entry.flags & _SIZES_FOLLOW)
    sizes, known = (crc32, packed, size), (entry.crc32, entry.packed, entry.size)
    if (
        (flags & ~6, method) != (entry.flags & ~6, entry.method)
        or not (sizes == known or (later and sizes == (0, 0, 0)))
        or stream.read(name) != entry.raw
    ):
        raise UnsoundError(f"{shown(entry.name)} has a header that differs from its entry in the directory")
    if _renames(stream.read(extra)):
        raise UnsoundError(f"{shown(entry.name)} {_TWO_NAMES}")
    offset = entry.offset + LOCAL.size + name + extra
    gap = end - offset - entry.packed
    if later:
        stream.seek(end - gap)
        marked = _DESCRIPTOR_MARK * (gap > _DESCRIPTOR.size) + _DESCRIPTOR.pack(*known)
        gap = gap not in (_DESCRIPTOR.size, _DESCRIPTOR.size + 4) or stream.read(gap) != marked
    if gap:
        raise UnsoundError(f"{shown(entry.name)} and what follows it overlap, or there are bytes between them")
    return Member(entry.name, entry.size, lambda: _contents(stream, entry, offset))


def _renames(extra: bytes) -> bool:
    """Whether an extra field gives a member a second name, which some programs go by."""
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _UNICODE_PATH:
            return True
        extra = extra[4 + size :]
    return False


def _contents(stream: BinaryIO, entry: _Entry, offset: int) -> Iterator[bytes]:
    stream.seek(offset)
    packed = _exactly(stream, entry.packed, entry.name)
    made = crc32 = 0
    for piece in packed if entry.method == _STORED else _inflated(packed, entry.name):
        made += len(piece)
        if made > entry.size:
            raise UnsoundError(f"{shown(entry.name)} expands beyond the size in its header")
        crc32 = zlib.crc32(piece, crc32)
        yield piece
    if (made, crc32) != (entry.size, entry.crc32):
        raise UnsoundError(f"{shown(entry.name)} does not have the size and checksum in its header: it was changed")


def _inflated(packed: Iterator[bytes], name: str) -> Iterator[bytes]:
    """What deflated bytes expand to, a piece at a time."""
    expander = zlib.decompressobj(-zlib.MAX_WBITS)
    left = b""
    try:
        for data in packed:
            left, piece = left + data, b""
            while (left or len(piece) == PIECE) and not expander.eof:
                piece = expander.decompress(left, PIECE)
                left = expander.unconsumed_tail
                yield piece
    except zlib.error:
        raise UnsoundError(f"{shown(name)} is damaged: it cannot be decompressed") from None
    if not expander.eof or left or expander.unused_data:
        raise UnsoundError(f"{shown(name)} is cut off, or goes on after its end")


def _exactly(stream: BinaryIO, size: int, name: str) -> Iterator[bytes]:
    left = size
    while left:
        piece = stream.read(min(left, PIECE))
        if not piece:
            raise UnsoundError(f"it ends within {shown(name)}: it was cut off")
        left -= len(piece)
        yield piece


def shown(name: str) -> str:
    """A name from a file that nobody vouches for, fit for a terminal."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")
