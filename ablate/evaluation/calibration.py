"""Suite calibration: do next-token probabilities mean what they say, over the whole validation split.

Confidence is the largest probability of a position (ties: lowest id is the prediction, as for accuracy). Everything is
taken in float64 from float32 logits. The temperature is fitted on the first half of the split.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ablate.data.batches import Tokens, halves, predictions_in
from ablate.evaluation.loss import windows
from ablate.gpt.model import GPT
from prereg.metrics.catalogue import TEMPERATURES

NODES: Final[tuple[float, ...]] = tuple(2.0 ** (quarter / 4) for quarter in range(-8, 9))
"""Temperatures at which the loss is taken to find the best one: 1/4 to 4."""

_AT_ONCE: Final = 1 << 20
"""Probabilities that are in float64 at one time."""


@dataclass(frozen=True)
class Curve:
    """The reliability curve: tokens, mean confidence and accuracy of every bin; NaN in an empty one."""

    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def expected_error(self) -> float:
        """|accuracy - confidence|, weighted by the tokens of the bins (Naeini et al. 2015); 0 for no tokens."""
        # An empty bin holds NaN, which 0 tokens times NaN would carry into the sum.
        held = self.count > 0
        tokens, gaps = self.count[held], np.abs(self.accuracy[held] - self.confidence[held])
        return float((gaps * tokens).sum() / tokens.sum()) if tokens.size else 0.0


def equal_width(confidence: np.ndarray, correct: np.ndarray, bins: int) -> Curve:
    """Bins (i / bins, (i + 1) / bins]; a confidence of 0 is in the first (Guo et al. 2017).

    >>> curve = equal_width(np.array([0.2, 0.3, 0.9]), correct=np.array([0.0, 1.0, 1.0]), bins=2)
    >>> curve.count, curve.accuracy
    (array([2, 1]), array([0.5, 1. ]))
    >>> round(curve.expected_error, 3)  # (2 x |.5 - .25| + 1 x |1 - .9|) / 3
    0.2
    """
    edges = np.linspace(0.0, 1.0, bins + 1)
    # side="left" puts a confidence on an edge into the bin below it, and 0 below the first: hence the clip.
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    # Divided by NaN and not by 0, so that an empty bin gives NaN without a warning.
    divisor = np.where(count > 0, count, np.nan)
    sums = (np.bincount(place, weights=values, minlength=bins) for values in (confidence, correct))
    mean_confidence, accuracy = (total / divisor for total in sums)
    return Curve(count, mean_confidence, accuracy)


def tempered(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Each token's cross-entropy with logits divided by a temperature, and its derivative by ln temperature.

    With b = 1 / T and logits z: loss = logsumexp(b z) - b z_target; d loss / d ln T = b (z_target - E z), the mean
    under the tempered distribution. Differences from the largest logit are divided, so that a temperature near zero
    gives the limit and no overflow: 0 for the only largest logit, ln n for n that tie.

    >>> loss, slope = tempered(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), temperature=1.0)
    >>> round(float(loss), 4), round(float(slope), 4)  # ln(1 + e^-2); 2 - 2 e^2 / (e^2 + 1)
    (0.1269, 0.2384)
    """
    assert temperature > 0.0, temperature
    # logits: (n, vocabulary), targets: (n,); from here on `shifted` is b (z - max z), at most 0.
    shifted = logits.double()
    shifted = (shifted - shifted.amax(dim=-1, keepdim=True)) / temperature
    log_z = shifted.logsumexp(dim=-1)
    at_target = shifted.gather(-1, targets[:, None]).squeeze(-1)
    # E z under the tempered distribution, in the shifted and divided units, so that b needs no second
    # multiplication.
    mean = ((shifted - log_z[:, None]).exp() * shifted).sum(dim=-1)
    return log_z - at_target, at_target - mean


def best_temperature(losses: np.ndarray, slopes: np.ndarray) -> float:
    """The least point of the cubics through the losses at `NODES` with these slopes by ln T.

    The loss is convex in 1 / T, so it has one minimum at most: it lies where the slope turns, or at an end. Where the
    slope is zero everywhere (a uniform prediction) nothing is gained, and the temperature is 1.

    >>> ln_t = np.log(NODES)
    >>> round(best_temperature(losses=(ln_t - 0.3) ** 2, slopes=2 * (ln_t - 0.3)), 6) == round(math.exp(0.3), 6)
    True
    """
    if not slopes.any():
        return 1.0
    # The first node interval in which the slope changes from falling to rising. Rounding can make several;
    # convexity allows one.
    turns = [i for i in range(len(NODES) - 1) if slopes[i] < 0.0 <= slopes[i + 1]]
    if not turns:
        return NODES[0] if slopes[0] >= 0.0 else NODES[-1]
    here = turns[0]
    low, high = math.log(NODES[here]), math.log(NODES[here + 1])
    width = high - low
    # Hermite's cubic on [0, 1], its derivative set to zero: 3 a u^2 + 2 b u + c = 0.
    rise, start, end = losses[here + 1] - losses[here], slopes[here] * width, slopes[here + 1] * width
    a, b, c = start + end - 2.0 * rise, 3.0 * rise - 2.0 * start - end, start
    root = math.sqrt(max(0.0, b * b - 3.0 * a * c))
    # This form of the root stays exact where the cubic term vanishes.
    share = -c / (b + root) if b + root > 0.0 else 1.0
    return math.exp(low + width * min(1.0, max(0.0, share)))


