"""What flows inside: embeddings before and after their norm, the residual stream, attention, logits.

One forward pass over the first batch of validation windows, watched by hooks that only look. The model is run
unchanged; attention weights, which it does not keep, are taken again from queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ablate.data.batches import Pooled, Tokens
from ablate.evaluation.loss import by_class, windows
from ablate.training.model import GPT, Attention, angles, rotate


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


def effective_rank(vectors: Tensor) -> float:
    """exp of the entropy of the singular values divided by their sum (Roy and Vetterli 2007); 0 for the zero matrix.

    The singular values are the roots of the eigenvalues of the smaller Gram matrix.
    """
    matrix = vectors.double().reshape(-1, vectors.shape[-1])
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    squares = torch.linalg.eigvalsh(gram)
    # Rounding leaves eigenvalues of the size of eps times the largest where the true ones are 0.
    squares = squares[squares > squares.max() * torch.finfo(torch.float64).eps * max(gram.shape)]
    singular = squares.clamp(min=0.0).sqrt()
    if not singular.numel() or float(singular.sum()) == 0.0:
        return 0.0
    shares = singular / singular.sum()
    return float((-(shares * shares.log()).sum()).exp())


def measure_activations(model: GPT, tokens: Tokens | Pooled, classes: np.ndarray | None = None) -> dict[str, float]:
    """The `activations` suite; without `classes` of the vocabulary, nothing is said by class."""
    inputs, _ = next(windows(tokens, model.config.context, model.device))
    with _given(model) as given:
        logits = model(inputs).float()
        after = model.first_input(inputs)
        before = model.embedded(inputs)
    # Products of matrices in here are the measure's own, and in full precision whatever the run's arithmetic is.
    with _in_full(logits.device.type):
        found = _embeddings(before, after)
        if classes is not None:
            per_token = norms(after).cpu().numpy().ravel()
            kinds = by_class(per_token, classes[inputs.cpu().numpy().ravel()])
            found |= {f"embedding/norm_{kind}": value for kind, value in kinds.items()}
        found |= _table(model.token.weight)
        for index, block in enumerate(model.blocks):
            found |= _residual(given[f"block {index}"], index)
            # Window by window: the weights of all of them at once are the largest thing there is in a long context.
            entropies = [
                mean_entropy(attention_weights(block.attention, window[None]))  # type: ignore[arg-type]
                for window in given[f"qkv {index}"]
            ]
            found[f"attention/entropy_{index}"] = sum(entropies) / len(entropies)
        return found | _logits(logits)


def _in_full(device: str) -> AbstractContextManager[None]:
    """No automatic casts, where the device knows any."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


@contextmanager
def _given(model: GPT) -> Iterator[dict[str, Tensor]]:
    """What blocks and their layers `qkv` give in the passes of this context."""
    given: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            given[name] = output

        return hook

    hooks: list[RemovableHandle] = []
    for index, block in enumerate(model.blocks):
        hooks.append(block.register_forward_hook(keep(f"block {index}")))
        hooks.append(block.attention.qkv.register_forward_hook(keep(f"qkv {index}")))  # type: ignore[union-attr]
    try:
        yield given
    finally:
        for one in hooks:
            one.remove()


def _embeddings(before: Tensor, after: Tensor) -> dict[str, float]:
    # The figure of old records is the plain mean of the float32 norms.
    found = {"embedding/norm": float(after.float().norm(dim=-1).double().mean())}
    found["embedding/norm_sd"] = float(norms(after).std(correction=0))
    found["embedding/norm_before"] = float(norms(before).mean())
    found["embedding/norm_before_sd"] = float(norms(before).std(correction=0))
    for name, vectors in (("", after), ("_before", before)):
        cosine = mean_cosine(vectors)
        if cosine is not None:
            found[f"embedding/cosine{name}"] = cosine
        found[f"embedding/effective_rank{name}"] = effective_rank(vectors)
    return found


def _table(table: Tensor) -> dict[str, float]:
    cosine = mean_cosine(table)
    said = {} if cosine is None else {"embedding/table_cosine": cosine}
    return said | {
        "embedding/table_norm": float(norms(table).mean()),
        "embedding/table_effective_rank": effective_rank(table),
    }


def _residual(stream: Tensor, index: int) -> dict[str, float]:
    cosine = mean_cosine(stream)
    said = {} if cosine is None else {f"residual/cosine_{index}": cosine}
    return {
        f"residual/norm_{index}": float(norms(stream).mean()),
        **said,
        f"residual/effective_rank_{index}": effective_rank(stream),
    }


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
