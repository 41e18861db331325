"""Tasks of the harness itself where there is no network: the real program, its real refusal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import House
from harness_samples import items_document

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def offline(folder: Path) -> tuple[dict[str, str], socket.socket]:
    """An environment whose hub is a port that nobody listens on, and the socket that keeps it so."""
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return kept | {"HF_ENDPOINT": address, "HF_HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}, closed


@pytest.mark.parametrize("name", ["piqa", "no_such_task"])
def test_they_are_refused_plainly_and_nothing_is_written(house: House, tmp_path: Path, name: str) -> None:
    measure = {"every": 8, "suites": ["loss"], "harness": {"tasks": f"lm_eval:{name}", "items_per_task": 5}}
    study = house.write(items_document(measure=measure))
    before = house.snapshot()
    environment, closed = offline(tmp_path / "hub")
    with closed:
        words = [sys.executable, "-m", "ablate", "register", str(study)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stderr.split())
    assert "the tasks of the harness cannot be loaded" in said and "Traceback" not in said
    assert "or a network to fetch them" in said, "what is required"
    assert "tasks: blimp, which needs no network" in said, "what to type"
    assert house.snapshot() == before
