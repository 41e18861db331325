"""The trainer of examples/gate and its forty mutants: the harmless compute the same, and the bugs something else."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "gate"
PATCHES = sorted((FOLDER / "mutants").glob("*/*.patch"))
HEAD = re.compile(r"(harmless|bug, expected (large|small|invisible)): .+\.\n\n--- a/train\.py\n")
SHORT = {"sentences": 60, "validation": 300, "epochs": 2, "warmup": 2}
"""Six steps in two epochs, through warmup and cosine, and an evaluation in two uneven batches."""
SAME = 1e-4
"""Losses in nats this close are the same: rounding moved the last digits of float32, and some steps followed."""


@dataclass(frozen=True)
class Run:
    """What a run leaves: (step, metric) -> value, and the hashes that it states."""

    values: dict[tuple[int, str], float]
    stated: dict[str, str]

    def distance(self, other: Run) -> float:
        """The largest difference over what both record."""
        assert self.values.keys() == other.values.keys()
        return max(abs(value - other.values[place]) for place, value in self.values.items())


def run(script: Path, folder: Path) -> Run:
    """Train a script in this process, for six steps."""
    with pytest.MonkeyPatch.context() as patch:
        (folder / "config.json").write_text(json.dumps(SHORT))
        patch.setenv("ABLATE_CONFIG", str(folder / "config.json"))
        patch.setenv("ABLATE_SEED", "3")
        patch.setenv("ABLATE_RUN_DIR", str(folder))
        patch.setenv("ABLATE_METRICS", str(folder / "metrics.jsonl"))
        runpy.run_path(str(script), run_name="__main__")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values = {(row["step"], name): row[name] for row in rows for name in row if name != "step"}
    return Run(values, json.loads((folder / "must_match.json").read_text()))


@cache
def base() -> Run:
    with TemporaryDirectory() as folder:
        return run(FOLDER / "train.py", Path(folder))


def mutant(patch: Path, folder: Path) -> Run:
    (folder / "train.py").write_text((FOLDER / "train.py").read_text())
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)
    return run(folder / "train.py", folder)


def of_kind(kind: str) -> list[Path]:
    return [patch for patch in PATCHES if patch.parent.name == kind]


def named(patch: Path) -> str:
    return patch.stem


def test_the_trainer_is_short_and_there_are_twenty_patches_of_each_kind_that_say_what_they_do() -> None:
    lines = (FOLDER / "train.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 150
    assert len(of_kind("harmless")) == len(of_kind("bugs")) == 20
    for patch in PATCHES:
        head = HEAD.match(patch.read_text())
        assert head and head[1].startswith("bug") == (patch.parent.name == "bugs"), patch.name


def test_a_seed_fixes_the_run_and_the_loss_falls(tmp_path: Path) -> None:
    assert run(FOLDER / "train.py", tmp_path).distance(base()) == 0
    assert base().values[6, "val/loss"] < base().values[3, "val/loss"] < 3
    assert {"order of epoch 1", "order of epoch 2", "initial tokens.weight"} <= base().stated.keys()


@pytest.mark.slow
@pytest.mark.parametrize("patch", of_kind("harmless"), ids=named)
def test_a_harmless_mutant_computes_the_same(patch: Path, tmp_path: Path) -> None:
    made = mutant(patch, tmp_path)
    assert made.distance(base()) < SAME
    assert all(made.stated[name] == base().stated[name] for name in made.stated.keys() & base().stated.keys())


@pytest.mark.slow
@pytest.mark.parametrize("patch", of_kind("bugs"), ids=named)
def test_a_bug_computes_something_else_unless_it_says_that_no_loss_shows_it(patch: Path, tmp_path: Path) -> None:
    made = mutant(patch, tmp_path)
    assert made.distance(base()) > SAME or "expected invisible" in patch.read_text()
