"""Git as a seal: the commit around a registration, and what git's history holds of the ledger.

A commit binds content, not time: its dates are its author's word, and it proves nothing before someone else
holds it. Only reading commands are run, by `prereg.git`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from prereg.errors import SealError
from prereg.git import ask_git
from prereg.program import LARGEST_BYTES, Answer
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import read_regular
from prereg.registry.git_files import is_in_git
from prereg.registry.ledger_entry import Entry, GitState
from prereg.registry.ledger_lines import parsed
from prereg.registry.paths import Root
from prereg.seals.state import SealResult
from prereg.text import moment

TIMEOUT_S = 30
_OUTCOMES = ("decided", "looked", "peeked")
_SHOWN = 4
"""Entries that were taken back of which each is named."""
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class Anchor:
    """A commit and what it has to do with a lock."""

    commit: str
    """Its full hash."""
    state: GitState
    """What else was seen."""


def anchor(root: Root, name: str, lock_sha256: str) -> Anchor | str:
    """The commit that a study is at now, or the reason, as a clause, why there is none."""
    try:
        return _anchor(root, name, lock_sha256)
    except SealError as error:
        return error.found


def _anchor(root: Root, name: str, lock_sha256: str) -> Anchor:
    head = _git(root.path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head.is_yes:
        _output(root.path, "rev-parse", "--git-dir")
        raise SealError("the git repository has no commit yet")
    commit = head.output.decode().strip()
    listed = _output(root.path, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    # Registering itself has just written these, so they are no sign of unfinished work.
    prefix = os.fsdecode(_output(root.path, "rev-parse", "--show-prefix")).strip("\n")
    study = rf"{re.escape(name)}\.(yaml|lock\.json|[0-9a-f]{{8}}(\.\d+)?\.(sig|tsr))"
    own = re.compile(rf"{re.escape(prefix)}studies/({study}|ledger\.jsonl|\.gitattributes|\.gitignore)")
    paths = [os.fsdecode(line[3:]) for line in listed.split(b"\0") if line]
    n_changed = sum(own.fullmatch(path) is None for path in paths)
    held = _blob(root, name, commit)
    lock: Literal["the same bytes", "other bytes", "absent"] = "absent"
    if held is not None:
        lock = "the same bytes" if sha256_bytes(held) == lock_sha256 else "other bytes"
    return Anchor(commit, GitState(clean=n_changed == 0, n_changed=n_changed, lock=lock))


def examine_commit(root: Root, name: str, commit: str, lock_sha256: str) -> SealResult:
    """Whether a commit is still there, and whether it or a later one holds the lock."""
    if _HASH.fullmatch(commit) is None:
        return SealResult(state="broken", says="names no commit by its full hash")
    try:
        return _examined(root, name, commit, lock_sha256)
    except SealError as error:
        return SealResult(state="unchecked", says=f"commit {commit[:10]}: {error.found}")


def _examined(root: Root, name: str, commit: str, lock_sha256: str) -> SealResult:
    short = commit[:10]
    if not _git(root.path, "cat-file", "-e", f"{commit}^{{commit}}").is_yes:
        # A commit that is not here is a fault, unless not every commit is here.
        if _output(root.path, "rev-parse", "--is-shallow-repository").strip() == b"true":
            return SealResult(state="unchecked", says=f"commit {short} is not in this shallow clone")
        return SealResult(state="broken", says=f"names commit {short}, which is not in the repository")
    # The commit itself, then those after it on its line of descent that touched the lock.
    for later in (commit, *_touching(root, name, "--ancestry-path", "--all", f"^{commit}")):
        held = _blob(root, name, later)
        if held is not None and sha256_bytes(held) == lock_sha256:
            return SealResult(state="holds", says=f"commit {later[:10]} holds the lock, byte for byte")
    says = f"commit {short} was there; no commit after it holds the lock yet (git commit, then ablate seal)"
    return SealResult(state="incomplete", says=says)


def earlier_lock(root: Root, name: str, lock_sha256: str) -> bytes | None:
    """The bytes of a lock that an amendment has replaced, if a commit holds them."""
    for commit in _touching(root, name, "--all"):
        held = _blob(root, name, commit)
        if held is not None and sha256_bytes(held) == lock_sha256:
            return held
    return None


@dataclass(frozen=True)
class TakenBack:
    """An entry that a commit before this one holds and the ledger lacks."""

    entry: Entry
    commit: str
    """The first commit that holds it, by its full hash."""

    @property
    def words(self) -> str:
        """What was taken back, and which commit holds it."""
        entry = self.entry
        return f"taken back: {entry.event} of '{entry.study}' at {moment(entry.at)}, commit {self.commit[:7]}"


@dataclass(frozen=True)
class LedgerHistory:
    """The ledger compared with git's history of the current branch."""

    taken_back: tuple[TakenBack, ...] = ()
    """Entries of the history that the file lacks, oldest first."""
    not_compared: str = ""
    """Why not all of the history was compared, as a clause; empty where it was."""

    def faults(self, root: Root, study: str) -> list[str]:
        """What was taken back of a study, looks at outcomes first, and what brings it back; a sentence each."""
        # Looks and decisions first: to take back those is what would pay.
        gone = [taken for taken in self.taken_back if taken.entry.study == study]
        if not gone:
            return []
        ledger, first = root.relative(root.ledger), sorted(gone, key=lambda taken: taken.entry.event not in _OUTCOMES)
        more = f"{len(gone) - _SHOWN} more entries were taken back; " if len(gone) > _SHOWN else ""
        back = f"git show {gone[-1].commit[:7]}:./{ledger} | grep -vxFf {ledger} >> {ledger}   (brings them back)"
        return [*(taken.words for taken in first[:_SHOWN]), f"{more}{back}"]


