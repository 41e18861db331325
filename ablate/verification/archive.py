"""Archive of a bundle: packed in one way as a zip file, read only if it is that, or unpacked in a folder.

`zipfile` writes it, and every choice that the format leaves (order, dates, attributes, compression) is taken here: the
same files give the same bytes, by any version of Python. Nothing is compressed; git and the tables inside compress.

`zipfile` also reads it, and it reads past bytes that another program unpacks as other files. So an archive is accepted
only if it is, byte for byte, the one that is written here from the files in it. That leaves no second reading of it,
by any trick of the format. One that another program zipped again is refused with a remedy: unpack it and check the
folder, so that what is checked is what the reader's own program unpacked.

`UnsoundError` is raised for all that may not be in a bundle; nothing is written outside a folder of our own.

The order in which a stranger's bundle is believed: size and end record, names, the manifest's own hash, the size and
hash of every file, and then the same bytes when it is packed again. Each step bounds what the next one may cost.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from ablate.verification.manifest import LARGEST_BYTES as LARGEST_MANIFEST
from ablate.verification.manifest import MANIFEST, BundleManifest, Member, UnsoundError, read_bundle_manifest
from prereg.errors import StudyFileError, Where
from prereg.registry.disk import open_regular, scratch
from prereg.registry.paths import is_device

LARGEST_BYTES = 2**31 - 1
"""Of an archive: below the sizes at which zip needs a second form."""
MOST_MEMBERS = 20_000
"""Files of a bundle: a study of 5,000 runs."""
LONGEST_NAME = 400
"""Characters of a path within a bundle."""
LARGEST_TEXT = 2**27
"""Bytes of a file that is read into memory whole: JSON, YAML, pages, code."""

_FIRST_MARK, _END = b"PK\x03\x04", struct.Struct("<4sHHHHIIH")
_DATE = (1980, 1, 1, 0, 0, 0)  # the first day that zip knows
_UNIX, _PLAIN_FILE = 3, 0o100644 << 16  # zip keeps the mode of Unix in the upper half of the attributes
_PIECE = 1 << 20
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 _.+,=()@-]{0,199}")
_LITTER = re.compile(r"\.DS_Store|\._.*|__MACOSX|Thumbs\.db|desktop\.ini", re.IGNORECASE)
_UNPACK = "unpack it, and type: ablate verify FOLDER"
# What `zipfile` raises for bytes that are no archive; NotImplementedError and UnicodeDecodeError are among these.
_DAMAGE = (zipfile.BadZipFile, EOFError, OverflowError, RuntimeError, ValueError, struct.error)


@dataclass(frozen=True)
class Unpacked:
    """A bundle in a folder of our own, every file of it as the manifest lists it."""

    folder: Path
    manifest: BundleManifest
    size_bytes: int
    """Of the archive; of a folder, of the files in it."""
    sha256: str
    """Of the archive; empty of a folder."""


@dataclass(frozen=True)
class _Packed:
    """A file of a bundle as it lies there, not read yet."""

    size_bytes: int
    open: Callable[[], IO[bytes]]


def is_safe(name: str) -> bool:
    """Whether a name is a plain relative path on every system: no `..`, root, drive, backslash, mark or device.

    >>> is_safe("data/runs/1f/wide/0/run.json"), is_safe("../run.json"), is_safe("C:/run.json"), is_safe("nul.txt")
    (True, False, False, False)
    """
    parts = name.split("/")
    return len(name) <= LONGEST_NAME and all(
        _PART.fullmatch(part) and part[-1] not in ". " and not is_device(part) for part in parts
    )


def is_bundle(path: Path) -> bool:
    """Whether a word on the command line means a bundle: a zip file by its name or first bytes, or a folder with a
    manifest in it or in the one folder below it.

    >>> is_bundle(Path("width.ablate.zip")), is_bundle(Path("studies/width.yaml"))
    (True, False)
    """
    if path.is_dir():
        return _folder_of(path) is not None
    # A name that ends in .zip is meant as a bundle even where no file is there: the error then speaks of a bundle.
    if path.suffix == ".zip" or not path.is_file():
        return path.suffix == ".zip"
    with path.open("rb") as stream:
        return stream.read(len(_FIRST_MARK)) == _FIRST_MARK


def measure(content: bytes | Path) -> Member:
    """Size and hash of what is to become a file of a bundle.

    >>> measure(b"abc").size_bytes, measure(b"abc").sha256[:8]
    (3, 'ba7816bf')
    """
    return _copied(partial(_opened, content), None)


def write_archive(stream: BinaryIO, contents: Mapping[str, bytes | Path]) -> None:
    """Write files by name: the manifest first, the others in the order of their names. The same files, the same bytes.

    >>> first, second = io.BytesIO(), io.BytesIO()
    >>> write_archive(first, {"b.txt": b"b", MANIFEST: b"{}"})
    >>> write_archive(second, {MANIFEST: b"{}", "b.txt": b"b"})
    >>> first.getvalue() == second.getvalue()
    True
    """
    # The manifest first: a reader that streams the archive has the list of hashes before the files.
    with zipfile.ZipFile(stream, "w", allowZip64=False) as archive:
        for name in sorted(contents, key=lambda name: (name != MANIFEST, name)):
            # Every field that zipfile would fill from this machine: the date, the mode, the system.
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr, info.create_system = _PLAIN_FILE, _UNIX
            with archive.open(info, "w") as member:
                _copied(partial(_opened, contents[name]), member)


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """A bundle in a folder that is removed again. Raises `UnsoundError`; `StudyFileError` where there is no bundle, and
    `UnsupportedError` for one of a later form."""
    if not path.exists():
        raise StudyFileError(
            "there is no such file or folder",
            required="a bundle, or a study file",
            fix="ablate bundle STUDY writes one",
            where=Where(file=path),
        )
    with scratch("bundle") as place:
        unpack = _unpack_folder if path.is_dir() else _unpack_archive
        yield unpack(path, place.resolve() / "root")


def _unpack_folder(path: Path, target: Path) -> Unpacked:
    # No packing to compare here: what a folder holds is what the reader's own program wrote. sha256 is of an
    # archive only.
    inside = _folder_of(path)
    if inside is None:
        raise _not_a_bundle(path)
    files = _files_in(inside)
    return Unpacked(target, _unpack(files, target), sum(file.size_bytes for file in files.values()), "")


def _unpack_archive(path: Path, target: Path) -> Unpacked:
    with open_regular(path) as stream:  # its path may name another file while it is read
        # 1. Cheap bounds first, before `zipfile` may read a directory of any length.
        if stream.read(len(_FIRST_MARK)) != _FIRST_MARK:
            raise _not_a_bundle(path)
        size = stream.seek(0, os.SEEK_END)
        _require_end(stream, size)
        try:
            archive = zipfile.ZipFile(stream)
        except (*_DAMAGE, OSError) as error:
            raise UnsoundError(f"it is damaged: {ascii(str(error))[1:-1][:120]}") from None
        if not any(name.rpartition("/")[2] == MANIFEST for name in archive.namelist()):
            raise _not_a_bundle(path)
        # 2. Names and sizes, then the files, each as the manifest lists it.
        files = _files_of(archive, size)
        manifest = _unpack(files, target)
        # The sha256 of the same open file: its path may name another one by now.
        stream.seek(0)
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    # By bytes and not by a list of known tricks: two entries of a name, data between entries, another local header.
    # 3. Packed again and compared:
    with target.with_name("again.zip").open("w+b") as again:
        write_archive(again, {name: target / name for name in files})
        again.seek(0)
        if hashlib.file_digest(again, "sha256").hexdigest() != sha256:
            raise _other_packing("it has other bytes than `ablate bundle` writes for the files in it")
    return Unpacked(target, manifest, size, sha256)


def printable_name(name: str) -> str:
    """A name from a file that nobody vouches for, fit for a terminal.

    >>> print(printable_name("run\\x1b[2J.json"))  # an escape that would clear the screen
    'run\\x1b[2J.json'
    """
    return ascii(name if len(name) <= 80 else name[:77] + "...")


def _require_end(stream: BinaryIO, size: int) -> None:
    """Check the record at the end, before `zipfile` reads as long a directory as it announces into memory."""
    if size > LARGEST_BYTES:
        raise UnsoundError(f"it has {size:,} bytes, and a bundle at most {LARGEST_BYTES:,}")
    stream.seek(max(0, size - _END.size))
    end = stream.read()
    if len(end) < _END.size or end[:4] != b"PK\x05\x06":
        raise _other_packing("it does not end as `ablate bundle` ends it: it was cut off or continued")
    # End of central directory record (PKWARE APPNOTE 4.3.16): number of entries, bytes of the directory; no comment
    # after it.
    _, _, _, _, n_members, listing_bytes, _, _ = _END.unpack(end)
    # 46 bytes: the fixed part of one entry of the directory (APPNOTE 4.3.12).
    if n_members > MOST_MEMBERS or listing_bytes > n_members * (46 + LONGEST_NAME):
        raise UnsoundError(f"it has more than {MOST_MEMBERS:,} files, or a directory that is too long for its files")


def _files_of(archive: zipfile.ZipFile, size: int) -> dict[str, _Packed]:
    """The files of an archive. What is checked of its entries is only what unpacking needs to be safe."""
    files: dict[str, _Packed] = {}
    for info in archive.infolist():
        name = info.orig_filename  # `filename` ends at a NUL
        if name.endswith("/"):
            raise _other_packing(f"{printable_name(name)} has an entry, and is a folder")
        _require_name(name, files)
        # Stored only: a compressed member could unpack to any size, and two compressors give the same file
        # other bytes.
        if info.flag_bits or info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise _other_packing(f"{printable_name(name)} is compressed or encrypted")
        if info.header_offset < 0:
            raise _other_packing(f"{printable_name(name)} does not lie where the directory says")
        # A mode other than a plain file's could make it a link or a program when another tool unpacks it.
        if info.external_attr != _PLAIN_FILE:
            raise _other_packing(f"{printable_name(name)} is not stored as a plain file")
        files[name] = _Packed(info.file_size, partial(archive.open, info))
    _require_no_overlap(archive.infolist(), size)
    _require_apart(files)
    return files


def _require_no_overlap(members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse members that share bytes of the archive, which is how a small one becomes terabytes.

    See Fifield 2019, "A better zip bomb". `zipfile` finds some of these, other ones in each version of Python.
    """
    by_offset = sorted(members, key=lambda member: member.header_offset)
    ends_of_room = [*(member.header_offset for member in by_offset[1:]), size]
    for member, end_of_room in zip(by_offset, ends_of_room, strict=True):
        name = member.orig_filename
        # 30 bytes: the fixed part of the header that lies before the data (APPNOTE 4.3.7).
        if member.header_offset + 30 + len(name.encode()) + member.file_size > end_of_room:
            raise UnsoundError(f"{printable_name(name)} and what follows it overlap")


