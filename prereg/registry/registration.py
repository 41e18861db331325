"""`Registration`: lock and ledger entry read together, each checked against the other; and the hash of the promise.

A study *is* registered when its newest ledger entry and its lock agree, and not by either alone. How a registration
comes about is `prereg.registry.register`'s work, and what differs from it `prereg.registry.history`'.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import JsonValue, ValidationError

from prereg.commits.pins import CodeChanges, CommitPin, promised
from prereg.errors import RegistrationError, StudyError, Where
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.disk import read_regular
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import AmendedEntry, Entry, Override, PromiseEntry, RewordedEntry, TunedEntry, Word
from prereg.registry.paths import Root
from prereg.registry.run_order import RunOrder, cells_in_order
from prereg.study.command import ScriptPin, code_sha256
from prereg.study.designs.tune import with_choice
from prereg.study.removed import SINCE, without_removed
from prereg.study.spec import Study
from prereg.study.timed import timed_promises

LARGEST_LOCK = 2**26
"""Bytes of a lock that is read."""


class CorpusPin(FrozenModel):
    """What the name of a corpus meant at registration."""

    name: str
    """Its name."""
    sha256: str
    """sha256 of its text; of a corpus of several files, over the hashes of all of them."""
    size_bytes: int
    """Size of its text."""
    characters: int
    """Characters of its text; 0 where it is stored as tokens."""
    tokens: int | None = None
    """Tokens of a corpus that is stored as tokens; none for a text."""


class DataPins(FrozenModel):
    """What arms read, where that is more than one text, character by character, as `Registration.corpus` pins it."""

    corpora: dict[str, CorpusPin]
    """Every corpus that some arm reads, by name."""
    tokenizers: dict[str, str]
    """Arm -> sha256 of the definition of its tokenizer: byte-pair merges are trained, and must be the same again."""


class TaskPin(FrozenModel):
    """What the tasks of `measure.harness` meant at registration: by the hash of their files, as a corpus by that of its
    text."""

    name: str
    """The name or folder that the study writes."""
    sha256: str
    """Hash over the names and sha256 of all files, and over the prompts; of tasks of the harness itself, over the
    documents that it fetched."""
    n_files: int
    """Files that the hash covers; 0 for tasks of the harness itself."""
    n_tasks: int
    """Tasks."""
    n_items: int
    """Items that are to be scored, all tasks together."""
    n_unencodable: int
    """Of these, items that are left out because the tokenizer cannot write them."""
    n_void: int
    """Items passed over because their choices are the same text."""
    prompts: tuple[str, ...]
    """Names of the prompts under which every item is evaluated."""


class Pins(FrozenModel):
    """What the names in a study mean: corpora and tasks for the built-in trainer, files for a user's own."""

    corpus: CorpusPin | None = None
    """The corpus; none where the trainer is the user's own command."""
    scripts: tuple[ScriptPin, ...] | None = None
    """The files of a user's own trainer; none for the built-in one."""
    data_files: tuple[ScriptPin, ...] = ()
    """The files that a user's own trainer reads, as far as `data:` names them."""
    data: DataPins | None = None
    """Corpora and tokenizers, where the arms read several corpora or a trained tokenizer; else none."""
    tasks: TaskPin | None = None
    """The zero- and few-shot tasks; none where none are declared."""
    commits: dict[str, CommitPin] = {}
    """Commit as the study writes it -> its hash and files, where the arms are commits."""
    code_changes: dict[str, CodeChanges] = {}
    """Commit as the study writes it -> what differs in its files from those of the baseline's commit: in the lock, for
    readers, and no part of the promise."""


WORDS: tuple[Word, ...] = get_args(Word)


