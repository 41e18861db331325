"""Bundle, one file for readers without access to the repository: what goes in, and writing it.

A bundle that its own check would reject is never left behind.

The same study gives the same bytes: nothing in a bundle looks at a clock, and what writes the archive has no choice.

To add a file to bundles: a step in `gathered` that takes it, or says by `skip` why it is not there; its line in `KINDS`
of `ablate.verification.guide`, from which a reader without ablate learns what it is; tests/verification/test_bundle.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.records.gather import repeated_elsewhere
from ablate.records.store import RunFolder
from ablate.verification.archive import LARGEST_BYTES, MOST_MEMBERS, is_safe, measure, write_archive
from ablate.verification.guide import GUIDED, campaign_guide, guide
from ablate.verification.manifest import MANIFEST, LedgerPart, LeftOut, bundle_manifest_bytes, this_tool
from ablate.verification.result import Verification
from prereg.campaign.record import CampaignRecord
from prereg.commits.held import copy_of
from prereg.commits.layout import read_files
from prereg.commits.objects import Repository
from prereg.commits.pins import CommittedFile
from prereg.errors import EvidenceError, StudyFileError, Where
from prereg.registry.canon import sha256_file
from prereg.registry.disk import move
from prereg.registry.ledger import SLICE_NAME, Ledger, sliced
from prereg.registry.ledger_entry import Entry, PromiseEntry
from prereg.registry.looks import is_unfinished
from prereg.registry.paths import Root
from prereg.registry.plan import sealed_places
from prereg.registry.registration import Registration, load_registration
from prereg.text import counted, listed

SEALS = (".sig", ".tsr")
"""Endings of the seals that may lie next to a lock, as NAME.HASH8.sig or NAME.HASH8.2.sig."""
DOCUMENTS = ("registration.md", "registration.html", "osf.md", "osf.json")
"""Registration documents that may lie next to a lock as NAME.registration.md, or among the reports."""
REPORTS = ("verdict.json", "report.md", "report.html")
WEIGHTS = "weights.safetensors"
RECORDS = ("metrics.parquet", "items.parquet")


@dataclass
class Gathered:
    """Files and gaps, while they are collected."""

    root: Root
    contents: dict[str, bytes | Path] = field(default_factory=dict)
    """name -> bytes, or the place of a file that is too large to be read at once."""
    left_out: list[LeftOut] = field(default_factory=list)

    def take(self, path: Path, data: bytes | None = None) -> None:
        """One file under its path from the root. Small files are read at once, so that they cannot change later."""
        name = self.root.relative(path)
        if not is_safe(name):
            raise StudyFileError(
                "this file cannot be in a bundle under its name",
                required="names of letters, digits, spaces and . _ - + , = ( ) @, and no device of Windows",
                fix="rename the file or its folder, under version control, before the study is registered",
                where=Where(file=path),
            )
        self.contents[name] = path if data is None else data

    def skip(self, what: str, why: str) -> None:
        """Something that stays out."""
        self.left_out.append(LeftOut(what=what, why=why))


def gathered(
    root: Root, registration: Registration, *, whole_ledger: bool, weights: bool
) -> tuple[dict[str, bytes | Path], list[LeftOut], LedgerPart]:
    """The files of a bundle by name, but its guide; what is not among them; and what is known of the ledger.

    Raises `LedgerError` for a damaged ledger, `EvidenceError` where the study, its lock or a file that the reports show
    is missing.
    """
    parts = Gathered(root)
    entries = Ledger(root.ledger).entries()  # raises when it is damaged
    # The ledger: whole, or this study's entries and the links of the others.
    also = {entry.sha256 for entry in repeated_elsewhere(entries, registration)}
    ledger = _ledger(parts, entries, registration.study.study, also, complete=whole_ledger)
    _study(parts, entries, registration, weights=weights)
    return parts.contents, parts.left_out, ledger


def gathered_campaign(
    root: Root, record: CampaignRecord, *, whole_ledger: bool, weights: bool
) -> tuple[dict[str, bytes | Path], list[LeftOut], LedgerPart]:
    """The same of a campaign: its file, and the study of every proposal and confirmation that was registered.

    Raises as `gathered` does, and `EvidenceError` where a lock cannot be read.
    """
    name, parts = record.campaign.campaign, Gathered(root)
    entries = Ledger(root.ledger).entries()
    studies = [begun.entry.run_as for begun in record.begun]
    registrations = [each for study in studies if (each := load_registration(root, study)) is not None]
    also = {entry.sha256 for entry in entries if entry.study in studies}
    also |= {entry.sha256 for each in registrations for entry in repeated_elsewhere(entries, each)}
    ledger = _ledger(parts, entries, name, also, complete=whole_ledger)
    path = root.path / record.entry.file
    if path.is_file():
        parts.take(path, path.read_bytes())
    else:
        parts.skip("the campaign's file", "not on the disk where the bundle was made; the ledger holds all of it")
    for registration in registrations:
        is_open = record.open is not None and registration.study.study == record.open.entry.run_as
        _study(parts, entries, registration, weights=weights, hidden=is_open)
    # Of several studies one sentence each; what is left out of all of them alike is said once.
    parts.left_out = list(dict.fromkeys(parts.left_out))
    return parts.contents, parts.left_out, ledger


def _study(
    parts: Gathered, entries: Sequence[Entry], registration: Registration, *, weights: bool, hidden: bool = False
) -> None:
    """Everything of one study but the ledger; `hidden`: without its runs, as long as its campaign has not decided."""
    root, study = parts.root, registration.study.study
    # 1. The study as the newest promise names it, and its lock.
    mine = [entry for entry in entries if entry.study == study]
    promised = [entry for entry in mine if isinstance(entry, PromiseEntry)]
    for path in (root.path / promised[-1].file, root.lock(study)):
        if not path.is_file():
            raise EvidenceError(
                "missing",
                required="the study and its lock, as they were registered",
                fix="restore it from version control",
                where=Where(file=path),
            )
        parts.take(path, path.read_bytes())
    # 2. Whatever supports, produced or shows the result: seals, code, records, figures, reports.
    _next_to_lock(parts, study, {entry.lock_sha256[:8] for entry in promised})
    _code(parts, registration, root.path / promised[-1].file)
    if hidden:
        parts.skip(f"the runs of '{study}'", "the proposal that it carries out has not ended")
    else:
        _runs(parts, registration, mine, weights=weights)
    for name in (*REPORTS, *DOCUMENTS):
        path = root.report(study) / name
        if path.is_file():
            parts.take(path, path.read_bytes())
    # 3. What a reader could miss, with the reason.
    _explain(parts, registration, promised)


def _ledger(parts: Gathered, entries: tuple[Entry, ...], study: str, also: set[str], *, complete: bool) -> LedgerPart:
    others = sum(entry.study != study and entry.sha256 not in also for entry in entries)
    # Entries of other studies that this one's outcome rests on stay in (`also`): without them a repeated run is unseen.
    withheld = 0 if complete else others
    # A slice has another name, so that nobody takes it for the ledger and appends to it.
    path = parts.root.ledger.with_name(SLICE_NAME if withheld else parts.root.ledger.name)
    parts.take(path, sliced(entries, study if withheld else None, also))
    if withheld:
        parts.skip(
            f"what the ledger says of other studies ({counted(withheld, 'entry', 'entries')})",
            "only its links are there (--whole-ledger takes the entries in)",
        )
    return LedgerPart(
        file=parts.root.relative(path),
        head=Ledger(parts.root.ledger).head(),
        n_entries=len(entries),
        n_withheld=withheld,
    )


def _code(parts: Gathered, registration: Registration, study_path: Path) -> None:
    """The registered source of a user's own trainer: read and compared, never executed."""
    taken = {study_path}  # the study is in the bundle already
    _commits(parts, registration)
    for pin in registration.scripts or ():
        path = parts.root.path / pin.path
        if path.is_file() and path not in taken:
            taken.add(path)
            parts.take(path, path.read_bytes())


