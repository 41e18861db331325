"""The examples reach their verdicts; a run of the Hugging Face Trainer resumes to the same bits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from test_parts import end, start, starts, wait_for
from typer.testing import CliRunner

from ablate import api
from ablate.cli import app
from ablate.runner.claims import owners
from prereg.registry.ledger import Ledger

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


class Copied:
    """The examples, copied to where they may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.copytree(EXAMPLES, path, ignore=shutil.ignore_patterns("data", "reports", "__pycache__"))

    def study(self, name: str) -> Path:
        return self.path / "studies" / f"{name}.yaml"


@pytest.fixture
def examples(tmp_path: Path) -> Copied:
    return Copied(tmp_path / "examples")


def test_every_example_is_a_sound_study() -> None:
    studies = sorted(path.stem for path in (EXAMPLES / "studies").glob("*.yaml"))
    assert studies == ["huggingface_tiny", "sklearn_digits", "torch_digits", "walk"]
    for study in studies:
        assert CliRunner().invoke(app, ["check", str(EXAMPLES / "studies" / f"{study}.yaml")]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("walk", "the drift moves it"),
        pytest.param("sklearn_digits", "regularize less", marks=pytest.mark.slow),
        pytest.param("torch_digits", "use batch normalization", marks=pytest.mark.slow),
        pytest.param("huggingface_tiny", "use the higher rate", marks=pytest.mark.slow),
    ],
)
def test_an_example_reaches_its_verdict(examples: Copied, name: str, verdict: str) -> None:
    path = examples.study(name)
    if name == "sklearn_digits":
        tried = CliRunner().invoke(app, ["try", str(path)])
        assert tried.exit_code == 0 and "no problem found" in tried.output
    assert api.run(path).summary.complete
    assert api.decide(path).decision.verdict == verdict


@pytest.mark.slow
def test_a_killed_run_of_the_hugging_face_trainer_resumes_to_the_same_bits(tmp_path: Path) -> None:
    outcomes = []
    for interrupted in (False, True):
        copied = Copied(tmp_path / str(interrupted))
        path = copied.study("huggingface_tiny")
        if interrupted:
            process = start(path, "", "--only", "low/1")
            wait_for(lambda made=copied: any(made.path.glob("data/runs/*/*/low/1/work/resumable")), 60)
            time.sleep(0.3)
            (owner,) = owners(next(copied.path.glob("data/runs/*/????????"))).values()
            os.kill(owner.pid, signal.SIGKILL)
            end(process)
        assert end(start(path, "", "--only", "low/1"), 120)[0] == 0
        entries = Ledger(path.parent / "ledger.jsonl").entries()
        outcomes += [entry.body["outcome_sha256"] for entry in entries if entry.event == "sealed"]
        resumed = [entry.body["resumed_from"] for entry in entries if "resumed_from" in entry.body]
        assert bool(resumed) == interrupted and all(int(str(step)) >= 10 for step in resumed)
        assert sum(starts(copied).values()) == 1 + interrupted
    assert len(outcomes) == 2 and outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_the_examples_run_without_a_study(examples: Copied) -> None:
    import sys

    for script, word in (("sklearn_digits.py", "val/accuracy"), ("torch_digits.py", "")):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ABLATE_")}
        done = subprocess.run(
            [sys.executable, script], cwd=examples.path, env=environment, capture_output=True, text=True, check=True
        )
        assert word in done.stdout


def drawn(width: int, *, apart: bool) -> tuple[list[int], torch.Tensor]:
    """The order of ten items, and the first weights of a model of a width: by one generator, or each by its own."""
    for_data = torch.Generator().manual_seed(1)
    for_weights = torch.Generator().manual_seed(2) if apart else for_data
    weights = torch.empty(width, 8).normal_(generator=for_weights)
    return torch.randperm(10, generator=for_data).tolist(), weights


def test_the_recipe_for_pairs_keeps_the_order_of_the_data_when_the_width_changes() -> None:
    assert drawn(4, apart=True)[0] == drawn(16, apart=True)[0]
    assert drawn(4, apart=False)[0] != drawn(16, apart=False)[0]
