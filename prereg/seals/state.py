"""Seals that the ledger names: which were made, and what each mechanism is worth; `examine.py` looks at their files.

A seal is a file whose hash the ledger holds, or a git commit: a proof for others that a lock is what its registrant
says, by whom or since when. Whether the file still is that, and convinces, is for `prereg.seals.examine` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from prereg.frozen import FrozenModel
from prereg.registry.ledger_entry import AttestedEntry, Entry

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


KINDS: Mapping[str, SealKind] = {
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


def newest_attestations(entries: Iterable[Entry], study: str) -> tuple[AttestedEntry, ...]:
    """What is to be checked of a study: every file, and the newest anchor of each lock; oldest first."""
    newest: dict[tuple[str | None, ...], AttestedEntry] = {}
    for entry in entries:
        if isinstance(entry, AttestedEntry) and entry.study == study:
            # A seal that was made again for the same lock replaces the earlier one; of commits only the
            # newest counts.
            key = (entry.kind, entry.lock_sha256, entry.file)
            newest.pop(key, None)  # a key that is set again keeps its old place
            newest[key] = entry
    return tuple(newest.values())


class SealResult(FrozenModel):
    """What a seal is worth, as far as it can be seen from here."""

    state: Literal["holds", "unvouched", "incomplete", "unchecked", "broken"]
    """`holds`: sound, and made by somebody who is believed here. `unvouched`: sound as far as that can be said of a
    seal by a stranger. `incomplete`: the beginning of a seal, which proves nothing yet. `unchecked`: what is needed
    to look at it is not on this machine. `broken`: not a seal of this lock."""
    says: str
    """What was found, in a clause."""