def _commits(parts: Gathered, registration: Registration) -> None:
    """The files of each commit that an arm is, a folder for each: what a reader without the repository compares."""
    repository = Repository.around(parts.root.path) if registration.commits else None
    for name, pin in registration.commits.items():
        copy = copy_of(parts.root, pin)
        here: list[tuple[CommittedFile, bytes | None]] = []
        if copy.is_dir():  # a bundle that was unpacked, and is packed again
            here = [(file, (copy / file.sha256).read_bytes()) for file in pin.files if (copy / file.sha256).is_file()]
        elif repository is not None:
            here = [*read_files(repository, pin)]
        files = {copy / file.sha256: data for file, data in here if data is not None}
        # By content: two paths of a commit with the same bytes are one file here.
        if len(files) < len({file.sha256 for file in pin.files}):
            parts.skip(f"the files of commit {name} ({pin.short})", "they are not here; the lock has the hash of each")
            continue
        for path, data in files.items():
            parts.take(path, data)


def _next_to_lock(parts: Gathered, study: str, locks: set[str]) -> None:
    """Seals and registration documents that lie next to the lock, of this study and no other with a longer name."""
    # In full: another study may have a name that begins alike.
    seal = re.compile(rf"{re.escape(study)}\.([0-9a-f]{{8}})(\.\d+)?({'|'.join(map(re.escape, SEALS))})")
    for path in sorted(parts.root.studies.iterdir()):
        match = seal.fullmatch(path.name)
        sealing = match is not None and match[1] in locks
        documents = path.name in {f"{study}.{name}" for name in DOCUMENTS}
        if path.is_file() and (sealing or documents):
            parts.take(path, path.read_bytes())


