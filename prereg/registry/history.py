"""History of a study's registrations: the one in force, those that amendments replaced, and their differences.

A lock holds only the promise in force. An amendment's entry names the promise before it by its hash, and each
field that changed with its earlier value; so the earlier promise can be rebuilt by undoing the differences, and its
hash tells whether the rebuilding is right. Where the lock is gone or changed, or a difference does not fit, the
promise is counted and not shown. What was registered and never entered the ledger is unknown to everybody.

And whether a study repeats another: the same configurations with the same seeds give the same runs.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from prereg.commits.pins import promised
from prereg.errors import FieldPath, RegistrationError, Where, dotted
from prereg.frozen import FrozenModel
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_of
from prereg.registry.disk import read_regular
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import AmendedEntry, Difference, Entry, PromiseEntry, SealEntry, Word
from prereg.registry.paths import Root
from prereg.registry.registration import (
    LARGEST_LOCK,
    WORDS,
    Pins,
    Registration,
    promise_sha256,
    promises_of,
    read_lock,
)
from prereg.study.arms import Arm
from prereg.study.load import Loaded
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import counted, listed, moment, ranged

ABSENT = "(absent)"
"""What a difference says of a field that one side lacks."""


def differing_fields(old: Study, new: Study) -> list[Difference]:
    """The fields of a study that are not what was registered, both resolved whole."""
    # As JSON, the form that is hashed: two values that are equal there are no change, whatever Python says.
    changes = differences(as_json(old), as_json(new), ())
    if not changes and list(old.factors) != list(new.factors):
        return [Difference(field="factors", registered=list(old.factors), now=list(new.factors))]
    return changes


def as_registered(registration: Registration, loaded: Loaded) -> Loaded:
    """The file with the study that was registered from the same bytes, or reworded to them; another as it is.

    A default that has changed since then changes no registered study. Bytes to which a study was reworded count only
    as far as they say the same in all but words: an entry can claim anything.
    """
    sha256 = sha256_bytes(loaded.source_bytes)
    if sha256 == registration.source_sha256:
        return replace(loaded, study=registration.study)
    if any(sha256 == rewording.source_sha256 for rewording in registration.rewordings):
        return replace(loaded, study=in_words_of(registration.study, loaded.study))
    return loaded


def words_in(registration: Registration, loaded: Loaded) -> dict[Word, str]:
    """The words of a study's file."""
    sha256 = sha256_bytes(loaded.source_bytes)
    words_by_source = {rewording.source_sha256: rewording.words for rewording in registration.rewordings}
    return words_by_source.get(sha256) or {field: getattr(loaded.study, field) for field in WORDS}


def in_words_of(registered: Study, study: Study) -> Study:
    """A study with the words of the registered one."""
    return study.model_copy(update={field: getattr(registered, field) for field in WORDS})


def require_unchanged(registration: Registration, loaded: Loaded) -> None:
    """Raise `RegistrationError` when the study is not as registered any more."""
    loaded = as_registered(registration, loaded)
    name = loaded.study.study
    refuse_change(loaded.path, name, registration, differing_fields(registration.study, loaded.study))


def refuse_change(path: Path, name: str, registration: Registration, differences: list[Difference]) -> None:
    if not differences:
        return
    shown = [f"{d.field} (registered {_short(d.registered)}, now {_short(d.now)})" for d in differences[:5]]
    more = f", and {len(differences) - 5} more" if len(differences) > 5 else ""
    fix = f'ablate amend {path} --reason "..."; or copy the file under another name and register that'
    if any(difference.field == "seeds" for difference in differences):
        # An amendment after runs makes every claim exploratory: more seeds are a study of their own.
        fix = (
            f"copy the file under another name, {name}_2.yaml, with study: {name}_2 and seeds: fresh "
            f'{registration.study.n_seeds}, and register that; before any run also: ablate amend {path} --reason "..."'
        )
    raise RegistrationError(
        f"'{name}' is not what was registered on {registration.registered_at}: " + ", ".join(shown) + more,
        required=f"the study of registration {registration.sha256}",
        fix=fix,
        where=Where(file=path),
    )


