"""Folders for the while of a process: gone when it ends, and when it was killed, gone when somebody looks next."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prereg.registry import disk

HOLDS = """
import sys, time
from prereg.registry import disk
path = disk.make("ranks")
(path / "deep").mkdir()
(path / "deep" / "file").write_text("x")
print(path, flush=True)
sys.stdin.read()
"""


FORKS = """
import os
from prereg.registry import disk
path = disk.make("ranks")
child = os.fork()
if not child:
    disk.remove_all()
    os._exit(0)
os.waitpid(child, 0)
print("still there" if path.is_dir() else "gone", flush=True)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary ones, of this test alone."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    disk.remove_all()
    tempfile.tempdir = None


def holder() -> tuple[subprocess.Popen[str], Path]:
    """Another process with a folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    assert path.is_dir()
    return process, path


def test_a_block_leaves_nothing_whatever_ends_it(place: Path) -> None:
    with disk.scratch("bundle") as path:
        assert path.parent == place and path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(KeyboardInterrupt), disk.scratch("bundle") as path:
        (path / "file").write_text("x")
        raise KeyboardInterrupt
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_whoever_makes_one_next(place: Path) -> None:
    process, left = holder()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (left / "deep" / "file").is_file()
    mine = disk.make("harness")
    assert list(place.iterdir()) == [mine]


def test_the_folder_of_a_living_process_stays(place: Path) -> None:
    process, theirs = holder()
    mine = disk.make("ranks")
    disk.sweep()
    assert sorted(place.iterdir()) == sorted([theirs, mine])
    process.communicate()
    assert process.returncode == 0
    assert list(place.iterdir()) == [mine]


def test_a_forked_child_that_ends_takes_nothing_of_its_parents(place: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert done.stdout == "still there\n"
    assert list(place.iterdir()) == []


def test_what_only_looks_like_one_is_left_alone(place: Path, tmp_path: Path) -> None:
    own = place / "ablate-notes-of-mine"
    own.mkdir()
    (own / "thesis.tex").write_text("x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / disk.MARK).touch()
    (place / "ablate-ranks-linked00").symlink_to(elsewhere)
    disk.sweep()
    assert (own / "thesis.tex").is_file()
    assert (elsewhere / disk.MARK).is_file()


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to another user")
def test_the_folder_of_another_user_is_left_alone(place: Path) -> None:
    theirs = place / "ablate-ranks-theirs00"
    theirs.mkdir()
    (theirs / disk.MARK).touch()
    os.chown(theirs, 12345, 12345)
    os.chown(theirs / disk.MARK, 12345, 12345)
    disk.sweep()
    assert theirs.is_dir()


def test_a_sweep_between_making_and_locking_costs_another_folder_and_no_more(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    swept: list[Path] = []

    def late(descriptor: int, how: int) -> None:
        if not swept:
            swept.append(next(place.iterdir()))
            shutil.rmtree(swept[0])
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    mine = disk.make("ranks")
    assert mine != swept[0]
    assert list(place.iterdir()) == [mine]


def test_where_nothing_can_be_locked_a_folder_is_made_and_never_taken_for_a_left_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(fcntl, "flock", refuse)
    mine = disk.make("ranks")
    monkeypatch.undo()
    monkeypatch.setenv("TMPDIR", str(place))
    disk.sweep()
    assert mine.is_dir()
    disk.remove(mine)
    assert not mine.exists()
