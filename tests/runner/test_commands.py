"""`ablate plan --commands`: lines for a scheduler that nobody here knows, run from two processes on one folder."""

from __future__ import annotations

import shlex

import pytest
from launchers import N_RUNS, CommandsLauncher, command, decision, end, entries, outcomes, ready, sealed_on_disk, starts
from own_trainer import OwnHouse
from typer.testing import CliRunner

import ablate
from ablate.cli import app

pytestmark = pytest.mark.usefixtures("no_reports")


@pytest.mark.slow
def test_two_loops_on_one_folder_make_the_plan(own_house: OwnHouse) -> None:
    path = ready(own_house, sleep=0.02)
    study = CommandsLauncher(own_house, path, at_once=2)
    study.launch()
    assert len(starts(own_house)) == N_RUNS, "every start is on record before its command runs"
    status, printed = study.wait()
    assert status == 0 and "6 of 6 runs sealed" in printed
    assert len(outcomes(own_house)) == N_RUNS
    found = ablate.decide(path).decision
    assert found.status == "decided", "runs that were put on record and collected are no deviation"
    assert sum(entry.event == "finished" for entry in entries(own_house)) == 1


@pytest.mark.slow
def test_the_same_line_in_two_processes_makes_one_run(own_house: OwnHouse) -> None:
    path = ready(own_house, sleep=0.1)
    _, printed = end(command("plan", str(path), "--commands"))
    lines = [line for line in printed.splitlines() if line.startswith("ablate train ")]
    assert len(lines) == N_RUNS
    words = shlex.split(lines[0])[1:]
    ended = [end(process) for process in [command(*words), command(*words)]]
    assert sorted(status for status, _ in ended) in ([0, 0], [0, 2])
    assert sealed_on_disk(own_house) == 1
    _, again = end(command("plan", str(path), "--commands"))
    assert [line for line in again.splitlines() if line.startswith("ablate train ")] == lines[1:]
    assert sum(starts(own_house).values()) == N_RUNS, "what is on record and has not begun is not entered again"
    assert end(command("run", str(path)))[0] == 0
    assert decision(path)["gives a verdict"]


def test_commands_of_a_study_that_is_not_registered_are_refused(own_house: OwnHouse) -> None:
    path = own_house.write()
    before = own_house.snapshot()
    refused = CliRunner().invoke(app, ["plan", str(path), "--commands"])
    assert "is not registered" in str(refused.exception) and own_house.snapshot() == before