def differing_pins(registered: Pins, now: Pins) -> list[Difference]:
    """The corpora, code and tasks that are not what was registered."""

    def shown(pins: Pins) -> dict[str, JsonValue]:
        files = {kind: getattr(pins, kind) or () for kind in ("scripts", "data_files")}
        return {
            "corpus": as_json(pins.corpus),
            "data": as_json(pins.data),
            **{kind: {pin.path: pin.sha256 for pin in pinned} for kind, pinned in files.items()},
            "tasks": as_json(pins.tasks),
            "commits": {name: promised(as_json(pin)) for name, pin in pins.commits.items()},
        }

    was = shown(registered)
    return [change for name, value in shown(now).items() for change in differences(was[name], value, (name,))]


def differences(old: JsonValue, new: JsonValue, path: FieldPath) -> list[Difference]:
    """The values below a path that differ; lists that are not mappings of equal number are compared whole.

    >>> for change in differences({"alpha": 0.05, "seeds": [1, 2]}, {"alpha": 0.05, "seeds": [1, 2, 3]}, ("analysis",)):
    ...     change.field, change.registered, change.now
    ('analysis.seeds', [1, 2], [1, 2, 3])
    """
    # Only mappings, and lists of mappings of equal number, are entered: of [1, 2] and [2, 3] a difference by place
    # says nothing.
    below: list[tuple[str | int, JsonValue, JsonValue]] | None = None
    if isinstance(old, dict) and isinstance(new, dict):
        below = [(key, old.get(key, ABSENT), new.get(key, ABSENT)) for key in dict.fromkeys([*old, *new])]
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and all(isinstance(item, dict) for item in (*old, *new))
    ):
        below = [(at, *pair) for at, pair in enumerate(zip(old, new, strict=True))]
    if below is not None:
        return [change for key, a, b in below for change in differences(a, b, (*path, key))]
    # As canonical bytes: to Python, true equals 1.
    if canonical_bytes(old) == canonical_bytes(new):
        return []
    return [Difference(field=dotted(path), registered=old, now=new)]


def as_json(part: FrozenModel | None) -> Any:
    return None if part is None else part.model_dump(mode="json")


