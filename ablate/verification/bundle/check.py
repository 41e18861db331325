"""A bundle checked by somebody who has nothing else: no repository, no corpus, no network.

First the file, byte for byte, before anything of it is written to disk; then, unpacked into a folder of its own that is
removed again, what `ablate verify` checks in a repository; then the verdict, judged again from the records.

What this shows: the bundle is as it was made, its parts belong together, and its records give its verdict. What it
cannot show: that the whole was not made up. Somebody who writes every part anew, ledger and all, passes. Against that
stand only things that somebody else holds: the sha256 of the bundle, the head of the ledger, a seal of the lock.
"""

from __future__ import annotations

import hashlib
import re
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from ablate.verification.bundle.archive import (
    MANIFEST,
    Slot,
    UnsoundError,
    begins_a_bundle,
    contents,
    is_safe,
    read_archive,
)
from ablate.verification.bundle.manifest import LARGEST_BYTES, LeftOut, Manifest, Tool, read_manifest, this_tool
from ablate.verification.rejudge import Tell, judged_again, oversized
from ablate.verification.result import Item, Verification
from ablate.verification.verify import verify_root
from prereg.errors import StudyError, StudyFileError, Where
from prereg.registry.disk import scratch
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root

HERE = "bundle"
LARGEST_TEXT = 2**27
"""Bytes of a member that is read whole: JSON, YAML, pages, code."""
_HASH = re.compile(r"[0-9a-f]{64}")


class BundleCheck(Verification):
    """Everything that was checked of a bundle."""

    sha256: str
    """sha256 of the file, to be compared with one that somebody else holds."""
    size_bytes: int
    """Its size."""
    study: str = ""
    """The study; empty where not even the manifest could be read."""
    left_out: tuple[LeftOut, ...] = ()
    """What is not in it, and why, as its author says."""
    made_with: Tool | None = None
    """What made it, by its own word."""
    checked_with: Tool
    """What checked it."""


def check_bundle(path: Path, *, tell: Tell, signers: Path | None = None, roots: Path | None = None) -> BundleCheck:
    """Check a bundle. Raises if the file is not a bundle; returns failed checks otherwise.

    A bundle brings no word on whom to believe: `signers` and `roots` are the reader's own.
    """
    with _opened(path) as stream:
        if not begins_a_bundle(stream):
            raise StudyFileError(
                "this is not a bundle",
                required=f"a file that `ablate bundle` wrote: a zip archive that begins with {MANIFEST}",
                fix="ablate verify studies/NAME.yaml, for a study in its repository",
                where=Where(file=path),
            )
        manifest, items, head = None, [], ""
        try:
            slots = read_archive(stream)
            manifest = _manifest(stream, slots)
            note = f"{len(slots)} files; every byte accounted for"
            items.append(Item(study=HERE, what="archive and manifest", faults=(), note=note))
            found, head = _unpacked(stream, slots, manifest, tell, {"signers": signers, "roots": roots})
            items += found
        except UnsoundError as error:
            items = [Item(study=HERE, what="archive and manifest", faults=(str(error),))]
        return BundleCheck(
            items=tuple(items),
            head=head,
            sha256=_sha256(stream),
            size_bytes=stream.seek(0, 2),
            study="" if manifest is None else manifest.study,
            left_out=() if manifest is None else manifest.left_out,
            made_with=None if manifest is None else manifest.made_with,
            checked_with=this_tool(),
        )


def _sha256(stream: BufferedReader) -> str:
    """Of the very file that was checked, whatever is at its path by now."""
    stream.seek(0)
    return hashlib.file_digest(stream, "sha256").hexdigest()


def _opened(path: Path) -> BufferedReader:
    if not path.is_file():
        raise StudyFileError(
            "there is no such file",
            required="a bundle, or a study file",
            fix="ablate bundle STUDY writes one",
            where=Where(file=path),
        )
    return path.open("rb")


def _manifest(stream: BinaryIO, slots: tuple[Slot, ...]) -> Manifest:
    """The manifest, once it agrees with every member."""
    if slots[0].size_bytes > LARGEST_BYTES:
        raise UnsoundError(f"the manifest has {slots[0].size_bytes:,} bytes, and at most {LARGEST_BYTES:,}")
    manifest = read_manifest(b"".join(contents(stream, slots[0])))
    listed = {name: (member.sha256, member.size_bytes) for name, member in manifest.members.items()}
    there = {slot.name: (slot.sha256, slot.size_bytes) for slot in slots[1:]}
    for name in sorted(listed.keys() | there.keys()):
        if name not in there:
            raise UnsoundError(f"{name!a} is in the manifest and not in the archive")
        if name not in listed:
            raise UnsoundError(f"{name!a} is in the archive and not in the manifest")
        if listed[name] != there[name]:
            raise UnsoundError(f"{name!a} is not the file that the manifest names")
    for slot in slots:
        if not slot.name.endswith((".parquet", ".safetensors")) and slot.size_bytes > LARGEST_TEXT:
            raise UnsoundError(f"{slot.name!a} has {slot.size_bytes:,} bytes, and a text at most {LARGEST_TEXT:,}")
    if manifest.ledger.file not in there:
        raise UnsoundError("the manifest names a ledger that is not in the archive")
    return manifest


