"""What is said while runs are made: health, honestly, and never a metric."""

from __future__ import annotations

import json
import time
from io import StringIO

from ablate.run.messages import Message
from ablate.run.watch import JsonWatcher, PlainWatcher, Tally


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
    }
