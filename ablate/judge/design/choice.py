"""Tuned comparison in a design: what a pilot that misses the best setting does to it.

The tests hold their level for the arms at the frozen settings. A verdict about the arms at their best settings needs
more: two arms that are equal there differ where the pilot froze the best setting of one and another of the other. How
often that ends as `supported` depends on how much worse the other settings are, so the largest chance over several gaps
is given.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from ablate.judge.design.assumptions import Beliefs
from ablate.judge.judge import tests_of, weigh
from ablate.judge.stats.null_hypotheses import nulls_in
from ablate.judge.stats.significance_tests import Floats
from prereg.study.spec import Study
from prereg.text import compact, counted

GAPS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""How much worse all settings but the best are, in SDs of a run."""


def notes_on_choice(study: Study, believed: Beliefs, *, n_sims: int, seed: int) -> list[str]:
    """What a pilot does to the claims that are tested after it; none where nothing is chosen by one."""
    if study.tune is None:
        return []
    settings = study.tune.of(tuple(study.arms))
    n_settings = max(len(listed) for listed in settings.values())
    notes = [
        "error rates and power are those of the arms at the settings that the pilot freezes; no pilot run enters a test"
    ]
    for name, claim in study.claims.items():
        belief = believed.of(claim.metric, study.hypotheses[name].scale)
        # Only a claim about the metric that the pilot chose by, with a known SD, and of a fixed number of seeds:
        # elsewhere how much a bad choice costs is not known.
        tuned = [arm for arm in claim.weights if arm in settings]
        if claim.metric != study.tune.choose_by or belief is None or not tuned or study.stopping != "fixed":
            continue
        error, gap = worst_choice(study, name, sd=belief.sd, correlation=belief.correlation, n_sims=n_sims, seed=seed)
        n_pilot = counted(len(study.tune.seeds), "seed")
        notes.append(
            f"{name}, read as a claim about the arms at their best of {n_settings} settings: where it is false there "
            f"and every other setting is {compact(gap)} SD of a run worse, it is supported in {100 * error:.1f}%, "
            f"because a pilot of {n_pilot} misses the best one; more of them lower it (n = {len(study.seeds)} seeds, "
            f"{n_sims:,} simulated studies, the worst of gaps from {compact(GAPS[0])} to {compact(GAPS[-1])} SD)"
        )
    return notes


def worst_choice(
    study: Study, name: str, *, sd: float, correlation: float, n_sims: int, seed: int
) -> tuple[float, float]:
    """The largest chance of a false `supported` at the arms' best settings, before correction, and its gap in SDs."""
    claim, tune, n = study.claims[name], study.tune, len(study.seeds)
    assert tune is not None, study.study
    settings = tune.of(tuple(study.arms))
    sizes = {arm: len(settings.get(arm, ((),))) for arm in claim.weights}
    support, _ = nulls_in(study, name)
    # The claim lies on the border of its null, where a false support is most likely.
    border, sign = support.points[0][0], 1.0 if claim.better != "higher" else -1.0
    errors = []
    for place, gap in enumerate(GAPS):
        rng = np.random.default_rng([seed, place])
        # Mean noise of every setting over the pilot's seeds, studies x settings, arm after arm; and noise of the
        # judged runs, studies x arms x seeds. No run is in both.
        pilot = _noise(rng, (n_sims, sum(sizes.values()), len(tune.seeds)), correlation).mean(axis=2)
        judged = _noise(rng, (n_sims, len(sizes), n), correlation)
        differences, start = np.full((n_sims, n), border), 0
        for at, (arm, weight) in enumerate(claim.weights.items()):
            # The first setting is the best, all others are worse by the gap; the pilot picks the lowest mean.
            losses = np.full(sizes[arm], gap)
            losses[0] = 0.0
            # Of an arm that is not tuned there is one setting, its best.
            chosen = (pilot[:, start : start + sizes[arm]] + losses).argmin(axis=1)
            differences += weight * sd * (judged[:, at] + sign * losses[chosen][:, None])
            start += sizes[arm]
        ((p, _),) = weigh(study, name, tests_of(study, name, differences, rng_seed=seed), n_sims)
        errors.append((float((p <= study.analysis.alpha).mean()), gap))
    return max(errors)


def _noise(rng: np.random.Generator, shape: tuple[int, int, int], correlation: float) -> Floats:
    """Standard normal noise of runs, correlated between the runs of one seed."""
    shared = rng.standard_normal((shape[0], 1, shape[2]))
    own = rng.standard_normal(shape)
    noise: Floats = sqrt(max(correlation, 0.0)) * shared + sqrt(1.0 - max(correlation, 0.0)) * own
    return noise
