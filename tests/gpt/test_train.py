"""Training: repeatable to the bit, resumable to the bit, and honest about divergence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from split_samples import split_of

from ablate.gpt.trainer import StepResult, Trainer, build_optimizers, learning_rate
from prereg.errors import EvidenceError
from prereg.study.training import Optim, Training

torch.set_num_threads(1)


def trainer(**optim: Any) -> Trainer:
    model: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "context": 8}
    model["dropout"] = optim.pop("dropout", 0.0)
    dtype = optim.pop("dtype", "float32")
    model |= optim.pop("model", {})
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
    return Trainer(config, split_of(tokens, 0.1, 8), 7)


def train(run: Trainer, steps: int) -> list[StepResult]:
    return [run.step() for _ in range(steps)]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "optim",
    [
        {},
        {"name": "adam", "weight_decay": 0.0},
        {"name": "sgd"},
        {"name": "sgd", "betas": [0.0, 0.9]},
        {"name": "muon"},
        {"ema": 0.9},
    ],
    ids=lambda optim: " ".join(f"{k}={v}" for k, v in optim.items()) or "adamw",
)
def test_a_resumed_run_is_the_uninterrupted_run_to_the_last_bit(
    tmp_path: Path, dropout: float, dtype: str, optim: dict[str, Any]
) -> None:
    whole = trainer(dropout=dropout, schedule="cosine", warmup=3, dtype=dtype, **optim)
    whole.begin(1)
    train(whole, 5)
    (tmp_path / "c.safetensors").write_bytes(whole.checkpoint())
    rest = train(whole, 9)
    other = trainer(dropout=dropout, schedule="cosine", warmup=3, dtype=dtype, **optim)
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
    run.split = split_of(tokens, 0.1, 8)
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
    assert run.diverged(StepResult(2, math.nan, 1.0), 2.0)
    assert run.diverged(StepResult(2, 1.0, math.inf), 2.0)
    assert run.diverged(StepResult(2, first.loss * 2.01, 1.0), 2.0)
    assert not run.diverged(StepResult(2, first.loss * 1.99, 1.0), 2.0)


def test_decay_falls_on_matrices_only() -> None:
    run = trainer()
    groups = build_optimizers(run.model, Optim(weight_decay=0.1))[0].param_groups
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
    above_zero = Optim(lr=1.0, warmup=10, warmup_from=0.2)
    rates = [learning_rate(above_zero, step, 100) for step in (1, 5, 10, 11)]
    assert rates == pytest.approx([0.28, 0.6, 1.0, 1.0])
    linear = Optim(lr=1.0, warmup=0, schedule="linear")
    assert learning_rate(linear, 1, 100) == pytest.approx(100 / 101)
    assert learning_rate(linear, 100, 100) == pytest.approx(1 / 101)
    cosine = Optim(lr=1.0, warmup=10, schedule="cosine")
    assert learning_rate(cosine, 10, 110) == 1.0
    assert learning_rate(cosine, 60, 110) == pytest.approx(0.55)
    assert learning_rate(cosine, 110, 110) == pytest.approx(0.1)


def test_warmup_stable_decay_holds_and_then_falls_to_zero() -> None:
    wsd = Optim(lr=1.0, warmup=10, schedule="wsd", decay=0.2)
    rates = [learning_rate(wsd, s, 100) for s in range(1, 101)]
    assert rates[9:80] == [1.0] * 71
    assert rates[80] == pytest.approx(20 / 21) and rates[99] == pytest.approx(1 / 21)
    short = Optim(lr=1.0, warmup=90, schedule="wsd", decay=0.5)  # warmup leaves less than the decay asks for
    assert learning_rate(short, 90, 100) == 1.0 and learning_rate(short, 100, 100) == pytest.approx(1 / 11)
    assert all(rate > 0 for rate in rates)


def test_one_sgd_step_is_that_of_the_formula() -> None:
    run = trainer(name="sgd", weight_decay=0.1, clip=0.0, betas=[0.9, 0.95])
    run.begin(1)
    before = {n: p.detach().double().clone() for n, p in run.model.named_parameters()}
    moment = {n: torch.zeros_like(value) for n, value in before.items()}
    for number in (1, 2):
        inputs, targets, _ = run.batches.at(number)
        run.model.loss(inputs, targets).backward()
        for name, p in run.model.named_parameters():
            assert p.grad is not None
            decay = 0.1 if p.dim() >= 2 else 0.0
            moment[name] = 0.9 * moment[name] + p.grad.double() + decay * p.detach().double()
            before[name] -= 1e-2 * moment[name]
        run.model.zero_grad()
        run.step()
    for name, after in run.model.named_parameters():
        assert torch.allclose(after.detach().double(), before[name], atol=1e-6), name


def test_muon_moves_the_matrices_of_the_blocks_and_adamw_everything_else() -> None:
    run = trainer(name="muon", weight_decay=0.0, clip=0.0)
    run.begin(1)
    muon, rest = run.optimizers
    held = [{id(p) for group in one.param_groups for p in group["params"]} for one in (muon, rest)]
    for name, p in run.model.named_parameters():
        assert [id(p) in each for each in held] == (
            [True, False] if ".weight" in name and "blocks" in name and p.dim() == 2 else [False, True]
        ), name
    before = run.model.blocks[0].feed.up.weight.detach().clone()
    run.step()
    # Jordan et al. 2024: the step's singular values are near one; matched to AdamW's RMS by 0.2 sqrt(max side)
    # (Liu et al. 2025).
    moved = (before - run.model.blocks[0].feed.up.weight.detach()) / (1e-2 * 0.2 * 64**0.5)
    sizes = torch.linalg.svdvals(moved)
    assert 0.7 < float(sizes.median()) < 1.2 and float(sizes.max()) < 1.3
    inputs, targets, _ = run.batches.at(1)
    run.begin(1)
    run.model.loss(inputs, targets).backward()
    steep = torch.linalg.svdvals(run.model.blocks[0].feed.up.weight.grad)
    assert float(steep.max() / steep.median()) > 2 * float(sizes.max() / sizes.median())


def test_an_average_of_the_weights_is_what_is_evaluated_and_kept_and_training_goes_on_without_it() -> None:
    plain, averaged = trainer(), trainer(ema=0.5)
    plain.begin(1)
    averaged.begin(1)
    expected = {n: p.detach().double().clone() for n, p in plain.model.named_parameters()}
    for _ in range(4):
        assert averaged.step() == plain.step()
        for name, p in plain.model.named_parameters():
            expected[name] = 0.5 * expected[name] + 0.5 * p.detach().double()
    moving = {n: p.detach().clone() for n, p in averaged.model.named_parameters()}
    with averaged.evaluated() as model:
        for name, p in model.named_parameters():
            assert torch.allclose(p.detach().double(), expected[name], atol=1e-6), name
            assert name.endswith("bias") or not torch.equal(p, moving[name])
    assert all(torch.equal(p, moving[n]) for n, p in averaged.model.named_parameters())
    assert averaged.step() == plain.step()
    assert averaged.weights() != plain.weights()


def test_each_layers_gradient_norm_is_that_of_its_own_parameters() -> None:
    run = trainer(clip=1e-3)
    run.begin(1)
    inputs, targets, _ = run.batches.at(1)
    run.model.loss(inputs, targets).backward()
    expected = [
        math.sqrt(sum(float(p.grad.double().square().sum()) for p in block.parameters() if p.grad is not None))
        for block in run.model.blocks
    ]
    run.model.zero_grad()
    run.step()
    means = run.grad_norms()
    assert [means[f"grad/layer_{i}"] for i in range(2)] == pytest.approx(expected, rel=1e-5)


def test_the_mean_gradient_norm_is_over_the_steps_since_it_was_last_asked() -> None:
    run = trainer()
    run.begin(1)
    assert run.grad_norms() == {}
    norms = [step.grad_norm for step in train(run, 3)]
    means = run.grad_norms()
    assert means["grad/norm"] == pytest.approx(sum(norms) / 3)
    per_block = {f"grad/{kind}_{block}" for kind in ("layer", "first_layer") for block in (0, 1)}
    assert set(means) == {"grad/norm"} | per_block
    assert run.grad_norms() == {}


def test_the_first_steps_norms_are_kept_for_the_whole_run_and_through_a_checkpoint(tmp_path: Path) -> None:
    run = trainer()
    run.begin(1)
    run.step()
    of_first_step = run.grad_norms()
    first = [of_first_step[f"grad/layer_{block}"] for block in (0, 1)]
    train(run, 4)
    (tmp_path / "c.safetensors").write_bytes(run.checkpoint())
    resumed = trainer()
    resumed.begin(1)
    resumed.restore(tmp_path / "c.safetensors")
    for one in (run, resumed):
        later = one.grad_norms()
        assert [later[f"grad/first_layer_{block}"] for block in (0, 1)] == first
        assert [later[f"grad/layer_{block}"] for block in (0, 1)] != first
