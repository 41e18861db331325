"""Comparison of a registration's commits with what is there now: in the repository, or in the copy of a bundle.

    commits / HASH10 / SHA256    a bundle's copy of one file of a commit, for readers without the repository

Verdicts rest on the records, which say by hash which files they were made with. So a reader who has neither repository
nor copy can judge again, and is told that the files were not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prereg.commits.layout import damaged
from prereg.commits.objects import Repository
from prereg.commits.pins import WORKTREE, CommitPin
from prereg.errors import RegistrationError
from prereg.registry.canon import sha256_file

if TYPE_CHECKING:
    from prereg.registry.paths import Root

_SHOWN = 3


@dataclass(frozen=True)
class Held:
    """What became of one pinned commit."""

    name: str
    """As the study writes it."""
    pin: CommitPin
    faults: tuple[str, ...] = ()
    """What is not as it was registered, a sentence each."""
    unchecked: str = ""
    """Why nothing can be said, as a clause; empty where it was compared."""
    moved_to: str = ""
    """The commit that the name means now, where it is another: harmless, since the hash is pinned."""
    is_gone: bool = False
    """The commit is in no clone here; its files were compared, each by its own object."""


def copy_of(root: Root, pin: CommitPin) -> Path:
    """Where a bundle holds the files of a commit, each under its sha256: not every path of a commit is one that every
    system has."""
    return root.path / "commits" / pin.short


def compare_commits(root: Root, pins: Mapping[str, CommitPin]) -> tuple[Held, ...]:
    """Each pinned commit against the repository, or else against the copy in a bundle."""
    try:
        # Git is asked only where arms are commits.
        repository = Repository.around(root.path) if pins else None
    except RegistrationError as error:
        return tuple(Held(name, pin, unchecked=error.found) for name, pin in pins.items())
    return tuple(_held(root, repository, name, pin) for name, pin in pins.items())


def commit_faults(root: Root, pins: Mapping[str, CommitPin]) -> tuple[str, ...]:
    """What is not as it was registered of the commits of a study, a sentence each. Nothing is known, and nothing is
    said, where neither a repository nor a copy is here."""
    return tuple(fault for each in compare_commits(root, pins) for fault in each.faults)


def _held(root: Root, repository: Repository | None, name: str, pin: CommitPin) -> Held:
    copy = copy_of(root, pin)
    # A bundle's copy first: next to it, a repository of the reader's own would be another one.
    if copy.is_dir():
        return Held(name, pin, faults=tuple(_differing(copy, pin)))
    if repository is None:
        return Held(name, pin, unchecked="neither its repository nor a copy of its files is here")
    try:
        faults = list(damaged(repository, pin))
    except RegistrationError as error:
        return Held(name, pin, unchecked=error.found)
    # A commit that is gone has a fault for each of its files.
    more = [f"commit {pin.short}: {len(faults) - _SHOWN} more files"] if len(faults) > _SHOWN else []
    now = None if name == WORKTREE else repository.commit_of(name)
    moved = now if now is not None and now != pin.commit else ""
    gone = not repository.has(pin.commit)
    return Held(name, pin, faults=(*faults[:_SHOWN], *more), moved_to=moved, is_gone=gone)


def _differing(copy: Path, pin: CommitPin) -> Iterator[str]:
    """A link is held as a file of the bytes that git has of it."""
    for file in pin.files:
        place = copy / file.sha256
        if place.is_symlink() or not place.is_file() or sha256_file(place) != file.sha256:
            yield f"{file.path} of commit {pin.short} in this bundle is not the registered file"
