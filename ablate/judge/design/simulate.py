"""Simulation of a rule: made-up differences, judged as the real ones will be, and the chance of every verdict.

Differences drawn by `ablate.judge.design.scenarios` are judged all at once by `ablate.judge.judge`, as real ones are,
and `Rule.decide` sees each combination of outcomes once.

Four terms, used throughout:

    adopting verdict   one that a line gives whose condition asks `supported(H)` other than under `not`, and whose
                       words are not "inconclusive": a verdict that somebody acts on because a claim was supported
    false finding      a hypothesis supported, or refuted, although the null that this rejects is true
    false adoption     an adopting verdict that rests on an error or does harm: the rule would have given another one
                       had every false finding been inconclusive and every arm stable (in every state of the world that
                       is simulated, all arms are equally stable); or an arm that the verdict adopts is, in truth,
                       beyond the margin of a claim that it does no harm
    wrong answer       the same of every verdict that says something: all but "inconclusive" and what the rule says
                       where every claim is inconclusive; "worse" or "keep it" on a false finding are among them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from ablate.judge.design.assumptions import Beliefs
from ablate.judge.design.reach import verdicts_of
from ablate.judge.design.scenarios import Drawn, Law, TrueEffects, draw_studies
from ablate.judge.judge import OUTCOME, UNDECIDED, Codes, Judgement, Outcomes, Rows, case_of, distinct, judge_rows
from ablate.judge.stats.kinds import class_of_test
from ablate.judge.stats.null_hypotheses import nulls_in
from ablate.judge.stats.significance_tests import Kept
from prereg.frozen import FrozenModel
from prereg.registry.looks import Look, looks_of
from prereg.rule.condition import Outcome
from prereg.study.spec import Study


class SimulatedChance(FrozenModel):
    """A simulated probability."""

    of: str
    """What."""
    share: float
    """Share of simulated studies."""
    error: float
    """Monte Carlo standard error (Agresti-Coull, so that it is not 0 at a share of 0 or 1)."""
    at_most: float | None = None
    """Where it never happened: the chance with which so many studies would still show it in 95% (about 3 over their
    number), a one-sided upper bound; none elsewhere."""


class SimulatedScenario(FrozenModel):
    """One state of the world, and what the registered rule makes of it."""

    name: str
    """Which truth."""
    effects: dict[str, float]
    """The true effect of every claim, on its scale."""
    n_sims: int
    """Simulated studies."""
    verdicts: tuple[SimulatedChance, ...]
    """The chance of every verdict, in the order of the decision."""
    supported: tuple[SimulatedChance, ...]
    """The chance that each hypothesis is supported."""
    refuted: tuple[SimulatedChance, ...]
    """The chance that each hypothesis is refuted."""
    false_supported: tuple[SimulatedChance, ...]
    """By role, or over the gate: the chance of any false "supported"."""
    false_refuted: tuple[SimulatedChance, ...]
    """By role: the chance of any false "refuted"."""
    adopting: SimulatedChance | None = None
    """The chance of any adopting verdict; none without such a verdict."""
    false_adopting: SimulatedChance | None = None
    """The chance of a false adoption."""
    wrong_answer: SimulatedChance | None = None
    """The chance of any wrong answer; none of a rule without answers, and of a lock from before it was counted."""
    law: Law = "normal"
    """Law of the differences about their means."""
    divergence: float = 0.0
    """Share of runs that diverge."""
    correlation: float = 0.0
    """Of the noise of two metrics in one run, each turned so that up is better."""
    stops: tuple[SimulatedChance, ...] = ()
    """The chance that a sequential study ends at each of its looks; none for a fixed number of seeds."""
    inadmissible: SimulatedChance | None = None
    """The chance of no verdict, because lost pairs at their worst could have changed it: with it the verdicts add up to
    1, and only the other studies count above. None where that did not happen."""
    mean_seeds: float | None = None
    """Seeds that a sequential study takes on average."""


def adopting_verdicts(study: Study) -> tuple[str, ...]:
    """The adopting verdicts of a decision, as defined above."""
    return tuple(verdict for verdict, names in study.rule.needed_support.items() if names)


def answering_verdicts(study: Study) -> frozenset[str]:
    """The verdicts that something found brings about, as defined above."""
    nothing: dict[str, Outcome] = dict.fromkeys(study.hypotheses, "inconclusive")
    neutral = study.rule.decide(nothing, dict.fromkeys(study.arms, True)).verdict
    stated = {line.verdict for line in study.rule.lines} - {UNDECIDED, neutral}
    return frozenset(stated) | frozenset(adopting_verdicts(study))


@dataclass(frozen=True)
class StoppedStudies:
    """Simulated studies at the look where each stops; of a fixed number of seeds, at their end."""

    codes: Codes
    """Outcomes, studies x hypotheses."""
    ruled: Kept
    """Which of them have a verdict: one that is the same with lost pairs at their worst."""
    look: npt.NDArray[np.int64]
    """The number of the look, from 1; of a fixed number of seeds 1."""


def to_the_stop(study: Study, n_studies: int, judged_at: Callable[[Look | None, Rows], Outcomes]) -> StoppedStudies:
    """Judge studies at one look after the other, each until it stops, by the rule that ends a real one.

    `judged_at` judges some of the studies at a look; without looks, all of them once.
    """
    # Written again at every look until a study stops; at the last look all stop.
    codes = np.full((n_studies, len(study.hypotheses)), OUTCOME.index("inconclusive"), dtype=np.int8)
    stopped = np.zeros(n_studies, dtype=np.int64)
    ruled: Kept = np.ones(n_studies, dtype=bool)
    for number, look in enumerate(looks_of(study) or (None,), start=1):
        going = np.flatnonzero(stopped == 0)
        if not going.size:
            break
        judged = judged_at(look, going)
        codes[going], ruled[going] = judged.codes, judged.one_verdict()
        # A look that is not the last ends nothing where its verdict would not be given.
        last = look is None or look.last
        stopped[going if last else going[ruled[going] & judged.ends_the_study()]] = number
    return StoppedStudies(codes, ruled, stopped)


def judge_drawn(study: Study, drawn: Drawn) -> StoppedStudies:
    """Simulated studies, judged as real ones.

    Which arms were stable is taken over all seeds, not over those that a look sees: a difference only to rules that
    ask for stability, in scenarios where runs diverge.
    """

    def judged_at(look: Look | None, rows: Rows) -> Judgement:
        # Without a look all studies are judged once, and nothing is copied.
        # A look sees the first seeds of each study, as the judge of real runs does.
        part = (rows, slice(None, look.n_seeds)) if look is not None else slice(None)
        differences = {name: values[part] for name, values in drawn.differences.items()}
        kept = None if drawn.kept is None else {name: pairs[part] for name, pairs in drawn.kept.items()}
        lost: Kept | None = None
        if drawn.lost is not None and kept is not None:
            runs = drawn.lost if look is None else drawn.lost[rows, :, : look.n_seeds]
            lost = np.asarray(runs.any(axis=2))
        stable = drawn.stable[rows] if look is not None else drawn.stable
        return judge_rows(study, differences, kept, lost=lost, stable=stable, look=look, items=drawn.items)

    return to_the_stop(study, len(drawn.stable), judged_at)


def simulate(
    study: Study, truth: TrueEffects, beliefs: Beliefs, *, n_sims: int, seed: list[int], n_seeds: int | None = None
) -> SimulatedScenario:
    """What the registered rule makes of simulated studies under a truth.

    Parameters
    ----------
    truth : TrueEffects
        The state of the world. Whether a finding is false is known here.
    beliefs : Beliefs
        SDs and correlations of every claimed metric.
    n_sims : int
        Simulated studies: the standard error of a chance is at most .5 / sqrt(n_sims).
    seed : list of int
        Seeds the draws; the same gives the same scenario.
    n_seeds : int, optional
        Another number of seeds than the registered one.
    """
    n_seeds = study.n_seeds if n_seeds is None else n_seeds
    # Draw, judge, and stop at looks.
    drawn = draw_studies(study, truth, beliefs, n_sims=n_sims, n_seeds=n_seeds, rng=np.random.default_rng(seed))
    names, looks = list(study.hypotheses), looks_of(study)
    stops: tuple[SimulatedChance, ...] = ()
    mean_seeds = None
    ended = judge_drawn(study, drawn)
    if looks:
        counts = {look.words: int((ended.look == look.number).sum()) for look in looks}
        stops = _chances(counts, tuple(counts), n_sims)
        mean_seeds = sum(counts[look.words] * look.n_seeds for look in looks) / n_sims
    # Studies that would have had no verdict, because of lost pairs, count among the inadmissible only.
    ruled, codes = ended.ruled, ended.codes[ended.ruled]
    effects, adopting = truth.effects, adopting_verdicts(study)
    false = {
        key: [claimed for claimed in names if not is_true(study, claimed, effects[claimed], key)]
        for key in ("supported", "refuted")
    }
    harmed = harmful_verdicts(study, effects)
    settled = dict.fromkeys(study.arms, True)
    answering = answering_verdicts(study)
    verdicts: Counter[str] = Counter()
    adopted = wrongly = misled = 0
    # The rule sees each combination of outcomes and stable arms once: few, however many studies.
    cases, place = distinct(np.concatenate([codes, drawn.stable[ruled]], axis=1))
    for row, times in zip(cases.tolist(), np.bincount(place).tolist(), strict=True):
        outcomes, stable = case_of(study, row)
        verdict = study.rule.decide(outcomes, stable).verdict
        verdicts[verdict] += times
        if verdict not in answering:
            continue
        # What the rule would have said without its errors: false findings inconclusive, every arm stable.
        without: dict[str, Outcome] = {
            name: "inconclusive" if name in false.get(outcome, ()) else outcome for name, outcome in outcomes.items()
        }
        if verdict in adopting:
            adopted += times
            wrongly += times * (verdict in harmed or study.rule.decide(without, settled).verdict != verdict)
        # Where runs diverge, an arm that is called unstable is so in truth.
        in_truth = stable if truth.divergence else settled
        misled += times * (verdict in harmed or study.rule.decide(without, in_truth).verdict != verdict)

    def counted(key: Outcome) -> tuple[SimulatedChance, ...]:
        counts = (codes == OUTCOME.index(key)).sum(axis=0)
        return _chances(dict(zip(names, map(int, counts), strict=True)), tuple(names), n_sims)

    def wrong(key: Outcome, together: Mapping[str, tuple[str, ...]]) -> tuple[SimulatedChance, ...]:
        hits = codes == OUTCOME.index(key)
        counts: dict[str, int] = {
            role: int(hits[:, [names.index(claimed) for claimed in family if claimed in false[key]]].any(axis=1).sum())
            for role, family in together.items()
        }
        return _chances(counts, tuple(counts), n_sims)

    return SimulatedScenario(
        name=truth.name,
        effects=effects,
        n_sims=n_sims,
        verdicts=_chances(verdicts, verdicts_of(study), n_sims),
        supported=counted("supported"),
        refuted=counted("refuted"),
        false_supported=wrong("supported", study.corrected_together),
        false_refuted=wrong("refuted", dict(study.families.items())),
        adopting=_chance("any adopting verdict", adopted, n_sims) if adopting else None,
        false_adopting=_chance("any false adoption", wrongly, n_sims) if adopting else None,
        wrong_answer=_chance("any wrong answer", misled, n_sims) if answering else None,
        law=truth.law,
        divergence=truth.divergence,
        correlation=truth.correlation,
        stops=stops,
        inadmissible=None if ruled.all() else _chance("inadmissible", int((~ruled).sum()), n_sims),
        mean_seeds=mean_seeds,
    )


def is_true(study: Study, name: str, effect: float, outcome: str) -> bool:
    """Whether a "supported" or "refuted" would be right: whether the null it rejects is false."""
    support, refute = nulls_in(study, name)
    null = support if outcome == "supported" else refute
    return null is not None and null.excludes(effect)


def harmful_verdicts(study: Study, effects: Mapping[str, float]) -> frozenset[str]:
    """Adopting verdicts of which an adopted arm breaks, in truth, a claim that it does no harm. A verdict adopts the
    arms on the left of claims whose support its lines ask for, but for the baseline."""
    # A claim that an arm does no harm, false in truth and not because the arm is better than its baseline.
    broken = {
        arm
        for name, hypothesis in study.hypotheses.items()
        if hypothesis.role != "exploratory" and study.claims[name].kind.is_absence
        if not is_true(study, name, effects[name], "supported") and not _improves(study, name, effects[name])
        for arm in study.claims[name].left
        if arm != study.baseline
    }
    return frozenset(
        verdict
        for verdict, names in study.rule.needed_support.items()
        if any(broken & set(study.claims[name].left) for name in names)
    )


def _improves(study: Study, name: str, effect: float) -> bool:
    """Whether an effect is a gain by the metric's direction: a claim of no change is then false without harm."""
    better = study.claims[name].better
    return effect < 0 if better == "lower" else better == "higher" and effect > 0


