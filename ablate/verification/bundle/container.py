"""What a bundle holds, however it is packed: the archive that `ablate` wrote, one zipped again, or an unpacked folder.

The manifest lists every file by sha256, so that order, dates, compression and a folder around the files do not matter.
What file managers leave (`.DS_Store`, `__MACOSX`, `Thumbs.db`) is not read, and named. Everything else that the
manifest does not list is refused, and so is whatever could be taken for another file: a link, a name that leaves the
folder, two names that a file system without capitals takes for one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ablate.verification.bundle.archive import (
    LARGEST_BYTES,
    LOCAL_MARK,
    MANIFEST,
    MOST_MEMBERS,
    PIECE,
    Member,
    UnsoundError,
    is_safe,
    read_zip,
    shown,
)
from ablate.verification.bundle.manifest import LARGEST_BYTES as LARGEST_MANIFEST
from ablate.verification.bundle.manifest import Manifest, read_manifest
from prereg.errors import StudyError, StudyFileError, Where
from prereg.registry.disk import open_regular, scratch

LARGEST_TEXT = 2**27
"""Bytes of a file that is read whole: JSON, YAML, pages, code."""
FREE_BYTES, MOST_EXPANSION = 2**26, 100
"""Bytes that any archive may expand to, and beyond them how many for each of its own: tables come compressed."""
_LITTER = re.compile(r"\.DS_Store|\._.*|__MACOSX|Thumbs\.db|desktop\.ini", re.IGNORECASE)
_NOT_PLAIN = re.compile(r"[\x00-\x1f\x7f\\:]")


@dataclass(frozen=True)
class Packing:
    """Where the files of a bundle lie, before any of them is read."""

    members: dict[str, Member]
    """name -> file, the manifest among them; names are relative to the bundle's own folder, and safe."""
    inside: str
    """The folder around them in the archive, or below the folder that was named; empty if none."""
    ignored: tuple[str, ...]
    """What file managers left."""


@dataclass(frozen=True)
class Unpacked:
    """A bundle, unpacked into a folder of ours, every file of it as the manifest lists it."""

    folder: Path
    manifest: Manifest
    packing: Packing


@dataclass(frozen=True)
class Opened:
    """A file or folder that may be a bundle."""

    path: Path
    stream: BinaryIO | None
    """Of a file, open for as long as it is looked at: its path may name another file by then."""

    @property
    def sha256(self) -> str:
        """Of the file; empty of a folder."""
        if self.stream is None:
            return ""
        self.stream.seek(0)
        return hashlib.file_digest(self.stream, "sha256").hexdigest()  # type: ignore[arg-type]

    def packing(self) -> Packing:
        """Where its files lie. Raises `StudyFileError` where it is no bundle, `UnsoundError` for a damaged one."""
        members = read_zip(self.stream) if self.stream is not None else list(_read_folder(self.path))
        found = _arrange(members)
        if found is None:
            raise _not_a_bundle(self.path)
        return found


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """A bundle, not read yet. Raises `StudyFileError` where there is none."""
    if not path.exists():
        raise StudyFileError(
            "there is no such file or folder",
            required="a bundle, or a study file",
            fix="ablate bundle STUDY writes one",
            where=Where(file=path),
        )
    with nullcontext() if path.is_dir() else open_regular(path) as stream:
        if stream is not None and stream.read(len(LOCAL_MARK)) != LOCAL_MARK:
            raise _not_a_bundle(path)
        yield Opened(path, stream)


def is_bundle(path: Path) -> bool:
    """Whether a word on the command line means a bundle: a zip archive by its name or first bytes, or a folder with a
    manifest in it or in the one folder below it."""
    if path.is_dir():
        return (path / MANIFEST).is_file() or len(list(path.glob(f"*/{MANIFEST}"))) == 1
    if path.suffix == ".zip" or not path.is_file():
        return path.suffix == ".zip"
    with path.open("rb") as stream:
        return stream.read(len(LOCAL_MARK)) == LOCAL_MARK


def _not_a_bundle(path: Path) -> StudyFileError:
    return StudyFileError(
        "this is not a bundle",
        required=f"what `ablate bundle` wrote, as a zip archive or unpacked: {MANIFEST} and the files that it lists",
        fix="ablate verify studies/NAME.yaml, for a study in its repository",
        where=Where(file=path),
    )


@contextmanager
def unpacked(bundle: Opened) -> Iterator[Unpacked]:
    """A bundle in a folder that is removed again. Raises `UnsoundError`, `StudyFileError` or `UnsupportedError`."""
    packing = bundle.packing()
    manifest = _manifest(packing)
    size = sum(member.size_bytes for member in packing.members.values())
    of = size if bundle.stream is None else bundle.stream.seek(0, 2)
    if size > LARGEST_BYTES or size > max(FREE_BYTES, MOST_EXPANSION * of):
        raise UnsoundError(f"its {of:,} bytes would expand to {size:,}, which is more than a bundle may")
    with scratch("bundle") as place:
        folder = place.resolve() / "root"
        wrong = [
            name
            for name, member in packing.members.items()
            if name != MANIFEST and _unpack(member, folder, name) != manifest.members[name].sha256
        ]
        if wrong:
            more = f", and {len(wrong) - 1} others are not either" if wrong[1:] else ""
            raise UnsoundError(f"{shown(wrong[0])} is not the file that the manifest lists{more}")
        yield Unpacked(folder, manifest, packing)


