"""The plain PyTorch script of examples/: four lines of it are for ablate, and they make its runs pairs."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablate.cli import app

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "plain_torch"
SCRIPT = (FOLDER / "train.py").read_text(encoding="utf-8")


def changed_lines(sign: str) -> list[str]:
    """The lines of the README's diff that begin with a sign, without it."""
    diff = (FOLDER / "README.md").read_text(encoding="utf-8").partition("```diff\n")[2].partition("```")[0]
    return [line[1:] for line in diff.splitlines() if line.startswith(sign)]


def stated(script: Path, dropout: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Name -> sha256 of what a run of two epochs says that its pair must share."""
    folder.mkdir()
    monkeypatch.setenv("ABLATE_RUN_DIR", str(folder))
    words = ["--epochs=2", f"--dropout={dropout}", "--seed=3", f"--out={folder}/metrics.csv"]
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    runpy.run_path(str(script), run_name="__main__")
    assert len((folder / "metrics.csv").read_text().splitlines()) == 3
    found: dict[str, str] = json.loads((folder / "must_match.json").read_text())
    return found


def test_the_readme_names_the_four_lines_and_without_them_the_script_is_the_users_own(tmp_path: Path) -> None:
    added, before = changed_lines("+"), changed_lines("-")
    assert len(added) == 4 and len(before) == 1
    assert all(f"{line}\n" in SCRIPT for line in added)
    plain = SCRIPT
    for line in added:
        plain = plain.replace(f"{line}\n", f"{before[0]}\n" if line.startswith("train = ") else "")
    assert not re.search("ablate|must_match|for_data", plain)
    compile(plain, "train.py", "exec")


@pytest.mark.parametrize("study", ["dropout", "dropout_ddp"])
def test_its_studies_pass_check(study: str) -> None:
    checked = CliRunner().invoke(app, ["check", str(FOLDER / "studies" / f"{study}.yaml")])
    assert checked.exit_code == 0, checked.output


@pytest.mark.slow
def test_dropout_moves_the_batches_of_the_second_epoch_unless_the_data_have_a_generator_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched = [stated(FOLDER / "train.py", dropout, tmp_path / f"{dropout}", monkeypatch) for dropout in (0.0, 0.5)]
    assert matched[0] == matched[1] and set(matched[0]) == {"last batch of epoch 1", "last batch of epoch 2"}
    shared = tmp_path / "shared.py"
    shared.write_text(SCRIPT.replace(", generator=for_data", ""))
    first, second = (stated(shared, dropout, tmp_path / f"shared{dropout}", monkeypatch) for dropout in (0.0, 0.5))
    assert first["last batch of epoch 1"] == second["last batch of epoch 1"]
    assert first["last batch of epoch 2"] != second["last batch of epoch 2"]
