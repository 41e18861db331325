"""The records of one run: live lines survive a crash, sealed ones cannot change unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.records.gather import read_metrics
from ablate.records.run_record import Provenance, RunRecord
from ablate.records.store import Row, RunFolder, outcome_hash, rows_of
from prereg.errors import EvidenceError

PROVENANCE = Provenance(
    code="c",
    commit=None,
    dirty=None,
    python="3",
    torch="2",
    numpy="2",
    platform="p",
    processor="x",
    device="cpu",
    threads=1,
)


def record(**changes: object) -> RunRecord:
    return RunRecord(
        study="s",
        registration="r" * 64,
        variant="a",
        seed=1,
        status="done",
        attempts=1,
        config={},
        steps=2,
        tokens=2,
        parameters=1,
        pairing=None,
        provenance=PROVENANCE,
        started_at="2026-01-01T00:00:00+00:00",
    ).model_copy(update=changes)


ROWS = [
    Row(0, "val/loss", 3.0),
    Row(1, "train/loss", 0.1 + 0.2),
    Row(2, "val/loss", 1e-300),
    Row(2, "speed/eval_s", 9.0),
]


def test_live_rows_come_back_to_the_last_bit(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS[:2])
    folder.append(ROWS[2:], durable=True)
    assert folder.rows() == ROWS


def test_an_unterminated_last_line_is_dropped_and_a_damaged_one_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS)
    with folder.live_path.open("a") as stream:
        stream.write('{"step": 3, "met')
    assert folder.rows() == ROWS
    with folder.live_path.open("a") as stream:
        stream.write("\n")
    with pytest.raises(EvidenceError, match="is damaged"):
        folder.rows()


def test_cutting_back_forgets_what_will_be_repeated(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS)
    folder.cut_back(1)
    assert folder.rows() == ROWS[:2]


def test_a_value_that_is_not_finite_never_becomes_a_number(tmp_path: Path) -> None:
    assert rows_of(1, {"a": 1.0, "b": float("nan"), "c": float("inf")}) == [Row(1, "a", 1.0)]
    with pytest.raises(AssertionError):
        RunFolder(tmp_path).append([Row(1, "a", float("nan"))])


def test_sealing_keeps_every_row_and_drops_the_live_form(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS)
    folder.checkpoint_path.write_bytes(b"c")
    sealed = folder.seal(record(), b"w")
    assert folder.read_record() == sealed
    assert folder.is_sealed()
    assert not folder.live_path.exists()
    assert not folder.checkpoint_path.exists()
    frame = read_metrics([folder.sealed_path])
    assert {
        (int(s), str(m), float(v)) for s, m, v in zip(frame["step"], frame["metric"], frame["value"], strict=True)
    } == {(row.step, row.metric, row.value) for row in ROWS}


def test_one_changed_byte_breaks_the_seal(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS)
    sealed = folder.seal(record(), b"w")
    data = bytearray(folder.sealed_path.read_bytes())
    data[len(data) // 2] ^= 1
    folder.sealed_path.write_bytes(bytes(data))
    assert folder.faults(sealed) == [f"{folder.sealed_path} is not what run.json sealed"]
    assert not folder.is_sealed()
    folder.sealed_path.unlink()
    assert folder.faults(sealed) == [f"{folder.sealed_path} is missing"]


def test_the_outcome_hash_sees_every_bit_of_a_loss_and_nothing_of_a_timing() -> None:
    slower = [*ROWS[:3], Row(2, "speed/eval_s", 10.0)]
    assert outcome_hash(ROWS) == outcome_hash(slower) == outcome_hash(list(reversed(ROWS)))
    nudged = [Row(0, "val/loss", 3.0000000000000004), *ROWS[1:]]
    assert outcome_hash(ROWS) != outcome_hash(nudged)


def test_a_run_json_that_is_not_one_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_record() is None
    folder.record_path.write_text('{"study": 1}')
    with pytest.raises(EvidenceError, match="is not a run record"):
        folder.read_record()


def test_no_rows_give_an_empty_table_with_its_columns() -> None:
    assert list(read_metrics([]).columns) == ["variant", "seed", "step", "metric", "value"]
