"""Scenarios: states of the world that a design looks at, and differences drawn from them.

Differences are drawn on the claims' scales, through the arms: what two claims share by their arms, their differences
share. Seeds are independent. The noise of two metrics in one run is correlated as the state of the world says, each
metric turned so that up is better: a lucky run is lucky in all of them. What all arms of a seed share is drawn for
claims against a constant alone: in a contrast it cancels. The rest of the beliefs is in `assumptions`.
Over new items only what the test reads is drawn (`_with_items`): seeds' means and mean squares, not thousands of items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp, hypot, nan, pi, sqrt
from typing import Literal

import numpy as np
from scipy import special

from ablate.judge.audit.stability import false_alarm_rate
from ablate.judge.design.assumptions import Beliefs, Group, groups_of, over_new_items
from ablate.judge.design.effects import effect_when_true
from ablate.judge.design.reach import planned_sizes
from ablate.judge.judge import ItemsOf
from ablate.judge.readings import scaled
from ablate.judge.stats.null_hypotheses import EDGE
from ablate.judge.stats.significance_tests import Floats, Kept
from ablate.judge.stats.two_way import Tail as TailOfItems
from ablate.judge.stats.two_way import tail_of
from prereg.study.designs.per_task import said_once
from prereg.study.spec import Study

Law = Literal["normal", "exponential", "lognormal", "failed_seed"]
Tail = Literal["against each claim", "better", "worse"]
_FAILED, _FAR_AWAY = 0.1, 100.0
"""Of `failed_seed`: the chance that a seed (without pairs a run) fails without diverging, and how many SDs of the
others it then lies away. About (1 - 0.1)^n of studies with n seeds have none, and show nothing of it."""


@dataclass(frozen=True)
class TrueEffects:
    """One state of the world, before it is simulated."""

    name: str
    effects: dict[str, float]
    law: Law = "normal"
    divergence: float = 0.0
    correlation: float = 0.0
    """Of the noise of two metrics in one run, each turned so that up is better. Below 0 every second metric has the
    luck of the others turned round: of three, the first and the third then go together."""
    alarms: Mapping[str, float] = field(default_factory=dict)
    """Arm -> chance that a run of it, stable in truth, is called unstable; 0 for an arm that is not here."""
    wider: str | None = None
    """The arm whose runs have twice the SD of the others', of a study without pairs; none where all are alike."""
    tail: Tail = "against each claim"
    """Where the long tail of a skewed law lies. Two claims of one difference can each have it against them only in
    different worlds; better or worse is where it lies for the last arm that a claim weighs, in all of them."""


@dataclass(frozen=True)
class Drawn:
    """Simulated studies."""

    differences: dict[str, Floats]
    """By hypothesis: studies x seeds; without pairs the runs, laid out as for `ablate.judge.judge.columns_by_arm`."""
    kept: dict[str, Kept] | None
    """Pairs (or runs) that enter; none when all do."""
    stable: Kept
    """Studies x arms."""
    lost: Kept | None = None
    """Which runs diverged, studies x arms x seeds; none where none can."""
    items: dict[str, ItemsOf] | None = None
    """Of a test over new items, what it knows of them."""


