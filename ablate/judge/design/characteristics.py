"""Operating characteristics of a design: what the rule can find, how often it errs, what never happens.

Every chance comes from simulating the registered rule with the functions that will judge it
(`ablate.judge.design.simulate`): power and seeds from `ablate.judge.design.power`, the false-positive rate of the whole
rule from `ablate.judge.design.error_rate`. Without a scale (`assume`, or a pilot) nothing is simulated and no such
number is given. What no data could produce is `ablate.judge.design.reach`'s.
"""

from __future__ import annotations

from math import sqrt

from ablate.judge.audit.stability import false_alarm_text
from ablate.judge.design.assumptions import Beliefs, ScaleBelief, assumed, groups_of, over_new_items
from ablate.judge.design.choice import notes_on_choice
from ablate.judge.design.error_rate import correlations, unsearched, worst_answers, worst_case
from ablate.judge.design.power import Planning, PowerAt, planned_power
from ablate.judge.design.reach import (
    HypothesisDesign,
    hypothesis_design,
    planned_sizes,
    remedy_of,
    unreachable_verdicts,
)
from ablate.judge.design.scenarios import drawable, effect_scenarios
from ablate.judge.design.simulate import SimulatedChance, SimulatedScenario, adopting_verdicts, affordable, simulate
from ablate.judge.stats.significance_tests import COUNTED_PAIRS, LISTED_PAIRS
from prereg.documents.sentences import counted_as
from prereg.frozen import FrozenModel
from prereg.rule.divergence import said_losses
from prereg.study.analysis import in_words
from prereg.study.measure import units_of
from prereg.study.spec import Study
from prereg.study.words_of_tests import Test
from prereg.text import listed

_CURVE = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 30)
"""Numbers of seeds on the curve of power, and the study's own."""
_SHORT_CURVE = (3, 5, 8, 10)
"""The same where every study costs a resampling."""
_CURVE_SIMS = 2_000
_CHOICE_SIMS = 10_000
_FEW_SIMS = 2_000
"""With fewer simulated studies a scenario the design says how many, because a second digit is then uncertain."""
_OVER_THESE_ITEMS = (
    "over seeds and these items the test is a paired t over the seeds' means, and is simulated as one; the SDs are "
    "those of a run's mean over its items"
)
_NOT_OVER_ITEMS = (
    "not simulated: a test over new seeds and new items needs {lacking}; sizes in SDs of the differences are those of "
    "a paired t over the seeds' means, and new items make what can be found larger than that. sd is that of a run's "
    "mean over its items; over_items is about the difference of two variants on one {unit}: sd_items is its SD "
    "between {unit}s, over all seeds, sd_residual its SD about what {unit} and seed explain, items the number of "
    "{unit}s; write assume: {{metrics: {{{fix}}}}}"
)
_OVER_NEW_ITEMS = (
    "over new seeds and new items: simulated from seeds' means and mean squares, all normal but where a scenario says "
    "that differences are skewed, which are then the seeds' means; sizes in SDs of the differences are those of a "
    "paired t over the seeds' means"
)


class Design(FrozenModel):
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
    scenarios: tuple[SimulatedScenario, ...]
    """Simulated states of the world."""
    unreachable: tuple[str, ...]
    """Verdicts that no data could produce."""
    remedy: str
    """The smallest change after which every needed "supported" can happen; empty when all can."""
    notes: tuple[str, ...]
    """What these numbers rest on."""
    seed: int
    """Seed of the simulation."""
    beliefs: tuple[ScaleBelief, ...]
    """SD and correlation of every claimed metric, with their source."""
    adopting: tuple[str, ...]
    """Verdicts that a supported claim brings about: see `ablate.judge.design.simulate`."""
    false_adoption: SimulatedChance | None
    """The false-positive rate of the whole rule: the largest chance of a false adoption over true effects and over the
    correlation of metrics, with normal differences and no divergence; none without a scale, and of a rule that adopts
    nothing."""
    false_adoption_in: str
    """The state of the world where it is largest."""
    worst: tuple[SimulatedScenario, ...]
    """That state of the world, the same with skewed differences, and with seeds that fail; none without a rate."""
    wrong_answer: SimulatedChance | None = None
    """The largest chance of any wrong answer over true effects and over correlations of metrics from -0.9 to 0.9, with
    normal differences and no divergence; none without a scale, of a rule that answers nothing, and in a lock from
    before it was counted."""
    wrong_answer_in: str = ""
    """The state of the world where it is largest."""
    wrong_answers: tuple[SimulatedScenario, ...] = ()
    """That state of the world, the worst one with skewed differences, and the worst one with seeds that fail."""
    power_floor: float
    """Power below which registration is refused for a claim that the decision needs."""
    curve: tuple[PowerAt, ...]
    """Power by number of seeds."""
    seeds_80: int | None
    """Seeds with which every hypothesis that the decision asks to be supported has power .80 at its `effect`."""
    seeds_90: int | None
    """The same for power .90."""
    adoption_80: int | None
    """Fewest seeds of the curve with which an adopting verdict has a chance of .80 when every claim is true."""
    seconds_per_run: float | None
    """Time of a run, assumed or measured."""
    timed: str
    """Which of the two, and on how many runs."""
    cost_80_s: float | None
    """Seconds for all runs with `seeds_80` seeds, one after another."""
    cost_90_s: float | None
    """Seconds for all runs with `seeds_90` seeds."""
    gate: str
    """The gate in words; empty without one."""
    not_searched: str
    """Why the worst case was not searched for, so that `false_adoption` is the largest of the printed scenarios and a
    lower bound; empty where it was."""


