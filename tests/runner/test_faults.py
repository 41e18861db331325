"""The fault table: what befalls a study, by each launcher. Nothing sealed is lost, results are equal to the bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_trainer import OwnHouse
from slurm_loopback import Slurm, slurm
from test_parts import (
    RESUMABLE,
    _descendants,
    alone,
    decision,
    end,
    entries,
    kill_group,
    outcomes,
    ready,
    recording,
    runs_of,
    start,
    starts,
    wait_for,
)
from test_ray import start_on_ray
from typer.testing import CliRunner

from ablate.cli import app
from ablate.runner.claims import owners
from ablate.workspace import Workspace
from prereg.registry.ledger import Ledger

__all__ = ["alone"]  # a fixture
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
Alone = tuple[dict[str, str], dict[str, object]]


@dataclass
class Launched:
    """A study at work: the process that was started here, and those that make its runs."""

    house: OwnHouse
    path: Path
    launcher: str
    cluster: Slurm | None = None
    process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start what is left, and wait until a run has been at work for a moment."""
        before = sum(starts(self.house).values())
        self.launch()
        wait_for(lambda: sum(starts(self.house).values()) > before and recording(self.house), 60)

    def launch(self) -> None:
        if self.launcher == "slurm":
            self.process = start(self.path, "", "--on", "slurm", "--slurm", "tasks=1", lost_after=3)
        elif self.launcher == "ray":
            self.process = start_on_ray(self.path, 1)
        else:
            self.process = start(self.path, "1/1" if self.launcher == "part" else "")

    @property
    def parent(self) -> int:
        """The process that schedules runs."""
        (owner,) = owners(runs_of(self.house)).values()
        return owner.pid

    @property
    def worker(self) -> int:
        return int(_descendants(self.parent)[0])

    def wait(self) -> tuple[int, str]:
        """Until nothing is at work; what was said last."""
        assert self.process is not None
        status, said = end(self.process, 120)
        if self.launcher == "slurm":
            from ablate.health import read_status

            context = Workspace().open(self.path)
            wait_for(lambda: not read_status(context).queued, 90)
        return status, said

    def finish(self) -> None:
        """Start again what is left, as a user would, until it is complete."""
        for _ in range(3):
            if len(outcomes(self.house)) < 6:
                self.launch()
                self.wait()


@pytest.fixture(params=["local", "part", "slurm", "ray"])
def launched(
    request: pytest.FixtureRequest, own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launched]:
    path = ready(own_house, RESUMABLE, sleep=0.08)
    if request.param != "slurm":
        study = Launched(own_house, path, request.param)
        yield study
        if study.process is not None and study.process.poll() is None:
            kill_group(study.process)
        return
    with slurm(tmp_path / "slurm") as found:
        if isinstance(found, str):
            pytest.skip(found)
        monkeypatch.setenv("SLURM_CONF", found.environment["SLURM_CONF"])
        yield Launched(own_house, path, "slurm", found)


def kill_worker(study: Launched) -> None:
    os.kill(study.worker, signal.SIGKILL)


def kill_parent(study: Launched) -> None:
    os.kill(study.parent, signal.SIGKILL)


def kill_both(study: Launched) -> None:
    parent, worker = study.parent, study.worker
    os.kill(worker, signal.SIGSTOP)  # so that it does not notice that its parent is gone
    os.kill(parent, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)


def terminate(study: Launched) -> None:
    os.kill(study.parent, signal.SIGTERM)


def terminate_all(study: Launched) -> None:
    """As a cluster does, with every process of the job."""
    for pid in [study.parent, *map(int, _descendants(study.parent))]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [kill_worker, kill_parent, kill_both, terminate, terminate_all])
def test_processes_that_end(launched: Launched, fault: Callable[[Launched], None], alone: Alone) -> None:
    launched.begin()
    fault(launched)
    status, said = launched.wait()
    sealed = outcomes(launched.house)
    before = [entry.sha256 for entry in entries(launched.house)]
    here = launched.launcher in ("local", "part")
    if here:
        expected = {kill_worker: 0, terminate: 130, terminate_all: 130}.get(fault, -signal.SIGKILL)
        assert status == expected, said
    if fault is not kill_worker and here:
        assert len(sealed) < 6
    launched.finish()
    found = outcomes(launched.house)
    assert found == alone[0] and found.items() >= sealed.items()
    assert [entry.sha256 for entry in entries(launched.house)][: len(before)] == before
    assert not [entry for entry in entries(launched.house) if entry.event == "failed"]
    again = [
        entry.body for entry in entries(launched.house) if entry.event == "started" and "resumed_from" in entry.body
    ]
    assert len(again) >= 1
    assert decision(launched.path) == alone[1]
    assert CliRunner().invoke(app, ["verify", str(launched.path)]).exit_code == 0
    assert not Ledger(launched.house.path / "studies" / "ledger.jsonl").faults()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of three megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", pytest.param("1/1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["runs", "everything"])