def effect_scenarios(study: Study, *, divergence: float = 0.0, correlation: float = 0.0) -> list[TrueEffects]:
    """The states of the world whose chances a design prints; the worst one is searched for
    (`ablate.judge.design.error_rate`).

    To add a state of the world: a row below. The place of a row seeds its draws, so that a row in the middle moves the
    Monte Carlo error of those after it.
    """
    names, shown = list(study.hypotheses), list(said_once(study).values())
    absences = [name for name in names if study.claims[name].kind.is_absence]
    # True effects: nothing at all, every claim true, and every claim of no change false at its border.
    nothing = dict.fromkeys(names, 0.0)
    gains = all_true(study).effects
    margins = {name: at_margin(study, name) for name in absences}
    harm = gains | margins
    only = {name: nothing | {name: gains[name]} for name in shown if name not in absences and gains[name] != 0.0}
    # The arm of fewest runs: there unequal variances do most harm.
    smallest = min(study.arms, key=lambda arm: len(study.seeds_of(arm)))
    uneven = f"the runs of {smallest} with twice the SD of the others"
    lost = f"{100 * divergence:.3g}% of runs diverge"
    several, unpaired = len(names) > 1, not study.paired

    rows: list[tuple[object, TrueEffects]] = [
        # applies, state of the world
        (True, TrueEffects("no effect anywhere", nothing)),
        (True, TrueEffects("every claim true", gains)),
        *(
            (several and effects != gains, TrueEffects(f"only {name} true, at its smallest", effects))
            for name, effects in only.items()
        ),
        (margins, TrueEffects("gains true, every does_not claim false at its margin", harm)),
        # Of a family per task one represents all; which of them is worst the search sees.
        *(
            (len(margins) > 1, TrueEffects(f"all true but {name}, false at its margin", gains | {name: margins[name]}))
            for name in shown
            if name in margins
        ),
        (True, TrueEffects("no effect anywhere, exponential differences", nothing, "exponential")),
        (True, TrueEffects("no effect anywhere, lognormal differences", nothing, "lognormal")),
        (margins, TrueEffects("does_not claims false at their margins, lognormal differences", harm, "lognormal")),
        (unpaired, TrueEffects(f"no effect anywhere, {uneven}", nothing, wider=smallest)),
        (
            unpaired and margins,
            TrueEffects(f"does_not claims false at their margins, {uneven}", harm, wider=smallest),
        ),
        (divergence, TrueEffects(f"no effect anywhere, {lost}", nothing, divergence=divergence)),
        (divergence, TrueEffects(f"every claim true, {lost}", gains, divergence=divergence)),
    ]
    alarms = alarms_of(study)
    return [replace(state, correlation=correlation, alarms=alarms) for applies, state in rows if applies]


def all_true(study: Study) -> TrueEffects:
    """Every claim true at the effect where its power is stated."""
    gains = {name: effect_when_true(study, name) for name in study.hypotheses}
    return TrueEffects("every claim true", gains, alarms=alarms_of(study))


def alarms_of(study: Study) -> dict[str, float]:
    """Arm -> chance that a stationary run is called unstable, of the arms whose stability the decision reads."""
    # Nothing is known of the steps of a user's own trainer; its runs are taken to be stable.
    return {arm: rate for arm in study.rule.arms_read if (rate := false_alarm_rate(study, arm))}


def at_margin(study: Study, name: str) -> float:
    """The effect that a claim of no change must exclude, at its border."""
    return (study.claims[name].direction or 1) * study.hypotheses[name].smallest


def arm_means(study: Study, effects: Mapping[str, float]) -> dict[Group, Floats] | None:
    """Means of the arms, by metric and scale, that give every claim its effect; none when no means do."""
    means_by_group: dict[Group, Floats] = {}
    for group, names in groups_of(study).items():
        weights = weights_of(study, names)
        sides = np.array([effects[name] for name in names], dtype=np.float64) + constants_of(study, names)
        means = np.asarray(np.linalg.lstsq(weights, sides, rcond=None)[0], dtype=np.float64)
        if not np.allclose(weights @ means, sides, rtol=EDGE, atol=EDGE * max(np.abs(sides).max(), 1e-300)):
            return None
        means_by_group[group] = means
    return means_by_group


def weights_of(study: Study, names: list[str]) -> Floats:
    """Weights of the arms in each claim, hypotheses x arms."""
    return np.array([[study.claims[name].weights.get(arm, 0.0) for arm in study.arms] for name in names])


def constants_of(study: Study, names: list[str]) -> Floats:
    """What each claim's weighted arms are compared with, on its scale: 0 for a contrast."""
    constants = [(study.claims[name].constant, study.hypotheses[name].scale) for name in names]
    scaled_constants = [0.0 if value is None else scaled(value, scale) for value, scale in constants]
    return np.array(scaled_constants, dtype=np.float64)


def drawable(study: Study, truth: TrueEffects) -> str | None:
    """Why a state of the world cannot be drawn; none when it can."""
    if arm_means(study, truth.effects) is None:
        return "the claims cannot all be so at once"
    return None


