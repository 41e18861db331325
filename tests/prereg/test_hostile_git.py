"""Whatever a repository configures, none of its programs is started by what reads it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hostile_git import HostileRepository
from seal_samples import git

from prereg.commits.keeping import keep_commits
from prereg.commits.objects import Repository
from prereg.commits.pins import CommitPin
from prereg.commits.worktree import changed_paths, commit_worktree, scratch_repository
from prereg.errors import RegistrationError
from prereg.registry.paths import Root
from prereg.seals import git as anchors

FILES = {"train.py": "print(1)\n", "notes.txt": "a\n", "README.md": "b\n", "studies/ledger.jsonl": '{"index": 0}\n',
         "studies/tiny.yaml": "study: tiny\n", "studies/tiny.lock.json": "{}\n"}  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> HostileRepository:
    """A repository with two commits that is armed."""
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    for number in (1, 2):
        for name, text in FILES.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text * number, encoding="utf-8")
        git(path, "add", "-A")
        git(path, "commit", "-qm", f"{number}")
    return HostileRepository(path, tmp_path / "traps")


def test_git_itself_meets_the_programs(hostile: HostileRepository) -> None:
    # Without this the tests below could pass because nothing is armed.
    met = {}
    for words in (("status", "--porcelain"), ("log", "-p"), ("cat-file", "-e", "1" * 40), ("rev-parse", "HEAD"),
                  ("update-ref", "refs/x", "HEAD"), ("show", "-s")):  # fmt: skip
        subprocess.run(["git", *words], cwd=hostile.path, capture_output=True, check=False)
        met[words[0]] = " ".join(hostile.sprung())
    assert {verb for verb, calls in met.items() if calls} == {"status", "log", "cat-file", "update-ref", "show"}
    assert "--status-fd" in met["log"] and "--status-fd" in met["show"]  # the signature


def test_the_commit_around_a_registration_is_read_without_a_program(hostile: HostileRepository) -> None:
    root = Root(hostile.path)
    anchor = anchors.anchor(root, "tiny", "0" * 64)
    assert isinstance(anchor, anchors.Anchor) and anchor.state.lock == "other bytes"
    # Files are compared as they lie there, and all are as they were committed.
    assert anchor.state.clean
    assert hostile.sprung() == []
    for commit in (anchor.commit, "1" * 40):
        anchors.examine_commit(root, "tiny", commit, "0" * 64)
    anchors.earlier_lock(root, "tiny", "0" * 64)
    assert anchors.ledger_history(root).taken_back == ()
    assert hostile.sprung() == []


def test_commits_and_the_working_tree_are_read_without_a_program(hostile: HostileRepository) -> None:
    repository = Repository.around(hostile.path)
    assert repository is not None
    head, before = repository.commit_of("HEAD"), repository.commit_of("HEAD~2")
    assert head is not None and before is not None
    assert changed_paths(repository, lambda path: True) == ()
    (hostile.path / "train.py").write_text("print(3)\n", encoding="utf-8")
    assert changed_paths(repository, lambda path: True) == ("train.py",)
    with scratch_repository(repository) as scratch:
        commit = commit_worktree(scratch, lambda path: path.endswith((".py", ".yaml", ".txt", ".md")))
        assert commit != head
        entries = {entry.path: entry for entry in scratch.entries(scratch.tree_of(commit))}
        assert dict(scratch.blobs([entries["train.py"]]))[entries["train.py"]] == b"print(3)\n"
    assert {change.path for change in repository.changes(before, head)} >= set(FILES)
    assert not repository.has("1" * 40)
    assert not repository.is_shallow
    pin = CommitPin.model_construct(commit=head)
    keep_commits(Root(hostile.path), "tiny", {"HEAD": pin})
    assert (hostile.path / ".git" / "refs" / "ablate" / "tiny" / head).is_file()
    assert hostile.sprung() == []


@pytest.mark.parametrize("name", ["filter.a=b.clean", "hook.a=b.command"])
def test_a_filter_that_cannot_be_switched_off_is_refused(name: str, hostile: HostileRepository) -> None:
    # `git -c filter.a=b.clean=` sets `filter.a`, and the filter would run.
    section, _, key = name.rpartition(".")
    kind, _, program = section.partition(".")
    with (hostile.path / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(f'[{kind} "{program}"]\n\t{key} = {hostile.trap.parent / "program"}\n')
    (hostile.path / ".git" / "info" / "attributes").write_text("* filter=a=b\n", encoding="utf-8")
    repository = Repository.around(hostile.path)
    assert repository is not None
    with pytest.raises(RegistrationError, match=f"'{section}'"):
        changed_paths(repository, lambda path: True)
    assert "'filter" in str(anchors.anchor(Root(hostile.path), "tiny", "0" * 64)) or kind == "hook"
    assert hostile.sprung() == []


@pytest.mark.parametrize(("number", "length"), [(201, 1), (1, 200_000)])
def test_more_filters_than_a_command_line_takes_are_refused(
    number: int, length: int, hostile: HostileRepository
) -> None:
    filters = "".join(
        f'[filter "{"x" * length}{at}"]\n\tclean = {hostile.trap.parent}/program\n' for at in range(number)
    )
    with (hostile.path / ".git" / "config").open("a", encoding="utf-8") as config:
        config.write(filters)
    assert isinstance(anchors.anchor(Root(hostile.path), "tiny", "0" * 64), str)
    assert hostile.sprung() == []


def test_settings_do_not_shorten_the_history_of_the_ledger(tmp_path: Path) -> None:
    for setting in ("log.showRoot=false", "log.diffMerges=first-parent", "log.follow=true"):
        path = tmp_path / setting
        (path / "studies").mkdir(parents=True)
        git(path, "init", "-q", "-b", "main")
        line = (Path(__file__).parent / "../../studies/ledger.jsonl").read_text(encoding="utf-8").splitlines()[0]
        (path / "studies" / "ledger.jsonl").write_text(f"{line}\n", encoding="utf-8")
        git(path, "add", "-A")
        git(path, "commit", "-qm", "an entry")
        git(path, "config", *setting.split("="))
        (path / "studies" / "ledger.jsonl").write_text("", encoding="utf-8")
        assert len(anchors.ledger_history(Root(path)).taken_back) == 1, setting


def test_no_other_place_calls_git() -> None:
    root = Path(__file__).parents[2]
    for package in ("prereg", "ablate"):
        for path in (root / package).rglob("*.py"):
            if path.relative_to(root) != Path("prereg", "git.py"):
                text = path.read_text(encoding="utf-8")
                assert '["git"' not in text and 'Program(\n    "git"' not in text, os.fspath(path)
