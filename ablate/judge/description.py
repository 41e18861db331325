"""Estimates less the bias of stopping early, which no verdict reads.

A study that stops when its evidence is strong stops on lucky means, so that its estimate lies too far
towards what stopped it on average. Whitehead (1986, Biometrika 73:573-581): with b(mu) the bias of the mean at the stop
where the true effect is mu, the adjusted estimate is the mu with mu + b(mu) equal to what was observed. b is simulated:
normal differences of all claims with the covariance that was observed, through the registered rule at its registered
looks (`ablate.judge.interim.run_to_the_stop`), whatever made the study stop. One set of draws serves every mu, and the
mean over all planned seeds, whose bias is known to be 0, is taken off as a control variate. With few seeds the SD is
estimated badly, and what stops a study is often a small SD rather than a large mean; reports/LOG.md has the bias and
the error of this estimate and of others, by simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.judge.interim import run_to_the_stop
from ablate.judge.stats.paired_t import Floats
from ablate.judge.verdict import Finding
from prereg.registry.looks import Look, looks_of
from prereg.study.spec import Study

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
