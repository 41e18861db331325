"""What the ledger says of seals: which were made, and what each mechanism is worth.

A seal is a file whose hash the ledger holds, or a git commit: a proof for others that a lock is what its registrant
says, by whom or since when. Whether the file still is that, and convinces, is for `prereg.seals.examine` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import ValidationError

from prereg.frozen import FrozenModel
from prereg.registry.ledger_entry import Entry

Kind = Literal["ssh", "rfc3161", "git"]


@dataclass(frozen=True)
class SealKind:
    """One mechanism."""

    name: str
    """As people call it."""
    suffix: str
    """The ending of its files; none for a git anchor, which is in the ledger alone."""
    proves: str
    """What a stranger may conclude."""
    leaves_open: str
    """What a stranger may not conclude."""


KINDS: Mapping[Kind, SealKind] = {
    "ssh": SealKind("ssh signature", ".sig", "the holder of the key signed these bytes", "when"),
    "rfc3161": SealKind(
        "RFC 3161 timestamp",
        ".tsr",
        "these bytes existed by its time, if the authority is trusted",
        "who; that nobody ran it earlier",
    ),
    "git": SealKind("git commit", "", "the content of the lock", "when and who, until someone else holds the commit"),
}
"""Every mechanism; `prereg.seals.examine` has the check of each."""
LEFT_OPEN_BY_ALL = "No timestamp proves that nobody ran the experiment earlier."


class GitState(FrozenModel):
    """The state of the repository around a lock."""

    clean: bool
    """Whether nothing but the study's own registration differed from the commit."""
    n_changed: int
    """How many other files differed from it, or were not in it."""
    lock: Literal["the same bytes", "other bytes", "absent"]
    """What the commit holds in place of the lock."""


class Attestation(FrozenModel):
    """The body of an `attested` entry: one seal."""

    kind: Kind
    """The mechanism."""
    lock_sha256: str
    """sha256 of the exact bytes of the lock that is sealed."""
    by: str
    """Fingerprint of the key, openssl for a timestamp, hash of the commit."""
    file: str | None = None
    """The seal's file under the root; none for a git anchor."""
    sha256: str | None = None
    """sha256 of that file."""
    time: str | None = None
    """The time the seal itself states, by the clock of its maker."""
    git: GitState | None = None
    """Of a git anchor."""


class Attested(NamedTuple):
    """An entry of the ledger and what it says."""

    entry: Entry
    """The entry."""
    attestation: Attestation | None
    """Its body; none when it does not read as one."""


def attested(entries: Iterable[Entry], study: str) -> tuple[Attested, ...]:
    """Every `attested` entry of a study, oldest first."""
    found = []
    for entry in entries:
        if entry.study != study or entry.event != "attested":
            continue
        try:
            found.append(Attested(entry, Attestation.model_validate(entry.stated)))
        except ValidationError:
            found.append(Attested(entry, None))
    return tuple(found)


def newest_attestations(entries: Iterable[Entry], study: str) -> tuple[Attested, ...]:
    """What is to be checked: every file, and the newest anchor of each lock."""
    newest: dict[tuple[str | None, ...], Attested] = {}
    for found in attested(entries, study):
        text = found.attestation
        key = (found.entry.sha256,) if text is None else (text.kind, text.lock_sha256, text.file)
        newest.pop(key, None)
        newest[key] = found
    return tuple(newest.values())


class SealResult(FrozenModel):
    """What a seal is worth, as far as it can be seen from here."""

    state: Literal["holds", "unvouched", "incomplete", "unchecked", "broken"]
    """`holds`: sound, and made by somebody who is believed here. `unvouched`: sound as far as that can be said of a
    seal by a stranger. `incomplete`: the beginning of a seal, which proves nothing yet. `unchecked`: what is needed
    to look at it is not on this machine. `broken`: not a seal of this lock."""
    says: str
    """What was found, in a clause."""
