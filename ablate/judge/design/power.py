"""Power and seeds needed (`ablate design`), by simulating the rule; a paired t's, for `check`: `stats/t_power.py`.

One draw serves all: an effect only shifts the differences, so that the power at another effect, or against another
margin, needs no new studies, and a power is the same number wherever it is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from ablate.judge.design.assumptions import Beliefs, groups_of, over_new_items
from ablate.judge.design.effects import effect_when_true, power_is_stated
from ablate.judge.design.reach import (
    HypothesisDesign,
    attainable,
    first_guess,
    level_of,
    planned_sizes,
    sd_difference,
    standard_error,
)
from ablate.judge.design.scenarios import TrueEffects, all_true, arm_means, constants_of, draw_studies, weights_of
from ablate.judge.design.simulate import SimulatedChance, SimulatedScenario, affordable, simulate
from ablate.judge.judge import AS_IT_IS, OUTCOME, Shifted, judge_p, moved_by, tests_of, weigh
from ablate.judge.stats import t_power
from ablate.judge.stats.null_hypotheses import EDGE
from ablate.judge.stats.significance_tests import Floats
from ablate.judge.stats.unpaired import welch_df
from prereg.frozen import FrozenModel
from prereg.study.spec import Study

MOST_SEEDS = 200
"""More seeds than this are not planned for."""


_MOST_TOGETHER = 9
"""Hypotheses that are corrected together, up to which a detectable difference is looked for: all are judged again at
every difference that is tried."""


class PowerAt(FrozenModel):
    """What a number of seeds can find when every claim is true, by simulation of the registered rule."""

    n: int
    """Seeds."""
    power: dict[str, float]
    """Hypothesis -> the chance that it is supported; of one without an effect at which power is stated none."""
    adopting: SimulatedChance | None
    """The chance of any adopting verdict; none where the claims cannot all be true, and each is simulated by itself."""
    n_sims: int
    """Simulated studies."""


@dataclass
class Planning:
    """The registered rule with every claim true, at any number of seeds."""

    study: Study
    beliefs: Beliefs
    correlation: float
    n_sims: int
    seed: int
    _at: dict[int, PowerAt] = field(default_factory=dict)

    def at(self, n: int, *, n_sims: int | None = None) -> PowerAt:
        """What n seeds can find; with fewer simulated studies than elsewhere if asked for the first time so."""
        if n not in self._at:
            # Memory, and time, grow with the number of seeds; the precision that is needed does not.
            most = affordable(self.study, None if n == self.study.n_seeds else n)
            drawn = min(n_sims or self.n_sims, most, max(1_000, 400_000 // n))
            stated = [name for name in self.study.hypotheses if power_is_stated(self.study, name)]
            together = self._truth(None)
            adopting = None
            if together is not None:
                scenario = self._simulated(together, n, drawn)
                supported, adopting = {chance.of: chance.share for chance in scenario.supported}, scenario.adopting
            else:
                supported = {name: self._alone(name, n, drawn) for name in stated}
            power = {name: supported[name] for name in stated}
            self._at[n] = PowerAt(n=n, power=power, adopting=adopting, n_sims=drawn)
        return self._at[n]

    def _alone(self, name: str, n: int, n_sims: int) -> float:
        """Power of a claim where those that it excludes are not true."""
        scenario = self._simulated(self._truth(name) or all_true(self.study), n, n_sims)
        return next(chance.share for chance in scenario.supported if chance.of == name)

    def _simulated(self, truth: TrueEffects, n: int, n_sims: int) -> SimulatedScenario:
        return simulate(self.study, truth, self.beliefs, n_sims=n_sims, seed=[self.seed, 1_000 + n], n_seeds=n)

    def _truth(self, name: str | None) -> TrueEffects | None:
        """Every claim true; where claims exclude each other none, and for one of them `_possible_with`."""
        truth = all_true(self.study)
        effects = truth.effects
        if arm_means(self.study, effects) is None:
            if name is None:
                return None
            compatible = _together(self.study, _possible_with(self.study, name))
            assert compatible is not None, name
            effects = compatible
        return TrueEffects(truth.name, effects, correlation=self.correlation, alarms=truth.alarms)

    def seeds_for(self, name: str, target: float) -> int | None:
        """Fewest seeds with which the claim is supported with this chance."""
        sd = sd_difference(self.study, name, self.beliefs)
        start = None if sd is None else first_guess(self.study, name, sd, target)
        if self.study.stopping != "fixed" or start is None:
            return None
        # Other tests need a few seeds more than a t; where they need many more, the search would take minutes.
        quick = affordable(self.study, start) >= 10_000
        most = MOST_SEEDS if quick else max(start + 6, 8)

        def enough(n: int) -> bool:
            return attainable(self.study, name, n) and self.at(n).power[name] >= target

        n = min(max(start, 2), most)
        if over_new_items(self.study) or self.study.gate_steps:
            # Items keep their share of the error whatever the seeds, and a gate may stay closed: many seeds more than a
            # t needs, or none enough.
            # Bisection from the guess: power is rising in the seeds here, up to simulation error.
            if not enough(most):
                return None
            high = most
            while n < high:
                middle = (n + high) // 2
                n, high = (n, middle) if enough(middle) else (middle + 1, high)
        # Else one seed at a time from the guess, which is mostly right or off by one.
        while n <= most and not enough(n):
            n += 1
        while n > 2 and enough(n - 1):
            n -= 1
        return n if n <= most else None

    def detectable(self, name: str, target: float = 0.8) -> float | None:
        """The effect, or the margin of a claim of no change, at which the claim is supported with this chance."""
        study = self.study
        error, truth = standard_error(study, name, self.beliefs, study.n_seeds), self._truth(name)
        if error is None or truth is None or not attainable(study, name, study.n_seeds):
            return None
        if study.stopping != "fixed" or len(study.corrected_with(name)) > _MOST_TOGETHER:
            return None
        n, n_sims = study.n_seeds, min(self.n_sims, affordable(study, study.n_seeds), 5_000)
        drawn = draw_studies(
            study, truth, self.beliefs, n_sims=n_sims, n_seeds=n, rng=np.random.default_rng([self.seed, 999])
        )
        names = list(study.corrected_with(name))

        def weighed(hypothesis: str, x: Floats, cases: Sequence[Shifted] = AS_IT_IS) -> list[tuple[Floats, Floats]]:
            return weigh(study, hypothesis, tests_of(study, hypothesis, x, items=drawn.items), n_sims, cases)

        # One draw for every difference that is tried: an effect only shifts it, and a margin only moves the null.
        p = {claimed: weighed(claimed, drawn.differences[claimed])[0] for claimed in names}
        centred = (
            drawn.differences[name] - truth.effects[name]
            if study.paired
            else moved_by(study, name, drawn.differences[name], -truth.effects[name])
        )
        kind, smallest = study.claims[name].kind, study.hypotheses[name].smallest

        sign = study.claims[name].direction or 1

        def powers(sizes: Floats) -> Floats:
            cases = [Shifted(smallest=size) if kind.is_absence else Shifted(sign * size) for size in sizes.tolist()]
            shares = []
            for mine in weighed(name, centred, cases):
                both = [np.stack([(p | {name: mine})[claimed][which] for claimed in names], axis=1) for which in (0, 1)]
                codes = judge_p(study, names, *both).codes
                shares.append(float((codes[:, names.index(name)] == OUTCOME.index("supported")).mean()))
            return np.array(shares)

        runs, df = (n, None) if study.paired else welch_df(study.claims[name].weights, planned_sizes(study, n))
        # Where a paired t would find it, from SDs of a difference to the claim's unit: sqrt(n) standard errors.
        guess = t_power.detectable(kind.power, runs, level_of(study, name), target, df=df) * error * sqrt(runs)
        return _crossing(powers, smallest if kind.has_margin else 0.0, guess, target)


def planned_power(hypothesis: HypothesisDesign, planning: Planning) -> HypothesisDesign:
    """A hypothesis' design with its power, detectable difference and seeds."""
    study, name = planning.study, hypothesis.hypothesis
    effect = effect_when_true(study, name)
    planned_at = planning.at(study.n_seeds)
    update: dict[str, float | int | None] = {"effect": effect, "detectable": planning.detectable(name)}
    if (power := planned_at.power.get(name)) is not None:
        n_sims = planned_at.n_sims
        update |= {
            "power": power,
            "power_error": sqrt(max(power * (1.0 - power), 1.0 / n_sims) / n_sims),
            "seeds_80": planning.seeds_for(name, 0.8),
            "seeds_90": planning.seeds_for(name, 0.9),
        }
    return hypothesis.model_copy(update=update)


