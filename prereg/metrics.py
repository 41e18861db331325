"""Every metric the built-in trainer records: name, unit, which way is better, how it is defined.

The trainer writes these names, claims are checked against them, the judge reads the direction of
`does_not_worsen` here, and reports take their units from here. A metric is defined once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "neither"]
Suite = Literal["loss", "calibration", "activations", "gradients", "speed"]


@dataclass(frozen=True)
class Metric:
    """The declaration of one metric."""

    name: str
    unit: str
    better: Better
    suite: Suite
    definition: str
    repeatable: bool = True
    """Whether the same seed on the same machine gives the same bits (timings do not)."""
    raw_scale: bool = True
    """Whether a mean of raw differences is a sensible estimand (perplexity wants its logarithm)."""


_DECLARED = (
    Metric(
        "train/loss",
        "nats/token",
        "lower",
        "loss",
        "mean cross-entropy of the step's own batch, before the update, with dropout as trained",
    ),
    Metric(
        "val/loss",
        "nats/token",
        "lower",
        "loss",
        "mean cross-entropy over every token of the validation split, in disjoint windows of the context length",
    ),
    Metric("val/perplexity", "", "lower", "loss", "exp(val/loss)", raw_scale=False),
    Metric(
        "val/bits_per_byte",
        "bits/byte",
        "lower",
        "loss",
        "summed cross-entropy over the validation split / ln 2 / bytes of its UTF-8 text",
    ),
    Metric(
        "val/accuracy",
        "share",
        "higher",
        "loss",
        "share of validation tokens that are the most probable next token (ties: lowest id)",
    ),
    Metric(
        "grad/norm",
        "",
        "neither",
        "gradients",
        "global L2 norm of the gradient before clipping, mean over the steps since the last evaluation",
    ),
    Metric(
        "embedding/norm",
        "",
        "neither",
        "activations",
        "mean over validation positions (first 16 windows) of the L2 norm of the first block's input",
    ),
    Metric(
        "speed/tokens_per_s",
        "tokens/s",
        "higher",
        "speed",
        "training tokens consumed / seconds in training steps, evaluation left out",
        repeatable=False,
    ),
    Metric("speed/eval_s", "s", "lower", "speed", "seconds spent in evaluation so far", repeatable=False),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _DECLARED}
