"""A mapping of columns: guessed by names, completed by hand, read strictly."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from own_trainer import OwnHouse
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from ablate.records.rows import TableLayout
from ablate.records.tables import read_mapping
from prereg.errors import EvidenceError, StudyError

CELLS = [(arm, seed) for seed in (1, 2, 3) for arm in ("slow", "fast")]


@pytest.fixture
def house(own_house: OwnHouse) -> OwnHouse:
    own_house.register()
    return own_house


def table(path: Path, header: list[str]) -> Path:
    """A wide table: arm, seed, step, two losses and a column of no use."""
    rows = [[arm, seed, step, 3.0, 1.0 + seed / 10, 7.5] for arm, seed in CELLS for step in (1, 4)]
    if path.suffix == ".csv":
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([header, *rows])
    elif path.suffix == ".parquet":
        pd.DataFrame(rows, columns=header).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_template_is_a_mapping_that_imports_its_table(house: OwnHouse, tmp_path: Path, suffix: str) -> None:
    source = table(tmp_path / f"all{suffix}", ["run_name", "Seed", "_step", "training_loss", "valid loss", "_runtime"])
    before = house.snapshot()
    words = ["import", str(house.study), str(source)]
    printed = CliRunner().invoke(app, [*words, "--template"], catch_exceptions=False).output
    assert house.snapshot() == before
    mapping = tmp_path / "map.yaml"
    mapping.write_text(printed)
    metrics = {"val/loss": "valid loss", "train/loss": "training_loss"}
    assert read_mapping(mapping) == TableLayout(arm="run_name", seed="Seed", step="_step", metrics=metrics)
    assert '"_runtime"' in printed
    words += ["--note", "x", "--exploratory", "--mapping", str(mapping)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0 and "6 runs imported" in done.output


def test_what_has_no_likely_column_is_left_empty_and_refused_until_completed(house: OwnHouse, tmp_path: Path) -> None:
    source = table(tmp_path / "all.csv", ["who", "seed", "t", "a", "b", "c"])
    mapping = tmp_path / "map.yaml"
    mapping.write_text(api.mapping_template(house.study, source))
    with pytest.raises(StudyError) as caught:
        read_mapping(mapping)
    assert caught.value.where.line == 1 and caught.value.where.field == ("arm",)
    text = mapping.read_text().replace('arm: ""', "arm: who").replace('step: ""', "at_step: 4")
    mapping.write_text(text.replace('val/loss: ""', "val/loss: b"))
    assert read_mapping(mapping) == TableLayout(arm="who", seed="seed", at_step=4, metrics={"val/loss": "b"})


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("arm: a\nseed: b\nmetrics: {val/loss: }\n", "without a name"),
        ("arm: a\nseed: b\nmetrics: []\n", "metrics"),
        ("arm: a\nsede: b\nmetrics: {val/loss: c}\n", "sede"),
        ("arm: a\narm: b\n", "arm"),
        ("arm: a\nseed: b\nat_step: -1\nmetrics: {val/loss: c}\n", "at_step"),
        ("- a\n", "map.yaml"),
    ],
)
def test_a_faulty_mapping_is_one_message(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(StudyError, match=match):
        read_mapping(tmp_path / "map.yaml")


@pytest.mark.slow
def test_a_table_without_need_or_without_columns_is_refused(house: OwnHouse, tmp_path: Path) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"variant": "slow", "seed": 1, "step": 1, "metric": "val/loss", "value": 1.0}) + "\n")
    with pytest.raises(EvidenceError, match="long rows already"):
        api.mapping_template(house.study, long)
    for name, data in (
        ("a.jsonl", b""),
        ("a.parquet", b"PAR1"),
        ("a.csv", b"a,a\n"),
        ("b.csv", b""),
        ("b.jsonl", b"[1]\n"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(EvidenceError, match="no columns"):
            api.mapping_template(house.study, tmp_path / name)
    words = ["import", str(house.study), str(long), "--mapping", "m.yaml", "--step-column", "t"]
    with pytest.raises(EvidenceError, match="--mapping and an option"):
        CliRunner().invoke(app, words, catch_exceptions=False)