def _possible_with(study: Study, name: str) -> list[str]:
    """The claims that are true where one is: that one alone; under a gate also those of the gate that can be true with
    it, in its order, because a gate that never opens would tell nothing of what is behind it."""
    chosen = [name]
    for step in study.gate_steps:
        for candidate in step:
            if candidate != name and _together(study, [*chosen, candidate]) is not None:
                chosen.append(candidate)
    return chosen


def _together(study: Study, chosen: list[str]) -> dict[str, float] | None:
    """The effects when these claims are true and their arms differ as little as that allows; none where they exclude
    each other."""
    # Each metric by itself: arms have one mean for each, and claims about two metrics never exclude each other.
    effects = dict.fromkeys(study.hypotheses, 0.0)
    for names in groups_of(study).values():
        mine = [names.index(name) for name in names if name in chosen]
        weights, constants = weights_of(study, names), constants_of(study, names)
        # From means at which no claim has an effect, or as few as can be: those of contrasts alone are all 0. Of claims
        # that compare one arm with two constants one has an effect whatever is chosen elsewhere.
        means = np.linalg.lstsq(weights, constants, rcond=None)[0]
        if mine:
            targets = np.array([effect_when_true(study, names[at]) for at in mine]) + constants[mine]
            means = means + np.linalg.lstsq(weights[mine], targets - weights[mine] @ means, rcond=None)[0]
            if not np.allclose(
                weights[mine] @ means, targets, rtol=EDGE, atol=EDGE * max(np.abs(targets).max(), 1e-300)
            ):
                return None
        elif np.allclose(weights @ means, constants, rtol=EDGE, atol=0.0):
            continue
        effects |= {name: float(effect) for name, effect in zip(names, weights @ means - constants, strict=True)}
    return effects


def _crossing(powers: Callable[[Floats], Floats], low: float, guess: float, target: float) -> float | None:
    """Where power first reaches the target beyond `low`: on a coarse grid about a guess, then on a fine one, then on a
    line between two of its points. None where it does not within eight times the guess."""
    for times in (1.0, 2.0, 4.0):
        # Eight sizes on each grid: power is smooth, and each costs a judgement of all studies.
        grid = low + guess * times * np.linspace(0.25, 2.0, 8)
        reached = np.flatnonzero(powers(grid) >= target)
        if reached.size:
            break
    else:
        return None
    at = int(reached[0])
    if at == 0:
        return float(grid[0])
    grid = np.linspace(grid[at - 1], grid[at], 6)
    reached_power = powers(grid)
    at = max(1, int(np.flatnonzero(reached_power >= target)[0]))
    share = (target - reached_power[at - 1]) / (reached_power[at] - reached_power[at - 1])
    return float(grid[at - 1] + share * (grid[at] - grid[at - 1]))
