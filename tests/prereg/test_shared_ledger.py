"""Appending from several machines: no lock reaches all of them, and no entry is lost or written twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prereg.registry.disk import create_whole
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_lock import newest_slots

AT = "2026-03-01T12:00:00+00:00"

WRITER = """
import fcntl, sys, time
fcntl.flock = lambda *given: None  # the locks of this machine reach no other
from pathlib import Path
from prereg.registry import ledger as module
from prereg.registry.ledger import Ledger
name, count, stop_at = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ledger = Ledger(Path(sys.argv[1]))
put = module.put_in_slot
def pausing(folder, index, line):
    if done == stop_at:
        print("paused", flush=True)
        sys.stdin.readline()
    return put(folder, index, line)
module.put_in_slot = pausing
for done in range(count):
    ledger.append("sealed", study="s", registration="r", body={"by": name, "n": done}, at="2026-03-01T12:00:00+00:00")
"""


def _writer(path: Path, name: str, count: int, *, stop_at: int = -1) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(path), name, str(count), str(stop_at)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _end(writer: subprocess.Popen[str]) -> int:
    writer.communicate(timeout=60)
    return writer.returncode


def _said(ledger: Ledger) -> list[tuple[str, int]]:
    return [(str(entry.body["by"]), int(str(entry.body["n"]))) for entry in ledger.entries() if "by" in entry.body]


@pytest.fixture
def shared(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("registered", study="s", registration="r", body={}, at=AT)
    ledger.share()
    return ledger


@pytest.mark.slow
def test_four_writers_without_locks_lose_and_repeat_nothing(shared: Ledger) -> None:
    writers = [_writer(shared.path, name, 60) for name in "abcd"]
    assert [_end(writer) for writer in writers] == [0] * 4
    shared.settle(close=True)
    assert not shared.faults()
    said = _said(shared)
    assert sorted(said) == [(name, n) for name in "abcd" for n in range(60)]
    for name in "abcd":
        assert [n for by, n in said if by == name] == list(range(60))
    assert not list(shared.path.parent.glob(".ledger.jsonl.slots-*"))


@pytest.mark.slow
def test_a_killed_writer_leaves_a_ledger_that_the_others_complete(shared: Ledger) -> None:
    writers = [_writer(shared.path, name, 400) for name in "abc"]
    time.sleep(0.7)
    for writer in writers[:2]:
        writer.kill()
        _end(writer)
    assert _end(writers[2]) == 0
    shared.settle(close=True)
    assert not shared.faults()
    assert [n for by, n in _said(shared) if by == "c"] == list(range(400))


def test_a_writer_that_was_stopped_while_others_wrote_and_closed_does_not_undo_them(shared: Ledger) -> None:
    stopped = _writer(shared.path, "late", 2, stop_at=1)
    assert stopped.stdout is not None and stopped.stdout.readline() == "paused\n"
    os.kill(stopped.pid, signal.SIGSTOP)
    for n in range(5):
        shared.append("sealed", study="s", registration="r", body={"by": "me", "n": n}, at=AT)
    shared.settle(close=True)
    shared.append("finished", study="s", registration="r", body={"runs": 1}, at=AT)
    os.kill(stopped.pid, signal.SIGCONT)
    assert _end(stopped) == 0
    assert not shared.faults()
    assert _said(shared) == [("late", 0), *(("me", n) for n in range(5)), ("late", 1)]
    assert shared.entries()[-2].event == "finished"


@pytest.mark.parametrize("torn", [0, 7, -1])
def test_an_entry_whose_line_a_crash_left_out_is_written_by_the_next(shared: Ledger, torn: int) -> None:
    """A writer killed between its slot and its line, or within the line."""
    before = shared.path.read_bytes()
    shared.append("sealed", study="s", registration="r", body={"by": "me", "n": 0}, at=AT)
    whole = shared.path.read_bytes()
    shared.path.write_bytes(before + whole[len(before) :][:torn])
    shared.append("sealed", study="s", registration="r", body={"by": "me", "n": 1}, at=AT)
    assert _said(shared) == [("me", 0), ("me", 1)]
    assert shared.path.read_bytes().startswith(whole if torn >= 0 else whole[:-1])
    assert not shared.faults()


def test_what_a_crash_left_before_sharing_is_cut_back_and_said(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append("registered", study="s", registration="r", body={}, at=AT)
    with ledger.path.open("ab") as stream:
        stream.write(b'{"at":"2026' + b"x" * 900)
    ledger.share()
    entry = ledger.append("started", study="s", registration="r", body={}, at=AT)
    assert entry.body["cut_back"]["bytes"] == 911
    assert not ledger.faults() and len(ledger.entries()) == 2


def test_a_file_is_created_once(tmp_path: Path) -> None:
    assert create_whole(tmp_path / "a", b"one")
    assert not create_whole(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_forged_slot_is_refused_and_changes_nothing(shared: Ledger) -> None:
    place = newest_slots(shared.path)
    assert place is not None
    (place / "1").write_bytes(b'{"index":1}')
    before = shared.path.read_bytes()
    with pytest.raises(Exception, match="is not an entry of a ledger"):
        shared.append("sealed", study="s", registration="r", body={}, at=AT)
    assert shared.path.read_bytes() == before


def test_a_file_system_without_locks_is_shared_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import fcntl

    def none(*given: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for n in range(3):
        ledger.append("sealed", study="s", registration="r", body={"by": "me", "n": n}, at=AT)
    assert _said(ledger) == [("me", 0), ("me", 1), ("me", 2)]
    assert not ledger.faults()
    assert newest_slots(ledger.path) is not None
