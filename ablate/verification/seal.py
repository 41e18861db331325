"""Seals of a registration (signature, timestamp, commit), made and logged; a run's seal is `records/store.py`.

A run is sealed elsewhere, by `ablate.records.store` when it ends. What cannot be had is refused before anything is
written, and no seal is ever overwritten.

To add a kind of seal: its mechanism in `prereg.seals`, its entry in `KINDS` of `prereg.seals.state`, a branch in
`attest` here and in `prereg.seals.examine`, and tests/prereg/test_attest.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.workspace import HERE, StudyContext, Workspace, require_registered
from prereg.errors import RegistrationError, SealError, Where
from prereg.frozen import FrozenModel
from prereg.registry import register as promise
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.disk import read_regular, write_whole
from prereg.registry.ledger_entry import AttestedEntry, Entry
from prereg.registry.registration import Registration
from prereg.seals import git, ssh
from prereg.seals import timestamp as timestamps
from prereg.seals.state import KINDS, Kind, newest_attestations

_PROBE = b"ablate: can this key sign?"


class Sealing(FrozenModel):
    """What came of asking for seals."""

    made: tuple[AttestedEntry, ...]
    """Seals and anchors that the ledger took now."""
    notes: tuple[str, ...]
    """What else there is to say: what was there already, why there is no anchor."""
    head: str
    """The ledger's head."""


def require_able(sign: Path | None) -> None:
    """Refuse a key that cannot sign. Call it before registering; writes nothing."""
    if sign is not None:
        # A signature that is thrown away: only making one shows that the key, its passphrase and ssh-keygen
        # work.
        ssh.sign(_PROBE, sign)


def seal(
    path: Path,
    *,
    workspace: Workspace = HERE,
    sign: Path | None = None,
    timestamp: Path | None = None,
) -> Sealing:
    """Seal the registration in force; with nothing requested, by its git commit alone.

    `sign` is an SSH key, `timestamp` the reply of a time-stamping authority. Returns the seals that the ledger took
    now, and notes on those that were there already. Raises `SealError` where one cannot be had, `RegistrationError`
    where the lock is not the one that was registered; nothing is written then.

        seal(Path("studies/width.yaml"), sign=Path("~/.ssh/id_ed25519").expanduser())
    """
    context = workspace.open(path)
    return attest(context, require_registered(context), sign=sign, timestamp=timestamp)


def attest(
    context: StudyContext,
    registration: Registration,
    *,
    sign: Path | None = None,
    timestamp: Path | None = None,
) -> Sealing:
    """Seal a registration and put on record what was made. Raises `SealError` before anything is written.

    `timestamp` is the reply of a time-stamping authority to a request for the lock's sha256.
    """
    name, ledger = context.study.study, context.ledger
    # A registration that a crash left half written is finished first, or its lock would not be the ledger's.
    promise.complete(context.root, name)
    earlier_seals = _Known(context, ledger.entries(), registration)
    # 1. Every seal is made in memory before any is written: one that fails leaves nothing behind.
    lock = _lock_bytes(context, registration)
    seals: list[tuple[AttestedEntry, bytes | None]] = []
    notes: list[str] = []
    if sign is not None:
        signature = ssh.sign(lock, sign)
        if earlier_seals.newest("ssh", by=signature.fingerprint) is None:
            seals.append((earlier_seals.attestation("ssh", signature.fingerprint), signature.data))
        else:
            notes.append(f"signed by key {signature.fingerprint} already")
    if timestamp is not None:
        data, time = _stamped(context, registration, timestamp)
        if earlier_seals.newest("rfc3161", file_sha256=sha256_bytes(data)) is None:
            seals.append((earlier_seals.attestation("rfc3161", "openssl ts", time=time), data))
        else:
            notes.append(f"timestamped by this file already, at {time}")
    # A commit that holds the lock is a seal that others have a copy of; without one there is a reason to tell.
    anchor = git.anchor(context.root, name, registration.lock_sha256)
    if isinstance(anchor, str):
        notes.append(f"no git anchor: {anchor}")
    else:
        # 2. The commit. Its state (clean, with the lock in it) may have changed since it was recorded: then it
        # is recorded again.
        anchored = earlier_seals.attestation("git", anchor.commit, git=anchor.state)
        earlier = earlier_seals.newest("git", by=anchor.commit)
        if earlier is not None and earlier.stated == anchored.stated:
            notes.append(f"anchored at commit {anchor.commit[:10]} already")
        else:
            seals.append((anchored, None))
    # Signing may have asked for a passphrase, and that takes time: the registration must still be the one in force.
    # 3. Written, under the lock of the ledger.
    with ledger.hold():
        current = context.load_registration()
        if current is None or current.lock_sha256 != registration.lock_sha256:
            raise RegistrationError(
                f"'{name}' was amended while it was being sealed",
                required="a registration that nobody amends meanwhile",
                fix=f"ablate seal {context.path}",
            )
        made = []
        for entry, file in seals:
            # The file lies there before its entry: a crash in between leaves one that nobody names.
            written = {"at": context.now(), **({} if file is None else _written(context, entry, file))}
            made.append(ledger.append(entry.model_copy(update=written)))
        return Sealing(made=tuple(made), notes=tuple(notes), head=ledger.head())


