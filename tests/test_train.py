"""Training: repeatable to the bit, resumable to the bit, and honest about divergence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ablate.gpt.batches import Split
from ablate.gpt.schedule import build_optimizer, learning_rate
from ablate.gpt.train import Step, Trainer
from prereg.errors import EvidenceError
from prereg.training import Optim, Training

torch.set_num_threads(1)


def trainer(**optim: Any) -> Trainer:
    model: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "context": 8}
    model["dropout"] = optim.pop("dropout", 0.0)
    dtype = optim.pop("dtype", "float32")
    config = Training.model_validate_json(
        json.dumps(
            {
                "model": model,
                "budget": {"steps": 20, "batch": 4},
                "optim": {"lr": 1e-2, **optim},
                "numerics": {"dtype": dtype},
            }
        )
    )
    tokens = np.random.default_rng(0).integers(0, 7, 2000)
    return Trainer(config, Split.of(tokens, 0.1, 8), 7)


def train(run: Trainer, steps: int) -> list[Step]:
    return [run.step() for _ in range(steps)]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(dropout: float) -> None:
    run = trainer(dropout=dropout)
    run.begin(1)
    first, weights = train(run, 8), run.weights()
    run.begin(1)
    assert train(run, 8) == first
    assert run.weights() == weights
    run.begin(2)
    assert train(run, 8) != first


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_run_is_the_uninterrupted_run_to_the_last_bit(tmp_path: Path, dropout: float, dtype: str) -> None:
    whole = trainer(dropout=dropout, schedule="cosine", warmup=3, dtype=dtype)
    whole.begin(1)
    train(whole, 5)
    (tmp_path / "c.safetensors").write_bytes(whole.checkpoint())
    rest = train(whole, 9)
    other = trainer(dropout=dropout, schedule="cosine", warmup=3, dtype=dtype)
    other.begin(1)
    other.restore(tmp_path / "c.safetensors")
    assert train(other, 9) == rest
    assert other.weights() == whole.weights()
    assert other.progress == whole.progress


def test_a_damaged_checkpoint_is_refused_with_what_to_do(tmp_path: Path) -> None:
    run = trainer()
    run.begin(1)
    path = tmp_path / "c.safetensors"
    path.write_bytes(run.checkpoint()[:-10])
    with pytest.raises(EvidenceError, match="cannot be read"):
        run.restore(path)


def test_training_learns_and_counts_what_it_consumed() -> None:
    run = trainer()
    tokens = np.tile(np.arange(7), 300)
    run.split = Split.of(tokens, 0.1, 8)
    run.begin(1)
    steps = train(run, 20)
    assert steps[-1].loss < 0.5 * steps[0].loss
    assert run.progress.tokens == 20 * 4 * 8 == run.config.tokens


def test_clipping_bounds_the_step_and_records_the_norm_before_it() -> None:
    loose, tight = trainer(clip=0.0, name="adamw"), trainer(clip=1e-3)
    loose.begin(1)
    tight.begin(1)
    assert loose.step().grad_norm == tight.step().grad_norm > 1e-3


def test_divergence_is_not_finite_or_far_above_the_first_loss() -> None:
    run = trainer()
    run.begin(1)
    first = run.step()
    assert not run.diverged(first, 2.0)
    assert run.diverged(Step(2, math.nan, 1.0), 2.0)
    assert run.diverged(Step(2, 1.0, math.inf), 2.0)
    assert run.diverged(Step(2, first.loss * 2.01, 1.0), 2.0)
    assert not run.diverged(Step(2, first.loss * 1.99, 1.0), 2.0)


def test_decay_falls_on_matrices_only() -> None:
    run = trainer()
    groups = build_optimizer(run.model, Optim(weight_decay=0.1)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.dim() >= 2 for p in groups[0]["params"])
    assert all(p.dim() < 2 for p in groups[1]["params"])
    assert sum(len(group["params"]) for group in groups) == len(list(run.model.parameters()))


def test_one_adamw_step_is_that_of_the_formula() -> None:
    # Loshchilov and Hutter 2019, algorithm 2, after one step from zero moments: the step is lr * sign-like g/(|g|+eps).
    run = trainer(weight_decay=0.1, clip=0.0)
    run.begin(1)
    before = {n: p.detach().double().clone() for n, p in run.model.named_parameters()}
    inputs, targets, _ = run.batches.at(1)
    run.model.loss(inputs, targets).backward()
    grads = {n: p.grad.double().clone() for n, p in run.model.named_parameters() if p.grad is not None}
    run.model.zero_grad()
    run.step()
    for name, after in run.model.named_parameters():
        decay = 0.1 if after.dim() >= 2 else 0.0
        expected = before[name] * (1 - 1e-2 * decay) - 1e-2 * grads[name] / (grads[name].abs() + 1e-8)
        assert torch.allclose(after.detach().double(), expected, atol=2e-6), name


def test_schedules_rise_hold_and_fall_as_named() -> None:
    warm = Optim(lr=1.0, warmup=10, schedule="constant")
    assert [learning_rate(warm, s, 100) for s in (1, 5, 10, 11, 100)] == [0.1, 0.5, 1.0, 1.0, 1.0]
    linear = Optim(lr=1.0, warmup=0, schedule="linear")
    assert learning_rate(linear, 1, 100) == pytest.approx(100 / 101)
    assert learning_rate(linear, 100, 100) == pytest.approx(1 / 101)
    cosine = Optim(lr=1.0, warmup=10, schedule="cosine")
    assert learning_rate(cosine, 10, 110) == 1.0
    assert learning_rate(cosine, 60, 110) == pytest.approx(0.55)
    assert learning_rate(cosine, 110, 110) == pytest.approx(0.1)


def test_the_mean_gradient_norm_is_over_the_steps_since_it_was_last_asked() -> None:
    run = trainer()
    run.begin(1)
    assert run.mean_grad_norm() is None
    norms = [step.grad_norm for step in train(run, 3)]
    assert run.mean_grad_norm() == pytest.approx(sum(norms) / 3)
    assert run.mean_grad_norm() is None
