"""Files that are none, a full disk, a signal at any moment, and processes that a trainer leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from own_trainer import SCRIPT, OwnHouse
from test_escape import rows_of

import ablate as api
from ablate.cli import main as command_line
from ablate.records.store import RunFolder
from ablate.runner.messages import said
from ablate.verification.verify import verify_target
from prereg.errors import EvidenceError, LedgerError, RegistrationError, StudyError
from prereg.registry.disk import open_regular, read_regular, write_from, write_whole
from prereg.registry.ledger import Ledger
from prereg.registry.registration import read_lock
from prereg.study.load import load_study


def verb(*words: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ablate", *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_what_is_no_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path, what in ((tmp_path / "pipe", "a FIFO"), (Path("/dev/zero"), "a device")):
        with pytest.raises(OSError, match=f"it is {what}, not a regular file"):
            open_regular(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path / "folder")
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and 4 are the most"):
        read_regular(tmp_path / "file", 4)


def test_a_pipe_in_any_place_is_one_message(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    house.register()
    study, studies = house.study, house.path / "studies"

    def piped(path: Path) -> Path:
        path.rename(path.with_name("kept"))
        os.mkfifo(path)
        return path

    def restored(path: Path) -> None:
        path.unlink()
        path.with_name("kept").rename(path)

    with pytest.raises(StudyError, match="it is a FIFO"):
        load_study(piped(study))
    restored(study)
    with pytest.raises(LedgerError, match="it is a FIFO"):
        Ledger(piped(studies / "ledger.jsonl")).entries()
    restored(studies / "ledger.jsonl")
    piped(studies / "own.lock.json")
    with pytest.raises(RegistrationError, match="it is a FIFO"):
        read_lock(studies / "own.lock.json")
    assert "own.lock.json: missing" in str([item.faults for item in verify_target(study).items])
    restored(studies / "own.lock.json")
    lock = studies / ".ledger.lock"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    with pytest.raises(LedgerError, match="it is a FIFO"), Ledger(studies / "ledger.jsonl").hold():
        pass
    lock.unlink()
    os.mkfifo(house.path / "rows.jsonl")
    with pytest.raises(EvidenceError, match="no such file or folder"):
        api.import_runs(study, house.path / "rows.jsonl", note="a pipe", exploratory=True)


def test_a_write_that_fails_names_its_file(tmp_path: Path) -> None:
    for write in (lambda path: write_whole(path, b"x"), lambda path: write_from(path, 0, b"x")):
        path = tmp_path / "file"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", _full)
            with pytest.raises(OSError, match="No space left") as raised:
                write(path)
        assert raised.value.filename == str(path)
        line = said(raised.value, RunFolder(tmp_path))
        assert line.startswith(f"{path} cannot be written, the disk is full") and "free space" in line


def _full(_: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="a small disk is mounted")
@pytest.mark.slow
def test_a_full_disk_is_said_once_with_the_path(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        house = OwnHouse(small / "house")
        house.script("import time\ntime.sleep(1)\nprint('x' * 10**6)\n" + SCRIPT)
        house.register()
        done = verb("run", house.study)
    finally:
        subprocess.run(["umount", "-l", small], check=False)
    assert done.returncode in (2, 5), done
    assert "No space left" in done.stdout + done.stderr and "worker died" not in done.stdout + done.stderr, done
    assert "Traceback" not in done.stderr and str(small) in done.stderr + done.stdout.replace("data/", f"{small}/"), (
        done
    )


STUCK = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
from ablate import cli
import typer
app = typer.Typer()
@app.command()
def wait() -> None:
    print("ready", flush=True)
    time.sleep(600)
cli.application = lambda *_: app
sys.argv = ["ablate"]
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_outside_the_runs_ends_a_verb_as_one_within_them(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, told = process.communicate(timeout=150)
    assert process.returncode == 130, told
    assert told == "interrupted: nothing sealed was lost; repeat the command to go on\n"


DAEMON = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"],
                 start_new_session=True)
import os, time
while not (os.path.exists("pid") and open("pid").read()):
    time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_a_process_that_a_trainer_leaves_behind_is_ended_and_named(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    house.script(DAEMON + SCRIPT)
    house.register(seeds=[1, 2])
    began = time.monotonic()
    done = verb("run", house.study, timeout=120)
    assert done.returncode == 0, done
    assert time.monotonic() - began < 60
    assert done.stdout.count("the command left processes") == 4, done.stdout
    for variant in ("slow", "fast"):
        folder = house.run_folder(variant, 1)
        record = RunFolder(folder).read_record()
        assert record is not None and record.status == "done"
        assert len(record.mishaps) == 1 and record.mishaps[0].startswith("the command left processes"), record.mishaps
        pid = int((folder / "work" / "pid").read_text())
        assert f"({pid})" in record.mishaps[0]
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_weights_that_are_not_there_are_not_said_to_be_uncovered(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    house.register()
    api.import_runs(house.study, rows_of(house), note="ours", exploratory=True)
    items = verify_target(house.study).items
    assert "6 of 6 sealed runs hold" in {item.note for item in items}
    assert "weights without a hash" not in {item.what for item in items}
    shutil.copy(house.run_folder("slow", 1) / "run.json", house.run_folder("slow", 1) / "weights.safetensors")
    (unhashed,) = (item for item in verify_target(house.study).unchecked if item.what == "weights without a hash")
    assert "1 run have no hash" in unhashed.unchecked


@pytest.fixture
def looped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a study that is a loop of symbolic links, another loop, and a plain file."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ODD_PATHS = ("studies/loop.yaml", "a", "a/study.yaml", "file/study.yaml", "x" * 300, f"studies/{'x' * 300}.yaml")
ODD_COMMANDS = (
    *((verb, "PATH") for verb in ("verify", "decide", "check", "design", "register", "run", "report", "bundle")),
    *((verb, "PATH") for verb in ("status", "ledger", "plan", "try", "seal")),
    ("amend", "PATH", "--reason", "because"),
    ("reproduce", "PATH", "--run", "one/1"),
    ("import", "PATH", "rows.csv"),
    ("import", "studies/loop.yaml", "PATH"),
    ("verify", "--root", "PATH"),
    ("check", "file.yaml", "--root", "PATH"),
    ("new", "one", "--root", "PATH"),
)


@pytest.mark.parametrize("words", ODD_COMMANDS, ids=" ".join)
def test_a_loop_of_links_and_a_name_too_long_are_one_message_in_every_command(
    looped: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(looped.rglob("*"))
    for path in ODD_PATHS:
        monkeypatch.setattr(sys, "argv", ["ablate", *(path if word == "PATH" else word for word in words)])
        with pytest.raises(SystemExit) as ended:
            command_line()
        said = capsys.readouterr().err
        assert ended.value.code == 2 and "Traceback" not in said, (path[:30], said)
        assert said.count("error: ") == 1 and "required:" in said and "try:" in said, (path[:30], said)
    assert sorted(looped.rglob("*")) == before
