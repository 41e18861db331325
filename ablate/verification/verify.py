"""Checking every frozen byte: study, lock, code, corpus, ledger, seals, records, reports; and judging again.

What a check proves and what it does not: hashes show that a file is what the ledger says it was; the chain
shows that no entry was edited; neither shows that the whole ledger was not rewritten. For that, someone
else must hold a head hash, which is why every verb that appends prints it and every report keeps it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from ablate.records.gather import history_faults
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.verification.bundle.evidence import CommittedEvidence, committed_evidence
from ablate.verification.result import Item, Verification, check_pins, item
from prereg.documents.page import compare_page
from prereg.errors import StudyError, StudyFileError, nearest
from prereg.registry.amendments import chain_faults
from prereg.registry.canon import sha256_file
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import PROMISES, SEALS, Entry
from prereg.registry.ledger_graph import is_merged
from prereg.registry.looks import recorded_afterwards
from prereg.registry.paths import Root
from prereg.registry.plan import cell_of, places_of, sealed_places
from prereg.registry.registration import load_registration, verify_registration
from prereg.seals.examine import SealCheck, Trust, examine_seals, unnamed_seals
from prereg.seals.git import ledger_history

HISTORY = "history of the ledger"
NOT_COMPARED = "not compared with git's history"


def verify_study(
    path: Path, given: str | Path | None = None, *, signers: Path | None = None, roots: Path | None = None
) -> Verification:
    """Check one study and the ledger it is in. The file itself may be gone; a name nobody knows is a mistake.

    `signers` and `roots` say whom the reader believes, in place of the files that the repository brings.
    """
    if path.suffix != ".yaml":
        path = Path(given or "") / "studies" / f"{path.name}.yaml" if path.name == str(path) else path
    root = Root.find(path, given)
    known = {entry.study for entry in _entries(root)} | _locked(root)
    known |= {one.entry.study for one in ledger_history(root).taken_back}
    if path.suffix != ".yaml" or (path.stem not in known and not path.is_file()):
        raise StudyFileError(
            f"'{path}' is neither a study file nor the name of a registered study",
            required="studies/NAME.yaml",
            fix=nearest(path.stem, known) or "ablate verify",
        )
    return _verify(root, (path.stem,), Trust.of(root, signers=signers, roots=roots), judge=True)


def verify_project(
    given: str | Path | None = None, *, signers: Path | None = None, roots: Path | None = None
) -> Verification:
    """Check every registered study of a root."""
    root = Root.around(Path(), given)
    named = {entry.study for entry in _entries(root) if entry.event != "continued"}
    named |= {one.entry.study for one in ledger_history(root).taken_back}
    names = tuple(sorted(_locked(root) | named))
    return _verify(root, names, Trust.of(root, signers=signers, roots=roots), judge=True)


def verify_root(root: Root, study: str, *, signers: Path | None = None, roots: Path | None = None) -> Verification:
    """Check one study of a root that is known: the ledger first, then all that is frozen. Nothing is judged again."""
    return _verify(root, (study,), Trust.of(root, signers=signers, roots=roots), judge=False)


def _locked(root: Root) -> set[str]:
    return {lock.name.removesuffix(".lock.json") for lock in root.studies.glob("*.lock.json")}


def _verify(root: Root, studies: tuple[str, ...], trust: Trust, *, judge: bool) -> Verification:
    entries, chain = _entries(root), check_ledger(root)
    items = [chain]
    seals: list[SealCheck] = []
    for name in studies:
        with committed_evidence(root, name, entries) as evidence:
            items += _study_items(evidence, name, entries, ledger_stands=not chain.faults, judge=judge)
        checks = examine_seals(root, name, entries, trust)
        unnamed = unnamed_seals(root, name, entries) if not chain.faults else ()
        if checks or unnamed:
            items.append(_seals(name, checks, unnamed))
        seals += checks
    head = Ledger(root.ledger).head() if not chain.faults else ""
    return Verification(items=tuple(items), head=head, seals=tuple(seals))


def _seals(name: str, checks: tuple[SealCheck, ...], unnamed: tuple[str, ...]) -> Item:
    """A broken seal is a fault. A stranger's is not, nor one that no entry names: the note says so."""
    text = {
        "holds": "hold",
        "unvouched": "not vouched for",
        "incomplete": "not complete",
        "unchecked": "not checked",
    }
    counts = Counter[str](check.state for check in checks)
    return Item(
        study=name,
        what="seals",
        faults=tuple(
            f"{check.file or 'a seal in the ledger'}: {check.says}" for check in checks if check.state == "broken"
        ),
        note=", ".join(
            [
                *(f"{counts[state]} {word}" for state, word in text.items() if counts[state]),
                *(f"{file} is not in the ledger: left by a crash, or its end was cut off" for file in unnamed),
            ]
        ),
    )