def contents_sha256(path: Path) -> str:
    """The hash of what a bundle holds, all of it read; empty where there is no sound bundle."""
    with suppress(UnsoundError, StudyError), opened(path) as bundle, unpacked(bundle) as found:
        return found.manifest.sha256
    return ""


def _unpack(member: Member, folder: Path, name: str) -> str:
    """Write a file below a folder that is new and ours; its sha256. Its name was found safe, and is checked again."""
    target = folder.joinpath(*name.split("/"))
    assert is_safe(name) and target.is_relative_to(folder), name
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("xb") as file:
        for piece in member.pieces():
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _manifest(packing: Packing) -> Manifest:
    """The manifest, once the files have the names and sizes that it lists."""
    member = packing.members[MANIFEST]
    if member.size_bytes > LARGEST_MANIFEST:
        raise UnsoundError(f"the manifest has {member.size_bytes:,} bytes, and at most {LARGEST_MANIFEST:,}")
    manifest = read_manifest(b"".join(member.pieces()))
    there = {name: member.size_bytes for name, member in packing.members.items() if name != MANIFEST}
    for name in sorted(manifest.members.keys() | there.keys()):
        if name not in there:
            raise UnsoundError(f"{shown(name)} is in the manifest and missing from the bundle")
        if name not in manifest.members:
            raise UnsoundError(f"{shown(name)} is in the bundle and not in the manifest")
        if there[name] != manifest.members[name].size_bytes:
            raise UnsoundError(f"{shown(name)} is not the file that the manifest lists: it has another size")
        if not name.endswith((".parquet", ".safetensors")) and there[name] > LARGEST_TEXT:
            raise UnsoundError(f"{shown(name)} has {there[name]:,} bytes, and a text at most {LARGEST_TEXT:,}")
    if manifest.ledger.file not in there:
        raise UnsoundError("the manifest names a ledger that is not in the bundle")
    return manifest


def _arrange(found: list[Member]) -> Packing | None:
    """The files by their names below the bundle's folder; none where no manifest is among them."""
    kept: list[Member] = []
    ignored = []
    for member in found:
        parts = member.name.removesuffix("/").split("/")
        if any(part in ("", ".", "..") or _NOT_PLAIN.search(part) for part in parts):
            raise UnsoundError(f"{shown(member.name)} is not a name that a file of a bundle may have")
        if any(map(_LITTER.fullmatch, parts)):
            ignored.append(member.name)
        elif not member.name.endswith("/"):
            kept.append(member)
    if len(kept) > MOST_MEMBERS:
        raise UnsoundError(f"it has more than {MOST_MEMBERS:,} files")
    manifests = [member.name for member in kept if member.name.rpartition("/")[2] == MANIFEST]
    if not manifests:
        return None
    inside = min(manifests, key=lambda name: name.count("/")).removesuffix(MANIFEST)
    members: dict[str, Member] = {}
    taken: set[str] = set()
    for member in kept:
        name = member.name.removeprefix(inside)
        if not member.name.startswith(inside):
            raise UnsoundError(f"{shown(member.name)} lies outside the bundle's folder {shown(inside)}")
        if not is_safe(name):
            raise UnsoundError(f"{shown(name)} is not a name that a file of a bundle may have")
        if name.casefold() in taken:
            raise UnsoundError(f"{shown(name)} takes the place of another file")
        taken.add(name.casefold())
        members[name] = member
    folders = {name[:at] for name in taken for at, letter in enumerate(name) if letter == "/"}
    if both := sorted(folders & taken):
        raise UnsoundError(f"{shown(both[0])} is a file, and a folder of others")
    return Packing(members, inside.removesuffix("/"), tuple(ignored))


def _read_folder(folder: Path) -> Iterator[Member]:
    """Every file below a folder. Raises `UnsoundError` for a link, and for anything else that is no plain file."""
    n = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            relative = path.relative_to(folder).as_posix()
            n += 1
            if n > 2 * MOST_MEMBERS:
                raise UnsoundError(f"it has more than {MOST_MEMBERS:,} files")
            if path.is_symlink():
                raise UnsoundError(f"{shown(relative)} is a symbolic link, and a bundle holds none")
            if name in files:
                if not path.is_file():
                    raise UnsoundError(f"{shown(relative)} is no plain file")
                size = path.stat().st_size
                yield Member(relative, size, partial(_file_pieces, path, size))


def _file_pieces(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with open_regular(path) as stream:
        while left and (piece := stream.read(min(left, PIECE))):
            left -= len(piece)
            yield piece
