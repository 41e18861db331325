"""A trial before registration finds each slip that would cost a registered study its runs, and shows no value."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_trainer import SCRIPT, OwnHouse

from ablate import api
from ablate.cli import main
from ablate.records.store import RunFolder
from ablate.runner.trial import Trial
from prereg.registry.paths import Root

FLAGS = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--fast", action="store_true")
args = parser.parse_args()
with open("metrics.jsonl", "w") as out:
    for step in range(1, 5):
        print(json.dumps({"step": step, "val/loss": 3.0 - args.lr * step}), file=out)
"""
WORDS = ["{python}", "train.py", "--lr={lr}"]

RESUMES = """
import json, os, time
config, seed = json.load(open(os.environ["ABLATE_CONFIG"])), int(os.environ["ABLATE_SEED"])
open("resumable", "w").close()
try:
    done = [json.loads(line) for line in open("metrics.jsonl")]
except FileNotFoundError:
    done = []
with open("metrics.jsonl", "a") as out:
    for step in range(len(done) + 1, 31):
        attempt = int(os.environ["ABLATE_ATTEMPT"]) - 1 if DRIFTS else 0
        row = {"step": step, "val/loss": 90 - config["lr"] * step + seed + attempt, "train/loss": 90}
        print(json.dumps(row), file=out, flush=True)
        time.sleep(0.03)
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnHouse:
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    return OwnHouse(tmp_path / "house")


def tried(house: OwnHouse, script: str, **changes: Any) -> Trial:
    house.script(script)
    options = changes.pop("options", {})
    return api.try_out(house.write(**changes), **options)


def writes(line: str) -> str:
    """The script, with another way to write its last row."""
    head, _, _ = SCRIPT.rpartition("    print(json.dumps(")
    return head + f"    {line}\n"


SLIPS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "wrong flag": (
        FLAGS,
        {"command": [*WORDS, "--fats"]},
        "exit status 2",
        "did you mean '--fast'?",
    ),
    "value for a switch": (
        FLAGS,
        {"command": [*WORDS, "--fast=true"]},
        "ignored explicit argument",
        '"{--fast if fast}"',
    ),
    "misspelt metric": (
        writes('print(json.dumps({"step": config["steps"], "metric": "val_loss", "value": 2.0}), file=out)'),
        {},
        "no val/loss at step 4, its last",
        "did you mean 'val_loss'?",
    ),
    "text in a wide row": (
        writes('print(json.dumps({"step": 4, "val/loss": 2.0, "note": "end"}), file=out)'),
        {},
        "'note': value \"end\", which is not a number",
        "",
    ),
    "relative path": (
        "bias = open('data/bias.txt').read()\n" + SCRIPT,
        {},
        "No such file or directory: 'data/bias.txt'",
        "working_directory: root, or {root}/data/bias.txt",
    ),
    "missing package": ("import no_such_package\n" + SCRIPT, {}, "No module named 'no_such_package'", sys.executable),
    "nan": (
        writes('print(json.dumps({"step": 4, "metric": "val/loss", "value": float("nan")}), file=out)'),
        {},
        "val/loss is nan, which is not finite",
        "leave such a value out",
    ),
    "no metrics": ("open('log.csv', 'w').close()\n", {}, "metrics.jsonl is not there", "metrics: {file: log.csv}"),
    "wrong last step": (
        writes('print(json.dumps({"step": 3, "metric": "val/loss", "value": 2.0}), file=out)'),
        {},
        "no val/loss at step 4, its last",
        "record val/loss at the last step too",
    ),
    "csv instead of json": (
        "open('metrics.jsonl', 'w').write('epoch,val\\n1,2.0\\n')\n",
        {},
        "line 1: not JSON",
        "metrics: {file: metrics.csv, step: STEP_COLUMN}",
    ),
    "exit 1 after writing": (SCRIPT + "    out.flush()\nsys.exit(1)\n", {}, "exit status 1", "read data/try/own/"),
    "setting that does nothing": (
        SCRIPT.replace('config["lr"]', "0.1"),
        {},
        "same values at every step",
        "ABLATE_CONFIG",
    ),
    "seed that does nothing": (
        SCRIPT.replace("noise = ", "noise = 0 * "),
        {},
        "two seeds gave the same",
        "--seed={seed}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS)
def test_each_slip_is_found_with_its_remedy(house: OwnHouse, slip: str) -> None:
    script, changes, found, fix = SLIPS[slip]
    (house.path / "data").mkdir()
    (house.path / "data" / "bias.txt").write_text("0")
    started = time.perf_counter()
    trial = tried(house, script, **changes)
    assert time.perf_counter() - started < 60.0
    first = trial.problems[0]
    assert found in first.found, trial.problems
    assert fix in first.fix, first.fix
    assert not (house.path / "studies" / "ledger.jsonl").exists()


@pytest.mark.slow
def test_a_study_without_a_slip_has_costs_and_no_values(house: OwnHouse) -> None:
    before = house.snapshot()
    trial = tried(house, SCRIPT, base={"lr": 0.123456, "steps": 4, "sleep": 0.2})
    assert trial.problems == () and trial.resumes == "from the start"
    assert [(run.variant, run.seed, run.status, run.steps) for run in trial.runs] == [
        ("slow", 4, "done", 4),
        ("fast", 4, "done", 4),
        ("slow", 5, "done", 4),
    ]
    assert trial.planned == 6 and trial.seconds_in_all is not None and trial.bytes_in_all is not None
    assert all(run.peak_memory_bytes and run.peak_memory_bytes > 2**20 for run in trial.runs)
    after = house.snapshot()
    assert {name for name in after if name not in before} == {"studies/own.yaml"}
    text = trial.model_dump_json()
    assert "1.8765" not in text and "2.9987" not in text  # what the slow arm records: 2 - lr and 3 - lr / 100


@pytest.mark.slow
@pytest.mark.parametrize(("drifts", "said"), [(False, "exactly"), (True, "with other values")])
def test_a_stopped_run_is_resumed_and_compared(house: OwnHouse, drifts: bool, said: str) -> None:
    trial = tried(house, RESUMES.replace("DRIFTS", str(drifts)))
    assert trial.problems == () and trial.resumes == said


@pytest.mark.slow
def test_a_run_beyond_the_limit_is_stopped_and_read_as_far_as_it_goes(house: OwnHouse) -> None:
    long = {"base": {"lr": 0.1, "steps": 10_000, "sleep": 0.01}, "options": {"limit_s": 2.0}}
    trial = tried(house, SCRIPT, **long)
    assert {run.status for run in trial.runs} == {"stopped"} and trial.seconds_in_all is None
    assert "had not recorded val/loss yet" in trial.notes[0]
    short = tried(house, SCRIPT, **(long | {"options": {"replaced": ["steps=5"]}}))
    assert short.problems == () and {run.steps for run in short.runs} == {5} and short.seconds_in_all is None


@pytest.mark.slow
def test_three_seeds_say_what_to_assume_and_not_which_arm_is_better(house: OwnHouse) -> None:
    trial = tried(house, SCRIPT, options={"seeds": 3})
    # val/loss = 2 - lr + noise * lr: with lr .1 and .4 the arms move together, and differ in scale.
    noise = [(seed * 7919 % 13) / 1000 for seed in (4, 5, 6)]
    mean = sum(noise) / 3
    squares = sum((one - mean) ** 2 for one in noise) / 2
    expected = (squares * (0.1**2 + 0.4**2) / 2) ** 0.5
    found = trial.assume["val/loss"]
    assert found.estimate == pytest.approx(expected)
    # Two degrees of freedom: the chi-square quantiles at .2 and .8 are -2 log(.8) and -2 log(.2).
    assert (found.sd, found.low) == pytest.approx((expected * (-log(0.8)) ** -0.5, expected * (-log(0.2)) ** -0.5))
    assert found.correlation is None and trial.metric_correlation is None, "three seeds cannot tell it"


def test_the_built_in_trainer_is_tried_over_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from conftest import House

    house = House(tmp_path / "gpt")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    trial = api.try_out(house.write(), replaced=["budget.steps=3"], root=house.path)
    assert trial.problems == () and {run.steps for run in trial.runs} == {3}
    assert trial.seconds_in_all is not None and "val/loss" in trial.runs[0].metrics


@pytest.mark.slow
def test_three_seeds_of_the_built_in_trainer_are_whole_runs_whose_spread_is_that_of_the_same_runs_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conftest import SHORT, House

    house = House(tmp_path / "gpt")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    trial = api.try_out(house.write(**SHORT), seeds=3, root=house.path)
    assert trial.problems == () and {(run.seed, run.steps, run.status) for run in trial.runs} == {
        (seed, 4, "done") for seed in (3, 4, 5)
    }
    path = house.write(**SHORT | {"study": "same", "seeds": [3, 4, 5]})
    runs = Root(house.path).runs("same", api.run(path, root=house.path).registration.sha256)

    def final(arm: str) -> list[float]:
        of_seeds = [RunFolder(runs / arm / str(seed)).sealed_rows() for seed in (3, 4, 5)]
        return [max((row.step, row.value) for row in rows if row.metric == "val/loss")[1] for rows in of_seeds]

    arms = np.array([final("none"), final("layernorm")])
    assert trial.assume["val/loss"].estimate == pytest.approx(np.sqrt(arms.var(axis=1, ddof=1).mean()))


@pytest.mark.slow
def test_the_command_names_problems_and_ends_with_2(
    house: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    house.script("import no_such_package\n" + SCRIPT)
    path = house.write()
    monkeypatch.setattr(sys, "argv", ["ablate", "try", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().out
    assert (
        "1 problem" in said
        and "slow/4, fast/4: exit status 1" in said
        and "install no_such_package" in said
        and f"then ablate try {path} again" in said
    )
    monkeypatch.setattr(sys, "argv", ["ablate", "try", str(path), "--set", "stepz=3", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "did you mean 'steps'?" in capsys.readouterr().err
    house.script(SCRIPT)
    monkeypatch.setattr(sys, "argv", ["ablate", "try", str(path), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out)["problems"] == []
