"""One evaluation: the registered suites, in one place, on a model at rest. The measuring contract.

A suite is a function of the model and the validation split that returns `{metric: value}`, with names
declared in `prereg.metrics`. It may not change the model, draw random numbers, or read the clock.
"""

from __future__ import annotations

import numpy as np
import torch

from ablate.gpt.model import GPT
from ablate.gpt.tokens import Pooled, Tokens
from ablate.measure.activations import measure_activations
from ablate.measure.loss import measure_loss
from prereg.metrics import METRICS, Suite


def evaluate(
    model: GPT, tokens: Tokens | Pooled, byte_lengths: np.ndarray | None, suites: tuple[Suite, ...]
) -> dict[str, float]:
    """Every metric of the registered suites that is read off a model at rest."""
    found: dict[str, float] = {}
    model.eval()
    with torch.inference_mode():
        if "loss" in suites:
            found |= measure_loss(model, tokens, byte_lengths)
        if "activations" in suites:
            found |= measure_activations(model, tokens)
    model.train()
    unknown = {metric for metric in found if metric not in METRICS}
    assert not unknown, unknown
    return found