def simulate_design(
    study: Study, *, n_sims: int | None = None, seed: int = 0, beliefs: Beliefs | None = None
) -> Design:
    """Plan a study with the functions that will judge it.

    Parameters
    ----------
    n_sims : int, optional
        Simulated studies a scenario, at most those that are affordable for its test.
    seed : int
        Of all draws: the same study, beliefs and seed give the same design.
    beliefs : Beliefs, optional
        Those of a pilot (`assumptions.learned`); else those of the study's `assume:` block.

    Notes
    -----
    Under `test: items` new seeds on these items are planned as what they are, a paired t over the seeds' means. Over
    new items nothing is simulated, and no power is given, unless `assume: over_items` says how items vary.
    """
    registered = study.analysis.test
    if registered == "items" and not over_new_items(study):
        # Over these very items the judge runs a paired t over the seeds' means; so does the design, and needs no
        # items.
        means = study.analysis.model_copy(update={"test": "paired_t", "also": ()})
        study = study.model_copy(update={"analysis": means})
    # What is believed; without all of it nothing is simulated.
    believed = assumed(study) if beliefs is None else beliefs
    unknown = _unknown_items(study, believed) if over_new_items(study) else ""
    if unknown:
        believed = believed.model_copy(update={"metrics": ()})
    lacking = sorted({metric for metric, scale in groups_of(study) if believed.of(metric, scale) is None})
    drawn = affordable(study) if n_sims is None else min(n_sims, affordable(study))
    correlation = study.assume.metric_correlation or 0.0
    states = [] if lacking else effect_scenarios(study, divergence=believed.divergence, correlation=correlation)
    # The printed states of the world.
    reasons = [drawable(study, truth) for truth in states]
    scenarios = tuple(
        simulate(study, truth, believed, n_sims=drawn, seed=[seed, index])
        for index, (truth, reason) in enumerate(zip(states, reasons, strict=True))
        if reason is None
    )
    # What each claim can come to, and the state of the world in which the rule errs most.
    hypotheses = tuple(hypothesis_design(study, name, believed) for name in study.hypotheses)
    worst: tuple[SimulatedScenario, ...] = ()
    wrong: tuple[SimulatedScenario, ...] = ()
    curve: tuple[PowerAt, ...] = ()
    if states:
        planning = Planning(study, believed, correlation, drawn, seed)
        hypotheses = tuple(planned_power(hypothesis, planning) for hypothesis in hypotheses)
        curve = _curve(study, planning)
        printed = [truth for truth, reason in zip(states, reasons, strict=True) if reason is None]
        worst = worst_case(study, believed, printed, n_sims=drawn, seed=seed)
        wrong = worst_answers(study, believed, printed, n_sims=drawn, seed=seed)
    # What all of it rests on.
    notes = [f"component ablation, {study.components.title()}; arms: {listed(study.arms)}"] if study.components else []
    notes += [unknown] if unknown else _notes(study, lacking, believed)
    if over_new_items(study) and not unknown:
        notes.append(_OVER_NEW_ITEMS + ("; tasks are taken to be of equal size" if _unit(study) == "task" else ""))
    notes += [_OVER_THESE_ITEMS] if registered == "items" and not over_new_items(study) else []
    notes += [text for scenario in scenarios if (text := _said_stops(scenario))]
    notes += notes_on_choice(study, believed, n_sims=min(drawn, _CHOICE_SIMS), seed=seed)
    for reason in dict.fromkeys(filter(None, reasons)):
        names = [f"'{truth.name}'" for truth, why in zip(states, reasons, strict=True) if why == reason]
        notes.append(f"not simulated: {', '.join(names)}: {reason}")
    seeds_80, seeds_90 = (_seeds_for_all(hypotheses, target) for target in (80, 90))
    each = believed.seconds_per_run
    return Design(
        study=study.study,
        test=registered,
        alpha=study.analysis.alpha,
        correct="gate" if study.gate_steps else study.analysis.correct,
        n_seeds=study.n_seeds,
        n_runs=len(study.cells),
        cost_s=_cost(study, each, study.n_seeds),
        hypotheses=hypotheses,
        scenarios=scenarios,
        unreachable=unreachable_verdicts(study, hypotheses),
        remedy=remedy_of(study, hypotheses),
        notes=tuple(notes),
        seed=seed,
        beliefs=believed.metrics,
        adopting=adopting_verdicts(study),
        false_adoption=worst[0].false_adopting if worst else None,
        false_adoption_in=worst[0].name if worst else "",
        worst=worst,
        wrong_answer=wrong[0].wrong_answer if wrong else None,
        wrong_answer_in=wrong[0].name if wrong else "",
        wrong_answers=wrong,
        power_floor=study.assume.power_floor,
        curve=curve,
        seeds_80=seeds_80,
        seeds_90=seeds_90,
        adoption_80=next((at.n for at in curve if at.adopting is not None and at.adopting.share >= 0.8), None),
        seconds_per_run=each,
        timed=believed.timed if each is not None else "",
        cost_80_s=_cost(study, each, seeds_80),
        cost_90_s=_cost(study, each, seeds_90),
        gate=in_words(study),
        not_searched=unsearched(study) if worst or wrong else "",
    )


