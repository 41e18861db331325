"""Committed evidence, `reports/STUDY/evidence.ablate.zip`, for clones without runs; not `records/evidence.py`.

Runs are in no version control, so a verdict in a clone would have nothing left that gives it. Where none of a study's
sealed runs is on the disk, those of this bundle are read in their place; study, lock, ledger, verdict and reports are
those of the repository, and its ledger says of every record whether it is the one that was sealed. That of a campaign
holds the runs of all that it began.

`decide` logs a decision only where it is another than the last one. So evidence that was bundled before the last
decision shows another verdict, or lacks its runs, and only on the disk of its author does nothing else say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.records.evidence import ITEM_COLUMNS, METRIC_COLUMNS
from ablate.records.parquet import TableError, read_parquet
from ablate.verification.archive import Unpacked, unpacked
from ablate.verification.manifest import UnsoundError
from prereg.campaign.record import studies_of_campaign
from prereg.errors import StudyError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import (
    ConfirmingEntry,
    DecidedEntry,
    Entry,
    OpenedEntry,
    ProposedEntry,
    StagedEntry,
)
from prereg.registry.paths import Root
from prereg.registry.plan import sealed_places
from prereg.text import counted, moment, short
from prereg.verification import Item

COMMITTED = "committed evidence"
MOST_ROWS = 20_000_000
"""Rows of all tables of a bundle together."""
FREE_ROWS = 1_000_000
"""Rows that its records may hold however small they are; beyond, one a byte."""


@dataclass(frozen=True)
class CommittedEvidence:
    """What is committed of the evidence of a study, or of a campaign, for as long as it is unpacked."""

    root: Root
    """The repository, its runs those of the bundle where `in_use`."""
    bundled: Root | None = None
    """The repository with the runs of the bundle; none where no sound one is committed."""
    item: Item | None = None
    """What was found of it; none where nothing is committed."""
    stale: str = ""
    """Why it is not that of the last decision, and what to type. It is sound, and its runs are read all the same."""

    @property
    def in_use(self) -> bool:
        """Whether the runs are read from the bundle."""
        return self.bundled is not None and self.root == self.bundled


@contextmanager
def committed_evidence(root: Root, study: str, entries: Sequence[Entry]) -> Iterator[CommittedEvidence]:
    """The committed evidence of a study or campaign, checked against the entries of the repository's ledger; raises
    nothing."""
    path = root.evidence(study)
    if not path.exists():
        yield CommittedEvidence(root)
        return
    mine = entries_about(entries, study)
    sealed = _sealed(root, mine)
    with ExitStack() as stack:
        faults: tuple[str, ...] = ()
        bundled, stale = None, ""
        # 1. Is it sound, of this repository, and of the last decision?
        note = f"{root.relative(path)} holds "
        # Unpacked for as long as the caller reads from it: the exit stack removes the folder.
        try:
            unpacked_bundle = stack.enter_context(unpacked(path))
            bundled = replace(root, runs_from=unpacked_bundle.folder)
            faults = tuple(_faults(unpacked_bundle, study, entries))
            stale = "" if faults else _stale(root, unpacked_bundle, mine)
            held = sum(place.exists() for place in _sealed(bundled, mine))
            note += f"{held} of {counted(len(sealed), 'sealed run')}, contents {unpacked_bundle.manifest.sha256[:8]}"
        except (UnsoundError, StudyError) as error:
            faults = (error.found if isinstance(error, StudyError) else str(error),)
        faults = tuple(f"{root.relative(path)}: {fault}" for fault in faults)
        # All or nothing: with some runs on the disk and the rest from a bundle, nobody could say what was judged.
        # 2. Which runs are read.
        used = root
        if faults:
            bundled, note = None, ""
        elif sealed and bundled is not None and not any(place.exists() for place in sealed):
            used, note = bundled, f"{note}; none of these is in data/runs, so they are read from there"
        yield CommittedEvidence(used, bundled, Item(study=study, what=COMMITTED, faults=faults, note=note), stale)


def entries_about(entries: Sequence[Entry], name: str) -> list[Entry]:
    """The entries of a study; of a campaign also those of the studies that carry out what it began."""
    names = {name, *studies_of_campaign(entries, name)}
    return [entry for entry in entries if entry.study in names]


def committed_as(root: Root, study: str, entries: Sequence[Entry]) -> str:
    """Under whose name the evidence of a study is committed: its own, or that of the campaign which began it."""
    begun = (entry for entry in entries if isinstance(entry, ProposedEntry | ConfirmingEntry))
    campaign = next((entry.study for entry in begun if entry.run_as == study), None)
    return study if campaign is None or root.evidence(study).exists() else campaign


def _sealed(root: Root, mine: Sequence[Entry]) -> list[Path]:
    return [place for runs in sealed_places(root, mine).values() for place in runs]


def _stale(root: Root, unpacked_bundle: Unpacked, mine: Sequence[Entry]) -> str:
    """How evidence was bundled before the last decision; empty where it was not. An amendment alone, or other words of
    the study, leave it that of the last decision."""
    decided = [entry for entry in mine if isinstance(entry, DecidedEntry | StagedEntry)]
    if not decided:
        return ""
    # By the entry and not by its time: the bundle's copy of the ledger holds the decision, or was made before it.
    last, manifest = decided[-1], unpacked_bundle.manifest
    held = {entry.sha256 for entry in Ledger(unpacked_bundle.folder / manifest.ledger.file).entries()}
    opened = next((entry for entry in mine if isinstance(entry, OpenedEntry)), None)
    # A campaign is registered once, whatever its studies are.
    is_current = opened is not None or manifest.registration == last.registration
    if is_current and last.sha256 in held:
        return ""
    source = root.relative(root.study(manifest.study)) if opened is None else opened.file
    under = "" if is_current else f" under {short(manifest.registration)}"
    return (
        f"{root.relative(root.evidence(manifest.study))} was made{under} before the last decision ({moment(last.at)}, "
        f"registration {short(last.registration)}), and must hold that one (ablate bundle {source} --evidence)"
    )


def _faults(unpacked_bundle: Unpacked, study: str, entries: Sequence[Entry]) -> Iterator[str]:
    """What in a sound bundle is not of this repository, or cannot be read."""
    manifest = unpacked_bundle.manifest
    # In this order, each return guarding the next: the ledger of another study says nothing, a damaged one cannot
    # be read.
    if manifest.study != study:
        yield f"it is of the study '{manifest.study}'"
        return
    ledger = Ledger(unpacked_bundle.folder / manifest.ledger.file)
    if damage := ledger.faults():
        yield damage[0]
        return
    # Each entry holds the hash of the one before, so its links say that one ledger begins as the other does.
    here = {entry.sha256 for entry in entries}
    links = [entry.sha256 for entry in ledger.entries()] + [entry.sha256 for entry in ledger.withheld()]
    if not here.issuperset(links):
        yield "its ledger is not the beginning of the one of this repository"
    if large := oversized(unpacked_bundle.folder / "data" / "runs"):
        yield large


def oversized(folder: Path) -> str:
    """A table that would fill the memory when it is read: a few bytes of Parquet can hold any number of rows."""
    rows = size = 0
    for path in sorted(folder.rglob("*.parquet")):
        columns = ITEM_COLUMNS if path.name == "items.parquet" else METRIC_COLUMNS
        try:
            rows += len(read_parquet(path, columns))
            size += path.stat().st_size
        except TableError as error:
            return f"{path.relative_to(folder).as_posix()} {error}"
        most = min(MOST_ROWS, FREE_ROWS + size)
        if rows > most:
            return f"its records hold {rows:,} rows in {size:,} bytes, and {most:,} are the most"
    return ""
