"""What `check` and `plan` say that a study costs, against a hand computation and recorded runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import House, tiny_text
from own_trainer import OwnHouse
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app

GPT3_XL = {"layers": 24, "width": 2048, "heads": 16, "context": 2048}


def said(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.exception
    return " ".join(done.output.split())


def test_parameters_tokens_and_flops_are_those_of_a_pencil(house: House) -> None:
    budget = {"steps": 1000, "batch": 512}
    study = house.write(base={"model": GPT3_XL, "budget": budget, "data": {"corpus": "tiny"}})
    none, layernorm = api.plan_runs(study).arms
    h, vocabulary = 2048, len(set(tiny_text()))
    # 24 layers of 12 h^2 weights, 9 h biases (4 of attention, 5 of the feed-forward layer) and 2 LayerNorms of 2 h;
    # embeddings of tokens and of 2,048 positions; the final LayerNorm.
    n = 24 * (12 * h * h + 9 * h + 4 * h) + (vocabulary + 2048) * h + 2 * h
    assert (none.parameters, layernorm.parameters) == (n, n + 2 * h)
    assert none.tokens == 1000 * 512 * 2048
    assert none.flops == 6 * n * none.tokens
    assert (none.runs, none.device_hours) == (3, None)


def test_hours_are_those_that_are_assumed_until_runs_are_sealed(house: House, trained: House) -> None:
    unknown = house.write()
    assert "Device-hours: unknown; ablate try measures a run" in said("check", str(unknown))
    assumed = house.write(assume={"seconds_per_run": 1200})
    assert [arm.device_hours for arm in api.plan_runs(assumed).arms] == [1.0, 1.0]
    assert "Device-hours: 2 in all, from assume.seconds_per_run." in said("check", str(assumed))
    records = [json.loads(path.read_text()) for path in trained.path.glob("data/runs/*/*/*/*/run.json")]
    found = api.plan_runs(trained.study)
    for arm in found.arms:
        walls = [record["wall_s"] for record in records if record["variant"] == arm.arm]
        assert len(walls) == 3 and arm.device_hours == pytest.approx(sum(walls) / 3600)
    assert found.timed == "the mean of 6 sealed runs"


def test_of_an_own_trainer_the_hours_alone_can_be_known(tmp_path: Path) -> None:
    study = OwnHouse(tmp_path / "house").write(assume={"seconds_per_run": 60})
    arms: list[dict[str, Any]] = json.loads(said("check", str(study), "--json"))["costs"]["arms"]
    assert [(arm["runs"], arm["parameters"], arm["flops"]) for arm in arms] == [(3, None, None)] * 2
    assert all(arm["device_hours"] == pytest.approx(0.05) for arm in arms)


def test_a_corpus_that_is_not_here_leaves_the_size_open(house: House) -> None:
    base = {"model": GPT3_XL, "budget": {"steps": 10, "batch": 4}, "data": {"corpus": "wikitext-2"}}
    arm = api.plan_runs(house.write(base=base)).arms[0]
    assert (arm.parameters, arm.tokens, arm.flops) == (None, 10 * 4 * 2048, None)


def test_check_and_plan_write_nothing_and_load_no_torch(house: House) -> None:
    study = house.write()
    before = house.snapshot()
    code = (
        "import sys\nfrom ablate.cli import app\n"
        f"for verb in ('check', 'plan'):\n    app([verb, {str(study)!r}], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "6 runs: 2 arms x 3 seeds" in done.stdout and done.stdout.count("FLOPs: 6 N D") == 2
    assert house.snapshot() == before
