"""Registering and amending on disk: the lock is written, and the ledger names it, before any data.

The lock holds the whole promise; the ledger's entry holds the hash of the lock's exact bytes. A study
*is* registered when its newest ledger entry and its lock agree, and not by either alone. The lock is
first written next to its place and moved there after the ledger has taken the entry: the entry is the
moment of registration, and a crash on either side of it leaves something that can be completed.
This module never looks at a clock, and does not say who registered: see the ledger's limits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from prereg.errors import RegistrationError, Where
from prereg.registry.amendments import keeps_runs
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import move, write_whole
from prereg.registry.git_files import write_git_files
from prereg.registry.history import (
    as_json,
    as_registered,
    differing_fields,
    differing_pins,
    refuse_change,
    repeated,
    require_unchanged,
    words_in,
)
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import (
    AmendedEntry,
    CallStartedEntry,
    ComparedContents,
    Difference,
    Entry,
    EvidenceState,
    FailedEntry,
    Override,
    PromiseEntry,
    RegisteredEntry,
    RewordedEntry,
    RunStartedEntry,
    SameRuns,
)
from prereg.registry.paths import Root, resolved
from prereg.registry.plan import Cell, sealed_elsewhere
from prereg.registry.registration import (
    WORDS,
    Pins,
    Registration,
    lineage_of,
    load_registration,
    lock_matches,
    newest_promise,
    pending_lock,
    promise_sha256,
    read_lock,
)
from prereg.registry.run_order import MIRRORED_ROTATION, RunOrder
from prereg.study.load import Loaded
from prereg.text import counted, moment


def register_study(
    root: Root,
    loaded: Loaded,
    *,
    pins: Pins,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    override: Override | None = None,
    compared: ComparedContents | None = None,
) -> tuple[Registration, PromiseEntry]:
    """Register a study: its lock, and an entry of the ledger, with what `ablate gate` compares by it.

    Returns the registration and the entry that made it; of what is registered and unchanged, those that it has. Raises
    `RegistrationError` where the study was changed since, or another study has sealed its runs, and `LedgerError` for a
    ledger that takes no entry; nothing is written then.
    """
    name, ledger = loaded.study.study, Ledger(root.ledger)
    with ledger.hold():
        registered = load_registration(root, name)
        # Registering twice is no error: a script may call it before every run. What has changed is one.
        if registered is not None:
            require_unchanged(registered, loaded)
            refuse_change(loaded.path, name, registered, differing_pins(registered, pins))
            complete(root, name)
            newest = newest_promise(ledger.readable(), name)
            assert newest is not None, name
            return registered, newest
        file = _relative(root, loaded.path)
        ledger.head()  # a damaged ledger is refused before anything is written
        lock = _lock(
            loaded,
            pins=pins,
            run_order=MIRRORED_ROTATION,
            design=design,
            tool=tool,
            at=at,
            override=override,
        )
        registration = _write_pending(root, name, lock)
        try:
            refuse_sealed_elsewhere(ledger.entries(), registration, loaded)
        # The ledger has no entry yet, so the lock that waits for it must go too.
        except RegistrationError:
            pending_lock(root, name).unlink()
            raise
        promise = _promise(root, registration, at=at, file=file)
        # Left out of any other study's entry, which keeps the bytes that it had before there were comparisons.
        if compared is not None:
            promise["compared"] = compared
        entry = ledger.append(RegisteredEntry(**promise))
        return _in_force(root, registration, ledger), entry


def amend_study(
    root: Root,
    loaded: Loaded,
    *,
    pins: Pins,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    reason: str,
    evidence: EvidenceState,
    override: Override | None = None,
) -> tuple[Registration, Entry]:
    """Replace a registration by a changed one, on the record: why, what, and what was known of the outcome.

    `evidence` is what the caller knows; where the ledger knows more, that counts. Returns the registration and its
    entry. Where words alone are other ones, the registration stays, and the entry is of the new words. Raises
    `RegistrationError` for a study that is not registered, an empty reason, and a study in which nothing has changed.
    """
    name, ledger = loaded.study.study, Ledger(root.ledger)
    with ledger.hold():
        complete(root, name)
        registered = load_registration(root, name)
        where = Where(file=loaded.path)
        if registered is None:
            raise RegistrationError(
                f"study '{name}' is not registered",
                required="a registration to amend",
                fix=f"ablate register {loaded.path}",
                where=where,
            )
        if not reason.strip():
            raise RegistrationError(
                "an amendment without a reason",
                required="why the promise changes, in words",
                fix=f'ablate amend {loaded.path} --reason "..."',
                where=where,
            )
        # The study that these bytes gave when they were registered: a default that changed since is no amendment.
        loaded = as_registered(registered, loaded)
        changes = changes_since(registered, loaded, pins)
        file = _relative(root, loaded.path)
        if words_alone(changes):
            rewording = RewordedEntry(
                study=name,
                registration=registered.sha256,
                at=at,
                words=words_in(registered, loaded),
                reason=reason.strip(),
                file=file,
                source_sha256=sha256_bytes(loaded.source_bytes),
            )
            return registered, ledger.append(rewording)
        # Lock next to its place, entry, move: whichever a crash comes after, the next command can finish the rest.
        state, failed_runs = evidence_by_now(ledger.entries(), name, stated=evidence)
        lock = _lock(
            _with_registered_order(registered, loaded),
            pins=pins,
            run_order=registered.run_order,
            design=design,
            tool=tool,
            at=at,
            override=override,
            previous=registered.sha256,
            reason=reason.strip(),
        )
        registration = _write_pending(root, name, lock)
        amendment = AmendedEntry(
            **_promise(root, registration, at=at, file=file),
            reason=reason.strip(),
            evidence=state,
            failed_runs=failed_runs if state == "none" else 0,
            replaces=registered.sha256,
            runs_of=registered.runs_sha256 if keeps_runs(changes) else "",
            differences=changes,
        )
        entry = ledger.append(amendment)
        return _in_force(root, registration, ledger), entry


def _with_registered_order(registered: Registration, loaded: Loaded) -> Loaded:
    """An amended study whose arms are in the order of its registration, where they are the same arms: what is left of
    its runs then goes on in the same order, whatever the file has moved."""
    variants = loaded.study.variants
    if variants.keys() != registered.study.variants.keys():
        return loaded
    in_order = {arm: variants[arm] for arm in registered.study.variants}
    return replace(loaded, study=loaded.study.model_copy(update={"variants": in_order}))


def _lock(
    loaded: Loaded,
    *,
    pins: Pins,
    run_order: RunOrder | None,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    override: Override | None,
    previous: str | None = None,
    reason: str | None = None,
) -> bytes:
    """The bytes of a lock; `previous` and `reason` are those of an amendment."""
    # Keys stand in the order of the study's file, not sorted: the order of the factors names the arms.
    promise: dict[str, Any] = {
        "study": as_json(loaded.study),
        "corpus": as_json(pins.corpus),
        "scripts": None if pins.scripts is None else [as_json(pin) for pin in pins.scripts],
        "data_files": [as_json(pin) for pin in pins.data_files],
        "data": as_json(pins.data),
        "tasks": as_json(pins.tasks),
    }
    # Left out where there are none: a promise without commits keeps the hash that it had before there were any.
    if pins.commits:
        promise["commits"] = {name: as_json(pin) for name, pin in pins.commits.items()}
    if run_order is not None:
        promise["run_order"] = run_order
    document = {
        "format": 1,
        **promise,
        "sha256": promise_sha256(promise),
        "source_sha256": sha256_bytes(loaded.source_bytes),
        "registered_at": at,
        "tool": tool,
        "design": design,
        "previous": previous,
        "reason": reason,
        # Outside `promise`, and so outside its hash: when, by which tool and why do not change what was
        # promised.
        "override": as_json(override),
    }
    if pins.code_changes:
        document["code_changes"] = {name: as_json(changes) for name, changes in pins.code_changes.items()}
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _write_pending(root: Root, name: str, lock: bytes) -> Registration:
    """Write a lock next to its place, where it waits for its entry; the registration that it reads as."""
    try:
        write_git_files(root)
        write_whole(pending_lock(root, name), lock)
    except OSError as error:
        raise RegistrationError(
            f"the lock cannot be written: {error.strerror}",
            required=f"a folder with room that can be written to: {root.studies}",
            where=Where(file=root.lock(name)),
        ) from None
    return read_lock(pending_lock(root, name))


def _promise(root: Root, registration: Registration, *, at: str, file: str) -> dict[str, Any]:
    """What the entry of a promise says, be it a study's first one or an amendment."""
    study = registration.study
    # Which of the runs to come another registered study has too, for the report.
    same_runs_as = {
        repetition.study: SameRuns(arms=tuple(repetition.arms), seeds=repetition.seeds, known=repetition.known.event)
        for repetition in repeated(root, study)
    }
    return {
        "study": study.study,
        "registration": registration.sha256,
        "at": at,
        "lock_sha256": registration.lock_sha256,
        "source_sha256": registration.source_sha256,
        "file": file,
        "override": registration.override,
        "same_runs_as": same_runs_as,
    }


