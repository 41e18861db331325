"""Registration: the resolved study, frozen in a lock file and named by the ledger before any data.

The lock holds the whole promise; the ledger's entry holds the hash of the lock's exact bytes. A study
*is* registered when its newest ledger entry and its lock agree, and not by either alone. The lock is
first written beside its place and moved there after the ledger has taken the entry: the entry is the
moment of registration, and a crash on either side of it leaves something that can be completed.
This module never looks at a clock, and does not say who registered: see the ledger's limits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue, ValidationError

from prereg.canon import canonical_bytes, sha256_bytes, sha256_of
from prereg.command import ScriptPin
from prereg.disk import move, write_whole
from prereg.errors import FieldPath, RegistrationError, StudyError, Where, dotted
from prereg.ledger import Entry, Ledger
from prereg.load import Loaded
from prereg.own_checks import CheckPin, pin_checks, read_source
from prereg.part import Part
from prereg.root import Root
from prereg.spec import Study

EvidenceState = Literal["none", "runs started", "outcomes read"]
ABSENT = "(absent)"
"""What a difference says of a field that one side lacks."""

# Without -text, version control may rewrite line ends, and every hash would differ on another machine.
_EARLIER_ATTRIBUTES = b"*.lock.json -text\nledger.jsonl -text\n*.yaml -text\n"
_ATTRIBUTES = _EARLIER_ATTRIBUTES + b"*.registration.md -text\n*.sig -text\n*.tsr binary\n*.ots binary\n"
_IGNORED = b".ledger.lock\n.*.pending\n.*.tmp\n"


class CorpusPin(Part):
    """What the name of a corpus meant at registration."""

    name: str
    """Its name."""
    sha256: str
    """sha256 of its text."""
    size_bytes: int
    """Size of its text."""
    characters: int
    """Characters of its text."""


class Override(Part):
    """A hopeless design, registered because the user said so."""

    obstacle: str
    """What can never happen, in the words of the refusal."""
    reason: str
    """Why the user went on, in the user's words."""


class Registration(Part):
    """A study as it was promised."""

    study: Study
    """The study, resolved whole."""
    corpus: CorpusPin | None
    """The corpus; none where the trainer is the user's own command."""
    sha256: str
    """Hash of the promise: of study, corpus and scripts, see `promise_sha256`."""
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
    own_checks: dict[str, CheckPin] = {}
    """The code of the study's own checks, by name; not in the lock where there are none."""
    override: Override | None = None
    """What the user accepted although registration would have refused it; none, and not in the lock, otherwise."""
    scripts: tuple[ScriptPin, ...] | None = None
    """The files of a user's own trainer; none, and not in the lock, for the built-in one."""
    lock_sha256: str
    """sha256 of the exact bytes of the lock file; not stored in it."""


class Difference(Part):
    """One field that is not what was registered."""

    field: str
    """Its dotted path."""
    registered: JsonValue
    """The registered value; `(absent)` where there was none."""
    now: JsonValue
    """The value now."""


def promise_sha256(
    study: dict[str, Any],
    corpus: dict[str, Any] | None,
    own_checks: dict[str, Any] | None = None,
    scripts: list[dict[str, Any]] | None = None,
) -> str:
    """Hash of a promise, from the JSON forms of study, corpus, the code of the study's own checks, and scripts.

    Canonical JSON sorts keys, so order in the file does not matter. The one order that means
    something is that of the factors, which names the arms: it is hashed beside them.
    """
    code: dict[str, Any] = {"own_checks": own_checks} if own_checks else {}
    if scripts is not None:
        code["scripts"] = scripts
    return sha256_of({"study": study, "corpus": corpus, "factor_order": list(study["factors"]), **code})


def register(
    root: Root,
    loaded: Loaded,
    *,
    corpus: CorpusPin | None,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    override: Override | None = None,
    scripts: tuple[ScriptPin, ...] | None = None,
) -> tuple[Registration, Entry]:
    """Register a study. What is registered and unchanged is returned as it is; what has changed is refused."""
    name, ledger = loaded.study.study, Ledger(root.ledger)
    pins = pin_checks(loaded.study, loaded.path.parent)
    with ledger.hold():
        registered = load_registration(root, name)
        if registered is not None:
            require_unchanged(registered, loaded)
            _refuse(loaded.path, name, registered, _differing_pins(registered, corpus, scripts))
            entry = _newest(ledger, name)
            assert entry is not None, name
            complete(root, name)
            return registered, entry
        return _commit(
            root,
            loaded,
            ledger,
            pins=pins,
            corpus=corpus,
            design=design,
            tool=tool,
            at=at,
            override=override,
            scripts=scripts,
        )


