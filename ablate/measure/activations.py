"""What flows inside: embeddings before and after their norm, the residual stream, attention, logits.

One forward pass over the first batch of validation windows, watched by hooks that only look. The model is run as it
stands; attention weights, which it does not keep, are taken again from queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ablate.gpt.model import GPT
from ablate.gpt.tokens import Pooled, Tokens
from ablate.measure.attention import attention_weights, mean_entropy
from ablate.measure.classes import by_class
from ablate.measure.loss import windows
from ablate.measure.shapes import effective_rank, mean_cosine, norms


def measure_activations(model: GPT, tokens: Tokens | Pooled, classes: np.ndarray | None = None) -> dict[str, float]:
    """The `activations` suite; without `classes` of the vocabulary, nothing is said by class."""
    inputs, _ = next(windows(tokens, model.config.context, model.device))
    with _given(model) as given:
        logits = model(inputs).float()
        after = model.first_input(inputs)
        before = model.embedded(inputs)
    # In the run's own arithmetic, as it was in the pass; our kernels take norm, projection and attention as one, and no
    # hook sees what lies between.
    projected = [
        block.attention.qkv(block.before_attention(given[f"into {index}"]))  # type: ignore[union-attr,operator]
        for index, block in enumerate(model.blocks)
    ]
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
                for window in projected[index]
            ]
            found[f"attention/entropy_{index}"] = sum(entropies) / len(entropies)
        return found | _logits(logits)


def _in_full(device: str) -> AbstractContextManager[None]:
    """No automatic casts, where the device knows any."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


@contextmanager
def _given(model: GPT) -> Iterator[dict[str, Tensor]]:
    """What blocks are given, and what they give, in the passes of this context."""
    given: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            given[name] = output

        return hook

    def keep_input(name: str) -> Callable[[nn.Module, tuple[Tensor, object]], None]:
        def hook(_module: nn.Module, inputs: tuple[Tensor, object]) -> None:
            given[name] = inputs[0]

        return hook

    hooks: list[RemovableHandle] = []
    for index, block in enumerate(model.blocks):
        hooks.append(block.register_forward_hook(keep(f"block {index}")))
        hooks.append(block.register_forward_pre_hook(keep_input(f"into {index}")))
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
