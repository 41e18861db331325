"""What is said while runs are made: health, honestly, and never a metric."""

from __future__ import annotations

import json
import time
from io import StringIO

import pytest
from rich.console import Console

from ablate.runner import progress
from ablate.runner.messages import Message
from ablate.runner.progress import JsonWatcher, LiveWatcher, PlainWatcher, Tally, doing


def tally(step: int, *, seconds: float = 10.0) -> Tally:
    running = {"s/12345678/a/1": Message(event="progress", run_id="s/12345678/a/1", step=step, steps=500)}
    return Tally(
        planned=4,
        steps_planned=2000,
        sealed=1,
        steps_done=500,
        steps_before=500,
        running=running,
        started=time.monotonic() - seconds,
    )


def test_speed_counts_only_the_steps_of_this_call() -> None:
    assert abs(tally(100).steps_per_s - 10.0) < 0.1


def test_time_left_is_unknown_before_there_is_a_speed_to_go_by() -> None:
    assert tally(10).seconds_left is None
    assert "time left unknown" in tally(10).line()
    left = tally(300).seconds_left
    assert left is not None
    assert abs(left - 40.0) < 0.5
    assert tally(300).line().startswith("1/4 runs done, 1 running, 0 failed, 30.0 steps/s, ")


def test_a_trainer_without_planned_steps_is_timed_by_its_runs() -> None:
    began = time.monotonic() - 30.0
    shown = Tally(planned=10, steps_planned=0, sealed=4, failed=1, ended_before=2, started=began)
    assert shown.seconds_left == pytest.approx(5 * 10.0, abs=0.5)
    assert Tally(planned=10, steps_planned=0, sealed=2, ended_before=2, started=began).seconds_left is None


def test_a_failed_run_is_told_at_once_with_its_error() -> None:
    stream = StringIO()
    PlainWatcher(stream).ended("s/1/a/1", Message(event="ended", run_id="s/1/a/1", status="failed", error="no memory"))
    assert stream.getvalue() == "s/1/a/1: failed: no memory\n"


def test_json_lines_hold_health_and_nothing_else() -> None:
    stream = StringIO()
    watcher = JsonWatcher(stream)
    with watcher.watching(tally(300)):
        watcher.tick(tally(300))
    watcher.note("x")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["state", "state", "note"]
    assert set(lines[0]) == {
        "event",
        "planned",
        "done",
        "running",
        "failed",
        "steps",
        "steps_planned",
        "steps_per_s",
        "seconds_left",
        "doing",
    }


ASKED = "s/12345678/a/1"
DOING = "asking blimp: 12,000 of 26,800 requests, 3 shots"


def asking(*, sealed: int = 0) -> Tally:
    """One run of four is being asked, all of its steps taken; ten minutes have passed."""
    state = tally(500, seconds=600.0)
    state.sealed, state.has_tasks, state.steps_done, state.steps_before = sealed, True, 500 * sealed, 0
    state.hear(ASKED, Message(event="progress", run_id=ASKED, step=500, steps=500, doing=DOING, seconds_left=120.0))
    return state


def test_what_a_trainer_does_besides_its_steps_is_told_with_the_time_left() -> None:
    assert asking().doing() == [f"a/1: {DOING}, 2 min 00 s left"]
    assert doing(Message(event="progress", run_id=ASKED, doing="measuring own/x")) == "measuring own/x"
    assert tally(100).doing() == []


def test_every_kind_of_watcher_tells_what_runs_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", -1.0)
    stream = StringIO()
    PlainWatcher(stream).tick(asking())
    state, told = stream.getvalue().splitlines()
    assert state.startswith("0/4 runs done, 1 running") and told == "  " + asking().doing()[0]
    stream = StringIO()
    with JsonWatcher(stream).watching(asking()):
        pass
    assert json.loads(stream.getvalue().splitlines()[0])["doing"] == {ASKED: DOING}
    console = Console(file=StringIO(), force_terminal=True, width=160)
    with LiveWatcher(console).watching(asking()):
        pass
    assert isinstance(console.file, StringIO)
    assert f"{DOING}, 2 min 00 s left" in console.file.getvalue()


def test_time_left_of_a_study_with_tasks_follows_its_runs_that_have_ended() -> None:
    # One run took 600 s, tasks and all: three more are to come.
    assert asking(sealed=1).seconds_left == pytest.approx(3 * 600, rel=1e-3)
    # Before one has ended nobody knows what its tasks will take; that is said.
    assert asking().line().endswith("left of training, then the evaluation tasks")
    assert "then the" not in tally(300).line() and "then the" not in asking(sealed=1).line()