def check_ledger(root: Root) -> Item:
    """The chain of all studies."""
    ledger = Ledger(root.ledger)
    faults, entries = tuple(ledger.faults()), ledger.readable()
    faults += tuple(fault for entry in entries if entry.event == "continued" for fault in _another_ledger(root, entry))
    note = f"{len(entries)} entries"
    n_joins = sum(len(entry.joins) for entry in entries)
    note += f" of branches that were merged ({n_joins} joined)" if is_merged(entries) else ""
    not_compared = ledger_history(root).not_compared
    return item("ledger", "chain", *faults, note=note + (f"; {NOT_COMPARED}: {not_compared}" if not_compared else ""))


def _another_ledger(root: Root, entry: Entry) -> list[str]:
    """What is wrong with the file of the ledger that this one continues, where it lies here."""
    path = root.path / str(entry.body.get("ledger"))
    if not path.is_file() or sha256_file(path) == entry.body.get("ledger_sha256"):
        return []
    return [f"{root.relative(path)} is not the ledger that entry {entry.index} continues"]


def _entries(root: Root) -> tuple[Entry, ...]:
    """Entries, or none when the ledger is damaged; its faults are listed on their own."""
    try:
        return Ledger(root.ledger).entries()
    except StudyError:
        return ()


def _study_items(
    evidence: CommittedEvidence, name: str, entries: tuple[Entry, ...], *, ledger_stands: bool, judge: bool
) -> list[Item]:
    root = evidence.root
    mine = [entry for entry in entries if entry.study == name]
    against = history_faults(root, name, entries) if ledger_stands else ()
    if not any(entry.event in PROMISES for entry in mine) and not root.lock(name).exists():
        if against:
            return [item(name, HISTORY, *against)]
        return [item(name, "registration", note="not registered: nothing is frozen yet")]
    items = [check_registration(root, name, ledger_stands=ledger_stands)]
    if against:
        items.append(item(name, HISTORY, *against))
    items += _page(root, name)
    if ledger_stands:
        items += [*_committed(evidence, name, mine), check_records(root, name, mine), check_verdict(root, name, mine)]
        if judge:
            # The verdict rests on the runs that are read, and not on evidence that is only out of date.
            changed = any(fault != evidence.stale for item in items for fault in item.faults)
            items += _judged(root, name, mine, changed=changed)
        items.append(check_reports(root, name, mine))
    return [*items, *check_pins(root, name)]


def _committed(evidence: CommittedEvidence, name: str, mine: list[Entry]) -> list[Item]:
    """The committed evidence, whether or not its runs are read; where they are, `check_records` says what is wrong."""
    if evidence.item is None:
        return []
    stale = (evidence.stale,) if evidence.stale else ()
    if evidence.in_use or evidence.bundled is None:
        return [evidence.item.model_copy(update={"faults": evidence.item.faults + stale})]
    place = evidence.root.relative(evidence.root.evidence(name))
    records = tuple(f"{place}: {fault}" for fault in check_records(evidence.bundled, name, mine).faults)
    return [evidence.item.model_copy(update={"faults": records + stale})]


def _page(root: Root, name: str) -> list[Item]:
    """The registration in words. It promises nothing by itself, and a reader without the tool believes it."""
    what, path = "registration in words", root.relative(root.page(name))
    try:
        if load_registration(root, name) is None:
            return []
        standing = compare_page(root, name)
    except StudyError:
        return []  # what is wrong with the lock is said on its own
    if standing == "other":
        return [item(name, what, f"{path} does not say what the lock and the ledger say")]
    note = {
        "missing": f"{path} is not written yet: ablate register writes it",
        "as the lock says": "as the lock says",
        "of another version": f"{path} was not compared, as another version registered it: ablate register renews it",
    }[standing]
    return [item(name, what, note=note)]