def _unpacked(
    stream: BinaryIO, slots: tuple[Slot, ...], manifest: Manifest, tell: Tell, believed: dict[str, Path | None]
) -> tuple[list[Item], str]:
    """Every check of the contents, and the ledger's head."""
    with scratch("bundle") as folder:
        root = Root(folder.resolve() / "root", ledger_name=Path(manifest.ledger.file).name)
        root.path.mkdir()
        _unpack(stream, slots, root.path)
        if manifest.ledger.file != root.ledger.relative_to(root.path).as_posix():
            raise UnsoundError(f"the ledger is at {manifest.ledger.file!a}")
        ledger = Ledger(root.ledger)
        if faults := ledger.faults():
            return [Item(study=HERE, what="ledger", faults=tuple(faults))], ""
        entries = ledger.entries()
        if faults := _outside(entries):
            return [Item(study=HERE, what="ledger", faults=tuple(faults))], ""
        items = [_ledger_item(ledger, manifest, entries)]
        # Before anything reads a table's values.
        if large := oversized(root.path / "data" / "runs"):
            return [*items, Item(study=manifest.study, what="sealed records", faults=(large,))], ledger.head()
        try:
            # Its first item is the chain, which was reported with what is withheld of it.
            items += verify_root(root, manifest.study, **believed).items[1:]
        except StudyError as error:
            items.append(Item(study=manifest.study, what="contents", faults=(error.found,)))
        except (ValueError, TypeError, KeyError) as error:
            # Well-formed and yet not what any version writes: a stranger's ledger may say anything.
            items.append(Item(study=manifest.study, what="contents", faults=(f"cannot be read: {error}",)))
        items = [_in_a_bundle(item) for item in items]
        if not any(item.faults for item in items):
            items += judged_again(root, manifest.study, entries, manifest.made_with, tell)
        return items, ledger.head()


def _unpack(stream: BinaryIO, slots: tuple[Slot, ...], folder: Path) -> None:
    """Write every member below a folder that is new and ours. Names have been found safe; they are checked again
    here."""
    for slot in slots:
        target = folder.joinpath(*slot.name.split("/"))
        assert is_safe(slot.name) and target.is_relative_to(folder), slot.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for piece in contents(stream, slot):
                file.write(piece)


def _outside(entries: tuple[Entry, ...]) -> list[str]:
    """Entries that name a place outside the bundle: nothing on this machine may be read because a stranger says so."""
    found = []
    for entry in entries:
        places = [place for key in ("file", "variant") if (place := entry.body.get(key)) is not None]
        seed = entry.body.get("seed", 0)
        if (
            not all(isinstance(place, str) and is_safe(place) for place in places)
            or not _HASH.fullmatch(entry.registration)
            or not isinstance(seed, int)
        ):
            found.append(f"entry {entry.index} names a place that no study has")
    return found


def _ledger_item(ledger: Ledger, manifest: Manifest, entries: tuple[Entry, ...]) -> Item:
    """What is shown of the ledger, whether it is what the manifest says, and whether it is of this registration."""
    n_withheld = len(ledger.withheld())
    faults = []
    here = (ledger.head(), len(entries) + n_withheld, n_withheld)
    if here != (manifest.ledger.head, manifest.ledger.n_entries, manifest.ledger.n_withheld):
        faults.append("head or number of entries are not those of the manifest")
    promised = [e for e in entries if e.study == manifest.study and e.event in ("registered", "amended")]
    if not promised or promised[-1].registration != manifest.registration:
        faults.append("its newest registration of the study is not the one in the manifest")
    note = f"{len(entries)} entries"
    if n_withheld:
        note += f", and links of {n_withheld} withheld; that these are of other studies cannot be checked"
    return Item(study=HERE, what="ledger", faults=tuple(faults), note=note)


def _in_a_bundle(item: Item) -> Item:
    """The same, said of a bundle."""
    return item.model_copy(update={"note": item.note.replace("on this disk", "in the bundle")})
