"""The git commit around a registration, and what git's history holds of the ledger.

A commit binds content, not time: its dates are its author's word, and it proves nothing before someone else
holds it. Only reading commands are run, with no terminal, no hook and no pager.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import read_regular
from prereg.registry.git_files import is_in_git
from prereg.registry.ledger_entry import Entry, parsed
from prereg.registry.paths import Root
from prereg.seals.state import GitState, SealResult
from prereg.text import moment

TIMEOUT_S = 30
_OUTCOMES = ("decided", "looked", "peeked")
_SHOWN = 4
"""Entries that were taken back of which each is named."""
_LARGEST_HISTORY = 2**28
"""Bytes of a ledger's history that are compared."""
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
# Set by git for its hooks: they lead to the repository of the hook.
_ELSEWHERE = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
}


@dataclass(frozen=True)
class Anchor:
    """A commit and what it has to do with a lock."""

    commit: str
    """Its full hash."""
    state: GitState
    """What else was seen."""


def anchor(root: Root, name: str, lock_sha256: str) -> Anchor | str:
    """The commit that a study is at now, or the reason, as a clause, why there is none."""
    head = _git(root.path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if isinstance(head, str):
        return head
    if head.returncode != 0:
        inside = _git(root.path, "rev-parse", "--git-dir")
        if isinstance(inside, str) or inside.returncode == 0:
            return "the git repository has no commit yet"
        return _reason(inside)
    commit = head.stdout.decode().strip()
    listed = _git(root.path, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all")
    if isinstance(listed, str) or listed.returncode != 0:
        return listed if isinstance(listed, str) else _reason(listed)
    # Registering itself has just written these, so they are no sign of unfinished work.
    prefix = os.fsdecode(_output(root.path, "rev-parse", "--show-prefix")).strip("\n")
    study = rf"{re.escape(name)}\.(yaml|lock\.json|[0-9a-f]{{8}}(\.\d+)?\.(sig|tsr))"
    own = re.compile(rf"{re.escape(prefix)}studies/({study}|ledger\.jsonl|\.gitattributes|\.gitignore)")
    paths = [os.fsdecode(line[3:]) for line in listed.stdout.split(b"\0") if line]
    n_changed = sum(own.fullmatch(path) is None for path in paths)
    held = _blob(root, name, commit)
    lock: Literal["the same bytes", "other bytes", "absent"] = "absent"
    if held is not None:
        lock = "the same bytes" if sha256_bytes(held) == lock_sha256 else "other bytes"
    return Anchor(commit, GitState(clean=n_changed == 0, n_changed=n_changed, lock=lock))


def examine(root: Root, name: str, commit: str, lock_sha256: str) -> SealResult:
    """Whether a commit is still there, and whether it or a later one holds the lock."""
    if _HASH.fullmatch(commit) is None:
        return SealResult(state="broken", says="names no commit by its full hash")
    short = commit[:10]
    known = _git(root.path, "cat-file", "-e", f"{commit}^{{commit}}")
    if isinstance(known, str):
        return SealResult(state="unchecked", says=f"commit {short}: {known}")
    if known.returncode != 0:
        return _missing(root, short)
    for later in (commit, *_touching(root, name, "--ancestry-path", "--all", f"^{commit}")):
        held = _blob(root, name, later)
        if held is not None and sha256_bytes(held) == lock_sha256:
            return SealResult(state="holds", says=f"commit {later[:10]} holds the lock, byte for byte")
    says = f"commit {short} was there; no commit after it holds the lock yet (git commit, then ablate seal)"
    return SealResult(state="incomplete", says=says)


def _missing(root: Root, short: str) -> SealResult:
    """A commit that is not here is a fault, unless not every commit is here."""
    shallow = _git(root.path, "rev-parse", "--is-shallow-repository")
    if isinstance(shallow, str) or shallow.returncode != 0:
        reason = shallow if isinstance(shallow, str) else _reason(shallow)
        return SealResult(state="unchecked", says=f"commit {short}: {reason}")
    if shallow.stdout.strip() == b"true":
        return SealResult(state="unchecked", says=f"commit {short} is not in this shallow clone")
    return SealResult(state="broken", says=f"names commit {short}, which is not in the repository")


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
        gone = [one for one in self.taken_back if one.entry.study == study]
        if not gone:
            return []
        ledger, first = root.relative(root.ledger), sorted(gone, key=lambda one: one.entry.event not in _OUTCOMES)
        more = f"{len(gone) - _SHOWN} more entries were taken back; " if len(gone) > _SHOWN else ""
        back = f"git show {gone[-1].commit[:7]}:./{ledger} | grep -vxFf {ledger} >> {ledger}   (brings them back)"
        return [*(one.words for one in first[:_SHOWN]), f"{more}{back}"]


def ledger_history(root: Root) -> LedgerHistory:
    """Every entry that a commit before HEAD, or HEAD itself, holds and the ledger lacks now."""
    if not is_in_git(root):
        return LedgerHistory(not_compared="the study lies in no git repository")
    head = _git(root.path, "rev-parse", "--is-shallow-repository", "--verify", "--quiet", "HEAD^{commit}")
    if isinstance(head, str):
        return LedgerHistory(not_compared=head)
    shallow, _, commit = head.stdout.decode().strip().partition("\n")
    if head.returncode != 0 or _HASH.fullmatch(commit) is None:
        return LedgerHistory(not_compared="the git repository has no commit yet")
    history = _ledger_lines(root.path.absolute(), root.relative(root.ledger), commit)
    if isinstance(history, str):
        return LedgerHistory(not_compared=history)
    try:
        here = set(read_regular(root.ledger, _LARGEST_HISTORY).splitlines())
    except OSError:
        here = set()
    gone = [(parsed(line, sliced=False)[0], commit) for line, commit in history if line not in here]
    taken_back = tuple(TakenBack(entry, commit) for entry, commit in gone if isinstance(entry, Entry))
    reason = "this clone is shallow" if shallow == "true" else "" if history else "no commit holds the ledger"
    return LedgerHistory(tuple(sorted(taken_back, key=lambda one: (one.entry.index, one.entry.at))), reason)


@lru_cache(maxsize=4)
def _ledger_lines(folder: Path, ledger: str, head: str) -> tuple[tuple[bytes, str], ...] | str:
    """Every line that commits up to this one added to the ledger, each with the first commit that did; or why not."""
    # All parents of a merge: a line may have come from the side whose file was not kept.
    words = ("log", "--full-history", "-m", "-p", "-U0", "--text", "--no-renames", "--no-color", "--no-ext-diff")
    done = _git(
        folder, "--no-replace-objects", "-c", "log.follow=false", *words, "--no-textconv", "--no-show-signature",
        "--format=commit %H", head, "--", ledger, most_bytes=_LARGEST_HISTORY,
    )  # fmt: skip
    if isinstance(done, str):
        return done
    if done.returncode != 0:
        return _reason(done)
    lines, commit = dict[bytes, str](), ""
    for line in done.stdout.split(b"\n"):
        if line.startswith(b"commit "):
            commit = line[7:].decode()
        elif line.startswith(b"+{"):
            lines[line[1:]] = commit  # the log goes backwards: the first commit is seen last
    return tuple(lines.items())


def _touching(root: Root, name: str, *words: str) -> list[str]:
    """Commits that changed a lock, oldest first, of those that `git log` selects by these words."""
    path = f"studies/{root.lock(name).name}"
    return _output(root.path, "log", "--format=%H", "--reverse", *words, "--", path).decode().split()


def _blob(root: Root, name: str, commit: str) -> bytes | None:
    """What a commit holds in place of a lock."""
    done = _git(root.path, "cat-file", "blob", f"{commit}:./studies/{root.lock(name).name}")
    return None if isinstance(done, str) or done.returncode != 0 else done.stdout


def _output(folder: Path, *words: str) -> bytes:
    done = _git(folder, *words)
    return b"" if isinstance(done, str) or done.returncode != 0 else done.stdout


def _git(folder: Path, *words: str, most_bytes: int | None = None) -> subprocess.CompletedProcess[bytes] | str:
    """What git says, or why it gives no answer: within `TIMEOUT_S`, and where it matters so many bytes at most."""
    program = shutil.which("git")
    if program is None:
        return "git is not on this machine"
    own = {key: value for key, value in os.environ.items() if key not in _ELSEWHERE}
    command = [program, "--no-pager", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    environment = own | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    too_slow = f"git did not answer within {TIMEOUT_S} s"
    if most_bytes is not None:
        return _bounded(command, environment, most_bytes, too_slow)
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return too_slow


def _bounded(
    command: list[str], environment: dict[str, str], most_bytes: int, too_slow: str
) -> subprocess.CompletedProcess[bytes] | str:
    """The output of a command that may be long, read up to a bound."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(TIMEOUT_S, stop)
        timer.start()
        try:
            assert process.stdout is not None
            output = process.stdout.read(most_bytes + 1)
            if len(output) > most_bytes:
                process.kill()
                return f"it has more than {most_bytes // 2**20} MiB"
            process.wait()
        finally:
            timer.cancel()
        if late.is_set():
            return too_slow
        return subprocess.CompletedProcess(command, process.returncode, output, b"")


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    said = "".join(sign for sign in (lines[0] if lines else "") if sign.isprintable())
    if "not a git repository" in said:
        return "the study lies in no git repository"
    return f"git refuses: {said.removeprefix('fatal: ') or 'it does not say why'}"
