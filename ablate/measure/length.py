"""What happens beyond the context length that was trained: windows of twice the length, where positions allow it.

Rotary, sinusoidal and absent positions go on beyond the trained context; learned ones end there, and nothing is
recorded of them. The longer model is a second object with the same weights, so that the trained one is left alone.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.model import GPT
from ablate.gpt.tokens import Pooled, Tokens
from ablate.measure.loss import windows


def lengthened(model: GPT, context: int) -> GPT:
    """The same weights in a model of another context length."""
    config = model.config.model_copy(update={"context": context})
    with torch.random.fork_rng(devices=[]):  # building a model draws first values that are thrown away
        longer = GPT(config, model.token.num_embeddings)
    # Rebuilt buffers of positions are no part of a state; every parameter is the trained one itself.
    longer.load_state_dict(model.state_dict(), assign=True)
    return longer.to(model.token.weight.device).eval()


def measure_length(model: GPT, tokens: Tokens | Pooled) -> dict[str, float]:
    """The `length` suite; empty for learned positions, and for a text with no window that long."""
    context = model.config.context
    if model.config.positions == "learned" or len(tokens) <= context + 1:
        return {}
    longer = lengthened(model, 2 * context)
    sums, seen = np.zeros(2 * context), np.zeros(2 * context)
    for inputs, targets in windows(tokens, 2 * context, model.device):
        logits = longer(inputs).float()
        losses = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), reduction="none").double()
        length = targets.shape[1]
        sums[:length] += losses.view(targets.shape).sum(dim=0).cpu().numpy()
        seen[:length] += targets.shape[0]
    if not seen[context:].any():  # every part of a pool is too short by itself
        return {}
    beyond = float(sums[context:].sum() / seen[context:].sum())
    late = slice(context - max(1, context // 4), context)
    return {"length/loss_beyond": beyond, "length/brittleness": beyond - float(sums[late].sum() / seen[late].sum())}