def ledger_history(root: Root) -> LedgerHistory:
    """Every entry that a commit before HEAD, or HEAD itself, holds and the ledger lacks now."""
    if not is_in_git(root):
        return LedgerHistory(not_compared="the study lies in no git repository")
    try:
        # 1. Every line that history added, up to HEAD.
        head = _git(root.path, "rev-parse", "--is-shallow-repository", "--verify", "--quiet", "HEAD^{commit}")
        shallow, _, commit = head.output.decode().strip().partition("\n")
        if not head.is_yes or _HASH.fullmatch(commit) is None:
            return LedgerHistory(not_compared="the git repository has no commit yet")
        history = _ledger_lines(root.path.absolute(), root.relative(root.ledger), commit)
    except SealError as error:
        return LedgerHistory(not_compared=error.found)
    try:
        # 2. Less the lines that are here; a ledger that cannot be read has none.
        here = set(read_regular(root.ledger, LARGEST_BYTES).splitlines())
    except OSError:
        here = set()
    gone = [(parsed(line, sliced=False)[0], commit) for line, commit in history if line not in here]
    taken_back = tuple(TakenBack(entry, commit) for entry, commit in gone if isinstance(entry, Entry))
    reason = "this clone is shallow" if shallow == "true" else "" if history else "no commit holds the ledger"
    return LedgerHistory(tuple(sorted(taken_back, key=lambda taken: (taken.entry.index, taken.entry.at))), reason)


@lru_cache(maxsize=4)
def _ledger_lines(folder: Path, ledger: str, head: str) -> tuple[tuple[bytes, str], ...]:
    """Every line that commits up to this one added to the ledger, each with the first commit that did."""
    # All parents of a merge: a line may have come from the side whose file was not kept.
    words = ("log", "--full-history", "-m", "-p", "-U0", "--text", "--no-renames", "--no-color", "--format=commit %H")
    log = _output(folder, *words, head, "--", ledger)
    lines, commit = dict[bytes, str](), ""
    for line in log.split(b"\n"):
        if line.startswith(b"commit "):
            commit = line[7:].decode()
        elif line.startswith(b"+{"):
            lines[line[1:]] = commit  # the log goes backwards: the first commit is seen last
    return tuple(lines.items())


def _touching(root: Root, name: str, *words: str) -> list[str]:
    """Commits that changed a lock, oldest first, of those that `git log` selects by these words; none without git."""
    path = f"studies/{root.lock(name).name}"
    try:
        return _output(root.path, "log", "--format=%H", "--reverse", *words, "--", path).decode().split()
    except SealError:
        return []


def _blob(root: Root, name: str, commit: str) -> bytes | None:
    """What a commit holds in place of a lock."""
    # `./` makes the path one from this folder, wherever in the repository the root lies.
    done = _git(root.path, "cat-file", "blob", f"{commit}:./studies/{root.lock(name).name}")
    return done.output if done.is_yes else None


def _output(folder: Path, *words: str) -> bytes:
    """What git says. Raises `SealError` where it refuses."""
    done = _git(folder, *words)
    if done.is_yes:
        return done.output
    if "not a git repository" in done.complaint:
        raise SealError("the study lies in no git repository")
    reason = done.complaint.partition("; ")[0].removeprefix("fatal: ")
    raise SealError(f"git refuses: {reason or 'it does not say why'}")


def _git(folder: Path, *words: str) -> Answer:
    return ask_git(folder, *words, seconds=TIMEOUT_S)
