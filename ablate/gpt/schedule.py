"""Optimiser and learning rate. The rate of a step is a pure function of the step."""

from __future__ import annotations

import math

import torch

from ablate.gpt.model import GPT
from prereg.training import Optim

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
    return optim.lr


def build_optimizer(model: GPT, optim: Optim) -> torch.optim.Optimizer:
    """Adam or AdamW; decay on matrices only, never on norms and biases."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if optim.name == "adamw":
        return torch.optim.AdamW(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)
    return torch.optim.Adam(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True)
