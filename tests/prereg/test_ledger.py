"""The ledger: what it takes, what it notices, and what survives a crash."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import ledger_samples
import pytest
from ledger_samples import enter

from prereg.errors import LedgerError, UnsupportedError
from prereg.registry import ledger_lines
from prereg.registry.canon import canonical_bytes, sha256_bytes, sha256_of
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import ENTRY_KINDS, FIRST, CutBack, EndedLine, Entry, RunEntry, entry_of

AT = "2026-01-02T03:04:05+00:00"
HASH = "a" * 64

APPENDER = """
import sys
from pathlib import Path
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import CallStartedEntry
path, who, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
ledger = Ledger(path)
print("ready", flush=True)
sys.stdin.readline()
for n in range(times):
    ledger.append(CallStartedEntry(study=who, registration="a" * 64, at="AT", runs=n, of=1, slots=1, code="x" * 2000))
    print(n, flush=True)
""".replace("AT", AT)


def append(ledger: Ledger, n: int = 0) -> Entry:
    """An entry with a number of its own, and a field that no version has yet."""
    return enter(ledger, "started", {"runs": n, "wall_s": 1.0}, study="s", registration=HASH, at=AT)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


def test_an_empty_ledger_has_no_entries_and_a_head_of_zeros(ledger: Ledger) -> None:
    assert (ledger.entries(), ledger.faults(), ledger.head()) == ((), [], "0" * 64)
    assert not ledger.path.exists()
    assert not (ledger.path.parent / ".ledger.lock").exists()  # reading leaves nothing behind


def test_every_entry_carries_the_hash_of_the_one_before(ledger: Ledger) -> None:
    entries = [append(ledger, n) for n in range(3)]
    assert [entry.index for entry in entries] == [0, 1, 2]
    assert [entry.previous for entry in entries] == [FIRST, entries[0].sha256, entries[1].sha256]
    assert ledger.entries() == tuple(entries)
    assert ledger.head() == entries[-1].sha256
    for entry in entries:
        content = entry.model_dump(mode="json")
        assert content.pop("sha256") == sha256_of(content)


def test_each_line_is_exactly_the_canonical_bytes(ledger: Ledger) -> None:
    written = append(ledger)
    assert ledger.path.read_bytes() == canonical_bytes(written.model_dump(mode="json")) + b"\n"
    assert type(written.wall_s) is type(ledger.entries()[0].wall_s)


def test_the_clock_is_the_callers_and_carries_an_offset(ledger: Ledger) -> None:
    with pytest.raises(AssertionError):
        enter(ledger, "started", {}, study="s", registration=HASH, at="2026-01-02T03:04:05")
    assert not ledger.path.exists()


def test_large_numbers_do_not_make_a_line_unreadable(ledger: Ledger) -> None:
    # Canonical JSON writes the float 1e17 like an integer that it could not hold.
    enter(ledger, "decided", {"x": 1e17, "y": [1e300, -0.0]}, study="s", registration=HASH, at=AT)
    assert Ledger(ledger.path).faults() == []
    assert (ledger.entries()[0].x, ledger.entries()[0].y) == (1e17, [1e300, 0])


def test_two_ledgers_of_one_file_see_each_other(ledger: Ledger) -> None:
    other = Ledger(ledger.path)
    append(ledger)
    append(other)
    append(ledger)
    assert [entry.index for entry in other.entries()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (b'"runs":1', b'"runs":7', "does not match its hash"),
        (b'"runs":1', b'"runs": 1', "not in canonical bytes"),
        (b'"event":"started"', b'"event":"stopped"', "does not match its hash"),
        (b'{"at"', b'"at"', "is not JSON"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_more_is_appended(
    ledger: Ledger, old: bytes, new: bytes, fault: str
) -> None:
    for n in range(3):
        append(ledger, n)
    rows = ledger.path.read_bytes().splitlines(keepends=True)
    rows[1] = rows[1].replace(old, new, 1)
    ledger.path.write_bytes(b"".join(rows))
    assert any(found.startswith("ledger.jsonl, line 2: ") and fault in found for found in ledger.faults())
    for fresh in (ledger, Ledger(ledger.path)):
        with pytest.raises(LedgerError, match="line 2: "):
            fresh.entries()
        with pytest.raises(LedgerError, match="line 2: "):
            append(fresh)
    assert [entry.index for entry in ledger.readable()] == [0, 2]
    assert ledger.path.read_bytes() == b"".join(rows)


@pytest.mark.parametrize(
    ("event", "change", "fault"),
    [
        ("stopped", {}, "the event 'stopped' is not known"),
        ("failed", {"left_values": None}, "body.left_values: input should be a valid boolean"),
        ("failed", {"seed": "1"}, "body.seed: input should be a valid integer"),
        ("failed", {"wrote_in": None}, "body.wrote_in: is null, and a field that does not apply is left out"),
        ("failed", {"study": "another"}, "body.study: not a field of this event"),
        ("sealed", {"run_sha256": ""}, "body.run_sha256: string should have at least 1 character"),
        ("amended", {"replaces": HASH}, "body.replaces: not a field of this event"),
        ("amended", {"evidence": "nothing"}, "body.evidence: input should be 'none', 'runs started' or"),
        ("amended", {"differences": [{"field": "title"}]}, "body.differences[0].registered: field required"),
        ("reworded", {"words": {"seeds": "1"}}, "body.words.seeds"),
    ],
)
def test_a_line_with_a_right_hash_that_says_nothing_sensible_is_damage(
    ledger: Ledger, event: str, change: dict[str, object], fault: str
) -> None:
    line = ledger_samples.line("failed" if event == "stopped" else event, {})
    line = line | {"event": event, "body": line["body"] | change}
    line["sha256"] = sha256_of({name: value for name, value in line.items() if name != "sha256"})
    ledger.path.write_bytes(canonical_bytes(line) + b"\n")
    assert ledger.faults()[0].startswith(f"ledger.jsonl, line 1: is not an entry of a ledger: {fault}")
    with pytest.raises(LedgerError, match="line 1: is not an entry"):
        append(ledger)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"index": 3}, "line 3: holds the entry with index 3; entries are missing, or in another order"),
        ({"index": 1}, "line 3: holds the entry with index 1"),
        ({"previous": HASH}, "line 3: does not carry the hash of the line before"),
        # Named as the end of a branch that is not here.
        ({"joins": [HASH]}, f"line 3: holds the entry with index 2, and the entry {HASH[:8]} before it is missing"),
    ],
)
def test_a_whole_entry_in_another_place_is_damage(ledger: Ledger, change: dict[str, object], fault: str) -> None:
    for n in range(3):
        append(ledger, n)
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    forged = json.loads(lines[2]) | change
    forged["sha256"] = sha256_of({name: value for name, value in forged.items() if name != "sha256"})
    ledger.path.write_bytes(b"".join(lines[:2]) + canonical_bytes(forged) + b"\n")
    assert ledger.faults()[0].startswith(f"ledger.jsonl, {fault}")
    with pytest.raises(LedgerError):
        append(ledger)


@pytest.mark.parametrize("kind", ENTRY_KINDS)
def test_every_kind_is_written_as_it_was_read(ledger: Ledger, kind: type[Entry]) -> None:
    run = {"variant": "a"} if issubclass(kind, RunEntry) else {}
    line = ledger_samples.line(kind.model_fields["event"].default, run)
    entry = entry_of(line)
    assert type(entry) is kind and entry.model_dump(mode="json") == line
    placed = ledger.append(entry)
    assert type(placed) is kind and placed.stated == entry.stated == line["body"]
    assert ledger.entries() == (placed,)


def test_every_fault_is_told_not_only_the_first(ledger: Ledger) -> None:
    for n in range(4):
        append(ledger, n)
    data = ledger.path.read_bytes().replace(b'"runs":0', b'"runs":9').replace(b'"runs":2', b'"runs":9')
    ledger.path.write_bytes(data)
    assert [found.split(":")[0] for found in ledger.faults()] == ["ledger.jsonl, line 1", "ledger.jsonl, line 3"]


def test_a_damaged_ledger_is_shown_as_far_as_it_is_sound(ledger: Ledger) -> None:
    entries = [append(ledger, n) for n in range(4)]
    whole = ledger.path.read_bytes()
    found = ledger.sound()
    assert (found.entries, found.faults, found.n_beyond, found.torso_bytes) == (tuple(entries), (), 0, 0)
    assert found.head == entries[-1].sha256
    ledger.path.write_bytes(whole.replace(b'"runs":2', b'"runs":7'))
    for reader in (ledger, Ledger(ledger.path)):
        found = reader.sound()
        assert found.entries == tuple(entries[:2])
        assert found.head == entries[1].sha256
        assert found.n_beyond == 2  # the last line is sound in itself, and hangs on a broken chain
        assert "line 3" in found.faults[0]
    ledger.path.write_bytes(whole.replace(b'"runs":0', b'"runs":7'))
    assert (ledger.sound().entries, ledger.sound().head, ledger.sound().n_beyond) == ((), FIRST, 4)


def test_a_last_line_without_an_end_is_an_entry_a_torso_or_damage(ledger: Ledger) -> None:
    first, second = append(ledger), append(ledger, 1)
    whole = ledger.path.read_bytes()
    n_line = len(whole.splitlines(keepends=True)[1])
    ledger.path.write_bytes(whole[:-1])
    found = ledger.sound()
    assert (found.entries, found.torso_bytes, found.n_beyond) == ((first, second), 0, 0)
    assert "not ended" in found.faults[0]
    ledger.path.write_bytes(whole[:-5])
    found = ledger.sound()
    assert (found.entries, found.torso_bytes, found.head) == ((first,), n_line - 5, first.sha256)
    ledger.path.write_bytes(whole[:-1].replace(b'"runs":1', b'"runs":3'))
    found = ledger.sound()
    assert (found.entries, found.torso_bytes) == ((first,), n_line - 1)
    assert found.faults


def flips(data: bytes, positions: list[int], path: Path) -> None:
    for position in positions:
        for bit in (0, 3, 7):
            bad = bytearray(data)
            bad[position] ^= 1 << bit
            path.write_bytes(bytes(bad))
            assert Ledger(path).faults(), (position, bit)


def test_a_flipped_bit_is_found_wherever_it_is(ledger: Ledger) -> None:
    for n in range(3):
        append(ledger, n)
    data = ledger.path.read_bytes()
    newlines = [position for position, byte in enumerate(data) if byte == 0x0A]
    flips(data, [*newlines, 0, *range(1, len(data), 11)], ledger.path)


def test_the_torso_of_an_entry_is_cut_back_and_the_next_entry_says_so(ledger: Ledger) -> None:
    first = append(ledger)
    whole = ledger.path.read_bytes()
    second = append(ledger, 1)
    line = ledger.path.read_bytes()[len(whole) :]
    for length in (1, 50, len(line) - 2):
        ledger.path.write_bytes(whole + line[:length])
        assert ledger.faults() == ["ledger.jsonl, line 2: not ended; an append was cut off (the next one repairs it)"]
        assert ledger.entries() == (first,)
        mended = append(ledger, 1)
        assert mended.cut_back == CutBack(bytes=length, sha256=sha256_bytes(line[:length]))
        assert mended.previous == first.sha256
        assert ledger.faults() == []
    assert (second.runs, second.wall_s) == (1, 1)


def test_a_whole_entry_that_lacks_only_its_line_end_is_kept(ledger: Ledger) -> None:
    first, second = append(ledger), append(ledger, 1)
    ledger.path.write_bytes(ledger.path.read_bytes()[:-1])
    assert ledger.faults() != []
    assert Ledger(ledger.path).entries() == (first, second)
    third = append(ledger, 2)
    assert third.previous == second.sha256
    assert (third.runs, third.wall_s, third.ended_line) == (2, 1, EndedLine(index=1))
    assert third.stated == append(ledger, 2).stated
    assert ledger.faults() == []


def test_what_a_crash_left_is_said_and_left_to_the_entry_that_repairs_it(ledger: Ledger) -> None:
    append(ledger)
    whole = ledger.path.read_bytes()
    assert ledger.unfinished() is None
    for left, said in ((whole + b'{"at"', "5 bytes of an entry"), (whole[:-1], "lacks its end of line")):
        ledger.path.write_bytes(left)
        assert said in str(ledger.unfinished())
        assert ledger.path.read_bytes() == left  # a repair without an entry would leave no note


@pytest.mark.parametrize("end", [b"\x0b", b"x", b"{", b" "])
def test_a_finished_entry_is_never_cut_back(ledger: Ledger, end: bytes) -> None:
    append(ledger)
    append(ledger, 1)
    damaged = ledger.path.read_bytes()[:-1] + end
    ledger.path.write_bytes(damaged)
    with pytest.raises(LedgerError, match="line 2"):
        append(ledger, 2)
    with pytest.raises(LedgerError, match="line 2"):
        ledger.entries()
    assert ledger.path.read_bytes() == damaged
    assert ledger.faults()


def test_a_write_that_fails_leaves_no_half_line(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    append(ledger)
    before = ledger.path.read_bytes()
    real, written = os.write, 0

    def filling(descriptor: int, data: bytes) -> int:
        nonlocal written
        if written:
            raise OSError(28, "No space left on device")
        written = real(descriptor, bytes(data[:10]))
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", filling)
        with pytest.raises(LedgerError, match="No space left"):
            append(ledger)
    assert written == 10
    assert ledger.path.read_bytes() == before
    assert append(ledger).index == 1


def test_a_folder_that_is_not_there_is_a_ledger_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be locked"):
        append(Ledger(tmp_path / "nowhere" / "ledger.jsonl"))


def test_a_file_system_without_locks_takes_no_entry_and_can_be_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(ledger)
    (ledger.path.parent / ".ledger.lock").unlink()

    def none(*_given: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    before = ledger.path.read_bytes()
    with pytest.raises(UnsupportedError, match="file system without locks") as caught:
        append(ledger)
    assert "two processes might make one run, or write one ledger" in caught.value.required
    assert "nolock" in caught.value.fix
    assert ledger.path.read_bytes() == before
    assert [path.name for path in ledger.path.parent.iterdir()] == [ledger.path.name]
    assert len(ledger.entries()) == 1 and not ledger.faults()


def test_holding_the_ledger_may_be_nested_also_by_another_object(ledger: Ledger) -> None:
    # The kernel's lock belongs to an open file: a second object that locked again would wait for ever.
    other = Ledger(ledger.path)
    with ledger.hold():
        append(ledger)
        with other.hold():
            append(other)
        assert len(other.entries()) == 2
    append(other)
    assert ledger.faults() == []


def start(path: Path, who: str, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), who, str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ready(writer: subprocess.Popen[str]) -> None:
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"


def go(writer: subprocess.Popen[str]) -> None:
    assert writer.stdin is not None
    writer.stdin.write("go\n")
    writer.stdin.flush()


@pytest.mark.slow
def test_two_hundred_appends_of_eight_processes_make_one_chain_and_none_is_lost(ledger: Ledger) -> None:
    writers = [start(ledger.path, f"p{n}", 25) for n in range(8)]
    for writer in writers:
        ready(writer)
    for writer in writers:
        go(writer)
    for writer in writers:
        assert writer.communicate(timeout=120)[0].split() == [str(n) for n in range(25)]
        assert writer.returncode == 0
    assert ledger.faults() == []
    entries = ledger.entries()
    assert len(entries) == 200
    for n in range(8):
        assert [entry.runs for entry in entries if entry.study == f"p{n}"] == list(range(25))
    # Nobody waited for another to be done altogether: the entries of the eight lie mixed.
    assert sum(a.study != b.study for a, b in pairwise(entries)) > 8


READER = """
import sys
from pathlib import Path
from prereg.registry.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
print(len(Ledger(Path(sys.argv[1])).entries()))
"""


NURSERY = """
import os, sys
from pathlib import Path
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import CallStartedEntry
ledger = Ledger(Path(sys.argv[1]))
for turn in sys.stdin:
    ledger.entries()  # what it has read, every writer need not read again
    child = os.fork()
    if child == 0:
        n = 0
        while True:
            call = CallStartedEntry(study="k", registration="a" * 64, at="AT", runs=n, of=1, slots=1, code="x" * 2000)
            ledger.append(call)
            os.write(1, b"%d\\n" % n)
            n += 1
    os.write(1, b"child %d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
""".replace("AT", AT)


def kill_while_appending(path: Path, times: int) -> list[str]:
    """Every acknowledged entry survives each kill -9, and the chain goes on after it; what each kill left."""
    ledger, left = Ledger(path), []
    rng = random.Random(times)  # noqa: S311
    # One process imports and forks the writers, so that two hundred of them cost no two hundred starts.
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    with nursery:
        for turn in range(times):
            before, acknowledged, child = len(ledger.entries()), 0, 0
            nursery.stdin.write("go\n")
            nursery.stdin.flush()
            wanted = rng.randrange(3)  # appends are under way, and not only the start of the writer
            while not child or acknowledged < wanted:
                word, _, number = nursery.stdout.readline().strip().partition(" ")
                child, acknowledged = (int(number), acknowledged) if word == "child" else (child, acknowledged + 1)
            time.sleep(rng.uniform(0, 0.004))
            os.kill(child, signal.SIGKILL)
            while (word := nursery.stdout.readline().strip()) != "dead":
                assert int(word) == acknowledged
                acknowledged += 1
            after, torso = ledger.entries(), ledger.sound().torso_bytes
            assert before + acknowledged <= len(after) <= before + acknowledged + 1
            assert [entry.runs for entry in after[before:]] == list(range(len(after) - before))
            unacknowledged = len(after) > before + acknowledged
            left.append("a torso" if torso else "an entry nobody was told of" if unacknowledged else "what it was told")
            append(ledger, turn)
            assert ledger.faults() == []
        nursery.stdin.close()
    assert nursery.returncode == 0
    return left


def test_a_kill_while_appending_loses_nothing_that_was_acknowledged(ledger: Ledger) -> None:
    kill_while_appending(ledger.path, 8)


@pytest.mark.slow
def test_two_hundred_kills_while_appending_lose_nothing(ledger: Ledger) -> None:
    left = kill_while_appending(ledger.path, 200)
    # The window was real: some kills came between the write of an entry and its acknowledgement.
    assert set(left) - {"what it was told"}, left


def long_ledger(path: Path, n_entries: int) -> list[bytes]:
    """A sound ledger of some length, written at once; its lines."""
    rows, previous = [], FIRST
    for index in range(n_entries):
        content = ledger_samples.line("sealed", {"variant": "none", "seed": index}, index=index, previous=previous)
        previous = content["sha256"]
        rows.append(canonical_bytes(content) + b"\n")
    path.write_bytes(b"".join(rows))
    return rows


def test_reading_thousands_of_entries_stays_fast(ledger: Ledger) -> None:
    long_ledger(ledger.path, 5000)
    started = time.process_time()
    assert len(ledger.entries()) == 5000
    first = time.process_time() - started
    started = time.process_time()
    for n in range(20):
        append(ledger, n)
    # Seconds of the processor: about 0.15 s on two slow cores, whatever else the machine does.
    assert first < 5.0
    # What was read is not read again.
    assert (time.process_time() - started) / 20 < first


DELETER = """
import os, sys
while True:
    try:
        os.unlink(sys.argv[1])
    except FileNotFoundError:
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("times", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_appends_of_eight_processes_are_kept_while_the_lock_file_is_deleted_all_the_time(
    ledger: Ledger, times: int
) -> None:
    # Git ignores the lock file, and so `git clean` deletes it whoever holds it.
    lock = ledger.path.with_name(".ledger.lock")
    deleter = subprocess.Popen([sys.executable, "-c", DELETER, str(lock)])
    try:
        writers = [start(ledger.path, f"p{n}", times) for n in range(8)]
        for writer in writers:
            ready(writer)
        for writer in writers:
            go(writer)
        for writer in writers:
            assert writer.communicate(timeout=120)[0].split() == [str(n) for n in range(times)]
    finally:
        deleter.kill()
        deleter.wait()
    assert ledger.faults() == []
    entries = ledger.entries()
    assert len(entries) == 8 * times
    assert not any(entry.cut_back for entry in entries)


@pytest.mark.slow
def test_reading_waits_for_an_append_whose_lock_file_was_deleted(ledger: Ledger) -> None:
    append(ledger)
    lock = ledger.path.with_name(".ledger.lock")
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(ledger.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    ready(reader)
    with ledger.hold():
        lock.unlink()
        append(ledger, 1)
        go(reader)
        time.sleep(0.2)
        assert reader.poll() is None
        append(ledger, 2)
    assert reader.communicate(timeout=150)[0] == "3\n"


def test_lines_that_were_verified_are_not_verified_again_by_an_append(ledger: Ledger) -> None:
    long_ledger(ledger.path, 5000)
    ledger_lines.parsed.cache_clear()

    def n_verified() -> int:
        return ledger_lines.parsed.cache_info().misses

    for n in range(100):
        append(ledger, n)
    assert n_verified() == 5100
    append(ledger)
    assert len(Ledger(ledger.path).entries()) == 5101  # another object of this process
    assert n_verified() == 5101


def test_what_others_append_is_checked_before_an_append_chains_on_it(ledger: Ledger) -> None:
    append(ledger)
    before = ledger.path.read_bytes()
    other = Ledger(ledger.path)
    append(other, 1)
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"runs":1', b'"runs":2'))
    with pytest.raises(LedgerError, match="line 2: its content does not match its hash"):
        append(ledger, 2)
    ledger.path.write_bytes(before)  # shorter than what this process last saw
    assert append(ledger, 3).index == 1
    assert ledger.faults() == []


def test_damage_far_up_is_found_by_every_reading_and_by_an_append(ledger: Ledger) -> None:
    rows = long_ledger(ledger.path, 3000)
    assert len(ledger.entries()) == 3000
    rows[5] = rows[5].replace(b'"none"', b'"some"')
    ledger.path.write_bytes(b"".join(rows))
    for attempt in (lambda: append(ledger), lambda: append(Ledger(ledger.path)), ledger.entries):
        with pytest.raises(LedgerError, match="line 6: its content does not match its hash"):
            attempt()
    assert [found[:21] for found in ledger.faults()] == ["ledger.jsonl, line 6:"]
    assert ledger.path.read_bytes() == b"".join(rows)


@pytest.mark.parametrize(
    "written",
    [b'{"n":1.0}', b'{"n":1e5}', b'{"n":1e+16}', b'{"n":NaN}', b'{"n":9007199254740993}', b'{"n":1,"n":1}',
     b'{"b":1,"a":2}', b'{"n":"\\u00e9"}', b'{"n":"\\/"}', b'{"n":-0}', b'{"n":[1,2.50]}', b'{"n": 1}'],
)  # fmt: skip
def test_a_line_that_is_not_canonical_is_damage_however_its_hash_was_made(ledger: Ledger, written: bytes) -> None:
    # The hash is that of the line as it stands, so the bytes alone can give it away.
    line = (
        b'{"at":"%s","body":%s,"event":"started","format":1,"index":0,"joins":[],"previous":"%s","registration":"%s","study":"s"}'
        % (AT.encode(), written, FIRST.encode(), HASH.encode())
    )  # fmt: skip
    before, study = line[: -len(b'"study":"s"}')], b'"study":"s"}'
    ledger.path.write_bytes(before + b'"sha256":"%s",' % sha256_bytes(line).encode() + study + b"\n")
    (fault,) = ledger.faults()
    assert "is not in canonical bytes" in fault or "is not JSON" in fault


def test_ledgers_that_threads_read_at_once_are_not_taken_for_each_other(tmp_path: Path) -> None:
    ledgers = [Ledger(tmp_path / f"{n}.jsonl") for n in range(3)]
    for n, one in enumerate(ledgers):
        for entry in range(20 + n):
            append(one, entry)

    def read(at: int) -> bool:
        entries = Ledger(ledgers[at % 3].path).entries()
        return [entry.index for entry in entries] == list(range(20 + at % 3))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(300)))
    longer = ledgers[0].path.read_bytes()
    assert ledgers[0].faults() == []
    ledgers[0].path.write_bytes(longer.replace(b'"runs":3', b'"runs":4', 1))  # known lines are compared, not trusted
    assert "line 4: its content does not match its hash" in ledgers[0].faults()[0]
