"""Two generations of a checkpoint: whatever happens to the newest, the run ends with the bits it would have had."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import WARM, House
from gpt_runs import KilledError, carry_out

import ablate as api
from ablate.gpt.checkpoints import Checkpoints, LiveRows
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder
from ablate.runner.messages import Message
from ablate.runner.options import RunOptions
from ablate.workspace import Workspace
from prereg.registry.plan import RunSpec, plan

pytestmark = pytest.mark.usefixtures("no_reports")

OPERATIONS = 10
"""That make one checkpoint durable: rows, hashes, the file, two renames, the facts, and folders."""


def record_of(folder: RunFolder) -> RunRecord:
    record = folder.read_record()
    assert record is not None, folder.path
    return record


Made = tuple[Path, RunSpec, RunRecord]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The root of a house, a run of it, and its record when nothing happens on the way."""
    house = House(tmp_path_factory.mktemp("made") / "house")
    registration, _ = api.register(house.write())
    spec = plan(registration)[1]
    assert isinstance(spec, RunSpec)
    whole = house.path / "whole"
    assert carry_out(house.path, whole, spec).status == "done"
    return house.path, spec, record_of(RunFolder(whole))


@pytest.fixture(name="folder")
def killed(made: Made, tmp_path: Path) -> RunFolder:
    """The folder of the same run, killed with a checkpoint of its twentieth step."""
    root, spec, _ = made
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KilledError):
        carry_out(root, folder.path, spec, kill_at=21, checkpoint_every_s=0.0)
    return folder


def kept(folder: RunFolder) -> Checkpoints:
    """Its checkpoints."""
    return Checkpoints(folder.path / "work")


def live(folder: RunFolder) -> Path:
    """The rows that it has recorded."""
    return folder.path / "work" / "metrics.jsonl"


def require_same_bits(found: RunRecord, whole: RunRecord) -> None:
    assert found.status == "done"
    assert found.outcome_sha256 == whole.outcome_sha256
    assert found.weights_sha256 == whole.weights_sha256
    assert found.must_match == whole.must_match
    assert found.tokens == whole.tokens


def strike(made: Made, folder: Path, mode: str, numbers: Sequence[int]) -> list[int]:
    """How each struck process ended."""
    root, spec, _ = made
    given = folder / "spec.json"
    given.write_text(spec.model_dump_json())
    words = [sys.executable, "-m", "killed_writer"]
    striker = WARM.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    striker.stdin.write(json.dumps([str(root), str(given), str(folder), mode, *numbers]))
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
    made: Made, tmp_path: Path, mode: str, blows: Sequence[int]
) -> None:
    root, spec, whole = made
    assert strike(made, tmp_path, mode, blows) == [signal.SIGKILL] * len(blows)
    resumed: list[int] = []
    for blow in blows:
        folder = RunFolder(tmp_path / str(blow))
        assert [g.fault for g in kept(folder).generations()].count(None) >= 1, blow
        assert carry_out(root, folder.path, spec).status == "done", blow
        found = record_of(folder)
        require_same_bits(found, whole)
        assert found.attempts == 2
        resumed += found.resumed_from
    assert len(resumed) == len(blows)
    assert resumed == sorted(resumed), "a later blow left an earlier checkpoint"
    assert set(resumed) == ({2, 3} if len(blows) == OPERATIONS else {2})


@pytest.mark.slow
def test_a_checkpoint_takes_no_more_operations_than_are_struck(made: Made, tmp_path: Path) -> None:
    assert strike(made, tmp_path, "kill", [OPERATIONS]) == [0]


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_what_to_do_and_leaves_the_checkpoint_before(made: Made, tmp_path: Path) -> None:
    root, spec, whole = made
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
    assert carry_out(root, folder.path, spec).status == "done"
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
    made: Made, folder: RunFolder, harm: Callable[[Path], None]
) -> None:
    root, spec, whole = made
    newest = kept(folder).newest
    harm(newest)
    assert carry_out(root, folder.path, spec).status == "done"
    found = record_of(folder)
    require_same_bits(found, whole)
    assert found.resumed_from == (19,)
    why = "is missing" if harm is gone else "is not what was written (its sha256 does not hold)"
    assert found.mishaps == (f"attempt 2 resumed at step 19: checkpoint.safetensors {why}",)


def test_a_damaged_newest_checkpoint_never_takes_the_place_of_the_sound_one(made: Made, folder: RunFolder) -> None:
    root, spec, whole = made
    flipped(kept(folder).newest)
    carry_out(root, folder.path, spec, stop_at=0)  # takes up step 19, and is stopped there
    assert [g.fault for g in kept(folder).generations()] == [None, "is missing"]
    carry_out(root, folder.path, spec, stop_at=20)
    assert [g.fault for g in kept(folder).generations()] == [None, None]
    assert carry_out(root, folder.path, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert record_of(folder).resumed_from == (19, 19, 20)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["both files", "the hashes", "hashes of another kind"])
