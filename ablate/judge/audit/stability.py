"""Stability of the runs of a variant (spikes, divergence), by the registered rule and nothing else.

A run is unstable when it diverged (its record says so) or when any step of its training loss is a spike: a robust
z-score against the trailing window above a limit. This describes runs; it tests no hypothesis.

The limit is registered (`above`), or follows from the registered chance of false alarms: then it is the robust z that
stationary normal noise exceeds anywhere in a study with that chance (`ablate.judge.stats.spikes`).

The first steps have no full window before them. With `first_steps` they are judged by the window that follows, above a
limit at which they add no more than `EARLY` of the chance of all other steps. A run that blows up early and stays there
has no spike: for that a study registers a level that each run must reach by a step (`stable: {reached: ...}`).
"""

from __future__ import annotations

from math import expm1, log1p
from typing import TYPE_CHECKING

import numpy as np

from ablate.judge.stats.spikes import any_of, each_of, early_spike_places, limit_of, spike_chance, spike_places
from ablate.judge.verdict import Stability
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import compact, counted

if TYPE_CHECKING:
    from ablate.records.evidence import Evidence, Line

CURVE = "train/loss"


def judge_stability(study: Study, evidence: Evidence) -> tuple[Stability, ...]:
    """Every variant's stability, in the order of the study."""
    spike = study.stable.loss_spike
    curves = evidence.lines(CURVE)
    above = spike_limit(study, longest=max((losses.size for _, losses in curves.values()), default=0))
    ended = sorted((run for run in evidence.runs if run.status in ("done", "diverged")), key=lambda run: run.seed)
    levels = {metric: (level, evidence.lines(metric)) for metric, level in study.stable.levels.items()}
    arms = []
    for arm in study.arms:
        runs = [run for run in ended if run.variant == arm]
        diverged = tuple(run.seed for run in runs if run.status == "diverged")
        spikes: dict[int, tuple[int, ...]] = {}
        short: dict[int, dict[str, float | None]] = {}
        # A run that diverged has not reached its level either, and is named once.
        for run in (run for run in runs if run.status == "done"):
            best = {metric: _best_by(study, metric, lines.get(run.cell)) for metric, (_, lines) in levels.items()}
            best = {metric: at for metric, at in best.items() if not _reaches(study, metric, at, levels[metric][0])}
            if best:
                short[run.seed] = best
        for run in (run for run in runs if run.cell in curves):
            steps, losses = curves[run.cell]
            places = spike_places(losses, above=above, window=spike.window)
            # The window of the first steps lies after them; later steps have it before them.
            if spike.first_steps:
                places = np.union1d(places, early_spike_places(losses, above=above, window=spike.window))
            risen = steps[places]
            if risen.size:
                spikes[run.seed] = tuple(risen.tolist())
        arms.append(
            Stability(
                variant=arm,
                stable=not diverged and not spikes and not short,
                runs=len(runs),
                diverged=diverged,
                spikes=spikes,
                not_reached=short,
                above=above if spike.above is None else None,
            )
        )
    return tuple(arms)


def _best_by(study: Study, metric: str, line: Line | None) -> float | None:
    """The best value of a metric after step 0 and up to the step by which its level must be reached, if any."""
    values = np.empty(0) if line is None else line[1][(line[0] > 0) & (line[0] <= study.stable.by)]
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    return float(values.min() if study.better(metric) == "lower" else values.max())


def _reaches(study: Study, metric: str, value: float | None, level: float) -> bool:
    if value is None:
        return False
    return value <= level if study.better(metric) == "lower" else value >= level


def spike_limit(study: Study, *, longest: int = 0) -> float:
    """The robust z above which a step is a spike: as registered, or the lowest that keeps the rate of false alarms.

    The rate is kept over all registered runs, also where a sequential study trains fewer. A user's own trainer does
    not register its steps: there `longest`, the number of losses of the longest run, counts for every run. Rounded up
    to two decimals, so that every machine finds the same.
    """
    spike = study.stable.loss_spike
    if spike.above is not None:
        return spike.above
    assert spike.false_alarms is not None, spike
    registered = [_judged_steps(study, arm) for arm in study.arms]
    each = [max(longest - spike.window, 0) if steps is None else steps for steps in registered]
    # All judged steps of the study share one rate of false alarms: 1 - (1 - chance)^steps.
    steps = sum(len(study.seeds_of(arm)) * count for arm, count in zip(study.arms, each, strict=True))
    return limit_of(each_of(spike.false_alarms, max(steps, 1)), spike.window)


def false_alarm_rate(study: Study, arm: str) -> float | None:
    """Chance that a run of the arm is called unstable by a spike when its losses are stationary normal noise.

    An upper bound that is 2 to 5% too high, see above. None where a limit is registered and the number of steps is not:
    that is so for a user's own trainer.
    """
    spike, steps = study.stable.loss_spike, _judged_steps(study, arm)
    if steps is not None:
        return any_of(spike_chance(spike_limit(study), spike.window), steps)
    return None if spike.false_alarms is None else each_of(spike.false_alarms, len(study.judged))


def false_alarm_text(study: Study) -> str:
    """The limit and its rate of false alarms in a sentence; empty where the decision does not use stability."""
    spike, n = study.stable.loss_spike, study.n_seeds
    if not study.rule.arms_read:
        return ""
    rates = [rate for arm in study.arms if (rate := false_alarm_rate(study, arm)) is not None]
    # A user's own trainer registers no number of steps, so that the limit is known only from its records.
    limit = "a limit that follows from the number of steps of the longest run"
    if spike.above is not None or study.trainer == "gpt":
        limit = compact(spike_limit(study))
    text = f"a step whose loss has a robust z above {limit}, over {counted(spike.window, 'step')}, is a spike; "
    if not rates:
        return (
            text + "how often noise alone exceeds it is not known: a trainer of your own registers no number of steps"
        )
    # Of any arm of the study: runs are independent, and 1 - prod (1 - rate)^n keeps its digits in logarithms.
    any_arm = 1.0 if max(rates) == 1.0 else -expm1(n * sum(log1p(-rate) for rate in rates))
    shares = [f"{100 * rate:.2g}%" for rate in (max(rates), any_of(max(rates), n), any_arm)]
    return (
        f"{text}where all losses are stationary normal noise, a run is called unstable with a chance of at most "
        f"{shares[0]}, an arm of {counted(n, 'run')} {shares[1]}, any arm of the study {shares[2]}; heavier tails and "
        "strong autocorrelation raise it"
    )


def _judged_steps(study: Study, arm: str) -> int | None:
    """Steps of a run that have a whole window before them; none where the study does not say how many it takes."""
    config = study.arms[arm].config
    return max(config.budget.steps - study.stable.loss_spike.window, 0) if isinstance(config, Training) else None
