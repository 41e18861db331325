"""`ablate gate` knows a comparison by what its arms start from: real histories of git, and what lies uncommitted."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from test_cli import ablate
from test_gate import OTHER_NOISE, Repository
from test_gate import repository as repository_of_a_gate

from ablate import verify
from ablate.cli.options import Exit
from ablate.judge.decide import decide
from ablate.records.gather import gather
from prereg.metrics.catalogue import METRICS
from prereg.registry.compared import compared_of, faults_of_comparison, seeds_of_comparison
from prereg.registry.ledger_entry import RegisteredEntry
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration
from prereg.study.load import load_study

__all__ = ["repository_of_a_gate"]

RENAMED = {"seed = int": "number = int", "seed)": "number)", "{seed}": "{number}"}
"""Another text that trains the same to the bit."""


@pytest.fixture
def gates(repository_of_a_gate: Repository) -> Repository:
    return repository_of_a_gate


def registrations(repository: Repository) -> list[dict[str, object]]:
    return [entry for entry in repository.ledger() if entry["event"] == "registered"]


def amended(repository: Repository, message: str) -> str:
    """The hash of HEAD with another message."""
    before = repository.git("rev-parse", "HEAD")
    repository.git("commit", "-q", "--amend", "-m", message)
    after = repository.git("rev-parse", "HEAD")
    assert before != after
    return after


@pytest.mark.slow
def test_no_rewritten_history_of_the_same_files_is_compared_anew(gates: Repository, tmp_path: Path) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    code, facts = gates.gate()
    before = gates.ledger()
    seeds = load_study(Path(facts["study"])).study.seeds
    assert (code, facts["earlier_comparisons"], len(seeds)) == (Exit.OK, None, 4)
    # Another message; a rebase onto a main that gained other files; two commits squashed into one of the same files.
    amended(gates, "another message")
    histories = {"amend": gates.git("rev-parse", "HEAD")}
    gates.git("checkout", "-q", "main")
    (gates.path / "README").write_text("main gained a file that no run starts from", encoding="utf-8")
    gates.git("add", "README")
    gates.git("commit", "-q", "-m", "more")
    gates.git("checkout", "-q", "feature")
    gates.git("rebase", "-q", "main")
    histories["rebase"] = gates.git("rev-parse", "HEAD")
    gates.commit({'"another order"': '"a third order"'}, branch="steps")
    gates.commit({'"a third order"': '"another order"'})
    histories["two steps"] = gates.git("rev-parse", "HEAD")
    gates.git("checkout", "-q", "main")
    gates.git("checkout", "-q", "-b", "squashed")
    gates.git("merge", "-q", "--squash", "steps")
    gates.git("commit", "-q", "-m", "squashed")
    histories["squash"] = gates.git("rev-parse", "HEAD")
    summary = tmp_path / "summary.md"
    assert len({*histories.values()}) == 4
    for how, head in histories.items():
        again, other = gates.gate("--base", "main", "--head", head, "--summary", str(summary))
        assert (again, other["study"], other["answer"]) == (code, facts["study"], facts["answer"]), how
        assert other["head"]["commit"] == head
        assert "the same files and settings" in summary.read_text(encoding="utf-8")
    assert gates.ledger() == before


@pytest.mark.slow
def test_an_unfinished_comparison_goes_on_after_an_amend(gates: Repository) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    gates.stop.touch()
    code, facts = gates.gate()
    assert (code, facts["answer"]) == (Exit.INCOMPLETE, "unfinished")
    gates.stop.unlink()
    amended(gates, "another message")
    _, whole = gates.gate()
    assert (whole["answer"], whole["study"]) == ("equivalent", facts["study"])
    assert len(registrations(gates)) == 1


@pytest.mark.slow
def test_seeds_follow_from_a_nonce_that_the_ledger_holds_and_verify_checks(gates: Repository) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    _, facts = gates.gate()
    study, (entry,) = Path(facts["study"]), registrations(gates)
    compared = entry["body"]["compared"]  # type: ignore[index]
    assert (compared["gate"], compared["attempt"], len(compared["nonce"])) == ("harmless", 1, 32)
    assert load_study(study).study.seeds == seeds_of_comparison(compared["nonce"], 4)
    assert ablate(gates.monkeypatch, "verify", study) == Exit.OK


@pytest.mark.parametrize("is_drawn", [True, False])
def test_two_ledgers_draw_other_seeds_for_the_same_commits(
    is_drawn: bool, gates: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known before the contents are fixed says nothing of the seeds, unless the study lists them."""
    monkeypatch.undo()
    monkeypatch.chdir(gates.path)
    if not is_drawn:
        gates.write(seeds=[3, 5, 7, 11])
        gates.commit(branch="listed")
    gates.commit(OTHER_NOISE, branch="feature")
    gates.stop.touch()  # registered, and no run ends
    seeds = []
    for _ in range(2):
        _, facts = gates.gate("--base", "main", "--head", "feature")
        seeds.append(load_study(Path(facts["study"])).study.seeds)
        (entry,) = registrations(gates)
        assert ("nonce" in entry["body"]["compared"]) == is_drawn  # type: ignore[index]
        for place in (gates.path / "studies").glob("harmless-*"):
            place.unlink()
        (gates.path / "studies" / "ledger.jsonl").unlink()
        shutil.rmtree(gates.path / "data")
    assert (seeds[0] != seeds[1]) == is_drawn
    assert is_drawn or seeds[0] == (3, 5, 7, 11)


