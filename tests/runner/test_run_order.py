"""Order of runs while they are made: registered, kept through failures, kills and launchers, and demanded of times."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaign_samples import campaign_document
from launchers import command, end, wait_for
from own_trainer import OwnHouse

import ablate
from ablate.records.store import RunFolder
from ablate.runner.options import RunOptions
from ablate.runner.process import held
from ablate.runner.slurm import Job
from ablate.study_status import read_costs
from ablate.workspace import HERE, Workspace
from prereg.errors import RegistrationError, RunError
from prereg.registry import register
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import RunStartedEntry
from prereg.registry.paths import Root
from prereg.registry.plan import plan
from prereg.registry.registration import load_registration

SLOWING = """
import json, os, pathlib
config = json.load(open(os.environ["ABLATE_CONFIG"]))
counter = pathlib.Path(config["counter"])
n_runs = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(n_runs + 1))
noise = (int(os.environ["ABLATE_SEED"]) * 7919 + ord(os.environ["ABLATE_VARIANT"]) * 104729) % 13 / 20000
with open("metrics.jsonl", "w") as out:
    print(json.dumps({"step": 1, "train/loss": 1.0, "seconds": 1 + 0.002 * n_runs + noise}), file=out)
"""
"""A machine on which each run takes .2% longer than the one before; `a` and `b` are alike."""

FAILING = """
import json, os, pathlib, time
config = json.load(open(os.environ["ABLATE_CONFIG"]))
run = os.environ["ABLATE_VARIANT"] + os.environ["ABLATE_SEED"]
broken = pathlib.Path(config["counter"]).with_name("broken")
if run == config["fails"] and not broken.exists():
    broken.touch()
    raise SystemExit("out of luck")
time.sleep(config.get("sleep", 0))
with open("metrics.jsonl", "w") as out:
    print(json.dumps({"step": 1, "train/loss": 1.0, "seconds": 1.0 + int(os.environ["ABLATE_SEED"]) / 7}), file=out)