def _chance(of: str, k: int, n: int) -> SimulatedChance:
    # Agresti and Coull (1998): two successes and two failures more, so that a share of 0 has an error too.
    centre = (k + 2.0) / (n + 4.0)
    error = sqrt(centre * (1.0 - centre) / (n + 4.0))
    return SimulatedChance(of=of, share=k / n, error=error, at_most=None if k else 1.0 - 0.05 ** (1.0 / n))


def _chances(counts: Mapping[str, int], names: tuple[str, ...], n: int) -> tuple[SimulatedChance, ...]:
    return tuple(_chance(name, counts.get(name, 0), n) for name in names)


_MOST_DRAWN = 2_000_000
"""Differences that the studies of one scenario have together, of one metric: 16 MB."""
_AT_LOOKS = 4_000
"""Studies that a scenario takes which are judged at several looks."""
_FEWEST = 250
"""Studies that a scenario takes however many seeds they have."""


def affordable(study: Study, n: int | None = None) -> int:
    """How many studies a scenario takes by default: by test and number of seeds alone, so that a design repeats."""
    seeds = study.n_seeds if n is None else n
    most = class_of_test(study.analysis.test).affordable_studies(seeds) if study.stopping == "fixed" else _AT_LOOKS
    # Of many registered seeds fewer studies are drawn: time and memory are those of all their differences.
    return most if n is not None else min(most, max(_FEWEST, _MOST_DRAWN // seeds))