def _folder_of(path: Path) -> Path | None:
    """The folder that holds the manifest: the one named, or the only one below it that does."""
    if (path / MANIFEST).is_file():
        return path
    below = [place.parent for place in path.glob(f"*/{MANIFEST}")]
    return below[0] if len(below) == 1 else None


def _files_in(folder: Path) -> dict[str, _Packed]:
    """Every file below a folder but what file managers leave. Raises `UnsoundError` for a link, or no plain file."""
    files: dict[str, _Packed] = {}
    for place, folders, names in os.walk(folder):
        # In place: os.walk then leaves these folders out.
        folders[:] = [name for name in folders if not _LITTER.fullmatch(name)]
        for name in [*folders, *names]:
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            # Links first: `is_file` follows them, and the file behind one lies anywhere on this machine.
            if path.is_symlink():
                raise UnsoundError(f"{printable_name(relative)} is a symbolic link, and a bundle holds none")
            if name in folders or _LITTER.fullmatch(name):
                continue
            if not path.is_file():
                raise UnsoundError(f"{printable_name(relative)} is no plain file")
            _require_name(relative, files)
            files[relative] = _Packed(path.stat().st_size, partial(open_regular, path))
            if len(files) > MOST_MEMBERS:
                raise UnsoundError(f"it has more than {MOST_MEMBERS:,} files")
    _require_apart(files)
    return files


