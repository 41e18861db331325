"""Are the answers' probabilities right? Expected calibration error and Brier score over choices.

The probability of a choice is the softmax over the log-likelihoods of all choices: of whole sentences it is sharp, and
an untrained model is confidently wrong; divided by the choices' lengths it is mild. Both are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BINS = 15
"""As many bins of equal width as Guo et al. (2017) use."""


def probabilities(scores: Sequence[float]) -> Floats:
    """The softmax of log-likelihoods."""
    values = np.asarray(scores, dtype=np.float64)
    shifted = np.exp(values - values.max())
    return np.asarray(shifted / shifted.sum())


def brier(asked: Sequence[tuple[Floats, int]]) -> float:
    """Mean squared distance between the probabilities and the right answer, summed over choices (Brier 1950)."""
    total = 0.0
    for chances, gold in asked:
        truth = np.zeros_like(chances)
        truth[gold] = 1.0
        total += float(((chances - truth) ** 2).sum())
    return total / len(asked)


def calibration_error(asked: Sequence[tuple[Floats, int]]) -> float:
    """Expected calibration error (Guo et al. 2017): |accuracy - confidence|, over bins of confidence, weighted by n."""
    sure = np.array([chances.max() for chances, _ in asked])
    right = np.array([float(chances.argmax() == gold) for chances, gold in asked])
    # Bins are half open to the left: a confidence of exactly 1 falls into the last.
    places = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(places, weights=right - sure, minlength=BINS)
    return float(np.abs(gaps).sum() / len(asked))
