"""The order of tests over workers: what takes longest begins first, and tests of one launcher share a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from schedule import SECONDS

ROOT = Path(__file__).resolve().parents[2]
HOOKS = """
import pytest, schedule
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    schedule.sort_longest_first(items)
def pytest_xdist_make_scheduler(config, log):
    return schedule.scheduler(config, log)
"""
MANY_SHORT = """
import pytest
@pytest.mark.parametrize("n", range(20))
def test_short(n): pass
"""
FEW_LONG = """
import pytest, time
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "suspend"])
@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_faults(launcher, fault): time.sleep(0.3)
"""


@pytest.mark.parametrize("unit", SECONDS)
def test_each_unit_of_known_length_is_there(unit: str) -> None:
    file, _, launcher = unit.partition("[")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert not launcher or "launcher: Launcher" in source


@pytest.mark.slow
def test_the_longest_units_begin_first_each_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "test_a_many_short.py").write_text(MANY_SHORT)
    (tmp_path / "test_b_few_long.py").write_text(FEW_LONG)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-v"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first_by_worker: dict[str, list[str]] = {"[gw0]": [], "[gw1]": []}
    for worker, *_, test in (line.split() for line in done.stdout.splitlines() if line.startswith("[gw")):
        first_by_worker[worker].append(test.partition("::")[2])
    units = [[f"test_faults[{launcher}-{fault}]" for fault in ("kill", "suspend")] for launcher in ("local", "ray")]
    assert sorted(tests[:2] for tests in first_by_worker.values()) == units
