"""Servers of runs that tests fork from a process that has loaded torch are processes like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from warm_processes import WarmProcess, WarmSubprocess

from ablate.runner import pool
from ablate.runner.pool import Pool
from ablate.runner.process import Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere servers are started as users start them")


def server(place: Path, log: str) -> Pool:
    assert isinstance(pool.subprocess, WarmSubprocess), "what every test that is not cold has in its place"
    with (place / log).open("w") as stream:
        return Pool((), Place(place), stream).__enter__()


@pytest.mark.slow
def test_one_has_a_number_and_a_session_of_its_own_and_tells_how_it_ended(tmp_path: Path) -> None:
    one, other = server(tmp_path, "one"), server(tmp_path, "other")
    process = one.process
    assert isinstance(process, WarmProcess)
    try:
        assert os.getsid(process.pid) == process.pid != other.process.pid
        assert Path(f"/proc/{process.pid}/cwd").resolve() == Path.cwd()
        with one.fork().connection as connection:
            assert b'"ready"' in connection.recv(4096)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        one.connection.close()
        assert (process.wait(60), process.poll(), process.returncode) == (0, 0, 0)
        other.process.kill()
        assert other.process.wait(60) == -signal.SIGKILL
    finally:
        for each in (one, other):
            each.__exit__()


@pytest.mark.slow
def test_an_error_of_one_is_in_its_log(tmp_path: Path) -> None:
    one = server(tmp_path, "log")
    try:
        one.connection.sendall(b"nothing that we know\n")
        assert one.process.wait(60) == 1
        assert "Traceback" in (tmp_path / "log").read_text()
    finally:
        one.__exit__()


@pytest.mark.cold
def test_cold_tests_start_theirs_as_users_do() -> None:
    assert pool.subprocess is subprocess
