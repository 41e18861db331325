"""Welch's test of arms whose runs are no pairs: its samples, and what planning needs of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from ablate.judge.stats.significance_tests import Floats, NoTestError, Welch
from prereg.study.analysis import LEAST_RUNS


@dataclass(frozen=True)
class Sample:
    """The runs of one arm of a claim."""

    arm: str
    weight: float
    """Of the arm's mean in the effect."""
    seeds: tuple[int, ...]
    values: Floats
    """On the claim's scale, in the order of the seeds."""


def welch(samples: Sequence[Sample]) -> Welch:
    """Welch's t of the runs of every arm. Raises `NoTestError` where an arm has too few.

    Examples
    --------
    >>> first = Sample("a", 1.0, (1, 2, 3), np.array([4.0, 5.0, 6.0]))
    >>> second = Sample("b", -1.0, (4, 5, 6), np.array([1.0, 2.0, 3.0]))
    >>> welch([first, second]).df.round(6).tolist()  # equal variances and sizes: n1 + n2 - 2
    [4.0]
    """
    short = [f"{sample.arm} has {sample.values.size}" for sample in samples if sample.values.size < LEAST_RUNS]
    if short:
        raise NoTestError(f"{', '.join(short)} run(s); a test without pairs needs at least {LEAST_RUNS} of every arm")
    # One row a study: (1, runs of the arm), already weighted, so that Welch's statistic is the sum of the arms'
    # means.
    return Welch([sample.weight * np.asarray(sample.values, dtype=np.float64)[None, :] for sample in samples])


def welch_df(weights: Mapping[str, float], sizes: Mapping[str, int]) -> tuple[float, float]:
    """For planning with equal variances: runs per arm of an equal design as precise, and the degrees of
    freedom of Satterthwaite's approximation.

    Examples
    --------
    12 and 4 runs are as precise as 6 and 6 (the harmonic mean), and have fewer degrees of freedom.

    >>> welch_df({"a": 1.0, "b": -1.0}, {"a": 12, "b": 4})
    (6.0, 5.176470588235294)
    """
    # w^2 / n of each arm, in units of the common variance: df = (sum)^2 / sum(part^2 / (n - 1)) (Satterthwaite
    # 1946).
    parts = {arm: weight**2 / sizes[arm] for arm, weight in weights.items()}
    total = sum(parts.values())
    df = total**2 / sum(part**2 / (sizes[arm] - 1) for arm, part in parts.items())
    return sum(weight**2 for weight in weights.values()) / total, df


def proportional(size: int, most: int, new_most: int) -> int:
    """Runs of an arm where the largest has `new_most` instead of `most`: in proportion, rounded up, and as
    many as a test needs.

    Examples
    --------
    >>> proportional(4, most=12, new_most=20)
    7
    """
    # Rounded up: an arm may get relatively more runs, never fewer than registered in proportion.
    return size if new_most == most else max(LEAST_RUNS, ceil(size * new_most / most))
