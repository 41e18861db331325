"""One evaluation: the registered suites, in one place, on a model at rest. The measuring contract.

A suite is a function of the model and the validation split that returns `{metric: value}`, with names
declared in `prereg.metrics.catalogue`. It may not change the model or draw random numbers. It does not read the clock
either (`cost` alone does, in `ablate.evaluation.cost`): a caller that wants times passes a clock to `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ablate.data.batches import Pooled, Tokens
from ablate.evaluation.activations import measure_activations
from ablate.evaluation.calibration import measure_calibration
from ablate.evaluation.loss import measure_length, measure_loss
from ablate.training.model import GPT
from prereg.metrics.catalogue import METRICS, Suite
from prereg.study.measure import Calibration


def evaluate(
    model: GPT,
    tokens: Tokens | Pooled,
    byte_lengths: np.ndarray | None,
    suites: tuple[Suite, ...],
    *,
    classes: np.ndarray | None = None,
    calibration: Calibration | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[str, float]:
    """Every metric of the registered suites that is read off a model at rest, and the seconds of each by a clock.

    `classes` holds the class of each entry of the vocabulary (`ablate.evaluation.loss`); without it, nothing is said by
    class of token.
    """
    bins = (calibration or Calibration()).bins
    measures: dict[Suite, Callable[[], dict[str, float]]] = {
        "loss": lambda: measure_loss(model, tokens, byte_lengths, classes),
        "calibration": lambda: measure_calibration(model, tokens, bins),
        "activations": lambda: measure_activations(model, tokens, classes),
        "length": lambda: measure_length(model, tokens),
    }
    found: dict[str, float] = {}
    model.eval()
    with torch.inference_mode():
        for suite, measure in measures.items():
            if suite not in suites:
                continue
            started = clock() if clock is not None else 0.0
            found |= measure()
            if clock is not None:
                found[f"speed/measure_{suite}_s"] = clock() - started
    model.train()
    unknown = {metric for metric in found if metric not in METRICS}
    assert not unknown, unknown
    return found
