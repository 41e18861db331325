"""A study on a real Slurm of one node: submitted, preempted, queued again, its controller killed, collected."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launchers import (
    N_RUNS,
    command,
    decision,
    end,
    entries,
    outcomes,
    ready,
    sealed_on_disk,
    starts,
    wait_for,
    wait_for_slurm,
)
from own_trainer import OwnHouse
from slurm_loopback import Slurm, slurm
from typer.testing import CliRunner

import ablate
from ablate.cli import app
from ablate.runner.options import RunOptions
from ablate.runner.slurm import SlurmSettings, read_settings
from prereg.errors import RunError
from prereg.registry.ledger import Ledger
from prereg.registry.paths import Root

pytestmark = pytest.mark.usefixtures("no_reports")

STATES = ("squeue", "--noheader", "--array", "--format", "%T")
"""A line for each task of each job."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    with slurm(tmp_path / "slurm") as started:
        if isinstance(started, str):
            pytest.skip(started)
        monkeypatch.setenv("SLURM_CONF", started.environment["SLURM_CONF"])
        yield started


def on_slurm(path: Path, *words: str) -> tuple[int, str]:
    return end(command("run", str(path), "--on", "slurm", *words))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_submitted_preempted_and_finished_without_its_controller(
    own_house: OwnHouse, cluster: Slurm, tmp_path: Path
) -> None:
    path = ready(own_house, sleep=0.25)
    status, printed = on_slurm(path, "--tasks", "2")
    assert status == 0 and "6 runs left, submitted as Slurm job" in printed and not outcomes(own_house)
    assert len(starts(own_house)) == N_RUNS, "every start is on record before its task begins"
    wait_for_slurm(cluster, *STATES, until=lambda states: "RUNNING" in states)
    assert "running" in CliRunner().invoke(app, ["status", str(path)]).output

    before = len(entries(own_house))
    status, printed = on_slurm(path)
    assert status == 5 and "has not ended" in printed, "never a second array next to the first"
    assert not [entry for entry in entries(own_house)[before:] if entry.event == "started"]

    wait_for(lambda: list(own_house.path.glob("data/runs/*/*/*/*/work/resumable")))
    time.sleep(0.5)
    job = cluster.say("squeue", "--noheader", "--format", "%F").split()[0]
    cluster.say("scontrol", "requeue", f"{job}_1")  # as a preemption does: SIGTERM, and back into the queue
    wait_for_slurm(cluster, "scontrol", "show", "job", f"{job}_1", until=lambda facts: "Restarts=1" in facts)
    wait_for_slurm(cluster, *STATES, until=lambda states: states.count("RUNNING") == 2)
    cluster.kill("slurmctld")
    wait_for(lambda: sealed_on_disk(own_house) == N_RUNS)
    cluster.start("slurmctld")
    cluster.wait_idle()

    status, printed = on_slurm(path)
    assert status == 0 and "6 of 6 runs sealed" in printed and "ablate decide" in printed
    assert sum(entry.event == "finished" for entry in entries(own_house)) == 1
    assert not [entry for entry in entries(own_house) if entry.event == "failed"]
    one = OwnHouse(tmp_path / "one")
    alone = ready(one, sleep=0.0)
    assert ablate.run(alone).summary.complete
    assert outcomes(own_house) == outcomes(one) and decision(path) == decision(alone)
    assert not Ledger(own_house.path / "studies" / "ledger.jsonl").faults()


@pytest.mark.slow
def test_a_task_at_its_time_limit_saves_and_is_queued_again(own_house: OwnHouse, cluster: Slurm) -> None:
    path = ready(own_house, sleep=0.3)
    (own_house.path / "cluster.yaml").write_text("slurm: {tasks: 1, options: {partition: main, time: 3}}\n")
    assert on_slurm(path)[0] == 0
    wait_for(lambda: list(own_house.path.glob("data/runs/*/*/*/*/work/resumable")))
    time.sleep(1.0)
    job = cluster.say("squeue", "--noheader", "--format", "%F").split()[0]
    cluster.say("scancel", "--batch", "--signal=USR1", f"{job}_1")  # what --signal=B:USR1@120 sends
    wait_for(lambda: list(own_house.path.glob("data/runs/*/*/*/*/metrics.parquet")))
    cluster.say("scancel", job)
    wait_for_slurm(cluster, "squeue", "--noheader", until=lambda jobs: not jobs.strip())
    # What cancelled tasks left is made by a later call, here in processes of this machine.
    assert ablate.run(path).summary.complete and len(outcomes(own_house)) == N_RUNS
    checks = {check.name for check in ablate.decide(path).decision.deviations}
    assert any("on record" in name or "logged" in name for name in checks), checks


def test_settings_come_from_a_file_and_flags(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    root, path = Root(tmp_path), tmp_path / "cluster.yaml"
    assert read_settings(root) == SlurmSettings()
    path.write_text("slurm:\n  tasks: 8\n  options: {partition: gpu, time: '4:00:00', exclusive: true}\n")
    settings = read_settings(root, ["tasks=3", "gres=gpu:1", "partition=big"])
    assert settings.tasks == 3 and settings.at_once is None
    assert settings.options == {"partition": "big", "time": "4:00:00", "exclusive": True, "gres": "gpu:1"}
    for wrong in ("partition", "array=1-9", "wrap=ls", "Part=x", "tasks=0", "tasks=many", "time=1\n#SBATCH --x"):
        with pytest.raises(RunError):
            read_settings(root, [wrong])
    for text in ("slurm: 3", "cluster: {}", "slurm: {task: 3}", "slurm: [", "slurm: {options: [a]}"):
        path.write_text(text)
        with pytest.raises(RunError):
            read_settings(root)


def test_without_slurm_no_start_is_put_on_record(own_house: OwnHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ready(own_house)
    before = own_house.snapshot()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(RunError, match="there is no sbatch here"):
        ablate.run(path, RunOptions(on="slurm"))
    assert own_house.snapshot() == before
    refused = CliRunner().invoke(app, ["run", str(path), "--slurm", "tasks=2"])
    assert "--slurm without --on slurm" in str(refused.exception)
