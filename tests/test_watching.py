"""Watching a study at work: progress of real runs, and no number that separates arms."""

from __future__ import annotations

import json

import pytest
from conftest import House, tiny_document
from test_run import start
from typer.testing import CliRunner

from ablate import api
from ablate.api.status import pooled, watch_study
from ablate.cli import app

BASE = tiny_document()["base"] | {"budget": {"steps": 600, "batch": 8}}


def test_curves_are_pooled_over_the_steps_that_all_have_taken() -> None:
    assert pooled([[4.0, 2.0], [2.0, 0.0, -9.0]]) == (3.0, 1.0)
    assert pooled([[], [1.0]]) == () and pooled([]) == ()
    many = pooled([[float(step) for step in range(600)]])
    assert len(many) == 60 and many[0] == 4.5 and many[-1] == 594.5


def test_a_study_that_nobody_works_on_is_shown_once(house: House) -> None:
    path = house.write()
    said = CliRunner().invoke(app, ["watch", str(path)]).output
    assert "6 runs: 6 waiting." in said
    assert watch_study(api.open_study(path), None, 0.0).pooled == ()


@pytest.mark.slow
def test_runs_at_work_are_watched_to_their_end(house: House) -> None:
    path = house.write(base=BASE, seeds=[1, 2], measure={"every": 200})
    process = start(path, "--slots", "2")
    try:
        while not list(house.path.glob("data/runs/tiny/*/*/1/metrics.jsonl")):
            assert process.poll() is None
        done = CliRunner().invoke(app, ["watch", str(path), "--every", "0.2", "--json"])
    finally:
        process.communicate(timeout=120)
    assert done.exit_code == 0, done.exception
    looks = [json.loads(line) for line in done.output.splitlines()]
    states = [sorted({run["state"] for run in look["health"]["runs"]}) for look in looks]
    assert states[-1] == ["done"] and any("running" in state for state in states)
    working = [look for look in looks if look["steps_per_s"]]
    assert working and all(speed >= 0 for look in working for speed in look["steps_per_s"].values())
    both = [look for look in looks if look["pooled"]]
    assert both and all(0 < value < 10 for look in both for value in look["pooled"])
    for look in looks:
        at_work = {run["variant"] for run in look["health"]["runs"] if run["state"] == "running" and run["step"]}
        assert len(at_work) > 1 or not look["pooled"], "a curve of one arm alone"


@pytest.mark.parametrize("width", [80, 40])
def test_the_screen_fits(house: House, width: int) -> None:
    path = house.write()
    said = CliRunner().invoke(app, ["watch", str(path)], env={"COLUMNS": str(width)}).output
    assert all(len(line) <= width for line in said.splitlines())
