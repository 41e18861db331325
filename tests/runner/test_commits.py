"""Arms that are commits: what is pinned, what is refused, and what each run is started from."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from committed_trainer import AFTER, BEFORE, CommitHouse, commits_document
from launchers import Launcher
from own_trainer import OwnHouse
from quiet import QUIET

import ablate as api
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from ablate.workspace import Workspace
from prereg.errors import RegistrationError, SpecError, StudyError
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.history import past_registrations
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, promise_sha256

QUIETLY = Workspace(console=QUIET)


@pytest.fixture
def house(tmp_path: Path, no_own_corpora: None) -> CommitHouse:
    return CommitHouse(tmp_path / "project")


def run(house: CommitHouse, **options: Any) -> None:
    api.run(house.study, RunOptions(slots=2, **options), workspace=QUIETLY)


def registered(house: CommitHouse, **changes: Any) -> Registration:
    return api.register(house.write(**changes), workspace=QUIETLY)[0]


def values(house: CommitHouse) -> dict[tuple[str, int], float]:
    """The sealed val/loss of every run."""
    read = {}
    for path in house.path.glob("data/runs/own/*/*/*/metrics.parquet"):
        rows = RunFolder(path.parent).sealed_rows()
        (value,) = (row.value for row in rows if row.metric == "val/loss")
        read[path.parent.parent.name, int(path.parent.name)] = value
    return read


def test_a_registration_pins_each_commit_and_every_file_of_it(house: CommitHouse) -> None:
    before = house.state()
    registration = registered(house)
    assert {name: pin.commit for name, pin in registration.commits.items()} == {
        "v1": house.git("rev-parse", "v1"),
        "HEAD": house.git("rev-parse", "HEAD"),
    }
    pin = registration.commits["v1"]
    assert pin.tree == house.git("rev-parse", "v1^{tree}")
    assert [(file.path, file.mode) for file in pin.files] == [
        (".gitignore", "100644"),
        ("src/helper.py", "100644"),
        ("train.py", "100644"),
    ]
    script = pin.files[2]
    assert script.sha256 == sha256_bytes(BEFORE.encode())
    assert script.blob == house.git("rev-parse", "v1:train.py")
    assert pin.sha256 == sha256_of({file.path: [file.mode, file.blob, file.sha256] for file in pin.files})
    # Nothing of the user's own moved, but for what a registration writes into studies/.
    assert house.state().splitlines()[1:] == before.splitlines()[1:]
    assert house.git("status", "--porcelain").split() == ["??", "studies/"]
    # What a branch no longer holds stays.
    assert house.git("for-each-ref", "--format=%(refname)", "refs/ablate").split() == sorted(
        f"refs/ablate/own/{pin.commit}" for pin in registration.commits.values()
    )


@pytest.mark.usefixtures("no_reports")
def test_each_run_starts_from_the_files_of_its_arm(house: CommitHouse) -> None:
    house.write()
    run(house)
    # The file that is checked out is that of `after`; `before` is made of another one, and both find the helper in src/
    # of their own commit, which nothing installs.
    sealed = values(house)
    for seed in (1, 2, 3):
        noise = (seed * 7919 % 13) / 1000
        assert sealed["before", seed] == pytest.approx(2.0 - 0.1 + noise * 2.0)
        assert sealed["after", seed] == pytest.approx(1.6 - 0.1 + noise * seed / 2)
    assert api.decide(house.study, workspace=QUIETLY).verdict == "take it"
    assert not list(house.path.glob("data/runs/own/*/*/*/code"))


def refusal(house: CommitHouse, **changes: Any) -> StudyError:
    """What registration says of a study that it refuses, with nothing written."""
    path, refs = house.write(**changes), house.git("for-each-ref")
    with pytest.raises(StudyError) as caught:
        api.register(path, workspace=QUIETLY)
    assert sorted(file.name for file in house.path.glob("studies/*")) == ["own.yaml"]
    assert house.git("for-each-ref") == refs
    return caught.value


def variants(**commits: Any) -> dict[str, Any]:
    return {arm: {"commit": commit} for arm, commit in commits.items()}


def test_a_working_tree_that_is_not_as_committed_is_refused_by_its_files(house: CommitHouse) -> None:
    (house.path / "train.py").write_text(AFTER + "# more\n", encoding="utf-8")
    (house.path / "new.py").write_text("", encoding="utf-8")
    error = refusal(house)
    assert isinstance(error, RegistrationError) and error.where.field == ("variants", "after", "commit")
    assert "train.py, new.py" in error.found or "new.py, train.py" in error.found
    assert "commit: WORKTREE" in error.fix and "git add" in error.fix
    # Where no arm is what is checked out, the working tree is nobody's.
    house.commit("More")
    (house.path / "train.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    registered(house, variants=variants(before="v1", after="HEAD~1"))
    run(house)
    assert len(values(house)) == 6


def test_the_working_tree_is_pinned_as_a_commit_of_its_own(house: CommitHouse) -> None:
    (house.path / "train.py").write_text(AFTER.replace("0.8 *", "0.7 *"), encoding="utf-8")
    (house.path / "src" / "other.py").write_text("", encoding="utf-8")
    (house.path / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (house.path / "run.sh").chmod(0o755)
    (house.path / "src" / "helper.py").unlink()
    (house.path / "helper.py").write_text("level = 2.0\n", encoding="utf-8")
    (house.path / "scratch.log").write_text("", encoding="utf-8")
    with (house.path / ".gitignore").open("a", encoding="utf-8") as stream:
        stream.write("*.log\n")
    house.git("add", "src/other.py")
    before = house.state()
    registration = registered(house, variants=variants(before="v1", after="WORKTREE"))
    assert house.state().splitlines()[-1] == before.splitlines()[-1], "the index is as it was"
    pin = registration.commits["WORKTREE"]
    assert [(file.path, file.mode) for file in pin.files] == [
        (".gitignore", "100644"),
        ("helper.py", "100644"),
        ("run.sh", "100755"),
        ("src/other.py", "100644"),
        ("train.py", "100644"),
    ]
    assert house.git("rev-parse", f"{pin.commit}^") == house.git("rev-parse", "HEAD")
    # It is run from git, whatever becomes of the files, and survives a collection of garbage.
    (house.path / "train.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    house.git("gc", "-q", "--prune=now")
    run(house)
    assert values(house)["after", 1] == pytest.approx(1.4 - 0.1 + (7919 % 13) / 1000 / 2)


def test_a_clean_working_tree_is_the_commit_that_is_checked_out(house: CommitHouse) -> None:
    registration = registered(house, variants=variants(before="v1", after="WORKTREE"))
    assert registration.commits["WORKTREE"].commit == house.git("rev-parse", "HEAD")


def test_checking_a_study_leaves_nothing_in_the_repository(house: CommitHouse) -> None:
    (house.path / "train.py").write_text(AFTER + "# more\n", encoding="utf-8")
    path = house.write(variants=variants(before="v1", after="WORKTREE"))
    before = sorted(house.path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "ablate", "check", str(path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert sorted(house.path.rglob("*")) == before


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("v9", "'v9' is no commit"),
        ("0123456", "'0123456' is no commit"),
        ("v1:train.py", "commit is"),
        ("--help", "commit is"),
        (1234567, "YAML takes for a number"),
        (None, "and 'after' is none"),
    ],
)
def test_what_names_no_commit_is_refused(written: object, says: str, house: CommitHouse) -> None:
    changed = {"before": {"commit": "v1"}, "after": {"lr": 0.2} if written is None else {"commit": written}}
    error = refusal(house, variants=changed)
    assert says in error.found and error.where.line is not None


def test_a_commit_of_all_arms_is_written_once(house: CommitHouse) -> None:
    arms = {"before": {"lr": 0.1}, "after": {"lr": 0.2, "commit": "v1"}}
    registration = registered(house, base={"lr": 0.3, "steps": 4, "commit": "HEAD"}, variants=arms)
    assert {arm: pin.commit for arm in arms if (pin := registration.commit_of(arm))} == {
        "before": house.git("rev-parse", "HEAD"),
        "after": house.git("rev-parse", "v1"),
    }
    assert {arm.name: arm.config for arm in registration.study.arms.values()} == {
        "before": {"lr": 0.1, "steps": 4},
        "after": {"lr": 0.2, "steps": 4},
    }


def test_arms_that_are_the_same_are_refused(house: CommitHouse) -> None:
    house.git("tag", "same")
    error = refusal(house, variants=variants(before="same", after="HEAD"))
    assert "'before' and 'after' are one arm" in error.found


def test_a_commit_that_does_not_hold_the_script_is_refused(house: CommitHouse) -> None:
    house.git("mv", "train.py", "main.py")
    house.commit("Renamed")
    error = refusal(house)
    assert "'train.py', which 'after' is started from, is not in its commit" in error.found


def test_arms_of_the_built_in_trainer_are_no_commits() -> None:
    with pytest.raises(SpecError, match="trainer: gpt"):
        api.load(
            {
                "study": "own", "title": "t", "baseline": "a", "seeds": [1, 2, 3],
                "variants": {"a": {}, "b": {"commit": "v1"}},
                "hypotheses": {"g": {"claim": "b lowers val/loss", "smallest": 0.1}},
                "decision": [{"verdict": "v", "when": "supported(g)"}, {"verdict": "n"}],
            }
        )  # fmt: skip


def submodule(house: CommitHouse) -> None:
    other = CommitHouse(house.path.parent / "other")
    house.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "vendor")


def pointer(house: CommitHouse) -> None:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    (house.path / "weights.bin").write_text(text, encoding="utf-8")


def link(target: str, at: str = "link") -> Any:
    def do(house: CommitHouse) -> None:
        (house.path / at).parent.mkdir(exist_ok=True)
        (house.path / at).symlink_to(target)

    return do


def too_many(house: CommitHouse) -> None:
    (house.path / "many").mkdir()
    for number in range(2001):
        (house.path / "many" / f"{number}.txt").write_text("", encoding="utf-8")


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (submodule, "'vendor' of commit"),
        (pointer, "pointer of Git LFS"),
        (link("/etc/passwd"), "leads out of the root"),
        (link("../outside"), "leads out of the root"),
        (link("../../outside", at="src/deep"), "leads out of the root"),
        (link("src/../../outside"), "leads out of the root"),
        (too_many, "2,004 files"),
    ],
)
def test_what_a_commit_does_not_hold_itself_is_refused(add: Any, says: str, house: CommitHouse) -> None:
    add(house)
    house.commit("More")
    error = refusal(house)
    assert says in error.found and error.fix.startswith("code:")
    # Limited to the code, the study is registered all the same.
    registration = registered(house, code=["src/helper.py"])
    assert [file.path for file in registration.commits["HEAD"].files] == ["src/helper.py", "train.py"]


def test_a_link_within_the_root_is_laid_out(house: CommitHouse) -> None:
    link("src/helper.py", at="helper.py")(house)
    link("../src", at="lib/all")(house)
    house.commit("Links")
    registration = registered(house)
    modes = {file.path: file.mode for file in registration.commits["HEAD"].files}
    assert modes["helper.py"] == modes["lib/all"] == "120000"
    run(house)
    assert len(values(house)) == 6


def test_a_shallow_clone_is_named(house: CommitHouse, tmp_path: Path) -> None:
    document = yaml.safe_load(house.write().read_text())
    clone = tmp_path / "clone"
    house.git("clone", "-q", "--depth", "1", f"file://{house.path}", str(clone))
    (clone / "studies").mkdir()
    (clone / "studies" / "own.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(RegistrationError) as caught:
        api.register(clone / "studies" / "own.yaml", workspace=QUIETLY)
    assert "shallow clone" in caught.value.found and "--unshallow" in caught.value.fix


def test_a_project_without_git_is_named(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(own_house.path.parent))
    with pytest.raises(RegistrationError, match="no git repository"):
        api.register(own_house.write(commits_document()), workspace=QUIETLY)


def test_no_hook_filter_or_replaced_object_is_met(house: CommitHouse, tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "pre-commit"):
        path = house.path / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {trap}\n", encoding="utf-8")
        path.chmod(0o755)
    house.git("config", "core.fsmonitor", str(house.path / ".git" / "hooks" / "fsmonitor-watchman"))
    house.git("-c", "core.fsmonitor=false", "replace", "v1", "HEAD")
    trap.unlink(missing_ok=True)
    house.git("config", "filter.trap.clean", f"touch {trap}; sed s/level/fake/")
    house.git("config", "filter.trap.smudge", f"touch {trap}; sed s/level/fake/")
    (house.path / ".git" / "info" / "attributes").write_text("*.py filter=trap\n", encoding="utf-8")
    trap.unlink(missing_ok=True)
    (house.path / "train.py").write_text(AFTER.replace("0.8 *", "0.7 *"), encoding="utf-8")
    registration = registered(house, variants=variants(before="v1", after="WORKTREE"))
    script = registration.commits["v1"].file("train.py")
    assert script is not None and script.sha256 == sha256_bytes(BEFORE.encode())
    script = registration.commits["WORKTREE"].file("train.py")
    assert script is not None and script.sha256 == sha256_bytes(AFTER.replace("0.8 *", "0.7 *").encode())
    assert not trap.exists()


def test_a_root_below_the_top_of_its_repository(tmp_path: Path, no_own_corpora: None) -> None:
    top = tmp_path / "mono"
    (top / "elsewhere").mkdir(parents=True)
    (top / "elsewhere" / "secret.py").write_text("", encoding="utf-8")
    house = CommitHouse(top / "a project", top=top)
    (house.path / "train.py").write_text(AFTER.replace("0.8 *", "0.7 *"), encoding="utf-8")
    registration = registered(house, variants=variants(before="v1", after="WORKTREE"))
    assert [file.path for file in registration.commits["v1"].files][1:] == ["src/helper.py", "train.py"]
    run(house)
    assert values(house)["after", 1] == pytest.approx(1.4 - 0.1 + (7919 % 13) / 1000 / 2)


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_commits_are_levels_of_factors_and_are_tuned(house: CommitHouse) -> None:
    factors = {
        "code": {"old": {"commit": "v1"}, "new": {"commit": "HEAD"}},
        "rate": {"low": {"lr": 0.1}, "high": {"lr": 0.2}},
    }
    document = commits_document(
        factors=factors,
        baseline="old-low",
        hypotheses={"gain": {"claim": "new-low lowers val/loss", "smallest": 0.05}},
        decision=[{"verdict": "take it", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
    )
    del document["variants"]
    path = house.write(document)
    registration = api.register(path, workspace=QUIETLY)[0]
    assert registration.study.commits == {"old-low": "v1", "old-high": "v1", "new-low": "HEAD", "new-high": "HEAD"}
    path.unlink()
    tuned = commits_document(
        study="tuned", tune={"grid": {"lr": [0.1, 0.2]}, "seeds": [11, 12], "choose_by": "val/loss", "better": "lower"}
    )
    path = house.write(tuned)
    api.run(path, RunOptions(slots=2), workspace=QUIETLY)
    decision = api.decide(path, workspace=QUIETLY)
    assert decision.verdict == "take it"
    pilots = sorted(folder.name for folder in house.path.glob("data/runs/tuned/*/*.*") if folder.is_dir())
    assert pilots == ["after.lr-0.1", "after.lr-0.2", "before.lr-0.1", "before.lr-0.2"]


def test_what_differs_between_commits_is_what_a_run_says_it_was_made_with(house: CommitHouse) -> None:
    registration = registered(house)
    run(house)
    codes = {
        arm: json.loads((house.run_folder(arm, 1) / "run.json").read_text())["provenance"]["code"]
        for arm in ("before", "after")
    }
    assert codes == {arm: registration.code_sha256(arm) for arm in codes} and len(set(codes.values())) == 2


def test_an_unchanged_study_keeps_its_commits_when_a_name_moves(house: CommitHouse) -> None:
    first = registered(house)
    house.script(AFTER + "# more\n")
    house.commit("Later")
    again, entry = api.register(house.study, workspace=QUIETLY)
    assert entry is None and again.commits == first.commits
    run(house)
    house.write(title="Other words")
    reworded, event = api.amend(house.study, reason="clearer", workspace=QUIETLY)
    assert event.event == "reworded" and reworded.commits == first.commits
    # Another name is another commit of that arm, and of no other.
    house.write(title="Other words", variants=variants(before="v1", after="main"))
    amended, event = api.amend(house.study, reason="the newer code", workspace=QUIETLY)
    assert {name: pin.commit for name, pin in amended.commits.items()} == {
        "v1": first.commits["v1"].commit,
        "main": house.git("rev-parse", "HEAD"),
    }
    past = past_registrations(Root(house.path), "own", Ledger(Root(house.path).ledger).entries())
    assert [registration.proven for registration in past] == [True, True]


def test_a_promise_without_commits_has_the_hash_that_it_had(own_house: OwnHouse) -> None:
    registration = own_house.register()
    lock = json.loads((own_house.path / "studies" / "own.lock.json").read_text())
    assert "commits" not in lock
    parts = {
        name: lock.get(name) or None for name in ("corpus", "scripts", "data_files", "data", "tasks", "own_checks")
    }
    promise = {"study": lock["study"], "factor_order": [], **parts}
    assert registration.sha256 == sha256_of(promise | {"run_order": "mirrored_rotation"})
    # Nor does the order of runs move the hash of a promise from before there was one.
    assert promise_sha256({name: part for name, part in lock.items() if name != "run_order"}) == sha256_of(promise)


@pytest.mark.slow
def test_documents_name_the_commits_and_what_changed_between_them(house: CommitHouse) -> None:
    registration = registered(house)
    pin = registration.commits["HEAD"]
    page = (house.path / "studies" / "own.registration.md").read_text(encoding="utf-8")
    assert f"HEAD, `{pin.commit}`" in page and pin.sha256 in page and "| train.py | 1 | 1 |" in page
    assert [(file.path, file.added, file.deleted) for file in registration.code_changes["HEAD"].files] == [
        ("train.py", 1, 1)
    ]
    run(house)
    api.decide(house.study, workspace=QUIETLY)
    report = (house.path / "reports" / "own" / "report.md").read_text(encoding="utf-8")
    assert f"HEAD, commit {pin.commit}" in report and "train.py (+1 −1)" in report
    assert f"the code of commit HEAD ({pin.short})" in report


def test_a_reader_without_the_repository_judges_again(house: CommitHouse, tmp_path: Path) -> None:
    house.write()
    run(house)
    api.decide(house.study, workspace=QUIETLY)
    bundle = api.bundle(house.study, out=tmp_path / "own.ablate.zip").path
    house.path.rename(tmp_path / "gone")
    found = api.verify(bundle)
    items = {item.what: item for item in found.items}
    assert found.intact and not items["commits of arms"].faults
    assert "2 of 2 hold what was registered" in items["commits of arms"].note


def test_a_name_that_moved_is_said_and_harms_nothing(house: CommitHouse) -> None:
    registration = registered(house)
    run(house)
    api.decide(house.study, workspace=QUIETLY)
    house.git("tag", "-f", "v1", "HEAD")
    (item,) = (item for item in api.verify(house.study).items if item.what == "commits of arms")
    assert not item.faults
    assert f"v1 is now {registration.commits['HEAD'].short}, and {registration.commits['v1'].short} counts" in item.note


def test_a_run_is_not_made_of_other_bytes(house: CommitHouse) -> None:
    registration = registered(house)
    script = registration.commits["HEAD"].file("train.py")
    assert script is not None
    loose = house.path / ".git" / "objects" / script.blob[:2] / script.blob[2:]
    loose.chmod(0o644)
    loose.write_bytes(zlib.compress(b"blob 8\0print(1)"))
    with pytest.raises(RegistrationError, match="does not hold the files that were registered"):
        run(house)
    assert not list(house.path.glob("data/runs/own/*/*/*/metrics.parquet"))
    loose.unlink()
    with pytest.raises(RegistrationError, match=r"train\.py of commit .*no whole object"):
        run(house)


def test_a_trainer_that_changes_its_commit_fails(house: CommitHouse) -> None:
    house.script(AFTER + "path = pathlib.Path(__file__)\npath.chmod(0o644)\npath.write_text('')\n")
    house.commit("Changes itself")
    house.write()
    run(house)
    record = json.loads((house.run_folder("after", 1) / "run.json").read_text())
    assert record["status"] == "failed" and "train.py is not the file of its commit" in record["error"]


@pytest.mark.usefixtures("no_reports")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_launcher_starts_a_run_from_its_commit(launcher: Launcher) -> None:
    house = CommitHouse(launcher.house.path)
    house.write()
    api.register(house.study, workspace=QUIETLY)
    launcher.at_once = 2
    launcher.finish()
    noise = {seed: (seed * 7919 % 13) / 1000 for seed in (1, 2, 3)}
    assert values(house) == pytest.approx(
        {("before", seed): 1.9 + 2.0 * noise[seed] for seed in noise}
        | {("after", seed): 1.5 + noise[seed] * seed / 2 for seed in noise}
    )
    assert api.decide(house.study, workspace=QUIETLY).verdict == "take it"


@pytest.mark.usefixtures("no_reports")
def test_looks_of_a_sequential_study_start_from_commits(house: CommitHouse) -> None:
    house.write(seeds=[1, 2, 3, 4, 5, 6], stopping={"looks": [3, 6], "spending": "obrien_fleming"})
    run(house)
    assert len(values(house)) == 6, "the first look needs three seeds"
    assert api.decide(house.study, workspace=QUIETLY).decision.look is not None


def test_a_trial_starts_from_commits(house: CommitHouse) -> None:
    (house.path / "train.py").write_text("raise SystemExit(1)\n", encoding="utf-8")
    path = house.write(variants=variants(before="v1", after="WORKTREE"))
    trial = api.try_out(path, workspace=QUIETLY)
    assert [problem.run for problem in trial.problems] == ["after/4"]
    assert {run.variant: run.status for run in trial.runs} == {"before": "done", "after": "failed"}


@pytest.mark.usefixtures("no_reports")
@pytest.mark.parametrize("exchanged", [False, True])
def test_rows_of_another_program_state_the_commit_of_each_arm(
    exchanged: bool, house: CommitHouse, tmp_path: Path
) -> None:
    registration = registered(house)
    commits = {arm: pin.commit for arm in ("before", "after") if (pin := registration.commit_of(arm))}
    code = dict(zip(commits, reversed(commits.values()), strict=True)) if exchanged else commits
    noise = {1: 0.01, 2: -0.02, 3: 0.015}
    curve = [(step, "train/loss", 3.0 - step / 10) for step in (1, 2, 3, 4)]
    rows = [
        f"{arm},{seed},{step},{metric},{value + noise[seed] * (1 + level)}"
        for arm, level in (("before", 1.9), ("after", 1.5))
        for seed in noise
        for step, metric, value in [*curve, (4, "val/loss", level)]
    ]
    node = tmp_path / "node"
    node.mkdir()
    (node / "metrics.csv").write_text("\n".join(["variant,seed,step,metric,value", *rows]) + "\n", encoding="utf-8")
    now = datetime.now(UTC)
    times = {"started_at": now.isoformat(), "ended_at": (now + timedelta(seconds=1)).isoformat()}
    runs = [{"variant": arm, "seed": seed, **times} for arm in commits for seed in noise]
    manifest = {"registration": registration.sha256, "runs": runs, "code": code}
    (node / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    api.import_runs(house.study, node, note="another program", workspace=QUIETLY)
    decision = api.decide(house.study, workspace=QUIETLY).decision
    (used,) = (check for check in decision.checks if check.name == "every run used the registered code")
    assert used.passed is not exchanged