class _Known:
    """The seals of one lock that exist already."""

    def __init__(self, context: StudyContext, entries: tuple[Entry, ...], registration: Registration) -> None:
        self._context, self._registration = context, registration
        self._recorded = [
            entry
            for entry in newest_attestations(entries, context.study.study)
            if entry.lock_sha256 == registration.lock_sha256
        ]

    def newest(self, kind: Kind, *, by: str | None = None, file_sha256: str | None = None) -> AttestedEntry | None:
        """The newest seal of a mechanism, by a maker or of a file, whose file is still what it was."""
        matching = [
            entry
            for entry in self._recorded
            if entry.kind == kind
            and by in (None, entry.by)
            and file_sha256 in (None, entry.file_sha256)
            # A seal whose file was deleted or changed is as good as none, and may be made again.
            and self._unchanged(entry)
        ]
        return matching[-1] if matching else None

    def attestation(self, kind: Kind, by: str, **fields: Any) -> AttestedEntry:
        """What the ledger is to say of a seal of this lock."""
        about = self._context.about(self._registration.sha256)
        return AttestedEntry(**about, kind=kind, lock_sha256=self._registration.lock_sha256, by=by, **fields)

    def _unchanged(self, seal: AttestedEntry) -> bool:
        if seal.file is None:
            return True
        path = self._context.root.studies / Path(seal.file).name
        return path.is_file() and sha256_file(path) == seal.file_sha256


def _stamped(context: StudyContext, registration: Registration, file: Path) -> tuple[bytes, str]:
    """A timestamp's bytes and its time. Raises `SealError` where it is none of this lock."""
    lock, where = context.root.lock(context.study.study), Where(file=file)
    ask = f"openssl ts -query -data {lock} -sha256 -cert -out request.tsq   (docs/proof.md has the rest)"
    # In order of cost: there, readable, of this lock, and at last signed, which starts a process.
    if not file.is_file():
        needed = "the reply of a time-stamping authority"
        raise SealError("there is no such file", required=needed, fix=ask, where=where)
    try:
        data = read_regular(file, timestamps.LARGEST_BYTES)
    except OSError as error:
        raise SealError(
            f"it cannot be read as a timestamp: {error.strerror or error}",
            required=f"a file of at most {timestamps.LARGEST_BYTES:,} bytes",
            where=where,
        ) from None
    # Whose bytes it is of can be read without any certificate; whether it is signed needs `openssl`.
    stamp = timestamps.read(data)
    if stamp.sha256 != registration.lock_sha256:
        raise SealError(
            "it is a timestamp of other bytes",
            required=f"one of sha256 {registration.lock_sha256}, the lock of this study",
            fix=ask,
            where=where,
        )
    worth = timestamps.examine_timestamp(data, registration.lock_sha256, context.root.timestamp_roots)
    if worth.state == "broken":
        raise SealError(f"it {worth.says}", required="a timestamp whose signature holds", fix=ask, where=where)
    return data, stamp.time.isoformat()


def _written(context: StudyContext, entry: AttestedEntry, data: bytes) -> dict[str, str]:
    """Write a seal under a name that is free; the ledger takes it next: a crash leaves a file that nobody names."""
    # Seals of one lock are numbered, so that a second signer never overwrites the first.
    number = 1
    while (
        path := context.root.seal(context.study.study, entry.lock_sha256, KINDS[entry.kind].suffix, number)
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
    return {"file": path.relative_to(context.root.path).as_posix(), "file_sha256": sha256_bytes(data)}


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
