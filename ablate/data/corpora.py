"""Corpora: found by name and sha256, downloaded, verified, read; `prereg/study/corpora.py` pins what a name means.

Never a silent stand-in.

Known texts are pinned in `prereg.study.corpora`; a user's own are pinned by the manifest that `ablate corpus add`
writes next to them. A corpus is searched in `ABLATE_CORPORA`, the repository's `data/corpora/`, the user's cache; then
downloaded from its public address; then given up with one message that says all of that. Corpora that are stored
as token ids are in `ablate.data.shards`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ablate.data import toy
from prereg.errors import CorpusError, nearest
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import read_regular, write_whole
from prereg.study.corpora import (
    KNOWN,
    ONE_FILE,
    OWN_VALIDATION,
    TOY_SHA256,
    Manifest,
    TextFile,
    cache_folder,
    manifest_bytes,
    of_two,
    read_manifest,
    search_path,
)

__all__ = ["KNOWN", "TOY_SHA256", "Corpus", "Library", "Manifest"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
DOWNLOAD_TIMEOUT_S = 30
LARGEST_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Corpus:
    """A text that has been checked against its manifest."""

    manifest: Manifest
    text: str
    found: str
    held_out: str | None = None
    """Its own validation text, where it comes with one."""


@dataclass(frozen=True)
class TextExtent:
    """How much text a corpus holds, and in which characters it is written."""

    characters: int
    held_out: int | None
    """Characters of its own validation text, where it comes with one."""
    alphabet: frozenset[str]
    """Of both texts."""


@dataclass(frozen=True)
class Library:
    """Where corpora are looked for, in order."""

    folders: tuple[Path, ...]
    own: Path
    """The folder that `add` and `fetch` write to."""
    known: Mapping[str, Manifest]

    cache: Path
    """What lies there can be made again: which shards have been hashed."""

    @classmethod
    def of(cls, own: Path, environment: Mapping[str, str] = os.environ) -> Library:
        """The search path: `ABLATE_CORPORA`, the repository's own folder, the user's cache."""
        return cls(folders=search_path(own, environment), own=own, known=KNOWN, cache=cache_folder(environment))

    @property
    def root(self) -> Path:
        """The repository of the folder that is written to."""
        return self.own.parent.parent

    @property
    def tokenizers(self) -> Path:
        """The folder in which trained tokenizers are kept."""
        return self.own.parent / "tokenizers"

    def names(self) -> tuple[str, ...]:
        """Every name that can be requested: the toy, the pinned ones, the user's own."""
        added = {path.parent.name for folder in self.folders for path in folder.glob("*/manifest.json")}
        return ("toy", *sorted({*self.known, *added}))

    def manifest(self, name: str) -> Manifest:
        """What a name means; an unknown name is an error with the nearest known one."""
        if name == "toy":
            return Manifest("toy", TOY_SHA256, toy.LENGTH, None, "Apache-2.0, generated")
        # A pinned name means its own text everywhere: a manifest of that name in a folder is not looked at.
        if name in self.known:
            return self.known[name]
        require_name(name)
        for folder in self.folders:
            path = folder / name / "manifest.json"
            if path.is_file():
                return read_manifest(path, name)
        raise CorpusError(
            f"no corpus is named '{name}'",
            required="one of " + ", ".join(self.names()),
            fix=f"{nearest(name, self.names())}  or  ablate corpus add {name} FILE",
        )

    def find(self, name: str, *, download: bool = True) -> Corpus:
        """The text of a corpus, verified. Downloads only when no folder holds it."""
        manifest = self.manifest(name)
        if name == "toy":
            return Corpus(manifest, _toy_text(), "generated")
        if manifest.shards is not None:
            raise CorpusError(
                f"corpus '{name}' is stored as token ids and has no text",
                required="tokenizer: own, which reads the ids as they are",
                fix="data: {corpus: " + name + ", tokenizer: own}",
            )
        # A folder counts only with every file of the corpus: half of one and half of another would be no known text.
        names = [file.name for file in manifest.texts]
        for folder in self.folders:
            places = [folder / name / file for file in names]
            if all(place.is_file() for place in places):
                return _read(manifest, places, str(places[0]))
        places_tried = ", ".join(str(folder / name / file) for folder in self.folders for file in names)
        download_note = "not tried"
        if manifest.texts[0].address is None:
            download_note = "it has no public address"
        elif download:
            try:
                return _read(manifest, self._fetch(manifest), manifest.texts[0].address)
            except CorpusError as error:
                download_note = error.found
        hashes = " and one with ".join(f"sha256 {file.sha256}" for file in manifest.texts)
        raise CorpusError(
            f"corpus '{name}' is not here. Looked for: {places_tried}. Download: {download_note}",
            required=f"a file with {hashes}",
            fix=f"{_add(manifest)}   (or set ABLATE_CORPORA to a folder that holds {name}/)",
        )

    def extent(self, name: str, *, download: bool = True) -> TextExtent:
        """How much text a corpus holds; that of the toy is known without making it. Raises `CorpusError` as `find`."""
        if name == "toy":
            return TextExtent(toy.LENGTH, None, toy.alphabet())
        corpus = self.find(name, download=download)
        own = corpus.held_out
        return TextExtent(
            len(corpus.text), None if own is None else len(own), frozenset(corpus.text) | frozenset(own or "")
        )

    def fetch(self, name: str) -> Path:
        """Download a corpus from its public address into the repository's own folder; returns its (first) file."""
        return self._fetch(self.manifest(name))[0]

    def _fetch(self, manifest: Manifest) -> list[Path]:
        # Here, because it loads ssl: a tenth of the CPU time of a command that downloads nothing.
        import urllib.error
        import urllib.request

        read = []
        for file in manifest.texts if manifest.shards is None else ():
            if file.address is None:
                break
            try:
                request = urllib.request.Request(file.address, headers={"User-Agent": "ablate"})  # noqa: S310
                with urllib.request.urlopen(request, timeout=DOWNLOAD_TIMEOUT_S) as reply:  # noqa: S310
                    # One byte more shows in the hash; no reply can fill the memory.
                    data = reply.read(file.size_bytes + 1)
            except (urllib.error.URLError, OSError) as error:
                raise CorpusError(
                    f"{file.address} could not be read ({error})",
                    required="a network, or a local file",
                    fix=_add(manifest),
                ) from error
            _require_same(data, manifest, file, file.address)
            read.append((file.name, data))
        if not read:
            raise CorpusError(f"corpus '{manifest.name}' has no public address", fix=_add(manifest))
        # Only once all are here and right: half a corpus is none.
        return [self._store(manifest.name, name, data) for name, data in read]

    def add(self, name: str, file: Path, *, licence: str = "", held_out: Path | None = None) -> Manifest:
        """Take a local text in under a name, with a validation text of its own or without.

        A pinned name takes only its own text.
        """
        if name == "toy":
            raise CorpusError("'toy' is generated and takes no file", required="another name")
        require_name(name)
        # Both files are read and checked before anything is written.
        texts = [_text_of(path) for path in (file, *([] if held_out is None else [held_out]))]
        if name in self.known:
            manifest = self.known[name]
            # A name that is pinned takes the bytes that are pinned, under any file names.
            if len(manifest.texts) != len(texts):
                raise CorpusError(
                    f"'{name}' is {len(manifest.texts)} files, and {len(texts)} were given",
                    required=" and ".join(text.name for text in manifest.texts),
                    fix=_add(manifest),
                )
            for data, text, source in zip(texts, manifest.texts, (file, held_out), strict=False):
                _require_same(data, manifest, text, str(source))
        elif len(texts) == 1:
            manifest = Manifest(name, sha256_bytes(texts[0]), len(texts[0]), None, licence)
        else:
            names = (ONE_FILE, OWN_VALIDATION)
            train, validation = (
                TextFile(text, sha256_bytes(data), len(data)) for text, data in zip(names, texts, strict=True)
            )
            # Files are stored under fixed names, so that their hash does not depend on what a user's files are
            # called.
            manifest = of_two(name, (train, validation), licence)
        self.require_new(manifest, file)
        for data, stored in zip(texts, manifest.texts, strict=True):
            self._store(name, stored.name, data)  # the manifest comes last: a name without its texts would be found
        if name not in self.known:
            self.keep(manifest)
        return manifest

    def require_new(self, manifest: Manifest, source: Path) -> None:
        """Refuse to give a name another meaning than it has here already."""
        earlier = self.own / manifest.name / "manifest.json"
        if earlier.is_file() and read_manifest(earlier, manifest.name).sha256 != manifest.sha256:
            raise CorpusError(
                f"corpus '{manifest.name}' is already here with another text",
                required="a new name: studies pin what a name meant",
                fix=f"ablate corpus add {manifest.name}-2 {source}",
            )

    def keep(self, manifest: Manifest) -> None:
        """Write the manifest, by which the name is known from then on."""
        self._store(manifest.name, "manifest.json", manifest_bytes(manifest))

    def _store(self, name: str, file: str, data: bytes) -> Path:
        path = self.own / name / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise CorpusError(f"{path} cannot be written: {error.strerror}", required="a writable folder") from error
        return path


