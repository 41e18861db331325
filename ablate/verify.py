"""Checking every frozen byte: study file, lock, ledger, sealed records, verdict. It names what has changed.

What a check proves and what it does not: hashes show that a file is what the ledger says it was; the chain
shows that no entry was edited; neither shows that the whole ledger was not written anew. For that, someone
else must hold a head hash, which is why every verb that appends prints it and every report keeps it.
"""

from __future__ import annotations

from pathlib import Path

from ablate.records.store import RunFolder
from prereg.canon import sha256_file
from prereg.errors import StudyError, StudyFileError, nearest
from prereg.ledger import SEALS, Entry, Ledger
from prereg.part import Part
from prereg.root import Root


class Item(Part):
    """One thing that was checked."""

    study: str
    """The study, or `ledger`."""
    what: str
    """For instance 'sealed records'."""
    faults: tuple[str, ...]
    """What has changed, one sentence each; empty when it stands."""
    note: str = ""
    """What was found, with counts, or why it could not be checked."""


class Verification(Part):
    """Everything that was checked."""

    items: tuple[Item, ...]
    """In order."""
    head: str
    """The ledger's head hash, to be compared with one that somebody else holds."""

    @property
    def stands(self) -> bool:
        """Whether nothing has changed."""
        return not any(item.faults for item in self.items)


def verify_study(path: Path, given: Path | None = None) -> Verification:
    """Check one study and the ledger it stands in. The file itself may be gone; a name nobody knows is a mistake."""
    if path.suffix != ".yaml":
        path = (given or Path()) / "studies" / f"{path.name}.yaml" if path.name == str(path) else path
    root = Root.find(path, given)
    known = {entry.study for entry in _entries(root)} | {lock.name.removesuffix(".lock.json") for lock in _locks(root)}
    if path.suffix != ".yaml" or (path.stem not in known and not path.is_file()):
        raise StudyFileError(
            f"'{path}' is neither a study file nor the name of a registered study",
            required="studies/NAME.yaml",
            fix=nearest(path.stem, known) or "ablate verify",
        )
    return _verify(root, (path.stem,))


def verify_house(given: Path | None = None) -> Verification:
    """Check every registered study of a root."""
    root = Root.around(Path(), given)
    named = {entry.study for entry in _entries(root)}
    return _verify(root, tuple(sorted({lock.name.removesuffix(".lock.json") for lock in _locks(root)} | named)))


def verify_root(root: Root, study: str) -> Verification:
    """Check one study of a root that is known: the ledger first, then all that is frozen of the study."""
    return _verify(root, (study,))


def _locks(root: Root) -> list[Path]:
    return sorted(root.studies.glob("*.lock.json"))


def _verify(root: Root, studies: tuple[str, ...]) -> Verification:
    ledger = Ledger(root.ledger)
    faults = tuple(ledger.faults())
    entries = _entries(root)
    items = [Item(study="ledger", what="chain", faults=faults, note=f"{len(entries)} entries")]
    for name in studies:
        items += _study_items(root, name, entries, ledger_stands=not faults)
    return Verification(items=tuple(items), head=ledger.head() if not faults else "")


def _entries(root: Root) -> tuple[Entry, ...]:
    """Entries, or none when the ledger is damaged; its faults are listed on their own."""
    try:
        return Ledger(root.ledger).entries()
    except StudyError:
        return ()


def _study_items(root: Root, name: str, entries: tuple[Entry, ...], *, ledger_stands: bool) -> list[Item]:
    from prereg.register import verify_registration

    mine = [entry for entry in entries if entry.study == name]
    if not any(entry.event in ("registered", "amended") for entry in mine) and not root.lock(name).exists():
        return [Item(study=name, what="registration", faults=(), note="not registered: nothing is frozen yet")]
    promised = tuple(fault for fault in verify_registration(root, name) if "ledger.jsonl" not in fault or ledger_stands)
    items = [Item(study=name, what="study and lock", faults=promised, note="as registered" if not promised else "")]
    items += _page(root, name)
    if ledger_stands:
        items += [_records(root, name, mine), _verdict(root, name, mine)]
    return items


