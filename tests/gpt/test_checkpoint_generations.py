"""Two generations of a checkpoint: whatever happens to the newest, the run ends with the bits it would have had."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import WARM, House

import ablate as api
from ablate.records.checkpoints import Checkpoints
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner.builtin.run import Run, Worker
from ablate.runner.messages import Message
from ablate.runner.options import RunOptions
from ablate.workspace import Workspace
from prereg.registry.plan import RunSpec, plan

OPERATIONS = 12
"""That make one checkpoint durable: rows, hashes, the file, two renames, the record, and folders."""


class StopAfter(threading.Event):
    """A stop that comes after so many questions whether to stop."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self.asked = asked

    def is_set(self) -> bool:
        self.asked -= 1
        return self.asked < 0


def carry_out(house: House, folder: RunFolder, spec: RunSpec, asked: int | None = None) -> Message:
    """One run in this process: to its end, or with checkpoints at every step until it is stopped; its last words."""
    torch.set_num_threads(1)
    said: list[Message] = []
    folder.path.mkdir(parents=True, exist_ok=True)
    corpora = house.path / "data" / "corpora"
    stop = threading.Event() if asked is None else StopAfter(asked)
    Worker(corpora, said.append, stop, checkpoint_every_s=60.0 if asked is None else 0.0).carry_out(spec, folder)
    return said[-1]


def record_of(folder: RunFolder) -> RunRecord:
    record = folder.read_record()
    assert record is not None, folder.path
    return record


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, RunSpec, RunRecord]:
    """A house, a run of it, and its record when nothing happens on the way."""
    house = House(tmp_path_factory.mktemp("made") / "house")
    registration, _ = api.register(house.write())
    spec = plan(registration)[1]
    whole = RunFolder(house.path / "whole")
    assert carry_out(house, whole, spec).status == "done"
    return house, spec, record_of(whole)


@pytest.fixture(name="folder")
def stopped(made: tuple[House, RunSpec, RunRecord], tmp_path: Path) -> RunFolder:
    """The folder of the same run, stopped with a checkpoint at its twentieth step."""
    house, spec, _ = made
    folder = RunFolder(tmp_path / "run")
    assert carry_out(house, folder, spec, 20).event == "stopped"
    return folder


def require_same_bits(found: RunRecord, whole: RunRecord) -> None:
    assert found.status == "done"
    assert found.outcome_sha256 == whole.outcome_sha256
    assert found.weights_sha256 == whole.weights_sha256
    assert found.pairing == whole.pairing
    assert found.tokens == whole.tokens


def strike(made: tuple[House, RunSpec, RunRecord], folder: Path, mode: str, numbers: Sequence[int]) -> list[int]:
    """How each struck process ended."""
    house, spec, _ = made
    given = folder / "spec.json"
    given.write_text(spec.model_dump_json())
    words = [sys.executable, "-m", "killed_writer"]
    striker = WARM.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    striker.stdin.write(json.dumps([str(house.path / "data" / "corpora"), str(given), str(folder), mode, *numbers]))
    striker.stdin.close()
    with striker.stdout:
        said = striker.stdout.read()
    assert striker.wait(300) == 0
    ends: list[int] = json.loads(said)
    return ends


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="asks Linux which file is being made durable")
@pytest.mark.parametrize(
    ("mode", "blows"),
    [
        ("kill", (4, 6)),  # before the new file is durable, and between the two renames
        pytest.param("kill", range(OPERATIONS), marks=pytest.mark.slow),
        pytest.param("torn", range(OPERATIONS), marks=pytest.mark.slow),
    ],
    ids=["killed at two moments", "killed at every moment", "killed with half of it lost"],
)
def test_a_process_killed_at_any_moment_of_writing_a_checkpoint_costs_no_bit(
    made: tuple[House, RunSpec, RunRecord], tmp_path: Path, mode: str, blows: Sequence[int]
) -> None:
    house, spec, whole = made
    assert strike(made, tmp_path, mode, blows) == [signal.SIGKILL] * len(blows)
    resumed: list[int] = []
    for blow in blows:
        folder = RunFolder(tmp_path / str(blow))
        assert [g.fault for g in folder.checkpoints.generations()].count(None) >= 1, blow
        assert carry_out(house, folder, spec).status == "done", blow
        found = record_of(folder)
        require_same_bits(found, whole)
        assert found.attempts == 2
        resumed += found.resumed_from
    assert len(resumed) == len(blows)
    assert resumed == sorted(resumed), "a later blow left an earlier checkpoint"
    assert set(resumed) == ({2, 3} if len(blows) == OPERATIONS else {2})