def draw_studies(
    study: Study, truth: TrueEffects, beliefs: Beliefs, *, n_sims: int, n_seeds: int, rng: np.random.Generator
) -> Drawn:
    """Simulated studies under a truth; every claimed metric has a belief."""
    # Which runs diverge, and the luck that the metrics of one run share: both over studies x arms x seeds.
    means, arms = arm_means(study, truth.effects), list(study.arms)
    assert means is not None, truth
    shape = (n_sims, len(arms), n_seeds)
    # One draw a run, whatever metrics it has: a diverged run is lost to all of them.
    lost = rng.random(shape) < truth.divergence if truth.divergence else None
    planned = _planned(study, n_seeds)
    if lost is not None and not study.paired:
        lost &= planned
    groups = groups_of(study)
    common = rng.standard_normal(shape) if truth.correlation and len(groups) > 1 else None
    constant = {name: study.claims[name].constant is not None for name in study.hypotheses}
    # What arms of a seed share has a luck of its own, which two metrics share as they do that of a run.
    shares = common is not None and any(constant.values())
    common_shared = rng.standard_normal((n_sims, 1, n_seeds)) if shares else None
    differences: dict[str, Floats] = {}
    for place, (group, names) in enumerate(groups.items()):
        belief = beliefs.of(*group)
        assert belief is not None, group
        # Values of a metric by arm. A component that all arms of a seed share cancels in every contrast, so only the
        # rest is drawn for these.
        sd = belief.sd_of_rest
        turned = -1.0 if study.claims[names[0]].better == "lower" else 1.0
        loading = _loading(truth.correlation, place)
        values = means[group][None, :, None] + sd * turned * _noise(rng, shape, common, loading)
        if truth.wider is not None:
            arm = arms.index(truth.wider)
            values[:, arm] = 2.0 * values[:, arm] - means[group][arm]
        if any(constant[name] for name in names):
            seed_luck = _noise(rng, (n_sims, 1, n_seeds), common_shared, loading)
            values = values + belief.sd_shared * turned * seed_luck
        # From values of arms to what each claim is about: runs of its arms, or differences by seed.
        weights, against = weights_of(study, names), constants_of(study, names)
        for hypothesis, own, number in zip(names, weights, against, strict=True):
            if not study.paired:
                tails = _tail(study, hypothesis, truth) * np.sign(own)
                runs = {
                    arm: _skewed(values[:, arm], means[group][arm], sd, truth.law, tails[arm])
                    for arm in _arms(study, hypothesis)
                }
                each = [np.where(planned[arm], drawn, nan) for arm, drawn in runs.items()]
                differences[hypothesis] = np.concatenate(each, axis=1)
                continue
            contrast = _contrast(own, values) - (number if constant[hypothesis] else 0.0)
            sd_of_claim = sd * sqrt(float((own**2).sum()))
            differences[hypothesis] = _skewed(
                contrast,
                truth.effects[hypothesis],
                hypot(sd_of_claim, belief.sd_shared) if constant[hypothesis] else sd_of_claim,
                truth.law,
                _tail(study, hypothesis, truth),
            )
    # The rest of what the judge looks at: stability, pairs that enter, luck of items.
    stable = _stable(arms, lost, truth, shape, rng)
    kept = None if lost is None else _kept(study, lost)
    if not over_new_items(study):
        return Drawn(differences, kept, stable, lost)
    differences, items = _with_items(study, truth, beliefs, differences, kept, rng=rng)
    return Drawn(differences, kept, stable, lost, items)


def _contrast(weights: Floats, values: Floats) -> Floats:
    """Weighted sums over arms, studies x seeds."""
    mine = np.flatnonzero(weights)
    contrast: Floats = weights[mine[0]] * values[:, mine[0]]
    for place in mine[1:]:
        contrast = contrast + weights[place] * values[:, place]
    return contrast


def _kept(study: Study, lost: Kept) -> dict[str, Kept]:
    """Hypothesis -> the pairs that enter, studies x seeds; without pairs the runs, arm after arm."""
    kept: dict[str, Kept] = {}
    for name, claim in study.claims.items():
        if study.paired:
            kept[name] = ~np.any(lost[:, [list(study.arms).index(arm) for arm in claim.named], :], axis=1)
        else:
            kept[name] = ~np.concatenate([lost[:, arm] for arm in _arms(study, name)], axis=1)
    return kept