def check_registration(root: Root, name: str, *, ledger_stands: bool = True) -> Item:
    """Study file and lock against the ledger, whose own faults are listed once, with the chain."""
    promised = tuple(fault for fault in verify_registration(root, name) if "ledger.jsonl" not in fault or ledger_stands)
    if ledger_stands:
        promised += tuple(chain_faults(entry for entry in _entries(root) if entry.study == name))
    return item(name, "study and lock", *promised, note="as registered" if not promised else "")


def check_records(root: Root, name: str, entries: list[Entry]) -> Item:
    """Every sealed run that the ledger names, the newest seal of each cell, and ended runs that it does not name.

    Of a registration all runs may be gone from this disk. Some of them may not: those that are left may be the chosen.
    """
    sealed = sealed_places(root, entries)
    newest = {path: entry for runs in sealed.values() for path, entry in runs.items()}
    gone = {sha256: [path for path in runs if not path.exists()] for sha256, runs in sealed.items()}
    faults = [
        f"ledger entry {entry.index} seals a run and does not say which"
        for entry in entries
        if entry.event in SEALS and cell_of(entry)[1] < 0
    ]
    for sha256, paths in gone.items():
        if len(paths) < len(sealed[sha256]):
            faults += [f"{root.relative(path)} is missing, and other sealed runs are here" for path in paths]
    absent = sum(len(paths) for paths in gone.values())
    held = unhashed = unweighed = 0
    for path, entry in newest.items():
        folder = RunFolder(path)
        if not path.exists():
            continue
        files = [(folder.record_path, "run_sha256"), (folder.sealed_path, "metrics_sha256")]
        # A run without items has no such key, and no such file.
        if "items_sha256" in entry.body or folder.items_path.exists():
            files.append((folder.items_path, "items_sha256"))
        wrong = [
            root.relative(file) for file, key in files if not file.is_file() or sha256_file(file) != entry.body.get(key)
        ]
        faults += [f"{file} is not what the ledger sealed at {entry.at}" for file in wrong]
        record = None if wrong else folder.read_record()
        if record is None:
            continue
        other = _outcome(root, folder, record, entry)
        weights = _weights(folder, record)
        unhashed += weights is None
        unweighed += record.weights_sha256 is not None and not folder.weights_path.exists()
        faults += other
        if weights:
            faults.append(f"{root.relative(folder.weights_path)} {weights}")
        held += not other and not weights
    note = f"{held} of {len(newest)} sealed runs hold"
    if absent and absent == len(newest):
        are = "run is" if absent == 1 else "runs are"
        note = f"{absent} sealed {are} not on this disk; none could be checked"
    elif absent:
        note += f"; {absent} are not on this disk and could not be checked"
    if unweighed:
        note += f"; final weights of {unweighed} are not on this disk: only their hashes are on record"
    if unhashed:
        note += f"; weights.safetensors of {unhashed} are not covered: their records have no hash of them"
    # A crash between a seal and its entry leaves one such run a worker; `run` takes it into the ledger.
    unnamed = [path.parent for path in root.all_runs(name).glob("*/*/*/metrics.parquet")]
    unnamed = [path for path in unnamed if path not in newest]
    if unnamed:
        note += (
            f"; {len(unnamed)} sealed on disk are not in the ledger (ablate run takes them in, if nothing was cut off)"
        )
    return item(name, "sealed records", *faults, note=note)


def _outcome(root: Root, folder: RunFolder, record: RunRecord, entry: Entry) -> list[str]:
    """What is wrong with the outcome of a run whose files are those sealed: it is derived again from their values."""
    if entry.body.get("outcome_sha256") != record.outcome_sha256:
        return [f"{root.relative(folder.record_path)} names another outcome than the ledger sealed at {entry.at}"]
    return [root.shortened(fault) for fault in folder.outcome_faults(record)]


def _weights(folder: RunFolder, record: RunRecord) -> str | None:
    """What is wrong with the final weights of a run whose record holds; none where no hash of them was kept."""
    if record.weights_sha256 is None:
        # A user's own trainer keeps its weights itself: there is nothing here that a hash could cover.
        return None if folder.weights_path.exists() else ""
    # A study is judged without its weights, and they are large: that they were put elsewhere is no fault.
    if not folder.weights_path.exists() or sha256_file(folder.weights_path) == record.weights_sha256:
        return ""
    return "is not what run.json sealed"