class Registration(Pins):
    """A study as it was promised."""

    format: Literal[1] = 1
    """The version of the format."""
    study: Study
    """The study, resolved whole."""
    sha256: str
    """Hash of the promise: of study, corpus, scripts and tasks, see `promise_sha256`."""
    source_sha256: str
    """sha256 of the exact bytes of the study's file."""
    registered_at: str
    """UTC, ISO 8601, by the clock of the machine."""
    tool: dict[str, str]
    """Versions of what registered it."""
    design: dict[str, JsonValue] | None
    """Operating characteristics, frozen before data."""
    previous: str | None
    """sha256 of the registration that this one amends."""
    reason: str | None
    """Why it was amended."""
    override: Override | None = None
    """What the user accepted although registration would have refused it; none otherwise."""
    run_order: RunOrder | None = None
    """The rule by which its runs are ordered, a part of the promise; none where they come in the order of the file."""
    lock_sha256: str
    """sha256 of the exact bytes of the lock file; not stored in it."""
    rewordings: tuple[RewordedEntry, ...] = ()
    """Other words that the ledger holds for it, oldest first; not stored in the lock."""
    shared: tuple[str, ...] = ()
    """Registrations of the ledger that share their runs with this one; not stored in the lock. See `lineage`."""

    @property
    def cells(self) -> tuple[tuple[str, int], ...]:
        """Every planned run, in the order in which runs are made."""
        return self.study.cells if self.run_order is None else cells_in_order(self.study)

    @property
    def timed(self) -> tuple[str, ...]:
        """Why its runs have to be made one at a time, in the registered order; nothing where they need not be, and
        where no order was registered."""
        return () if self.run_order is None else timed_promises(self.study)

    @property
    def lineage(self) -> tuple[str, ...]:
        """sha256 of every registration whose runs count for this one, itself among them."""
        return self.shared or (self.sha256,)

    @property
    def runs_sha256(self) -> str:
        """sha256 of the registration in whose folder the runs lie, and which their records name."""
        return self.lineage[0]

    @property
    def worded(self) -> Study:
        """The study in its newest words, for people. What was promised is `study`."""
        words: dict[str, str] = {field: text for entry in self.rewordings for field, text in entry.words.items()}
        return self.study.model_copy(update=words) if words else self.study

    def corpus_of(self, arm: str) -> CorpusPin | None:
        """The pin of the corpus that an arm reads; none where the trainer is the user's own command."""
        if self.data is None:
            return self.corpus
        return self.data.corpora[self.study.training(arm).data.corpus]

    def commit_of(self, arm: str) -> CommitPin | None:
        """What the commit of an arm meant; none where its code is that of the root."""
        name = self.study.commits.get(arm)
        return None if name is None else self.commits[name]

    def code_of(self, arm: str) -> tuple[ScriptPin, ...]:
        """The pinned code of a user's own trainer that runs of an arm are started from."""
        commit = self.commit_of(arm)
        return (self.scripts or ()) if commit is None else commit.scripts

    @property
    def files(self) -> tuple[ScriptPin, ...]:
        """Every pinned file below the root of a user's own trainer: its code, unless arms are commits, then its
        data."""
        return (*(self.scripts or ()), *self.data_files)

    def code_sha256(self, arm: str) -> str:
        """One hash over code and data of an arm: what each run says that it was made with."""
        return code_sha256((*self.code_of(arm), *self.data_files))

    @property
    def codes_sha256(self) -> str:
        """One hash over code and data of all arms."""
        if not self.commits:
            return code_sha256(self.files)
        return sha256_of({arm: self.code_sha256(arm) for arm in self.study.trained})

    @property
    def pinned(self) -> tuple[CorpusPin, ...]:
        """Every corpus that some arm reads, by name."""
        if self.data is not None:
            return tuple(self.data.corpora.values())
        return () if self.corpus is None else (self.corpus,)

    def tokenizer_of(self, arm: str) -> str | None:
        """sha256 of the tokenizer that was registered for an arm, where one was."""
        # A pilot's run reads with the tokenizer of the arm that it tunes.
        pilot = self.study.pilots.get(arm)
        return None if self.data is None else self.data.tokenizers[arm if pilot is None else pilot.of]


def promise_sha256(promise: Mapping[str, Any]) -> str:
    """Hash of a promise, from the JSON forms of its parts as a lock names them; other fields of a lock do not count.

    Canonical JSON sorts keys, so order in the file does not matter. The one order that means
    something is that of the factors, which names the arms: it is hashed with them.
    """
    # `own_checks` had the code of a study's own checks, which are gone; a promise without any hashes as it did.
    pinned = ("corpus", "scripts", "data_files", "data", "tasks", "own_checks")
    # Only what was promised; registered_at, tool, design and reason are in the lock and not in the hash.
    parts = {"study": promise["study"], "factor_order": list(promise["study"]["factors"])}
    # A promise without commits has the hash that it had before there were any.
    if promise.get("commits"):
        parts["commits"] = {name: promised(pin) for name, pin in promise["commits"].items()}
    if promise.get("run_order"):
        parts["run_order"] = promise["run_order"]
    # `or None`: an empty list, an empty mapping and a missing key mean the same, and hash alike.
    return sha256_of(parts | {name: promise.get(name) or None for name in pinned})


