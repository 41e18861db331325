"""The false-positive rate of a whole rule: the largest chance of a false adoption over states of the world.

Holm's correction holds an error rate per role. What a decision list makes of several roles has no such bound: a rule
that adopts on "supported(gain) and not refuted(harm)" adopts almost always when the gain is large and the harm lies at
its margin. A gate holds that no better. So the worst case is searched for:

    effects       every hypothesis at no effect, at its margin, far beyond it and far the other way, in all combinations
                  that means of arms can give
    correlation   of the noise of two metrics: 0, 0.5 and 1, or the one that `assume` gives

The search draws few studies and the cases that come out worst are drawn afresh with many, so that the rate is not the
luckiest of a thousand. With fixed seeds and few hypotheses all cases share one set of draws; elsewhere (looks, an
e-process, more hypotheses) each is judged by itself, and where that would take too long nothing is searched:
`unsearched` says so, and the largest rate of the printed scenarios is a lower bound. Differences are normal and no run
diverges; skewed differences and divergence are scenarios of their own, because no test over few seeds holds its level
there.

And what a pilot that misses the best setting does to a tuned comparison. The tests hold their level for the arms at the
frozen settings. A verdict about the arms at their best settings needs more: two arms that are equal there differ where
the pilot froze the best setting of one and another of the other. How often that ends as `supported` depends on how much
worse the other settings are, so the largest chance over several gaps is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from math import sqrt

import numpy as np
import numpy.typing as npt

from ablate.judge.design.assumptions import Beliefs, groups_of
from ablate.judge.design.effects import effect_when_true
from ablate.judge.design.reach import standard_error
from ablate.judge.design.scenarios import Law, TrueEffects, alarms_of, constants_of, draw, weights_of
from ablate.judge.design.simulate import (
    Scenario,
    adopting_verdicts,
    affordable,
    harmful_verdicts,
    is_true,
    searchable,
    simulate,
)
from ablate.judge.judge import OUTCOME, Shifted, judge_p, tests_of, weigh
from ablate.judge.stats.null_hypotheses import nulls_in
from ablate.judge.stats.tests import Floats
from prereg.study.designs.per_task import said_once
from prereg.study.spec import Study
from prereg.text import compact, counted

CORRELATIONS = (0.0, 0.5, 1.0)
_FAR = 40.0
"""Effects far beyond a margin, in standard errors of the mean difference: any test finds them."""
_MOST_CASES = 4_096
_CONFIRMED = 3
_FEW = 200
"""Studies of a case that is judged by itself."""
_RANKED_AGAIN, _AGAIN = 10, 1_000
"""How many of these are ranked again, by so many studies each."""
_SEARCHED = 10
"""What such a search may cost, in scenarios."""
_PASSES = 8
"""Times that a search by one hypothesis after the other asks for every state of each, about."""


def correlations(study: Study) -> tuple[float, ...]:
    """The correlations of metrics to look at: the assumed one, or all; one metric has none."""
    if len(groups_of(study)) < 2:
        return (0.0,)
    known = study.assume.metric_correlation
    return CORRELATIONS if known is None else (known,)


def worst_case(
    study: Study, beliefs: Beliefs, named: list[TrueEffects], *, n_sims: int, seed: int
) -> tuple[Scenario, ...]:
    """The state of the world with the largest chance of a false adoption, the same with skewed differences, and with
    seeds that fail; nothing when the rule adopts nothing.

    `named` are the printed scenarios, and all that is tried where nothing is searched (`unsearched`).
    """
    if not adopting_verdicts(study):
        return ()
    few = 0
    plain = [one for one in named if one.law == "normal" and not one.divergence]
    ranked: list[tuple[float, dict[str, float], float]] = []
    tables = _tables(study) if searchable(study) else []
    for at, correlation in enumerate(correlations(study)):
        own = [seed, 2_000 + at]
        if tables:
            few = max(200, n_sims // 20)
            search: _Search = _Screen(study, beliefs, correlation, tables, n_sims=few, seed=own)
            cases = list(search.cases())
        else:
            few = max(200, n_sims // 10) if unsearched(study) else min(_FEW, n_sims)
            search = _OneByOne(study, beliefs, correlation, n_sims=few, seed=own)
            cases = [tuple(truth.effects.items()) for truth in plain]
            cases += [] if unsearched(study) else search.cases()
        ranked += [(search.share(case), dict(case), correlation) for case in cases]
    if not ranked:
        return ()
    ranked.sort(key=lambda one: -one[0])

    def drawn(at: int, laws: Iterable[Law]) -> Iterator[Scenario]:
        _, effects, correlation = ranked[at]
        for law in laws:
            name = _named(study, effects, correlation, law)
            truth = TrueEffects(name, effects, law, correlation=correlation, alarms=alarms_of(study))
            yield simulate(study, truth, beliefs, n_sims=n_sims, seed=[seed, 3_000 + at])

    # Few studies rank small chances badly: the better ones are ranked again by more, and the best drawn in full.
    again = min(n_sims, _AGAIN)
    for at, (_, effects, correlation) in enumerate(ranked[:_RANKED_AGAIN] if again > few and not tables else []):
        truth = TrueEffects("", effects, correlation=correlation, alarms=alarms_of(study))
        found = simulate(study, truth, beliefs, n_sims=again, seed=[seed, 4_000]).false_adopting
        ranked[at] = (0.0 if found is None else found.share, effects, correlation)
    ranked[:_RANKED_AGAIN] = sorted(ranked[:_RANKED_AGAIN], key=lambda one: -one[0])
    confirmed = [next(drawn(at, ["normal"])) for at in range(min(_CONFIRMED, len(ranked)))]
    at = int(np.argmax([0.0 if one.false_adopting is None else one.false_adopting.share for one in confirmed]))
    return (confirmed[at], *drawn(at, ["exponential", "lognormal", "failed_seed"]))


def unsearched(study: Study) -> str:
    """Why the worst case is not searched for, but taken from the printed scenarios; empty where it is."""
    if searchable(study):
        return ""
    free = len(_independent(study))
    cases = min(4**free, _PASSES * 4 * free) * len(correlations(study))
    if cases * _FEW <= _SEARCHED * affordable(study):
        return ""
    return f"{cases:,} states of the world would have to be judged one by one"


Verdicts = npt.NDArray[np.str_]
"""The verdict of every combination of outcomes."""


def _tables(study: Study) -> list[tuple[float, Verdicts]]:
    """Verdicts with no false alarm of stability, and with that of one arm, each with its chance. Of several alarms at
    once there are few, and the cases that are found are drawn afresh."""
    names = list(study.hypotheses)
    cases = [dict(zip(names, ends, strict=True)) for ends in product(OUTCOME, repeat=len(names))]

    def verdicts(unstable: str | None) -> Verdicts:
        stable = {arm: arm != unstable for arm in study.arms}
        return np.array([study.rule.decide(case, stable).verdict for case in cases])

    alarms = {arm: 1.0 - (1.0 - rate) ** study.n_seeds for arm, rate in alarms_of(study).items()}
    quiet = max(0.0, 1.0 - sum(alarms.values()))
    return [(quiet, verdicts(None)), *((chance, verdicts(arm)) for arm, chance in alarms.items())]


Case = tuple[tuple[str, float], ...]
"""The true effect of every hypothesis."""


class _Search:
    """States of the world in which a false adoption may be frequent."""

    most_cases = _MOST_CASES
    """So many are all tried; of more those that differ in one hypothesis from the best so far."""

    def __init__(self, study: Study, beliefs: Beliefs, correlation: float, *, n_sims: int, seed: list[int]) -> None:
        self.study, self.beliefs, self.correlation = study, beliefs, correlation
        self.n_sims, self.seed = n_sims, seed
        self.names = list(study.hypotheses)
        self.free = _independent(study)
        self.states = {name: _states(study, name, beliefs) for name in self.free}
        # How the effects of all claims follow from those that are chosen freely, through the means of the arms.
        self.follows = {}
        for names in groups_of(study).values():
            chosen = [name for name in names if name in self.free]
            weights = weights_of(study, names)
            rows = weights[[names.index(name) for name in chosen]]
            self.follows[tuple(names)] = (chosen, weights @ np.linalg.pinv(rows))

    def share(self, case: Case) -> float:
        """The chance of a false adoption."""
        raise NotImplementedError

    def cases(self) -> Iterator[Case]:
        """All combinations where they are few; else the best found by changing one hypothesis at a time."""
        free, states = self.free, self.states
        total = int(np.prod([len(found) for found in states.values()], dtype=np.float64))
        if total <= self.most_cases:
            for chosen in product(*states.values()):
                yield self._completed(dict(zip(free, chosen, strict=True)))
            return
        for start in ("null", "true"):
            at = {name: 0.0 if start == "null" else effect_when_true(self.study, name) for name in free}
            best, improved = self.share(self._completed(at)), True
            while improved:
                improved = False
                for name in free:
                    for effect in states[name]:
                        tried = at | {name: effect}
                        share = self.share(self._completed(tried))
                        if share > best:
                            at, best, improved = tried, share, True
            yield self._completed(at)

    def _completed(self, free: dict[str, float]) -> Case:
        """The effects of all claims: those of the rest follow from the means of the arms."""
        effects: dict[str, float] = {}
        for names, (chosen, matrix) in self.follows.items():
            means = np.array([free[name] for name in chosen]) + constants_of(self.study, chosen)
            implied = matrix @ means - constants_of(self.study, list(names))
            size = float(np.abs(implied).max(initial=0.0))
            for name, effect in zip(names, implied, strict=True):
                effects[name] = free[name] if name in free else (0.0 if abs(effect) < 1e-9 * size else float(effect))
        return tuple((name, effects[name]) for name in self.names)


class _OneByOne(_Search):
    """Every state of the world simulated by itself, from the same random numbers."""

    def __init__(self, study: Study, beliefs: Beliefs, correlation: float, *, n_sims: int, seed: list[int]) -> None:
        super().__init__(study, beliefs, correlation, n_sims=n_sims, seed=seed)
        self.most_cases = _PASSES * sum(map(len, self.states.values()))
        self._shares: dict[Case, float] = {}

    def share(self, case: Case) -> float:
        if case not in self._shares:
            truth = TrueEffects("", dict(case), correlation=self.correlation, alarms=alarms_of(self.study))
            found = simulate(self.study, truth, self.beliefs, n_sims=self.n_sims, seed=self.seed).false_adopting
            assert found is not None
            self._shares[case] = found.share
        return self._shares[case]


class _Screen(_Search):
    """Many states of the world over the same draws: an effect only shifts the differences."""

    def __init__(
        self,
        study: Study,
        beliefs: Beliefs,
        correlation: float,
        tables: list[tuple[float, Verdicts]],
        *,
        n_sims: int,
        seed: list[int],
    ) -> None:
        super().__init__(study, beliefs, correlation, n_sims=n_sims, seed=seed)
        self.tables = tables
        self._p: dict[tuple[str, float], tuple[Floats, Floats]] = {}
        self._codes: dict[Case, npt.NDArray[np.int64]] = {}
        self.digits = np.array(list(product(range(len(OUTCOME)), repeat=len(self.names))), dtype=np.int64)
        self.powers = len(OUTCOME) ** np.arange(len(self.names))[::-1]
        self.verdicts = self.tables[0][1]
        self.adopting = list(adopting_verdicts(study))
        # No effect of any claim that is chosen freely: of claims against two constants only one can be without.
        least = TrueEffects("", dict(self._completed(dict.fromkeys(self.free, 0.0))), correlation=self.correlation)
        rng = np.random.default_rng(self.seed)
        drawn = draw(study, least, self.beliefs, n_sims=self.n_sims, n_seeds=study.n_seeds, rng=rng)
        self.differences = {name: values - least.effects[name] for name, values in drawn.differences.items()}
        self.items = drawn.items

    def share(self, case: Case) -> float:
        """The chance of a false adoption."""
        effects = dict(case)
        keys = sum(
            self._keys(tuple((name, effects[name]) for name in together))
            for together in self.study.corrected_together.values()
        )
        wrong = np.stack(
            [
                np.array([not is_true(self.study, name, effects[name], key) for name in self.names])
                for key in ("supported", "refuted")
            ]
        )
        without_claims = ((self.digits == 0) & wrong[0]) | ((self.digits == 1) & wrong[1])
        without = np.where(without_claims, OUTCOME.index("inconclusive"), self.digits) @ self.powers
        harmful = list(harmful_verdicts(self.study, effects))
        settled = self.verdicts[without]
        false = sum(
            weight * (np.isin(verdicts, self.adopting) & (np.isin(verdicts, harmful) | (settled != verdicts)))
            for weight, verdicts in self.tables
        )
        return float(np.asarray(false)[keys].mean())

    def _keys(self, case: Case) -> npt.NDArray[np.int64]:
        """What the outcomes of one role, or of the gate, add to the number of a combination, study by study."""
        if case not in self._codes:
            names = [name for name, _ in case]
            p = [self._weighed(name, effect) for name, effect in case]
            support, refute = (np.stack([one[which] for one in p], axis=1) for which in (0, 1))
            codes = judge_p(self.study, names, support, refute).codes
            self._codes[case] = codes.astype(np.int64) @ self.powers[[self.names.index(name) for name in names]]
        return self._codes[case]

    def _weighed(self, name: str, effect: float) -> tuple[Floats, Floats]:
        if (name, effect) not in self._p:
            wanted = {effect, *self.states.get(name, ())}
            tests = tests_of(self.study, name, self.differences[name], items=self.items)
            found = weigh(self.study, name, tests, self.n_sims, [Shifted(one) for one in wanted])
            self._p |= {(name, one): p for one, p in zip(wanted, found, strict=True)}
        return self._p[name, effect]


def _independent(study: Study) -> list[str]:
    """Hypotheses whose effects can be chosen freely: the first ones whose claims do not follow from each other."""
    found: list[str] = []
    for names in groups_of(study).values():
        chosen: list[str] = []
        for name in names:
            if np.linalg.matrix_rank(weights_of(study, [*chosen, name])) == len(chosen) + 1:
                chosen.append(name)
        found += chosen
    return found


def _states(study: Study, name: str, beliefs: Beliefs) -> tuple[float, ...]:
    """Effects to try: the borders of both nulls, and far away on either side."""
    smallest = study.hypotheses[name].smallest
    error = standard_error(study, name, beliefs, study.n_seeds)
    assert error is not None, name
    sign = study.claims[name].direction or 1
    far = 2.0 * smallest + _FAR * error
    return tuple(dict.fromkeys((0.0, sign * smallest, sign * far, -sign * far)))


def _named(study: Study, effects: dict[str, float], correlation: float, law: Law) -> str:
    """The state of the world in words."""
    said: dict[str, str] = {}
    for name, effect in effects.items():
        smallest = study.hypotheses[name].smallest
        sign = study.claims[name].direction or 1
        if effect == 0.0:
            said[name] = "without effect" if study.claims[name].constant is None else "at its constant"
        elif smallest and abs(abs(effect) - smallest) <= 1e-9 * smallest:
            said[name] = "at its margin" if effect * sign > 0 else "at its margin, the other way"
        else:
            way = "worse" if study.claims[name].verb == "does_not_worsen" else "the claimed way"
            said[name] = f"far {way if effect * sign > 0 else 'the other way'}"
    metrics = f"; metrics correlated {correlation:g}" if len(groups_of(study)) > 1 else ""
    laws = {"normal": "", "failed_seed": "; one seed in ten fails without diverging"}
    return ", ".join(_by_family(study, said)) + metrics + laws.get(law, f"; {law} differences")


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
        ((p, _),) = weigh(study, name, tests_of(study, name, differences, rng_seed=seed), n_sims)
        found.append((float((p <= study.analysis.alpha).mean()), gap))
    return max(found)


def _noise(rng: np.random.Generator, shape: tuple[int, int, int], correlation: float) -> Floats:
    """Standard normal noise of runs, correlated between the runs of one seed."""
    shared = rng.standard_normal((shape[0], 1, shape[2]))
    own = rng.standard_normal(shape)
    found: Floats = sqrt(max(correlation, 0.0)) * shared + sqrt(1.0 - max(correlation, 0.0)) * own
    return found


def _by_family(study: Study, said: dict[str, str]) -> Iterator[str]:
    """What is said of each hypothesis; of a family per task what most have in common once, after those that differ."""
    for label, first in said_once(study).items():
        names = study.task_families.get(label, (first,))
        common = Counter(said[name] for name in names).most_common(1)[0][0]
        apart = [name for name in names if said[name] != common]
        yield from (f"{name} {said[name]}" for name in apart)
        which = "" if len(names) == 1 else f" of every {'other ' * bool(apart)}task"
        yield f"{label}{which} {common}" if len(names) > 1 else f"{first} {common}"