def _runs(parts: Gathered, registration: Registration, mine: list[Entry], *, weights: bool) -> None:
    """Every run that has a record, under this registration or an earlier one; of live ones the record alone.

    None while the study is unfinished.
    """
    root, study = parts.root, registration.study.study
    records = sorted(root.all_runs(study).glob("*/*/*/run.json"))
    # A bundle of half the runs would be an early look that no ledger logs.
    if records and is_unfinished(registration, mine):
        why = "planned runs are missing: reading the records is an early look (ablate status --results logs it)"
        parts.skip(f"the records of {counted(len(records), 'run')}", why)
        return
    taken: set[Path] = set()
    live = heavy = 0  # runs that have not ended; runs with weights
    for path in records:
        folder = RunFolder(path.parent)
        data = path.read_bytes()
        parts.take(path, data)
        # Of a run that has not ended nothing is sealed: its curve could be any.
        record = folder.read_record()
        # "diverged" counts as ended: its rows up to the divergence are sealed like any others.
        if record is None or record.status not in ("done", "diverged"):
            live += (folder.path / "work").is_dir()
            continue
        for name in RECORDS:
            if (folder.path / name).is_file():
                parts.take(folder.path / name)
                taken.add(folder.path)
        if folder.weights_path.is_file():
            heavy += 1
            if weights:
                parts.take(folder.weights_path)
    if heavy and not weights:
        parts.skip(f"the weights of {counted(heavy, 'run')}", "not requested (--weights includes them)")
    if live:
        parts.skip(f"curve and checkpoint of {counted(live, 'run')}", "not ended, so nothing vouches for them")
    # What the ledger sealed and the disk lacks: said, because the check of the bundle will call it a fault.
    absent = {path for runs in sealed_places(root, mine).values() for path in runs} - taken
    if absent:
        parts.skip(
            f"the records of {counted(len(absent), 'sealed run')}",
            "they are not on the disk where the bundle was made",
        )


def _explain(parts: Gathered, registration: Registration, promised: Sequence[Entry]) -> None:
    for corpus in registration.pinned:
        parts.skip(
            f"the corpus '{corpus.name}'",
            f"only training needs it; the lock names its sha256, {corpus.sha256[:12]}",
        )
    if registration.data_files:
        read = counted(len(registration.data_files), "data file")
        parts.skip(f"{read} of the trainer", "only training needs them; the lock names the path and sha256 of each")
    if registration.tasks is not None:
        parts.skip(
            f"the tasks '{registration.tasks.name}'",
            f"only asking needs them; the lock names their sha256, {registration.tasks.sha256[:12]}",
        )
    if len(promised) > 1:
        parts.skip(
            f"the lock of {counted(len(promised) - 1, 'earlier registration')}",
            "replaced by an amendment; the ledger names their hashes and what differed",
        )
    # Reports may be incomplete; that none is there is one sentence and not three.
    there = {name.rpartition("/")[2] for name in parts.contents}
    if not there & set(REPORTS):
        parts.skip("verdict and reports", "the study has not been decided, or they were not on this disk")
    elif absent := [name for name in REPORTS if name not in there]:
        parts.skip(listed(absent), "not on the disk where the bundle was made")


SUFFIX = ".ablate.zip"


@dataclass(frozen=True)
class Bundled:
    """A bundle that was written, or that was there already."""

    path: Path
    check: Verification
    written: bool
    """Whether it was written now; the same contents may have been there."""


