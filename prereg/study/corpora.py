"""Corpus by name: its files, their hashes, where it is looked for; fetched and read by `ablate/data/corpora.py`.

A corpus is a text, a text with a validation text of its own, or a folder of shards of token ids. Its one sha256 is
that of its only file, or a hash over the hashes of all of them. Nothing here reads a whole text into memory, and
nothing downloads: `ablate.data.corpora` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationError

from prereg.errors import CorpusError
from prereg.registry.canon import sha256_file, sha256_of


def _below_the_folder(path: str) -> str:
    # A manifest may come from elsewhere, and must not lead to other files of this machine.
    if any(name in ("", ".", "..") or "\0" in name for name in path.split("/")):
        raise ValueError(f"{path!r} is no file name")
    return path


FileName = Annotated[str, AfterValidator(_below_the_folder)]
Role = Literal["train", "validation"]
Stored = Literal["uint16", "uint32"]
ONE_FILE = "input.txt"
OWN_VALIDATION = "validation.txt"


@dataclass(frozen=True)
class TextFile:
    """One file of a text."""

    name: FileName
    sha256: str
    size_bytes: int
    address: str | None = None


@dataclass(frozen=True)
class Shard:
    """One file of token ids, little-endian and without a header."""

    name: FileName
    sha256: str
    tokens: int
    role: Role


@dataclass(frozen=True)
class Shards:
    """A corpus that was turned into token ids elsewhere."""

    folder: Path
    """Where the shards lie; not part of what the name means."""
    stored: Stored
    """Type of an id."""
    vocabulary: int
    """Entries of the vocabulary; every id is below it."""
    files: tuple[Shard, ...]
    """In reading order, training before validation."""
    byte_lengths: tuple[int, ...] | None
    """UTF-8 bytes that each entry encodes; none where nobody said, and bits per byte are then not defined."""

    @property
    def tokenizer_sha256(self) -> str:
        """Hash of what is known of the tokenizer that made the ids."""
        # Of shards the tokenizer itself is not here; what its ids stand for in bytes is all that a loss depends
        # on.
        lengths = None if self.byte_lengths is None else list(self.byte_lengths)
        return sha256_of({"kind": "own", "vocabulary": self.vocabulary, "byte_lengths": lengths})

    @property
    def sha256(self) -> str:
        """Hash of the whole: of every shard in order, and of how its bytes are read."""
        files = [{"sha256": file.sha256, "tokens": file.tokens, "role": file.role} for file in self.files]
        return sha256_of({"shards": files, "stored": self.stored, "tokenizer": self.tokenizer_sha256})

    @property
    def tokens(self) -> int:
        """Of all shards."""
        return sum(file.tokens for file in self.files)

    @property
    def item_bytes(self) -> int:
        """Bytes of one id."""
        return 2 if self.stored == "uint16" else 4


@dataclass(frozen=True)
class Manifest:
    """What a corpus name means."""

    name: str
    sha256: str
    size_bytes: int
    address: str | None
    licence: str
    files: tuple[TextFile, ...] = ()
    """The training text and the validation text, where there are two; else the one file is named `input.txt`."""
    shards: Shards | None = None
    """Set where the corpus is token ids and no text."""

    @property
    def texts(self) -> tuple[TextFile, ...]:
        """Every file of a text, the training text first."""
        return self.files or (TextFile(ONE_FILE, self.sha256, self.size_bytes, self.address),)

    @property
    def own_validation(self) -> bool:
        """Whether it comes with a validation part of its own."""
        if self.shards is not None:
            return any(file.role == "validation" for file in self.shards.files)
        return len(self.files) == 2


def of_two(name: str, files: tuple[TextFile, TextFile], licence: str) -> Manifest:
    """The manifest of a training text with a validation text of its own."""
    size = sum(file.size_bytes for file in files)
    return Manifest(name, pair_sha256([file.sha256 for file in files]), size, None, licence, files)


def pair_sha256(hashes: Sequence[str]) -> str:
    """The one hash of a training text and a validation text; swapped, they are another corpus.

    >>> pair_sha256(["a" * 64, "b" * 64]) == pair_sha256(["b" * 64, "a" * 64])
    False
    """
    train, validation = hashes
    return sha256_of({"train": train, "validation": validation})


_WIKITEXT = "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2"
_WIKITEXT_VALID = TextFile(
    name="valid.txt",
    sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    size_bytes=1_121_681,
    address=f"{_WIKITEXT}/valid.txt",
)

# To add a corpus: a row of `KNOWN` with a public address, the sha256 and size of each file as you hashed them after
# downloading, and its licence.
TOY_SHA256 = "f4e715faed464e2185f20529572cb520c7db4b64d0ea7ff0e0fa974a1be30f35"
"""Of the text that `toy` generates; `ablate.data.toy` makes it."""
KNOWN: Mapping[str, Manifest] = {
    "tinyshakespeare": Manifest(
        name="tinyshakespeare",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        size_bytes=1_115_394,
        address="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        licence="public domain text",
    ),
    # WikiText-2 (Merity et al. 2017), words outside its vocabulary written as <unk>. Nobody who wrote this had the
    # training split: its hash is the one that several public projects publish next to the two hashes verified below.
    "wikitext-2": of_two(
        "wikitext-2",
        (
            TextFile(
                name="train.txt",
                sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                size_bytes=10_797_148,
                address=f"{_WIKITEXT}/train.txt",
            ),
            _WIKITEXT_VALID,
        ),
        licence="CC BY-SA",
    ),
    # WikiText-2 without its training split: a stand-in that trains on the test split and is
    # named so that nobody takes it for the whole.
    "wikitext-2-heldout": of_two(
        "wikitext-2-heldout",
        (
            TextFile(
                name="test.txt",
                sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                size_bytes=1_256_449,
                address=f"{_WIKITEXT}/test.txt",
            ),
            _WIKITEXT_VALID,
        ),
        licence="CC BY-SA",
    ),
}


def search_path(own: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where corpora are looked for, in order: `ABLATE_CORPORA`, the repository's own folder, the user's cache."""
    listed = [Path(folder) for folder in environment.get("ABLATE_CORPORA", "").split(os.pathsep) if folder]
    # The user's own word first; the cache last, since it is shared by all repositories.
    return (*listed, own, cache_folder(environment) / "corpora")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's cache: what lies there can be made again."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ablate"