def _in_force(root: Root, registration: Registration, ledger: Ledger) -> Registration:
    """Move the lock to its place, now that the ledger has its entry; the registration and those that share its runs."""
    # The move is last: a lock in its place without an entry would look like one of another branch.
    name = registration.study.study
    move(pending_lock(root, name), root.lock(name))
    of_study = (entry for entry in ledger.readable() if entry.study == name)
    return registration.model_copy(update={"shared": lineage_of(of_study, registration.sha256)})


def changes_since(registered: Registration, loaded: Loaded, pins: Pins) -> tuple[Difference, ...]:
    """What an amendment would change: fields and pinned bytes. Raises `RegistrationError` where nothing does."""
    fields = differing_fields(registered.study, loaded.study)
    changes = (*fields, *differing_pins(registered, pins))
    if words_alone(changes):
        were, now = {word: getattr(registered.worded, word) for word in WORDS}, words_in(registered, loaded)
        changes = tuple(Difference(field=field, registered=were[field], now=now[field]) for field in WORDS
                        if were[field] != now[field])  # fmt: skip
    if not changes:
        raise RegistrationError(
            f"nothing differs from the registration {registered.sha256}",
            required="a changed study",
            fix=f"edit {loaded.path}",
            where=Where(file=loaded.path),
        )
    return changes


