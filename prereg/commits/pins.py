"""`CommitPin`: what a commit of an arm meant at registration, its hash and that of every file a run is started from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_of
from prereg.study.command import ScriptPin, is_inside

WORKTREE = "WORKTREE"
"""In place of a commit: the files of the working tree, as they are at registration."""
LINK = "120000"
"""Git's mode of a symbolic link, whose bytes are the path that it leads to."""
ObjectId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
"""A full hash of git's: sha1, or sha256 in repositories that are made so."""


class CommittedFile(FrozenModel):
    """One file of a commit."""

    path: str
    """Its path from the root."""
    mode: Literal["100644", "100755", "120000"]
    """Git's mode: a file, an executable one, a symbolic link."""
    blob: ObjectId
    """The id of its object in git."""
    sha256: str
    """sha256 of its bytes."""

    @model_validator(mode="after")
    def _stays_below_the_root(self) -> Self:
        # A lock that came with a bundle is a stranger's: nothing is written elsewhere because it says so.
        if not is_inside(self.path):
            raise ValueError(f"'{self.path}' is no path below the root")
        return self


class CommitPin(FrozenModel):
    """What the commit of an arm meant at registration."""

    commit: ObjectId
    """Its full hash."""
    tree: ObjectId
    """The hash of its whole tree."""
    sha256: str
    """sha256 over path, mode, blob and sha256 of all files below."""
    files: tuple[CommittedFile, ...]
    """The files that a run of the arm is started from, by path."""

    @classmethod
    def of(cls, commit: str, tree: str, files: Iterable[CommittedFile]) -> CommitPin:
        """The pin of these files."""
        # Sorted, so that the pin does not depend on the order in which git lists a tree.
        by_path = tuple(sorted(files, key=lambda file: file.path))
        return cls(commit=commit, tree=tree, files=by_path, sha256=files_sha256(by_path))

    @model_validator(mode="after")
    def _hash_is_of_the_files(self) -> Self:
        # A promise holds the hash alone: with another list of files it would vouch for what nobody registered.
        if self.sha256 != files_sha256(self.files):
            raise ValueError(f"the files of commit {self.commit[:12]} are not those of their hash")
        return self

    @property
    def scripts(self) -> tuple[ScriptPin, ...]:
        """Its files as pins of a trainer's code."""
        return tuple(ScriptPin(path=file.path, sha256=file.sha256) for file in self.files)

    @property
    def short(self) -> str:
        """The hash as people read it."""
        return self.commit[:10]

    def file(self, path: str) -> CommittedFile | None:
        """The file at a path from the root."""
        return next((file for file in self.files if file.path == path), None)


class FileChange(FrozenModel):
    """One file that differs between two commits, as `git diff --numstat` counts it."""

    path: str
    """Its path from the root."""
    added: int | None
    """Lines that only the later one has; none of a file that is no text."""
    deleted: int | None
    """Lines that only the earlier one has."""


class CodeChanges(FrozenModel):
    """What differs in the laid out files of a commit from those of the baseline's."""

    against: str
    """The commit of the baseline, as the study writes it."""
    files: tuple[FileChange, ...]
    """The files that differ, by path."""

    @property
    def added(self) -> int:
        """Lines that only this commit has."""
        # Of files that are no text git counts no lines; they are in `files` all the same.
        return sum(file.added or 0 for file in self.files)

    @property
    def deleted(self) -> int:
        """Lines that only the baseline's has."""
        return sum(file.deleted or 0 for file in self.files)


def files_sha256(files: Iterable[CommittedFile]) -> str:
    """One hash over the files of a commit."""
    return sha256_of({file.path: [file.mode, file.blob, file.sha256] for file in files})


def promised(pin: JsonValue) -> JsonValue:
    """The JSON form of a pin as a promise holds it: the list of its files is in the hash over them."""
    assert isinstance(pin, dict), pin
    # `sha256` covers the files: a promise of two lines instead of thousands has the same meaning.
    return {name: value for name, value in pin.items() if name != "files"}
