"""One test of per-seed differences by itself, without a study: its estimate, or its p against a null."""

from __future__ import annotations

import numpy as np

from ablate.judge.stats.estimate import prepare, summarise
from ablate.judge.stats.paired_t import Floats, Side
from ablate.judge.verdict import Estimate
from prereg.study.analysis import Test, Zeros


def estimate(
    differences: Floats, method: Test, *, alpha: float, rng: np.random.Generator, zeros: Zeros = "pratt"
) -> Estimate:
    """The effect, its two-sided interval at 1 - alpha and the two-sided p against zero, without any correction."""
    return summarise(prepare(differences, method, rng, zeros), alpha)


def p_against(differences: Floats, method: Test, *, null: float, side: Side, rng: np.random.Generator) -> float:
    """p of the null; `greater` is evidence that the effect is above it."""
    return prepare(differences, method, rng).p(null, side)
