"""Examination of every seal that the ledger names: is its file unchanged, is it of this lock, is its maker believed.

Reads files and asks `ssh-keygen`, `openssl` and `git`; never a network. A missing or changed file, and a seal of
something else, are faults. A stranger's seal is none: it is reported as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes, sha256_file
from prereg.registry.ledger_entry import AttestedEntry, Entry
from prereg.registry.paths import Root
from prereg.registry.registration import promises_of
from prereg.seals import git, ssh, timestamp
from prereg.seals.state import KINDS, SealResult, newest_attestations


@dataclass(frozen=True)
class Trust:
    """Whom the reader believes."""

    signers: Path
    """Whose ssh keys: a file of allowed signers, which may be missing."""
    roots: Path
    """Whose timestamps: a PEM file of certificates, which may be missing."""

    @classmethod
    def of(cls, root: Root, *, signers: Path | None = None, roots: Path | None = None) -> Trust:
        """What the reader gives, else what the repository of the study says of itself."""
        return cls(signers or root.allowed_signers, roots or root.timestamp_roots)


State = Literal["holds", "unvouched", "incomplete", "unchecked", "broken"]
# After any of these, a seal may have been made by somebody who had seen results.
_RUNS = ("started", "sealed", "failed", "finished", "imported", "looked", "decided", "peeked")


class SealCheck(FrozenModel):
    """One seal and what was found of it."""

    study: str
    """The study."""
    kind: str
    """The mechanism, of `KINDS` unless another version made it."""
    file: str | None
    """The seal's file; none for a git anchor."""
    at: str
    """When the ledger took it."""
    state: State
    """As in `SealResult`."""
    says: str
    """What was found, in a clause."""
    superseded: bool
    """Whether its lock was replaced by an amendment."""
    after_runs: bool
    """Whether the study had runs in the ledger before it: then it says nothing of what came first."""


def examine_seals(root: Root, name: str, entries: Iterable[Entry], trust: Trust) -> tuple[SealCheck, ...]:
    """One check a seal of a study, in the order of the ledger."""
    of_study = tuple(entry for entry in entries if entry.study == name)
    locks = [entry.lock_sha256 for entry in promises_of(of_study, name)]
    # 1. When the first run or look was on record, for `after_runs`.
    begun = min((entry.index for entry in of_study if entry.event in _RUNS), default=None)
    checks = []
    state: State
    # 2. Each seal: readable, of a lock of this study, and then what its mechanism says.
    for entry in newest_attestations(of_study, name):
        superseded = bool(locks) and entry.lock_sha256 != locks[-1]
        if entry.kind not in KINDS:
            state, says = "broken", f"ledger entry {entry.index} attests something that this version cannot read"
        elif entry.lock_sha256 not in locks:
            state, says = "broken", "seals a lock that was never registered"
        else:
            result = _result_of(root, name, entry, trust, superseded=superseded)
            state, says = result.state, result.says
        checks.append(
            SealCheck(
                study=name,
                kind=entry.kind,
                file=entry.file,
                at=entry.at,
                state=state,
                says=says,
                superseded=superseded,
                after_runs=begun is not None and begun < entry.index,
            )
        )
    return tuple(checks)


def unnamed_seals(root: Root, name: str, entries: Iterable[Entry]) -> tuple[str, ...]:
    """Files that look like seals of a study and that no entry names: a crash left them, or the ledger was cut."""
    # By name and not by content: a seal without an entry proves the same, but nobody knows since when.
    named = {entry.file for entry in entries if isinstance(entry, AttestedEntry) and entry.study == name}
    suffixes = "|".join(re.escape(kind.suffix) for kind in KINDS.values() if kind.suffix)
    looks_like = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{8}}(\.\d+)?({suffixes})")
    files = sorted(path.name for path in root.studies.iterdir() if looks_like.fullmatch(path.name))
    return tuple(f"studies/{file}" for file in files if f"studies/{file}" not in named)


def _result_of(root: Root, name: str, entry: AttestedEntry, trust: Trust, *, superseded: bool) -> SealResult:
    if entry.kind == "git":
        return git.examine_commit(root, name, entry.by, entry.lock_sha256)
    # The ledger is not signed: a path in it may not lead out of the folder of studies.
    path = root.studies / Path(entry.file or "").name
    fault = ""
    if entry.file != f"studies/{path.name}" or not path.name.startswith(f"{name}."):
        fault = f"ledger entry {entry.index} names a file that is no seal of this study"
    elif not path.is_file():
        fault = f"is missing; the ledger took it on {entry.at}"
    elif sha256_file(path) != entry.file_sha256:
        fault = f"its bytes are not those that the ledger took on {entry.at}"
    if fault:
        return SealResult(state="broken", says=fault)
    if entry.kind == "ssh":
        return _signature(root, name, path, entry, trust, superseded=superseded)
    return timestamp.examine_timestamp(path.read_bytes(), entry.lock_sha256, trust.roots)


def _signature(
    root: Root, name: str, path: Path, entry: AttestedEntry, trust: Trust, *, superseded: bool
) -> SealResult:
    """A signature is checked against the lock itself; timestamps need only its hash."""
    lock = _lock(root, name, entry.lock_sha256)
    if lock is not None:
        return ssh.examine_signature(lock, path, trust.signers, at=entry.at)
    if superseded:
        says = "its lock was amended, and no git commit here holds it: only the file's hash was checked"
        return SealResult(state="unchecked", says=says)
    return SealResult(state="broken", says="the lock that it signs is missing or changed")


def _lock(root: Root, name: str, lock_sha256: str) -> bytes | None:
    """The bytes that were sealed, from their place or, once amended, from git."""
    path = root.lock(name)
    if path.is_file() and sha256_bytes(data := path.read_bytes()) == lock_sha256:
        return data
    return git.earlier_lock(root, name, lock_sha256)
