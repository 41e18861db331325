"""False-positive rate of a whole rule: the largest chance of a false adoption over states of the world.

Holm's correction holds an error rate per role. What a decision list makes of several roles has no such bound: a rule
that adopts on "supported(gain) and not refuted(harm)" adopts almost always when the gain is large and the harm lies at
its margin. A gate holds that no better. So the worst case is searched for:

    effects       every hypothesis at no effect, at its margin, far beyond it and far the other way, in all combinations
                  that means of arms can give
    correlation   of the noise of two metrics: 0, 0.5 and 1, or the one that `assume` gives

The search draws few studies, once: an effect only shifts the differences, so that every case is judged over the same
draws, at looks too. The cases that come out worst are drawn afresh with many studies, so that the rate is not the
luckiest of a thousand. Where too many claims can be true or false by themselves nothing is searched: `unsearched` says
so, and the largest rate of the printed scenarios is a lower bound. Differences are normal and no run diverges; skewed
differences and divergence are scenarios of their own, because no test over few seeds holds its level
there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from ablate.judge.design.assumptions import Beliefs, groups_of
from ablate.judge.design.effects import effect_when_true
from ablate.judge.design.reach import standard_error
from ablate.judge.design.scenarios import Law, TrueEffects, alarms_of, constants_of, draw_studies, weights_of
from ablate.judge.design.simulate import (
    SimulatedScenario,
    adopting_verdicts,
    harmful_verdicts,
    is_true,
    simulate,
    to_the_stop,
)
from ablate.judge.judge import (
    OUTCOME,
    Codes,
    Outcomes,
    Rows,
    Shifted,
    case_of,
    distinct,
    judge_p,
    tests_of,
    weigh,
)
from ablate.judge.stats.significance_tests import Floats
from prereg.registry.looks import Look, looks_of
from prereg.study.designs.per_task import said_once
from prereg.study.spec import Study

CORRELATIONS = (0.0, 0.5, 1.0)
_FAR = 40.0
"""Effects far beyond a margin, in standard errors of the mean difference: any test finds them."""
_CONFIRMED = 3
_MOST_CASES = 4_096
"""So many cases are all tried, of a sequential study so many over all its looks; of more those that differ in one
hypothesis from the best so far."""
_MOST_FREE = 12
"""Claims that can be true or false by themselves, up to which the worst case is searched for."""


def correlations(study: Study) -> tuple[float, ...]:
    """The correlations of metrics to look at: the assumed one, or all; one metric has none."""
    if len(groups_of(study)) < 2:
        return (0.0,)
    assumed = study.assume.metric_correlation
    return CORRELATIONS if assumed is None else (assumed,)


def worst_case(
    study: Study, beliefs: Beliefs, named: list[TrueEffects], *, n_sims: int, seed: int
) -> tuple[SimulatedScenario, ...]:
    """The state of the world with the largest chance of a false adoption, the same with skewed differences, and with
    seeds that fail; nothing when the rule adopts nothing.

    `named` are the printed scenarios, and all that is tried where nothing is searched (`unsearched`).
    """
    if not adopting_verdicts(study):
        return ()
    plain = [truth.effects for truth in named if truth.law == "normal" and not truth.divergence]
    ranked: list[tuple[float, dict[str, float], float]] = []
    # A sequential study has few studies a scenario, of which a twentieth would rank nothing.
    # Ranked over few studies, then drawn afresh over many: the maximum of noisy shares is too large.
    few = max(200, n_sims // (20 if study.stopping == "fixed" else 4))
    for at, correlation in enumerate(correlations(study)):
        search = _Search(study, beliefs, correlation, n_sims=few, seed=[seed, 2_000 + at])
        cases = [tuple(effects.items()) for effects in plain] if unsearched(study) else search.cases()
        ranked += [(search.share(case), dict(case), correlation) for case in cases]
    if not ranked:
        return ()
    ranked.sort(key=lambda rate_and_truth: -rate_and_truth[0])

    def drawn(at: int, laws: Iterable[Law]) -> Iterator[SimulatedScenario]:
        _, effects, correlation = ranked[at]
        for law in laws:
            name = _named(study, effects, correlation, law)
            truth = TrueEffects(name, effects, law, correlation=correlation, alarms=alarms_of(study))
            yield simulate(study, truth, beliefs, n_sims=n_sims, seed=[seed, 3_000 + at])

    # The best few again, with fresh draws of all studies.
    confirmed = [next(drawn(at, ["normal"])) for at in range(min(_CONFIRMED, len(ranked)))]
    at = int(
        np.argmax([0.0 if scenario.false_adopting is None else scenario.false_adopting.share for scenario in confirmed])
    )
    return (confirmed[at], *drawn(at, ["exponential", "lognormal", "failed_seed"]))


def unsearched(study: Study) -> str:
    """Why the worst case is not searched for, but taken from the printed scenarios; empty where it is."""
    free = len(_independent(study))
    if free <= _MOST_FREE:
        return ""
    return f"{free} claims can be true or false by themselves, and the worst case is searched for up to {_MOST_FREE}"


Case = tuple[tuple[str, float], ...]
"""The true effect of every hypothesis."""


class _Search:
    """States of the world in which a false adoption may be frequent, over the same draws."""

    def __init__(self, study: Study, beliefs: Beliefs, correlation: float, *, n_sims: int, seed: list[int]) -> None:
        self.study, self.n_sims = study, n_sims
        self.names = list(study.hypotheses)
        self.looks = looks_of(study)
        self.free = _independent(study)
        self.states = {name: _states(study, name, beliefs) for name in self.free}
        # How the effects of all claims follow from those that are chosen freely, through the means of the arms.
        self.follows = {}
        for names in groups_of(study).values():
            chosen = [name for name in names if name in self.free]
            weights = weights_of(study, names)
            # Effects of all claims from the chosen ones: means of the arms by the pseudoinverse, then the claims'
            # weights.
            rows = weights[[names.index(name) for name in chosen]]
            self.follows[tuple(names)] = (chosen, weights @ np.linalg.pinv(rows))
        self.adopting = adopting_verdicts(study)
        self.stable = _alarms(study)
        # No effect of any claim that is chosen freely: of claims against two constants only one can be without.
        least = TrueEffects("", dict(self._completed(dict.fromkeys(self.free, 0.0))), correlation=correlation)
        rng = np.random.default_rng(seed)
        drawn = draw_studies(study, least, beliefs, n_sims=n_sims, n_seeds=study.n_seeds, rng=rng)
        self.differences = {name: values - least.effects[name] for name, values in drawn.differences.items()}
        self.items = drawn.items
        self._p: dict[tuple[str, float, Look | None], tuple[Floats, Floats]] = {}
        self._codes: dict[tuple[Case, Look | None], Codes] = {}
        self._verdicts: dict[tuple[tuple[int, ...], int], str] = {}

    def cases(self) -> Iterator[Case]:
        """All combinations where they are few; else the best found by changing one hypothesis at a time."""
        free, states = self.free, self.states
        total = int(np.prod([len(effects) for effects in states.values()], dtype=np.float64))
        if total * max(1, len(self.looks)) <= _MOST_CASES:
            for chosen in product(*states.values()):
                yield self._completed(dict(zip(free, chosen, strict=True)))
            return
        # Coordinate ascent, from no effect anywhere and from every claim true. It ends, since the share only rises and
        # cases are finite; it may end below the largest, so that the rate is then a lower bound.
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

    def share(self, case: Case) -> float:
        """The chance of a false adoption."""
        study, effects = self.study, dict(case)
        harmful = harmful_verdicts(study, effects)
        true = {
            OUTCOME.index(outcome): np.array([is_true(study, name, effects[name], outcome) for name in self.names])
            for outcome in ("supported", "refuted")
        }
        total = 0.0
        for at, (chance, stable) in enumerate(self.stable):
            if at == 0 or self.looks:  # what is stable changes outcomes only where it changes the look of the stop
                cases, place = distinct(self._outcomes(case, stable))
            # Had every false finding been inconclusive, and every arm stable.
            without = cases.copy()
            for code, is_right in true.items():
                without[(cases == code) & ~is_right] = OUTCOME.index("inconclusive")
            false = [
                (verdict := self._verdict(row, at)) in self.adopting
                and (verdict in harmful or self._verdict(row_without, 0) != verdict)
                for row, row_without in zip(cases.tolist(), without.tolist(), strict=True)
            ]
            total += chance * float(np.array(false)[place].mean())
        return total

    def _verdict(self, row: list[int], at: int) -> str:
        """The verdict of these outcomes with the arms of `self.stable[at]` stable; of the first all are."""
        key = tuple(row), at
        if key not in self._verdicts:
            self._verdicts[key] = self.study.rule.decide(*case_of(self.study, [*row, *self.stable[at][1]])).verdict
        return self._verdicts[key]

    def _outcomes(self, case: Case, stable: tuple[bool, ...]) -> Codes:
        """Outcomes of every study, at the look where it stops."""
        effects = dict(case)

        def judged_at(look: Look | None, rows: Rows) -> Outcomes:
            codes = np.empty((rows.size, len(self.names)), dtype=np.int8)
            for together in self.study.corrected_together.values():
                places = [self.names.index(name) for name in together]
                mine = tuple((name, effects[name]) for name in together)
                codes[:, places] = self._judged(mine, look)[rows]
            return Outcomes(self.study, codes, np.broadcast_to(np.array(stable), (rows.size, len(stable))))

        return to_the_stop(self.study, self.n_sims, judged_at).codes

    def _judged(self, case: Case, look: Look | None) -> Codes:
        """Outcomes of one role, or of the gate, at a look: studies x its hypotheses."""
        if (case, look) not in self._codes:
            names = [name for name, _ in case]
            p = [self._weighed(name, effect, look) for name, effect in case]
            support, refute = (np.stack([both[which] for both in p], axis=1) for which in (0, 1))
            self._codes[case, look] = judge_p(self.study, names, support, refute).codes
        return self._codes[case, look]

    def _weighed(self, name: str, effect: float, look: Look | None) -> tuple[Floats, Floats]:
        if (name, effect, look) not in self._p:
            effects = {effect, *self.states.get(name, ())}
            differences = self.differences[name] if look is None else self.differences[name][:, : look.n_seeds]
            tests = tests_of(self.study, name, differences, look=look, items=self.items)
            both = weigh(self.study, name, tests, self.n_sims, [Shifted(shift) for shift in effects])
            self._p |= {(name, shift, look): p for shift, p in zip(effects, both, strict=True)}
        return self._p[name, effect, look]

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


def _alarms(study: Study) -> list[tuple[float, tuple[bool, ...]]]:
    """Which arms are called stable, and the chance of that: all of them, or all but one. Of several false alarms at
    once there are few, and the cases that are found are drawn afresh."""
    alarms = {arm: 1.0 - (1.0 - rate) ** study.n_seeds for arm, rate in alarms_of(study).items()}
    quiet = max(0.0, 1.0 - sum(alarms.values()))
    called = [(quiet, None), *((chance, arm) for arm, chance in alarms.items())]
    return [(chance, tuple(arm != unstable for arm in study.arms)) for chance, unstable in called]


def _independent(study: Study) -> list[str]:
    """Hypotheses whose effects can be chosen freely: the first ones whose claims do not follow from each other."""
    independent: list[str] = []
    for names in groups_of(study).values():
        chosen: list[str] = []
        for name in names:
            if np.linalg.matrix_rank(weights_of(study, [*chosen, name])) == len(chosen) + 1:
                chosen.append(name)
        independent += chosen
    return independent


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
    state_by_name: dict[str, str] = {}
    for name, effect in effects.items():
        smallest = study.hypotheses[name].smallest
        sign = study.claims[name].direction or 1
        if effect == 0.0:
            state_by_name[name] = "without effect" if study.claims[name].constant is None else "at its constant"
        elif smallest and abs(abs(effect) - smallest) <= 1e-9 * smallest:
            state_by_name[name] = "at its margin" if effect * sign > 0 else "at its margin, the other way"
        else:
            way = "worse" if study.claims[name].verb == "does_not_worsen" else "the claimed way"
            state_by_name[name] = f"far {way if effect * sign > 0 else 'the other way'}"
    metrics = f"; metrics correlated {correlation:g}" if len(groups_of(study)) > 1 else ""
    laws = {"normal": "", "failed_seed": "; one seed in ten fails without diverging"}
    return ", ".join(_by_family(study, state_by_name)) + metrics + laws.get(law, f"; {law} differences")


def _by_family(study: Study, state_by_name: dict[str, str]) -> Iterator[str]:
    """What is said of each hypothesis; of a family per task what most have in common once, after those that differ."""
    for label, first in said_once(study).items():
        names = study.task_families.get(label, (first,))
        common = Counter(state_by_name[name] for name in names).most_common(1)[0][0]
        apart = [name for name in names if state_by_name[name] != common]
        yield from (f"{name} {state_by_name[name]}" for name in apart)
        which = "" if len(names) == 1 else f" of every {'other ' * bool(apart)}task"
        yield f"{label}{which} {common}" if len(names) > 1 else f"{first} {common}"
