"""Nothing is kept that is not needed: neither over ten thousand steps, nor over many runs of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the resident size"),
]

GROWTH_BYTES = 4 * 2**20
"""What the allocator may do over nine thousand steps; a leak of one scalar tensor a step would take more."""


def probed(kind: str, folder: Path) -> dict[str, int]:
    """What a fresh process found of itself."""
    probe = Path(__file__).with_name("leak_probe.py")
    done = subprocess.run(
        [sys.executable, str(probe), kind, str(folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(kind, found)
    return found


def test_no_step_leaks_over_ten_thousand(tmp_path: Path) -> None:
    found = probed("steps", tmp_path)
    assert found["times"] == 10_000
    assert found["tensors"] == 0
    assert found["bytes"] < GROWTH_BYTES, f"{found['bytes'] / 2**20:.1f} MiB"


def test_the_measure_sees_a_step_that_keeps_one_tensor(tmp_path: Path) -> None:
    found = probed("steps_that_keep_a_tensor", tmp_path)
    assert found["tensors"] == 4_000
    assert found["bytes"] > GROWTH_BYTES, f"{found['bytes'] / 2**20:.1f} MiB"


def test_a_worker_keeps_nothing_of_the_runs_it_has_made(tmp_path: Path) -> None:
    found = probed("runs_of_one_worker", tmp_path)
    assert found["times"] == found["done"] == 60
    assert found["tensors"] == 0
    assert found["bytes"] < 2 * GROWTH_BYTES, f"{found['bytes'] / 2**20:.1f} MiB"