"""


def document(house: OwnHouse, metric: str = "seconds", **changes: Any) -> dict[str, Any]:
    """Two arms that are alike, and a claim about a time unless another metric is named."""
    whole: dict[str, Any] = {
        "study": "own",
        "title": "Two arms that are alike",
        "trainer": "command",
        "command": ["{python}", "train.py"],
        "base": {"counter": str(house.path / "counter"), "fails": "", "arm": 0},
        "baseline": "a",
        "variants": {"a": {}, "b": {"arm": 1}},
        "seeds": [1, 2, 3, 4, 5, 6, 7, 8],
        "hypotheses": {"slower": {"claim": f"b raises {metric}", "smallest": 0.0005}},
        "decision": [{"verdict": "b is slower", "when": "supported(slower)"}, {"verdict": "inconclusive"}],
    }
    return whole | changes


def sequence(house: OwnHouse) -> list[str]:
    """ARM/SEED of every start on record."""
    entries = Ledger(house.path / "studies" / "ledger.jsonl").entries()
    return [f"{entry.variant}/{entry.seed}" for entry in entries if isinstance(entry, RunStartedEntry)]


def registered_sequence(house: OwnHouse) -> list[str]:
    registration = load_registration(Root(house.path.resolve()), "own")
    assert registration is not None
    return [f"{spec.variant}/{spec.seed}" for spec in plan(registration)]


MIRRORED = [
    f"{arm}/{seed}" for seed, arms in enumerate(("ab", "ba", "ba", "ab", "ab", "ba", "ba", "ab"), 1) for arm in arms
]


def test_arms_that_are_alike_are_not_told_apart_on_a_machine_that_slows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = OwnHouse(tmp_path / "now")
    house.script(SLOWING)
    house.register(document(house))
    ablate.run(house.study, workspace=Workspace(root=house.path))
    assert sequence(house) == registered_sequence(house) == MIRRORED
    decided = ablate.decide(house.study, workspace=Workspace(root=house.path)).decision
    assert (decided.status, decided.verdict) == ("inconclusive", "inconclusive")
    estimate = decided.findings[0].estimate
    assert estimate is not None and abs(estimate.difference or 0.0) < 0.0004
    # The same runs in the order of the file, as registrations before this one had it.
    monkeypatch.setattr(register, "MIRRORED_ROTATION", None)
    before = OwnHouse(tmp_path / "before")
    before.script(SLOWING)
    before.register(document(before))
    ablate.run(before.study, workspace=Workspace(root=before.path))
    decided = ablate.decide(before.study, workspace=Workspace(root=before.path)).decision
    assert decided.verdict == "b is slower" and decided.status == "decided_with_deviations"
    assert any("no order was registered" in check.found for check in decided.deviations)


def test_side_by_side_is_refused_of_a_claim_on_a_time_and_nothing_is_changed(own_house: OwnHouse) -> None:
    own_house.script(SLOWING)
    own_house.write(document(own_house))
    before = own_house.snapshot()
    with pytest.raises(RunError) as refused:
        ablate.run(own_house.study, RunOptions(slots=2))
    assert refused.value.found == "--jobs 2, and a claim is about seconds"
    assert "one run at a time" in refused.value.required and "--jobs 1" in refused.value.fix
    for options in (RunOptions(on="ray", tasks=2), RunOptions(on="slurm", slurm=("tasks=4",))):
        with pytest.raises(RunError, match="and a claim is about seconds"):
            ablate.run(own_house.study, options)
    with pytest.raises(RunError, match="--jobs 2, and a claim is about seconds"):  # nor is it planned
        read_costs(HERE.open(own_house.study), RunOptions(slots=2))
    with pytest.raises(RunError, match="--only b/1, and a/1 comes before it"):
        ablate.run(own_house.study, RunOptions(only=("b/1",)))
    assert own_house.snapshot() == before
    # The first runs in order, and then the next ones.
    own_house.register(document(own_house))
    assert ablate.run(own_house.study, RunOptions(only=("a/1", "b/1"))).summary.sealed == 2
    with pytest.raises(RunError, match="--only a/2, and b/2 comes before it"):
        ablate.run(own_house.study, RunOptions(only=("a/2",)))
    assert ablate.run(own_house.study, RunOptions(only=("b/2",))).summary.sealed == 1


def test_runs_of_a_loss_start_in_order_side_by_side(own_house: OwnHouse) -> None:
    own_house.script(SLOWING.replace('"seconds"', '"dev/loss"'))
    own_house.register(document(own_house, "dev/loss"))
    ablate.run(own_house.study, RunOptions(slots=2))
    assert sequence(own_house) == MIRRORED
    assert ablate.decide(own_house.study).decision.gives_verdict


def test_a_run_that_fails_ends_the_call_and_is_made_again_in_its_place(own_house: OwnHouse) -> None:
    own_house.script(FAILING)
    base = document(own_house)["base"] | {"fails": "b2"}
    own_house.register(document(own_house, base=base))
    first = ablate.run(own_house.study).summary
    assert (first.sealed, len(first.failed)) == (2, 1)
    assert sequence(own_house) == MIRRORED[:3]
    assert ablate.run(own_house.study).summary.sealed == 16
    assert sequence(own_house) == [*MIRRORED[:3], *MIRRORED[2:]]
    decided = ablate.decide(own_house.study).decision
    named = {check.name for check in decided.checks if not check.passed and check.severity == "inadmissible"}
    assert not named and decided.gives_verdict


@pytest.mark.slow
def test_a_kill_leaves_the_order_as_it_was(own_house: OwnHouse) -> None:
    own_house.script(FAILING)
    base = document(own_house)["base"] | {"sleep": 0.5}
    own_house.register(document(own_house, base=base, seeds=[1, 2, 3, 4]))
    process = command("run", str(own_house.study))
    wait_for(lambda: len(sequence(own_house)) == 4)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    end(process)
    status, printed = end(command("run", str(own_house.study)))
    assert status == 0, printed
    assert list(dict.fromkeys(sequence(own_house))) == MIRRORED[:8]
    decided = ablate.decide(own_house.study).decision
    assert decided.gives_verdict, decided.checks


def test_a_campaign_about_a_time_is_not_proposed_to_side_by_side(own_house: OwnHouse) -> None:
    own_house.script(SLOWING)
    campaign = own_house.path / "campaigns" / "night.yaml"
    campaign.parent.mkdir()
    start = {"trainer": "command", "command": ["{python}", "train.py"], "base": {"counter": "counter", "lr": 0.1}}
    campaign.write_text(yaml.safe_dump(campaign_document(metric="seconds", better="lower", start=start)))
    before = own_house.snapshot()
    with pytest.raises(RunError, match="--jobs 2, and a claim is about seconds"):
        ablate.propose(campaign, {"lr": 0.2}, why="it may be quicker", options=RunOptions(slots=2))
    with pytest.raises(RunError, match="--jobs 2, and a claim is about seconds"):
        ablate.confirm(campaign, options=RunOptions(slots=2))
    assert own_house.snapshot() == before


def test_train_makes_a_run_of_a_time_in_its_turn_only(own_house: OwnHouse) -> None:
    own_house.script(SLOWING)
    own_house.register(document(own_house))
    commands = ablate.plan_commands(own_house.study)
    assert [words[3] for words in commands] == MIRRORED
    before = own_house.snapshot()
    with pytest.raises(RunError, match="b/1, and a/1 comes before it and has not ended"):
        ablate.train(own_house.study, "b/1")
    assert own_house.snapshot() == before
    for name in ("a/1", "b/1"):
        assert ablate.train(own_house.study, name).status == "done"
    with pytest.raises(RunError, match="a/2, and b/2 comes before it"):
        ablate.train(own_house.study, "a/2")


@pytest.mark.parametrize(("metric", "tasks"), [("seconds", 1), ("dev/loss", None)])
def test_slurm_gets_runs_in_order_and_those_of_a_time_in_one_task(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch, metric: str, tasks: int | None
) -> None:
    submitted: list[tuple[list[str], int | None]] = []

    def submit(*args: Any, at: str) -> Job:
        _, _, _, commands, settings = args
        submitted.append(([words[2] for words in commands], settings.tasks))
        return Job(id="1", at=at, tasks=1, script="")

    monkeypatch.setattr("ablate.runner.launch.submit", submit)
    monkeypatch.setattr("ablate.runner.slurm.require_slurm", lambda: None)
    own_house.script(SLOWING)
    own_house.register(document(own_house, metric))
    ablate.run(own_house.study, RunOptions(on="slurm"))
    assert submitted == [(MIRRORED, tasks)] and sequence(own_house) == MIRRORED


def test_a_run_of_a_time_that_another_process_holds_is_waited_for(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.runner.scheduler.BUSY_PATIENCE_S", 0.5)
    own_house.script(SLOWING)
    registration = own_house.register(document(own_house))
    folder = RunFolder(Root(own_house.path.resolve()).run("own", registration.sha256, "b", 1))
    with held(folder):
        made = ablate.run(own_house.study).summary
    assert (made.sealed, made.elsewhere) == (1, ("b/1",))
    assert sequence(own_house) == MIRRORED[:1]
    assert ablate.run(own_house.study).summary.sealed == 16
    assert sequence(own_house) == MIRRORED


def test_a_registration_without_an_order_keeps_that_of_the_file(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_house.script(SLOWING)
    with monkeypatch.context() as before:
        before.setattr(register, "MIRRORED_ROTATION", None)
        own_house.register(document(own_house))
    assert "run_order" not in (own_house.path / "studies" / "own.lock.json").read_text()
    of_file = [f"{arm}/{seed}" for seed in range(1, 9) for arm in "ab"]
    ablate.run(own_house.study, RunOptions(only=("a/1", "b/1", "a/2")))
    own_house.write(document(own_house, title="Other words and another claim", assume={"divergence": 0.0}))
    ablate.amend(own_house.study, reason="a belief")
    ablate.run(own_house.study, RunOptions(slots=2))
    assert sequence(own_house) == registered_sequence(own_house) == of_file


def test_a_lock_without_its_order_is_not_what_was_promised(own_house: OwnHouse) -> None:
    own_house.script(SLOWING)
    own_house.register(document(own_house))
    path = own_house.path / "studies" / "own.lock.json"
    lock = json.loads(path.read_text())
    assert lock.pop("run_order") == "mirrored_rotation"
    path.write_text(json.dumps(lock, indent=2))
    with pytest.raises(RegistrationError, match="hash in the lock does not match its content"):
        ablate.run(own_house.study)


def test_a_file_with_its_arms_in_another_order_does_not_change_that_of_the_runs(own_house: OwnHouse) -> None:
    own_house.script(SLOWING)
    own_house.register(document(own_house))
    ablate.run(own_house.study, RunOptions(only=("a/1", "b/1", "b/2")))
    own_house.write(document(own_house, variants={"b": {"arm": 1}, "a": {}}, assume={"divergence": 0.0}))
    ablate.amend(own_house.study, reason="a belief")
    assert registered_sequence(own_house) == MIRRORED
    ablate.run(own_house.study)
    assert sequence(own_house) == MIRRORED


def test_a_claim_on_a_time_is_said_to_be_made_in_order(own_house: OwnHouse) -> None:
    own_house.script(SLOWING)
    own_house.write(document(own_house))
    status, printed = end(command("check", str(own_house.study)))
    assert status == 0
    said = "runs are made one at a time and in order (a b, then b a, and so on), since a claim is about seconds"
    assert said in " ".join(printed.split())