@pytest.mark.slow
def test_a_checkpoint_takes_no_more_operations_than_are_struck(
    made: tuple[House, RunSpec, RunRecord], tmp_path: Path
) -> None:
    assert strike(made, tmp_path, "kill", [OPERATIONS]) == [0]


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_what_to_do_and_leaves_the_checkpoint_before(
    made: tuple[House, RunSpec, RunRecord], tmp_path: Path
) -> None:
    house, spec, whole = made
    assert strike(made, tmp_path, "full", [20]) == [0]
    folder = RunFolder(tmp_path / "20")
    said = Message.model_validate_json((folder.path / "said.json").read_bytes())
    assert said.status == "failed"
    assert said.error is not None
    assert "the checkpoint of step 3" in said.error
    assert "the one before it is still there" in said.error
    assert "try: free some space, and run again" in said.error
    assert record_of(folder).status == "failed"
    assert not list(folder.path.glob(".*.tmp")), "what was half written takes room that there is not"
    assert carry_out(house, folder, spec).status == "done"
    assert record_of(folder).resumed_from == (2,)
    require_same_bits(record_of(folder), whole)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # one bit of one weight: nothing that reading the file would notice
    path.write_bytes(bytes(data))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def swapped_for_garbage(path: Path) -> None:
    path.write_bytes(b"\x00" * path.stat().st_size)


def gone(path: Path) -> None:
    path.unlink()


HARMS = (truncated, flipped, emptied, swapped_for_garbage, gone)


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_a_damaged_newest_checkpoint_is_passed_over_aloud_and_costs_no_bit(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder, harm: Callable[[Path], None]
) -> None:
    house, spec, whole = made
    newest = folder.checkpoints.newest
    harm(newest)
    assert carry_out(house, folder, spec).status == "done"
    found = record_of(folder)
    require_same_bits(found, whole)
    assert found.resumed_from == (19,)
    why = "is missing" if harm is gone else "is not what was written (its sha256 does not hold)"
    assert found.mishaps == (f"attempt 2 resumed at step 19: checkpoint.safetensors {why}",)


def test_a_damaged_newest_checkpoint_never_takes_the_place_of_the_sound_one(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder
) -> None:
    house, spec, whole = made
    flipped(folder.checkpoints.newest)
    carry_out(house, folder, spec, 0)  # takes up step 19, and is stopped there
    assert [g.fault for g in folder.checkpoints.generations()] == [None, "is missing"]
    carry_out(house, folder, spec, 1)
    assert [g.fault for g in folder.checkpoints.generations()] == [None, None]
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert record_of(folder).resumed_from == (19, 19, 20)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["both files", "the hashes", "hashes of another kind"])
def test_with_no_sound_checkpoint_the_run_starts_over_aloud(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder, harm: str
) -> None:
    house, spec, whole = made
    kept = folder.checkpoints
    if harm == "both files":
        flipped(kept.newest)
        truncated(kept.previous)
    elif harm == "the hashes":
        kept.hashes.unlink()
    else:
        kept.hashes.write_text('{"sha256": [1, null]}')
    assert carry_out(house, folder, spec).status == "done"
    found = record_of(folder)
    require_same_bits(found, whole)
    assert found.resumed_from == ()
    assert len(found.mishaps) == 1
    assert found.mishaps[0].startswith("attempt 2 started over: checkpoint.safetensors is not what was written")
    assert "checkpoint.previous.safetensors is not what was written" in found.mishaps[0]


def test_a_sound_file_that_the_trainer_cannot_read_is_passed_over_too(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder
) -> None:
    house, spec, whole = made
    folder.checkpoints.write(b"whole, and no checkpoint")
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert record_of(folder).resumed_from == (20,)
    assert "cannot be read" in record_of(folder).mishaps[0]


def test_other_code_starts_over_and_says_what_is_other(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder
) -> None:
    house, spec, whole = made
    record = record_of(folder)
    other = record.provenance.model_copy(update={"code": "0" * 64, "torch": "0.1"})
    folder.write_record(record.model_copy(update={"provenance": other}))
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert record_of(folder).mishaps == ("attempt 2 started over: code and torch not as in the attempt before",)


def cut(path: Path) -> None:
    """The evaluation of step 20 but for its first rows, as if the rest had never been recorded."""
    lines = path.read_bytes().splitlines(keepends=True)
    last = [at for at, line in enumerate(lines) if json.loads(line)["step"] == 20]
    path.write_bytes(b"".join(lines[: last[1]]))


