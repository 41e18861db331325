"""One run over several devices: real processes, the same curve, the same files, no orphans."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import House, tiny_document

from ablate import chain
from ablate.gpt.distributed import ALONE, Ranks
from ablate.gpt.train import Step, Trainer
from ablate.run.company import Company
from ablate.run.spread import Spread
from ablate.run.watch import PlainWatcher
from ablate.run.worker import Worker
from prereg.errors import RunError
from prereg.plan import RunSpec, plan
from prereg.spec import Study

torch.set_num_threads(1)

STEPS = 12
ROUNDING = 1e-5
"""How far losses in float32 may lie apart, relatively, when sums are taken in another order: its unit is 6e-8, and
`test_accumulation` shows for the same sums that in float64 the gap falls by nine digits, so that it is rounding."""
MODEL: dict[str, Any] = {"layers": 2, "width": 18, "heads": 2, "context": 8, "dropout": 0.1}


def spec_of(house: House, **base: dict[str, Any]) -> RunSpec:
    """The first run of a tiny study whose base is as given."""
    parts: dict[str, Any] = {
        "model": MODEL,
        "data": {"corpus": "tiny"},
        "optim": {"lr": 3e-3},
        "budget": {"steps": STEPS, "batch": 8},
    }
    for name, change in base.items():
        parts[name] = {**parts.get(name, {}), **change}
    study = house.write(tiny_document(base=parts))
    chain.register(study)
    return plan(chain.require_registered(chain.open_case(study)))[0]


def trainer_of(house: House, spec: RunSpec, ranks: Ranks = ALONE) -> Trainer:
    text = Worker(house.path / "data" / "corpora", lambda _: None, threading.Event()).text(spec)
    return Trainer(spec.config, text.split, text.tokenizer.size, ranks)


@contextmanager
def spread(house: House, spec: RunSpec, devices: int, shard: str) -> Iterator[Trainer]:
    """A trainer whose run is spread over this process and others."""
    lost: list[str] = []
    company = Company(Spread.of(devices, shard), house.path / "data" / "corpora", lost=lost.append)
    try:
        company.tell("run", (spec.model_dump_json(),))
        yield trainer_of(house, spec, company.ranks)
    finally:
        company.end()
    assert not lost
    assert [other.returncode for other in company.others] == [0] * (devices - 1)


def losses(steps: list[Step]) -> list[float]:
    return [step.loss for step in steps]


def train(run: Trainer, steps: int) -> list[Step]:
    return [run.step() for _ in range(steps)]


@pytest.mark.parametrize(
    ("devices", "shard", "base"),
    [
        (2, "ddp", {"budget": {"micro_batch": 2}, "optim": {"ema": 0.9}}),
        (2, "fsdp", {"budget": {"micro_batch": 2}, "optim": {"ema": 0.9}, "numerics": {"recompute": "blocks"}}),
        (4, "ddp", {"numerics": {"recompute": "blocks"}}),
        (4, "fsdp", {"model": {"tie_embeddings": False}, "optim": {"clip": 0.1}}),
    ],
    ids=["2 ddp", "2 fsdp", "4 ddp", "4 fsdp"],
)
def test_a_spread_run_is_the_run_of_one_device_within_rounding(
    house: House, tmp_path: Path, devices: int, shard: str, base: dict[str, Any]
) -> None:
    spec = spec_of(house, **base)
    alone = trainer_of(house, spec)
    initial = alone.begin(1)
    curve = train(alone, STEPS)
    norms = alone.mean_grad_norms()
    with spread(house, spec, devices, shard) as run:
        assert run.begin(1) == initial
        found = train(run, STEPS)
        assert losses(found) == pytest.approx(losses(curve), rel=ROUNDING)
        # Norms before clipping, of all and of each block: were one taken over a shard, it would be far too small.
        assert [s.grad_norm for s in found] == pytest.approx([s.grad_norm for s in curve], rel=100 * ROUNDING)
        assert run.mean_grad_norms() == pytest.approx(norms, rel=100 * ROUNDING)
        assert run.progress.batches == alone.progress.batches
        assert run.progress.dropout == alone.progress.dropout
        assert run.progress.tokens == alone.progress.tokens
        inputs, targets, _ = run.batches.at(1)
        with run.evaluated() as one, alone.evaluated() as other, torch.inference_mode():
            assert float(one.loss(inputs, targets)) == pytest.approx(float(other.loss(inputs, targets)), rel=ROUNDING)
        path = tmp_path / "c.safetensors"
        path.write_bytes(run.checkpoint())
        weights = run.weights()
        run.begin(1)
        run.restore(path)
        assert run.weights() == weights
    # One format: a device alone reads what several wrote.
    alone.begin(1)
    alone.restore(path)
    assert alone.weights() == weights


def test_two_ranks_do_share_the_work(house: House) -> None:
    spec = spec_of(house, model={"dropout": 0.0})
    with spread(house, spec, 2, "fsdp") as run:
        run.begin(1)
        seen: list[int] = []
        run.model.register_forward_pre_hook(lambda _, words: seen.append(len(words[0])))
        run.step()
        assert seen == [4]
        held = sum(p.to_local().numel() for p in run.model.parameters())  # type: ignore[attr-defined]
        assert held < 0.55 * run.parameters


def test_bfloat16_keeps_float32_weights_and_the_registered_arithmetic(house: House) -> None:
    spec = spec_of(house, numerics={"dtype": "bfloat16"})
    alone = trainer_of(house, spec)
    alone.begin(1)
    curve = losses(train(alone, STEPS))
    with spread(house, spec, 2, "fsdp") as run:
        run.begin(1)
        found = losses(train(run, STEPS))
        assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    # The unit of bfloat16 is 4e-3; float32 throughout would be closer to itself than this curve is to float32's.
    assert found == pytest.approx(curve, rel=1e-3)


@pytest.mark.parametrize(("devices", "shard"), [(3, "ddp"), (2, "fsdp")])
def test_a_spread_run_resumes_to_the_last_bit_in_new_processes(
    house: House, tmp_path: Path, devices: int, shard: str
) -> None:
    # Three ranks: with two, a sum has no order, and pieces that change after a resumption would go unnoticed.
    spec = spec_of(house, optim={"ema": 0.9}, budget={"batch": 6})
    with spread(house, spec, devices, shard) as whole:
        whole.begin(1)
        train(whole, 4)
        (tmp_path / "c.safetensors").write_bytes(whole.checkpoint())
        rest, weights, progress = train(whole, 5), whole.weights(), whole.progress
    with spread(house, spec, devices, shard) as other:
        other.begin(1)
        other.restore(tmp_path / "c.safetensors")
        assert train(other, 5) == rest
        assert other.weights() == weights
        assert other.progress == progress
