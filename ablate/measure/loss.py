"""Loss, perplexity, bits a byte and next-token accuracy over the whole validation split.

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

WINDOWS_AT_ONCE = 16


def windows(tokens: np.ndarray, context: int, device: torch.device | str = "cpu") -> Iterator[tuple[Tensor, Tensor]]:
    """Disjoint (inputs, targets) windows in order, batched; the last batch holds the shorter remainder."""
    whole = (len(tokens) - 1) // context
    inputs = torch.from_numpy(tokens[: whole * context].reshape(whole, context)).to(device)
    targets = torch.from_numpy(tokens[1 : whole * context + 1].reshape(whole, context)).to(device)
    for start in range(0, whole, WINDOWS_AT_ONCE):
        yield inputs[start : start + WINDOWS_AT_ONCE], targets[start : start + WINDOWS_AT_ONCE]
    rest = tokens[whole * context :]
    if len(rest) > 1:
        yield torch.from_numpy(rest[None, :-1].copy()).to(device), torch.from_numpy(rest[None, 1:].copy()).to(device)


def measure_loss(model: GPT, tokens: np.ndarray, byte_lengths: np.ndarray) -> dict[str, float]:
    """The `loss` suite on a validation split."""
    nats, correct, count = 0.0, 0, 0
    for inputs, targets in windows(tokens, model.config.context, model.device):
        logits = model(inputs).float()
        flat, wanted = logits.view(-1, logits.shape[-1]), targets.reshape(-1)
        nats += float(F.cross_entropy(flat, wanted, reduction="none").double().sum())
        correct += int((flat.argmax(dim=-1) == wanted).sum())
        count += wanted.numel()
    assert count == len(tokens) - 1, (count, len(tokens))
    loss = nats / count
    size = int(byte_lengths[tokens[1:]].sum())
    return {
        "val/loss": loss,
        # A diverging model's perplexity overflows before its loss does; the loss keeps the number.
        "val/perplexity": math.exp(min(loss, 700.0)),
        "val/bits_per_byte": nats / math.log(2.0) / size,
        "val/accuracy": correct / count,
    }
