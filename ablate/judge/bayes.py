"""Bayes factors and posteriors of standardised effects: description that no verdict reads.

The model of Rouder et al. 2009 (JZS): differences are normal, the effect in their SDs has a Cauchy prior of a stated
scale about 0, and the variance a Jeffreys prior. The Bayes factor is pingouin's. The posterior of the effect is the
likelihood of t, a mixture over the estimated SD, times the prior on a grid.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from ablate.judge.stats.paired_t import EQUAL, Floats
from ablate.judge.verdict import Finding

CREDIBLE = 0.95
_GRID = 2001
_FAR = 8.0
"""SDs of the mean beyond which nothing of the posterior is left."""


@dataclass(frozen=True)
class Description:
    """What one hypothesis' pairs say under the prior."""

    hypothesis: str
    n: int
    bayes_factor: float
    """Of some effect against none; above 1 speaks for an effect."""
    effect: float
    """Posterior median of the mean difference in SDs of the differences."""
    low: float
    high: float


def describe(findings: Sequence[Finding], scale: float) -> tuple[Description, ...]:
    """The description of every finding whose pairs are finite and not all alike; others have none."""
    from ablate.judge.pingouin_tests import bayesfactor_ttest

    found = []
    for finding in findings:
        differences = np.array([pair.difference for pair in finding.pairs], dtype=np.float64)
        n = differences.size
        size = float(np.abs(differences).max(initial=0.0))
        if n < 2 or not isfinite(size) or np.ptp(differences) <= EQUAL * size:
            continue
        t = float(differences.mean() / (differences.std(ddof=1) / sqrt(n)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            factor = float(bayesfactor_ttest(t, n, r=scale))
        low, middle, high = quantiles(t, n, scale, (0.5 - CREDIBLE / 2, 0.5, 0.5 + CREDIBLE / 2))
        found.append(Description(finding.hypothesis, n, factor if factor > 0.0 else inf, middle, low, high))
    return tuple(found)


def quantiles(t: float, n: int, scale: float, at: Sequence[float]) -> tuple[float, ...]:
    """Posterior quantiles of the effect in SDs, from a t of n differences."""
    effects, density = posterior(t, n, scale)
    total = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2.0 * np.diff(effects))])
    return tuple(float(np.interp(one * total[-1], total, effects)) for one in at)


def posterior(t: float, n: int, scale: float) -> tuple[Floats, Floats]:
    """A grid of effects and the posterior density there."""
    from scipy import stats

    # The estimated SD over the true one; t is then normal about effect * sqrt(n) / ratio.
    df = n - 1
    law = stats.chi(df, scale=1.0 / sqrt(df))
    ratios = np.linspace(float(law.ppf(1e-10)), float(law.isf(1e-10)), _GRID)
    ends = np.array([t * ratios[0], t * ratios[-1], 0.0]) / sqrt(n)
    ends = np.arcsinh(np.array([ends.min() - _FAR / sqrt(n), ends.max() + _FAR / sqrt(n)]) / scale)
    effects = scale * np.sinh(np.linspace(ends[0], ends[1], _GRID))  # densest about 0, where the prior is steepest
    given = stats.norm.pdf(t * ratios[None, :] - effects[:, None] * sqrt(n)) * (ratios * law.pdf(ratios))[None, :]
    unscaled = np.trapezoid(given, ratios, axis=1) * stats.cauchy.pdf(effects, scale=scale)
    return effects, unscaled / np.trapezoid(unscaled, effects)