def edited(path: Path) -> None:
    """One digit of a validation loss, in as many bytes."""
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"step": 10, "metric": "val/loss"' in line)
    number = lines[at].index(b'"value": ') + len(b'"value": ')
    lines[at] = lines[at][:number] + b"0" + lines[at][number + 1 :]
    path.write_bytes(b"".join(lines))


def lengthened(path: Path) -> None:
    """Rows that nobody recorded, before the end."""
    data = path.read_bytes()
    path.write_bytes(b'{"step": 1, "metric": "val/loss", "value": 0.5}\n' + data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (cut, "metrics.jsonl has "),
        (edited, "metrics.jsonl is not what was written"),
        (lengthened, "metrics.jsonl is not what was written"),
        (gone, "metrics.jsonl has 0 of the "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_live_rows_that_are_not_those_that_were_written_start_the_run_over_aloud(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder, harm: Callable[[Path], None], why: str
) -> None:
    house, spec, whole = made
    harm(folder.live_path)
    assert carry_out(house, folder, spec).status == "done"
    found = record_of(folder)
    require_same_bits(found, whole)
    assert (found.attempts, found.resumed_from) == (2, ())
    assert len(found.mishaps) == 1
    assert found.mishaps[0].startswith(f"attempt 2 started over: {why}")


def test_rows_after_the_checkpoint_are_cut_back_whatever_they_are(
    made: tuple[House, RunSpec, RunRecord], folder: RunFolder
) -> None:
    house, spec, whole = made
    with folder.live_path.open("ab") as stream:
        stream.write(b'{"step": 21, "metric": "train/loss", "value": 0.1}\n{"step": 22, "met')
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert (record_of(folder).resumed_from, record_of(folder).mishaps) == ((20,), ())


def test_a_run_stopped_before_its_first_step_again_and_again_has_nothing_to_tell(
    made: tuple[House, RunSpec, RunRecord], tmp_path: Path
) -> None:
    house, spec, whole = made
    folder = RunFolder(tmp_path / "run")
    for _ in range(3):
        carry_out(house, folder, spec, 0)
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert (record_of(folder).resumed_from, record_of(folder).mishaps) == ((0, 0, 0), ())


def test_rows_edited_while_the_run_lives_are_not_sealed(
    made: tuple[House, RunSpec, RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, spec, whole = made
    folder = RunFolder(tmp_path / "run")
    checked = RunFolder.live_fault

    def struck(self: RunFolder, *written: Any) -> str | None:
        edited(folder.live_path)
        return checked(self, *written)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "live_fault", struck)
        said = carry_out(house, folder, spec)
    assert said.status == "failed" and "metrics.jsonl is not what was written" in str(said.error)
    assert not folder.sealed_path.exists()
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)


def test_a_checkpoint_that_does_not_say_which_rows_it_goes_with_starts_the_run_over(
    made: tuple[House, RunSpec, RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, spec, whole = made
    folder = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "count_rows", lambda self: None)
        carry_out(house, folder, spec, 20)
    assert carry_out(house, folder, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    said = "attempt 2 started over: the checkpoint does not say which rows it goes with"
    assert record_of(folder).mishaps == (said,)


def test_a_run_without_incident_has_nothing_to_tell_and_leaves_no_checkpoint(
    made: tuple[House, RunSpec, RunRecord],
) -> None:
    house, _, whole = made
    assert whole.mishaps == ()
    assert not list((house.path / "whole").glob("checkpoint*"))


@pytest.mark.slow
def test_what_went_wrong_stands_in_the_verdict_and_costs_none(house: House) -> None:
    study = house.write(seeds=[1, 2])
    registration, _ = api.register(study)
    spec = plan(registration)[0]
    folder = RunFolder(Workspace().open(study).root.run(spec.study, spec.registration, spec.variant, spec.seed))
    carry_out(house, folder, spec, 20)
    flipped(folder.checkpoints.newest)
    assert api.run(study, RunOptions(checkpoint_every_s=1.0)).summary.complete
    decided = api.decide(study).decision
    check = {check.name: check for check in decided.checks}["every run was made in one go"]
    assert (check.passed, check.severity) == (False, "note")
    assert "attempt 2 resumed at step 19: checkpoint.safetensors is not what was written" in check.found
    assert decided.status != "inadmissible"


def test_a_write_remembers_its_hash_before_the_file_is_there(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    assert list(kept.generations()) == []
    kept.write(b"one")
    kept.write(b"two")
    kept.write(b"three")
    assert (kept.newest.read_bytes(), kept.previous.read_bytes()) == (b"three", b"two")
    assert [g.fault for g in kept.generations()] == [None, None]
    kept.clear()
    assert not list(tmp_path.iterdir())
