"""Operating characteristics before data: what the registered rule can find, how often it errs, what never happens.

The chances of every verdict come from `ablate.judge.simulate`; power in closed form is a paired t's and says so.
What a hypothesis can come to is `ablate.judge.reach`'s, and what no data could produce `ablate.judge.hopeless`'s.

Fields added after the first version carry defaults: a design frozen in an old lock is still read.
"""

from __future__ import annotations

from math import sqrt

from ablate.judge.batch import batchable
from ablate.judge.beliefs import Belief, Beliefs, assumed, groups_of
from ablate.judge.hopeless import remedy_of, unreachable_verdicts
from ablate.judge.nulls import require_known_methods
from ablate.judge.reach import (
    HypothesisDesign,
    effect_when_true,
    hypothesis_design,
    power_of,
    sd_difference,
)
from ablate.judge.simulate import (
    Chance,
    Scenario,
    adopting_verdicts,
    adoption,
    affordable,
    simulate,
)
from ablate.judge.truths import Truth, drawable, truths
from prereg.analysis import Test
from prereg.divergence import said_unasked
from prereg.part import Part
from prereg.spec import Study

_CURVE = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 25, 30)
"""Numbers of seeds on the curve of power, and the study's own."""
_CURVE_SIMS = 4_000
_RANKED_SIMS = 1_000
_OVER_THESE_ITEMS = (
    "over seeds and these items the test is a paired t over the seeds' means, and is simulated as one; the SDs are "
    "those of a run's mean over its items"
)
_NOT_OVER_ITEMS = (
    "not simulated: a test over new seeds and new items needs the spread of items and of seeds x items, which the "
    "format has no field to assume; sizes in SDs of the differences are those of a paired t over the seeds' means, and "
    "new items make what can be found larger than that"
)


class PowerAt(Part):
    """What a number of seeds can find."""

    n: int
    """Seeds."""
    power: dict[str, float]
    """Hypothesis -> power of a paired t at its `smallest`, at the corrected level."""
    adopting: Chance | None = None
    """The chance of any adopting verdict when every claim is true, by simulation of the registered rule."""


class Design(Part):
    """The operating characteristics of a study."""

    study: str
    """The study's id."""
    test: Test
    """The deciding test."""
    alpha: float
    """Level of each family."""
    correct: str
    """The correction."""
    n_seeds: int
    """Seeds."""
    n_runs: int
    """Runs."""
    cost_s: float | None
    """Seconds for all runs, one after another, when `assume` gives the time of one."""
    hypotheses: tuple[HypothesisDesign, ...]
    """In the order of the study."""
    scenarios: tuple[Scenario, ...]
    """Simulated truths."""
    unreachable: tuple[str, ...]
    """Verdicts that no data could produce."""
    remedy: str
    """The smallest change after which every needed "supported" can happen; empty when all can."""
    notes: tuple[str, ...]
    """What these numbers rest on."""
    seed: int | None = None
    """Seed of the simulation; this and every field below is missing from the first designs."""
    beliefs: tuple[Belief, ...] = ()
    """SD and correlation of every claimed metric, with their source."""
    adopting: tuple[str, ...] = ()
    """Verdicts that a supported claim brings about: see `ablate.judge.simulate`."""
    false_adoption: Chance | None = None
    """The false-positive rate of the whole rule: the largest chance of a false adoption over the scenarios with normal
    differences and no divergence."""
    false_adoption_in: str = ""
    """The scenario where it is largest."""
    curve: tuple[PowerAt, ...] = ()
    """Power by number of seeds."""
    seeds_80: int | None = None
    """Seeds with which every hypothesis that the decision asks to be supported has power .80 at its `smallest`."""
    seeds_90: int | None = None
    """The same for power .90."""
    adoption_80: int | None = None
    """Fewest seeds of the curve with which an adopting verdict has a chance of .80 when every claim is true."""
    seconds_per_run: float | None = None
    """Time of a run, assumed or measured."""
    timed: str = ""
    """Which of the two, and on how many runs."""
    cost_80_s: float | None = None
    """Seconds for all runs with `seeds_80` seeds, one after another."""
    cost_90_s: float | None = None
    """Seconds for all runs with `seeds_90` seeds."""


