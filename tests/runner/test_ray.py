"""A study on a real Ray cluster of one machine, in a network namespace of its own: Ray listens on every address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own_trainer import OwnHouse
from test_parts import RESUMABLE, alone, decision, end, entries, outcomes, ready, runs_of, starts, wait_for

import ablate as api
from ablate.runner.claims import owners
from prereg.errors import RunError
from prereg.registry.ledger import Ledger

__all__ = ["alone"]  # a fixture
ISOLATED = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def start_on_ray(path: Path, tasks: int) -> subprocess.Popen[str]:
    """`ablate run --on ray`. Skips where no network namespace can be made."""
    pytest.importorskip("ray")
    if subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here, and Ray would listen on every address")
    return subprocess.Popen(
        [*ISOLATED, sys.executable, "-m", "ablate", "run", str(path), "--on", "ray", "--tasks", str(tasks)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_tasks_make_the_plan_and_a_killed_worker_is_made_good(
    own_house: OwnHouse, alone: tuple[dict[str, str], dict[str, object]]
) -> None:
    path = ready(own_house, RESUMABLE, sleep=0.4)
    process = start_on_ray(path, 2)
    wait_for(lambda: len(starts(own_house)) >= 2, 90)
    time.sleep(1.5)
    part = next(iter(owners(runs_of(own_house)).values()))
    worker = int(Path(f"/proc/{part.pid}/stat").read_text().rpartition(")")[2].split()[1])  # of Ray: the part's parent
    os.kill(worker, signal.SIGKILL)
    status, said = end(process, 180)
    assert status == 0 and "6 of 6 runs sealed" in said, said
    assert outcomes(own_house) == alone[0] and decision(path) == alone[1]
    assert any("resumed_from" in entry.body for entry in entries(own_house) if entry.event == "started")
    assert not [entry for entry in entries(own_house) if entry.event == "failed"]
    assert not Ledger(own_house.path / "studies" / "ledger.jsonl").faults()


def test_without_ray_the_extra_is_named(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from ablate.runner.progress import PlainWatcher

    path = ready(own_house)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match="ray is not installed"):
        api.run_on_ray(path, workspace=api.Workspace(console=PlainWatcher(StringIO())))
    assert not starts(own_house)
