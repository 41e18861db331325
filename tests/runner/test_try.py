"""A trial before registration finds each slip that would cost a registered study its runs, and shows no value."""

from __future__ import annotations

import json
import sys
import time
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_trainer import SCRIPT, OwnHouse

import ablate as api
from ablate.cli import main
from ablate.judge.design.assumptions import variances
from ablate.judge.stats import t_power
from ablate.records.store import RunFolder
from ablate.runner.trial import Trial, TrialRun, TrialSpread
from ablate.trying import spread_over_seeds, untried
from ablate.workspace import Workspace
from prereg.registry.paths import Root

TRIAL = Trial(
    study="own",
    limit_s=60.0,
    shortened=(),
    runs=tuple(
        TrialRun(
            variant=arm,
            seed=seed,
            status="done",
            steps=4,
            seconds=1.0,
            peak_memory_bytes=None,
            size_bytes=1,
            metrics=("val/loss",),
        )
        for seed in (4, 5, 6)
        for arm in ("slow", "fast")
    ),
    problems=(),
    notes=(),
    resumes="not tested",
    planned=6,
    seconds_in_all=6.0,
    bytes_in_all=6,
    assume={},
    folder="",
)

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
def test_each_slip_is_found_with_its_remedy(own_house: OwnHouse, slip: str) -> None:
    script, changes, found, fix = SLIPS[slip]
    (own_house.path / "data").mkdir()
    (own_house.path / "data" / "bias.txt").write_text("0")
    started = time.perf_counter()
    trial = tried(own_house, script, **changes)
    assert time.perf_counter() - started < 60.0
    first = trial.problems[0]
    assert found in first.found, trial.problems
    assert fix in first.fix, first.fix
    assert not (own_house.path / "studies" / "ledger.jsonl").exists()


@pytest.mark.slow
def test_a_study_without_a_slip_has_costs_and_no_values(own_house: OwnHouse) -> None:
    before = own_house.snapshot()
    trial = tried(own_house, SCRIPT, base={"lr": 0.123456, "steps": 4, "sleep": 0.2})
    assert trial.problems == () and trial.resumes == "from the start"
    assert [(run.variant, run.seed, run.status, run.steps) for run in trial.runs] == [
        ("slow", 4, "done", 4),
        ("fast", 4, "done", 4),
        ("slow", 5, "done", 4),
    ]
    assert trial.planned == 6 and trial.seconds_in_all is not None and trial.bytes_in_all is not None
    assert all(run.peak_memory_bytes and run.peak_memory_bytes > 2**20 for run in trial.runs)
    after = own_house.snapshot()
    assert {name for name in after if name not in before} == {"studies/own.yaml"}
    text = trial.model_dump_json()
    assert untried(Workspace().open(own_house.study)) == ""
    own_house.script(f"{SCRIPT}# edited\n")
    assert untried(Workspace().open(own_house.study)).startswith("no trial of this study with this code: ablate try ")
    assert "1.8765" not in text and "2.9987" not in text  # what the slow arm records: 2 - lr and 3 - lr / 100


@pytest.mark.slow
@pytest.mark.parametrize(("drifts", "said"), [(False, "exactly"), (True, "with other values")])
def test_a_stopped_run_is_resumed_and_compared(own_house: OwnHouse, drifts: bool, said: str) -> None:
    trial = tried(own_house, RESUMES.replace("DRIFTS", str(drifts)))
    assert trial.problems == () and trial.resumes == said


@pytest.mark.slow
def test_a_run_beyond_the_limit_is_stopped_and_read_as_far_as_it_goes(own_house: OwnHouse) -> None:
    long = {"base": {"lr": 0.1, "steps": 10_000, "sleep": 0.01}, "options": {"limit_s": 2.0}}
    trial = tried(own_house, SCRIPT, **long)
    assert {run.status for run in trial.runs} == {"stopped"} and trial.seconds_in_all is None
    assert "had not recorded val/loss yet" in trial.notes[0]
    assert "it is not known that every value and the seed reach the script" in trial.notes[-1]
    short = tried(own_house, SCRIPT, **(long | {"options": {"replaced": ["steps=5"]}}))
    assert short.problems == () and {run.steps for run in short.runs} == {5} and short.seconds_in_all is None