def _arms(study: Study, name: str) -> list[int]:
    """Places of the arms of a claim among those of the study, in the order of its weights."""
    return [list(study.arms).index(arm) for arm in study.claims[name].weights]


def _planned(study: Study, n_seeds: int) -> Kept:
    """Which runs there are, arms x seeds, where the arm with most has so many: the others keep their proportion."""
    sizes = planned_sizes(study, n_seeds)
    planned: Kept = np.arange(n_seeds)[None, :] < np.array([[sizes[arm]] for arm in study.arms])
    return planned


def _with_items(
    study: Study,
    truth: TrueEffects,
    beliefs: Beliefs,
    differences: dict[str, Floats],
    kept: dict[str, Kept] | None,
    *,
    rng: np.random.Generator,
) -> tuple[dict[str, Floats], dict[str, ItemsOf]]:
    """Seeds' means with the luck of new items, which all seeds share, and the mean squares of items and residuals.

    These are independent of each other and of the seeds' means where everything is normal and there are equally many
    seeds on every item; claims share them as far as they share arms. Of an item (or task) the difference of two arms
    has the SDs of the beliefs, and one of arms weighted by w these times sqrt(sum w^2 / 2).
    """
    names = list(study.hypotheses)
    n_sims, n_seeds = differences[names[0]].shape
    groups = groups_of(study)
    group_of = {name: at for at, named in enumerate(groups.values()) for name in named}
    turned = np.array([-1.0 if study.claims[name].better == "lower" else 1.0 for name in names])
    weights = weights_of(study, names) * turned[:, None] / sqrt(2.0)
    alike = np.array([[_alike(truth.correlation, group_of[a], group_of[b]) for b in names] for a in names])
    # Claims share the luck of items as far as they share arms and metrics: a square root of their covariance, of as
    # many directions as it has rank.
    values, vectors = np.linalg.eigh(weights @ weights.T * alike)
    largest = values > 1e-12 * values[-1]
    directions = vectors[:, largest] * np.sqrt(values[largest])
    luck = rng.standard_normal((n_sims, directions.shape[1])) @ directions.T
    shifted, items = {}, {}
    sums: dict[int, tuple[Floats, Floats]] = {}
    for place, name in enumerate(names):
        belief = beliefs.of(study.claims[name].metric, study.hypotheses[name].scale)
        assert belief is not None, name
        count, by_item, residual = belief.n_items, belief.sd_items, belief.sd_residual
        assert count is not None and by_item is not None and residual is not None, belief
        if count not in sums:
            # Residuals of every number of complete pairs, each with those of the numbers before it.
            each = [_squares(rng, n_sims, count - 1, directions) for _ in range(n_seeds - 1)] if kept else []
            rest = np.cumsum(each, axis=0) if kept else _squares(rng, n_sims, (n_seeds - 1) * (count - 1), directions)
            sums[count] = _squares(rng, n_sims, count - 1, directions), rest
        over_units, rest = (squares[..., place] for squares in sums[count])
        pairs = np.full(n_sims, float(n_seeds))
        if kept is not None:
            # A claim with fewer than two pairs left has no test, whatever these numbers are.
            pairs = np.maximum(2.0, kept[name].sum(axis=1))
            rest = rest[pairs.astype(np.int64) - 2, np.arange(n_sims)]
        shifted[name] = differences[name] + (by_item / sqrt(count) * luck[:, place])[:, None]
        # Mean squares over their degrees of freedom: that of items holds the residual once, over the seeds.
        items[name] = ItemsOf(
            units=(by_item**2 + residual**2 / pairs) * over_units / (count * (count - 1)),
            both=residual**2 * rest / (count * (count - 1) * pairs * (pairs - 1.0)),
            tail=_equal_tail(count),
        )
    return shifted, items