def words_alone(changes: Iterable[Difference]) -> bool:
    """Whether an amendment changes words alone, and so keeps runs and verdict."""
    return all(change.field in WORDS for change in changes)


def complete(root: Root, name: str) -> None:
    """Move a lock to its place that a crash left next to it, once the ledger has taken its entry."""
    ledger = Ledger(root.ledger)
    if not pending_lock(root, name).exists():
        return
    with ledger.hold():
        entry = newest_promise(ledger.readable(), name)
        if (
            entry is not None
            and lock_matches(pending_lock(root, name), entry)
            and not lock_matches(root.lock(name), entry)
        ):
            move(pending_lock(root, name), root.lock(name))


def draft(loaded: Loaded, pins: Pins) -> Registration:
    """A study with its pins before it is registered: what its runs would be made of can be computed from it."""
    return Registration(
        **{name: getattr(pins, name) for name in Pins.model_fields},
        study=loaded.study,
        sha256="",
        source_sha256="",
        registered_at="",
        tool={},
        design=None,
        previous=None,
        reason=None,
        lock_sha256="",
    )


def refuse_sealed_elsewhere(entries: Iterable[Entry], registration: Registration, loaded: Loaded) -> None:
    """Refuse runs that another study of the ledger has sealed already."""
    # By what runs are made of and not by names: a copy of a study under another name has the same recipes.
    for other_study, seals in sealed_elsewhere(entries, registration).items():
        (arm, seed), first = seals[0]
        cells = dict.fromkeys(cell for cell, _ in seals)
        raise RegistrationError(
            f"'{other_study}' has sealed {counted(len(cells), 'run')} of this study, the first {arm} seed {seed}: the "
            f"same configuration, code, data and seed (entry {first.index}, {moment(first.at)})",
            required="runs that nobody has seen: a claim that they may have suggested promises nothing",
            fix=f"seeds: fresh {registration.study.n_seeds}",
            where=Where(file=loaded.path, line=loaded.line(("seeds",))),
        )


def _relative(root: Root, path: Path) -> str:
    try:
        return resolved(path).relative_to(root.path.resolve()).as_posix()
    except ValueError:
        raise RegistrationError(
            f"the study lies outside {root.path}",
            required="a study file under the root",
            fix=f"mv {path} {root.studies}/",
            where=Where(file=path),
        ) from None


def evidence_by_now(
    entries: Iterable[Entry], name: str, *, stated: EvidenceState = "none"
) -> tuple[EvidenceState, int]:
    """What is known of a study's outcome: as stated, or as the ledger shows if that is more; and how many runs failed.

    Runs that failed are no evidence as long as no two arms left a value of a claimed metric: no contrast could be seen.
    A start that no failure of its run answers counts as evidence.
    """
    # The states from least to most: whatever is stated, the ledger can only raise it.
    order: tuple[EvidenceState, ...] = ("none", "runs started", "outcomes read")
    shown, failed_runs = order.index(stated), 0
    # Starts less failures of each run; what is left above 0 is at work, or was killed without a word.
    open_starts: Counter[Cell] = Counter()
    arms_with_values: set[str] = set()
    for entry in entries:
        if entry.study != name or entry.event in ("registered", "amended", "attested", "reworded"):
            continue
        if isinstance(entry, CallStartedEntry):
            continue  # the starts of its runs follow
        if isinstance(entry, RunStartedEntry):
            open_starts[entry.cell] += not entry.taken_over
        elif isinstance(entry, FailedEntry):
            failed_runs, open_starts[entry.cell] = failed_runs + 1, open_starts[entry.cell] - 1
            arms_with_values |= {entry.variant} if entry.left_values else set()
        else:
            shown = max(shown, 2 if entry.event in ("decided", "looked", "peeked", "imported") else 1)
    if any(open_starts.values()) or len(arms_with_values) > 1:
        shown = max(shown, 1)
    return order[shown], failed_runs