@pytest.mark.slow
def test_three_seeds_say_what_to_assume_and_not_which_arm_is_better(own_house: OwnHouse) -> None:
    trial = tried(own_house, SCRIPT, options={"seeds": 3})
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


def pilot(n_seeds: int, rho: float, rng: np.random.Generator, arms: int = 2) -> np.ndarray:
    """Values of arms of SD 1 that share a part of it at each seed: a row a seed, a column an arm."""
    shared, own = rng.standard_normal((n_seeds, 1)), rng.standard_normal((n_seeds, arms))
    return sqrt(rho) * shared + sqrt(1.0 - rho) * own


@pytest.mark.parametrize(("n_seeds", "rho"), [(3, 0.0), (3, 0.8), (5, 0.0), (12, 0.0), (12, 0.6)])
def test_a_plan_with_the_larger_end_has_noise_enough_in_four_trials_of_five(n_seeds: int, rho: float) -> None:
    rng, trials, enough = np.random.default_rng(3), 600, 0
    for _ in range(trials):
        found = spread_over_seeds(pilot(n_seeds, rho, rng), paired=True)
        assert found is not None and found.low < found.estimate < found.sd
        assert (found.correlation is None) == (n_seeds < 10)
        # What `design` makes of it: the SD of a difference of two arms, with correlation 0 where none is proposed.
        enough += found.sd**2 * (1.0 - (found.correlation or 0.0)) >= 1.0 - rho
    assert enough / trials >= 0.8 - 4 * sqrt(0.16 / trials)


def test_three_seeds_with_an_sd_of_003_and_a_correlation_below_zero_no_longer_pass_the_gate() -> None:
    # The pilot of a study that passed the floor of power by half a percent, and had half of it.
    one, other = np.array([1.0, -1.0, 0.0]), np.array([1.0, 1.0, -2.0]) / sqrt(3.0)
    table = 0.003 * np.stack([one, -0.75 * one + sqrt(1.0 - 0.75**2) * other], axis=1)
    rest, total = variances(table)
    assert (sqrt(total), 1.0 - rest / total) == pytest.approx((0.003, -0.75))
    found = spread_over_seeds(table, paired=True)
    # The noise of a difference was larger than correlation 0 would have it: its upper end is what counts.
    assert found is not None and found.correlation is None
    assert found.sd == pytest.approx(sqrt(1.75) * 0.003 * (-log(0.8)) ** -0.5) and found.sd > 2.7 * 0.003
    size = 0.005  # with the SD of a difference that three seeds show, power is 50%
    assert t_power.t_test_power("margin", size / (0.003 * sqrt(2 * 1.75)), 5, 0.05) == pytest.approx(0.502, abs=0.001)
    assert t_power.t_test_power("margin", size / (found.sd * sqrt(2.0)), 5, 0.05) < 0.25