def _page(root: Root, name: str) -> list[Item]:
    """The registration in words. It promises nothing by itself, and a reader without the tool believes it."""
    from prereg.export.page import compare_page
    from prereg.register import load_registration

    what, path = "registration in words", root.page(name).relative_to(root.path)
    try:
        if load_registration(root, name) is None:
            return []
        standing, words = compare_page(root, name)
    except StudyError:
        return []  # what is wrong with the lock is said on its own
    if standing == "other":
        return [Item(study=name, what=what, faults=(f"{path} does not say what the lock and the ledger say",))]
    note = {
        "missing": f"{path} is not written yet: ablate register writes it",
        "as the lock says": "as the lock says",
        "in other words": f"{path} is in the words of version {words} and was not compared: ablate register renews it",
    }[standing]
    return [Item(study=name, what=what, faults=(), note=note)]


def _records(root: Root, name: str, entries: list[Entry]) -> Item:
    """Every sealed run that the ledger names, the newest seal of each cell, and ended runs that it does not name."""
    newest: dict[Path, Entry] = {}
    unreadable = []
    for entry in (entry for entry in entries if entry.event in SEALS):
        variant, seed = entry.body.get("variant"), entry.body.get("seed")
        if isinstance(variant, str) and isinstance(seed, int):
            newest[root.run(name, entry.registration, variant, seed)] = entry
        else:
            unreadable.append(f"ledger entry {entry.index} seals a run and does not say which")
    faults, absent, held = unreadable, 0, 0
    for path, entry in newest.items():
        folder = RunFolder(path)
        if not path.exists():
            absent += 1
            continue
        files = [(folder.record_path, "run_sha256"), (folder.sealed_path, "metrics_sha256")]
        # A run without items has no such key, and no such file.
        if "items_sha256" in entry.body or folder.items_path.exists():
            files.append((folder.items_path, "items_sha256"))
        wrong = [
            file.relative_to(root.path).as_posix()
            for file, key in files
            if not file.is_file() or sha256_file(file) != entry.body.get(key)
        ]
        faults += [f"{file} is not what the ledger sealed at {entry.at}" for file in wrong]
        held += not wrong
    note = f"{held} of {len(newest)} sealed runs hold"
    if absent:
        note += f"; {absent} are not on this disk and could not be checked"
    # A crash between a seal and its entry leaves one such run a worker; `run` takes it into the ledger.
    unnamed = [path.parent for path in (root.path / "data" / "runs" / name).glob("*/*/*/metrics.parquet")]
    unnamed = [path for path in unnamed if path not in newest]
    if unnamed:
        note += (
            f"; {len(unnamed)} sealed on disk are not in the ledger (ablate run takes them in, if nothing was cut off)"
        )
    return Item(study=name, what="sealed records", faults=tuple(faults), note=note)


def _verdict(root: Root, name: str, entries: list[Entry]) -> Item:
    decided = [entry for entry in entries if entry.event == "decided"]
    path = root.report(name) / "verdict.json"
    if not decided:
        # The one trace that a ledger cut at the end of a line leaves on the disk beside it.
        gone = f"{path.relative_to(root.path)} is here and the ledger has no decision: its end may have been cut off"
        return Item(study=name, what="verdict", faults=(gone,) if path.exists() else (), note="not decided yet")
    if not path.is_file():
        there = (f"{path.relative_to(root.path)} is not a file",) if path.exists() else ()
        return Item(study=name, what="verdict", faults=there, note="verdict.json is not on this disk")
    if sha256_file(path) != decided[-1].body.get("verdict_sha256"):
        fault = f"{path.relative_to(root.path)} is not the decision the ledger recorded at {decided[-1].at}"
        return Item(study=name, what="verdict", faults=(fault,))
    return Item(
        study=name,
        what="verdict",
        faults=(),
        note=str(decided[-1].body.get("verdict") or decided[-1].body.get("status")),
    )
