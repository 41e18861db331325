"""The trainer of examples/gate and its forty mutants: the harmless compute the same, and the bugs something else."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

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


@pytest.fixture(scope="module")
def demonstrate() -> ModuleType:
    """The script that runs the gate over all mutants."""
    spec = importlib.util.spec_from_file_location("demonstrate", FOLDER / "demonstrate.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["demonstrate"] = importlib.util.module_from_spec(spec)  # its dataclasses look it up there
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_demonstration_makes_the_same_commits_everywhere_one_on_each_branch(
    demonstrate: ModuleType, tmp_path: Path
) -> None:
    heads = []
    for name in ("one", "two"):
        demonstrate.make_repository(tmp_path / name)
        heads.append(git(tmp_path / name, "for-each-ref", "--format=%(refname:short) %(objectname)"))
    assert heads[0] == heads[1] and len(set(re.findall("[0-9a-f]{40}", heads[0]))) == 41
    for mutant in demonstrate.mutants():
        # The patch is all that a branch changes, and the text of a bug is no part of what is compared.
        changed = git(tmp_path / "one", "diff", "--name-only", f"main..{mutant.branch}").split()
        assert changed == ["train.py"]


def test_the_report_counts_alarms_and_their_intervals_and_what_one_run_would_have_said(demonstrate: ModuleType) -> None:
    def answer(kind: str, name: str, answer: str, exit_code: int, *moves: float) -> object:
        base = {seed: 1.0 + 0.1 * seed for seed in range(len(moves))}
        head = {seed: loss * (1 + move) for (seed, loss), move in zip(base.items(), moves, strict=True)}
        return demonstrate.Answer(kind, name, "small", "what", answer, exit_code, "", base, head, 30.0, 60.0)

    answers = [
        answer("bug", "01-a", "better", 0, -0.02, -0.004),
        answer("bug", "02-b", "worse", 9, 0.004, 0.02),
        answer("bug", "03-c", "undecided", 3, 0.0, 0.006),
        answer("bug", "04-d", "failed", 5),
        answer("harmless", "01-e", "equivalent", 0, 1e-6, -1e-6),
    ]
    about = {"machine": "m", "ablate": "a", "torch": "t", "python": "p", "command": "the command"}
    lines = demonstrate.page(answers, about).splitlines()
    # Wilson's interval of 3 in 4 is .301 to .954, of 0 in 1 to .793: z = 1.96 in Wilson (1927), by hand.
    assert "| ablate gate | 3 of 4 (30% to 95%) |  | 0 of 1 (0% to 79%) |  |" in lines
    assert any(line.startswith("| ablate gate, by its exit code alone | 2 of 4") for line in lines)
    # One run each of the first seed: a and the failed run. Over seeds: 1/2 of a, 1/2 of b, 0 of c.
    tolerance = next(line for line in lines if line.startswith("| 1% of the loss, one run each, same seed"))
    assert tolerance.endswith("| 2 of 4 (15% to 85%) | 33% | 0 of 1 (0% to 79%) | 0% |")
    higher = next(line for line in lines if line.startswith("| higher loss"))
    assert higher.endswith("| 2 of 4 (15% to 85%) | 50% | 1 of 1 (21% to 100%) | 50% |")
    assert "Cost: 16 runs, 5 minutes of one core, 2 minutes by the clock (m)." in lines
    assert "The rest: `the command`" in "\n".join(lines) and "neither passed nor an alarm: 03-c." in "\n".join(lines)
    assert "| 02-b | small | **worse** | +0.01300 | 0.01273 | 2 | 1 of 2 | 1 of 2 | 2 of 2 |" in lines


def test_the_report_is_that_of_its_results(demonstrate: ModuleType) -> None:
    reports = FOLDER.parents[1] / "reports" / "gate"
    answers, about = demonstrate.stored_answers(reports)
    assert demonstrate.page(answers, about) == (reports / "README.md").read_text(encoding="utf-8")
    assert {(answer.kind, answer.name) for answer in answers} <= {(m.kind, m.name) for m in demonstrate.mutants()}
