"""The metrics of a run of the built-in trainer while it lives: what was written comes back, or is named as changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.gpt.checkpoints import LiveRows
from ablate.records.rows import Row
from prereg.registry.canon import sha256_bytes, sha256_file

ROWS = [
    Row(0, "val/loss", 3.0),
    Row(1, "train/loss", 0.1 + 0.2),
    Row(2, "val/loss", 1e-300),
    Row(2, "speed/eval_s", 9.0),
]


def test_live_rows_come_back_to_the_last_bit(tmp_path: Path) -> None:
    live = LiveRows(tmp_path / "metrics.jsonl")
    live.append(ROWS[:2])
    live.append(ROWS[2:], durable=True)
    assert live.curve("val/loss") == [(0, 3.0), (2, 1e-300)] and live.curve("train/loss") == [(1, 0.1 + 0.2)]


def test_cutting_back_forgets_what_will_be_repeated(tmp_path: Path) -> None:
    live = LiveRows(tmp_path / "metrics.jsonl")
    live.append(ROWS[:2])
    first = live.n_bytes, live.sha256
    assert first == (live.path.stat().st_size, sha256_file(live.path))
    live.append(ROWS[2:], durable=True)
    whole = live.n_bytes, live.sha256
    assert whole == (live.path.stat().st_size, sha256_file(live.path))
    again = LiveRows(live.path)
    assert again.fault(*first) is None and again.fault(*whole) is None
    again.cut_back(first[0])
    assert (again.n_bytes, again.sha256) == first and again.curve("val/loss") == [(0, 3.0)]
    assert again.fault(*whole) == f"metrics.jsonl has {first[0]} of the {whole[0]} bytes that were written"
    again.append(ROWS[2:])
    assert (again.n_bytes, again.sha256) == whole
    again.clear()
    assert (again.n_bytes, again.sha256) == (0, sha256_bytes(b"")) and not live.path.exists()


def test_a_value_that_is_not_finite_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        LiveRows(tmp_path / "metrics.jsonl").append([Row(1, "a", float("nan"))])
