"""A worker that dies before its first order takes no run with it, and workers that all do so are told, not lost."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from typing import IO, Any

import pytest
from conftest import House, tiny_document

import ablate as api
from ablate.runner import scheduler
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.errors import RunError


def dead_worker(log: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; print('no room', file=sys.stderr); sys.exit(7)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
    )


def dying(monkeypatch: pytest.MonkeyPatch, deaths: int) -> list[int]:
    """The first so many workers die at once; the others are as ever. The number of those that were started."""
    started: list[int] = []
    real = scheduler.start_worker

    def start(*, log: IO[str], **options: Any) -> subprocess.Popen[str]:
        started.append(len(started))
        return dead_worker(log) if len(started) <= deaths else real(log=log, **options)

    monkeypatch.setattr(scheduler, "start_worker", start)
    return started


@pytest.mark.slow
def test_a_worker_that_dies_before_it_is_ready_is_replaced(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    started, stream = dying(monkeypatch, 2), StringIO()
    ran = api.run(
        house.write(tiny_document()), RunOptions(slots=1), workspace=api.Workspace(console=PlainWatcher(stream))
    )
    assert ran.summary.complete and len(started) == 3
    assert stream.getvalue().count("a worker died before it was ready (exit 7); starting another") == 2


def test_workers_that_never_start_end_the_call_and_say_where_to_look(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = dying(monkeypatch, 99)
    with pytest.raises(RunError, match=r"3 workers in a row died before they were ready .*exit 7") as caught:
        api.run(
            house.write(tiny_document()), RunOptions(slots=1), workspace=api.Workspace(console=PlainWatcher(StringIO()))
        )
    assert len(started) == 3
    assert "worker-2.log" in caught.value.fix
    (log,) = house.path.glob("data/runs/*/*/worker-2.log")
    assert "no room" in log.read_text()
