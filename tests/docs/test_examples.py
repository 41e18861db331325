"""The examples reach their verdicts; a run of the Hugging Face Trainer resumes to the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest
import torch
from launchers import command, end, starts, wait_for
from quiet import QUIET
from typer.testing import CliRunner

import ablate as api
from ablate.cli import app
from prereg.registry.ledger import Ledger

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


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


@pytest.mark.slow
def test_the_example_of_commits_compares_two_of_them(tmp_path: Path) -> None:
    subprocess.run(["sh", str(EXAMPLES / "commits" / "make.sh"), str(tmp_path / "wider")], check=True)
    path = tmp_path / "wider" / "studies" / "wider.yaml"
    api.run(path, api.RunOptions(slots=2), workspace=api.Workspace(console=QUIET))
    assert api.decide(path).decision.verdict == "keep the wider model"
    report = (tmp_path / "wider" / "reports" / "wider" / "report.md").read_text(encoding="utf-8")
    assert "| after | 1 of 2 files the same | 0 of 6 | 6 of 6 |" in report


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("walk", "the drift moves it"),
        pytest.param("sklearn_digits", "regularize less", marks=pytest.mark.long),
        pytest.param("torch_digits", "use batch normalization", marks=pytest.mark.long),
        pytest.param("huggingface_tiny", "use the higher rate", marks=pytest.mark.long),
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
            process = command("run", str(path), "--only", "low/1")
            wait_for(lambda made=copied: any(made.path.glob("data/runs/*/*/low/1/work/resumable")), 60)
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGKILL)
            end(process)
        assert end(command("run", str(path), "--only", "low/1"), 120)[0] == 0
        entries = Ledger(path.parent / "ledger.jsonl").entries()
        outcomes += [entry.outcome_sha256 for entry in entries if entry.event == "sealed"]
        resumed = [step for entry in entries if (step := getattr(entry, "resumed_from", None)) is not None]
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
    """The order of the data, and the weights of a model of a width: as the documents print it, or by one generator."""
    text = (EXAMPLES.parent / "docs" / "own-trainer.md").read_text()
    snippet = text.partition("Weights too can have their own:\n\n")[2].partition("```python\n")[2].partition("```")[0]
    if not apart:
        snippet = snippet.replace(
            "for_data = torch.Generator().manual_seed(seed() + 1_000_000)", "for_data = for_weights"
        )
        lines = textwrap.dedent(snippet).splitlines()
        snippet = "\n".join(
            [*(line for line in lines if "loader" not in line), *(line for line in lines if "loader" in line)]
        )
    model = torch.nn.Linear(8, width)
    names = {"torch": torch, "DataLoader": torch.utils.data.DataLoader, "data": list(range(10)), "model": model}
    exec(textwrap.dedent(snippet), {**names, "seed": lambda: 3}, found := {**names, "seed": lambda: 3})  # noqa: S102
    return torch.cat(list(found["loader"])).tolist(), model.weight.detach()


def test_the_recipe_for_pairs_keeps_the_order_of_the_data_when_the_width_changes() -> None:
    torch.manual_seed(0)
    narrow, weights = drawn(4, apart=True)
    wide, _ = drawn(16, apart=True)
    assert narrow == wide and sorted(narrow) == list(range(10)) and 0.01 < float(weights.std()) < 0.03
    assert torch.equal(drawn(4, apart=True)[1], weights)
    assert drawn(4, apart=False)[0] != drawn(16, apart=False)[0]


@pytest.mark.slow
def test_the_callback_refuses_hidden_losses_and_resumes_from_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from ablate.huggingface import AblateCallback, last_checkpoint

    callback, state = AblateCallback(), SimpleNamespace(global_step=0, is_world_process_zero=True)
    hiding, showing = (SimpleNamespace(logging_nan_inf_filter=hidden) for hidden in (True, False))
    callback.on_train_begin(hiding, state, None)  # without a study
    callback.on_log(hiding, state, None, {"loss": 1.0})
    monkeypatch.setenv("ABLATE_METRICS", str(tmp_path / "metrics.jsonl"))
    monkeypatch.setenv("ABLATE_RUN_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="logging_nan_inf_filter=False"):
        callback.on_train_begin(hiding, state, None)
    callback.on_train_begin(showing, state, None)
    for step in (1, 2):
        state.global_step = step
        callback.on_log(showing, state, None, {"loss": float("nan") if step == 2 else 1.0, "learning_rate": 0.1})
        callback.on_log(showing, state, None, {"eval_loss": 1.5, "eval_runtime": 9.0})
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert rows == [
        '{"step": 1, "train/loss": 1.0}', '{"step": 1, "val/loss": 1.5}',
        '{"step": 2, "train/loss": NaN}', '{"step": 2, "val/loss": 1.5}',
    ]  # fmt: skip
    again = AblateCallback()
    again.on_train_begin(showing, state, None)  # resumed at step 2, with an evaluation at its start
    again.on_log(showing, state, None, {"eval_loss": 1.5})
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == rows
    for name, whole in (("checkpoint-9", True), ("checkpoint-10", True), ("checkpoint-11", False)):
        (tmp_path / "out" / name).mkdir(parents=True)
        if whole:
            (tmp_path / "out" / name / "trainer_state.json").write_text('{"global_step": 10, "max_steps": 12}')
    assert last_checkpoint(tmp_path / "out") is None  # a first attempt
    monkeypatch.setenv("ABLATE_ATTEMPT", "2")
    assert last_checkpoint(tmp_path / "out") == str(tmp_path / "out" / "checkpoint-10")
    assert last_checkpoint(tmp_path / "none") is None


@pytest.mark.slow
def test_a_run_that_took_its_last_step_is_not_resumed_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last_checkpoint = pytest.importorskip("ablate.huggingface").last_checkpoint

    def save(step: int, text: str | None = None) -> None:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        whole = json.dumps({"global_step": step, "max_steps": 40})
        (folder / "trainer_state.json").write_text(whole if text is None else text)

    save(40)
    monkeypatch.setenv("ABLATE_ATTEMPT", "2")
    assert last_checkpoint(tmp_path) is None  # it starts over
    save(20)
    save(30, '{"global_step": 30, "max_st')
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-20")
    monkeypatch.setenv("ABLATE_ATTEMPT", "1")
    assert last_checkpoint(tmp_path) is None
