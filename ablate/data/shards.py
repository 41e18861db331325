"""Shards: corpora that are stored as token ids in `.bin` files, read where they lie and never loaded whole.

A shard is little-endian uint16 or uint32 ids and nothing else. Every shard is hashed before its ids are believed. What
was hashed is remembered in the user's cache by path, size, inode, device, time of change and time of status change:
as long as the file system says that a file has not been touched, its bytes are not read again at every start; any
write makes it be hashed again. `ablate verify` believes no such memory and hashes everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablate.data.cache import cached, keep
from prereg.errors import CorpusError
from prereg.registry.canon import sha256_file
from prereg.study.corpora import Manifest, Role, Shard, Shards, Stored

_CHUNK_BYTES = 32 * 1024**2
_LLM_C = 20240520
"""The first word of the header that llm.c writes."""


@dataclass(frozen=True)
class StoredTokens:
    """Ids from `first` up to `last` of the concatenation of some files, mapped into memory and read on demand."""

    arrays: tuple[np.ndarray, ...]
    ends: np.ndarray
    """Where each array ends in the concatenation."""
    vocabulary: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, where: slice) -> np.ndarray:
        start, stop, step = where.indices(len(self))
        assert step == 1, where
        return self._read(start, stop)

    def windows(self, starts: np.ndarray, width: int) -> np.ndarray:
        """The ids from each start on, one row a start; a window may reach from one shard into the next."""
        return np.stack([self._read(int(start), int(start) + width) for start in starts])

    def part(self, first: int, last: int) -> StoredTokens:
        """A stretch of it, read no more than the whole is."""
        assert 0 <= first <= last <= len(self), (first, last, len(self))
        return StoredTokens(self.arrays, self.ends, self.vocabulary, self.first + first, self.first + last)

    def _read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= len(self), (start, stop, len(self))
        at, end = self.first + start, self.first + stop  # from here on places in the concatenation
        ids = np.empty(stop - start, dtype=np.int64)
        n_filled = 0
        shard = int(np.searchsorted(self.ends, at, side="right"))
        while at < end:
            begins = int(self.ends[shard - 1]) if shard else 0
            # int64 in memory, whatever is on disk: torch's embedding takes no uint16.
            upto = min(end, int(self.ends[shard]))
            ids[n_filled : n_filled + upto - at] = self.arrays[shard][at - begins : upto - begins]
            n_filled, at, shard = n_filled + upto - at, upto, shard + 1
        # A manifest from elsewhere may name a smaller vocabulary than its ids have.
        if len(ids) and int(ids.max()) >= self.vocabulary:
            raise CorpusError(
                f"the shards hold token id {int(ids.max())}, and their vocabulary has {self.vocabulary} entries",
                required="ids below the size of the vocabulary",
                fix=f"ablate corpus add NAME FOLDER --vocabulary {int(ids.max()) + 1}, or more",
            )
        return ids


def open_shards(manifest: Manifest, cache: Path) -> dict[Role, StoredTokens]:
    """The parts of a corpus of shards, each verified: sizes always, hashes as the module says."""
    shards = manifest.shards
    assert shards is not None, manifest.name
    parts: dict[Role, StoredTokens] = {}
    roles: tuple[Role, ...] = ("train", "validation")
    for role in roles:
        files = [file for file in shards.files if file.role == role]
        if not files:
            continue
        arrays = []
        for file in files:
            path = shards.folder / file.name
            _verify(path, file, shards, manifest.name, cache)
            # Mapped and not read: the system loads the pages of the windows that are drawn, and forks share them.
            arrays.append(np.memmap(path, dtype=_dtype(shards.stored), mode="r"))
        ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)
        parts[role] = StoredTokens(tuple(arrays), ends, shards.vocabulary, 0, int(ends[-1]))
    return parts


def take_in(
    name: str,
    folder: Path,
    cache: Path,
    *,
    vocabulary: int,
    stored: Stored | None = None,
    byte_lengths: Path | None = None,
    licence: str = "",
) -> Manifest:
    """The manifest of a folder of shards, every byte read and hashed, no id too large.

    The folder holds `*.bin`, or folders `train` and `validation` that do; files are read in order of name.

        >>> Path("ids").mkdir()
        >>> np.arange(8, dtype="<u2").tofile("ids/first.bin")
        >>> manifest = take_in("mine", Path("ids"), Path("cache"), vocabulary=8)
        >>> open_shards(manifest, Path("cache"))["train"][2:5].tolist()
        [2, 3, 4]
    """
    if not 2 <= vocabulary <= 2**31:
        raise CorpusError(f"a vocabulary of {vocabulary} entries", required="at least 2 and at most 2,147,483,648")
    # 2^16 entries are the ids 0 to 65,535, all that uint16 can hold.
    kind: Stored = stored or ("uint16" if vocabulary <= 2**16 else "uint32")
    # Every byte is read once, for the hash and the largest id; the folder stays where it is.
    files = [
        _measure(path, folder, role, kind, vocabulary=vocabulary, cache=cache) for path, role in _listed(name, folder)
    ]
    shards = Shards(
        folder=folder.resolve(),
        stored=kind,
        vocabulary=vocabulary,
        files=tuple(files),
        byte_lengths=None if byte_lengths is None else _lengths(byte_lengths, vocabulary),
    )
    return Manifest(name, shards.sha256, shards.tokens * shards.item_bytes, None, licence, shards=shards)


def _listed(name: str, folder: Path) -> Iterator[tuple[Path, Role]]:
    here, train, validation = (
        sorted(place.glob("*.bin")) for place in (folder, folder / "train", folder / "validation")
    )
    if here and (train or validation):
        raise CorpusError(
            f"{folder} holds shards next to the folders train and validation",
            required="either shards, or folders train and validation that hold them",
        )
    if not here and not train:
        raise CorpusError(
            f"{folder} holds no shards to train on",
            required="files *.bin of token ids, or folders train and validation with such files",
            fix=f"ablate corpus add {name} FOLDER --vocabulary N",
        )
    yield from ((path, "train") for path in here or train)
    yield from ((path, "validation") for path in validation)


def _measure(path: Path, folder: Path, role: Role, stored: Stored, *, vocabulary: int, cache: Path) -> Shard:
    item, digest, largest, size = _dtype(stored).itemsize, hashlib.sha256(), -1, path.stat().st_size
    # Before the first byte is read: a file that changes meanwhile has another stat, and its hash is then taken for no
    # file.
    before = _stat_of(path.resolve())
    if size == 0 or size % item:
        raise CorpusError(
            f"{path} has {size} bytes",
            required=f"one id or more, each stored as {stored} in {item} bytes",
            fix="--stored uint16, or --stored uint32",
        )
    with path.open("rb") as stream:
        # llm.c begins its shards with 256 int32: a magic number, a version, the number of ids. Read as ids, these are
        # tokens of nobody's text.
        head = [int.from_bytes(stream.read(4), "little") for _ in range(3)]
        if head[0] == _LLM_C and head[2] * item == size - 1024:
            raise CorpusError(
                f"{path} begins with the header of llm.c",
                required="token ids and nothing else",
                fix=f"tail -c +1025 {path} > FOLDER/{path.name}",
            )
        stream.seek(0)
        # Hash and largest id in one pass, in pieces: a shard may be larger than the memory.
        while data := stream.read(_CHUNK_BYTES):
            digest.update(data)
            largest = max(largest, int(np.frombuffer(data, dtype=_dtype(stored)).max()))
    if largest >= vocabulary:
        raise CorpusError(
            f"{path} holds token id {largest}, and the vocabulary has {vocabulary} entries",
            required="ids below the size of the vocabulary",
            fix=f"--vocabulary {largest + 1}, or more; or another --stored than {stored}",
        )
    keep(cache / "hashed", before, digest.hexdigest())
    return Shard(path.relative_to(folder).as_posix(), digest.hexdigest(), size // item, role)


def _lengths(path: Path, vocabulary: int) -> tuple[int, ...]:
    try:
        lengths = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} cannot be read ({error})", required="a JSON list of numbers of bytes") from error
    # JSON's true is an int to `isinstance`
    fit = isinstance(lengths, list) and all(type(length) is int and length >= 0 for length in lengths)
    if not fit or len(lengths) != vocabulary:
        raise CorpusError(
            f"{path} is not a list of {vocabulary} numbers of bytes",
            required="one whole number an entry of the vocabulary: the UTF-8 bytes that it represents",
        )
    return tuple(lengths)


def _verify(path: Path, file: Shard, shards: Shards, name: str, cache: Path) -> None:
    remedy = f"restore it, or: ablate corpus add {name}-2 {shards.folder} --vocabulary {shards.vocabulary}"
    if not path.is_file():
        raise CorpusError(
            f"corpus '{name}': {path} is not here", required=f"the shard with sha256 {file.sha256}", fix=remedy
        )
    if path.stat().st_size != file.tokens * shards.item_bytes:
        raise CorpusError(
            f"corpus '{name}': {path} has {path.stat().st_size} bytes",
            required=f"{file.tokens * shards.item_bytes}, the shard with sha256 {file.sha256}",
            fix=remedy,
        )
    sha256 = _hash_of(path, cache)
    if sha256 != file.sha256:
        raise CorpusError(
            f"corpus '{name}': {path} has another content, sha256 {sha256}",
            required=f"the shard with sha256 {file.sha256}",
            fix=remedy,
        )


def _hash_of(path: Path, cache: Path) -> str:
    """The hash of a file, read again only where the file system says that something has touched it since."""
    # A file that is written to while it is read has another stat afterwards: what is noted under this one is
    # never looked up.
    place = path.resolve()
    return cached(cache / "hashed", _stat_of(place), lambda: sha256_file(place), _noted_sha256, str)


def _noted_sha256(note: object) -> str:
    if not isinstance(note, str):
        raise TypeError(f"{note!r} is no hash")
    return note


def _stat_of(path: Path) -> dict[str, str]:
    """All that the file system says of a file. As text: nanoseconds are beyond the whole numbers of JSON."""
    stat = path.stat()
    numbers = {
        "size": stat.st_size,
        "inode": stat.st_ino,
        "device": stat.st_dev,
        "modified_ns": stat.st_mtime_ns,
        "changed_ns": stat.st_ctime_ns,
    }
    return {"path": str(path)} | {name: str(number) for name, number in numbers.items()}


def _dtype(stored: Stored) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    return np.dtype("<u2") if stored == "uint16" else np.dtype("<u4")