def _squares(rng: np.random.Generator, n_sims: int, df: int, directions: Floats) -> Floats:
    """Sums of squares over df independent normal vectors, along each direction: studies x directions, jointly drawn as
    a Wishart matrix by its Cholesky factor (Bartlett 1933)."""
    rank = directions.shape[1]
    if df < rank:
        return np.asarray(((rng.standard_normal((n_sims, df, rank)) @ directions.T) ** 2).sum(axis=1))
    factor = np.tril(rng.standard_normal((n_sims, rank, rank)), -1)
    factor[:, range(rank), range(rank)] = np.sqrt(rng.chisquare(df - np.arange(rank), (n_sims, rank)))
    return np.asarray(((directions @ factor) ** 2).sum(axis=2))


@lru_cache(maxsize=64)
def _equal_tail(count: int) -> TailOfItems:
    return tail_of(np.full(count, 1.0 / count))


def _loading(correlation: float, place: int) -> float:
    """How much of the variance of a metric's noise the luck of its run is, with a minus sign where it works the other
    way: two metrics are then correlated by plus or minus this."""
    return correlation if place % 2 else abs(correlation)


def _alike(correlation: float, one: int, other: int) -> float:
    """The correlation of the noise of two metrics, by their places among those of the study."""
    return 1.0 if one == other else abs(correlation) if (one - other) % 2 == 0 else correlation


def _noise(rng: np.random.Generator, shape: tuple[int, int, int], common: Floats | None, loading: float) -> Floats:
    if common is None:
        return rng.standard_normal(shape)
    if loading >= 1.0:
        return common
    way = -1.0 if loading < 0.0 else 1.0
    noise: Floats = way * sqrt(abs(loading)) * common + sqrt(1.0 - abs(loading)) * rng.standard_normal(shape)
    return noise


def _stable(
    arms: list[str], lost: Kept | None, truth: TrueEffects, shape: tuple[int, int, int], rng: np.random.Generator
) -> Kept:
    """Which arms are called stable: no run diverged, and none raised a false alarm."""
    stable: Kept = np.ones(shape[:2], dtype=bool) if lost is None else ~np.any(lost, axis=2)
    for place, arm in enumerate(arms):
        alarm = truth.alarms.get(arm, 0.0)
        if alarm > 0.0:
            stable[:, place] &= rng.random(shape[0]) >= 1.0 - (1.0 - alarm) ** shape[2]
    return stable


def _skewed(contrast: Floats, effect: float, sd: float, law: Law, tail: float) -> Floats:
    """The same differences with a skewed law of the same mean and SD, by its quantiles (a Gaussian copula)."""
    if law == "normal":
        return contrast
    # Each law with mean 0 and SD 1, as a function of the normal score z; its long tail is at positive z.
    z = tail * (contrast - effect) / sd
    if law == "exponential":
        shape = -special.log_ndtr(-z) - 1.0  # the quantile of 1 - Phi(-z); mean and SD of Exp(1) are 1
    elif law == "failed_seed":
        # z + a (1{z > c} - q) with chance q beyond c has variance 1 + 2 a phi(c) + a^2 q (1 - q).
        least = -float(special.ndtri(_FAILED))
        together = 2.0 * _FAR_AWAY * exp(-(least**2) / 2.0) / sqrt(2.0 * pi)
        spread = sqrt(1.0 + together + _FAR_AWAY**2 * _FAILED * (1.0 - _FAILED))
        shape = (z + _FAR_AWAY * ((z > least) - _FAILED)) / spread
    else:
        # e^z has mean e^(1/2) and variance (e - 1) e.
        shape = (np.exp(z) - exp(0.5)) / sqrt((exp(1.0) - 1.0) * exp(1.0))
    skewed: Floats = effect + sd * tail * shape
    return skewed


def _tail(study: Study, name: str, truth: TrueEffects) -> float:
    """The sign of a claim's differences at which a skewed law has its long tail."""
    claim = study.claims[name]
    # Against the claim a t test on few seeds errs most often in its favour.
    if truth.tail == "against each claim":
        return -1.0 if claim.favours > 0 else 1.0
    last = [weight for arm in study.arms if (weight := claim.weights.get(arm, 0.0))][-1]
    rises = (truth.tail == "better") != (claim.better == "lower")
    return 1.0 if rises == (last > 0.0) else -1.0
