"""The fault table: what befalls a study, by each launcher. Nothing sealed is lost, results are equal to the bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import RAY_TIMEOUT_S
from launchers import (
    BY_NAME,
    N_RUNS,
    RESUMABLE,
    CommandsLauncher,
    Launcher,
    LocalLauncher,
    RayLauncher,
    SlurmLauncher,
    command,
    decision,
    descendants,
    end,
    entries,
    outcomes,
    ready,
    starts,
    wait_for,
)
from own_trainer import OwnHouse
from typer.testing import CliRunner

import ablate
from ablate.cli import app
from prereg.registry.ledger import Ledger

pytestmark = pytest.mark.usefixtures("no_reports")

Alone = tuple[dict[str, str], dict[str, object]]
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """What the study gives where nothing befalls it: outcomes of its runs, and the decision."""
    house = OwnHouse(tmp_path_factory.mktemp("alone") / "house")
    path = ready(house, sleep=0.0)
    assert ablate.run(path).summary.complete
    return outcomes(house), decision(path)


def kill_trainer(study: Launcher) -> None:
    os.kill(study.trainer, signal.SIGKILL)


def kill_maker(study: Launcher) -> None:
    os.kill(study.maker, signal.SIGKILL)


def kill_scheduler(study: Launcher) -> None:
    os.kill(study.scheduler, signal.SIGKILL)


def kill_both(study: Launcher) -> None:
    scheduler, maker = study.scheduler, study.maker
    os.kill(maker, signal.SIGSTOP)  # so that it does not notice that its parent is gone
    for pid in {scheduler, maker}:
        os.kill(pid, signal.SIGKILL)


def terminate_scheduler(study: Launcher) -> None:
    os.kill(study.scheduler, signal.SIGTERM)


def terminate_all(study: Launcher) -> None:
    """As a cluster does, with every process of the job."""
    for pid in [study.scheduler, study.maker, *descendants(study.scheduler), *descendants(study.maker)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def suspend(study: Launcher) -> None:
    """As a laptop does that is closed, with the process that makes a run and its trainer."""
    processes = [study.maker, study.trainer]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.0)
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


FAULTS = [kill_trainer, kill_maker, kill_scheduler, kill_both, terminate_scheduler, terminate_all, suspend]
SAME = {
    # The command that submitted has gone before a task begins.
    "slurm": (kill_scheduler, kill_both, terminate_scheduler),
    # Nothing but the process that makes a run is there to be killed.
    "commands": (kill_scheduler, kill_both),
}
"""Launcher -> faults that befall no process there, or the maker alone, as `kill_maker` does."""
CASES = [
    pytest.param(
        name,
        fault,
        id=f"{name}-{fault.__name__}",
        marks=[pytest.mark.timeout(RAY_TIMEOUT_S)] if name == "ray" else [],
    )
    for name in BY_NAME
    for fault in FAULTS
    if fault not in SAME.get(name, ())
]


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "fault"), CASES, indirect=["launcher"])
def test_processes_that_end(launcher: Launcher, fault: Callable[[Launcher], None], alone: Alone) -> None:
    path = ready(launcher.house, sleep=0.08)
    if isinstance(launcher, RayLauncher) and fault is terminate_all:
        launcher.head = None  # the command's own cluster: it is terminated with the command
    launcher.begin()
    with suppress(ProcessLookupError):  # of Slurm the scheduler has gone by itself
        fault(launcher)
    status, printed = launcher.wait()
    before = [entry.sha256 for entry in entries(launcher.house)]
    sealed = outcomes(launcher.house)
    if isinstance(launcher, LocalLauncher):
        killed = {kill_scheduler: -signal.SIGKILL, kill_both: -signal.SIGKILL}
        stopped = {terminate_scheduler: 130, terminate_all: 130, kill_trainer: 5}
        assert status == (killed | stopped).get(fault, 0), printed
        assert (len(sealed) == N_RUNS) == (fault in (kill_maker, suspend))
    launcher.finish()
    found = outcomes(launcher.house)
    assert found == alone[0] and found.items() >= sealed.items()
    assert [entry.sha256 for entry in entries(launcher.house)][: len(before)] == before, "entries only come after"
    failed = [entry for entry in entries(launcher.house) if entry.event == "failed"]
    assert len(failed) == (fault is kill_trainer)
    assert decision(path) == alone[1]
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 0
    assert not Ledger(launcher.house.path / "studies" / "ledger.jsonl").faults()


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


def runs_on(disk: Path, house: OwnHouse) -> None:
    """Let the runs of a house lie on another disk."""
    (house.path / "data").mkdir(exist_ok=True)
    (disk / "runs").mkdir()
    (house.path / "data" / "runs").symlink_to(disk / "runs")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "commands"], indirect=True)
def test_a_full_disk_stops_the_runs_and_is_named(launcher: Launcher, small_disk: Path, alone: Alone) -> None:
    path = ready(launcher.house, sleep=0.0)
    runs_on(small_disk, launcher.house)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 24_000))
    if isinstance(launcher, LocalLauncher):
        launcher.launch()
        status, printed = launcher.wait()
        assert status in (2, 5)
        assert "No space left on device" in printed and "free space" in printed and "died" not in printed
        assert len([entry for entry in entries(launcher.house) if entry.event == "failed"]) <= 1
    else:
        status, printed = end(command("plan", str(path), "--commands"))
        if status == 0:
            first = next(line.split() for line in printed.splitlines() if line.startswith("ablate train "))
            status, printed = end(command(*first[1:]))
        assert status in (2, 5) and "No space left on device" in printed
    filler.unlink()
    launcher.finish()
    assert outcomes(launcher.house) == alone[0] and decision(path)["verdict"] == alone[1]["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "commands"], indirect=True)
def test_a_disk_that_is_full_before_the_first_record_is_one_mistake(
    launcher: Launcher, small_disk: Path, alone: Alone
) -> None:
    path = ready(launcher.house, sleep=0.0)
    runs_on(small_disk, launcher.house)
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)
    words = ["run", "--jobs", "2"] if isinstance(launcher, LocalLauncher) else ["plan", "--commands"]
    status, printed = end(command(words[0], str(path), *words[1:]))
    assert status == 2 and printed.count("No space left on device") == 1 and "Traceback" not in printed
    assert "run.json" in printed and "required: a disk with room" in printed and "free space" in printed
    assert not [entry for entry in entries(launcher.house) if entry.event == "failed"] and not starts(launcher.house)
    assert {file.name for file in (small_disk / "runs").rglob("*") if file.is_file()} <= {".lock", "server.log"}
    filler.unlink()
    launcher.finish()
    assert outcomes(launcher.house) == alone[0] and sum(starts(launcher.house).values()) == N_RUNS
    assert not ablate.decide(path).decision.deviations


@pytest.mark.slow
def test_a_full_disk_of_the_ledger_loses_nothing(small_disk: Path, alone: Alone) -> None:
    house = OwnHouse(small_disk / "house")
    path = ready(house, sleep=0.0)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - 24_000))
    status, printed = end(command("run", str(path)))
    assert status in (2, 5) and "No space left on device" in printed
    filler.unlink()
    assert end(command("run", str(path)))[0] == 0
    assert outcomes(house) == alone[0] and decision(path) == alone[1]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "slurm", "commands"], indirect=True)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_is_changed(
    launcher: Launcher, small_disk: Path, alone: Alone
) -> None:
    ready(launcher.house, sleep=0.0)
    runs_on(small_disk, launcher.house)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = launcher.house.snapshot()
    words = {LocalLauncher: ["run"], SlurmLauncher: ["run", "--on", "slurm"], CommandsLauncher: ["plan", "--commands"]}
    verb, *options = words[type(launcher)]
    status, printed = end(command(verb, str(launcher.path), *options))
    assert status == 2 and "Read-only file system" in printed and str(launcher.house.path / "data") in printed
    assert launcher.house.snapshot() == before
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    launcher.finish()
    assert outcomes(launcher.house) == alone[0]


@pytest.mark.slow
def test_a_clock_set_back_moves_no_number(
    own_house: OwnHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: Alone
) -> None:
    if not FAKETIME.exists():
        pytest.skip("libfaketime is not installed")
    path = ready(own_house, sleep=0.1)
    # The library cannot fake the call behind time.sleep, which Python 3.11 makes with a moment to wait for.
    (tmp_path / "sitecustomize.py").write_text(
        "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"
    )
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    with monkeypatch.context() as faked:
        faked.setenv("PYTHONPATH", str(tmp_path))
        faked.setenv("LD_PRELOAD", str(FAKETIME))
        faked.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
        faked.setenv("FAKETIME_NO_CACHE", "1")
        faked.setenv("DONT_FAKE_MONOTONIC", "1")
        process = command("run", str(path), "--jobs", "1")
    wait_for(lambda: len(starts(own_house)) >= 1)
    clock.write_text("-3h\n")
    status, printed = end(process)
    assert status == 0, printed
    times = [entry.at for entry in entries(own_house)]
    assert times != sorted(times)  # the clock did go back
    assert outcomes(own_house) == alone[0] and sum(starts(own_house).values()) == N_RUNS
    assert CliRunner().invoke(app, ["verify", str(path)]).exit_code == 0


BEGINNING = "import os, signal, subprocess, sys, time\n"


@pytest.mark.slow
def test_a_script_that_prints_a_million_lines_and_leaves_a_daemon(launcher: Launcher, alone: Alone) -> None:
    script = BEGINNING + "first = (os.environ['ABLATE_SEED'], os.environ['ABLATE_VARIANT']) == ('1', 'slow')\n"
    script += "for n in range(1_000_000 if first else 10): print('line', n)\n"
    daemon = "[sys.executable, '-c', 'import time; time.sleep(300)', os.environ['ABLATE_RUN_DIR']]"
    script += f"subprocess.Popen({daemon}, start_new_session=True)\n" + RESUMABLE
    ready(launcher.house, script, sleep=0.0)
    launcher.finish()
    assert outcomes(launcher.house) == alone[0]
    records = [path.read_text() for path in launcher.house.path.glob("data/runs/*/*/*/*/run.json")]
    assert len(records) == N_RUNS and all("left processes of its own session behind" in text for text in records)
    sizes = [path.stat().st_size for path in launcher.house.path.glob("data/runs/*/*/*/*/stdout.txt")]
    assert len(sizes) == N_RUNS and max(sizes) < 1.2 * 2**20
    pattern = f"time.sleep.300.*{launcher.house.path}"
    assert not subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "commands"], indirect=True)
def test_a_script_that_ignores_sigterm_is_ended_all_the_same(launcher: Launcher) -> None:
    ready(
        launcher.house, BEGINNING + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + RESUMABLE, sleep=0.5, steps=999
    )
    launcher.begin()
    trainer, scheduler, started = launcher.trainer, launcher.scheduler, time.monotonic()
    if isinstance(launcher, CommandsLauncher):
        launcher.stopped = True
    os.kill(scheduler, signal.SIGTERM)
    status, printed = launcher.wait()
    assert 25 < time.monotonic() - started < 60
    assert status == (130 if isinstance(launcher, LocalLauncher) else 5), printed
    assert not Path(f"/proc/{trainer}").exists()
    assert not outcomes(launcher.house) and not [entry for entry in entries(launcher.house) if entry.event == "failed"]
