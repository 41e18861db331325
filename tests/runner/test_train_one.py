"""Claims about `ablate train`: one planned run in its folder, no ledger, and a refusal for whatever is not that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from own_trainer import SCRIPT, OwnHouse

from ablate.records.store import RunFolder

WAITS_ONCE = """
import os, time
open("resumable", "w").close()
if os.environ["ABLATE_ATTEMPT"] == "1":
    open("waiting", "w").close()
    time.sleep(600)
"""


def begin(house: OwnHouse, run: str, *options: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "ablate", "train", str(house.study), run, *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def train(house: OwnHouse, run: str, *options: str) -> tuple[int, str]:
    """Exit code and output of `ablate train`."""
    process = begin(house, run, *options)
    output, _ = process.communicate(timeout=150)
    return process.returncode, output


def wait_for(house: OwnHouse, pattern: str) -> Path:
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        if found := list(house.path.glob(pattern)):
            return found[0]
        time.sleep(0.02)
    pytest.fail(f"no {pattern} within a minute")


@pytest.mark.slow
def test_one_run_is_made_once_and_no_ledger_is_touched(own_house: OwnHouse) -> None:
    own_house.register()
    ledger = (own_house.path / "studies" / "ledger.jsonl").read_bytes()
    code, output = train(own_house, "fast/2", "--json")
    done: dict[str, Any] = json.loads(output)
    assert (code, done["status"], done["step"], done["attempts"], done["made_before"]) == (0, "done", 4, 1, False)
    folder = RunFolder(own_house.run_folder("fast", 2))
    assert folder.is_sealed()
    before = own_house.snapshot()
    code, output = train(own_house, "fast/2")
    assert code == 0 and "made before" in output
    assert own_house.snapshot() == before
    assert (own_house.path / "studies" / "ledger.jsonl").read_bytes() == ledger
    assert len(list(own_house.path.glob("data/runs/own/*/*/*/run.json"))) == 1


@pytest.mark.slow
def test_a_run_that_is_stopped_can_go_on_and_one_that_fails_says_so(own_house: OwnHouse) -> None:
    own_house.script(WAITS_ONCE + SCRIPT + "\nif seed == 3:\n    raise SystemExit(1)\n")
    own_house.register()
    process = begin(own_house, "fast/2")
    wait_for(own_house, "data/runs/own/*/fast/2/work/waiting")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 130 and "ablate train" in output, output
    assert train(own_house, "fast/2")[0] == 0
    record = RunFolder(own_house.run_folder("fast", 2)).read_record()
    assert record is not None and (record.status, record.attempts, record.resumed_from) == ("done", 2, (0,))
    (own_house.path / "data/runs").rename(own_house.path / "data/before")
    process = begin(own_house, "fast/3")
    wait_for(own_house, "data/runs/own/*/fast/3/work/waiting")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    code, output = train(own_house, "fast/3")
    assert code == 5 and "exit status 1" in output, output


@pytest.mark.slow
def test_two_processes_do_not_make_one_run(own_house: OwnHouse) -> None:
    own_house.script(WAITS_ONCE + SCRIPT)
    own_house.register()
    first = begin(own_house, "fast/2")
    wait_for(own_house, "data/runs/own/*/fast/2/work/waiting")
    code, output = train(own_house, "fast/2")
    assert code == 2 and f"being made by another process (pid {first.pid} on " in output, output
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=150)
    assert first.returncode == 130


@pytest.mark.slow
def test_what_is_not_the_registered_run_is_refused_and_nothing_is_written(own_house: OwnHouse) -> None:
    own_house.write()

    def refused(run: str, *words: str) -> None:
        before = own_house.snapshot()
        code, output = train(own_house, run)
        assert code == 2, output
        assert all(word in output for word in ("required:", "try:", *words)), output
        assert own_house.snapshot() == before

    refused("fast/2", "is not registered", "ablate run")
    own_house.register()
    refused("fast/9", "fast/9", "did you mean 'fast/")
    refused("fast", "ARM/SEED of a planned run")
    own_house.write(title="Another title", seeds=[1, 2, 3, 4])
    refused("fast/2", "seeds")
    own_house.write()
    own_house.script(SCRIPT + "\n# better\n")
    refused("fast/2", "the trainer's code is not what was registered", "train.py")
