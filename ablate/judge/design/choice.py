"""What a pilot that misses the best setting does to a tuned comparison, by simulation through the judge's own tests.

The tests hold their level for the arms at the frozen settings. A verdict about the arms at their best settings needs
more: two arms that are equal there differ where the pilot froze the best setting of one and another of the other. How
often that ends as `supported` depends on how much worse the other settings are, so the largest chance over several
gaps is given.

The tests of a path have no such second reading: a claim is about the step that the pilot froze. What is simulated is
how often the pilot of a round takes the best part.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from ablate.judge.design.assumptions import Beliefs
from ablate.judge.stats.null_hypotheses import nulls_of
from ablate.judge.stats.paired_t import Floats
from ablate.judge.stats.vectorized_judge import batchable, weigh_rows
from prereg.study.designs.components import Components
from prereg.study.spec import Study
from prereg.text import compact, counted, listed

GAPS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""How much worse all settings but the best are, in SDs of a run."""


def notes_on_choice(study: Study, believed: Beliefs, *, n_sims: int, seed: int) -> list[str]:
    """What a pilot does to the claims that are tested after it; none where nothing is chosen by one."""
    if isinstance(study.piloting, Components):
        return [_note_on_path(study, study.piloting, believed, n_sims=n_sims, seed=seed)]
    if study.tune is None:
        return []
    settings = study.tune.of(tuple(study.arms))
    n_settings = max(len(listed) for listed in settings.values())
    notes = [
        "error rates and power are those of the arms at the settings that the pilot freezes; no pilot run enters a test"
    ]
    for name, claim in study.claims.items():
        belief = believed.of(claim.metric, study.hypotheses[name].scale)
        tuned = [arm for arm in claim.weights if arm in settings]
        if (
            claim.metric != study.tune.choose_by
            or belief is None
            or not tuned
            or not batchable(study, len(study.seeds))
        ):
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


def _note_on_path(study: Study, components: Components, believed: Beliefs, *, n_sims: int, seed: int) -> str:
    said = (
        "error rates and power are those of the steps of the path that the pilot freezes, whichever parts they take; "
        "no pilot run enters a test, so the tests keep their level whatever the pilot chose"
    )
    belief = believed.of(components.choose_by, "raw")
    if belief is None:
        return said
    shares = [
        f"{100 * taken_first(components, gap, belief.correlation, n_sims=n_sims, seed=seed):.0f}% at {compact(gap)} SD"
        for gap in (0.5, 1.0, 2.0)
    ]
    return (
        f"{said}. Where one part is better than every other by so many SDs of a run, the pilot takes the best part "
        f"first in {listed(shares)} (first round, {counted(len(components.parts), 'candidate')}, "
        f"n = {counted(len(components.seeds), 'pilot seed')}, {n_sims:,} simulated rounds)"
    )


def taken_first(components: Components, gap: float, correlation: float, *, n_sims: int, seed: int) -> float:
    """The chance that the first round of a path takes the part that is better than every other by `gap` SDs of a run,
    the last of the file, which loses ties."""
    shape = (n_sims, len(components.parts), len(components.seeds))
    means = _noise(np.random.default_rng([seed, round(1_000 * gap)]), shape, correlation).mean(axis=2)
    means[:, -1] -= gap
    return float((means.argmin(axis=1) == shape[1] - 1).mean())


def worst_choice(
    study: Study, name: str, *, sd: float, correlation: float, n_sims: int, seed: int
) -> tuple[float, float]:
    """The largest chance of a false `supported` at the arms' best settings, before correction, and its gap in SDs."""
    claim, tune, n = study.claims[name], study.tune, len(study.seeds)
    assert tune is not None, study.study
    settings = tune.of(tuple(study.arms))
    sizes = {arm: len(settings.get(arm, ((),))) for arm in claim.weights}
    support, _ = nulls_of(claim.verb, claim.better, study.hypotheses[name].smallest)
    border, sign = support.points[0][0], 1.0 if claim.better != "higher" else -1.0
    found = []
    for place, gap in enumerate(GAPS):
        rng = np.random.default_rng([seed, place])
        pilot = _noise(rng, (n_sims, sum(sizes.values()), len(tune.seeds)), correlation).mean(axis=2)
        judged = _noise(rng, (n_sims, len(sizes), n), correlation)
        differences, start = np.full((n_sims, n), border), 0
        for at, (arm, weight) in enumerate(claim.weights.items()):
            losses = np.full(sizes[arm], gap)
            losses[0] = 0.0
            # Of an arm that is not tuned there is one setting, its best.
            chosen = (pilot[:, start : start + sizes[arm]] + losses).argmin(axis=1)
            differences += weight * sd * (judged[:, at] + sign * losses[chosen][:, None])
            start += sizes[arm]
        p, _ = weigh_rows(study, name, differences, rng_seed=seed)
        found.append((float((p <= study.analysis.alpha).mean()), gap))
    return max(found)


def _noise(rng: np.random.Generator, shape: tuple[int, int, int], correlation: float) -> Floats:
    """Standard normal noise of runs, correlated between the runs of one seed."""
    shared = rng.standard_normal((shape[0], 1, shape[2]))
    own = rng.standard_normal(shape)
    found: Floats = sqrt(max(correlation, 0.0)) * shared + sqrt(1.0 - max(correlation, 0.0)) * own
    return found