@dataclass
class _Seen:
    """Sums over the tokens seen so far."""

    confidence: list[np.ndarray] = field(default_factory=list)
    correct: list[np.ndarray] = field(default_factory=list)
    brier: float = 0.0

    def take(self, logits: Tensor, targets: Tensor) -> None:
        p = logits.double().log_softmax(dim=-1).exp()
        # sum over classes of (p - [target])^2 = sum p^2 - 2 p_target + 1.
        p_target = p.gather(-1, targets[:, None]).squeeze(-1)
        self.brier += float((p.square().sum(dim=-1) - 2.0 * p_target + 1.0).sum())
        self.confidence.append(p.amax(dim=-1).cpu().numpy())
        self.correct.append((logits.argmax(dim=-1) == targets).double().cpu().numpy())


def measure_calibration(model: GPT, tokens: Tokens, bins: int) -> dict[str, float]:
    """The `calibration` suite on a validation split, its reliability curve in so many bins."""
    context = model.config.context
    first, second = halves(tokens, context)
    predicted = predictions_in(tokens)
    tallied = _Seen()
    totals = np.zeros(len(TEMPERATURES))
    losses, slopes = np.zeros(len(NODES)), np.zeros(len(NODES))
    # The temperature is fitted on the first half; all rates of the curve are over both.
    # 1. First half: the loss and its slope at every node, to fit the temperature.
    for logits, targets in _predictions(model, first):
        tallied.take(logits, targets)
        at_nodes = [tempered(logits, targets, temperature) for temperature in NODES]
        losses += [float(loss.sum()) for loss, _ in at_nodes]
        slopes += [float(slope.sum()) for _, slope in at_nodes]
    # 2. The temperatures that are metrics by themselves are nodes too, so the first half needs no other pass for
    # them.
    totals += [losses[NODES.index(_node(temperature))] for temperature in TEMPERATURES.values()]
    # A loss under another temperature needs no fit, and is taken over both halves.
    # 3. Second half: rates, and the losses under the fixed temperatures.
    for logits, targets in _predictions(model, second):
        tallied.take(logits, targets)
        totals += [float(tempered(logits, targets, temperature)[0].sum()) for temperature in TEMPERATURES.values()]
    confidence, correct = np.concatenate(tallied.confidence), np.concatenate(tallied.correct)
    # Every token but the first was predicted once in one of the halves; a token counted twice would shift all
    # rates.
    assert confidence.size == predicted, (confidence.size, predicted)
    curve = equal_width(confidence, correct, bins)
    return {
        "calibration/ece": curve.expected_error,
        "calibration/brier": tallied.brier / predicted,
        **{
            f"calibration/loss_t{end}": float(total) / predicted
            for end, total in zip(TEMPERATURES, totals, strict=True)
        },
        "calibration/temperature": best_temperature(losses, slopes),
        **_rows(curve),
    }


def _predictions(model: GPT, tokens: Tokens) -> Iterator[tuple[Tensor, Tensor]]:
    """(logits, targets) of every prediction, in pieces that fit a cache rather than a machine."""
    for inputs, targets in windows(tokens, model.config.context, model.device):
        logits = model(inputs).float()
        flat, flat_targets = logits.view(-1, logits.shape[-1]), targets.reshape(-1)
        # rows x vocabulary probabilities at once: the float64 copies of `tempered` decide the memory, not the
        # model's pass.
        rows = max(1, _AT_ONCE // flat.shape[-1])
        yield from zip(torch.split(flat, rows), torch.split(flat_targets, rows), strict=True)


def _node(temperature: float) -> float:
    """The node that is this temperature, however its root was rounded."""
    return min(NODES, key=lambda node: abs(math.log(node / temperature)))


def _rows(curve: Curve) -> dict[str, float]:
    share = curve.count / curve.count.sum()
    metrics = {f"calibration/bin_share_{i}": float(value) for i, value in enumerate(share)}
    # An empty bin has no mean: no row is better than a NaN that a table would have to explain.
    for i in np.flatnonzero(curve.count):
        metrics[f"calibration/bin_confidence_{i}"] = float(curve.confidence[i])
        metrics[f"calibration/bin_accuracy_{i}"] = float(curve.accuracy[i])
    return metrics