def whole_sha256(folder: Path, manifest: Manifest) -> str | None:
    """The hash of a corpus as it lies in a folder, every byte read; none where a file is missing."""
    if manifest.shards is not None:
        places = [manifest.shards.folder / file.name for file in manifest.shards.files]
    else:
        places = [folder / file.name for file in manifest.texts]
    # No hash of a part: half a corpus must not look like another one.
    if not all(place.is_file() for place in places):
        return None
    hashes = [sha256_file(place) for place in places]
    if manifest.shards is not None:
        same = all(sha256 == file.sha256 for sha256, file in zip(hashes, manifest.shards.files, strict=True))
        # Another hash whatever it is; marked, so that it equals the hash of no sound corpus.
        return manifest.shards.sha256 if same else sha256_of({"other shards": hashes})
    return hashes[0] if len(hashes) == 1 else pair_sha256(hashes)


@cache
def _format() -> TypeAdapter[Manifest]:
    """The form of a manifest's file: the fields of the dataclasses above, as JSON."""
    return TypeAdapter(Manifest)


def read_manifest(path: Path, name: str) -> Manifest:
    """The manifest that `ablate corpus add` wrote. Raises `CorpusError` where it is none, or its sha256 is not that of
    what it lists."""
    try:
        manifest = _format().validate_json(path.read_bytes(), strict=True)
        shards = manifest.shards
        listed = shards.sha256 if shards is not None else manifest.sha256
        if manifest.files:
            listed = pair_sha256([file.sha256 for file in manifest.files])
        if listed != manifest.sha256:
            raise ValueError("its sha256 is not that of what it lists")
    except (OSError, ValueError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise CorpusError(
            f"{path} is not a corpus manifest ({why})",
            required="what `ablate corpus add` wrote",
            fix=f"rm -r {path.parent} && ablate corpus add {name} FILE",
        ) from error
    # Under the name by which it was asked for: the folder may have been copied to another name.
    placed = None if shards is None else replace(shards, folder=path.parent / shards.folder)
    return replace(manifest, name=name, shards=placed)


def manifest_bytes(manifest: Manifest) -> bytes:
    """A manifest's file, which `read_manifest` reads."""
    return _format().dump_json(manifest, indent=2) + b"\n"
