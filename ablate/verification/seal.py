"""Sealing a registration for others: signature, timestamps and commit, next to the lock and in the ledger.

What cannot be had for a reason of the user's own is refused before anything is written. A server that does not
answer, or answers something else, costs the seal and not the registration: the ledger then says what is pending.
Servers are contacted without holding the ledger, so that runs are not kept waiting. No seal is ever overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ablate.api import open_study, require_registered
from ablate.api.context import Clock, StudyContext, utc_now
from prereg.errors import RegistrationError, SealError, UnreachableError, Where
from prereg.registry import register as promise
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.disk import write_whole
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry
from prereg.registry.registration import Registration, load_registration
from prereg.seals import git, rfc3161, ssh
from prereg.seals import ots as calendars
from prereg.seals.exchange import require_address
from prereg.seals.state import SUFFIXES, Attestation, Kind, newest_attestations, pending_seals

_PROBE = b"ablate: can this key sign?"


@dataclass(frozen=True)
class Sealing:
    """What came of asking for seals."""

    made: tuple[Attestation, ...]
    """Seals and anchors that the ledger took now."""
    pending: tuple[Attestation, ...]
    """What is still pending for this registration."""
    notes: tuple[str, ...]
    """What else there is to say: what was there already, why there is no anchor."""
    head: str
    """The ledger's head."""