def amend(
    root: Root,
    loaded: Loaded,
    *,
    corpus: CorpusPin | None,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    reason: str,
    evidence: EvidenceState,
    override: Override | None = None,
    scripts: tuple[ScriptPin, ...] | None = None,
) -> tuple[Registration, Entry]:
    """Replace a registration by a changed one, on the record: why, what, and what was known of the outcome."""
    name, ledger = loaded.study.study, Ledger(root.ledger)
    pins = pin_checks(loaded.study, loaded.path.parent)
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
        differences = [
            *differing_fields(registered.study, loaded.study),
            *_differing_pins(registered, corpus, scripts),
            *_differences(_code(registered.own_checks), _code(pins), ("own_checks",)),
        ]
        if not differences:
            raise RegistrationError(
                f"nothing differs from the registration {registered.sha256[:8]}",
                required="a changed study",
                fix=f"edit {loaded.path}",
                where=where,
            )
        body: dict[str, JsonValue] = {
            "reason": reason.strip(),
            "evidence": _stronger(evidence, ledger, name),
            "previous": registered.sha256,
            "differences": [difference.model_dump(mode="json") for difference in differences],
        }
        return _commit(
            root,
            loaded,
            ledger,
            pins=pins,
            corpus=corpus,
            design=design,
            tool=tool,
            at=at,
            previous=registered.sha256,
            reason=reason.strip(),
            body=body,
            override=override,
            scripts=scripts,
        )


def complete(root: Root, name: str) -> None:
    """Move a lock to its place that a crash left beside it, once the ledger has taken its entry."""
    ledger = Ledger(root.ledger)
    if not _pending(root, name).exists():
        return
    with ledger.hold():
        entry = _newest(ledger, name)
        if entry is not None and _matches(_pending(root, name), entry) and not _matches(root.lock(name), entry):
            move(_pending(root, name), root.lock(name))


def write_git_files(root: Root) -> None:
    """Tell git to leave frozen bytes alone. The user's own files stay; only our earlier text is brought up to date."""
    for name, content, earlier in (
        (".gitattributes", _ATTRIBUTES, _EARLIER_ATTRIBUTES),
        (".gitignore", _IGNORED, None),
    ):
        file = root.studies / name
        if not file.exists() or file.read_bytes() == earlier:
            write_whole(file, content)


def load_registration(root: Root, name: str) -> Registration | None:
    """The registration in force, or None when the study is not registered.

    A lock that no entry names is not a registration. Of a damaged ledger, the entries that are sound
    in themselves are believed here: appending refuses such a ledger, and judging calls it inadmissible.
    """
    entry = _newest(Ledger(root.ledger), name)
    if entry is None:
        return None
    lock = root.lock(name)
    # Between the ledger's entry and the move of the lock, the lock still lies beside its place.
    path = _pending(root, name) if _matches(_pending(root, name), entry) else lock
    if not path.is_file():
        raise RegistrationError(
            f"the ledger registered '{name}' on {entry.at}, and its lock is missing",
            required=f"the lock file with sha256 {entry.body.get('lock_sha256')}",
            fix=f"restore {lock.name} from version control",
            where=Where(file=lock),
        )
    registration = _read_lock(path)
    faults = _disagreements(registration, entry)
    if faults:
        raise RegistrationError(
            faults[0],
            required=f"the lock as it was registered on {entry.at}",
            fix=f"restore {lock.name} from version control",
            where=Where(file=path),
        )
    return registration


def differing_fields(old: Study, new: Study) -> list[Difference]:
    """The fields of a study that are not what was registered, both resolved whole."""
    found = _differences(_json(old), _json(new), ())
    if not found and list(old.factors) != list(new.factors):
        return [Difference(field="factors", registered=list(old.factors), now=list(new.factors))]
    return found


def require_unchanged(registration: Registration, loaded: Loaded) -> None:
    """Raise `RegistrationError` when the study, or the code of one of its own checks, is not as registered any more."""
    name = loaded.study.study
    _refuse(loaded.path, name, registration, differing_fields(registration.study, loaded.study))
    pins = pin_checks(loaded.study, loaded.path.parent)
    _refuse(loaded.path, name, registration, _differences(_code(registration.own_checks), _code(pins), ("own_checks",)))


