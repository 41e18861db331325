"""Checking every frozen byte: study file, lock, ledger, sealed records, verdict. It names what has changed.

What a check proves and what it does not: hashes show that a file is what the ledger says it was; the chain
shows that no entry was edited; neither shows that the whole ledger was not written anew. For that, someone
else must hold a head hash, which is why every verb that appends prints it and every report keeps it.
"""

from __future__ import annotations

from pathlib import Path

from ablate.records.store import RunFolder
from prereg.canon import sha256_file
from prereg.errors import StudyError, StudyFileError
from prereg.ledger import Entry, Ledger
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
    """Check one study and the ledger it stands in."""
    root = Root.find(path, given)
    return _verify(root, (path.stem,))


def verify_house(folder: Path) -> Verification:
    """Check every registered study below a root."""
    root = Root(folder.resolve())
    if not root.studies.is_dir():
        raise StudyFileError(
            f"{folder.resolve()} holds no folder named 'studies'",
            required="a repository of studies",
            fix="ablate verify studies/NAME.yaml, or --root FOLDER",
        )
    locks = sorted(lock.name.removesuffix(".lock.json") for lock in root.studies.glob("*.lock.json"))
    named = {entry.study for entry in _entries(root)}
    return _verify(root, tuple(sorted({*locks, *named})))


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
    if ledger_stands:
        items += [_records(root, name, mine), _verdict(root, name, mine)]
    return items


def _records(root: Root, name: str, entries: list[Entry]) -> Item:
    """Every sealed run that the ledger names, the newest seal of each cell."""
    newest: dict[tuple[str, str, int], Entry] = {}
    for entry in entries:
        if entry.event == "sealed":
            newest[(entry.registration, str(entry.body["variant"]), int(str(entry.body["seed"])))] = entry
    faults, absent, held = [], 0, 0
    for (registration, variant, seed), entry in newest.items():
        folder = RunFolder(root.run(name, registration, variant, seed))
        if not folder.path.exists():
            absent += 1
            continue
        wrong = [
            path.relative_to(root.path).as_posix()
            for path, key in ((folder.record_path, "run_sha256"), (folder.sealed_path, "metrics_sha256"))
            if not path.is_file() or sha256_file(path) != entry.body[key]
        ]
        faults += [f"{path} is not what the ledger sealed at {entry.at}" for path in wrong]
        held += not wrong
    note = f"{held} of {len(newest)} sealed runs hold"
    if absent:
        note += f"; {absent} are not on this disk and could not be checked"
    return Item(study=name, what="sealed records", faults=tuple(faults), note=note)


def _verdict(root: Root, name: str, entries: list[Entry]) -> Item:
    decided = [entry for entry in entries if entry.event == "decided"]
    if not decided:
        return Item(study=name, what="verdict", faults=(), note="not decided yet")
    path = root.report(name) / "verdict.json"
    if not path.is_file():
        return Item(study=name, what="verdict", faults=(), note="verdict.json is not on this disk")
    if sha256_file(path) != decided[-1].body["verdict_sha256"]:
        fault = f"{path.relative_to(root.path)} is not the decision the ledger recorded at {decided[-1].at}"
        return Item(study=name, what="verdict", faults=(fault,))
    return Item(
        study=name, what="verdict", faults=(), note=str(decided[-1].body["verdict"] or decided[-1].body["status"])
    )
