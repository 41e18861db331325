"""Registration: the resolved study, frozen in a lock file and named by the ledger before any data.

The lock holds the whole promise; the ledger's entry holds the hash of the lock's exact bytes. A study
*is* registered when its newest ledger entry and its lock agree, and not by either alone. The lock is
first written next to its place and moved there after the ledger has taken the entry: the entry is the
moment of registration, and a crash on either side of it leaves something that can be completed.
This module never looks at a clock, and does not say who registered: see the ledger's limits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from prereg.errors import RegistrationError, Where
from prereg.metrics.user_code import CheckPin, pin_checks
from prereg.registry.amendments import keeps_runs
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import move, write_whole
from prereg.registry.git_files import write_git_files
from prereg.registry.history import (
    Difference,
    EvidenceState,
    as_registered,
    code_of,
    differences,
    differing_fields,
    differing_pins,
    plain,
    refuse_change,
    repeated,
    require_unchanged,
    words_in,
)
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root, resolved
from prereg.registry.plan import sealed_elsewhere
from prereg.registry.registration import (
    WORDS,
    Override,
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
from prereg.study.load import Loaded
from prereg.study.spec import Study
from prereg.text import counted, moment


def register(
    root: Root,
    loaded: Loaded,
    *,
    pins: Pins,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    override: Override | None = None,
) -> tuple[Registration, Entry]:
    """Register a study. What is registered and unchanged is returned as it is; what has changed is refused."""
    name, ledger = loaded.study.study, Ledger(root.ledger)
    code = pin_checks(loaded.study, loaded.path.parent)
    with ledger.hold():
        registered = load_registration(root, name)
        if registered is not None:
            require_unchanged(registered, loaded)
            moved = differing_pins(registered, pins)
            refuse_change(loaded.path, name, registered, moved)
            entry = newest_promise(ledger.readable(), name)
            assert entry is not None, name
            complete(root, name)
            return registered, entry
        return _commit(
            root,
            loaded,
            ledger,
            pins=pins,
            code=code,
            design=design,
            tool=tool,
            at=at,
            override=override,
        )


def amend(
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
    """Replace a registration by a changed one, on the record: why, what, and what was known of the outcome."""
    name, ledger = loaded.study.study, Ledger(root.ledger)
    code = pin_checks(loaded.study, loaded.path.parent)
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
        loaded = as_registered(registered, loaded)
        changes = changes_since(registered, loaded, pins)
        if words_alone(changes):
            return registered, _reword(root, ledger, registered, loaded, reason=reason.strip(), at=at)
        state, failed_runs = evidence_by_now(ledger.entries(), name, stated=evidence)
        body: dict[str, JsonValue] = {
            "reason": reason.strip(),
            "evidence": state,
            **({"failed_runs": failed_runs} if failed_runs and state == "none" else {}),
            "previous": registered.sha256,
            **({"runs_of": registered.runs_sha256} if keeps_runs(changes) else {}),
            "differences": [difference.model_dump(mode="json") for difference in changes],
        }
        return _commit(
            root,
            loaded,
            ledger,
            pins=pins,
            code=code,
            design=design,
            tool=tool,
            at=at,
            amendment=body,
            override=override,
        )


def changes_since(registered: Registration, loaded: Loaded, pins: Pins) -> tuple[Difference, ...]:
    """What an amendment would change: fields, pinned bytes, own code. Raises `RegistrationError` where nothing does."""
    own = pin_checks(loaded.study, loaded.path.parent)
    found = differing_fields(registered.study, loaded.study)
    pinned = (
        *differing_pins(registered, pins),
        *differences(code_of(registered.own_checks), code_of(own), ("own_checks",)),
    )
    changes = (*found, *pinned)
    if words_alone(changes):
        were, now = registered.worded.model_dump(include=set(WORDS)), words_in(registered, loaded)
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
    return all(one.field in WORDS for one in changes)


def _reword(root: Root, ledger: Ledger, registered: Registration, loaded: Loaded, *, reason: str, at: str) -> Entry:
    return ledger.append(
        "reworded",
        study=registered.study.study,
        registration=registered.sha256,
        at=at,
        body={
            "words": {**words_in(registered, loaded)},
            "reason": reason,
            "file": _relative(root, loaded.path),
            "source_sha256": sha256_bytes(loaded.source_bytes),
        },
    )


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


def _commit(
    root: Root,
    loaded: Loaded,
    ledger: Ledger,
    *,
    pins: Pins,
    code: dict[str, CheckPin],
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    amendment: Mapping[str, JsonValue] | None = None,
    override: Override | None,
) -> tuple[Registration, Entry]:
    """Write the lock next to its place, let the ledger take it, move it there. `amendment` is what its entry says."""
    source = _relative(root, loaded.path)
    ledger.head()  # a damaged ledger is refused before anything is written
    name, own_checks = loaded.study.study, code_of(code)
    # Keys stand in the order of the study's file, not sorted: the order of the factors names the arms.
    promise: dict[str, Any] = {
        "study": plain(loaded.study),
        "corpus": plain(pins.corpus),
        "scripts": None if pins.scripts is None else [plain(pin) for pin in pins.scripts],
        "data_files": [plain(pin) for pin in pins.data_files],
        "data": plain(pins.data),
        "tasks": plain(pins.tasks),
        "own_checks": own_checks,
    }
    sha256 = promise_sha256(promise)
    document = {
        "format": 1,
        **promise,
        "sha256": sha256,
        "source_sha256": sha256_bytes(loaded.source_bytes),
        "registered_at": at,
        "tool": tool,
        "design": design,
        "previous": None if amendment is None else amendment["previous"],
        "reason": None if amendment is None else amendment["reason"],
        "override": plain(override),
    }
    written = (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    try:
        write_git_files(root)
        write_whole(pending_lock(root, name), written)
    except OSError as error:
        raise RegistrationError(
            f"the lock cannot be written: {error.strerror}",
            required=f"a folder with room that can be written to: {root.studies}",
            where=Where(file=root.lock(name)),
        ) from None
    registration = read_lock(pending_lock(root, name))
    if amendment is None:
        try:
            refuse_sealed_elsewhere(ledger.entries(), registration, loaded)
        except RegistrationError:
            pending_lock(root, name).unlink()
            raise
    entry = ledger.append(
        "registered" if amendment is None else "amended",
        study=name,
        registration=sha256,
        at=at,
        body={
            "lock_sha256": registration.lock_sha256,
            "source_sha256": registration.source_sha256,
            "file": source,
            **({} if override is None else {"override": plain(override)}),
            **_runs_of_others(root, loaded.study),
            **(amendment or {}),
        },
    )
    move(pending_lock(root, name), root.lock(name))
    shared = lineage_of((one for one in ledger.readable() if one.study == name), sha256)
    return registration.model_copy(update={"shared": shared}), entry


def refuse_sealed_elsewhere(entries: Iterable[Entry], registration: Registration, loaded: Loaded) -> None:
    """Refuse runs that another study of the ledger has sealed already, unless the study's file declares it."""
    for other, found in sealed_elsewhere(entries, registration).items():
        if other in registration.study.reuses:
            continue
        (arm, seed), first = found[0]
        cells = dict.fromkeys(cell for cell, _ in found)
        raise RegistrationError(
            f"'{other}' has sealed {counted(len(cells), 'run')} of this study, the first {arm} seed {seed}: the same "
            f"configuration, code, data and seed (entry {first.index}, {moment(first.at)})",
            required="runs that nobody has seen: a claim that they may have suggested promises nothing",
            fix=f"seeds: fresh {registration.study.n_seeds}; or reuses: [{other}], which makes every claim exploratory",
            where=Where(file=loaded.path, line=loaded.line(("seeds",))),
        )