def code_faults(registration: Registration, folder: Path) -> list[str]:
    """Own checks whose code is not the registered code, a sentence each."""
    faults = []
    for check in registration.study.checks:
        pin = registration.own_checks.get(check.name)
        try:
            path, source = read_source(check, folder)
        except StudyError as error:
            faults.append(f"the check '{check.name}' is not the registered code: {error.found}")
            continue
        if pin is None or sha256_bytes(source) != pin.sha256:
            faults.append(f"the check '{check.name}' is not the registered code: {path.name} has changed")
    return faults


def verify_registration(root: Root, name: str) -> list[str]:
    """Everything that speaks against a registration, a sentence each, naming the file. Empty when it holds."""
    ledger = Ledger(root.ledger)
    faults, entry, lock = ledger.faults(), _newest(ledger, name), root.lock(name)
    if entry is None:
        found = (
            f"{lock.name}: no entry of {root.ledger.name} names it"
            if lock.exists()
            else f"{root.ledger.name}: no entry registers '{name}'"
        )
        return [*faults, found]
    source = root.path / str(entry.body.get("file"))
    if not source.is_file():
        faults.append(f"{source.name}: missing; the registered file had sha256 {entry.body.get('source_sha256')}")
    elif sha256_bytes(source.read_bytes()) != entry.body.get("source_sha256"):
        faults.append(f"{source.name}: its bytes differ from those registered on {entry.at}")
    if not lock.is_file():
        return [*faults, f"{lock.name}: missing; the ledger registered it on {entry.at}"]
    try:
        registration = _read_lock(lock)
        faults += [f"{lock.name}: {fault}" for fault in _disagreements(registration, entry)]
        faults += code_faults(registration, source.parent)
    except RegistrationError as error:
        if not _matches(lock, entry):
            faults.append(f"{lock.name}: its bytes differ from those the ledger names")
        faults.append(f"{lock.name}: {error.found}")
    return faults


def _commit(
    root: Root,
    loaded: Loaded,
    ledger: Ledger,
    *,
    pins: dict[str, CheckPin],
    corpus: CorpusPin | None,
    design: dict[str, JsonValue] | None,
    tool: dict[str, str],
    at: str,
    previous: str | None = None,
    reason: str | None = None,
    body: dict[str, JsonValue] | None = None,
    override: Override | None = None,
    scripts: tuple[ScriptPin, ...] | None = None,
) -> tuple[Registration, Entry]:
    """Write the lock beside its place, let the ledger take it, move it there."""
    source = _relative(root, loaded.path)
    ledger.head()  # a damaged ledger is refused before anything is written
    name, study = loaded.study.study, _json(loaded.study)
    files = None if scripts is None else [_json(pin) for pin in scripts]
    sha256 = promise_sha256(study, _json(corpus), _code(pins), files)
    accepted = {} if override is None else {"override": _json(override)}
    code = {"own_checks": _code(pins)} if pins else {}
    # Keys stand in the order of the study's file, not sorted: the order of the factors names the arms.
    document = {
        "study": study,
        "corpus": _json(corpus),
        **({} if files is None else {"scripts": files}),
        "sha256": sha256,
        "source_sha256": sha256_bytes(loaded.source_bytes),
        "registered_at": at,
        "tool": tool,
        "design": design,
        "previous": previous,
        "reason": reason,
        **code,
        **accepted,
    }
    data = (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    try:
        write_git_files(root)
        write_whole(_pending(root, name), data)
    except OSError as error:
        raise RegistrationError(
            f"the lock cannot be written: {error.strerror}",
            required=f"a folder with room that can be written to: {root.studies}",
            where=Where(file=root.lock(name)),
        ) from None
    registration = _read_lock(_pending(root, name))
    entry = ledger.append(
        "registered" if previous is None else "amended",
        study=name,
        registration=sha256,
        at=at,
        body={
            "lock_sha256": registration.lock_sha256,
            "source_sha256": registration.source_sha256,
            "file": source,
            **accepted,
            **(body or {}),
        },
    )
    move(_pending(root, name), root.lock(name))
    return registration, entry


def _read_lock(path: Path) -> Registration:
    """A lock file whose hash of the promise matches its content. Raises `RegistrationError`."""
    data = path.read_bytes()
    where, fix = Where(file=path), f"restore {path.name} from version control"
    try:
        document = json.loads(data)
        kept = promise_sha256(
            document["study"], document["corpus"], document.get("own_checks"), document.get("scripts")
        )
        whole = json.dumps(document | {"lock_sha256": sha256_bytes(data)}, allow_nan=False)
        registration = Registration.model_validate_json(whole)
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError, StudyError) as error:
        reason = error.found if isinstance(error, StudyError) else str(error).splitlines()[0]
        raise RegistrationError(
            f"the lock cannot be read: {reason}", required="a lock file as it was written", fix=fix, where=where
        ) from None
    # Over the document as it stands, not over the study read from it: a later version of this tool
    # may add fields with defaults, and an old promise keeps its hash.
    if kept != registration.sha256:
        raise RegistrationError(
            "the hash in the lock does not match its content: it was edited",
            required=f"content with sha256 {registration.sha256}",
            fix=fix,
            where=where,
        )
    return registration


