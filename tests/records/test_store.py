"""The records of one run: live lines survive a crash, sealed ones cannot change unnoticed."""

from __future__ import annotations

import hashlib
import json
import math
import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.records import outcome
from ablate.records.evidence import ITEM_COLUMNS, METRIC_COLUMNS, Evidence
from ablate.records.gather import items_frame, metrics_frame, read_curves
from ablate.records.outcome import outcome_hash, outcome_of_tables
from ablate.records.run_record import Provenance, RunRecord
from ablate.records.store import (
    ItemScore,
    Row,
    RunFolder,
    items_bytes,
    parquet_bytes,
    rows_at_step,
)
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
        format=1,
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
        provenance=PROVENANCE,
        started_at="2026-01-01T00:00:00+00:00",
    ).model_copy(update=changes)


ROWS = [
    Row(0, "val/loss", 3.0),
    Row(1, "train/loss", 0.1 + 0.2),
    Row(2, "val/loss", 1e-300),
    Row(2, "speed/eval_s", 9.0),
]


def test_a_value_that_is_not_finite_never_becomes_a_number() -> None:
    assert rows_at_step(1, {"a": 1.0, "b": float("nan"), "c": float("inf")}) == [Row(1, "a", 1.0)]


def test_sealing_keeps_every_row(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    sealed = folder.seal(record(), ROWS)
    assert folder.read_record() == sealed
    assert folder.is_sealed()
    assert folder.sealed_rows() == ROWS


def test_one_changed_byte_breaks_the_seal(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    sealed = folder.seal(record(), ROWS)
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
    return folder, folder.seal(record(), ROWS, ITEMS)


def test_items_are_sealed_with_the_run_and_come_back_to_the_last_bit(tmp_path: Path) -> None:
    folder, sealed = sealed_with_items(tmp_path)
    assert folder.read_record() == sealed and folder.is_sealed() and sealed.items_sha256 is not None
    frame = items_frame([folder.items_path])
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
        folder.seal(record(seed=seed), ROWS, ITEMS)
        paths.append(folder.items_path)
        schema = pq.read_schema(folder.items_path)
        texts = ("study", "registration", "variant", "task", "item", "item_sha256", "metric")
        assert {schema.field(name).type for name in texts} == {pa.string()}
    assert items_frame(paths).groupby("seed").size().to_dict() == {1: 3, 2: 3}


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


def test_a_run_without_items_has_none_left(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.items_path.write_bytes(b"left by an attempt that a crash ended")
    sealed = folder.seal(record(), ROWS)
    assert sealed.items_sha256 is None and not folder.items_path.exists()
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
    nan = ItemScore("t", "1", "h", "harness/accuracy", float("nan"))
    for wrong in ([*ITEMS, ITEMS[0]], [nan]):
        with pytest.raises(AssertionError):
            folder.seal(record(), ROWS, wrong)
    assert folder.read_record() is None and not folder.sealed_path.exists()


def test_the_outcome_hash_sees_every_bit_of_a_loss_and_nothing_of_a_timing() -> None:
    slower = [*ROWS[:3], Row(2, "speed/eval_s", 10.0)]
    assert outcome_hash(ROWS) == outcome_hash(slower) == outcome_hash(list(reversed(ROWS)))
    nudged = [Row(0, "val/loss", 3.0000000000000004), *ROWS[1:]]
    assert outcome_hash(ROWS) != outcome_hash(nudged)


def table_of(rows: list[Row]) -> pa.Table:
    return pa.table(
        {
            "step": pa.array([row.step for row in rows], pa.int64()),
            "metric": pa.array([row.metric for row in rows], pa.string()),
            "value": pa.array([row.value for row in rows], pa.float64()),
        }
    )


def table_of_items(items: list[ItemScore]) -> pa.Table:
    texts = {
        name: pa.array([getattr(one, name) for one in items], pa.string())
        for name in ("task", "item", "item_sha256", "metric")
    }
    return pa.table(texts | {"value": pa.array([one.value for one in items], pa.float64())})


# A scalar's bits at random reach every exponent; the names, timings among them, sort otherwise in UTF-16 than in UTF-8.
DOUBLES = st.floats() | st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
DOUBLES |= st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, math.inf])
STEPS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 12)
NAMES = st.sampled_from(["val/loss", "train/loss", "speed/eval_s", "own/ä", "\uffff", "\U0001f600"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)


def by_definition(rows: list[Row], items: list[ItemScore]) -> str:
    """The outcome as the docstring of `outcome_hash` says, value by value."""
    digest = hashlib.sha256(b"outcome 1\n")
    for name in sorted({row.metric for row in rows if outcome.is_repeatable(row.metric)}):
        mine = sorted((row for row in rows if row.metric == name), key=lambda row: row.step)
        digest.update(json.dumps([name, len(mine)]).encode() + b"\n")
        digest.update(b"".join(struct.pack("<q", row.step) for row in mine))
        digest.update(b"".join(struct.pack("<d", row.value) for row in mine))
    items = sorted(items, key=lambda item: (item.metric, item.task, item.item))
    if items:
        for column in ("metric", "task", "item", "item_sha256"):
            digest.update(json.dumps([getattr(item, column) for item in items]).encode() + b"\n")
        digest.update(b"".join(struct.pack("<d", item.value) for item in items))
    return digest.hexdigest()


@given(st.lists(st.builds(Row, STEPS, NAMES, DOUBLES), max_size=40))
def test_the_outcome_of_a_table_is_that_of_its_rows(rows: list[Row]) -> None:
    assert outcome_of_tables(table_of(rows)) == outcome_hash(rows) == by_definition(rows, [])
    coded = table_of(rows)
    coded = coded.set_column(1, "metric", coded["metric"].dictionary_encode())
    assert outcome_of_tables(coded) == outcome_hash(rows)


@given(st.lists(st.builds(ItemScore, NAMES, NAMES, NAMES, NAMES, DOUBLES), max_size=30))
def test_the_outcome_of_items_is_the_same_too(items: list[ItemScore]) -> None:
    expected = by_definition(ROWS, items)
    assert outcome_of_tables(table_of(ROWS), table_of_items(items)) == outcome_hash(ROWS, items) == expected


def test_an_outcome_of_several_chunks_is_one() -> None:
    names = ("train/loss", "val/loss", "speed/eval_s", "z")
    rows = [Row(step, name, math.sin(7 * step + len(name)) / 10**step) for step in range(300) for name in names]
    items = [ItemScore("task", f"item {n}", "h", "harness/accuracy", n / 7) for n in range(100)]
    chunks = pa.concat_tables([table_of(rows[:500]), table_of(rows[500:])])
    assert outcome_of_tables(chunks, table_of_items(items)) == outcome_hash(rows, items)
    assert outcome_of_tables(table_of([])) == outcome_hash([])


def test_a_sealed_outcome_is_derived_again_from_metrics_and_items(tmp_path: Path) -> None:
    folder, sealed = sealed_with_items(tmp_path)
    assert folder.outcome_faults(sealed) == []
    nudged = [ITEMS[0], *(replace(one, value=0.25) for one in ITEMS[1:])]
    for path, data in (
        (folder.items_path, items_bytes(sealed, nudged)),
        (folder.sealed_path, parquet_bytes(sealed, [*ROWS[1:], replace(ROWS[0], value=math.nextafter(3.0, 4.0))])),
    ):
        before = path.read_bytes()
        path.write_bytes(data)
        (fault,) = folder.outcome_faults(sealed)
        assert f"run.json says {str(sealed.outcome_sha256)[:8]}" in fault
        path.write_bytes(before)
    assert "run.json says None" in folder.outcome_faults(sealed.model_copy(update={"outcome_sha256": None}))[0]
    folder.items_path.write_bytes(b"PAR1")
    assert folder.outcome_faults(sealed)[0] == f"{folder.items_path} is not a Parquet file"


def test_a_long_table_has_the_hash_of_its_rows() -> None:
    rows = [Row(n // 4, ("val/loss", "train/loss", "a", "b")[n % 4], math.sin(n)) for n in range(150_000)]
    assert outcome_of_tables(table_of(rows)) == outcome_hash(rows)


def test_a_run_json_that_is_not_one_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_record() is None
    folder.record_path.write_text('{"study": 1}')
    with pytest.raises(EvidenceError, match="is not a run record"):
        folder.read_record()
    folder.record_path.write_text(record().model_dump_json(exclude={"format"}))
    with pytest.raises(EvidenceError, match="is not a run record"):
        folder.read_record()
    folder.record_path.write_text(record().model_dump_json())
    assert folder.read_record() == record()


def test_no_rows_give_an_empty_table_with_its_columns() -> None:
    frame = metrics_frame([])
    assert list(frame.columns) == ["variant", "seed", "step", "metric", "value"] and frame.empty


def test_sealed_rows_of_many_runs_come_sorted_as_one_table_that_holds_each_name_once(tmp_path: Path) -> None:
    rng, runs, rows = random.Random(5), [], []  # noqa: S311
    for number, (variant, seed) in enumerate([("b", 10), ("a", 2), ("b", 9), ("a", 10)]):
        names = ("val/loss", "Z", "train/loss") if number else ("new", "val/loss")
        mine = [Row(step, metric, rng.random()) for step in range(40) for metric in names]
        if number == 3:
            rng.shuffle(mine)
        folder = RunFolder(tmp_path / str(number))
        folder.path.mkdir()
        curves = read_curves(folder, folder.seal(record(variant=variant, seed=seed, steps=40), mine))
        assert not isinstance(curves, str), curves
        runs.append(curves)
        rows += [(variant, seed, row.step, row.metric, row.value) for row in mine]
    frame = metrics_frame(runs)
    found = list(frame[list(METRIC_COLUMNS)].itertuples(index=False, name=None))
    assert found == sorted(rows, key=lambda row: (row[0], row[1], row[3], row[2]))
    # Ten million rows in less than a gigabyte: names are held once, and no row is held as an object.
    assert frame.memory_usage(deep=False).drop("Index").sum() / len(frame) < 30
    assert all(frame[name].dtype == "category" for name in ("variant", "metric"))


@pytest.mark.parametrize(
    "spoilt",
    [{"step": [None]}, {"value": ["high"]}, {"metric": [None]}, {"seed": [1.5]}, {"seed": [2]}, {"variant": ["b"]}],
    ids=str,
)
def test_a_sealed_table_of_other_types_or_runs_is_refused_by_name(tmp_path: Path, spoilt: dict[str, object]) -> None:
    sealed = record(variant="a", seed=1, steps=1)
    columns = {"variant": ["a"], "seed": [1], "step": [1], "metric": ["m"], "value": [0.5]} | spoilt
    pq.write_table(pa.table(columns), tmp_path / "metrics.parquet")
    fault = read_curves(RunFolder(tmp_path), sealed)
    assert isinstance(fault, str) and "metrics.parquet" in fault and "outcome" not in fault


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("coded", [False, True])
def test_lines_are_the_rows_of_each_run_in_order(seed: int, mixed: bool, coded: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        (arm, run, step, metric, float(rng.standard_normal()))
        for arm in ("b", "a")
        for run in (7, 3)
        for metric in ("n", "m")
        if rng.random() < 0.8
        for step in np.flatnonzero(rng.random(12) < 0.7).tolist()
    ]
    frame = pd.DataFrame(rows, columns=list(METRIC_COLUMNS))
    expected = {
        (metric, arm, run): (part["step"].tolist(), part["value"].tolist())
        for (metric, arm, run), part in frame.sort_values("step").groupby(["metric", "variant", "seed"])
    }
    if mixed:
        frame = frame.sample(frac=1.0, random_state=seed)
    if coded:
        frame = frame.astype({"variant": "category", "metric": "category"})
    evidence = Evidence(planned=(), runs=(), metrics=frame)
    found = {
        (metric, *cell): (steps.tolist(), values.tolist())
        for metric in ("n", "m", "absent")
        for cell, (steps, values) in evidence.lines(metric).items()
    }
    assert found == expected
    assert list(evidence.lines("m")) == sorted(evidence.lines("m"))
    curve = evidence.curve("m")
    again = {
        ("m", arm, run): (part["step"].tolist(), part["value"].tolist())
        for (arm, run), part in curve.groupby(["variant", "seed"])
    }
    assert again == {key: lines for key, lines in expected.items() if key[0] == "m"}


@pytest.mark.parametrize("column", ["variant", "metric"])
@pytest.mark.parametrize("coded", [False, True])
def test_a_row_without_its_texts_is_given_to_no_run(column: str, coded: bool) -> None:
    frame = pd.DataFrame([("a", 1, 1, "m", 0.5), ("b", 1, 1, "n", 0.7)], columns=list(METRIC_COLUMNS))
    frame.loc[0, column] = None
    if coded:
        frame = frame.astype({"variant": "category", "metric": "category"})
    with pytest.raises(AssertionError, match=f"a row without a {column}"):
        Evidence(planned=(), runs=(), metrics=frame).lines("n")


def test_a_final_value_is_that_of_the_last_step_of_a_finished_run_alone() -> None:
    ends = {1: ("done", 500), 2: ("done", 499), 3: ("diverged", 500), 4: ("done", 501)}
    runs = tuple(
        record().model_copy(update={"seed": seed, "status": status, "steps": steps})
        for seed, (status, steps) in ends.items()
    )
    rows = [("a", seed, step, "m", step + seed / 10) for seed in ends for step in range(501)]
    evidence = Evidence(planned=(), runs=runs, metrics=pd.DataFrame(rows, columns=list(METRIC_COLUMNS)))
    assert evidence.final("m") == {("a", 1): 500.1, ("a", 2): 499.2}