@pytest.mark.slow
def test_other_heads_of_one_base_are_counted_however_small_their_change(gates: Repository, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    noisy = OTHER_NOISE | {"0.01": "0.2"}
    gates.commit(noisy, branch="first")
    assert gates.gate()[1]["answer"] == "undecided"
    gates.commit({"import json, os": "import json,  os"})
    _, second = gates.gate()
    assert (second["earlier_comparisons"], second["earlier_with_this_base"]) == ([], {"undecided": 1})
    gates.commit({"import json,  os": "import json,   os"})
    # A knob of the settings, or another name of the gate, changes neither the base nor the count.
    gates.write(study="renamed", base={"steps": 1, "unused": 1})
    (gates.path / gates.study).rename(gates.path / "studies" / "renamed.yaml")
    assert ablate(gates.monkeypatch, "gate", "studies/renamed.yaml", "--jobs", "1", "--summary", summary) in (0, 3, 9)
    text = summary.read_text(encoding="utf-8")
    assert re.search(r"2 earlier comparisons of other heads with this base: (1 better, )?[12] undecided", text), text
    assert "The first comparison of these contents in the ledger that is here" in text


@pytest.mark.slow
def test_a_fresh_clone_does_not_know_of_earlier_comparisons_until_it_has_the_record(
    gates: Repository, tmp_path: Path
) -> None:
    """As in CI: clone, compare, throw away; then force-push the same files under another hash, and clone again."""
    gates.commit(OTHER_NOISE, branch="feature")
    origin = gates.path
    words = ("--base", "origin/main", "--head", "HEAD")
    studies, heads = [], []
    for name in ("one", "two", "three"):
        gates.path = tmp_path / name
        gates.monkeypatch.chdir(tmp_path)
        gates.git_in(tmp_path, "clone", "-q", "-b", "feature", f"file://{origin}", name)
        gates.monkeypatch.chdir(gates.path)
        heads.append(gates.git("rev-parse", "HEAD"))
        if name == "three":
            for folder in ("studies", "data", "reports"):
                shutil.copytree(tmp_path / "two" / folder, gates.path / folder, dirs_exist_ok=True)
        code, facts = gates.gate(*words)
        assert (code, facts["answer"], facts["earlier_comparisons"]) == (Exit.OK, "equivalent", None)
        studies.append(facts["study"])
        # The clone's commit is replaced, so that no later clone has it.
        gates.path = origin
        gates.git("commit", "-q", "--amend", "-m", f"after {name}")
        gates.path = tmp_path / name
    assert len({*heads}) == 3 and len({*studies}) == 1
    # The third clone has two's record, and neither another run nor another registration. Its commit is gone, and
    # nothing that was compared.
    assert len(registrations(gates)) == 1
    found = verify(gates.path / studies[0])
    (item,) = (item for item in found.items if item.what == "commits of arms")
    assert found.intact and f"commit {heads[1][:10]} is gone, and other commits hold its files" in item.note


@pytest.mark.slow
def test_a_record_without_its_commit_is_run_on_where_other_commits_hold_the_files(
    gates: Repository, tmp_path: Path
) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    gates.stop.touch()
    _, facts = gates.gate()
    gates.stop.unlink()
    origin = gates.path
    amended(gates, "pushed by force")
    gates.git_in(tmp_path, "clone", "-q", "-b", "feature", f"file://{origin}", "clone")
    gates.path = tmp_path / "clone"
    gates.monkeypatch.chdir(gates.path)
    shutil.copytree(origin / "studies", gates.path / "studies", dirs_exist_ok=True)
    shutil.copytree(origin / "data", gates.path / "data")
    _, whole = gates.gate("--base", "origin/main")
    assert (whole["answer"], whole["study"]) == ("equivalent", facts["study"])


def test_a_shallow_clone_that_lacks_base_is_refused_whatever_is_on_record(gates: Repository, tmp_path: Path) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    gates.git_in(tmp_path, "clone", "-q", "--depth", "1", "-b", "feature", f"file://{gates.path}", "clone")
    gates.path = tmp_path / "clone"
    gates.monkeypatch.chdir(gates.path)
    assert "fetch-depth: 0" in gates.refused()


def test_a_study_of_that_name_that_was_registered_by_hand_is_no_comparison(gates: Repository) -> None:
    """With seeds that somebody chose: the gate neither takes it up nor writes over it."""
    gates.commit(OTHER_NOISE, branch="feature")
    gates.stop.touch()
    _, facts = gates.gate()
    study = gates.path / facts["study"]
    text = study.read_text(encoding="utf-8")
    for path in (gates.path / "studies").glob("harmless-*"):
        path.unlink()
    (gates.path / "studies" / "ledger.jsonl").unlink()
    shutil.rmtree(gates.path / "data")
    study.write_text(with_seeds(text, 1, 2, 3, 4), encoding="utf-8")
    assert ablate(gates.monkeypatch, "register", study) == Exit.OK
    gates.capsys.readouterr()
    assert "is registered, by another call just now or by hand" in gates.refused()


def with_seeds(text: str, *seeds: int) -> str:
    """A study's file with other seeds."""
    document = yaml.safe_load(text)
    assert len(document["seeds"]) == len(seeds) and tuple(document["seeds"]) != seeds
    return yaml.safe_dump(document | {"seeds": [*seeds]}, sort_keys=False)


def test_an_interrupted_registration_leaves_no_study_and_no_seeds(
    gates: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    before = gates.files()

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ablate.registering.prepare", stop)
    assert ablate(gates.monkeypatch, "gate", gates.study) == Exit.INTERRUPTED
    assert {path for path in gates.files() if not path.endswith(".lock")} == {*before}


def test_chosen_seeds_are_called_so(gates: Repository, tmp_path: Path) -> None:
    gates.write(seeds=[3, 5, 7, 11])
    gates.commit(branch="listed")
    gates.commit(OTHER_NOISE, branch="feature")
    gates.stop.touch()
    summary = tmp_path / "summary.md"
    gates.gate("--base", "listed", "--summary", str(summary))
    assert "its seeds are listed in the study: chosen, not drawn" in summary.read_text(encoding="utf-8")


EDITS = ["unstaged", "staged", "assumed unchanged", "skipped", "deleted", "untracked"]


@pytest.mark.parametrize("how", EDITS)
@pytest.mark.parametrize("base", ["main", "HEAD"])
def test_a_tree_that_differs_from_head_gets_no_answer(how: str, base: str, gates: Repository) -> None:
    """Also where base and head are one commit, so that there would be nothing to run."""
    gates.write(code=["train.py", "model"])
    (gates.path / "model").mkdir()
    (gates.path / "model" / "net.py").write_text("width = 1\n", encoding="utf-8")
    gates.git("add", "model")
    gates.commit(OTHER_NOISE, branch="feature")
    script, at = gates.path / "train.py", "train.py"
    if how in ("assumed unchanged", "skipped"):
        gates.git("update-index", {"assumed unchanged": "--assume-unchanged"}.get(how, "--skip-worktree"), "train.py")
    if how == "untracked":
        at = "model/new.py"
        (gates.path / at).write_text("width = 2\n", encoding="utf-8")
    elif how == "deleted":
        at = "model/net.py"
        (gates.path / at).unlink()
    else:
        script.write_text(script.read_text(encoding="utf-8").replace("0.0,", "5.0,"), encoding="utf-8")
    if how == "staged":
        gates.git("add", "train.py")
    refusal = gates.refused("--base", base, "--head", "HEAD")
    assert f"{at} differs from it" in refusal and "--head WORKTREE" in refusal


def test_a_decided_comparison_is_not_shown_for_other_files(gates: Repository) -> None:
    gates.commit(OTHER_NOISE, branch="feature")
    gates.stop.touch()
    assert gates.gate()[0] == Exit.INCOMPLETE
    script = gates.path / "train.py"
    script.write_text(script.read_text(encoding="utf-8") + "# edited\n", encoding="utf-8")
    assert "train.py differs from it" in gates.refused()


@pytest.mark.slow
def test_the_working_tree_is_a_head_and_its_commit_finds_the_same_comparison(gates: Repository) -> None:
    script = gates.path / "train.py"
    text = script.read_text(encoding="utf-8")
    for old, new in (OTHER_NOISE | {"SHIFT, NOISE, SD = 0.0": "SHIFT, NOISE, SD = 0.3"}).items():
        text = text.replace(old, new)
    script.write_text(text, encoding="utf-8")
    words = ("--base", "HEAD", "--head", "WORKTREE")
    code, facts = gates.gate(*words)
    assert (code, facts["answer"]) == (Exit.WORSE, "worse")
    assert gates.gate(*words) == (code, facts)
    base = gates.git("rev-parse", "HEAD")
    gates.commit(branch="feature")
    again, committed = gates.gate("--base", base)
    assert (again, committed["study"], committed["answer"]) == (code, facts["study"], "worse")
    assert len(registrations(gates)) == 1


def test_the_same_code_names_what_changed_outside_of_it(gates: Repository, tmp_path: Path) -> None:
    (gates.path / "helper.py").write_text("width = 1\n", encoding="utf-8")
    gates.git("add", "helper.py")
    gates.commit(branch="outside")
    (gates.path / "imported.py").write_text("width = 2\n", encoding="utf-8")
    summary = tmp_path / "summary.md"
    code, facts = gates.gate("--summary", str(summary))
    assert (code, facts["answer"]) == (Exit.OK, "same code")
    assert facts["not_compared"] == ["helper.py", "imported.py (not committed)"]
    text = summary.read_text(encoding="utf-8")
    assert "helper.py and imported.py (not committed): changed, and no file that a run is started from" in text


def test_a_module_that_git_does_not_know_is_part_of_the_working_tree(gates: Repository) -> None:
    """Without `code:` every file is what runs start from, and so is one that was never added."""
    study = gates.path / gates.study
    study.write_text(study.read_text(encoding="utf-8").replace("code:\n- train.py\n", ""), encoding="utf-8")
    gates.commit(branch="whole")
    (gates.path / "imported.py").write_text("width = 2\n", encoding="utf-8")
    assert "imported.py differs from it" in gates.refused("--base", "HEAD", "--head", "HEAD")


def test_a_submodule_that_changed_is_named(gates: Repository, tmp_path: Path) -> None:
    other = tmp_path / "library"
    other.mkdir()
    gates.git_in(other, "init", "-q", "-b", "main")
    gates.git_in(other, "commit", "-q", "--allow-empty", "-m", "one")
    gates.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{other}", "library")
    gates.git("commit", "-q", "-m", "a submodule")
    base = gates.git("rev-parse", "HEAD")
    gates.git_in(gates.path / "library", "commit", "-q", "--allow-empty", "-m", "two")
    _, facts = gates.gate("--base", base, "--head", "HEAD")
    assert facts["not_compared"] == ["library (not committed)"]
    gates.git("commit", "-q", "-a", "-m", "the submodule moved")
    _, facts = gates.gate("--base", base, "--head", "HEAD")
    assert (facts["answer"], facts["not_compared"]) == ("same code", ["library"])


def test_line_ends_that_git_converts_are_no_change(gates: Repository) -> None:
    (gates.path / ".gitattributes").write_text("train.py text eol=crlf\n", encoding="utf-8")
    gates.git("add", ".gitattributes")
    gates.commit(branch="converted")
    (gates.path / "train.py").unlink()
    gates.git("checkout", "--", "train.py")
    assert b"\r\n" in (gates.path / "train.py").read_bytes()
    assert gates.gate("--base", "HEAD", "--head", "HEAD")[1]["answer"] == "same code"


@pytest.mark.slow
def test_seeds_that_do_not_follow_from_the_nonce_are_found(gates: Repository) -> None:
    """A ledger that says another nonce than gave the seeds, or other contents than the lock: hashes made anew, too."""
    gates.commit(OTHER_NOISE, branch="feature")
    _, facts = gates.gate()
    name, root = Path(facts["study"]).stem, Root.find(Path(facts["study"]))
    registration = load_registration(root, name)
    assert registration is not None
    evidence = gather(root, registration)
    first, *others = evidence.ledger
    compared = compared_of([first], name)
    assert isinstance(first, RegisteredEntry) and compared is not None
    assert not [*faults_of_comparison(registration, [first])]
    forgeries = {
        "not those that follow from the nonce": compared.model_copy(update={"nonce": "f" * 32}),
        "head starts from other files": compared.model_copy(update={"head": compared.base}),
    }
    for words, forged in forgeries.items():
        entry = first.model_copy(update={"compared": forged})
        (fault,) = faults_of_comparison(registration, [entry])
        assert words in fault
        decision = decide(registration, replace(evidence, ledger=(entry, *others)))
        assert decision.status == "inadmissible" and words in decision.because and decision.verdict is None
    # Seeds that an amendment chose do not follow either.
    text = (gates.path / facts["study"]).read_text(encoding="utf-8")
    (gates.path / facts["study"]).write_text(with_seeds(text, 1, 2, 3, 4), encoding="utf-8")
    assert ablate(gates.monkeypatch, "amend", facts["study"], "--reason", "a lucky seed", "--yes") == Exit.OK
    assert ablate(gates.monkeypatch, "verify", facts["study"]) == Exit.INADMISSIBLE
    assert "not those that follow from the nonce" in " ".join(gates.capsys.readouterr().out.split())


@pytest.mark.slow
def test_identical_runs_end_at_the_first_look(gates: Repository) -> None:
    gates.write(seeds="fresh 8", stopping={"looks": [2, 4, 8], "spending": "pocock"})
    gates.commit(branch="looks")
    gates.commit(RENAMED, branch="feature")
    code, facts = gates.gate("--base", "looks")
    assert (code, facts["answer"], facts["decision"]["look"]["number"]) == (Exit.OK, "identical", 1)
    events = [entry["event"] for entry in gates.ledger()]
    assert events.count("sealed") == 4 and events.count("looked") == 1
    # Whoever decides, reports or verifies it afterwards finds a study that has ended, and no run missing.
    study = facts["study"]
    verdict = facts["decision"]["verdict"]
    assert ablate(gates.monkeypatch, "decide", study) in (Exit.OK, Exit.INCONCLUSIVE)
    assert ablate(gates.monkeypatch, "verify", study) == Exit.OK
    assert ablate(gates.monkeypatch, "run", study, "--jobs", "1") == Exit.MISTAKE
    assert "was decided at look 1 of 3" in gates.capsys.readouterr().err
    page = (gates.path / "studies" / f"{Path(study).stem}.registration.md").read_text(encoding="utf-8")
    assert "It also ends at the first look at which all runs of each seed recorded the same values" in " ".join(
        page.split()
    )
    report = (gates.path / "reports" / Path(study).stem / "verdict.json").read_text(encoding="utf-8")
    assert json.loads(report)["verdict"] == verdict
    assert gates.gate("--base", "looks") == (code, facts)


@pytest.mark.slow
def test_runs_that_differ_in_one_value_of_one_pair_go_on(gates: Repository) -> None:
    """Training losses count as well as what is claimed, and so does every pair."""
    gates.write(
        seeds="fresh 4",
        stopping={"looks": [2, 4], "spending": "pocock"},
        hypotheses={"worse": {"claim": "base lowers val/loss than head", "smallest": 0.05}},
        decision=[{"verdict": "worse", "when": "supported(worse)"}, {"verdict": "inconclusive"}],
    )
    gates.commit(branch="looks")
    _, second, *_ = seeds_of_comparison(f"{1:032x}", 4)
    differs = f'("train/loss", 2.0 + (seed == {second}) * 1e-12)'
    gates.commit({'("train/loss", 2.0)': differs}, branch="feature")
    code, facts = gates.gate("--base", "looks")
    assert load_study(Path(facts["study"])).study.seeds[1] == second
    assert (code, facts["answer"]) == (Exit.INCONCLUSIVE, "undecided")
    assert [entry["event"] for entry in gates.ledger()].count("sealed") == 8


@pytest.mark.slow
def test_a_slower_head_is_not_identical(gates: Repository) -> None:
    """The hash of an outcome leaves timings out, and a claim about one is not answered by equal losses."""
    timed = next(name for name, metric in METRICS.items() if not metric.repeatable and metric.better == "lower")
    claims = {"worse": {"claim": f"base lowers {timed} than head", "smallest": 0.05}}
    gates.write(
        seeds="fresh 4",
        stopping={"looks": [2, 4], "spending": "pocock"},
        hypotheses=claims,
        decision=[{"verdict": "worse", "when": "supported(worse)"}, {"verdict": "inconclusive"}],
    )
    rows = f'("{timed}", 1.0 + seed % 7), ("val/loss", loss)'
    gates.commit({'("val/loss", loss)': rows}, branch="looks")
    gates.commit({f'("{timed}", 1.0 + seed % 7)': f'("{timed}", 1.5 + seed % 7 + (seed % 5) / 50)'}, branch="feature")
    code, facts = gates.gate("--base", "looks")
    assert facts["answer"] in ("worse", "undecided") and code != Exit.OK