def _runs_of_others(root: Root, study: Study) -> dict[str, JsonValue]:
    """Which of the runs to come another registered study has too, for the report; empty where none has."""
    others: dict[str, JsonValue] = {
        other.study: {"arms": list(other.arms), "seeds": list(other.seeds), "known": other.known.event}
        for other in repeated(root, study)
    }
    return {"same_runs_as": others} if others else {}


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
    order: tuple[EvidenceState, ...] = ("none", "runs started", "outcomes read")
    shown, failed_runs = order.index(stated), 0
    open_starts: Counter[tuple[JsonValue, JsonValue]] = Counter()
    arms_with_values: set[JsonValue] = set()
    for entry in entries:
        if entry.study != name or entry.event in ("registered", "amended", "attested", "reworded"):
            continue
        run = entry.body.get("variant"), entry.body.get("seed")
        if entry.event == "started" and run == (None, None) and "runs" in entry.body:
            continue  # of a call of `run`; those of its runs follow
        if entry.event == "started":
            open_starts[run] += 1
        elif entry.event == "failed" and entry.body.get("left_values") in (True, False):
            failed_runs, open_starts[run] = failed_runs + 1, open_starts[run] - 1
            arms_with_values |= {run[0]} if entry.body["left_values"] else set()
        else:
            shown = max(shown, 2 if entry.event in ("decided", "looked", "peeked", "imported") else 1)
    if any(open_starts.values()) or len(arms_with_values) > 1:
        shown = max(shown, 1)
    return order[shown], failed_runs