def design(study: Study, *, n_sims: int | None = None, seed: int = 0, beliefs: Beliefs | None = None) -> Design:
    """Plan a study with the functions that will judge it. Without beliefs, those of its `assume:` block hold.

    Under `test: items` new seeds on these items are planned as what they are, a paired t over the seeds' means. Over
    new items nothing is simulated, and no power is given: the format has no field for the spread of items to assume.
    """
    require_known_methods(study)
    believed = assumed(study) if beliefs is None else beliefs
    registered = study.analysis.test
    over_items = registered == "items" and study.analysis.estimand == "new_seeds_and_items"
    if registered == "items" and not over_items:
        means = study.analysis.model_copy(update={"test": "paired_t", "also": ()})
        study = study.model_copy(update={"analysis": means})
    if over_items:
        believed = believed.model_copy(update={"metrics": ()})
    n, arms = len(study.seeds), len(study.arms)
    hypotheses = tuple(hypothesis_design(study, name, believed) for name in study.hypotheses)
    lacking = sorted({metric for metric, scale in groups_of(study) if believed.of(metric, scale) is None})
    drawn = affordable(study) if n_sims is None else min(n_sims, affordable(study))
    scenarios, notes = [], [_NOT_OVER_ITEMS] if over_items else _notes(study, lacking, believed)
    notes += [_OVER_THESE_ITEMS] if registered == "items" and not over_items else []
    undrawn: dict[str, list[str]] = {}
    states = () if over_items else truths(study, assumed=not lacking, divergence=believed.divergence)
    for index, truth in enumerate(states):
        reason = drawable(study, truth, believed)
        if reason is not None:
            undrawn.setdefault(reason, []).append(f"'{truth.name}'")
            continue
        # Diverged runs by rank are judged one study at a time.
        ranked = truth.divergence > 0.0 and study.on_divergence == "rank"
        n_here = min(drawn, _RANKED_SIMS) if ranked else drawn
        scenarios.append(simulate(study, truth, believed, n_sims=n_here, seed=[seed, index]))
    notes += [said for one in scenarios if (said := _said_stops(one))]
    notes += [f"not simulated: {', '.join(names)}: {reason}" for reason, names in undrawn.items()]
    worst = _worst(scenarios)
    seeds_80, seeds_90 = (_seeds_for_all(hypotheses, target) for target in (80, 90))
    each = believed.seconds_per_run
    curve = () if lacking else _curve(study, believed, n_sims=min(drawn, _CURVE_SIMS), seed=seed)
    return Design(
        study=study.study,
        test=registered,
        alpha=study.analysis.alpha,
        correct=study.analysis.correct,
        n_seeds=n,
        n_runs=n * arms,
        cost_s=None if each is None else each * n * arms,
        hypotheses=hypotheses,
        scenarios=tuple(scenarios),
        unreachable=unreachable_verdicts(study, hypotheses),
        remedy=remedy_of(study, hypotheses),
        notes=tuple(notes),
        seed=seed,
        beliefs=believed.metrics,
        adopting=adopting_verdicts(study),
        false_adoption=None if worst is None else worst.false_adopting,
        false_adoption_in="" if worst is None else worst.name,
        curve=curve,
        seeds_80=seeds_80,
        seeds_90=seeds_90,
        adoption_80=next((at.n for at in curve if at.adopting is not None and at.adopting.share >= 0.8), None),
        seconds_per_run=each,
        timed=believed.timed if each is not None else "",
        cost_80_s=None if each is None or seeds_80 is None else each * seeds_80 * arms,
        cost_90_s=None if each is None or seeds_90 is None else each * seeds_90 * arms,
    )


def _worst(scenarios: list[Scenario]) -> Scenario | None:
    """Where the whole rule errs most often, the laws of differences being what the tests assume."""
    plain = [one for one in scenarios if one.law == "normal" and not one.divergence]
    counted = [(one.false_adopting.share, one) for one in plain if one.false_adopting is not None]
    return max(counted, key=lambda pair: pair[0])[1] if counted else None