def test_a_full_disk_stops_the_study_and_is_named(
    own_house: OwnHouse, small_disk: Path, part: str, whole: bool, alone: Alone
) -> None:
    if whole:
        own_house = OwnHouse(small_disk / "house")
    path = ready(own_house, RESUMABLE, sleep=0.0)
    if not whole:
        (own_house.path / "data").mkdir(exist_ok=True)
        (small_disk / "runs").mkdir()
        (own_house.path / "data" / "runs").symlink_to(small_disk / "runs")
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 24_000))
    status, said = end(start(path, part))
    assert status in (2, 5)  # the ledger's disk, or that of the runs
    assert "No space left on device" in said and "free space, then" in said and "died" not in said
    failed = [entry.body for entry in entries(own_house) if entry.event == "failed"]
    assert len(failed) <= 1  # the call ended at the first
    filler.unlink()
    assert end(start(path, part))[0] == 0
    assert outcomes(own_house) == alone[0] and decision(path) == alone[1]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "1/1"])
def test_a_folder_that_cannot_be_written_is_named_and_nothing_is_changed(
    own_house: OwnHouse, small_disk: Path, part: str, alone: Alone
) -> None:
    path = ready(own_house, RESUMABLE, sleep=0.0)
    (own_house.path / "data").mkdir(exist_ok=True)
    (small_disk / "runs").mkdir()
    (own_house.path / "data" / "runs").symlink_to(small_disk / "runs")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = own_house.snapshot()
    status, said = end(start(path, part))
    assert status == 2 and "Read-only file system" in said and str(own_house.path / "data") in said
    assert own_house.snapshot() == before
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert end(start(path, part))[0] == 0
    assert outcomes(own_house) == alone[0]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "1/2"])
def test_a_clock_set_back_moves_no_number(
    own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, alone: Alone
) -> None:
    if not FAKETIME.exists():
        pytest.skip("libfaketime is not installed")
    # The library cannot fake the call behind time.sleep.
    path = ready(own_house, RESUMABLE.replace("time.sleep(", "__import__('select').select([], [], [], "), sleep=0.1)
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    with monkeypatch.context() as faked:
        faked.setenv("LD_PRELOAD", str(FAKETIME))
        faked.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
        faked.setenv("FAKETIME_NO_CACHE", "1")
        faked.setenv("DONT_FAKE_MONOTONIC", "1")
        first = start(path, part)
        other = start(path, "2/2") if part else None
    wait_for(lambda: len(starts(own_house)) >= 1)
    clock.write_text("-3h\n")
    assert end(first)[0] == 0 and (other is None or end(other)[0] == 0)
    times = [entry.at for entry in entries(own_house)]
    assert times != sorted(times)  # the clock did go back
    assert outcomes(own_house) == alone[0]
    assert sum(starts(own_house).values()) == 6  # nobody took a part for lost
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 0


BEGINNING = """
import os, signal, subprocess, sys, time
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "1/1"])
def test_a_script_that_prints_a_million_lines_and_leaves_a_daemon(own_house: OwnHouse, part: str, alone: Alone) -> None:
    script = BEGINNING + "first = (os.environ['ABLATE_SEED'], os.environ['ABLATE_VARIANT']) == ('1', 'slow')\n"
    script += "for n in range(1_000_000 if first else 10): print('line', n)\n"
    daemon = "[sys.executable, '-c', 'import time; time.sleep(300)', os.environ['ABLATE_RUN_DIR']]"
    script += f"subprocess.Popen({daemon}, start_new_session=True)\n" + RESUMABLE
    path = ready(own_house, script, sleep=0.0)
    status, said = end(start(path, part))
    assert status == 0 and "left processes of its own session behind" in said
    assert outcomes(own_house) == alone[0]
    texts = [file.stat().st_size for file in runs_of(own_house).glob("*/*/stdout.txt")]
    assert len(texts) == 6 and max(texts) < 1.2 * 2**20
    left = subprocess.run(["pgrep", "-f", str(own_house.path)], capture_output=True, text=True, check=False).stdout
    assert not left


@pytest.mark.slow
def test_a_script_that_ignores_sigterm_is_ended_all_the_same(own_house: OwnHouse) -> None:
    script = BEGINNING + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + RESUMABLE
    path = ready(own_house, script, sleep=5.0)
    first = start(path, "")
    wait_for(lambda: len(starts(own_house)) >= 1)
    time.sleep(1.0)
    started = time.monotonic()
    first.terminate()
    assert end(first)[0] == 130 and 25 < time.monotonic() - started < 60
    scripts = subprocess.run(["pgrep", "-f", str(own_house.path)], capture_output=True, text=True, check=False).stdout
    assert not scripts
    assert not outcomes(own_house) and not [entry for entry in entries(own_house) if entry.event == "failed"]