def _short(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


_INDEX = re.compile(r"\[(\d+)\]\.?")


class PastRegistration(FrozenModel):
    """One registration of a study, in force or not."""

    entry: PromiseEntry
    """The ledger's entry that made it."""
    promise: dict[str, Any] | None
    """The study as plain data, with the hashes of what its names meant; none where it is unknown."""
    unknown: str = ""
    """Why the document is unknown, or cannot be proven; empty where it has the promise's hash."""

    @property
    def document(self) -> dict[str, JsonValue] | None:
        """The study as plain data; none where it is unknown."""
        return None if self.promise is None else self.promise["study"]

    @property
    def proven(self) -> bool:
        """Whether the document has the promise's hash."""
        return not self.unknown


def past_registrations(root: Root, study: str, entries: Sequence[Entry]) -> tuple[PastRegistration, ...]:
    """Every promise of a study, oldest first. Nothing is raised for what is missing: `unknown` says it.

    >>> from prereg.registry.ledger import Ledger
    >>> root = Root.find(Path("studies/own.yaml"))
    >>> [(past.entry.event, past.proven) for past in past_registrations(root, "own", Ledger(root.ledger).entries())]
    [('registered', True)]
    """
    # From the lock in force backwards: undo the differences of each amendment, and check the hash of what comes
    # out.
    promises = promises_of(entries, study)
    past: list[PastRegistration] = []
    promise, unknown = _lock(root, study, promises[-1]) if promises else (None, "")
    for entry in reversed(promises):
        if promise is not None:
            proven = _hash(promise) == entry.registration
            unknown = "" if proven else "rebuilt from the differences in the ledger, but not to the hash of the promise"
        past.append(PastRegistration(entry=entry, promise=promise, unknown=unknown))
        if promise is not None and isinstance(entry, AmendedEntry):
            promise = _undone(promise, entry.differences)
            unknown = "" if promise else "the differences in the ledger do not fit the promise that followed"
    return tuple(reversed(past))


class Repeated(FrozenModel):
    """What a study shares with another registered study of the ledger."""

    study: str
    """The other study."""
    arms: dict[str, str]
    """Arm of this study -> an arm of the other with the same configuration."""
    seeds: tuple[int, ...]
    """Seeds of both."""
    known: Entry
    """The newest entry of the other study that says how much is known of its outcome."""
    sealed: bool = False
    """Whether the ledger has a seal of one of these runs."""

    @property
    def words(self) -> str:
        """One line."""
        arms = listed(arm if arm == theirs else f"{arm} ({theirs} there)" for arm, theirs in self.arms.items())
        return (
            f"{counted(len(self.arms), 'arm')} ({arms}) with seeds {ranged(self.seeds)} are runs of '{self.study}' too "
            f"({self.known.event}, {moment(self.known.at)}). A claim chosen by what those showed promises nothing. "
            + (
                f"With the same code and data, registration is refused: write seeds: fresh {len(self.seeds)}"
                if self.sealed
                else f"The report names such runs. Other seeds would be new data (seeds: fresh {len(self.seeds)})"
            )
        )


_KNOWN = ("decided", "looked", "peeked", "sealed", "imported", "started", "registered", "amended")
"""Events by how much is known of the outcome, most first."""


def repeated(root: Root, study: Study) -> tuple[Repeated, ...]:
    """The other registered studies of this ledger that share configurations and seeds with a study, by their names.

    >>> root = Root.find(Path("studies/own.yaml"))
    >>> repeated(root, Study.from_yaml("studies/own.yaml"))  # a study does not repeat itself
    ()
    """
    entries = Ledger(root.ledger).readable()
    repetitions = []
    # Locks and not study files: only what is registered can have runs that somebody has seen.
    for path in sorted(root.studies.glob("*.lock.json")):
        name = path.name.removesuffix(".lock.json")
        mine = [entry for entry in entries if entry.study == name and entry.event in _KNOWN]
        if name == study.study or not mine:
            continue
        try:
            other_study = read_lock(path).study
        except RegistrationError:
            continue  # `ablate verify` says what is wrong with it
        arms = _alike(study, other_study)
        shared = {arm: set(study.seeds_of(arm)) & set(other_study.seeds_of(theirs)) for arm, theirs in arms.items()}
        arms = {arm: theirs for arm, theirs in arms.items() if shared[arm]}
        seeds = tuple(seed for seed in study.seeds if any(seed in mine for mine in shared.values()))
        if arms:
            # Of several entries that say as much, the newest: min takes the first of equals, and the order
            # is reversed.
            newest = min(reversed(mine), key=lambda entry: _KNOWN.index(entry.event))
            theirs = {(arms[arm], seed) for arm in arms for seed in shared[arm]}
            sealed = any(isinstance(entry, SealEntry) and entry.cell in theirs for entry in mine)
            repetitions.append(Repeated(study=name, arms=arms, seeds=seeds, known=newest, sealed=sealed))
    return tuple(repetitions)


def _alike(study: Study, other_study: Study) -> dict[str, str]:
    """Arms of a study -> arms of another that are trained alike."""
    if (study.trainer, study.command) != (other_study.trainer, other_study.command):
        return {}
    if study.commits or other_study.commits:
        return {}  # a name may mean another commit there: what was sealed is compared by its files, once it is pinned
    # Reversed: of two arms that are trained alike, the first one's name is kept.
    theirs = {_made_of(arm): name for name, arm in reversed(other_study.arms.items())}
    return {name: theirs[key] for name, arm in study.arms.items() if (key := _made_of(arm)) in theirs}


def _made_of(arm: Arm) -> str:
    return sha256_of(arm.config.model_dump(mode="json") if isinstance(arm.config, Training) else arm.config)


def _lock(root: Root, study: str, entry: PromiseEntry) -> tuple[dict[str, Any] | None, str]:
    """Study, corpus and files of the lock in force, or why they are unknown."""
    path = root.lock(study)
    try:
        data = read_regular(path, LARGEST_LOCK)
    except OSError:
        return None, f"{path.name} is not here"
    if sha256_bytes(data) != entry.lock_sha256:
        return None, f"{path.name} is not as it was registered"
    document = json.loads(data)
    promise = {name: document.get(name) for name in ("study", "corpus", "data", "tasks")}
    for kind in ("scripts", "data_files"):
        promise[kind] = {pin["path"]: pin["sha256"] for pin in document.get(kind) or ()}
    promise["commits"] = {name: promised(pin) for name, pin in (document.get("commits") or {}).items()}
    # No amendment changes it.
    promise["run_order"] = document.get("run_order")
    return promise, ""


def _hash(promise: dict[str, Any]) -> str | None:
    try:
        # Back to the form of a lock, sorted by path as `pins` are, or the hash would be another.
        files: dict[str, Any] = {
            kind: [{"path": path, "sha256": sha256} for path, sha256 in sorted(promise[kind].items())]
            for kind in ("scripts", "data_files")
        }
        if promise["study"]["trainer"] != "command":
            files["scripts"] = None
        return promise_sha256(promise | files)
    except (ValueError, TypeError, KeyError):
        return None


def _undone(promise: dict[str, Any], differences: Iterable[Difference]) -> dict[str, Any] | None:
    """Study and corpus as they were before the differences; none when one of them does not fit."""
    # Undone on a copy: where a difference does not fit, the later promise must stay as it is.
    before = copy.deepcopy(promise)
    for difference in differences:
        field, old, new = difference.field, difference.registered, difference.now
        if field == "factors" and isinstance(old, list) and isinstance(new, list):
            factors = before["study"]["factors"]
            if sorted(factors) != sorted(map(str, old)):
                return None
            before["study"]["factors"] = {str(name): factors[str(name)] for name in old}
            continue
        # Corpus and code are next to the study, and their differences begin with their names.
        pinned = re.match(r"(commits|corpus|data|data_files|scripts|tasks)($|[.\[])", field)
        # `data` of a study is a list of paths, always shown whole; `data` next to it holds pins of corpora.
        paths = field == "data" and (isinstance(old, list) or isinstance(new, list))
        inside = before if pinned and not paths else before["study"]
        if not any(_put_back(parent, key, old, new) for parent, key in _places(inside, field)):
            return None
    return before


def _put_back(parent: Any, key: str | int, old: JsonValue, new: JsonValue) -> bool:
    """Give a place its earlier value, if it holds the later one."""
    here = parent[key] if isinstance(key, int) or key in parent else ABSENT
    # The place must hold what the entry says it was changed to; otherwise it is another place, or a forged entry.
    if canonical_bytes(here) != canonical_bytes(new):
        return False
    if old == ABSENT:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(old)
    return True


def _places(value: Any, field: str) -> Iterator[tuple[Any, str | int]]:
    """(parent, key) of every place that a dotted path can mean: names may hold dots themselves. Deepest first."""
    if isinstance(value, dict):
        for key in value:
            if field.startswith((f"{key}.", f"{key}[")):
                yield from _places(value[key], field[len(key) :].removeprefix("."))
        # The whole rest as one key, tried last: a deeper place is the likelier meaning of a dotted path.
        yield value, field
    elif isinstance(value, list):
        match = _INDEX.match(field)
        if match is not None and int(match.group(1)) < len(value):
            index, rest = int(match.group(1)), field[match.end() :]
            if rest:
                yield from _places(value[index], rest)
            else:
                yield value, index