def _add(manifest: Manifest) -> str:
    """What to type to take a corpus in from local files."""
    if len(manifest.files) == 2:
        return f"ablate corpus add {manifest.name} {manifest.files[0].name} --validation {manifest.files[1].name}"
    return f"ablate corpus add {manifest.name} FILE"


def _text_of(file: Path) -> bytes:
    try:
        if file.stat().st_size > LARGEST_BYTES:
            raise CorpusError(
                f"{file} has {file.stat().st_size} bytes",
                required=f"at most {LARGEST_BYTES}; of more, shards of token ids",
                fix="ablate corpus add NAME FOLDER --vocabulary N",
            )
        data = read_regular(file, LARGEST_BYTES)  # a device would never end, and a pipe never begin
    except OSError as error:
        raise CorpusError(f"{file} cannot be read: {error.strerror}", required="a readable text file") from error
    if not _decoded(data, str(file)).strip():  # and only now is it known to be UTF-8
        raise CorpusError(f"{file} holds no text", required="a text to learn from")
    return data


def require_name(name: str) -> None:
    """Refuse what cannot be the name of a corpus and of its folder."""
    if not _NAME.fullmatch(name):
        raise CorpusError(
            f"'{name[:80]}' cannot name a corpus",
            required="letters, digits, hyphens and underscores, at most 80",
        )


