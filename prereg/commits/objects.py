"""Git's object store, read: what a name means, the entries of a tree, the bytes of blobs.

Nothing here depends on the working tree or the index, and nothing but objects is ever written. A commit is what its
hash says: replaced objects and grafts are not seen, and an object that is not here is not fetched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prereg.commits.pins import FileChange
from prereg.errors import RegistrationError, SealError
from prereg.git import ask_git
from prereg.program import LARGEST_BYTES, Answer

_TIMEOUT_S = 120
_OID = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class TreeEntry:
    """One entry of a tree, with the trees below it listed."""

    path: str
    """From the root; bytes that are no UTF-8 as surrogates."""
    mode: str
    """Six octal digits: 160000 is a submodule, 120000 a symbolic link."""
    oid: str
    """The id of its object."""
    size: int
    """Bytes of a blob; 0 of a submodule."""


@dataclass(frozen=True)
class Repository:
    """The repository that a root lies in."""

    root: Path
    """The folder that holds studies/."""
    prefix: str
    """The root's path inside the repository, with a slash at its end; empty where it is the top."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables for git, such as another index."""

    @classmethod
    def around(cls, root: Path) -> Repository | None:
        """The repository of a root; none where it lies in none. Raises `RegistrationError` where git cannot say."""
        answer = _ask(root, {}, ("rev-parse", "--show-prefix"))
        if answer.is_yes:
            return cls(root, os.fsdecode(answer.output).removesuffix("\n"))
        if "not a git repository" in answer.complaint:
            return None
        raise _refusal(answer)

    def git(self, *words: str, data: bytes = b"", environment: Mapping[str, str] | None = None) -> Answer:
        """What git answers, from the root."""
        return _ask(self.root, {**self.environment, **(environment or {})}, words, data)

    def output(self, *words: str, data: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        """What git prints. Raises `RegistrationError` where it refuses."""
        answer = self.git(*words, data=data, environment=environment)
        if not answer.is_yes:
            raise _refusal(answer)
        return answer.output

    @property
    def is_shallow(self) -> bool:
        """Whether the history was cut off when the repository was cloned."""
        return self.output("rev-parse", "--is-shallow-repository").strip() == b"true"

    def commit_of(self, name: str) -> str | None:
        """The full hash of the commit that a name means now; none where it means none."""
        answer = self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        commit = answer.output.decode("utf-8", "replace").strip()
        # A hash is taken as it is: that its object is here has to be asked.
        is_here = answer.is_yes and _OID.fullmatch(commit) and self.has(commit)
        return commit if is_here else None

    def has(self, oid: str) -> bool:
        """Whether an object is here."""
        return self.git("cat-file", "-e", oid).is_yes

    def tree_of(self, commit: str) -> str:
        """The hash of a commit's whole tree. Raises `RegistrationError` where the commit or its tree is damaged."""
        return self.output("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").decode().strip()

    def entries(self, tree: str) -> tuple[TreeEntry, ...]:
        """Everything that a whole tree holds below the root, trees listed through.

        Raises `RegistrationError` where a tree among them is missing or damaged.
        """
        # Only what lies below the root: the rest of a large repository is none of the arm's.
        below = (self.prefix,) if self.prefix else ()
        listed = self.output("ls-tree", "-r", "-z", "-l", "--full-tree", tree, "--", *below)
        entries = []
        for line in filter(None, listed.split(b"\0")):
            about, _, path = line.partition(b"\t")
            mode, _, oid, size = about.split()
            inside = os.fsdecode(path).removeprefix(self.prefix)
            entries.append(TreeEntry(inside, mode.decode(), oid.decode(), int(size) if size.isdigit() else 0))
        return tuple(entries)

    def blobs(self, entries: Sequence[TreeEntry]) -> Iterator[tuple[TreeEntry, bytes | None]]:
        """The bytes of each entry's blob, as they were committed; none of one that is missing or damaged."""
        batch, size = list[TreeEntry](), 0
        for entry in entries:
            # An answer of git has a limit of size.
            if batch and size + entry.size > LARGEST_BYTES // 4:
                yield from self._blobs(batch)
                batch, size = [], 0
            batch.append(entry)
            size += entry.size
        yield from self._blobs(batch)

    def _blobs(self, batch: Sequence[TreeEntry]) -> Iterator[tuple[TreeEntry, bytes | None]]:
        if not batch:
            return
        request = "".join(f"{entry.oid}\n" for entry in batch).encode()
        answer = self.git("cat-file", "--batch", data=request)
        if not answer.is_yes:
            # At an object that is damaged git ends. Which one it is shows when each is asked for by itself.
            if len(batch) == 1:
                yield batch[0], None
                return
            for entry in batch:
                yield from self._blobs([entry])
            return
        rest, at = answer.output, 0
        for entry in batch:
            # "OID blob SIZE", the bytes and a newline; of what is missing "OID missing".
            end = rest.index(b"\n", at)
            header = rest[at:end].split()
            if len(header) != 3 or header[1] != b"blob":
                yield entry, None
                at = end + 1
                continue
            at = end + 1 + int(header[2]) + 1
            yield entry, rest[end + 1 : at - 1]

    def changes(self, before: str, after: str) -> Iterator[FileChange]:
        """What differs between two commits below the root, as `git diff --numstat` counts it."""
        words = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after)
        for line in filter(None, self.output(*words, "--", ".").split(b"\0")):
            added, deleted, path = line.split(b"\t", 2)
            inside = os.fsdecode(path).removeprefix(self.prefix)
            # A dash in place of the numbers: a file that is no text.
            lines = [int(count) if count.isdigit() else None for count in (added, deleted)]
            yield FileChange(path=inside, added=lines[0], deleted=lines[1])


def _ask(root: Path, environment: Mapping[str, str], words: Sequence[str], data: bytes = b"") -> Answer:
    try:
        return ask_git(root, *words, data=data, environment=environment, seconds=_TIMEOUT_S)
    except SealError as error:
        raise RegistrationError(error.found, required=error.required, fix=error.fix) from None


def _refusal(answer: Answer) -> RegistrationError:
    reason = answer.complaint.partition("; ")[0].removeprefix("fatal: ").removeprefix("error: ")
    return RegistrationError(
        f"git refuses: {reason or 'it does not say why'}",
        required="a repository whose objects are whole",
        fix="git fsck",
    )
