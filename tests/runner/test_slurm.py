"""A study on a real Slurm of one node: submitted, preempted, queued again, its controller killed, finished."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_trainer import OwnHouse
from slurm_loopback import Slurm, slurm
from test_parts import RESUMABLE, decision, entries, outcomes, ready, starts, wait_for
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.health import read_status
from ablate.runner.options import RunOptions
from ablate.runner.slurm import SlurmSettings, read_settings
from ablate.workspace import Workspace
from prereg.errors import RunError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    with slurm(tmp_path / "slurm") as found:
        if isinstance(found, str):
            pytest.skip(found)
        monkeypatch.setenv("SLURM_CONF", found.environment["SLURM_CONF"])
        yield found


def verb(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ablate", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def finish(path: Path, seconds: float = 90) -> None:
    """Until Slurm has no task of the study left."""
    context = Workspace().open(path)
    wait_for(lambda: not read_status(context).queued, seconds)


@pytest.mark.slow
def test_submitted_preempted_and_finished_without_its_controller(
    own_house: OwnHouse, cluster: Slurm, tmp_path: Path
) -> None:
    path = ready(own_house, RESUMABLE, sleep=0.25)
    started = time.monotonic()
    status, said = verb("run", str(path), "--on", "slurm", "--tasks", "2", "--lost-after", "5")
    assert status == 0 and "6 runs left, submitted as Slurm job" in said
    assert time.monotonic() - started < 20 and not outcomes(own_house)
    wait_for(lambda: len(starts(own_house)) >= 2, 60)
    health = read_status(Workspace().open(path))
    assert health.job is not None and health.queued == {"RUNNING": 2} and len(health.processes) == 2
    assert "2 running" in CliRunner().invoke(app, ["status", str(path)]).output

    status, said = verb("run", str(path), "--on", "slurm")
    assert status == 2 and "has not ended" in said  # never a second array beside the first

    time.sleep(1.0)
    cluster.say("scontrol", "requeue", f"{health.job.id}_1")  # as a preemption does: SIGTERM, and back into the queue
    wait_for(lambda: read_status(Workspace().open(path)).queued.get("PENDING", 0) == 1, 30)
    wait_for(lambda: read_status(Workspace().open(path)).queued.get("RUNNING", 0) == 2, 60)
    cluster.kill("slurmctld")
    wait_for(lambda: len(outcomes(own_house)) == 6, 90)
    resumed = [entry.body for entry in entries(own_house) if entry.event == "started" and "resumed_from" in entry.body]
    assert len(resumed) >= 1 and not [entry for entry in entries(own_house) if entry.event == "failed"]

    one = OwnHouse(tmp_path / "one")
    alone = ready(one, RESUMABLE, sleep=0.0)
    assert api.run(alone).summary.complete
    wait_for(lambda: any(entry.event == "finished" for entry in entries(own_house)), 30)
    assert outcomes(own_house) == outcomes(one) and decision(path) == decision(alone)
    assert not Ledger(own_house.path / "studies" / "ledger.jsonl").faults()
    cluster.start("slurmctld")
    cluster.wait_idle()
    status, said = verb("run", str(path), "--on", "slurm")
    assert status == 0 and "6 of 6 runs sealed" in said and "ablate decide" in said


@pytest.mark.slow
def test_a_task_at_its_time_limit_saves_and_is_queued_again(own_house: OwnHouse, cluster: Slurm) -> None:
    path = ready(own_house, RESUMABLE, sleep=0.3)
    root = Root.find(path)
    (root.path / "cluster.yaml").write_text("slurm: {tasks: 1, options: {partition: main, time: 3}}\n")
    status, said = verb("run", str(path), "--on", "slurm")
    assert status == 0, said
    wait_for(lambda: len(starts(own_house)) >= 1, 60)
    time.sleep(1.0)
    job = read_status(Workspace().open(path)).job
    assert job is not None
    cluster.say("scancel", "--batch", "--signal=USR1", f"{job.id}_1")  # what --signal=B:USR1@120 sends
    wait_for(lambda: any("resumed_from" in entry.body for entry in entries(own_house)), 60)
    cluster.say("scancel", job.id)
    finish(path)
    # What cancelled tasks left is collected by a later call, here in one process.
    assert api.run(path).summary.complete and len(outcomes(own_house)) == 6


def test_settings_come_from_a_file_and_flags(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    root, path = Root(tmp_path), tmp_path / "cluster.yaml"
    assert read_settings(root) == SlurmSettings()
    path.write_text("slurm:\n  tasks: 8\n  options: {partition: gpu, time: '4:00:00', exclusive: true}\n")
    found = read_settings(root, ["tasks=3", "gres=gpu:1", "partition=big"])
    assert found.tasks == 3 and found.at_once is None
    assert found.options == {"partition": "big", "time": "4:00:00", "exclusive": True, "gres": "gpu:1"}
    for wrong in ("partition", "array=1-9", "wrap=ls", "Part=x", "tasks=0", "tasks=many", "time=1\n#SBATCH --x"):
        with pytest.raises(RunError):
            read_settings(root, [wrong])
    for text in ("slurm: 3", "cluster: {}", "slurm: {task: 3}", "slurm: [", "slurm: {options: [a]}"):
        path.write_text(text)
        with pytest.raises(RunError):
            read_settings(root)


def test_without_slurm_nothing_but_the_registration_is_written(
    own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ready(own_house)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RunError, match="there is no sbatch here"):
        api.submit(path)
    assert not starts(own_house)
    with pytest.raises(RunError, match="--part with --on"):
        api.submit(path, RunOptions(part="1/2"))
    assert (
        "--slurm without --on slurm"
        in CliRunner().invoke(app, ["run", str(path), "--slurm", "tasks=2"], catch_exceptions=True).exception.args[0]
    )  # type: ignore[union-attr]


def test_options_become_the_words_that_say_them() -> None:
    options = RunOptions(only=("a/1", "b/2"), slots=3, next_look=True, checkpoint_every_s=5.0, device="cpu")
    words = ["--slots", "3", "--only", "a/1", "--only", "b/2", "--next-look", "--checkpoint-every", "5.0"]
    assert options.words() == (*words, "--device", "cpu")
    assert RunOptions(part="1/2").words() == ()
    assert json.dumps(RunOptions().words()) == "[]"
