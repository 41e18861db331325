"""Two people, two branches, one ledger: real git merges of decided studies; and what git's history of it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ledger_samples import enter
from own_trainer import AT, OwnHouse, own_document
from seal_samples import git
from test_cli import ablate

import ablate as api
from ablate import deciding
from ablate.verification.result import Verification
from ablate.verification.verify import verify_target
from ablate.workspace import Workspace, require_registered
from prereg.errors import LedgerError, RegistrationError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Event
from prereg.registry.paths import Root
from prereg.registry.registration import Registration
from prereg.seals.git import ledger_history

RATES = {"first": (0.1, 0.4), "mine": (0.11, 0.5), "theirs": (0.12, 0.6), "later": (0.13, 0.7)}


class Repository:
    """A git repository of studies; runs are in no version control, and stay where they are on every branch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.house = folder, OwnHouse(folder)
        self.root = Root(folder.resolve())
        self.ledger = Ledger(self.root.ledger)
        (folder / ".gitignore").write_text("data/\n")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *words: str) -> str:
        return git(self.folder, *words)

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", "work")
        return self.git("rev-parse", "HEAD")

    def path(self, name: str) -> Path:
        return self.folder / "studies" / f"{name}.yaml"

    def register(self, name: str) -> Registration:
        slow, fast = RATES[name]
        variants = {"slow": {}, "fast": {"lr": fast}}
        return self.house.register(own_document(study=name, base={"lr": slow, "steps": 4}, variants=variants))

    def log(self, name: str, event: Event, body: dict[str, object]) -> None:
        registration = next(e.registration for e in reversed(self.ledger.entries()) if e.study == name)
        enter(self.ledger, event, body, study=name, registration=registration, at=AT)

    def study(self, name: str) -> str:
        """Register a study, make its runs and decide it; its verdict."""
        self.house.make_runs(self.register(name))
        return self.decide(name)

    def decide(self, name: str) -> str:
        decision = api.decide(self.path(name)).decision
        return decision.verdict or decision.status

    def verified(self, name: str) -> Verification:
        return verify_target(self.path(name))

    def faults(self, name: str) -> list[str]:
        return [fault for item in self.verified(name).items for fault in item.faults]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`main` with two decided studies, `first` and `mine`; `other` with `first` and `theirs`."""
    repository = Repository(tmp_path_factory.mktemp("branches") / "house")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deciding, "pages", lambda *_: {})
        assert repository.study("first") == "take fast"
        repository.commit()
        repository.git("checkout", "-qb", "other")
        assert repository.study("theirs") == "take fast"
        repository.commit()
        repository.git("checkout", "-q", "main")
        assert repository.study("mine") == "take fast"
        repository.commit()
    return repository.folder


@pytest.fixture
def repository(made: Path, tmp_path: Path, no_reports: None) -> Repository:
    copy = Repository.__new__(Repository)
    copy.folder = tmp_path / "house"
    copy.house = OwnHouse(copy.folder, of=made)
    copy.root = Root(copy.folder.resolve())
    copy.ledger = Ledger(copy.root.ledger)
    return copy


@pytest.mark.slow
def test_both_studies_keep_their_verdicts_after_a_merge(repository: Repository) -> None:
    repository.git("merge", "-q", "--no-edit", "other")
    names = ("first", "mine", "theirs")
    assert [repository.faults(name) for name in names] == [[], [], []]
    judged = {item.study: item.note for item in verify_target(folder=repository.folder).items if "judged" in item.what}
    assert judged == dict.fromkeys(names, "take fast; the same bytes")
    assert [repository.decide(name) for name in names] == ["take fast"] * 3
    repository.house.register(own_document(study="later"))  # the first entry after the merge joins the branches
    (joined,) = [entry for entry in repository.ledger.entries() if entry.joins]
    assert joined.study == "later"
    assert [repository.faults(name) for name in names] == [[], [], []]
    assert verify_target(repository.path("later"), repository.folder).intact
    chain = repository.verified("mine").items[0]
    assert chain.note.endswith("entries of branches that were merged (1 joined)")


def test_a_bundle_of_a_study_that_began_with_the_merge_holds_in_a_fresh_place(
    repository: Repository, tmp_path: Path
) -> None:
    repository.git("merge", "-q", "--no-edit", "other")
    registration = repository.register("later")
    (joined,) = [entry for entry in repository.ledger.entries() if entry.joins]
    assert joined.study == "later"
    # Entries of others between those of this study: its slice shows them as links alone.
    repository.log("theirs", "peeked", {"reason": "a grant"})
    repository.house.make_runs(registration)
    assert repository.decide("later") == "take fast"
    bundled = api.bundle(repository.path("later"), out=tmp_path / "later.ablate.zip")
    fresh = tmp_path / "elsewhere" / "theirs.ablate.zip"
    fresh.parent.mkdir()
    shutil.copy(bundled.path, fresh)
    checked = verify_target(fresh, fresh.parent)
    assert checked.intact, [item.faults for item in checked.items]
    (chain,) = [item for item in checked.unchecked if item.what == "entries of other studies"]
    assert "withheld but for links" in chain.unchecked
    (judged,) = [item.note for item in checked.items if "judged" in item.what]
    assert judged == "take fast; the same bytes"


def test_a_side_that_a_conflict_left_out_is_named_and_comes_back(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.git("merge", "-q", "--no-commit", "other")
    whole = sorted(repository.ledger.path.read_bytes().splitlines())
    repository.git("checkout", "HEAD", "--", "studies/ledger.jsonl")
    commit = repository.commit()
    before = repository.ledger.path.read_bytes()
    said = "no entry of ledger.jsonl registers 'theirs': its entries are on another branch, or were cut off"
    path = repository.path("theirs")
    for verb in ("register", "decide", "check", "run", "status"):
        assert ablate(monkeypatch, verb, path) == 2, verb
        shown = " ".join(capsys.readouterr().err.split())
        assert said in shown, verb
        assert "git show BRANCH:./studies/ledger.jsonl | grep -vxFf studies/ledger.jsonl" in shown
    assert repository.ledger.path.read_bytes() == before
    faults = repository.faults("theirs")
    assert any(fault.startswith("taken back: decided of 'theirs' at ") for fault in faults), faults
    assert ablate(monkeypatch, "verify", path) == 4
    assert repository.faults("mine") == []
    with pytest.raises(RegistrationError) as error:
        api.register(path)
    command = error.value.fix.split("   (")[0].replace("BRANCH", f"{commit}^2")
    subprocess.run(command, shell=True, check=True, cwd=repository.folder)  # noqa: S602
    assert sorted(repository.ledger.path.read_bytes().splitlines()) == whole
    assert [repository.faults(name) for name in ("first", "mine", "theirs")] == [[], [], []]


def test_a_study_that_two_branches_amended_has_no_verdict(repository: Repository) -> None:
    repository.log("first", "peeked", {"reason": "here"})
    repository.commit()
    repository.git("checkout", "-q", "other")
    repository.log("first", "breached", {})
    repository.commit()
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-edit", "other")
    (fault,) = [fault for fault in repository.faults("first") if "two branches" in fault]
    assert "'first' was continued on two branches (" in fault
    assert "git merge --abort" in fault
    assert repository.decide("first") == "inadmissible"
    assert [repository.faults(name) for name in ("mine", "theirs")] == [[], []]
    assert [repository.decide(name) for name in ("mine", "theirs")] == ["take fast"] * 2


def take_back(repository: Repository, name: str) -> None:
    """Cut the ledger back to a registration, delete the runs and make them again."""
    rows = repository.ledger.path.read_bytes().splitlines(keepends=True)
    last = max(n for n, row in enumerate(rows) if b'"event":"registered"' in row and f'"{name}"'.encode() in row)
    repository.ledger.path.write_bytes(b"".join(rows[: last + 1]))
    shutil.rmtree(repository.root.all_runs(name))
    shutil.rmtree(repository.root.report(name))
    registration = require_registered(Workspace().open(repository.path(name)))
    repository.house.make_runs(registration)


@pytest.mark.slow
def test_a_rollback_is_named_by_git_and_leaves_no_verdict(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = repository.git("rev-parse", "HEAD")
    take_back(repository, "mine")
    path = repository.path("mine")
    assert ablate(monkeypatch, "verify", path) == 4
    assert "taken back: decided" in " ".join(capsys.readouterr().out.split())
    decision = api.decide(path).decision
    assert decision.status == "inadmissible"
    (check,) = [check for check in decision.checks if check.name.startswith("the ledger and the registration")]
    assert not check.passed
    assert "taken back: decided of 'mine' at " in check.found
    assert f", commit {commit[:7]}; taken back: " in check.found
    assert "more entries were taken back; git show " in check.found
    assert repository.decide("first") == "take fast"
    repository.commit()  # nor does a commit of what is left hide it
    assert any("taken back" in fault for fault in repository.faults("mine"))
    assert not any("taken back" in fault for fault in repository.faults("first"))


def test_lines_brought_back_beside_runs_made_again_are_two_branches_of_a_study(repository: Repository) -> None:
    commit = repository.git("rev-parse", "HEAD")
    take_back(repository, "mine")
    command = f"git show {commit}:./studies/ledger.jsonl | grep -vxFf studies/ledger.jsonl >> studies/ledger.jsonl"
    subprocess.run(command, shell=True, check=True, cwd=repository.folder)  # noqa: S602
    (fault,) = [fault for fault in repository.faults("mine") if "two branches" in fault]
    assert fault
    assert repository.decide("mine") == "inadmissible"


def test_what_cannot_be_compared_with_git_is_said(repository: Repository, tmp_path: Path) -> None:
    assert "history of the ledger" not in {item.what for item in repository.verified("mine").unchecked}
    assert ledger_history(repository.root).not_compared == ""
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository.folder}", str(shallow))
    item = next(item for item in verify_target(shallow / "studies" / "mine.yaml").unchecked)
    assert (item.what, item.unchecked) == ("history of the ledger", "this clone is shallow")
    assert item.fix == "git fetch --unshallow"
    assert ledger_history(Root(shallow)).taken_back == ()
    shutil.rmtree(repository.folder / ".git")
    item = next(item for item in repository.verified("mine").unchecked)
    assert (item.what, item.unchecked) == ("history of the ledger", "the study lies in no git repository")
    repository.git("init", "-q")
    assert ledger_history(repository.root).not_compared == "the git repository has no commit yet"
    repository.git("commit", "-q", "--allow-empty", "-m", "x")
    assert ledger_history(repository.root).not_compared == "no commit holds the ledger"


def test_a_study_below_the_top_of_a_repository_is_compared_too(made: Path, tmp_path: Path, no_reports: None) -> None:
    shutil.copytree(made, tmp_path / "deep" / "in side", ignore=shutil.ignore_patterns(".git"))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "all")
    root = Root(tmp_path / "deep" / "in side")
    assert ledger_history(root).taken_back == ()
    rows = root.ledger.read_bytes().splitlines(keepends=True)
    root.ledger.write_bytes(b"".join(rows[:-1]))
    (gone,) = ledger_history(root).taken_back
    assert gone.entry == Ledger(made / "studies" / "ledger.jsonl").entries()[-1]


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "several-people.md"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["merge", "conflict", "left out"])
def test_the_commands_of_the_page_do_what_it_says(repository: Repository, case: str) -> None:
    merge, conflict, left_out = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    commands = {"merge": merge, "conflict": conflict, "left out": left_out}[case]
    if case == "conflict":
        (repository.folder / ".git" / "info" / "attributes").write_text("ledger.jsonl merge=text\n")
        with pytest.raises(subprocess.CalledProcessError):
            repository.git("merge", "--no-edit", "other")
    if case == "left out":
        repository.git("merge", "-q", "--no-commit", "other")
        repository.git("checkout", "HEAD", "--", "studies/ledger.jsonl")
        repository.commit()
    # Reports were not drawn here; what else is frozen holds.
    program = f'ablate() {{ "{sys.executable}" -m ablate "$@"; }}\n'
    who = {f"GIT_{role}_{what}": "ada@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = os.environ | who | {"PYTHONPATH": str(PAGE.parents[2])}
    script = "set -eo pipefail\n" + program + commands.replace("BRANCH", "other")
    done = subprocess.run(
        ["bash", "-c", script], cwd=repository.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {entry.study for entry in repository.ledger.entries()} == {"first", "mine", "theirs"}


def test_the_line_that_merges_ledgers_is_added_to_a_user_s_own_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house = OwnHouse(tmp_path / "house")
    attributes = house.path / "studies" / ".gitattributes"
    attributes.write_text("# mine")
    house.register()
    assert attributes.read_text() == "# mine"  # no git here
    git(house.path, "init", "-q")
    house.register(own_document(study="second"))
    assert attributes.read_text() == "# mine\nledger.jsonl merge=union\n"
    attributes.write_text("# mine\n")
    assert ablate(monkeypatch, "register", house.write(study="said")) == 0
    assert "added to studies/.gitattributes: ledger.jsonl merge=union" in capsys.readouterr().out
    assert attributes.read_text() == "# mine\nledger.jsonl merge=union\n"
    attributes.write_text("ledger.jsonl merge=ours\n")
    house.register(own_document(study="third"))
    assert attributes.read_text() == "ledger.jsonl merge=ours\n"  # whoever wrote it knows why
    assert git(house.path, "check-attr", "merge", "studies/ledger.jsonl").endswith("merge: ours")


def test_a_study_error_is_what_a_user_sees_of_a_conflict(repository: Repository) -> None:
    data = repository.ledger.path.read_bytes()
    repository.ledger.path.write_bytes(b"<<<<<<< HEAD\n" + data)
    with pytest.raises(LedgerError, match="line 1: is a mark that git leaves in a conflict"):
        repository.log("mine", "peeked", {})
    assert any("a mark that git leaves in a conflict" in fault for fault in repository.faults("mine"))


def test_a_study_that_was_removed_with_every_trace_but_git_s_is_named(repository: Repository) -> None:
    rows = repository.ledger.path.read_bytes().splitlines(keepends=True)
    repository.ledger.path.write_bytes(b"".join(row for row in rows if b'"study":"mine"' not in row))
    repository.root.lock("mine").unlink()
    repository.path("mine").unlink()
    shutil.rmtree(repository.root.report("mine"))
    assert any(
        fault.startswith("taken back: decided of 'mine'")
        for item in verify_target(folder=repository.folder).items
        for fault in item.faults
        if item.study == "mine"
    )
    assert repository.faults("mine")
    assert repository.faults("first") == []
