"""Corpora by name and sha256: find, download, verify, read. Never a silent stand-in.

A corpus is one UTF-8 text. Known ones are pinned here; a user's own are pinned by the manifest that
`ablate corpus add` writes beside the text. A corpus is searched in `ABLATE_CORPORA`, the repository's
`data/corpora/`, the user's cache; then downloaded from its public address; then given up with one message
that says all of that.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ablate.gpt import toy
from prereg.canon import sha256_bytes
from prereg.disk import write_whole
from prereg.errors import CorpusError, nearest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
DOWNLOAD_TIMEOUT_S = 30
LARGEST_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Manifest:
    """What a corpus name means."""

    name: str
    sha256: str
    size_bytes: int
    address: str | None
    licence: str


@dataclass(frozen=True)
class Corpus:
    """A text that has been checked against its manifest."""

    manifest: Manifest
    text: str
    found: str


KNOWN: Mapping[str, Manifest] = {
    "tinyshakespeare": Manifest(
        name="tinyshakespeare",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        size_bytes=1_115_394,
        address="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        licence="public domain text",
    ),
}
TOY_SHA256 = "f4e715faed464e2185f20529572cb520c7db4b64d0ea7ff0e0fa974a1be30f35"


@dataclass(frozen=True)
class Library:
    """Where corpora are looked for, in order."""

    folders: tuple[Path, ...]
    own: Path
    """The folder that `add` and `fetch` write to."""
    known: Mapping[str, Manifest]

    @classmethod
    def of(cls, own: Path, environment: Mapping[str, str] = os.environ) -> Library:
        """The search path: `ABLATE_CORPORA`, the repository's own folder, the user's cache."""
        listed = [Path(p) for p in environment.get("ABLATE_CORPORA", "").split(os.pathsep) if p]
        cached = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ablate" / "corpora"
        return cls(folders=(*listed, own, cached), own=own, known=KNOWN)

    def names(self) -> tuple[str, ...]:
        """Every name that can be asked for: the toy, the pinned ones, the user's own."""
        added = {path.parent.name for folder in self.folders for path in folder.glob("*/manifest.json")}
        return ("toy", *sorted({*self.known, *added}))

    def manifest(self, name: str) -> Manifest:
        """What a name means; an unknown name is an error with the nearest known one."""
        if name == "toy":
            return Manifest("toy", TOY_SHA256, len(_toy_bytes()), None, "Apache-2.0, generated")
        if name in self.known:
            return self.known[name]
        _require_name(name)
        for folder in self.folders:
            path = folder / name / "manifest.json"
            if path.is_file():
                return _read_manifest(path, name)
        raise CorpusError(
            f"no corpus is named '{name}'",
            required="one of " + ", ".join(self.names()),
            fix=f"{nearest(name, self.names())}  or  ablate corpus add {name} FILE",
        )

    def find(self, name: str, *, download: bool = True) -> Corpus:
        """The text of a corpus, verified. Downloads only when no folder holds it."""
        manifest = self.manifest(name)
        if name == "toy":
            return Corpus(manifest, toy.text(), "generated")
        for folder in self.folders:
            path = folder / name / "input.txt"
            if path.is_file():
                return Corpus(manifest, _verified(path, manifest), str(path))
        looked = ", ".join(str(folder / name / "input.txt") for folder in self.folders)
        why = "not tried"
        if manifest.address is None:
            why = "it has no public address"
        elif download:
            try:
                return Corpus(manifest, _verified(self.fetch(name), manifest), manifest.address)
            except CorpusError as error:
                why = error.found
        raise CorpusError(
            f"corpus '{name}' is not here. Looked for: {looked}. Download: {why}",
            required=f"a file with sha256 {manifest.sha256}",
            fix=f"ablate corpus add {name} FILE   (or set ABLATE_CORPORA to a folder that holds {name}/)",
        )

    def fetch(self, name: str) -> Path:
        """Download a corpus from its public address into the repository's own folder."""
        manifest = self.manifest(name)
        if manifest.address is None:
            raise CorpusError(f"corpus '{name}' has no public address", fix=f"ablate corpus add {name} FILE")
        try:
            request = urllib.request.Request(manifest.address, headers={"User-Agent": "ablate"})  # noqa: S310
            with urllib.request.urlopen(request, timeout=DOWNLOAD_TIMEOUT_S) as reply:  # noqa: S310
                data = reply.read(manifest.size_bytes + 1)
        except (urllib.error.URLError, OSError) as error:
            raise CorpusError(
                f"{manifest.address} could not be read ({error})",
                required="a network, or a local file",
                fix=f"ablate corpus add {name} FILE",
            ) from error
        _require_same(data, manifest, manifest.address)
        return self._store(name, data)

    def add(self, name: str, file: Path, *, licence: str = "") -> Manifest:
        """Take a local file in under a name. A pinned name takes only its own text."""
        try:
            data = file.read_bytes()
        except OSError as error:
            raise CorpusError(f"{file} cannot be read: {error.strerror}", required="a readable text file") from error
        if len(data) > LARGEST_BYTES:
            raise CorpusError(f"{file} has {len(data)} bytes", required=f"at most {LARGEST_BYTES}")
        if name == "toy":
            raise CorpusError("'toy' is generated and takes no file", required="another name")
        _require_name(name)
        if not _decoded(data, str(file)).strip():
            raise CorpusError(f"{file} holds no text", required="a text to learn from")
        if name in self.known:
            manifest = self.known[name]
            _require_same(data, manifest, str(file))
        else:
            manifest = Manifest(name, sha256_bytes(data), len(data), None, licence)
        earlier = self.own / name / "manifest.json"
        if earlier.is_file() and _read_manifest(earlier, name).sha256 != manifest.sha256:
            raise CorpusError(
                f"corpus '{name}' is already here with another text",
                required="a new name: studies pin what a name meant",
                fix=f"ablate corpus add {name}-2 {file}",
            )
        self._store(name, data)
        if name not in self.known:
            fields = {"name": name, "sha256": manifest.sha256, "size_bytes": len(data), "licence": licence}
            write_whole(earlier, (json.dumps(fields, indent=2) + "\n").encode())
        return manifest

    def _store(self, name: str, data: bytes) -> Path:
        path = self.own / name / "input.txt"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise CorpusError(f"{path} cannot be written: {error.strerror}", required="a writable folder") from error
        return path


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise CorpusError(
            f"'{name[:80]}' cannot name a corpus",
            required="letters, digits, hyphens and underscores, at most 80",
        )


