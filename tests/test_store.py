"""The records of one run: live lines survive a crash, sealed ones cannot change unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.records.evidence import ITEM_COLUMNS
from ablate.records.gather import read_items, read_metrics
from ablate.records.run_record import Provenance, RunRecord
from ablate.records.store import ItemScore, Row, RunFolder, outcome_hash, rows_of
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


ITEMS = [
    ItemScore("anaphor", "7", "h7", "harness/accuracy", 1.0),
    ItemScore("anaphor", "10", "h10", "harness/accuracy", 0.0),
    ItemScore("binding", "7", "h7b", "harness/accuracy", 0.1 + 0.2),
]


def sealed_with_items(path: Path) -> tuple[RunFolder, RunRecord]:
    folder = RunFolder(path)
    folder.append(ROWS)
    return folder, folder.seal(record(), b"w", ITEMS)


def test_items_are_sealed_with_the_run_and_come_back_to_the_last_bit(tmp_path: Path) -> None:
    folder, sealed = sealed_with_items(tmp_path)
    assert folder.read_record() == sealed and folder.is_sealed() and sealed.items_sha256 is not None
    frame = read_items([folder.items_path])
    assert tuple(frame.columns) == ITEM_COLUMNS
    assert set(frame.itertuples(index=False, name=None)) == {
        ("a", 1, one.task, one.item, one.item_sha256, one.metric, one.value) for one in ITEMS
    }


def test_items_are_written_as_plain_strings_so_that_runs_are_one_table(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for seed in (1, 2):
        folder = RunFolder(tmp_path / str(seed))
        folder.path.mkdir()
        folder.append(ROWS)
        folder.seal(record(seed=seed), b"w", ITEMS)
        paths.append(folder.items_path)
        schema = pq.read_schema(folder.items_path)
        texts = ("study", "registration", "variant", "task", "item", "item_sha256", "metric")
        assert {schema.field(name).type for name in texts} == {pa.string()}
    assert read_items(paths).groupby("seed").size().to_dict() == {1: 3, 2: 3}


def test_changed_lost_or_foreign_items_break_the_seal(tmp_path: Path) -> None:
    folder, sealed = sealed_with_items(tmp_path)
    whole = folder.items_path.read_bytes()
    folder.items_path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert folder.faults(sealed) == [f"{folder.items_path} is not what run.json sealed"]
    folder.items_path.unlink()
    assert folder.faults(sealed) == [f"{folder.items_path} is missing"] and not folder.is_sealed()
    folder.items_path.write_bytes(whole)
    assert folder.is_sealed()
    bare = sealed.model_copy(update={"items_sha256": None})
    assert folder.faults(bare) == [f"{folder.items_path} is there and run.json seals no items"]


def test_a_run_without_items_is_written_as_it_always_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS)
    folder.items_path.write_bytes(b"left by an attempt that a crash ended")
    sealed = folder.seal(record(), b"w")
    assert b"items" not in folder.record_path.read_bytes() and not folder.items_path.exists()
    assert sealed.outcome_sha256 == outcome_hash(ROWS) and folder.is_sealed()


def test_beginning_anew_forgets_items(tmp_path: Path) -> None:
    folder, _ = sealed_with_items(tmp_path)
    folder.clear()
    assert not folder.items_path.exists()


def test_the_outcome_hash_sees_every_item_where_there_are_some() -> None:
    assert outcome_hash(ROWS, ITEMS) == outcome_hash(ROWS, list(reversed(ITEMS))) != outcome_hash(ROWS)
    for field, value in (("value", 0.5), ("item_sha256", "x"), ("item", "8"), ("task", "t"), ("metric", "m")):
        other = ItemScore(**(vars(ITEMS[0]) | {field: value}))
        assert outcome_hash(ROWS, [other, *ITEMS[1:]]) != outcome_hash(ROWS, ITEMS), field


def test_an_item_scored_twice_or_without_a_number_is_never_sealed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append(ROWS)
    nan = ItemScore("t", "1", "h", "harness/accuracy", float("nan"))
    for wrong in ([*ITEMS, ITEMS[0]], [nan]):
        with pytest.raises(AssertionError):
            folder.seal(record(), b"w", wrong)
    assert folder.read_record() is None and not folder.sealed_path.exists()


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