def check_verdict(root: Root, name: str, entries: list[Entry]) -> Item:
    decided = [entry for entry in entries if entry.event == "decided"]
    path = root.report(name) / "verdict.json"
    if not decided:
        # The one trace that a ledger cut at the end of a line leaves on the disk next to it.
        gone = f"{root.relative(path)} is here and the ledger has no decision: its end may have been cut off"
        return item(name, "verdict", *((gone,) if path.exists() else ()), note="not decided yet")
    if not path.is_file():
        there = (f"{root.relative(path)} is not a file",) if path.exists() else ()
        return item(name, "verdict", *there, note="verdict.json is not on this disk")
    if sha256_file(path) != decided[-1].body.get("verdict_sha256"):
        fault = f"{root.relative(path)} is not the decision the ledger recorded at {decided[-1].at}"
        return item(name, "verdict", fault)
    if faults := _other_words(path, decided[-1]):
        return item(name, "verdict", *faults)
    note = str(decided[-1].body.get("verdict") or decided[-1].body.get("status"))
    note += ", with deviations" * (decided[-1].body.get("status") == "decided_with_deviations")
    if any(look.index > decided[-1].index for look in recorded_afterwards(entries)):
        note += "; an early look was recorded after it: inadmissible by the registered rules"
    return item(name, "verdict", note=note)


def _other_words(path: Path, decided: Entry) -> list[str]:
    """What the entry of a decision says and its verdict.json does not: readers of the ledger go by the entry."""
    try:
        written = json.loads(path.read_bytes())
    except ValueError:
        written = None
    if not isinstance(written, dict):
        return ["verdict.json holds no decision"]
    return [
        f"the ledger's {field} is {decided.body.get(field)!a}, and that of verdict.json {written.get(field)!a}"
        for field in ("status", "verdict")
        if written.get(field) != decided.body.get(field)
    ]


def _judged(root: Root, name: str, entries: list[Entry], *, changed: bool) -> list[Item]:
    """The last decision, judged again from the records; where they are not on this disk, or have changed, a note."""
    from ablate.verification.rejudge import JUDGED, judged_again

    decided = [entry for entry in entries if entry.event == "decided"]
    if not decided:
        return []
    if changed:
        return [item(name, JUDGED, note="not judged again: what it rests on has changed")]
    runs = places_of(root, entries, decided[-1].registration)
    if runs and not any(path.exists() for path in runs):
        note = f"not judged again: none of the {len(runs)} sealed runs is on this disk"
        return [item(name, JUDGED, note=note)]
    return judged_again(root, name, tuple(entries))


def _published(root: Root, name: str, written: list[Entry]) -> tuple[str, str]:
    """A fault and a note about the published figures that the reports show; they promise nothing, and may be gone."""
    path, last = root.published(name), written[-1].body
    here, place, recorded = path.is_file(), root.relative(path), last.get("published")
    if recorded is None:
        return "", f"{place} is not in them (ablate report adds it)" if here else ""
    if not here:
        return "", f"{place}, which they show, is not on this disk"
    if sha256_file(path) != recorded:
        return f"{place} is not the file that the reports show (ablate report updates them)", ""
    return "", f"{place} is the file that they show"


def check_reports(root: Root, name: str, entries: list[Entry]) -> Item:
    """The pages that people read, against the hashes that the ledger took when they were last written."""
    written = [entry for entry in entries if entry.event == "reported"]
    pages = [path for page in ("report.md", "report.html") if (path := root.report(name) / page).exists()]
    if not written:
        note = "none is here" if not pages else "not covered: the ledger holds no hash of them (ablate report)"
        if not pages or any(entry.event == "decided" for entry in entries):
            return item(name, "reports", note=note)
        gone = f"{root.relative(pages[0])} is here and the ledger has no decision: its end may have been cut off"
        return item(name, "reports", gone)
    last = written[-1]
    faults = [
        f"{root.relative(path)} is not what was written at {last.at} (ablate report writes it again)"
        for path in pages
        if not path.is_file() or sha256_file(path) != last.body.get(path.name)
    ]
    decided = [entry for entry in entries if entry.event == "decided"]
    if decided and decided[-1].sha256 != last.body.get("decision"):
        faults.append("the reports show an earlier decision than the ledger's last (ablate report writes them again)")
    note = "" if faults else f"{len(pages)} of 2 pages are as they were written"
    fault, more = _published(root, name, written)
    faults += [fault] if fault else []
    note = "; ".join(part for part in (note, more) if part)
    return item(name, "reports", *faults, note=note)
