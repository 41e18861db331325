"""Suite loss: loss, perplexity, bits a byte and next-token accuracy of the validation split, by class and by position.

Windows are disjoint and of the context length; the last, shorter one counts too, so every token but the
first is predicted exactly once. Sums are float64, so the figure does not depend on the evaluation batch
beyond the last bits of each window's float32 losses.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.data.batches import Tokens
from ablate.gpt.model import GPT
from prereg.metrics.catalogue import TOKEN_CLASSES

WINDOWS_AT_ONCE = 16


def windows(tokens: Tokens, context: int, device: torch.device | str = "cpu") -> Iterator[tuple[Tensor, Tensor]]:
    """Disjoint (inputs, targets) windows in order, batched; the last batch holds the shorter remainder.

    >>> [(x.tolist(), y.tolist()) for x, y in windows(np.arange(6), context=3)]
    [([[0, 1, 2]], [[1, 2, 3]]), ([[3, 4]], [[4, 5]])]
    """
    # The last token is only a target, so n tokens hold n - 1 predictions.
    n_whole = (len(tokens) - 1) // context
    for start in range(0, n_whole, WINDOWS_AT_ONCE):
        stop = min(n_whole, start + WINDOWS_AT_ONCE)
        # One token more than the inputs: the last target of a window is the first input of the next.
        span = tokens[start * context : stop * context + 1]
        inputs, targets = span[:-1].reshape(-1, context), span[1:].reshape(-1, context)
        yield torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device)
    remainder = tokens[n_whole * context : len(tokens)]
    if len(remainder) > 1:
        yield (
            torch.from_numpy(remainder[None, :-1].copy()).to(device),
            torch.from_numpy(remainder[None, 1:].copy()).to(device),
        )


@dataclass(frozen=True)
class LossSums:
    """Sums over the tokens that were predicted."""

    nats: float
    correct: int
    count: int
    size_bytes: int | None
    """UTF-8 bytes of those tokens; none where nobody said what the ids stand for."""
    nats_at: np.ndarray
    """By position in the window."""
    seen_at: np.ndarray
    correct_of: np.ndarray | None
    """By class of token; none where the classes are not known."""
    count_of: np.ndarray | None

    def metrics(self) -> dict[str, float]:
        """The metrics of the `loss` suite."""
        loss = self.nats / self.count
        # A diverging model's perplexity overflows before its loss does; the loss keeps the number.
        metrics = {"val/loss": loss, "val/perplexity": math.exp(min(loss, 700.0))}
        if self.size_bytes is not None:
            # nats / ln 2 are bits; per byte, losses under different tokenizers can be compared.
            metrics["val/bits_per_byte"] = self.nats / math.log(2.0) / self.size_bytes
        metrics["val/accuracy"] = self.correct / self.count
        # Early positions have little to go by. The last quarter is empty where no window is that long.
        quarter = max(1, len(self.nats_at) // 4)
        metrics["val/loss_first_quarter"] = float(self.nats_at[:quarter].sum() / self.seen_at[:quarter].sum())
        if self.seen_at[-quarter:].any():
            metrics["val/loss_last_quarter"] = float(self.nats_at[-quarter:].sum() / self.seen_at[-quarter:].sum())
        if self.correct_of is not None and self.count_of is not None:
            shares = {
                kind: float(hits / count)
                for kind, hits, count in zip(TOKEN_CLASSES, self.correct_of, self.count_of, strict=True)
                if count
            }
            # Every class counts alike here, however many tokens it has; otherwise letters would drown
            # digits.
            metrics["val/macro_accuracy"] = sum(shares.values()) / len(shares)
            metrics |= {f"val/accuracy_{kind}": share for kind, share in shares.items()}
        return metrics


def measure_loss(
    model: GPT, tokens: Tokens, byte_lengths: np.ndarray | None, classes: np.ndarray | None = None
) -> dict[str, float]:
    """The `loss` suite on a validation split.

    Without `classes` of the vocabulary, nothing is said by class.
    """
    return sum_losses(model, tokens, byte_lengths, classes).metrics()


def sum_losses(
    model: GPT, tokens: Tokens, byte_lengths: np.ndarray | None, classes: np.ndarray | None = None
) -> LossSums:
    """One pass over one sequence."""
    context, kinds = model.config.context, len(TOKEN_CLASSES)
    nats, correct, count, size = 0.0, 0, 0, 0
    nats_at, seen_at = np.zeros(context), np.zeros(context)
    correct_of, count_of = np.zeros(kinds), np.zeros(kinds)
    for inputs, targets in windows(tokens, context, model.device):
        logits = model(inputs).float()
        # (windows, time, vocabulary) -> (windows * time, vocabulary).
        flat, flat_targets = logits.view(-1, logits.shape[-1]), targets.reshape(-1)
        # Losses in float32, as in training; their sum in float64, which the order of the windows does not move.
        losses = F.cross_entropy(flat, flat_targets, reduction="none").double()
        nats += float(losses.sum())
        right = flat.argmax(dim=-1) == flat_targets
        correct += int(right.sum())
        length = targets.shape[1]
        # By position: the last window may be shorter, and counts where it has tokens.
        nats_at[:length] += losses.view(targets.shape).sum(dim=0).cpu().numpy()
        seen_at[:length] += targets.shape[0]
        if classes is not None:
            # The class of what was to be predicted, not of what was predicted.
            kind = classes[flat_targets.cpu().numpy()]
            correct_of += np.bincount(kind, weights=right.cpu().numpy(), minlength=kinds)
            count_of += np.bincount(kind, minlength=kinds)
        count += flat_targets.numel()
        size += 0 if byte_lengths is None else int(byte_lengths[flat_targets.cpu().numpy()].sum())
    assert count == len(tokens) - 1, (count, len(tokens))
    by_class = (correct_of, count_of) if classes is not None else (None, None)
    return LossSums(nats, correct, count, None if byte_lengths is None else size, nats_at, seen_at, *by_class)


def lengthened(model: GPT, context: int) -> GPT:
    """The same weights in a model of another context length."""
    config = model.config.model_copy(update={"context": context})
    with torch.random.fork_rng(devices=[]):  # building a model draws first values that are thrown away
        longer = GPT(config, model.token.num_embeddings)
    # Rebuilt buffers of positions are no part of a state; every parameter is the trained one itself.
    longer.load_state_dict(model.state_dict(), assign=True)
    return longer.to(model.token.weight.device).eval()


def measure_length(model: GPT, tokens: Tokens) -> dict[str, float]:
    """The `length` suite; empty for learned positions, and for a text with no window that long."""
    context = model.config.context
    if model.config.positions == "learned" or len(tokens) <= context + 1:
        return {}
    # Learned positions have no row beyond the trained length, hence the return above; others are computed for any
    # length.
    longer = lengthened(model, 2 * context)
    sums, counts = np.zeros(2 * context), np.zeros(2 * context)
    for inputs, targets in windows(tokens, 2 * context, model.device):
        logits = longer(inputs).float()
        losses = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1), reduction="none").double()
        length = targets.shape[1]
        sums[:length] += losses.view(targets.shape).sum(dim=0).cpu().numpy()
        counts[:length] += targets.shape[0]
    # Beyond the trained length, against the last quarter within it: what is lost by length and not by lack of
    # context.
    beyond = float(sums[context:].sum() / counts[context:].sum())
    late = slice(context - max(1, context // 4), context)
    return {"length/loss_beyond": beyond, "length/brittleness": beyond - float(sums[late].sum() / counts[late].sum())}


_BY_CATEGORY = {"L": "alphabetic", "M": "alphabetic", "N": "numeric"}


def class_of(piece: bytes) -> str:
    """The class of one token; the rule is documented at `TOKEN_CLASSES`.

    >>> [class_of(piece) for piece in (b" the", b"42", b".", b"\\n", b"", b"\\xc3")]
    ['alphabetic', 'numeric', 'punctuation', 'whitespace', 'end_of_document', 'other']
    """
    if not piece:
        return "end_of_document"
    text = piece.decode("utf-8", errors="ignore")
    if not text:
        return "other"
    first = next((character for character in text if not character.isspace()), "")
    if not first:
        return "whitespace"
    return _BY_CATEGORY.get(unicodedata.category(first)[0], "punctuation")


def classes_of(pieces: Sequence[bytes]) -> np.ndarray:
    """The class of every entry of a vocabulary, as its place in `TOKEN_CLASSES`.

    >>> [TOKEN_CLASSES[place] for place in classes_of([b"the", b"7"])]
    ['alphabetic', 'numeric']
    """
    return np.array([TOKEN_CLASSES.index(class_of(piece)) for piece in pieces], dtype=np.int64)


def by_class(values: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    """The mean of values of tokens, by the class of each; classes without a token are left out.

    >>> by_class(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 2]))
    {'alphabetic': 2.0, 'punctuation': 5.0}
    """
    counts = np.bincount(classes, minlength=len(TOKEN_CLASSES))
    sums = np.bincount(classes, weights=values, minlength=len(TOKEN_CLASSES))
    return {kind: float(total / count) for kind, total, count in zip(TOKEN_CLASSES, sums, counts, strict=True) if count}