def _seeds_for_all(hypotheses: tuple[HypothesisDesign, ...], target: int) -> int | None:
    """The most seeds that any needed hypothesis asks for; none when one of them is unknown or beyond reach."""
    asked = [one.seeds_80 if target == 80 else one.seeds_90 for one in hypotheses if one.needed]
    known = [n for n in asked if n is not None]
    return max(known) if known and len(known) == len(asked) else None


def _curve(study: Study, beliefs: Beliefs, *, n_sims: int, seed: int) -> tuple[PowerAt, ...]:
    """Power by number of seeds; the chance of adopting only where the rule can be simulated at every number."""
    truth = Truth("every claim true", {name: effect_when_true(study, name) for name in study.hypotheses})
    simulated = bool(adopting_verdicts(study)) and drawable(study, truth, beliefs) is None
    found = []
    for n in sorted({*_CURVE, len(study.seeds)}):
        chances = {}
        for name, hypothesis in study.hypotheses.items():
            sd = sd_difference(study, name, beliefs)
            if sd is not None and hypothesis.smallest > 0:
                chances[name] = power_of(study, name, sd, n)
        chance = None
        if simulated and batchable(study, n):
            chance = adoption(study, truth, beliefs, n_seeds=n, n_sims=n_sims, seed=[seed, 1_000 + n])
        found.append(PowerAt(n=n, power=chances, adopting=chance))
    return tuple(found)


def _notes(study: Study, lacking: list[str], beliefs: Beliefs) -> list[str]:
    notes = [
        "normal differences and stable runs unless a scenario says otherwise; skewed differences have the same mean "
        "and SD, and their long tail against the claim, where a t test errs most; seeds are independent, and different "
        "metrics of one run are drawn independently of each other, which the format has no field to say otherwise",
        "detectable sizes, power and seeds are those of a paired t"
        + ("" if study.analysis.test == "paired_t" else f"; the chances are those of {study.analysis.test}"),
    ]
    if study.stopping != "fixed":
        notes.append("detectable sizes, power and seeds are those of all planned seeds judged once, without looks")
    notes += [said for said in (said_unasked(study), _said_assumed(study, beliefs)) if said]
    notes += [_said_belief(belief) for belief in beliefs.metrics]
    if lacking:
        notes.append(
            "without assumed SDs no power can be given in the metric's unit, and only 'no effect anywhere' is "
            "simulated, with SDs of 1, where margins mean nothing; write assume: {metrics: {"
            + ", ".join(f"{metric}: {{sd: SD, correlation: R}}" for metric in lacking)
            + "}}, or give --pilot STUDY"
        )
    return notes


def _said_assumed(study: Study, beliefs: Beliefs) -> str:
    """What SD and correlation stand for where a claim reads another value than the last."""
    elsewhere = [name for name, hypothesis in study.hypotheses.items() if hypothesis.read != "final"]
    if not elsewhere or not beliefs.metrics:
        return ""
    return (
        f"{', '.join(elsewhere)} read{'s' if len(elsewhere) == 1 else ''} another value than the last, and of a metric "
        "on one scale one SD and one correlation are known: those of `assume` stand for every reading of it, those of "
        "a pilot are of its last values"
    )


def _said_stops(scenario: Scenario) -> str:
    """Where a sequential study would end; only under the laws that its levels are worked out for."""
    if not scenario.stops or scenario.law != "normal" or scenario.divergence:
        return ""
    chances = ", ".join(f"{100 * one.share:.3g}% {one.of.split(', ')[1]}" for one in scenario.stops if one.share > 0)
    return (
        f"'{scenario.name}': the study ends {chances}; {scenario.mean_seeds:.3g} seeds on average, in "
        f"{scenario.n_sims:,} simulated studies"
    )


def _said_belief(belief: Belief) -> str:
    scale = "" if belief.scale == "raw" else f" ({belief.scale} scale)"
    said = f"{belief.metric}{scale}: SD {belief.sd:.4g}, correlation {belief.correlation:.2f} ({belief.source})"
    if belief.sd_difference_low is None or belief.sd_difference_high is None:
        return said
    return (
        f"{said}; SD of a difference of two arms {sqrt(2.0) * belief.sd_of_rest:.4g}, 95% interval "
        f"{belief.sd_difference_low:.4g} to {belief.sd_difference_high:.4g}: power and seeds are as uncertain as that"
    )
