"""`MANIFEST.json`: every other member of a bundle by hash, the ledger's head, and what is not in the bundle and why.

It carries a hash of itself, as an entry of the ledger does, so that no byte of it can change unseen. This hash covers
all contents and none of the packing: it is the one to quote. It is a checksum and no seal: somebody who rewrites
the whole bundle rewrites this hash too. Only what somebody else holds shows the difference: this hash, the ledger's
head, or a seal of the lock.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from prereg.errors import UnsupportedError
from prereg.frozen import FrozenModel
from prereg.registry.canon import canonical_bytes, from_canonical, sha256_bytes, sha256_of
from prereg.study.measure import Name

FORMAT: Final = 1
MANIFEST = "MANIFEST.json"
LARGEST_BYTES = 1 << 24
"""Of a manifest: it is read into memory before anything vouches for it."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

_DISTRIBUTION = "ablate-prereg"
SOURCE = Path(__file__).resolve().parents[2]
"""Where the packages lie: the source tree, or site-packages."""
_JUDGING = ("prereg/**/*", "ablate/judge/**/*", "ablate/records/**/*", "ablate/reporting/**/*", "ablate/*")


class UnsoundError(Exception):
    """A bundle does not hold what it says it holds. Says in a sentence what was found first."""


class Member(FrozenModel):
    """One file of a bundle."""

    sha256: Hash
    """sha256 of its bytes."""
    size_bytes: int
    """Its size."""


class LedgerPart(FrozenModel):
    """Which part of the repository's ledger the bundle holds."""

    file: str
    """The member that holds it."""
    head: Hash
    """Hash of its last entry, shown or withheld."""
    n_entries: int
    """Entries up to the head."""
    n_withheld: int
    """Those of them that are shown as links only, being of other studies as the bundle's author says."""


class LeftOut(FrozenModel):
    """Something a reader could look for in vain."""

    what: str
    """What it is."""
    why: str
    """Why it is not in the bundle."""


class Tool(FrozenModel):
    """What made the bundle, or what checks it."""

    version: str
    """Version of ablate."""
    code: str
    """sha256 over the sources that read, judge and report."""
    python: str
    """Python version."""
    platform: str
    """Operating system and machine type."""
    libraries: dict[str, str]
    """Version of every library that ablate names as its own."""

    @property
    def words(self) -> str:
        """The tool in a few words."""
        return f"ablate {self.version}, code {self.code[:8]}"


class BundleManifest(FrozenModel):
    """What is in a bundle."""

    format: Literal[1]
    """The version of the format."""
    study: Name
    """The study's id."""
    registration: Hash
    """sha256 of the registration in force."""
    ledger: LedgerPart
    """The ledger."""
    members: dict[str, Member]
    """name -> file, of every member but this one."""
    left_out: tuple[LeftOut, ...]
    """What is not in it, and why."""
    made_with: Tool
    """What made it."""
    sha256: Hash
    """sha256 of the canonical bytes of all other fields."""


def bundle_manifest_bytes(**fields: Any) -> bytes:
    """Canonical bytes of a manifest, its own hash added: RFC 8785, so that the same facts have one form.

    >>> part = LedgerPart(file="studies/ledger.jsonl", head="0" * 64, n_entries=1, n_withheld=0)
    >>> fields = {"study": "width", "registration": "1" * 64, "ledger": part, "members": {}, "left_out": ()}
    >>> data = bundle_manifest_bytes(**fields, made_with=this_tool())
    >>> read_bundle_manifest(data).study
    'width'
    >>> read_bundle_manifest(data.replace(b"width", b"depth"))
    Traceback (most recent call last):
    ablate.verification.manifest.UnsoundError: the manifest does not have its own hash: it was changed
    """
    # The hash is over all fields but itself, in canonical form, as an entry of the ledger is hashed.
    plain = {key: _plain(value) for key, value in {"format": FORMAT, **fields}.items()}
    return canonical_bytes(plain | {"sha256": sha256_of(plain)})


def read_bundle_manifest(data: bytes) -> BundleManifest:
    """The manifest of exact bytes. Raises `UnsoundError`, or `UnsupportedError` for a later form."""
    try:
        content = from_canonical(data)
        # Byte for byte: what another form of the same JSON would hide, such as a key given twice, is not read.
        sound = isinstance(content, dict) and canonical_bytes(content) == data
    except (ValueError, RecursionError):
        sound = False
    # Before the fields are looked at: a damaged manifest is called damaged and not of another format.
    if not sound or content.get("sha256") != sha256_of({k: v for k, v in content.items() if k != "sha256"}):
        raise UnsoundError("the manifest does not have its own hash: it was changed")
    if content.get("format") != FORMAT:
        raise UnsupportedError(
            f"this bundle has format {ascii(content.get('format'))[:60]}",
            required=f"format {FORMAT}",
            fix=f"check it with the version of ablate that made it, or a later one than {version(_DISTRIBUTION)}",
        )
    try:
        return BundleManifest.model_validate_json(data)
    except ValidationError as error:
        raise UnsoundError(f"the manifest is not one: {error.errors()[0]['msg']}") from None


@cache
def this_tool() -> Tool:
    """What is running here."""
    # Requirements are texts such as "numpy>=2; extra == 'x'". With a ";" they are of an extra or a platform, and
    # left out.
    names = sorted({re.split(r"[^A-Za-z0-9_.-]", text)[0] for text in requires(_DISTRIBUTION) or () if ";" not in text})
    return Tool(
        version=version(_DISTRIBUTION),
        code=code_of_this_tool(),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        libraries={name: _version_or_none(name) for name in names},
    )


def _version_or_none(name: str) -> str:
    """Checking a bundle needs no trainer, so a library that only training needs may be absent."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def is_this(maker: Tool | None) -> bool:
    """Whether what made a bundle is what runs here.

    >>> is_this(this_tool()), is_this(this_tool().model_copy(update={"code": "0" * 64}))
    (True, False)
    """
    if maker is None:
        return False
    here = this_tool()
    # Not Python and platform: the same code and libraries are expected to give the same sentences there, and
    # numbers nearly.
    return (maker.version, maker.code, maker.libraries) == (here.version, here.code, here.libraries)


def version_note(maker: Tool | None) -> str:
    """Which version made a bundle, and which is here."""
    here = this_tool()
    if maker is None:
        return f"as another version writes it, or by hand: this is {here.words}"
    if is_this(maker):
        return f"judged by the version that made the bundle ({here.words})"
    # At most four are named: it is a hint at where digits come from, and the manifest has all.
    others = [name for name in here.libraries if maker.libraries.get(name) != here.libraries[name]]
    libraries = f" with other versions of {', '.join(others[:4])}{' and more' if others[4:] else ''}" if others else ""
    return f"the bundle was made by {maker.words}; this is {here.words}{libraries}"


def code_of_this_tool() -> str:
    """sha256 over the sources that read, judge and report: the same where two versions would judge alike."""
    # Names relative to the packages, so that a checkout and an installed wheel have the same hash.
    files = {
        file.relative_to(SOURCE).as_posix(): sha256_bytes(file.read_bytes())
        for pattern in _JUDGING
        for file in sorted(SOURCE.glob(pattern))
        if file.suffix in (".py", ".html", ".css")
    }
    assert files, SOURCE
    return sha256_of(files)


def _plain(value: Any) -> Any:
    if isinstance(value, FrozenModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
