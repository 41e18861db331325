"""`status --watch`: progress of real runs until all are sealed, and no number that separates arms."""

from __future__ import annotations

import json
import time

import pytest
from conftest import House, tiny_document
from test_run import start
from typer.testing import CliRunner

from ablate.cli import app
from ablate.study_status import status

BASE = tiny_document()["base"] | {"budget": {"steps": 600, "batch": 8}}


@pytest.mark.slow
def test_runs_at_work_are_watched_to_their_end(house: House) -> None:
    path = house.write(base=BASE, seeds=[1, 2], measure={"every": 200})
    process = start(path, "--slots", "2")
    try:
        while not list(house.path.glob("data/runs/tiny/*/*/1/work/metrics.jsonl")):
            assert process.poll() is None
            time.sleep(0.05)
        done = CliRunner().invoke(app, ["status", str(path), "--watch", "--every", "0.2", "--json"])
    finally:
        process.communicate(timeout=120)
    assert done.exit_code == 0, done.exception
    looks = [json.loads(line) for line in done.output.splitlines()]
    states = [sorted({run["state"] for run in look["runs"]}) for look in looks]
    assert states[-1] == ["done"] and any("running" in state for state in states)


def test_ctrl_c_ends_the_watching_with_what_was_seen_last(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    done = CliRunner().invoke(app, ["status", str(house.write()), "--watch"])
    assert done.exit_code == 0 and "6 runs: 6 waiting." in done.output


def test_a_failed_run_is_waited_for_while_a_process_is_at_work(house: House) -> None:
    found = status(house.write())
    states = ("done", "diverged", "failed")
    runs = tuple(found.runs[0].model_copy(update={"state": state}) for state in states)
    failed = found.model_copy(update={"runs": runs})
    assert not found.ended and failed.ended
    assert not failed.model_copy(update={"active": True}).ended
    assert failed.model_copy(update={"active": True, "runs": runs[:2]}).ended


@pytest.mark.parametrize("width", [80, 40])
def test_the_screen_fits(house: House, width: int) -> None:
    said = CliRunner().invoke(app, ["status", str(house.write())], env={"COLUMNS": str(width)}).output
    assert all(len(line) <= width for line in said.splitlines())