def _disagreements(registration: Registration, entry: Entry) -> list[str]:
    """Where a lock and the entry that registered it disagree."""
    found = []
    if registration.lock_sha256 != entry.body.get("lock_sha256"):
        found.append("its bytes differ from those the ledger names")
    if registration.sha256 != entry.registration:
        found.append(f"it holds registration {registration.sha256[:8]}, the ledger names {entry.registration[:8]}")
    if registration.study.study != entry.study:
        found.append(f"it holds study '{registration.study.study}', not '{entry.study}'")
    if registration.previous != entry.body.get("previous"):
        found.append("it amends another registration than the ledger says")
    return found


def _newest(ledger: Ledger, name: str) -> Entry | None:
    found = [entry for entry in ledger.readable() if entry.study == name and entry.event in ("registered", "amended")]
    return found[-1] if found else None


def _matches(lock: Path, entry: Entry) -> bool:
    return lock.is_file() and sha256_bytes(lock.read_bytes()) == entry.body.get("lock_sha256")


def _pending(root: Root, name: str) -> Path:
    return root.lock(name).with_name(f".{name}.lock.pending")


def _relative(root: Root, path: Path) -> str:
    try:
        return path.resolve().relative_to(root.path.resolve()).as_posix()
    except ValueError:
        raise RegistrationError(
            f"the study lies outside {root.path}",
            required="a study file under the root",
            fix=f"mv {path} {root.studies}/",
            where=Where(file=path),
        ) from None


def _stronger(stated: EvidenceState, ledger: Ledger, name: str) -> EvidenceState:
    """What was known of the outcome: as stated, or as the ledger shows if that is more."""
    order: tuple[EvidenceState, ...] = ("none", "runs started", "outcomes read")
    shown = 0
    for entry in ledger.entries():
        if entry.study == name and entry.event not in ("registered", "amended", "attested"):
            shown = max(shown, 2 if entry.event in ("decided", "looked", "peeked", "imported") else 1)
    return order[max(shown, order.index(stated))]


def _refuse(path: Path, name: str, registration: Registration, differences: list[Difference]) -> None:
    if not differences:
        return
    shown = [f"{d.field} (registered {_short(d.registered)}, now {_short(d.now)})" for d in differences[:5]]
    more = f", and {len(differences) - 5} more" if len(differences) > 5 else ""
    raise RegistrationError(
        f"'{name}' is not what was registered on {registration.registered_at}: " + ", ".join(shown) + more,
        required=f"the study of registration {registration.sha256[:8]}",
        fix=f'ablate amend {path} --reason "..."; or copy the file under another name and register that',
        where=Where(file=path),
    )


def _differences(old: JsonValue, new: JsonValue, path: FieldPath) -> list[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in dict.fromkeys([*old, *new])
            for found in _differences(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
        ]
    if (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and all(isinstance(item, dict) for item in [*old, *new])
    ):
        return [
            found
            for index, (a, b) in enumerate(zip(old, new, strict=True))
            for found in _differences(a, b, (*path, index))
        ]
    # As canonical bytes: to Python, true equals 1.
    if canonical_bytes(old) == canonical_bytes(new):
        return []
    return [Difference(field=dotted(path), registered=old, now=new)]


def _code(pins: dict[str, CheckPin]) -> dict[str, Any]:
    return {name: _json(pin) for name, pin in pins.items()}


def _differing_pins(
    registered: Registration, corpus: CorpusPin | None, scripts: tuple[ScriptPin, ...] | None
) -> list[Difference]:
    was, now = ({pin.path: pin.sha256 for pin in pins or ()} for pins in (registered.scripts, scripts))
    return [
        *_differences(_json(registered.corpus), _json(corpus), ("corpus",)),
        *_differences(dict(was), dict(now), ("scripts",)),
    ]


def _json(part: Part | None) -> Any:
    return None if part is None else part.model_dump(mode="json")


def _short(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
