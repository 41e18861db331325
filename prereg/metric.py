"""What the declaration of a metric says, and the suites that metrics come in. The metrics: `prereg.metrics`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Better = Literal["lower", "higher", "neither"]
Suite = Literal["loss", "calibration", "activations", "gradients", "speed", "length", "cost"]
Counted = Literal["", "block", "bin"]


@dataclass(frozen=True)
class Metric:
    """The declaration of one metric."""

    name: str
    unit: str
    better: Better
    suite: Suite | Literal["own"]
    definition: str
    repeatable: bool = True
    """Whether the same seed on the same machine gives the same bits (timings do not)."""
    raw_scale: bool = True
    """Whether a mean of raw differences is a sensible estimand (perplexity wants its logarithm)."""
    reference: str = ""
    """Who defined it, author and year; nothing where the definition is plain arithmetic."""
    counted: Counted = ""
    """What the number in its name counts, for one of a family."""


@dataclass(frozen=True)
class SuiteDeclaration:
    """What a suite looks at, and what it costs."""

    about: str
    cost: str
    only_at_end: bool = False
    """Whether it can only be measured at a run's last step."""


SUITES: Final[dict[Suite, SuiteDeclaration]] = {
    "loss": SuiteDeclaration("how well the model predicts", "one forward pass over the whole validation split"),
    "calibration": SuiteDeclaration(
        "whether its probabilities mean what they say",
        "one forward pass over the whole validation split, and 17 softmaxes per token on half of it, 6 on the rest",
    ),
    "activations": SuiteDeclaration(
        "what flows inside", "one forward pass over the first 16 validation windows, with everything between kept"
    ),
    "gradients": SuiteDeclaration(
        "how the weights move",
        "one gradient norm per block per step, and a copy of the weights in the step before an evaluation",
    ),
    "speed": SuiteDeclaration("how long training and measuring take", "nothing: clocks are read anyway"),
    "length": SuiteDeclaration(
        "what happens beyond the context length that was trained",
        "one forward pass over the whole validation split, in windows of twice the context",
    ),
    "cost": SuiteDeclaration(
        "what a trained model costs to use, and training in arithmetic, memory and energy",
        "the registered number of forward passes over one batch, and four matrix products",
        only_at_end=True,
    ),
}
"""Every suite; a study names those it wants, at every evaluation (`suites`) or at the last step alone (`at_end`)."""