def load_registration(root: Root, name: str) -> Registration | None:
    """The registration in force, or None when the study is not registered. Raises `RegistrationError` where its lock is
    missing, cannot be read, or is not what the ledger registered.

    A lock that no entry names is not a registration, and no other takes its place: a sound ledger without its entries
    is that of another branch, or was cut back. Of a damaged ledger, the entries that are sound
    in themselves are believed here: appending refuses such a ledger, and judging calls it inadmissible.

    >>> registration = load_registration(Root.find(Path("studies/own.yaml")), "own")
    >>> registration.study.seeds, registration.lineage == (registration.sha256,)
    ((1, 2, 3), True)
    """
    # 1. The newest promise of the ledger; without one, a lock that lies there is refused.
    entries = Ledger(root.ledger).readable()
    entry = newest_promise(entries, name)
    if entry is None:
        _refuse_lock_without_entry(root, name)
        return None
    lock = root.lock(name)
    # Between the ledger's entry and the move of the lock, the lock still lies next to its place.
    path = pending_lock(root, name) if lock_matches(pending_lock(root, name), entry) else lock
    if not path.is_file():
        raise RegistrationError(
            f"the ledger registered '{name}' on {entry.at}, and its lock is missing",
            required=f"the lock file with sha256 {entry.lock_sha256}",
            fix=f"restore {lock.name} from version control",
            where=Where(file=lock),
        )
    # 2. The lock that this entry names by its bytes, and agrees with in every field that both have.
    registration = read_lock(path)
    faults = disagreements(registration, entry)
    if faults:
        raise RegistrationError(
            faults[0],
            required=f"the lock as it was registered on {entry.at}",
            fix=f"restore {lock.name} from version control",
            where=Where(file=path),
        )
    of_study = [entry for entry in entries if entry.study == name]
    # 3. What later entries add, none of which changes the lock: shared runs, new words, a pilot's choice.
    shared = lineage_of(of_study, registration.sha256)
    rewordings = [
        entry for entry in of_study if isinstance(entry, RewordedEntry) and entry.registration == registration.sha256
    ]
    # The first choice stands: its runs were made with it.
    choices = (entry.chosen for entry in of_study if isinstance(entry, TunedEntry) and entry.registration in shared)
    study = with_choice(registration.study, next(choices, {}))
    return registration.model_copy(update={"study": study, "rewordings": tuple(rewordings), "shared": shared})


def _refuse_lock_without_entry(root: Root, name: str) -> None:
    """A registration's entry comes before its lock, so a lock that has none was registered elsewhere, or earlier."""
    lock = root.lock(name)
    if lock.is_file() and not Ledger(root.ledger).damage():
        raise RegistrationError(
            f"{lock.name} is here, and no entry of {root.ledger.name} registers '{name}': its entries are on another "
            "branch, or were cut off",
            required="the ledger with the lines of every branch that was merged",
            fix=lines_of_a_branch(root, name),
            where=Where(file=lock),
        )


def lines_of_a_branch(root: Root, name: str) -> str:
    """What brings back the ledger's lines of another branch, for a user to type."""
    ledger, lock = root.relative(root.ledger), root.relative(root.lock(name))
    return (
        f"git show BRANCH:./{ledger} | grep -vxFf {ledger} >> {ledger}   (the branch or commit that registered it: git "
        f"log --all --oneline -- {lock})"
    )


