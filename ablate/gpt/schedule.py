"""Optimiser and learning rate. The rate of a step is a pure function of the step."""

from __future__ import annotations

import math

import torch
from torch.nn import Parameter

from ablate.gpt.model import GPT
from prereg.study.training import Optim

COSINE_FLOOR = 0.1


def learning_rate(optim: Optim, step: int, steps: int) -> float:
    """The rate of one step (counted from 1): linear warmup, then the schedule over the remaining steps."""
    if step <= optim.warmup:
        return optim.lr * step / optim.warmup
    done = (step - optim.warmup) / max(1, steps - optim.warmup)
    if optim.schedule == "linear":
        # The last step still moves: the rate reaches zero one step after the end.
        span = max(1, steps - optim.warmup)
        return optim.lr * (span - (step - optim.warmup) + 1) / (span + 1)
    if optim.schedule == "cosine":
        return optim.lr * (COSINE_FLOOR + (1.0 - COSINE_FLOOR) * 0.5 * (1.0 + math.cos(math.pi * done)))
    if optim.schedule == "wsd":
        falling = min(max(1, round(optim.decay * steps)), steps - optim.warmup)
        return optim.lr * min(1.0, (steps - step + 1) / (falling + 1))
    return optim.lr


def build_optimizers(model: GPT, optim: Optim) -> tuple[torch.optim.Optimizer, ...]:
    """The registered optimiser; decay on matrices only, never on norms and biases. Muon comes as two."""
    inside = {id(p) for block in model.blocks for p in block.parameters() if p.dim() == 2}
    return optimizers_of(
        [p for p in model.parameters() if p.dim() >= 2 and id(p) in inside],
        [p for p in model.parameters() if p.dim() >= 2 and id(p) not in inside],
        [p for p in model.parameters() if p.dim() < 2],
        optim,
    )


def optimizers_of(
    inner: list[Parameter], outer: list[Parameter], vectors: list[Parameter], optim: Optim
) -> tuple[torch.optim.Optimizer, ...]:
    """The registered optimiser over the matrices inside the blocks, those outside, and vectors and scalars."""
    if optim.name == "muon":
        return (
            # Its own rate is matched to AdamW's, so that one `lr` serves both (Liu et al. 2025).
            torch.optim.Muon(
                inner,
                lr=optim.lr,
                momentum=optim.betas[0],
                weight_decay=optim.weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            _adamw(outer, vectors, optim),
        )
    matrices = inner + outer
    if optim.name == "adamw":
        return (_adamw(matrices, vectors, optim),)
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if optim.name == "sgd":
        return (torch.optim.SGD(groups, lr=optim.lr, momentum=optim.betas[0], fused=True),)
    return (torch.optim.Adam(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True),)


def _adamw(matrices: list[Parameter], vectors: list[Parameter], optim: Optim) -> torch.optim.Optimizer:
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)
