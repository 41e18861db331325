"""What still matches what was frozen, in a project and in a bundle; what seals are worth, and what they leave open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table, columns
from ablate.verification.result import Verification
from prereg import text as words
from prereg.seals.examine import SealCheck
from prereg.seals.state import LEFT_OPEN_BY_ALL, PROOFS

if TYPE_CHECKING:
    from ablate.verification.check import BundleCheck

_STATES = {
    "holds": "holds",
    "unvouched": "not vouched for",
    "incomplete": "not complete",
    "unchecked": "not checked",
    "broken": "BROKEN",
    "owed": "PENDING",
}


def verification_section(found: Verification) -> Section:
    """Everything that was checked, faults in full, seals with what they are worth, and the ledger's head."""
    blocks = (
        *_checked(found),
        _summary(found, "All hashes that could be checked match.", "what was frozen has changed"),
    )
    return Section("verification", "", (*blocks, Paragraph(f"Ledger head: {found.head}")))


def bundle_check_section(found: BundleCheck) -> Section:
    """What was checked of a bundle, and what only somebody else's copy of a hash can show."""
    summary = _summary(found, "All checks of the bundle pass.", "the bundle is not sound")
    return Section("bundle", "", (*_checked(found), summary, *_limits(found)))


def bundle_section(path: Path, found: BundleCheck, *, written: bool) -> Section:
    """The bundle that was written, or existed already; it has been checked."""
    line = f"{'wrote' if written else 'exists already:'} {path} ({found.size_bytes:,} bytes)"
    return Section("bundle", "", (Paragraph(line), *_limits(found)))


def _checked(found: Verification) -> Iterator[Block]:
    rows = [
        ("CHANGED" if item.faults else "ok", f"{item.study}: {item.what}", item.note or _faults(len(item.faults)))
        for item in found.items
    ]
    marked = frozenset(at for at, item in enumerate(found.items) if item.faults)
    yield Table("", columns("State", "Checked", "Found"), tuple(rows), marked=marked)
    for item in found.items:
        yield Facts(tuple(("", f"{item.study}: {item.what}: {fault}") for fault in item.faults))
    yield from _seals(found.seals)
    for item in found.items:
        if item.inadmissible:
            yield Paragraph(f"{item.study}: inadmissible, so no verdict comes from these records.", "lead")


def _summary(found: Verification, sound: str, unsound: str) -> Paragraph:
    n = sum(len(item.faults) for item in found.items)
    return Paragraph(sound, "lead") if found.intact else Paragraph(f"{_faults(n)} found: {unsound}.", "warning")


def _faults(n: int) -> str:
    return words.counted(n, "fault")


def _seals(seals: Sequence[SealCheck]) -> Iterator[Block]:
    """Every seal, then one table of what such seals are worth."""
    items = []
    for seal in seals:
        name = "seal" if seal.kind is None else PROOFS[seal.kind].name
        earlier = " of an amended registration" * seal.superseded
        file = "" if seal.file is None else f", {seal.file}"
        late = "; runs had begun when it was made" * (seal.after_runs and seal.state != "owed")
        items.append((_STATES[seal.state], f"{seal.study}, {name}{earlier}{file}; {seal.says}{late}"))
    yield Facts(tuple(items))
    worth = tuple(proof for kind, proof in PROOFS.items() if any(seal.kind == kind for seal in seals))
    if worth:
        yield Table("", columns("Seal", "Proves", "Does not prove"), worth, note=LEFT_OPEN_BY_ALL)


def _limits(found: BundleCheck) -> Iterator[Block]:
    yield Facts(tuple(("Not in it", f"{one.what}: {one.why}.") for one in found.left_out))
    yield Paragraph(
        "No check of a bundle can show that it was not made up as a whole. Compare one of these with what somebody "
        "else holds, or look at the seals of its lock:"
    )
    yield Facts((("Bundle sha256", found.sha256), ("Ledger head", found.head or "unknown")))