def _require_name(name: str, taken: Mapping[str, object]) -> None:
    if not is_safe(name):
        raise UnsoundError(f"{printable_name(name)} is not a name that a file of a bundle may have")
    if name in taken:
        raise UnsoundError(f"{printable_name(name)} takes the place of another file")


def _require_apart(names: Mapping[str, object]) -> None:
    """No two names may be one on a file system without capitals, and no file may be a folder of others."""
    folded: dict[str, str] = {}
    for name in names:
        # On macOS and Windows the second file would silently replace the first.
        if (earlier := folded.setdefault(name.casefold(), name)) != name:
            raise UnsoundError(f"{printable_name(name)} takes the place of another file, {printable_name(earlier)}")
    # Every prefix of a name that ends before a slash.
    folders = {name[:at] for name in folded for at, letter in enumerate(name) if letter == "/"}
    if both := sorted(folders & folded.keys()):
        raise UnsoundError(f"{printable_name(both[0])} is a file, and a folder of others")


def _unpack(files: Mapping[str, _Packed], folder: Path) -> BundleManifest:
    """Write the files below a folder that is new and ours, each as the manifest lists it; the manifest."""
    listing = files.get(MANIFEST)
    if listing is None:
        raise _other_packing("its files lie in a folder")
    # Bounded by the announced size, and again by the read: the announced size is the stranger's word.
    if listing.size_bytes > LARGEST_MANIFEST:
        raise UnsoundError(f"the manifest has {listing.size_bytes:,} bytes, and at most {LARGEST_MANIFEST:,}")
    try:
        with listing.open() as stream:
            data = stream.read(LARGEST_MANIFEST)
    except _DAMAGE:
        raise UnsoundError("the manifest does not have its own checksum: it was changed") from None
    manifest = read_bundle_manifest(data)
    _require_listed(files, manifest)
    folder.mkdir()
    (folder / MANIFEST).write_bytes(data)
    for name, member in manifest.members.items():
        target = folder.joinpath(*name.split("/"))
        assert is_safe(name) and target.is_relative_to(folder), (
            name
        )  # checked by `_require_name`; never write elsewhere
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as file:  # x: never through a link or over another file
                copied = _copied(files[name].open, file, most=member.size_bytes)
        except _DAMAGE:  # its checksum or its header is wrong
            copied = None
        if copied != member:
            raise UnsoundError(f"{printable_name(name)} is not the file that the manifest lists")
    return manifest


