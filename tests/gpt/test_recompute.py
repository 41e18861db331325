"""Activation checkpointing: less is kept, and not a bit moves."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from split_samples import split_of

from ablate.gpt.trainer import Trainer
from prereg.study.training import Training

torch.set_num_threads(1)

LAYERS, BATCH, CONTEXT, WIDTH = 4, 4, 16, 16


def trainer(
    recompute: str,
    *,
    dtype: str = "float32",
    batch: int = BATCH,
    micro_batch: int | None = None,
    **model: Any,
) -> Trainer:
    shape = {"layers": LAYERS, "width": WIDTH, "heads": 2, "context": CONTEXT, **model}
    document = {
        "model": shape,
        "budget": {"steps": 20, "batch": batch, "micro_batch": micro_batch},
        "optim": {"lr": 1e-2},
        "numerics": {"dtype": dtype, "recompute": recompute},
    }
    tokens = np.random.default_rng(0).integers(0, 7, 2000)
    run = Trainer(Training.model_validate_json(json.dumps(document)), split_of(tokens, 0.1, shape["context"]), 7)
    run.begin(1)
    return run


def kept_bytes(run: Trainer) -> int:
    """Bytes of distinct storage, weights apart, that the forward pass keeps for the backward pass."""
    weights = {p.untyped_storage().data_ptr() for p in run.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage  # held, so that no address is given out twice
        return tensor

    inputs, targets, _ = run.batches.at(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = run.model.loss(inputs, targets)
    del loss
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "model",
    [{}, {"dropout": 0.2}, {"norm": "post", "activation": "swiglu", "positions": "rope", "dropout": 0.1}],
    ids=["plain", "dropout", "post, swiglu, rope, dropout"],
)
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_computing_blocks_again_moves_no_bit(dtype: str, model: dict[str, Any], micro_batch: int | None) -> None:
    kept = trainer("none", dtype=dtype, micro_batch=micro_batch, **model)
    again = trainer("blocks", dtype=dtype, micro_batch=micro_batch, **model)
    assert [again.step() for _ in range(6)] == [kept.step() for _ in range(6)]
    assert again.weights() == kept.weights()
    assert again.progress == kept.progress  # the chains of batches and of dropout masks among it


def test_blocks_are_in_fact_computed_twice_and_evaluated_once() -> None:
    run, calls = trainer("blocks"), []
    run.model.blocks[0].register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    run.step()
    assert len(calls) == 2
    with torch.inference_mode(), run.evaluated() as model:
        model(run.batches.at(1)[0])
    assert calls == [True, True, False]


def test_of_a_block_only_its_input_is_kept() -> None:
    # Chen et al. 2016: with one segment a block, what is kept grows by one residual stream a layer.
    whole, again = kept_bytes(trainer("none")), kept_bytes(trainer("blocks"))
    residual = 4 * BATCH * CONTEXT * WIDTH
    assert again < 0.3 * whole
    shallower = kept_bytes(trainer("blocks", layers=LAYERS - 1))
    assert again - shallower == residual
    assert whole - kept_bytes(trainer("none", layers=LAYERS - 1)) > 10 * residual
