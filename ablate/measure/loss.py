"""Loss, perplexity, bits a byte and next-token accuracy over the whole validation split, by class and by position.

Windows are disjoint and of the context length; the last, shorter one counts too, so every token but the
first is predicted exactly once. Sums are float64, so the figure does not depend on the evaluation batch
beyond the last bits of each window's float32 losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.model import GPT
from ablate.measure.classes import by_class

WINDOWS_AT_ONCE = 16


def windows(tokens: np.ndarray, context: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Disjoint (inputs, targets) windows in order, batched; the last batch holds the shorter remainder."""
    whole = (len(tokens) - 1) // context
    inputs = torch.from_numpy(tokens[: whole * context].reshape(whole, context))
    targets = torch.from_numpy(tokens[1 : whole * context + 1].reshape(whole, context))
    for start in range(0, whole, WINDOWS_AT_ONCE):
        yield inputs[start : start + WINDOWS_AT_ONCE], targets[start : start + WINDOWS_AT_ONCE]
    rest = tokens[whole * context :]
    if len(rest) > 1:
        yield torch.from_numpy(rest[None, :-1].copy()), torch.from_numpy(rest[None, 1:].copy())


def measure_loss(
    model: GPT, tokens: np.ndarray, byte_lengths: np.ndarray, classes: np.ndarray | None = None
) -> dict[str, float]:
    """The `loss` suite on a validation split; without `classes` of the vocabulary, nothing is said by class."""
    context = model.config.context
    nats, correct, count = 0.0, 0, 0
    at_position, seen = np.zeros(context), np.zeros(context)
    hits = np.empty(len(tokens) - 1)
    for inputs, targets in windows(tokens, context):
        logits = model(inputs).float()
        flat, wanted = logits.view(-1, logits.shape[-1]), targets.reshape(-1)
        losses = F.cross_entropy(flat, wanted, reduction="none").double()
        nats += float(losses.sum())
        right = flat.argmax(dim=-1) == wanted
        correct += int(right.sum())
        hits[count : count + wanted.numel()] = right.cpu().numpy()
        length = targets.shape[1]
        at_position[:length] += losses.view(targets.shape).sum(dim=0).cpu().numpy()
        seen[:length] += targets.shape[0]
        count += wanted.numel()
    assert count == len(tokens) - 1, (count, len(tokens))
    loss = nats / count
    size = int(byte_lengths[tokens[1:]].sum())
    quarter = max(1, context // 4)
    found = {
        "val/loss": loss,
        # A diverging model's perplexity overflows before its loss does; the loss keeps the number.
        "val/perplexity": math.exp(min(loss, 700.0)),
        "val/bits_per_byte": nats / math.log(2.0) / size,
        "val/accuracy": correct / count,
        "val/loss_first_quarter": float(at_position[:quarter].sum() / seen[:quarter].sum()),
    }
    if seen[-quarter:].any():
        found["val/loss_last_quarter"] = float(at_position[-quarter:].sum() / seen[-quarter:].sum())
    if classes is not None:
        shares = by_class(hits, classes[tokens[1:]])
        found["val/macro_accuracy"] = sum(shares.values()) / len(shares)
        found |= {f"val/accuracy_{kind}": share for kind, share in shares.items()}
    return found
