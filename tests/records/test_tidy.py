"""Metrics that others wrote: every fault is found and named by its line, and nothing is repaired."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.records.rows import Row, divergence_of, read_rows
from prereg.errors import EvidenceError
from prereg.study.command import MetricsFile

GOOD = '{"step": 1, "metric": "val/loss", "value": 2.5}\n'


def read(tmp_path: Path, text: str | bytes, *, torn: bool = False) -> list[Row]:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_rows(path, torn=torn)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"step": 2, "metric": "val/loss", "value": NaN}', "val/loss is nan, which is not finite"),
        ('{"step": 2, "metric": "val/loss", "value": -Infinity}', "is -inf"),
        ('{"step": 2, "metric": "val/loss", "value": 1e999}', "is inf"),
        ('{"step": 2, "metric": "val/loss", "value": 1' + "0" * 400 + "}", "is inf"),
        ('{"step": 2, "metric": "val/loss", "value": "2.5"}', 'value "2.5", which is not a number'),
        ('{"step": 2, "metric": "val/loss", "value": true}', "value true"),
        ('{"step": 2, "metric": "val/loss", "value": null}', "value null"),
        ('{"step": 2.0, "metric": "val/loss", "value": 1}', "step 2.0, which is not a whole number"),
        ('{"step": true, "metric": "val/loss", "value": 1}', "step true"),
        ('{"step": -1, "metric": "val/loss", "value": 1}', "step -1"),
        ('{"step": 9007199254740992, "metric": "val/loss", "value": 1}', "from 0 to 2^53"),
        ('{"step": 2, "metric": "", "value": 1}', 'metric ""'),
        ('{"step": 2, "metric": "val loss", "value": 1}', "which is not a name"),
        ('{"step": 2, "metric": "a\\u001b[31m", "value": 1}', "which is not a name"),
        ('{"step": 2, "metric": 3, "value": 1}', "metric 3"),
        ('{"step": 2, "metric": "val/loss"}', "no 'value'"),
        ('{"step": 2, "metric": "val/loss", "value": 1, "time": 3}', '"time", which is none of step, metric, value'),
        ('{"step": 2, "step": 3, "metric": "val/loss", "value": 1}', "a key that is given twice"),
        ('{"step": 1, "metric": "val/loss", "value": 1}', "val/loss at step 1 is already on line 1"),
        ("[1, 2]", "not a JSON object"),
        ("loss 2.5", "not JSON"),
        ("", "an empty line"),
        ("[" * 3000, "not JSON"),
        ('{"step": 1' + "0" * 5000 + "}", "a line of"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, line: str, found: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        read(tmp_path, GOOD + line + "\n")
    assert caught.value.found.startswith("line 2: ")
    assert found in caught.value.found
    assert caught.value.where.line == 2


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="line 1: text that is not UTF-8"):
        read(tmp_path, b"\xff\n")


def test_a_last_line_without_an_end_counts_unless_its_writer_was_killed(tmp_path: Path) -> None:
    half = GOOD + '{"step": 2, "metric": "val/loss", "value": 2.25'
    assert read(tmp_path, half, torn=True) == [Row(1, "val/loss", 2.5)]
    with pytest.raises(EvidenceError, match="line 2: not JSON"):
        read(tmp_path, half)
    assert len(read(tmp_path, half + "}")) == 2
    assert read(tmp_path, "", torn=True) == []


def test_what_is_not_a_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(EvidenceError, match="is not a file"):
        read_rows(tmp_path / "metrics.jsonl")
    with pytest.raises(EvidenceError, match="is not there"):
        read_rows(tmp_path / "gone.jsonl")


@pytest.mark.slow
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 10**6), st.from_regex(r"[a-z]{1,5}/[a-z]{1,5}", fullmatch=True)),
        st.floats(allow_nan=False, allow_infinity=False),
        max_size=20,
    )
)
def test_what_is_written_well_is_read_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, values: dict[tuple[int, str], float]
) -> None:
    rows = [Row(step, metric, value) for (step, metric), value in values.items()]
    text = "".join(json.dumps({"step": r.step, "metric": r.metric, "value": r.value}) + "\n" for r in rows)
    assert read(tmp_path_factory.getbasetemp(), text) == rows


def curve(*losses: float) -> list[Row]:
    return [Row(step, "train/loss", loss) for step, loss in enumerate(losses, start=1)]


def diverged_at(rows: list[Row], above: float | None) -> int | None:
    divergence = divergence_of(rows, above)
    return None if divergence is None else divergence.step


def test_without_a_multiple_only_a_loss_that_is_not_finite_has_diverged() -> None:
    assert divergence_of(curve(0.0073, 0.05, 9.0), None) is None
    found = divergence_of(curve(3.0, 99.0, math.inf, 1.0), None)
    assert found is not None and (found.step, found.value, found.limit) == (3, None, None)


def test_a_divergence_names_value_step_and_limit() -> None:
    found = divergence_of(curve(3.0, 2.0, 6.5), 2.0)
    assert found is not None and (found.metric, found.step, found.value) == ("train/loss", 3, 6.5)
    assert (found.first, found.limit) == (3.0, 6.0)
    found = divergence_of(curve(3.0, math.nan), 2.0)
    assert found is not None and (found.step, found.value, found.limit) == (2, None, 6.0)


def test_the_registered_rule_of_divergence_reads_the_training_loss_alone() -> None:
    assert diverged_at(curve(3.0, 2.0, 5.9), 2.0) is None
    assert diverged_at(curve(3.0, 2.0, 6.1, 1.0), 2.0) == 3
    assert diverged_at(curve(3.0, math.nan, 99.0), 2.0) == 2
    assert diverged_at(curve(math.inf), 2.0) == 1
    assert diverged_at([Row(1, "val/loss", 1.0), Row(2, "val/loss", 9.0)], 2.0) is None
    assert diverged_at(list(reversed(curve(3.0, 2.0, 6.1))), 2.0) == 3


def test_multiples_of_a_loss_that_is_not_positive_mean_nothing() -> None:
    assert diverged_at(curve(-3.0, -1.0, 0.0), 2.0) is None
    assert diverged_at(curve(-3.0, math.nan), 2.0) == 2


LOG = MetricsFile(file="log.csv", step="iter", columns={"val/loss": "valid_loss", "train/loss": "loss"})


def test_wide_rows_and_long_ones_may_lie_in_one_file(tmp_path: Path) -> None:
    text = GOOD + '{"step": 2, "train/loss": 1.5, "val/loss": null, "lr": 0}\n'
    assert read(tmp_path, text) == [Row(1, "val/loss", 2.5), Row(2, "train/loss", 1.5), Row(2, "lr", 0.0)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"step": 2, "val/loss": "2.5"}', "'val/loss': value \"2.5\", which is not a number"),
        ('{"step": 2, "val/loss": NaN}', "val/loss is nan, which is not finite"),
        ('{"step": 1, "val/loss": 1}', "val/loss at step 1 is already on line 1"),
        ('{"epoch": 2, "val/loss": 1}', "no 'step'"),
        ('{"step": 2, "val loss": 1}', "which is not a name"),
    ],
)
def test_a_faulty_wide_row_is_named(tmp_path: Path, line: str, found: str) -> None:
    with pytest.raises(EvidenceError) as caught:
        read(tmp_path, GOOD + line + "\n")
    assert found in caught.value.found and caught.value.where.line == 2


def test_a_csv_log_is_read_by_its_declared_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("iter,loss,valid_loss,note\n0,3.5,,begin\n10,2.0,2.5,\n20.0,nan,2.25,\n")
    rows = read_rows(path, LOG)
    assert [(row.step, row.metric) for row in rows] == [
        (0, "train/loss"),
        (10, "val/loss"),
        (10, "train/loss"),
        (20, "val/loss"),
        (20, "train/loss"),
    ]
    assert [row.value for row in rows][:4] == [3.5, 2.5, 2.0, 2.25] and math.isnan(rows[-1].value)
    path.write_text("iter,loss,valid_loss,note\n0,3.5,,begin\n10,2.0,2.")
    assert [row.step for row in read_rows(path, LOG, torn=True)] == [0]


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("step,loss,valid_loss\n1,2,3\n", 1, "no column 'iter'; there are step, loss, valid_loss"),
        ("iter,loss\n1,2\n", 1, "no column 'valid_loss'"),
        ("iter,loss,valid_loss\n1,2\n", 2, "2 fields under 3 columns"),
        ("iter,loss,valid_loss\n1,2,3\n1.5,2,3\n", 3, "step 1.5"),
        ("iter,loss,valid_loss\n1,2,abc\n", 2, "'valid_loss': value \"abc\""),
        ("iter,loss,valid_loss\n1,2,3\n1,2,4\n", 3, "val/loss at step 1 is already on line 2"),
        ("iter,iter,valid_loss\n", 1, "a column twice"),
        (b"iter,loss,valid_loss\n\xff,2,3\n", None, "not UTF-8"),
    ],
)
def test_a_faulty_csv_log_is_named(tmp_path: Path, text: str | bytes, line: int | None, found: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(EvidenceError) as caught:
        read_rows(path, LOG)
    assert found in caught.value.found
    assert line is None or caught.value.where.line == line