def read_lock(path: Path) -> Registration:
    """A lock file whose hash of the promise matches its content. Raises `RegistrationError`."""
    where, fix = Where(file=path), f"restore {path.name} from version control"
    try:
        data = read_regular(path, LARGEST_LOCK)
    except OSError as error:
        raise RegistrationError(
            f"the lock cannot be read: {error.strerror}", required="a lock file as it was written", fix=fix, where=where
        ) from None
    try:
        registration, promised_sha256 = _parsed_lock(data)
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError, StudyError) as error:
        reason = error.found if isinstance(error, StudyError) else str(error).splitlines()[0]
        raise RegistrationError(
            f"the lock cannot be read: {reason}", required="a lock file as it was written", fix=fix, where=where
        ) from None
    # Over the document as it is, not over the study read from it: a field that comes later with a default leaves the
    # hash of a promise as it is.
    if promised_sha256 != registration.sha256:
        raise RegistrationError(
            "the hash in the lock does not match its content: it was edited",
            required=f"content with sha256 {registration.sha256}",
            fix=fix,
            where=where,
        )
    return registration


@lru_cache(maxsize=64)
def _parsed_lock(data: bytes) -> tuple[Registration, str]:
    """A registration and the hash of its promise. It is frozen, so that all who read the same bytes may share it: one
    `verify` reads a lock five times. Raises `ValueError` and others for bytes that are no lock."""
    document = json.loads(data)
    # Before anything is read in it: another format may give the same keys another meaning.
    if document["format"] != 1:
        raise ValueError(f"it has format {document['format']}, and this version reads format 1")
    promised_sha256 = promise_sha256(document)
    if document.pop("own_checks", None):
        raise ValueError(f"it has code of own checks, which are gone since {SINCE}: read it with an earlier version")
    current = document | {"study": without_removed(document["study"]), "lock_sha256": sha256_bytes(data)}
    text = json.dumps(current, allow_nan=False)
    return Registration.model_validate_json(text), promised_sha256


def promises_of(entries: Iterable[Entry], study: str) -> tuple[PromiseEntry, ...]:
    """The entries that registered a study and amended it, oldest first."""
    return tuple(entry for entry in entries if entry.study == study and isinstance(entry, PromiseEntry))


def newest_promise(entries: Iterable[Entry], study: str) -> PromiseEntry | None:
    """The entry of the registration in force; none where the study has none."""
    return next(reversed(promises_of(entries, study)), None)


def lock_matches(lock: Path, entry: PromiseEntry) -> bool:
    """Whether a lock has the bytes that an entry registered."""
    return lock.is_file() and sha256_bytes(lock.read_bytes()) == entry.lock_sha256


def pending_lock(root: Root, name: str) -> Path:
    return root.lock(name).with_name(f".{name}.lock.pending")


def disagreements(registration: Registration, entry: PromiseEntry) -> list[str]:
    """Where a lock and the entry that registered it disagree."""
    faults = []
    if registration.lock_sha256 != entry.lock_sha256:
        faults.append("its bytes differ from those the ledger names")
    if registration.sha256 != entry.registration:
        faults.append(f"it holds registration {registration.sha256[:8]}, the ledger names {entry.registration[:8]}")
    if registration.study.study != entry.study:
        faults.append(f"it holds study '{registration.study.study}', not '{entry.study}'")
    if registration.previous != entry.amends:
        faults.append("it amends another registration than the ledger says")
    return faults


def folder_of_study(root: Root, study: str) -> Path:
    """Where a registered study's file lies."""
    entry = newest_promise(Ledger(root.ledger).readable(), study)
    assert entry is not None, study
    return (root.path / entry.file).parent


def bases_of(entries: Iterable[Entry]) -> dict[str, str]:
    """Registration -> the registration whose folder holds its runs, its base, of every registration in these entries.

    The runs of a study lie in the folder of the registration that first planned them, and their records and entries
    name that one. An `amended` entry that keeps the runs names the base in `runs_of`; without it the runs are made
    anew, under the amended registration itself. So no change of words, beliefs, claims or rule gives runs another
    chance.
    """
    # In the order of the ledger: an amendment can only keep runs of a registration before it.
    bases: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, PromiseEntry):
            stated = entry.runs_of if isinstance(entry, AmendedEntry) else ""
            # A study that is amended back to what it was has the runs that it had.
            bases[entry.registration] = bases.get(entry.registration) or (
                stated if stated in bases.values() else entry.registration
            )
    return bases


def lineage_of(entries: Iterable[Entry], registration: str) -> tuple[str, ...]:
    """The registrations that share their runs with one, itself among them: first the one whose folder holds them."""
    bases = bases_of(entries)
    base = bases.get(registration, registration)
    return (base, *(sha256 for sha256, its in bases.items() if its == base and sha256 != base))