def _require_listed(files: Mapping[str, _Packed], manifest: BundleManifest) -> None:
    """The files are those of the manifest by name and size, and none is larger than it may be."""
    there = {name: file.size_bytes for name, file in files.items() if name != MANIFEST}
    for name in sorted(manifest.members.keys() | there.keys()):
        if name not in there:
            raise UnsoundError(f"{printable_name(name)} is in the manifest and missing from the bundle")
        if name not in manifest.members:
            raise UnsoundError(f"{printable_name(name)} is in the bundle and not in the manifest")
        if there[name] != manifest.members[name].size_bytes:
            raise UnsoundError(f"{printable_name(name)} is not the file that the manifest lists: it has another size")
        # Tables and weights are read piece by piece; everything else is read into memory whole.
        if not name.endswith((".parquet", ".safetensors")) and there[name] > LARGEST_TEXT:
            raise UnsoundError(f"{printable_name(name)} has {there[name]:,} bytes, and a text at most {LARGEST_TEXT:,}")
    if manifest.ledger.file not in there:
        raise UnsoundError("the manifest names a ledger that is not in the bundle")
    if (size := sum(there.values())) > LARGEST_BYTES:
        raise UnsoundError(f"its files have {size:,} bytes, and those of a bundle at most {LARGEST_BYTES:,}")


def _opened(content: bytes | Path) -> IO[bytes]:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _copied(source: Callable[[], IO[bytes]], target: IO[bytes] | None, *, most: int = LARGEST_BYTES) -> Member:
    """Size and hash of what is read, never more than `most` bytes, which is written to `target` if there is one."""
    size, digest = 0, hashlib.sha256()
    with source() as stream:
        # most - size is 0 at the limit, and read(0) gives b"": the loop ends and the hash cannot match a longer
        # file.
        while piece := stream.read(min(_PIECE, most - size)):
            size += len(piece)
            digest.update(piece)
            if target is not None:
                target.write(piece)
    return Member(sha256=digest.hexdigest(), size_bytes=size)


def _other_packing(deviation: str) -> UnsoundError:
    """Changed, or only zipped again: nothing tells one from the other but the files in it."""
    return UnsoundError(f"{deviation}. It was changed, or zipped by another program: {_UNPACK}")


def _not_a_bundle(path: Path) -> StudyFileError:
    return StudyFileError(
        "this is not a bundle",
        required=f"what `ablate bundle` wrote, as a zip file or unpacked: {MANIFEST} and the files that it lists",
        fix="ablate verify studies/NAME.yaml, for a study in its repository",
        where=Where(file=path),
    )
