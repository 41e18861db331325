"""False-positive rate of a whole rule: the largest chance of a false adoption over states of the world.

Holm's correction holds an error rate per role. What a decision list makes of several roles has no such bound: a rule
that adopts on "supported(gain) and not refuted(harm)" adopts almost always when the gain is large and the harm lies at
its margin. A gate holds that no better. So the worst case is searched for:

    effects       every hypothesis at no effect, at its margin, far beyond it and far the other way, in all combinations
                  that means of arms can give
    correlation   of the noise of two metrics: 0, 0.5 and 1, or the one that `assume` gives

The search draws few studies, once: an effect only shifts the differences, so that every case is judged over the same
draws, at looks too. The cases that come out worst are drawn afresh with many studies, so that the rate is not the
luckiest of a thousand. Where too many claims can be true or false by themselves nothing is searched: `unsearched`
says so, and the largest rate of the printed scenarios is a lower bound. Differences are normal and no run diverges;
skewed differences and divergence are scenarios of their own, because no test over few seeds holds its level there.

The largest chance of any wrong answer is searched for in the same way (`worst_answers`), with three differences:

    effects       the borders of both nulls of every claim; where both of its nulls end at one border, just short of it
                  and just beyond it, since no effect makes both outcomes of a claim wrong
    correlation   -0.9, 0 and 0.9, whatever is assumed: errors add up where the luck that brings one excludes the other
    law           normal; the worse of exponential and lognormal, with the long tail on either side; seeds that fail
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

import numpy as np

from ablate.judge.design.assumptions import Beliefs, groups_of
from ablate.judge.design.effects import effect_when_true
from ablate.judge.design.reach import standard_error
from ablate.judge.design.scenarios import Law, Tail, TrueEffects, alarms_of, constants_of, draw_studies, weights_of
from ablate.judge.design.simulate import (
    SimulatedScenario,
    adopting_verdicts,
    answering_verdicts,
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
from ablate.judge.stats.null_hypotheses import nulls_in
from ablate.judge.stats.significance_tests import Floats
from prereg.registry.looks import Look, looks_of
from prereg.study.designs.per_task import said_once
from prereg.study.spec import Study

CORRELATIONS = (0.0, 0.5, 1.0)
"""Of metrics, at which false adoptions are searched for."""
OPPOSED = (-0.9, 0.0, 0.9)
"""Those at which wrong answers are."""
_NUDGE = 1e-6
"""How far from a border just short of it is, in borders or in standard errors of the mean difference."""
TOLERATED = 0.05
"""A rule that errs more often than this, and than its alpha, is said to."""
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
            name = _named(study, effects, correlation, law, beliefs)
            truth = TrueEffects(name, effects, law, correlation=correlation, alarms=alarms_of(study))
            yield simulate(study, truth, beliefs, n_sims=n_sims, seed=[seed, 3_000 + at])

    # The best few again, with fresh draws of all studies.
    confirmed = [next(drawn(at, ["normal"])) for at in range(min(_CONFIRMED, len(ranked)))]
    at = int(
        np.argmax([0.0 if scenario.false_adopting is None else scenario.false_adopting.share for scenario in confirmed])
    )
    return (confirmed[at], *drawn(at, ["exponential", "lognormal", "failed_seed"]))


def worst_answers(
    study: Study, beliefs: Beliefs, named: list[TrueEffects], *, n_sims: int, seed: int
) -> tuple[SimulatedScenario, ...]:
    """The state of the world with the largest chance of any wrong answer: of normal differences, of skewed ones, and of
    seeds that fail; nothing when the rule answers nothing. `named` are as in `worst_case`."""
    answering = answering_verdicts(study)
    if not answering:
        return ()
    few = max(200, n_sims // (20 if study.stopping == "fixed" else 4))
    joined = OPPOSED if len(groups_of(study)) > 1 else (0.0,)
    known: list[Case] | None = None
    if unsearched(study):
        known = [tuple(truth.effects.items()) for truth in named if truth.law == "normal" and not truth.divergence]
    worst = []
    for laws, tails in _LAWS_OF_ANSWERS:
        ranked: list[tuple[float, TrueEffects]] = []
        for at, (law, tail, correlation) in enumerate(product(laws, tails, joined)):
            search = _Search(
                study,
                beliefs,
                correlation,
                n_sims=few,
                seed=[seed, 4_000 + at],
                law=law,
                tail=tail,
                answering=answering,
            )
            for case in search.cases() if known is None else known:
                name = _named(study, dict(case), correlation, law, beliefs)
                truth = TrueEffects(name, dict(case), law, correlation=correlation, alarms=alarms_of(study), tail=tail)
                ranked.append((search.share(case), truth))
        ranked.sort(key=lambda rate_and_truth: -rate_and_truth[0])
        # The best few again, with fresh draws of all studies.
        confirmed = [
            simulate(study, truth, beliefs, n_sims=n_sims, seed=[seed, 5_000 + at])
            for at, (_, truth) in enumerate(ranked[:_CONFIRMED])
        ]
        if confirmed:
            worst.append(max(confirmed, key=lambda one: 0.0 if one.wrong_answer is None else one.wrong_answer.share))
        if known is None:
            # Other laws are looked at where normal differences were; of many states of the world, at the worst of them.
            effects = dict.fromkeys(tuple(truth.effects.items()) for _, truth in ranked)
            known = [*effects][: None if len(effects) <= _MOST_SKEWED else _WORST_SKEWED]
    return tuple(worst)


_LAWS_OF_ANSWERS: tuple[tuple[tuple[Law, ...], tuple[Tail, ...]], ...] = (
    (("normal",), ("against each claim",)),
    (("exponential", "lognormal"), ("better", "worse")),
    (("failed_seed",), ("better", "worse")),
)
"""Laws that are searched together, and where their long tail may lie; a normal law has none."""
_MOST_SKEWED, _WORST_SKEWED = 200, 40
"""States of the world up to which skewed laws are looked at in all of them, and in how many of more."""


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

    def __init__(
        self,
        study: Study,
        beliefs: Beliefs,
        correlation: float,
        *,
        n_sims: int,
        seed: list[int],
        law: Law = "normal",
        tail: Tail = "against each claim",
        answering: frozenset[str] | None = None,
    ) -> None:
        """Draw the studies. With `answering` verdicts wrong answers are searched for, else false adoptions."""
        self.study, self.n_sims = study, n_sims
        self.names = list(study.hypotheses)
        self.looks = looks_of(study)
        self.free = _independent(study)
        # How the effects of all claims follow from those that are chosen freely, through the means of the arms.
        self.follows = {}
        for names in groups_of(study).values():
            chosen = [name for name in names if name in self.free]
            weights = weights_of(study, names)
            # Effects of all claims from the chosen ones: means of the arms by the pseudoinverse, then the claims'
            # weights.
            rows = weights[[names.index(name) for name in chosen]]
            self.follows[tuple(names)] = (chosen, weights @ np.linalg.pinv(rows))
        if answering is None:
            self.states = {name: _states(study, name, beliefs, self._shares_in(name)) for name in self.free}
        else:
            self.states = {name: _borders(study, name, beliefs, self._shares_in(name)) for name in self.free}
        self.counted = frozenset(adopting_verdicts(study)) if answering is None else answering
        self.stable = _alarms(study)
        # No effect of any claim that is chosen freely: of claims against two constants only one can be without.
        nothing = dict(self._completed(dict.fromkeys(self.free, 0.0)))
        least = TrueEffects("", nothing, law, correlation=correlation, tail=tail)
        rng = np.random.default_rng(seed)
        drawn = draw_studies(study, least, beliefs, n_sims=n_sims, n_seeds=study.n_seeds, rng=rng)
        self.differences = {name: values - least.effects[name] for name, values in drawn.differences.items()}
        self.items = drawn.items
        self._p: dict[tuple[str, float, Look | None], tuple[Floats, Floats]] = {}
        self._codes: dict[tuple[Case, Look | None], Codes] = {}
        self._verdicts: dict[tuple[tuple[int, ...], int], str] = {}

    def _shares_in(self, name: str) -> dict[str, float]:
        """Claim -> how much its effect grows with that of a claim that is chosen freely; those that do not are left
        out."""
        shares: dict[str, float] = {}
        for names, (chosen, matrix) in self.follows.items():
            if name in chosen:
                shares = dict(zip(names, matrix[:, chosen.index(name)].tolist(), strict=True))
        return {other: share for other, share in shares.items() if abs(share) > 1e-9}

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
        """The chance of a false adoption, or of a wrong answer."""
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
                (verdict := self._verdict(row, at)) in self.counted
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


def _states(study: Study, name: str, beliefs: Beliefs, shares: dict[str, float]) -> tuple[float, ...]:
    """Effects to try: the borders of both nulls, and far away on either side."""
    smallest = study.hypotheses[name].smallest
    error = standard_error(study, name, beliefs, study.n_seeds)
    assert error is not None, name
    sign = study.claims[name].direction or 1
    far = 2.0 * smallest + _FAR * error
    margins = [smallest]
    if len(shares) > 1 and _both_hold(study, name, sign * smallest):
        # Another claim may end at the same border, and be false on the one side of it on which this one is true.
        nudge = _NUDGE * max(smallest, error)
        margins = [smallest - nudge, smallest + nudge]
    return tuple(dict.fromkeys((0.0, *(sign * margin for margin in margins), sign * far, -sign * far)))


def _borders(study: Study, name: str, beliefs: Beliefs, shares: dict[str, float]) -> tuple[float, ...]:
    """Effects of a claim at which an answer may be wrong most often: those that bring a claim whose effect grows with
    it to the borders of its nulls, every other free claim being without effect; and far away on either side.

    Where both nulls of a claim end at one border (`lowers by at least d`) no effect makes both of its outcomes wrong:
    it lies just short of the border, or just beyond it.
    """
    constants = dict(zip(shares, constants_of(study, list(shares)).tolist(), strict=True))
    errors = {other: standard_error(study, other, beliefs, study.n_seeds) or 0.0 for other in shares}
    at_borders, reach = [0.0], 0.0
    for other, share in shares.items():
        points = (point for null in nulls_in(study, other) if null is not None for point, _ in null.points)
        at_borders += [(border + constants[other]) / share - constants[name] for border in points]
        reach = max(reach, (2.0 * study.hypotheses[other].smallest + _FAR * errors[other]) / abs(share))
    effects = []
    for effect in dict.fromkeys(at_borders):
        of_claims = {other: share * (effect + constants[name]) - constants[other] for other, share in shares.items()}
        nudge = max(
            (
                _NUDGE * max(abs(of_claim), errors[other]) / abs(shares[other])
                for other, of_claim in of_claims.items()
                if _both_hold(study, other, of_claim)
            ),
            default=0.0,
        )
        effects += [effect - nudge, effect + nudge]
    sign = study.claims[name].direction or 1
    return tuple(dict.fromkeys([*effects, sign * reach, -sign * reach]))


def _both_hold(study: Study, name: str, effect: float) -> bool:
    """Whether an effect lies on a border at which neither outcome of the claim would be right."""
    support, refute = nulls_in(study, name)
    return refute is not None and not support.excludes(effect) and not refute.excludes(effect)


def _named(study: Study, effects: dict[str, float], correlation: float, law: Law, beliefs: Beliefs) -> str:
    """The state of the world in words."""
    state_by_name = {name: _placed(study, name, effect, beliefs) for name, effect in effects.items()}
    metrics = f"; metrics correlated {correlation:g}" if len(groups_of(study)) > 1 else ""
    laws = {"normal": "", "failed_seed": "; one seed in ten fails without diverging"}
    return ", ".join(_by_family(study, state_by_name)) + metrics + laws.get(law, f"; {law} differences")


def _placed(study: Study, name: str, effect: float, beliefs: Beliefs) -> str:
    """Where a true effect lies for its claim, in words."""
    smallest, claim = study.hypotheses[name].smallest, study.claims[name]
    sign = claim.direction or 1
    if effect == 0.0:
        return "without effect" if claim.constant is None else "at its constant"
    beyond = abs(effect) - smallest
    if smallest and abs(beyond) <= 1e-9 * smallest:
        return "at its margin" if effect * sign > 0 else "at its margin, the other way"
    error = standard_error(study, name, beliefs, study.n_seeds)
    assert error is not None, name
    if smallest and abs(beyond) <= 2.0 * _NUDGE * max(smallest, error):
        where = f"just {'beyond' if beyond > 0 else 'short of'} its margin"
        return where if effect * sign > 0 else f"{where}, the other way"
    way = "worse" if claim.verb == "does_not_worsen" else "the claimed way"
    near = "just" if abs(effect) <= 2.0 * _NUDGE * error else "far"
    return f"{near} {way if effect * sign > 0 else 'the other way'}"


def _by_family(study: Study, state_by_name: dict[str, str]) -> Iterator[str]:
    """What is said of each hypothesis; of a family per task what most have in common once, after those that differ."""
    for label, first in said_once(study).items():
        names = study.task_families.get(label, (first,))
        common = Counter(state_by_name[name] for name in names).most_common(1)[0][0]
        apart = [name for name in names if state_by_name[name] != common]
        yield from (f"{name} {state_by_name[name]}" for name in apart)
        which = "" if len(names) == 1 else f" of every {'other ' * bool(apart)}task"
        yield f"{label}{which} {common}" if len(names) > 1 else f"{first} {common}"
