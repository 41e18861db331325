"""Suite activations: embeddings before and after their norm, the residual stream, logits.

One forward pass over the first batch of validation windows, watched by hooks that only look.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ablate.data.batches import Tokens
from ablate.evaluation.loss import by_class, windows
from ablate.gpt.model import GPT


def norms(vectors: Tensor) -> Tensor:
    """L2 norm of each vector (the last dimension)."""
    lengths: Tensor = vectors.float().norm(dim=-1).double()
    return lengths


def percentiles(values: Tensor, percents: tuple[int, ...]) -> list[float]:
    """These percentiles of all values, linear between two of them (numpy's default, type 7 of Hyndman and Fan 1996).

    >>> percentiles(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), (0, 50, 100))
    [1.0, 2.5, 5.0]
    """
    # numpy's: torch.quantile refuses more than 2^24 values, which one window of a large vocabulary has.
    return [float(value) for value in np.percentile(values.double().cpu().numpy(), percents)]


def mean_cosine(vectors: Tensor) -> float | None:
    """Mean cosine of two different vectors of a set (..., n, width), mean over sets; none for fewer than two.

    The sum over all pairs is |sum of unit vectors|^2 - n, so that no n x n matrix is needed. A zero vector has cosine 0
    with every other.

    >>> mean_cosine(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]))  # cosines 1, 0 and 0
    0.3333333333333333
    """
    n = vectors.shape[-2]
    if n < 2:
        return None
    units = vectors.double()
    lengths = units.norm(dim=-1, keepdim=True)
    # A zero vector is divided by 1, and stays one.
    units = torch.where(lengths > 0.0, units / torch.where(lengths > 0.0, lengths, 1.0), 0.0)
    pairs = units.sum(dim=-2).square().sum(dim=-1) - units.square().sum(dim=(-2, -1))
    return float((pairs / (n * (n - 1))).mean())


def measure_activations(model: GPT, tokens: Tokens, classes: np.ndarray | None = None) -> dict[str, float]:
    """The `activations` suite; without `classes` of the vocabulary, nothing is said by class."""
    # One batch of validation windows, the same at every evaluation and in every arm.
    inputs, _ = next(windows(tokens, model.config.context, model.device))
    with _block_outputs(model) as block_outputs:
        logits = model(inputs).float()
        after = model.first_input(inputs)
        before = model.embedded(inputs)
    metrics = _embeddings(before, after)
    if classes is not None:
        per_token = norms(after).cpu().numpy().ravel()
        kinds = by_class(per_token, classes[inputs.cpu().numpy().ravel()])
        metrics |= {f"embedding/norm_{kind}": value for kind, value in kinds.items()}
    # Of the table's rows and not of the tokens read: a rare entry counts as much as a frequent one.
    metrics["embedding/table_norm"] = float(norms(model.token.weight).mean())
    # The residual stream after each block: in a pre-norm model its norm grows with depth, in a post-norm one
    # it cannot.
    # stream: (batch, time, width); the cosine is of the positions within one window, then averaged over windows.
    for index, stream in enumerate(block_outputs):
        metrics[f"residual/norm_{index}"] = float(norms(stream).mean())
        cosine = mean_cosine(stream)
        if cosine is not None:
            metrics[f"residual/cosine_{index}"] = cosine
    return metrics | _logits(logits)


@contextmanager
def _block_outputs(model: GPT) -> Iterator[list[Tensor]]:
    """What each block gives, (batch, time, width), in the one pass of this context."""
    block_outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        block_outputs.append(output)

    hooks = [block.register_forward_hook(keep) for block in model.blocks]
    try:
        yield block_outputs
    finally:
        for hook in hooks:
            hook.remove()


def _embeddings(before: Tensor, after: Tensor) -> dict[str, float]:
    # "before" and "after" are the two sides of the norm of the embedding; without such a norm they are equal.
    metrics = {"embedding/norm": float(after.float().norm(dim=-1).double().mean())}
    metrics["embedding/norm_sd"] = float(norms(after).std(correction=0))
    for percent, value in zip((5, 50, 95), percentiles(norms(after), (5, 50, 95)), strict=True):
        metrics[f"embedding/norm_p{percent:02}"] = value
    metrics["embedding/norm_before"] = float(norms(before).mean())
    metrics["embedding/norm_before_sd"] = float(norms(before).std(correction=0))
    for name, vectors in (("", after), ("_before", before)):
        cosine = mean_cosine(vectors)
        if cosine is not None:
            metrics[f"embedding/cosine{name}"] = cosine
    return metrics


def _logits(logits: Tensor) -> dict[str, float]:
    squares = spreads = log_z = largest = median = p99 = 0.0
    # Window by window: in float64 all logits at once would need twice the memory of the pass that made them.
    for window in logits:
        exact = window.double()
        squares += float(exact.square().mean())
        spreads += float(exact.std(dim=-1, correction=0).mean())
        log_z += float(exact.logsumexp(dim=-1).mean())
        largest = max(largest, float(exact.abs().max()))
        middle, high = percentiles(exact.abs(), (50, 99))
        median, p99 = median + middle, p99 + high
    n = len(logits)
    return {
        "logits/rms": (squares / n) ** 0.5,
        "logits/sd": spreads / n,
        "logits/largest": largest,
        "logits/size_p50": median / n,
        "logits/size_p99": p99 / n,
        "logits/log_z": log_z / n,
    }
