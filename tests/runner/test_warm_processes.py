"""Workers that tests fork from a process that has loaded torch are processes like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from warm_processes import WarmProcess, WarmSubprocess

from ablate.runner import processes


def worker(log: Path) -> WarmProcess:
    assert isinstance(processes.subprocess, WarmSubprocess), "what every test that is not cold has in its place"
    with log.open("w") as stream:
        return processes.start_worker(own=False, log=stream)  # type: ignore[return-value]


def end(process: WarmProcess) -> None:
    process.kill()
    process.wait(60)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are started as users start them")


def test_one_has_a_number_a_session_and_pipes_of_its_own_and_tells_how_it_ended(tmp_path: Path) -> None:
    one, other = worker(tmp_path / "one"), worker(tmp_path / "other")
    try:
        assert os.getsid(one.pid) == one.pid != other.pid
        assert Path(f"/proc/{one.pid}/cwd").resolve() == Path.cwd()
        assert one.stdout is not None and "ready" in one.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.05)
        one.stdin.write('{"do": "stop"}\n')
        one.stdin.flush()
        assert (one.wait(60), one.poll(), one.returncode) == (0, 0, 0)
        other.kill()
        assert other.wait(60) == -signal.SIGKILL
    finally:
        end(one)
        end(other)


def test_one_that_is_abandoned_ends_though_its_starter_lives(tmp_path: Path) -> None:
    one = worker(tmp_path / "log")
    try:
        one.stdin.close()
        assert one.wait(60) == 3  # as a worker leaves when its scheduler is gone
    finally:
        end(one)


def test_an_error_of_one_is_in_its_log(tmp_path: Path) -> None:
    one = worker(tmp_path / "log")
    try:
        one.stdin.write('{"do": "nothing we know"}\n')
        one.stdin.flush()
        assert one.wait(60) == 1
        assert "Traceback" in (tmp_path / "log").read_text()
    finally:
        end(one)


@pytest.mark.cold
def test_cold_tests_start_theirs_as_users_do() -> None:
    assert processes.subprocess is subprocess
