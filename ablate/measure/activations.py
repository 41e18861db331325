"""What flows inside: so far the norm of the first block's input, before any block has touched it."""

from __future__ import annotations

from ablate.gpt.model import GPT
from ablate.gpt.tokens import Pooled, Tokens
from ablate.measure.loss import windows


def measure_activations(model: GPT, tokens: Tokens | Pooled) -> dict[str, float]:
    """The `activations` suite, over the first batch of validation windows."""
    inputs, _ = next(windows(tokens, model.config.context, model.device))
    norms = model.first_input(inputs).float().norm(dim=-1)
    return {"embedding/norm": float(norms.double().mean())}
