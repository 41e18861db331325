"""The committed evidence of a study: a bundle at `reports/STUDY/evidence.ablate.zip`, for clones without `data/runs`.

Runs are in no version control, so a verdict in a clone would have nothing left that gives it. Where none of a study's
sealed runs is on the disk, those of this bundle are read in their place; study, lock, ledger, verdict and reports are
those of the repository, and its ledger says of every record whether it is the one that was sealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.verification.bundle.archive import UnsoundError
from ablate.verification.bundle.container import Unpacked, opened, unpacked
from ablate.verification.result import Item
from prereg.errors import StudyError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root
from prereg.registry.plan import sealed_places
from prereg.text import counted

COMMITTED = "committed evidence"


@dataclass(frozen=True)
class CommittedEvidence:
    """What is committed of a study's evidence, for as long as it is unpacked."""

    root: Root
    """The repository, its runs those of the bundle where `in_use`."""
    bundled: Root | None = None
    """The repository with the runs of the bundle; none where no sound one is committed."""
    item: Item | None = None
    """What was found of it; none where nothing is committed."""

    @property
    def in_use(self) -> bool:
        """Whether the runs are read from the bundle."""
        return self.bundled is not None and self.root == self.bundled


@contextmanager
def committed_evidence(root: Root, study: str, entries: Sequence[Entry]) -> Iterator[CommittedEvidence]:
    """The committed evidence of a study, checked against the entries of the repository's ledger; raises nothing."""
    path = root.evidence(study)
    if not path.exists():
        yield CommittedEvidence(root)
        return
    mine = [entry for entry in entries if entry.study == study]
    sealed = _sealed(root, mine)
    with ExitStack() as stack:
        faults: tuple[str, ...] = ()
        bundled = None
        note = f"{root.relative(path)} holds "
        try:
            found = stack.enter_context(unpacked(stack.enter_context(opened(path))))
            bundled = replace(root, runs_from=found.folder)
            faults = tuple(_faults(found, study, entries))
            held = sum(place.exists() for place in _sealed(bundled, mine))
            note += f"{held} of {counted(len(sealed), 'sealed run')}, contents {found.manifest.sha256[:8]}"
        except (UnsoundError, StudyError) as error:
            faults = (error.found if isinstance(error, StudyError) else str(error),)
        faults = tuple(f"{root.relative(path)}: {fault}" for fault in faults)
        used = root
        if faults:
            bundled, note = None, ""
        elif sealed and bundled is not None and not any(place.exists() for place in sealed):
            used, note = bundled, f"{note}; none of these is in data/runs, so they are read from there"
        yield CommittedEvidence(used, bundled, Item(study=study, what=COMMITTED, faults=faults, note=note))


def _sealed(root: Root, mine: Sequence[Entry]) -> list[Path]:
    return [place for runs in sealed_places(root, mine).values() for place in runs]


def _faults(found: Unpacked, study: str, entries: Sequence[Entry]) -> Iterator[str]:
    """What in a sound bundle is not of this repository, or cannot be read."""
    from ablate.verification.rejudge import oversized

    manifest = found.manifest
    if manifest.study != study:
        yield f"it is of the study '{manifest.study}'"
        return
    ledger = Ledger(found.folder / manifest.ledger.file)
    if damage := ledger.faults():
        yield damage[0]
        return
    here = {entry.index: entry.sha256 for entry in entries}
    links = [(entry.index, entry.sha256) for entry in ledger.entries()]
    links += [(entry.index, entry.sha256) for entry in ledger.withheld()]
    if any(here.get(index) != sha256 for index, sha256 in links):
        yield "its ledger is not the beginning of the one of this repository"
    if large := oversized(found.folder / "data" / "runs"):
        yield large
