"""The commit around a registration, in real repositories."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from seal_samples import git

from prereg.registry.ledger_entry import GitState
from prereg.registry.paths import Root
from prereg.seals import git as anchors

LOCK = b'{"study": "tiny"}\n'
SHA256 = hashlib.sha256(LOCK).hexdigest()
CLEAN = {"clean": True, "n_changed": 0}


def repository(folder: Path, *, below: str = "") -> Root:
    """A repository with one commit and no lock yet."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    root = Root(folder / below if below else folder)
    root.studies.mkdir(parents=True)
    (root.path / "train.py").write_text("print(1)\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "code")
    return root


def lock(root: Root, data: bytes = LOCK) -> None:
    root.lock("tiny").write_bytes(data)


def found(root: Root) -> anchors.Anchor:
    anchor = anchors.anchor(root, "tiny", SHA256)
    assert isinstance(anchor, anchors.Anchor), anchor
    return anchor


@pytest.mark.parametrize("below", ["", "deep/in side"])
def test_an_anchor_says_whether_the_commit_holds_the_lock(below: str, tmp_path: Path) -> None:
    root = repository(tmp_path, below=below)
    lock(root)
    before = found(root)
    assert before.commit == git(tmp_path, "rev-parse", "HEAD")
    assert before.state == GitState(lock="absent", **CLEAN)  # what registering writes is no unfinished work
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "registered")
    after = found(root)
    assert after.commit != before.commit
    assert after.state == GitState(lock="the same bytes", **CLEAN)


def test_other_bytes_in_place_of_the_lock_are_told(tmp_path: Path) -> None:
    root = repository(tmp_path)
    lock(root, b"another\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    lock(root)
    assert found(root).state == GitState(lock="other bytes", **CLEAN)


def test_unfinished_work_is_counted(tmp_path: Path) -> None:
    root = repository(tmp_path)
    (root.path / "train.py").write_text("print(2)\n")
    (root.path / "new.py").write_text("")
    (root.studies / "other.yaml").write_text("")
    lock(root)
    (root.studies / "tiny.0123abcd.2.sig").write_text("")
    assert found(root).state == GitState(clean=False, n_changed=3, lock="absent")


def test_no_repository_no_commit_and_no_git_are_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Root(tmp_path)
    root.studies.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert anchors.anchor(root, "tiny", SHA256) == "the study lies in no git repository"
    git(tmp_path, "init", "-q")
    assert anchors.anchor(root, "tiny", SHA256) == "the git repository has no commit yet"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert anchors.anchor(root, "tiny", SHA256) == "git is not on this machine"
    assert anchors.examine_commit(root, "tiny", "0" * 40, SHA256).state == "unchecked"


def test_a_hook_s_variables_do_not_lead_to_another_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other = repository(tmp_path / "one"), repository(tmp_path / "other")
    git(other.path, "commit", "-q", "--allow-empty", "-m", "more")
    mine = git(root.path, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    assert found(root).commit == mine


def test_a_commit_that_holds_the_lock_holds(tmp_path: Path) -> None:
    root = repository(tmp_path)
    lock(root)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "registered")
    commit = found(root).commit
    opinion = anchors.examine_commit(root, "tiny", commit, SHA256)
    assert (opinion.state, opinion.says) == ("holds", f"commit {commit[:10]} holds the lock, byte for byte")


def test_a_later_commit_that_holds_the_lock_is_found(tmp_path: Path) -> None:
    root = repository(tmp_path)
    lock(root)
    before = found(root).commit
    assert anchors.examine_commit(root, "tiny", before, SHA256).state == "incomplete"
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "registered")
    holder = git(tmp_path, "rev-parse", "HEAD")
    lock(root, b"amended\n")
    git(tmp_path, "commit", "-qam", "amended")
    opinion = anchors.examine_commit(root, "tiny", before, SHA256)
    assert opinion.state == "holds"
    assert holder[:10] in opinion.says


def test_a_commit_with_other_bytes_does_not_hold_the_lock(tmp_path: Path) -> None:
    root = repository(tmp_path)
    lock(root, LOCK.replace(b"\n", b"\r\n"))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "line ends")
    assert anchors.examine_commit(root, "tiny", found(root).commit, SHA256).state == "incomplete"


def test_a_commit_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    root = repository(tmp_path)
    opinion = anchors.examine_commit(root, "tiny", "0123456789" * 4, SHA256)
    assert opinion.state == "broken"
    assert "commit 0123456789, which is not in the repository" in opinion.says


def test_a_shallow_clone_cannot_tell(tmp_path: Path) -> None:
    root = repository(tmp_path / "whole")
    first = found(root).commit
    git(root.path, "commit", "-q", "--allow-empty", "-m", "more")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root.path}", "shallow")
    clone = Root(tmp_path / "shallow")
    assert anchors.examine_commit(clone, "tiny", first, SHA256).state == "unchecked"


@pytest.mark.parametrize("word", ["--help", "HEAD", "main", "", "abc123"])
def test_only_a_full_hash_names_a_commit(word: str, tmp_path: Path) -> None:
    root = repository(tmp_path)
    assert anchors.examine_commit(root, "tiny", word, SHA256).state == "broken"


def test_an_amended_lock_is_found_in_history(tmp_path: Path) -> None:
    root = repository(tmp_path)
    assert anchors.earlier_lock(root, "tiny", SHA256) is None
    lock(root)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "registered")
    lock(root, b"amended\n")
    git(tmp_path, "commit", "-qam", "amended")
    assert anchors.earlier_lock(root, "tiny", SHA256) == LOCK
