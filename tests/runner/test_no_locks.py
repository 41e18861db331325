"""A file system without locks: each command that would write says so, exits with 2, and changes nothing."""

from __future__ import annotations

import errno
import fcntl
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from own_trainer import OwnHouse

import ablate
from ablate.cli import main
from ablate.runner.options import RunOptions

WRITES = [
    ("new", ["register"]),
    ("new", ["run"]),
    ("registered", ["run", "--jobs", "2"]),
    ("registered", ["train", "fast/2"]),
    ("registered", ["plan", "--commands"]),
    ("registered", ["amend", "--reason", "a better title"]),
    ("begun", ["run", "--jobs", "0"]),
    ("begun", ["status", "--results", "--reason", "a talk"]),
    ("sealed", ["decide"]),
    ("decided", ["report"]),
]
"""What lies there, and a command that would write."""


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory, decided_own: OwnHouse) -> dict[str, OwnHouse]:
    """A study at each stage of its life."""
    made = {name: OwnHouse(tmp_path_factory.mktemp(name) / "house") for name in ("new", "registered", "begun")}
    made["new"].write()
    made["registered"].register()
    made["begun"].register()
    ablate.run(made["begun"].study, RunOptions(only=("slow/1", "fast/1")))
    sealed = OwnHouse(tmp_path_factory.mktemp("sealed") / "house")
    sealed.make_runs(sealed.register())
    return made | {"sealed": sealed, "decided": decided_own}


Ended = Callable[..., tuple[object, str]]


@pytest.fixture
def run_without_locks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ended]:
    """Runs a command where the system says that a file system has no locks: its exit code, and what it says of it."""

    def flock(*_given: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def run(*words: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["ablate", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, " ".join(capsys.readouterr().err.split())

    monkeypatch.setattr(fcntl, "flock", flock)
    earlier = signal.getsignal(signal.SIGTERM)  # `main` is for a process of its own
    yield run
    signal.signal(signal.SIGTERM, earlier)


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, and every folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def copied(houses: dict[str, OwnHouse], stage: str, path: Path) -> OwnHouse:
    """A copy of one house, as a clone of it would be: without the files that were locked."""
    house = OwnHouse(path, of=houses[stage].path)
    for lock in [*house.path.rglob(".lock"), house.path / "studies" / ".ledger.lock"]:
        lock.unlink(missing_ok=True)
    return house


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "command"), WRITES, ids=lambda given: given if isinstance(given, str) else given[0])
def test_a_command_that_would_write_stops_and_changes_nothing(
    stage: str, command: list[str], houses: dict[str, OwnHouse], tmp_path: Path, run_without_locks: Ended
) -> None:
    house = copied(houses, stage, tmp_path / "house")
    if command[0] == "amend":
        text = house.study.read_text(encoding="utf-8")
        house.study.write_text(text.replace("A trainer of one's own", "A trainer"), encoding="utf-8")
    before = everything(house.path)
    exit_code, printed = run_without_locks(command[0], str(house.study), *command[1:])
    assert exit_code == 2 and printed.count("lies on a file system without locks (flock)") == 1, printed
    assert "two processes might make one run, or write one ledger" in printed
    assert str(house.path) in printed and "mount it with locks" in printed
    assert everything(house.path) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "status", "verify"])
def test_a_command_that_reads_needs_no_locks(
    command: str, houses: dict[str, OwnHouse], tmp_path: Path, run_without_locks: Ended
) -> None:
    house = copied(houses, "decided", tmp_path / "house")
    before = everything(house.path)
    exit_code, printed = run_without_locks(command, str(house.study))
    assert exit_code == 0, printed
    assert everything(house.path) == before