def _seeds_for_all(hypotheses: tuple[HypothesisDesign, ...], target: int) -> int | None:
    """The most seeds that any needed hypothesis needs; none when one of them is unknown or beyond reach."""
    # Needed by the rule alone: an exploratory claim must not make a study look too small.
    seeds_each = [claim.seeds_80 if target == 80 else claim.seeds_90 for claim in hypotheses if claim.needed]
    reached = [n for n in seeds_each if n is not None]
    return max(reached) if reached and len(reached) == len(seeds_each) else None


def _cost(study: Study, each: float | None, n: int | None) -> float | None:
    """Device seconds of all runs, where each takes so long and the arm with most runs has n."""
    if each is None or n is None:
        return None
    # A pilot's runs are planned runs too, and cost as much whatever n is.
    return each * (sum(planned_sizes(study, n).values()) + sum(study.pilot_runs.values()))


def _curve(study: Study, planning: Planning) -> tuple[PowerAt, ...]:
    """Power by number of seeds; none for a sequential study, whose looks are those of its own number."""
    if study.stopping != "fixed":
        return ()
    # A resampling test takes seconds at every point of the curve.
    quick = affordable(study, 30) >= _CURVE_SIMS
    seeds = sorted({*(_CURVE if quick else _SHORT_CURVE), study.n_seeds})
    return tuple(planning.at(n, n_sims=_CURVE_SIMS) for n in seeds)


def _unknown_items(study: Study, beliefs: Beliefs) -> str:
    """What is not known of the items, and how to say it; nothing where all of it is known."""
    fix, lacking = [], set()
    for metric, scale in groups_of(study):
        belief = beliefs.of(metric, scale)
        if belief is not None and belief.n_items is not None:
            continue
        assumption = study.assume.of(metric)
        spread = None if assumption is None else assumption.over_items
        # The number of items follows from the registered tasks, where the pack says how many it has.
        counted = study.measure.harness is None or units_of(metric, study.measure.harness) is None
        lacking |= {"the SD of a run's mean over its items"} if belief is None else set()
        lacking |= {"the spread of items"} if spread is None else set()
        lacking |= {"the number of items"} if counted and (spread is None or spread.items is None) else set()
        fields = "sd_items: SD, sd_residual: SD" + (", items: N" if counted else "")
        fix.append(f"{study.assume.name_of(metric)}: {{sd: SD, correlation: R, over_items: {{{fields}}}}}")
    if not fix:
        return ""
    return _NOT_OVER_ITEMS.format(lacking=listed(sorted(lacking)), unit=_unit(study), fix=", ".join(dict.fromkeys(fix)))


def _unit(study: Study) -> str:
    harness = study.measure.harness
    return "task" if harness is not None and harness.clusters == "tasks" else "item"


