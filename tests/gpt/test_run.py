"""Running for real: worker processes, sealed records, kills, interrupts, and the same bits every time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from conftest import SHORT, House
from launchers import parent_of

import ablate as api
from ablate.records.gather import gather
from ablate.runner.local import study_lock
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from ablate.workspace import Workspace, require_registered
from prereg.errors import EvidenceError, RunError
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import RunStartedEntry

pytestmark = pytest.mark.usefixtures("no_reports")

QUIET = PlainWatcher(StringIO())


def outcomes(house: House) -> dict[str, str]:
    """variant/seed -> hash over every bit of every repeatable metric."""
    records = [json.loads(p.read_text()) for p in house.path.glob("data/runs/*/*/*/*/run.json")]
    return {f"{r['variant']}/{r['seed']}": r["outcome_sha256"] for r in records}


def events(house: House) -> list[str]:
    """What the ledger holds, but for the starts of single runs."""
    entries = Ledger(house.path / "studies" / "ledger.jsonl").entries()
    return [entry.event for entry in entries if not isinstance(entry, RunStartedEntry)]


def start(study: Path, *words: str) -> subprocess.Popen[str]:
    """`ablate run` as a user starts it, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", str(study), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_until_training(house: House, rows: int) -> None:
    """Until some run has written that many live lines."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        for path in house.path.glob("data/runs/*/*/*/*/work/metrics.jsonl"):
            if path.read_bytes().count(b"\n") >= rows:
                return
        time.sleep(0.02)
    pytest.fail("no run began to train within a minute")


def descendants(pid: int) -> list[int]:
    """A process and everything below it."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def kill_tree(process: subprocess.Popen[str]) -> None:
    for each in descendants(process.pid):
        os.kill(each, signal.SIGKILL)
    process.communicate()


def test_every_run_is_sealed_in_the_ledger_and_the_study_finished(trained: House) -> None:
    assert events(trained) == ["registered", "started", *["sealed"] * 6, "finished"]
    case = Workspace().open(trained.study)
    evidence = gather(case.root, require_registered(case))
    assert evidence.missing == ()
    assert evidence.broken == ()
    assert set(evidence.final("val/loss")) == set(evidence.planned)
    assert len(evidence.curve("train/loss")) == len(evidence.curve("train/grad_norm")) == 6 * 30
    assert set(evidence.final("train/grad_norm")) == set(evidence.planned), "the norm of the last step, of every run"
    assert sorted(evidence.curve("val/loss")["step"].unique()) == [0, 10, 20, 30]


def test_pairs_match_by_construction(trained: House) -> None:
    case = Workspace().open(trained.study)
    runs = {(r.variant, r.seed): r for r in gather(case.root, require_registered(case)).runs}
    for seed in (1, 2, 3):
        none, layer = runs["none", seed].must_match, runs["layernorm", seed].must_match
        assert none is not None and layer is not None
        assert {"initial/token.weight", "batches", "dropout", "corpus", "tokenizer"} <= none.keys()
        assert none.keys() < layer.keys(), "the layer has parameters of its own"
        assert all(layer[name] == digest for name, digest in none.items())
    one, two = runs["none", 1].must_match, runs["none", 2].must_match
    assert one is not None and two is not None
    assert one["batches"] != two["batches"] and one["corpus"] == two["corpus"]
    assert runs["layernorm", 1].parameters - runs["none", 1].parameters == 32
    assert {run.tokens for run in runs.values()} == {30 * 8 * 16}


def test_running_a_finished_study_again_does_nothing(trained: House) -> None:
    before = trained.snapshot()
    ran = api.run(trained.study, workspace=api.Workspace(console=QUIET))
    assert ran.summary.complete
    assert trained.snapshot() == before


@pytest.mark.slow
def test_a_run_from_scratch_gives_the_same_bits(trained: House, house: House) -> None:
    api.run(house.write(), RunOptions(slots=2), workspace=api.Workspace(console=QUIET))
    assert outcomes(house) == outcomes(trained)


@pytest.mark.slow
def test_kill_nine_of_the_whole_tree_then_again_gives_the_same_bits_and_one_entry_more(
    trained: House, house: House
) -> None:
    study = house.write()
    process = start(study)
    wait_until_training(house, 8)
    kill_tree(process)
    assert "finished" not in events(house)
    assert api.run(study, workspace=api.Workspace(console=QUIET)).summary.complete
    assert outcomes(house) == outcomes(trained)
    assert len(events(house)) == len(events(trained)) + 1
    assert events(house).count("started") == 2


@pytest.mark.slow
def test_a_killed_scheduler_takes_all_processes_with_it(house: House) -> None:
    study = house.write(base=longer(100_000))
    process = start(study)
    wait_until_training(house, 5)
    below = descendants(process.pid)[1:]
    assert below
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and any(alive(pid) for pid in below):
        time.sleep(0.05)
    assert not any(alive(pid) for pid in below)


@pytest.mark.slow
def test_ctrl_c_saves_where_each_run_stands_and_the_next_call_resumes_to_the_same_bits(
    house: House, trained: House
) -> None:
    study = house.write(base=longer(900), seeds=[1, 2], measure={"every": 300})
    process = start(study)
    wait_until_training(house, 2)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 130, output
    assert "stopping" in output
    assert list(house.path.glob("data/runs/*/*/*/*/work/checkpoint.safetensors"))
    assert api.run(study, workspace=api.Workspace(console=QUIET)).summary.complete
    resumed = [json.loads(p.read_text())["resumed_from"] for p in house.path.glob("data/runs/*/*/*/*/run.json")]
    assert any(0 < step < 900 for steps in resumed for step in steps)
    other = House(house.path.parent / "other")
    api.run(other.write(base=longer(900), seeds=[1, 2], measure={"every": 300}), workspace=api.Workspace(console=QUIET))
    assert outcomes(house) == outcomes(other)