def require_validation(manifest: Manifest, validation: float | Literal["own"]) -> None:
    """Refuse a share of a corpus that has a validation part of its own, and `own` of one that has none."""
    if validation == "own" and not manifest.own_validation:
        raise CorpusError(
            f"corpus '{manifest.name}' comes with no validation part of its own",
            required="data.validation: a share of the text, taken from its end",
            fix="data: {validation: 0.1}",
        )
    if validation != "own" and manifest.own_validation:
        raise CorpusError(
            f"corpus '{manifest.name}' comes with a validation part of its own, and data.validation is {validation:g}",
            required="data.validation: own",
            fix="data: {validation: own}",
        )


@cache
def _toy_text() -> str:
    text = toy.text()
    assert sha256_bytes(text.encode()) == TOY_SHA256, (
        "the toy corpus has changed; studies that used it no longer repeat"
    )
    return text


def _read(manifest: Manifest, places: list[Path], origin: str) -> Corpus:
    read = []
    for place, file in zip(places, manifest.texts, strict=True):
        data = place.read_bytes()
        _require_same(data, manifest, file, str(place))
        read.append(_decoded(data, str(place)))
    return Corpus(manifest, read[0], origin, read[1] if len(read) == 2 else None)


def _require_same(data: bytes, manifest: Manifest, file: TextFile, source: str) -> None:
    sha256 = sha256_bytes(data)
    if sha256 != file.sha256:
        raise CorpusError(
            f"{source} is not {manifest.name}: its sha256 is {sha256}",
            required=f"sha256 {file.sha256} ({file.size_bytes:,} bytes)",
            fix=f"add your text under a name of its own: ablate corpus add my-{manifest.name} FILE",
        )


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{source} is not UTF-8 at byte {error.start}", required="UTF-8 text") from error
