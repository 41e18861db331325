"""`ablate judge FILE CLAIM`: from a table to the paired test, whoever wrote the table; exploratory, and labelled so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import ablate
from ablate.frame import LABEL
from prereg.errors import EvidenceError, StudyError

ACC = {"small": (0.80, 0.82, 0.79, 0.81), "wide": (0.84, 0.85, 0.82, 0.86)}
CLAIM = "wide raises acc by at least 0.01"


def wide_rows() -> pd.DataFrame:
    rows = [
        {"model": arm, "random_seed": seed, "epoch": epoch, "acc": value - 0.1 * (2 - epoch)}
        for arm, values in ACC.items()
        for seed, value in enumerate(values, start=1)
        for epoch in (1, 2)
    ]
    return pd.DataFrame(rows)


def panel(name: str = "{arm}-{seed}") -> str:
    """What W&B's panel export looks like: a column of steps, and three columns a run, quoted, blank where none is."""
    runs = [(arm, seed, value) for arm, values in ACC.items() for seed, value in enumerate(values, start=1)]
    names = [name.format(arm=arm, seed=seed) for arm, seed, _ in runs]
    header = ["Step", *(f"{run} - acc{end}" for run in names for end in ("", "__MIN", "__MAX"))]
    lines = [",".join(f'"{cell}"' for cell in header)]
    for step in (10, 20):
        cells = [str(step)]
        for _, _, value in runs:
            shown = value if step == 20 else value - 0.1
            cells += [str(shown)] * 3
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join(lines) + "\n"


def require_the_paired_test(found: ablate.frame.JudgedFrame) -> None:
    row = found.table.iloc[0]
    shifted = np.subtract(ACC["wide"], ACC["small"]) - 0.01
    assert row["p"] == pytest.approx(stats.ttest_1samp(shifted, 0, alternative="greater").pvalue, rel=1e-9)
    assert (row["n"], row["outcome"]) == (4, "supported") and str(found).startswith(LABEL)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_are_guessed_by_the_names_that_people_give_them(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"results.{kind}"
    if kind == "csv":
        wide_rows().to_csv(path, index=False)
    elif kind == "jsonl":
        wide_rows().to_json(path, orient="records", lines=True)
    else:
        wide_rows().to_parquet(path)
    require_the_paired_test(ablate.judge_frame(path, CLAIM))


@pytest.mark.slow
def test_long_rows_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    long = wide_rows().melt(["model", "random_seed", "epoch"], var_name="metric", value_name="value")
    long.to_csv(path, index=False)
    require_the_paired_test(ablate.judge_frame(path, CLAIM))
    pd.concat([long, long.head(1)]).to_csv(path, index=False)
    with pytest.raises(EvidenceError, match="line 18: acc of small seed 1 at step 1 is already on line 2"):
        ablate.judge_frame(path, CLAIM)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("{arm}-{seed}", None), ("{arm}_seed{seed}", None), ("x1 {seed} {arm}", "x1 {seed} {variant}")],
)
def test_a_panel_of_wandb_is_read_without_the_borders_of_its_bands(
    tmp_path: Path, name: str, pattern: str | None
) -> None:
    path = tmp_path / "wandb_export.csv"
    path.write_text(panel(name), encoding="utf-8")
    require_the_paired_test(ablate.judge_frame(path, CLAIM, run_pattern=pattern))


def test_a_panel_of_means_is_no_table_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "wandb_export.csv"
    path.write_text(
        panel("Group: {arm}-{seed}").replace('"0.84","0.84","0.84"', '"0.84","0.8","0.88"'), encoding="utf-8"
    )
    with pytest.raises(EvidenceError, match=r"is a mean of several points or runs, from 0\.8 to 0\.88"):
        ablate.judge_frame(path, CLAIM)


def test_a_run_that_has_no_value_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    rows = wide_rows()
    lost = (rows["model"] == "wide") & (rows["random_seed"] == 2)
    rows.assign(acc=rows["acc"].where(~lost)).to_csv(path, index=False)
    with pytest.raises(EvidenceError, match="wide, seed 2, has no finite acc"):
        ablate.judge_frame(path, CLAIM)


@pytest.mark.slow
def test_what_cannot_be_guessed_is_asked_for_by_name(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    wide_rows().rename(columns={"model": "which"}).to_csv(path, index=False)
    with pytest.raises(EvidenceError, match="no column of the table is known to hold the arm") as refused:
        ablate.judge_frame(path, CLAIM)
    assert refused.value.fix == "--arm-column, one of which, random_seed, epoch, acc"
    require_the_paired_test(ablate.judge_frame(path, CLAIM, arm="which"))
    path.write_text(panel("run{seed}{arm}"), encoding="utf-8")
    with pytest.raises(EvidenceError, match="does not say its arm and seed") as refused:
        ablate.judge_frame(path, CLAIM)
    assert "--run-pattern" in str(refused.value.fix)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"\x00\x01", b"a,b\n1\n"])
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes) -> None:
    for kind in ("csv", "jsonl", "parquet", "txt"):
        path = tmp_path / f"odd.{kind}"
        path.write_bytes(content)
        with pytest.raises(StudyError):
            ablate.judge_frame(path, CLAIM)