@dataclass
class _Collected:
    """What was collected before the ledger takes it."""

    seals: list[tuple[Attestation, bytes | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    trouble: SealError | None = None


def require_able(*, sign: Path | None = None, timestamp: str | None = None, ots: bool = False) -> None:
    """Refuse seals that cannot be made whatever a server says. Call it before registering; writes nothing."""
    if timestamp is not None:
        require_address(timestamp)
        rfc3161.require_client()
    if ots:
        calendars.require_library()
    if sign is not None:
        ssh.sign(_PROBE, sign)


def seal(
    path: Path,
    *,
    root: Path | None = None,
    sign: Path | None = None,
    timestamp: str | None = None,
    ots: bool = False,
    now: Clock = utc_now,
) -> Sealing:
    """Seal the registration in force. With nothing requested, pending seals are retried."""
    context = open_study(path, root)
    return attest(context, require_registered(context), sign=sign, timestamp=timestamp, ots=ots, now=now)


def attest(
    context: StudyContext,
    registration: Registration,
    *,
    sign: Path | None = None,
    timestamp: str | None = None,
    ots: bool = False,
    now: Clock = utc_now,
) -> Sealing:
    """Seal a registration and put on record what was made and what is pending.

    Raises `SealError` after recording what is pending when a server answered with something that is no seal.
    """
    name, ledger = context.study.study, Ledger(context.root.ledger)
    promise.complete(context.root, name)
    entries = ledger.entries()  # a damaged ledger is refused before any server is contacted
    pending = pending_seals(entries, name, registration.lock_sha256)
    completing = sign is None and timestamp is None and not ots
    if completing:
        timestamp = pending["rfc3161"].by if "rfc3161" in pending else None
        ots = "ots" in pending
    require_able(timestamp=timestamp, ots=ots)
    lock = _lock_bytes(context, registration)
    collected = _Collected()
    known = _Known(context, entries, registration.lock_sha256)
    if sign is not None:
        _sign(collected, known, lock, sign)
    _anchor(collected, known)
    if timestamp is not None:
        _timestamp(collected, known, lock, timestamp)
    if ots or (completing and known.proof() is not None):
        _calendars(collected, known)
    with ledger.hold():
        current = load_registration(context.root, name)
        if current is None or current.lock_sha256 != registration.lock_sha256:
            raise RegistrationError(
                f"'{name}' was amended while it was being sealed",
                required="a registration that nobody amends meanwhile",
                fix=f"ablate seal {context.path}",
            )
        made = _record(context, ledger, registration, collected, now)
        left = pending_seals(ledger.entries(), name, registration.lock_sha256)
        head = ledger.head()
    if collected.trouble is not None:
        error = collected.trouble
        found = f"{error.found}. The registration is unchanged, and this seal is pending"
        raise type(error)(found, required=error.required, fix=error.fix or "ablate seal STUDY --timestamp ADDRESS")
    return Sealing(made, tuple(left.values()), tuple(collected.notes), head)


class _Known:
    """The seals of one lock that exist already."""

    def __init__(self, context: StudyContext, entries: tuple[Entry, ...], lock_sha256: str) -> None:

        self.context = context
        self.name = context.study.study
        self.lock_sha256 = lock_sha256
        self._recorded = [
            found.attestation
            for found in newest_attestations(entries, self.name)
            if found.attestation is not None and found.attestation.lock_sha256 == lock_sha256
        ]

    def newest(self, kind: Kind, by: str | None = None) -> Attestation | None:
        """The newest seal of a mechanism, by a given maker if one is named, whose file is still what it was."""
        found = [
            text for text in self._recorded if text.kind == kind and text.state == "made" and by in (None, text.by)
        ]
        whole = [text for text in found if text.file is None or self._unchanged(text)]
        return whole[-1] if whole else None

    def attestation(self, kind: Kind, state: Literal["made", "owed"], by: str, **found: Any) -> Attestation:
        """What the ledger is to say of a seal of this lock."""
        return Attestation(kind=kind, state=state, lock_sha256=self.lock_sha256, by=by, **found)

    def is_pending(self, kind: Kind, by: str) -> bool:
        """Whether it is on record as pending already."""
        return any(text.kind == kind and text.state == "owed" and text.by == by for text in self._recorded)

    def proof(self) -> bytes | None:
        """The calendars' proof, to be completed."""
        text = self.newest("ots")
        return None if text is None or text.file is None else (self.context.root.path / text.file).read_bytes()

    def _unchanged(self, seal: Attestation) -> bool:

        assert seal.file is not None, seal
        path = self.context.root.studies / Path(seal.file).name
        return path.is_file() and sha256_file(path) == seal.sha256


def _sign(collected: _Collected, known: _Known, lock: bytes, key: Path) -> None:

    signature = ssh.sign(lock, key)
    if known.newest("ssh", signature.fingerprint) is not None:
        collected.notes.append(f"signed by key {signature.fingerprint} already")
        return
    text = known.attestation("ssh", "made", signature.fingerprint)
    collected.seals.append((text, signature.data))


def _anchor(collected: _Collected, known: _Known) -> None:

    found = git.anchor(known.context.root, known.name, known.lock_sha256)
    if isinstance(found, str):
        collected.notes.append(f"no git anchor: {found}")
        return
    text = known.attestation("git", "made", found.commit, git=found.state)
    if known.newest("git", found.commit) == text:
        collected.notes.append(f"anchored at commit {found.commit[:10]} already")
        return
    collected.seals.append((text, None))


def _timestamp(collected: _Collected, known: _Known, lock: bytes, address: str) -> None:

    before = known.newest("rfc3161", address)
    if before is not None:
        collected.notes.append(f"timestamped by {address} already, at {before.time}")
        return
    try:
        stamped = rfc3161.stamp(lock, address)
    except SealError as error:
        _keep_pending(collected, known, "rfc3161", address, error)
        return
    text = known.attestation("rfc3161", "made", address, time=stamped.time)
    collected.seals.append((text, stamped.data))


def _calendars(collected: _Collected, known: _Known) -> None:

    before, by = known.proof(), ", ".join(calendars.CALENDARS)
    try:
        proof = (
            calendars.stamp(known.lock_sha256, calendars.CALENDARS)
            if before is None
            else calendars.complete(before, calendars.CALENDARS)
        )
    except SealError as error:
        _keep_pending(collected, known, "ots", by, error)
        return
    collected.notes += [f"OpenTimestamps: {said}" for said in proof.unanswered]
    if proof.data == before:
        collected.notes.append(
            "OpenTimestamps: " + ("complete" if proof.complete else "nothing new; ask again in some hours")
        )
        return
    collected.seals.append((known.attestation("ots", "made", by), proof.data))


def _keep_pending(collected: _Collected, known: _Known, kind: Kind, by: str, error: SealError) -> None:

    if not isinstance(error, UnreachableError):
        collected.trouble = error
    if known.is_pending(kind, by):
        return
    text = known.attestation(kind, "owed", by, why=error.found)
    collected.seals.append((text, None))


def _record(
    context: StudyContext, ledger: Ledger, registration: Registration, collected: _Collected, now: Clock
) -> tuple[Attestation, ...]:
    """Write each file under a name that is free, then let the ledger take it: a crash leaves a file nobody names."""
    made = []
    for text, data in collected.seals:
        whole = text
        if data is not None:
            number = 1
            while (
                path := context.root.seal(context.study.study, text.lock_sha256, SUFFIXES[text.kind], number)
            ).exists():
                number += 1
            try:
                write_whole(path, data)
            except OSError as error:
                raise SealError(
                    f"the seal cannot be written: {error.strerror}",
                    required=f"a folder with room that can be written to: {context.root.studies}",
                    where=Where(file=path),
                ) from None
            named = {"file": path.relative_to(context.root.path).as_posix(), "sha256": sha256_bytes(data)}
            whole = text.model_copy(update=named)
        ledger.append(
            "attested",
            study=context.study.study,
            registration=registration.sha256,
            body=whole.model_dump(mode="json", exclude_none=True),
            at=now(),
        )
        made.append(whole)
    return tuple(text for text in made if text.state == "made")


def _lock_bytes(context: StudyContext, registration: Registration) -> bytes:
    """The exact bytes that are sealed."""
    path = context.root.lock(context.study.study)
    data = path.read_bytes()
    if sha256_bytes(data) != registration.lock_sha256:
        raise RegistrationError(
            "the lock is not the one that was registered",
            required=f"the lock with sha256 {registration.lock_sha256}",
            fix=f"restore {path.name} from version control",
            where=Where(file=path),
        )
    return data
