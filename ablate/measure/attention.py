"""The attention weights of a block, taken again from its queries and keys; its own path stays as it is."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ablate.gpt.model import Attention, angles, rotate


def attention_weights(attention: Attention, projected: Tensor) -> Tensor:
    """(batch, head, query, key) weights in float32, from what the layer `qkv` gave for (batch, time, width)."""
    batch, time, _ = projected.shape
    q, k, _ = projected.float().view(batch, time, 3, attention.heads, attention.size).permute(2, 0, 3, 1, 4)
    q, k = attention.q_norm(q), attention.k_norm(k)
    if attention.rotary:
        turns = angles(time, attention.size)
        cosine, sine = turns.cos().float().to(q.device), turns.sin().float().to(q.device)
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(attention.size)
    ahead = torch.ones(time, time, dtype=torch.bool, device=scores.device).triu(1)
    weights: Tensor = scores.masked_fill(ahead, -math.inf).softmax(dim=-1)
    return weights


def mean_entropy(weights: Tensor) -> float:
    """Mean over batch, heads and queries of the entropy of the weights, in nats."""
    # A weight of 0 adds nothing: its logarithm is never taken.
    logarithms = torch.where(weights > 0.0, weights, 1.0).double().log()
    return float(-(weights.double() * logarithms).sum(dim=-1).mean())