@cache
def _toy_bytes() -> bytes:
    data = toy.text().encode()
    assert sha256_bytes(data) == TOY_SHA256, "the toy corpus has changed; studies that used it no longer repeat"
    return data


def _read_manifest(path: Path, name: str) -> Manifest:
    try:
        fields = json.loads(path.read_text())
        return Manifest(name, str(fields["sha256"]), int(fields["size_bytes"]), None, str(fields.get("licence", "")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(
            f"{path} is not a corpus manifest ({error})",
            required="what `ablate corpus add` wrote",
            fix=f"rm -r {path.parent} && ablate corpus add {name} FILE",
        ) from error


def _verified(path: Path, manifest: Manifest) -> str:
    data = path.read_bytes()
    _require_same(data, manifest, str(path))
    return _decoded(data, str(path))


def _require_same(data: bytes, manifest: Manifest, source: str) -> None:
    found = sha256_bytes(data)
    if found != manifest.sha256:
        raise CorpusError(
            f"{source} is not {manifest.name}: its sha256 is {found}",
            required=f"sha256 {manifest.sha256} ({manifest.size_bytes:,} bytes)",
            fix=f"add your text under a name of its own: ablate corpus add my-{manifest.name} FILE",
        )


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{source} is not UTF-8 at byte {error.start}", required="UTF-8 text") from error