def write_bundle(
    root: Root,
    registration: Registration,
    target: Path,
    *,
    check: Callable[[Path], Verification],
    whole_ledger: bool = False,
    weights: bool = False,
    replace: bool = False,
) -> Bundled:
    """Write the bundle of a registered study, check it as a stranger would, and move it to its place.

    `check` verifies a bundle; `whole_ledger` takes in the entries of other studies, `weights` the final weights.
    Where another file is there, `replace` says to replace it; else it is kept, and `StudyFileError` raised. Raises
    `EvidenceError` where the bundle would fail its own check. Nothing is left behind then.

        bundled = write_bundle(root, registration, Path("width.ablate.zip"), check=lambda path: verify(path))
        bundled.written, bundled.check.intact
    """
    study = registration.study.study
    _require_place(target, study)
    contents, left_out, ledger = gathered(root, registration, whole_ledger=whole_ledger, weights=weights)
    # The guide is made of the other files, so it comes last and before the manifest, which lists it.
    page, verdict = (contents.get(f"reports/{study}/{name}") for name in GUIDED)
    assert not isinstance(page, Path) and not isinstance(verdict, Path), "small files are read at once"
    contents |= guide(
        contents,
        page,
        verdict,
        registration=registration,
        head=ledger.head,
        left_out=left_out,
        version=this_tool().version,
    )
    about = {"study": study, "registration": registration.sha256, "ledger": ledger, "left_out": left_out}
    return _packed(about, contents, target, check=check, replace=replace)


def write_campaign_bundle(
    root: Root,
    record: CampaignRecord,
    target: Path,
    *,
    check: Callable[[Path], Verification],
    whole_ledger: bool = False,
    weights: bool = False,
    replace: bool = False,
) -> Bundled:
    """The same of a campaign, with the studies of all its proposals."""
    name = record.campaign.campaign
    _require_place(target, name)
    contents, left_out, ledger = gathered_campaign(root, record, whole_ledger=whole_ledger, weights=weights)
    contents |= campaign_guide(contents, record, head=ledger.head, left_out=left_out, version=this_tool().version)
    about = {"study": name, "registration": record.entry.registration, "ledger": ledger, "left_out": left_out}
    return _packed(about, contents, target, check=check, replace=replace)


def _require_place(target: Path, name: str) -> None:
    """Raise `StudyFileError` where no file can be at a place. Before anything is read: packing may take minutes."""
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise StudyFileError(
            "a folder" if target.is_dir() else "its folder is not there",
            required="the name of a file in a folder that is there",
            fix=f"--out {target / (name + SUFFIX) if target.is_dir() else name + SUFFIX}",
            where=Where(file=target),
        )


def _packed(
    about: Mapping[str, Any],
    contents: dict[str, bytes | Path],
    target: Path,
    *,
    check: Callable[[Path], Verification],
    replace: bool,
) -> Bundled:
    """The archive of these files with its manifest, checked and in its place.

    Parameters
    ----------
    about
        Fields of the manifest: `study`, `registration`, `ledger` and `left_out`.
    """
    name = about["study"]
    # Every file is hashed before it is packed; the check below reads the pack.
    members = {path: measure(contents[path]) for path in sorted(contents)}
    size = sum(member.size_bytes for member in members.values())
    # 16 MiB are left for the manifest and the headers of the archive.
    if size > LARGEST_BYTES - (1 << 24) or len(members) >= MOST_MEMBERS:
        raise StudyFileError(
            f"{len(members):,} files with {size:,} bytes are more than a bundle holds",
            required=f"fewer than {MOST_MEMBERS:,} files and {LARGEST_BYTES - (1 << 24):,} bytes",
            fix="leave out --weights"
            if any(path.endswith(WEIGHTS) for path in members)
            else "give the records to others as they lie in data/runs/",
        )
    contents[MANIFEST] = bundle_manifest_bytes(
        **about,
        members=members,
        made_with=this_tool(),
    )
    # Next to its place, so that the move is a rename: a reader never finds half a bundle.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w+b") as stream:
            write_archive(stream, contents)
            stream.flush()
            # On the disk before the rename: after a crash, the name must not point at a file without bytes.
            os.fsync(stream.fileno())
        verification = check(temporary)
        if not verification.intact:
            # A file that changed while it was read is found here too: it is not the one that was measured.
            raise EvidenceError(
                f"a bundle of '{name}' would fail its checks: "
                + next(f for item in verification.items for f in item.faults),
                required="a study of which nothing frozen has changed, and which this version judges as it was judged",
                fix=f"ablate verify {name}; if that passes, ablate decide {name}",
            )
        # The same contents give the same bytes, so equal hashes mean that there is nothing to write.
        written = not (target.is_file() and sha256_file(target) == sha256_file(temporary))
        if written and target.exists() and not replace:
            raise StudyFileError(
                "there is another file in the place of the bundle, and it is kept",
                required="a new name, or none",
                fix=f"--out OTHER{SUFFIX}, or rm {target}",
                where=Where(file=target),
            )
        if written:
            move(temporary, target)
        return Bundled(target, verification, written)
    finally:
        temporary.unlink(missing_ok=True)
