"""Description that no verdict reads: Bayes factors, and estimates less the bias of stopping early.

**Bayes factors** and posteriors of standardised effects, by the model of Rouder et al. 2009 (JZS): differences are
normal, the effect in their SDs has a Cauchy prior of a stated scale about 0, and the variance a Jeffreys prior. The
Bayes factor is pingouin's. The posterior of the effect is the likelihood of t, a mixture over the estimated SD, times
the prior on a grid.

**Early stops.** A study that stops when its evidence is strong stops on lucky means, so that its estimate lies too far
towards what stopped it on average. Whitehead (1986, Biometrika 73:573-581): with b(mu) the bias of the mean at the stop
where the true effect is mu, the adjusted estimate is the mu with mu + b(mu) equal to what was observed. b is simulated:
normal differences of all claims with the covariance that was observed, through the registered rule at its registered
looks (`ablate.judge.interim.run_to_the_stop`), whatever made the study stop. One set of draws serves every mu, and the
mean over all planned seeds, whose bias is known to be 0, is taken off as a control variate. With few seeds the SD is
estimated badly, and what stops a study is often a small SD rather than a large mean; reports/LOG.md has the bias and
the error of this estimate and of others, by simulation.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from ablate.judge.interim import run_to_the_stop
from ablate.judge.stats.paired_t import EQUAL, Floats, exponent_of
from ablate.judge.verdict import Finding
from prereg.registry.looks import Look, looks_of
from prereg.study.spec import Study

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
        differences = np.ldexp(differences, -exponent_of(differences))
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


N_SIMS = 4_000
_STEPS = 12
_ENOUGH = 1e-3
"""Steps end where no estimate moves by more than this share of its SD."""


@dataclass(frozen=True)
class Adjusted:
    """One hypothesis' estimate after the stop."""

    hypothesis: str
    n: int
    """Pairs."""
    observed: float
    """The mean difference."""
    adjusted: float
    """The same less the bias of stopping."""
    error: float
    """Monte Carlo standard error of the bias."""


def adjust(
    study: Study, findings: Sequence[Finding], look: Look | None, *, rng_seed: int = 0, n_sims: int = N_SIMS
) -> tuple[Adjusted, ...]:
    """The adjusted estimate of every finding of a sequential study that stopped before its last look; nothing for any
    other, and where the pairs that the claims share do not vary."""
    if look is None or look.last:
        return ()
    by_seed = [{pair.seed: pair.difference for pair in finding.pairs} for finding in findings]
    shared = [seed for seed in study.seeds if all(seed in one for one in by_seed)]
    values = np.array([[one[seed] for seed in shared] for one in by_seed], dtype=np.float64)
    if len(shared) < 2 or not np.isfinite(values).all() or (np.ptp(values, axis=1) == 0.0).any():
        return ()
    names = [finding.hypothesis for finding in findings]
    observed = values.mean(axis=1)
    centred = values - observed[:, None]
    rng = np.random.default_rng(rng_seed)
    # Normal vectors with the observed covariance, which has no more ranks than there are pairs.
    mixed = rng.standard_normal((n_sims, len(study.seeds), len(shared))) @ centred.T / np.sqrt(len(shared) - 1)
    noise = {name: mixed[:, :, at] for at, name in enumerate(names)}
    scale = values.std(axis=1, ddof=1)
    at = observed.copy()
    for _ in range(_STEPS):
        bias, error = _bias(study, noise, dict(zip(names, at.tolist(), strict=True)))
        moved = observed - bias
        # Half a step: near a bound the bias changes faster than the effect.
        at, before = (at + moved) / 2.0, at
        if (np.abs(at - before) <= _ENOUGH * scale).all():
            break
    return tuple(
        Adjusted(name, len(shared), float(observed[i]), float(at[i]), float(error[i])) for i, name in enumerate(names)
    )


def _bias(study: Study, noise: Mapping[str, Floats], effects: Mapping[str, float]) -> tuple[Floats, Floats]:
    """The bias of the mean at the stop, claim by claim, and its Monte Carlo standard error."""
    differences = {name: values + effects[name] for name, values in noise.items()}
    n_sims = len(next(iter(noise.values())))
    _, stopped, _ = run_to_the_stop(study, differences, None, np.ones((n_sims, len(study.arms)), dtype=bool))
    sizes = np.array([look.n_seeds for look in looks_of(study)])[stopped - 1]
    rows = np.arange(n_sims)
    found = []
    for values in noise.values():
        means = values.cumsum(axis=1)[rows, sizes - 1] / sizes
        found.append(means - values.mean(axis=1))
    table = np.array(found)
    return table.mean(axis=1), table.std(axis=1, ddof=1) / np.sqrt(n_sims)