def _notes(study: Study, lacking: list[str], beliefs: Beliefs) -> list[str]:
    notes = [
        "normal differences, and no run diverges, unless a scenario says otherwise; skewed differences have the same "
        "mean and SD, and their long tail against the claim, where a t test errs most; seeds are independent"
        + _said_correlation(study),
        f"power, detectable sizes and seeds are those of the registered rule ({study.analysis.test}), by simulation "
        "with every claim true at once",
    ]
    # Standard error of a chance of one half, the largest that a chance can have.
    if affordable(study) < _FEW_SIMS:
        notes.append(
            f"{affordable(study):,} simulated studies a scenario, because {study.analysis.test} with "
            f"{study.analysis.correct} over {study.n_seeds} seeds is slow to judge: a chance has a standard "
            f"error of up to {0.5 / sqrt(affordable(study)):.2f}"
        )
    if not study.paired:
        notes.append(
            "runs of different arms are simulated as independent, and an assumed or measured correlation is ignored; "
            "SDs are those of a difference of two such runs; n is the number of runs of the arm that has most, and "
            "with another n the other arms keep their proportion"
        )
    if study.analysis.test == "sign_flip" and study.n_seeds > LISTED_PAIRS:
        notes.append(
            f"sign_flip over more than {LISTED_PAIRS} seeds is simulated with random sign vectors, where the judge "
            f"counts all of them up to {COUNTED_PAIRS} seeds"
        )
    notes += [
        *(counted_as(study, sentence) for sentence in said_losses(study)),
        *filter(None, [false_alarm_text(study), _said_assumed(study, beliefs)]),
    ]
    notes += [_said_belief(belief) for belief in beliefs.metrics]
    if lacking:
        sized_by = "a paired t" if study.paired else "Welch's t of independent runs"
        notes.append(
            "without assumed SDs there is no scale: no power, no chance of a verdict and no false-positive rate of the "
            f"rule can be given, and detectable sizes are in SDs of the differences, of {sized_by}; write assume: "
            "{metrics: {"
            + ", ".join(f"{metric}: {{sd: SD, correlation: R}}" for metric in lacking)
            + "}}, or give --pilot STUDY"
        )
    return notes


def _said_correlation(study: Study) -> str:
    if len(groups_of(study)) < 2:
        return ""
    if study.assume.metric_correlation is not None:
        return f"; the noise of two metrics of one run has the assumed correlation {study.assume.metric_correlation:g}"
    looked = ", ".join(f"{correlation:g}" for correlation in correlations(study))
    return (
        f"; the noise of two metrics of one run is uncorrelated in the scenarios, and correlated by {looked} where the "
        "worst case is looked for (assume: metric_correlation fixes it)"
    )


def _said_assumed(study: Study, beliefs: Beliefs) -> str:
    """What SD and correlation stand for where a claim reads another value than the last."""
    elsewhere = [name for name, hypothesis in study.hypotheses.items() if hypothesis.read != "final"]
    if not elsewhere or not beliefs.metrics:
        return ""
    return (
        f"{', '.join(elsewhere)} read{'s' if len(elsewhere) == 1 else ''} another value than the last, and of a metric "
        "on one scale one SD and one correlation are known: those of `assume` are used for every reading of it, "
        "those of a pilot are of its last values"
    )


def _said_stops(scenario: SimulatedScenario) -> str:
    """Where a sequential study would end; only under the laws that its levels are worked out for."""
    if not scenario.stops or scenario.law != "normal" or scenario.divergence:
        return ""
    chances = ", ".join(
        f"{100 * chance.share:.3g}% {chance.of.split(', ')[1]}" for chance in scenario.stops if chance.share > 0
    )
    return (
        f"'{scenario.name}': the study ends {chances}; {scenario.mean_seeds:.3g} seeds on average, in "
        f"{scenario.n_sims:,} simulated studies"
    )


def _said_belief(belief: ScaleBelief) -> str:
    scale = "" if belief.scale == "raw" else f" ({belief.scale} scale)"
    sentence = f"{belief.metric}{scale}: SD {belief.sd:.4g}, correlation {belief.correlation:.2f} ({belief.source})"
    if belief.n_items is not None:
        sentence += (
            f"; of the difference of two variants over {belief.n_items:,} units (items, or tasks), SD "
            f"{belief.sd_items:.4g} between them and {belief.sd_residual:.4g} under one seed beyond that (assumed)"
        )
    if belief.sd_difference_low is None or belief.sd_difference_high is None:
        return sentence
    return (
        f"{sentence}; SD of a difference of two arms {sqrt(2.0) * belief.sd_of_rest:.4g}, 95% interval "
        f"{belief.sd_difference_low:.4g} to {belief.sd_difference_high:.4g}: power and seeds are as uncertain as that"
    )