def test_with_no_sound_checkpoint_the_run_starts_over_aloud(made: Made, folder: RunFolder, harm: str) -> None:
    root, spec, whole = made
    if harm == "both files":
        flipped(kept(folder).newest)
        truncated(kept(folder).previous)
    elif harm == "the hashes":
        kept(folder).hashes.unlink()
    else:
        kept(folder).hashes.write_text('{"sha256": [1, null]}')
    assert carry_out(root, folder.path, spec).status == "done"
    found = record_of(folder)
    require_same_bits(found, whole)
    assert found.resumed_from == ()
    assert len(found.mishaps) == 1
    assert found.mishaps[0].startswith("attempt 2 started over: checkpoint.safetensors is not what was written")
    assert "checkpoint.previous.safetensors is not what was written" in found.mishaps[0]


def test_a_sound_file_that_the_trainer_cannot_read_is_passed_over_too(made: Made, folder: RunFolder) -> None:
    root, spec, whole = made
    kept(folder).write(b"whole, and no checkpoint")
    assert carry_out(root, folder.path, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert record_of(folder).resumed_from == (20,)
    assert "cannot be read" in record_of(folder).mishaps[0]


def test_other_code_starts_over_and_says_what_is_other(
    made: Made, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, spec, whole = made
    with monkeypatch.context() as patch:
        patch.setattr("ablate.gpt.main.code_hash", lambda: "0" * 64)
        patch.setattr("ablate.gpt.main.processor_name", lambda: "another processor")
        assert carry_out(root, folder.path, spec, stop_at=5).event == "stopped"
        assert record_of(folder).mishaps == ("attempt 2 started over: code and processor not as in the attempt before",)
    assert carry_out(root, folder.path, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert record_of(folder).resumed_from == ()
    assert record_of(folder).mishaps[1:] == ("attempt 3 started over: code and processor not as in the attempt before",)


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
    made: Made, folder: RunFolder, harm: Callable[[Path], None], why: str
) -> None:
    root, spec, whole = made
    harm(live(folder))
    assert carry_out(root, folder.path, spec).status == "done"
    found = record_of(folder)
    require_same_bits(found, whole)
    assert (found.attempts, found.resumed_from) == (2, ())
    assert len(found.mishaps) == 1
    assert found.mishaps[0].startswith(f"attempt 2 started over: {why}")


def test_rows_after_the_checkpoint_are_cut_back_whatever_they_are(made: Made, folder: RunFolder) -> None:
    root, spec, whole = made
    with live(folder).open("ab") as stream:
        stream.write(b'{"step": 21, "metric": "train/loss", "value": 0.1}\n{"step": 22, "met')
    assert carry_out(root, folder.path, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert (record_of(folder).resumed_from, record_of(folder).mishaps) == ((20,), ())


def test_a_run_stopped_before_its_first_step_again_and_again_has_nothing_to_tell(made: Made, tmp_path: Path) -> None:
    root, spec, whole = made
    folder = RunFolder(tmp_path / "run")
    for _ in range(3):
        carry_out(root, folder.path, spec, stop_at=0)
    assert carry_out(root, folder.path, spec).status == "done"
    require_same_bits(record_of(folder), whole)
    assert (record_of(folder).resumed_from, record_of(folder).mishaps) == ((0, 0, 0), ())


@pytest.mark.slow
def test_rows_edited_while_the_run_lives_are_not_sealed(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, spec, whole = made
    folder = RunFolder(tmp_path / "run")
    checked = LiveRows.fault

    def struck(self: LiveRows, *written: Any) -> str | None:
        edited(live(folder))
        return checked(self, *written)

    with monkeypatch.context() as patch:
        patch.setattr(LiveRows, "fault", struck)
        said = carry_out(root, folder.path, spec)
    assert said.status == "failed" and "metrics.jsonl is not what was written" in str(said.error)
    assert not folder.sealed_path.exists()
    assert carry_out(root, folder.path, spec).status == "done"
    require_same_bits(record_of(folder), whole)


def test_a_run_without_incident_has_nothing_to_tell_and_leaves_no_checkpoint(
    made: Made,
) -> None:
    root, _, whole = made
    assert whole.mishaps == ()
    assert not (root / "whole" / "work").exists()


@pytest.mark.slow
def test_what_went_wrong_stands_in_the_verdict_and_costs_none(house: House) -> None:
    study = house.write(seeds=[1, 2])
    registration, _ = api.register(study)
    spec = plan(registration)[0]
    folder = RunFolder(Workspace().open(study).root.run(spec.study, spec.registration, spec.variant, spec.seed))
    with pytest.raises(KilledError):
        carry_out(house.path, folder.path, spec, kill_at=21, checkpoint_every_s=0.0)
    flipped(kept(folder).newest)
    assert api.run(study, RunOptions(checkpoint_every_s=1.0)).summary.complete
    decided = api.decide(study).decision
    check = {check.name: check for check in decided.checks}["every run was made in one go"]
    assert (check.passed, check.severity) == (False, "note")
    assert "attempt 2 resumed at step 19: checkpoint.safetensors is not what was written" in check.found
    assert decided.status != "inadmissible"


def test_a_write_remembers_its_hash_before_the_file_is_there(tmp_path: Path) -> None:
    pair = Checkpoints(tmp_path)
    assert list(pair.generations()) == []
    pair.write(b"one")
    pair.write(b"two")
    pair.write(b"three")
    assert (pair.newest.read_bytes(), pair.previous.read_bytes()) == (b"three", b"two")
    assert [g.fault for g in pair.generations()] == [None, None]
    pair.clear()
    assert not list(tmp_path.iterdir())