def test_a_trial_prints_a_range_no_correlation_from_three_seeds_and_the_step_after_it(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(spread: TrialSpread) -> str:
        trial = TRIAL.model_copy(update={"assume": {"val/loss": spread}})
        monkeypatch.setattr("ablate.trying.try_out", lambda *_, **__: trial)
        monkeypatch.setattr(sys, "argv", ["ablate", "try", "studies/own.yaml"])
        with pytest.raises(SystemExit):
            main()
        return " ".join(capsys.readouterr().out.split())

    three = shown(TrialSpread(sd=0.1249, estimate=0.059, low=0.0461))
    assert "val/loss: SD over seeds 0.059; by 3 seeds alone it may be 0.046 to 0.13" in three
    assert "assume: {metrics: {val/loss: {sd: 0.13}}}" in three and "correlation:" not in three
    assert "3 seeds are too few to estimate how arms correlate" in three
    assert "next: write that assume: line into studies/own.yaml, then ablate design studies/own.yaml" in three
    ten = shown(TrialSpread(sd=0.0608, estimate=0.047, low=0.04, correlation=0.038))
    assert "assume: {metrics: {val/loss: {sd: 0.061, correlation: 0.03}}}" in ten and "cannot be told" not in ten


@pytest.mark.slow
def test_the_built_in_trainer_is_tried_over_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from conftest import House

    house = House(tmp_path / "gpt")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    trial = api.try_out(house.write(), replaced=["budget.steps=3"], workspace=api.Workspace(house.path))
    assert trial.problems == () and {run.steps for run in trial.runs} == {3}
    assert trial.seconds_in_all is not None and "val/loss" in trial.runs[0].metrics


@pytest.mark.slow
def test_a_claimed_metric_that_the_built_in_trainer_does_not_record_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conftest import House

    house = House(tmp_path / "gpt")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    # The text of the house holds no digit, so that no token is of that class.
    claim = {"digits": {"claim": "layernorm raises val/accuracy_numeric", "smallest": 0.01}}
    rule = [{"verdict": "adopt", "when": "supported(digits)"}, {"verdict": "inconclusive"}]
    changed = house.write(hypotheses=claim, decision=rule)
    trial = api.try_out(changed, replaced=["budget.steps=3"], workspace=api.Workspace(house.path))
    (problem,) = trial.problems
    assert problem.found == "no value of val/accuracy_numeric, which is claimed"
    assert problem.run.count(", ") == len(trial.runs) - 1


@pytest.mark.slow
def test_arms_that_differ_only_in_what_a_trial_shortens_are_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conftest import SHORT, House

    house = House(tmp_path / "gpt")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    arms = {"none": {}, "layernorm": {"budget.steps": 8}}
    trial = api.try_out(
        house.write(**SHORT | {"variants": arms}), replaced=["budget.steps=3"], workspace=api.Workspace(house.path)
    )
    assert trial.problems == ()
    assert "none and layernorm are the same under budget.steps=3, and were not compared" in trial.notes


@pytest.mark.slow
def test_three_seeds_of_the_built_in_trainer_are_whole_runs_whose_spread_is_that_of_the_same_runs_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conftest import SHORT, House

    house = House(tmp_path / "gpt")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    trial = api.try_out(house.write(**SHORT), seeds=3, workspace=api.Workspace(house.path))
    assert trial.problems == () and {(run.seed, run.steps, run.status) for run in trial.runs} == {
        (seed, 4, "done") for seed in (3, 4, 5)
    }
    path = house.write(**SHORT | {"study": "same", "seeds": [3, 4, 5]})
    runs = Root(house.path).runs("same", api.run(path, workspace=api.Workspace(house.path)).registration.sha256)

    def final(arm: str) -> list[float]:
        of_seeds = [RunFolder(runs / arm / str(seed)).sealed_rows() for seed in (3, 4, 5)]
        return [max((row.step, row.value) for row in rows if row.metric == "val/loss")[1] for rows in of_seeds]

    arms = np.array([final("none"), final("layernorm")])
    assert trial.assume["val/loss"].estimate == pytest.approx(np.sqrt(arms.var(axis=1, ddof=1).mean()))


@pytest.mark.slow
def test_the_command_names_problems_and_ends_with_2(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_house.script("import no_such_package\n" + SCRIPT)
    path = own_house.write()
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
    own_house.script(SCRIPT)
    monkeypatch.setattr(sys, "argv", ["ablate", "try", str(path), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out)["problems"] == []


def test_a_run_of_a_script_that_was_never_tried_says_so_once(
    own_house: OwnHouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_house.write()
    remark = (
        f"no trial of this study with this code: ablate try {path} finds a value or seed that never reaches the script"
    )
    monkeypatch.setattr(sys, "argv", ["ablate", "run", str(path), "--jobs", "0"])
    for times in (1, 0):
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr()
        assert (said.out + said.err).count(remark) == times