@pytest.mark.slow
def test_a_killed_process_of_a_run_is_replaced_and_the_study_ends_as_if_nothing_had_happened(house: House) -> None:
    study = house.write(base=longer(600), seeds=[1, 2], measure={"every": 300})
    process = start(study)
    wait_until_training(house, 2)
    (mark, *_) = house.path.glob("data/runs/*/*/*/*/child.json")
    os.kill(parent_of(json.loads(mark.read_bytes())["pid"]), signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "beginning the run again at its first step" in output  # before its first checkpoint
    assert events(house).count("sealed") == 4


def test_a_second_run_of_the_same_study_is_refused_and_changes_nothing(copied: House) -> None:
    study = copied.study
    root = Workspace().open(study).root
    with study_lock(root, "tiny"):
        before = copied.snapshot()
        with pytest.raises(RunError, match=rf"being run by another process \(pid {os.getpid()} on "):
            api.run(study, workspace=api.Workspace(console=QUIET))
        assert copied.snapshot() == before
    assert api.run(study, workspace=api.Workspace(console=QUIET)).summary.complete


@pytest.mark.slow
def test_a_diverging_run_is_an_outcome_with_its_curve_kept(house: House) -> None:
    study = house.write(
        seeds=[1, 2],
        variants={"none": {}, "wild": {"optim.lr": 1000.0}},
        hypotheses={"gain": {"claim": "wild lowers val/loss", "smallest": 0.05}},
        decision=[{"verdict": "adopt wild", "when": "supported(gain) and stable(wild)"}, {"verdict": "inconclusive"}],
    )
    ran = api.run(study, workspace=api.Workspace(console=QUIET))
    assert ran.summary.complete
    case = Workspace().open(study)
    evidence = gather(case.root, ran.registration)
    wild = [run for run in evidence.runs if run.variant == "wild"]
    assert {run.status for run in wild} == {"diverged"}
    assert all(0 < run.steps < 30 for run in wild)
    curve = evidence.curve("train/loss")
    assert set(curve[curve["variant"] == "wild"]["seed"]) == {1, 2}
    assert evidence.missing == ()


@pytest.mark.slow
def test_an_error_inside_a_run_is_recorded_logged_and_ends_the_others_normally(house: House) -> None:
    study = house.write(**SHORT)
    api.register(study)
    case = Workspace().open(study)
    spoiled = case.root.run("tiny", require_registered(case).sha256, "none", 1)
    spoiled.mkdir(parents=True)
    (spoiled / "work").touch()  # a file where the trainer's directory should be
    ran = api.run(study, workspace=api.Workspace(console=QUIET))
    assert not ran.summary.complete
    assert len(ran.summary.failed) == 1
    assert ran.summary.failed[0].startswith(f"tiny/{ran.registration.sha256[:8]}/none/1: ")
    assert events(house).count("failed") == 1
    assert events(house).count("sealed") == 3
    (spoiled / "work").unlink()
    assert api.run(study, workspace=api.Workspace(console=QUIET)).summary.complete


def test_a_sealed_record_that_has_changed_is_never_trained_over(copied: House) -> None:
    (path,) = copied.path.glob("data/runs/tiny/*/none/1/metrics.parquet")
    path.write_bytes(path.read_bytes() + b"x")
    before = copied.snapshot()
    with pytest.raises(EvidenceError, match="is not what run"):
        api.run(copied.study, workspace=api.Workspace(console=QUIET))
    assert copied.snapshot() == before


def test_a_run_sealed_in_the_moment_of_a_crash_is_taken_into_the_ledger_later(copied: House) -> None:
    study = copied.study
    registration = require_registered(Workspace().open(study))
    ledger = copied.path / "studies" / "ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-2]))  # as if killed after the last seal and before its entry
    again = api.run(study, workspace=api.Workspace(console=QUIET))
    assert again.summary.complete
    last = Ledger(ledger).entries()[-2]
    assert last.event == "sealed"
    assert last.recovered is True
    assert again.registration == registration
    checks = {check.name: check for check in api.decide(study).decision.checks}
    told = checks["every seal was reported by the run that made it"]
    assert (told.passed, told.severity) == (False, "deviation") and told.found.startswith("1: ")


def test_sealed_runs_of_a_ledger_that_started_none_are_taken_in_as_a_deviation(copied: House) -> None:
    ledger = copied.path / "studies" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])  # registered here, trained who knows where
    assert api.run(copied.study, workspace=api.Workspace(console=QUIET)).summary.complete
    events = [entry.event for entry in Ledger(ledger).entries()]
    assert events == ["registered", *["sealed"] * 6, "finished"]
    decision = api.decide(copied.study).decision
    (named,) = [check for check in decision.deviations if "put on record" in check.name]
    assert decision.status == "decided_with_deviations" and named.found.startswith("6: ")


def longer(steps: int) -> dict[str, object]:
    """The base of the tiny study with another budget."""
    return {
        "model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
        "data": {"corpus": "tiny"},
        "optim": {"lr": 1.0e-3},
        "budget": {"steps": steps, "batch": 8},
    }


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
