"""A bundle checked by somebody who has nothing else: no repository, no corpus, no network.

First its files against the manifest, wherever they lie (`ablate.verification.bundle.container`); then, in a folder of
its own that is removed again, what `ablate verify` checks in a repository; then the verdict, judged again from the
records.

What this shows: the bundle is as it was made, its parts belong together, and its records give its verdict. What it
cannot show: that the whole was not made up. Somebody who rewrites every part, the ledger included, passes. Against that
stand only things that somebody else holds: the sha256 of the contents, the head of the ledger, a seal of the lock.
"""

from __future__ import annotations

import re
from pathlib import Path

from ablate.verification.bundle.archive import UnsoundError, is_safe
from ablate.verification.bundle.container import Unpacked, opened, unpacked
from ablate.verification.bundle.guide import README, guide_differs
from ablate.verification.bundle.manifest import LeftOut, Manifest, Tool, this_tool
from ablate.verification.rejudge import ReportsOf, is_this, judged_again, oversized, tool_versions
from ablate.verification.result import Item, Verification, item
from ablate.verification.verify import verify_root
from prereg.errors import StudyError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import PROMISES, Entry
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration
from prereg.text import counted, listed

HERE = "bundle"
_HASH = re.compile(r"[0-9a-f]{64}")


class BundleCheck(Verification):
    """Everything that was checked of a bundle."""

    contents_sha256: str = ""
    """The manifest's own hash, which covers every other file: the same however the bundle is packed, and the one to
    quote. Empty where not even the manifest could be read."""
    sha256: str
    """sha256 of the file as it is packed; empty for a folder."""
    size_bytes: int
    """Size of the file; of a folder, of what it holds."""
    study: str = ""
    """The study; empty where not even the manifest could be read."""
    left_out: tuple[LeftOut, ...] = ()
    """What is not in it, and why, as its author says."""
    made_with: Tool | None = None
    """What made it, by its own word."""
    checked_with: Tool
    """What checked it."""


def check_bundle(
    path: Path, *, reports_of: ReportsOf, signers: Path | None = None, roots: Path | None = None
) -> BundleCheck:
    """Check a bundle: a zip archive or a folder. Raises if it is none; returns failed checks otherwise.

    A bundle brings no word on whom to believe: `signers` and `roots` are the reader's own.
    """
    with opened(path) as bundle:
        manifest, items, head, size = None, [], "", 0
        try:
            with unpacked(bundle) as found:
                size = sum(member.size_bytes for member in found.packing.members.values())
                manifest = found.manifest
                items.append(_packing_item(found, packed=bundle.stream is not None))
                more, head = _contents(found, reports_of, {"signers": signers, "roots": roots})
                items += more
        except UnsoundError as error:
            manifest, items = None, [item(HERE, PACKING, str(error))]
        return BundleCheck(
            items=tuple(items),
            head=head,
            contents_sha256="" if manifest is None else manifest.sha256,
            sha256=bundle.sha256,
            size_bytes=size if bundle.stream is None else bundle.stream.seek(0, 2),
            study="" if manifest is None else manifest.study,
            left_out=() if manifest is None else manifest.left_out,
            made_with=None if manifest is None else manifest.made_with,
            checked_with=this_tool(),
        )


PACKING, GUIDE = "files and manifest", "README and figures"


def _packing_item(found: Unpacked, *, packed: bool) -> Item:
    packing = found.packing
    note = f"{counted(len(packing.members), 'file')}; each is what the manifest lists"
    if not packed or packing.inside:
        note += f"; in {'an archive' if packed else 'a folder'}" + f", below {packing.inside!a}" * bool(packing.inside)
    if packing.ignored:
        names = listed(sorted({name.removesuffix("/").rpartition("/")[2] for name in packing.ignored})[:3])
        note += f"; {counted(len(packing.ignored), 'file')} of a file manager ignored ({ascii(names)[1:-1]})"
    return item(HERE, PACKING, note=note)


def _contents(found: Unpacked, reports_of: ReportsOf, believed: dict[str, Path | None]) -> tuple[list[Item], str]:
    """Every check of the contents, and the ledger's head."""
    manifest = found.manifest
    root = Root(found.folder, ledger_name=Path(manifest.ledger.file).name)
    if manifest.ledger.file != root.ledger.relative_to(root.path).as_posix():
        raise UnsoundError(f"the ledger is at {manifest.ledger.file!a}")
    ledger = Ledger(root.ledger)
    if faults := ledger.faults():
        return [item(HERE, "ledger", *faults)], ""
    entries = ledger.entries()
    if faults := _outside(entries):
        return [item(HERE, "ledger", *faults)], ""
    items = [_ledger_item(ledger, manifest, entries)]
    # Before anything reads a table's values.
    if large := oversized(root.path / "data" / "runs"):
        return [*items, item(manifest.study, "sealed records", large)], ledger.head()
    try:
        # Its first item is the chain, which was reported with what is withheld of it.
        items += verify_root(root, manifest.study, **believed).items[1:]
    except StudyError as error:
        items.append(item(manifest.study, "contents", error.found))
    except (ValueError, TypeError, KeyError) as error:
        # Well-formed and yet not what any version writes: a stranger's ledger may say anything.
        items.append(item(manifest.study, "contents", f"cannot be read: {error}"))
    items = [_in_a_bundle(item) for item in items]
    if not any(item.faults for item in items):
        items += _guide_items(found, root)
        items += judged_again(root, manifest.study, entries, manifest.made_with, reports_of)
    return items, ledger.head()


def _guide_items(found: Unpacked, root: Root) -> list[Item]:
    """What a reader without ablate reads, against the files that it describes."""
    manifest = found.manifest
    registration = load_registration(root, manifest.study)
    if README not in manifest.members or registration is None:
        return []
    other = guide_differs(found.folder, manifest, registration)
    if not other:
        return [item(HERE, GUIDE, note="as the other files say")]
    if is_this(manifest.made_with):
        fault = f"{other}: not what the other files say, and the same version wrote them"
        return [item(HERE, GUIDE, fault)]
    note = f"not compared: {other} as another version writes it; {tool_versions(manifest.made_with)}"
    return [item(HERE, GUIDE, note=note)]


def _outside(entries: tuple[Entry, ...]) -> list[str]:
    """Entries that name a place outside the bundle: nothing on this machine may be read because a stranger says so."""
    found = []
    for entry in entries:
        places = [place for key in ("file", "ledger", "variant") if (place := entry.body.get(key)) is not None]
        seed = entry.body.get("seed", 0)
        if (
            not all(isinstance(place, str) and is_safe(place) for place in places)
            or not (entry.event == "continued" or _HASH.fullmatch(entry.registration))
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
    promised = [e for e in entries if e.study == manifest.study and e.event in PROMISES]
    if not promised or promised[-1].registration != manifest.registration:
        faults.append("its newest registration of the study is not the one in the manifest")
    note = f"{len(entries)} entries"
    if n_withheld:
        note += f", and links of {n_withheld} withheld; that these are of other studies cannot be checked"
    return item(HERE, "ledger", *faults, note=note)


def _in_a_bundle(item: Item) -> Item:
    """The same, said of a bundle."""
    return item.model_copy(update={"note": item.note.replace("on this disk", "in the bundle")})
