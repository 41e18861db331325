"""What flows inside: embeddings before and after their norm, the residual stream, logits.

One forward pass over the first batch of validation windows, watched by hooks that only look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ablate.data.batches import Pooled, Tokens
from ablate.evaluation.loss import by_class, windows
from ablate.gpt.model import GPT


def norms(vectors: Tensor) -> Tensor:
    """L2 norm of each vector (the last dimension)."""
    lengths: Tensor = vectors.float().norm(dim=-1).double()
    return lengths


def mean_cosine(vectors: Tensor) -> float | None:
    """Mean cosine of two different vectors of a set (..., n, width), mean over sets; none for fewer than two.

    The sum over all pairs is |sum of unit vectors|^2 - n, so that no n x n matrix is needed. A zero vector has cosine 0
    with every other.
    """
    n = vectors.shape[-2]
    if n < 2:
        return None
    units = vectors.double()
    lengths = units.norm(dim=-1, keepdim=True)
    units = torch.where(lengths > 0.0, units / torch.where(lengths > 0.0, lengths, 1.0), 0.0)
    pairs = units.sum(dim=-2).square().sum(dim=-1) - units.square().sum(dim=(-2, -1))
    return float((pairs / (n * (n - 1))).mean())


def measure_activations(model: GPT, tokens: Tokens | Pooled, classes: np.ndarray | None = None) -> dict[str, float]:
    """The `activations` suite; without `classes` of the vocabulary, nothing is said by class."""
    inputs, _ = next(windows(tokens, model.config.context, model.device))
    with _given(model) as given:
        logits = model(inputs).float()
        after = model.first_input(inputs)
        before = model.embedded(inputs)
    found = _embeddings(before, after)
    if classes is not None:
        per_token = norms(after).cpu().numpy().ravel()
        kinds = by_class(per_token, classes[inputs.cpu().numpy().ravel()])
        found |= {f"embedding/norm_{kind}": value for kind, value in kinds.items()}
    found["embedding/table_norm"] = float(norms(model.token.weight).mean())
    for index, stream in enumerate(given):
        found[f"residual/norm_{index}"] = float(norms(stream).mean())
        cosine = mean_cosine(stream)
        if cosine is not None:
            found[f"residual/cosine_{index}"] = cosine
    return found | _logits(logits)


@contextmanager
def _given(model: GPT) -> Iterator[list[Tensor]]:
    """What each block gives, (batch, time, width), in the one pass of this context."""
    given: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        given.append(output)

    hooks = [block.register_forward_hook(keep) for block in model.blocks]
    try:
        yield given
    finally:
        for hook in hooks:
            hook.remove()


def _embeddings(before: Tensor, after: Tensor) -> dict[str, float]:
    found = {"embedding/norm": float(after.float().norm(dim=-1).double().mean())}
    found["embedding/norm_sd"] = float(norms(after).std(correction=0))
    found["embedding/norm_before"] = float(norms(before).mean())
    found["embedding/norm_before_sd"] = float(norms(before).std(correction=0))
    for name, vectors in (("", after), ("_before", before)):
        cosine = mean_cosine(vectors)
        if cosine is not None:
            found[f"embedding/cosine{name}"] = cosine
    return found


def _logits(logits: Tensor) -> dict[str, float]:
    squares = spreads = log_z = largest = 0.0
    for window in logits:
        exact = window.double()
        squares += float(exact.square().mean())
        spreads += float(exact.std(dim=-1, correction=0).mean())
        log_z += float(exact.logsumexp(dim=-1).mean())
        largest = max(largest, float(exact.abs().max()))
    n = len(logits)
    return {
        "logits/rms": (squares / n) ** 0.5,
        "logits/sd": spreads / n,
        "logits/largest": largest,
        "logits/log_z": log_z / n,
    }
