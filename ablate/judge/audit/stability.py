"""Whether the runs of a variant were stable, by the registered rule and nothing else.

A run is unstable when it diverged (its record says so) or when any step of its training loss is a spike: a robust
z-score against the trailing window above a limit. This describes runs; it tests no hypothesis.

The limit is registered (`above`), or follows from the registered chance of false alarms: then it is the robust z that
stationary normal noise exceeds anywhere in a study with that chance. `spike_chance` gives the chance S of one step.
Windows of neighbouring steps overlap and their alarms come together, so that 1 - (1 - S)^steps is an upper bound for
the chance of any alarm: 2% too high at a limit of 10 over a window of 20, 5% at 6.

The first steps have no full window before them. With `first_steps` they are judged by the window that follows, above a
limit at which they add no more than `EARLY` of the chance of all other steps. A run that blows up early and stays there
has no spike: for that a study registers a level that each run must reach by a step (`stable: {reached: ...}`).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, exp, expm1, lgamma, log, log1p, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from ablate.judge.stats.root import root
from ablate.judge.stats.tests import Floats
from ablate.judge.verdict import Stability
from prereg.study.spec import Study
from prereg.study.training import Training
from prereg.text import compact, counted

if TYPE_CHECKING:
    from ablate.records.evidence import Evidence, Line

CURVE = "train/loss"
_SCALE = 1.4826
"""From MAD to SD under a normal law."""
EARLY = 0.02
"""Chance of an alarm in the first steps over that in the steps with a full window before them; an upper bound."""
_WIDEST = 199
_HIGHEST = 1e6


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
        for run in (run for run in runs if run.status == "done"):
            best = {metric: _best_by(study, metric, lines.get(run.cell)) for metric, (_, lines) in levels.items()}
            best = {metric: at for metric, at in best.items() if not _reaches(study, metric, at, levels[metric][0])}
            if best:
                short[run.seed] = best
        for run in (run for run in runs if run.cell in curves):
            steps, losses = curves[run.cell]
            places = spike_places(losses, above=above, window=spike.window)
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
    known = [_judged_steps(study, arm) for arm in study.arms]
    each = [max(longest - spike.window, 0) if steps is None else steps for steps in known]
    steps = sum(len(study.seeds_of(arm)) * count for arm, count in zip(study.arms, each, strict=True))
    return _limit(_one_of(spike.false_alarms, max(steps, 1)), spike.window)


def false_alarm_rate(study: Study, arm: str) -> float | None:
    """Chance that a run of the arm is called unstable by a spike when its losses are stationary normal noise.

    An upper bound that is 2 to 5% too high, see above. None where a limit is registered and the number of steps is not:
    that is so for a user's own trainer.
    """
    spike, steps = study.stable.loss_spike, _judged_steps(study, arm)
    if steps is not None:
        return _any_of(spike_chance(spike_limit(study), spike.window), steps)
    return None if spike.false_alarms is None else _one_of(spike.false_alarms, len(study.judged))


def false_alarm_text(study: Study) -> str:
    """The limit and its rate of false alarms in a sentence; empty where the decision does not use stability."""
    spike, n = study.stable.loss_spike, study.n_seeds
    if not study.rule.arms_read:
        return ""
    rates = [rate for arm in study.arms if (rate := false_alarm_rate(study, arm)) is not None]
    limit = "a limit that follows from the number of steps of the longest run"
    if spike.above is not None or study.trainer == "gpt":
        limit = compact(spike_limit(study))
    text = f"a step whose loss has a robust z above {limit}, over {counted(spike.window, 'step')}, is a spike; "
    if not rates:
        return (
            text + "how often noise alone exceeds it is not known: a trainer of your own registers no number of steps"
        )
    whole = 1.0 if max(rates) == 1.0 else -expm1(n * sum(log1p(-rate) for rate in rates))
    shares = [f"{100 * rate:.2g}%" for rate in (max(rates), _any_of(max(rates), n), whole)]
    return (
        f"{text}where all losses are stationary normal noise, a run is called unstable with a chance of at most "
        f"{shares[0]}, an arm of {counted(n, 'run')} {shares[1]}, any arm of the study {shares[2]}; heavier tails and "
        "strong autocorrelation raise it"
    )


def _judged_steps(study: Study, arm: str) -> int | None:
    """Steps of a run that have a whole window before them; none where the study does not say how many it takes."""
    config = study.arms[arm].config
    return max(config.budget.steps - study.stable.loss_spike.window, 0) if isinstance(config, Training) else None


def _any_of(chance: float, times: int) -> float:
    return 1.0 if chance >= 1.0 else -expm1(times * log1p(-chance))


def _one_of(chance: float, times: int) -> float:
    """The chance of each of so many independent events of which any happens with the given chance."""
    return -expm1(log1p(-chance) / times)


@lru_cache(maxsize=1024)
def _limit(chance: float, window: int) -> float:
    """The limit that one step of noise exceeds with a chance, rounded up to two decimals."""
    target = log(chance)
    if spike_chance(_HIGHEST, window) >= chance:
        return _HIGHEST
    found = root(lambda at: log(spike_chance(exp(at), window)) - target, log(0.01), log(_HIGHEST), xtol=1e-9)
    return ceil(round(100.0 * exp(found), 4)) / 100.0


@lru_cache(maxsize=1024)
def spike_chance(above: float, window: int) -> float:
    """P(z > above) of a normal loss after a window of normal ones, all independent.

    Given the median m and the MAD s of the window, the chance is Phi(-(m + 1.4826 above s)). Over an odd window of
    2k + 1 the joint law of the two is known: beyond the median lie k values on either side, each side a sample of the
    normal law cut off at m, and the MAD is at most s if k of these 2k lie within s of m. The double integral is taken
    by Gauss-Legendre, relative error below 1e-6. An even window takes the average of two middle values; there the
    chance is that of the next odd window over 1 - 0.53 / window, which differs from the integral over all four middle
    values by less than 0.6% at limits of 5 and more, and 2.3% from 2 on. Windows of more than 199 steps are taken as
    199: an upper bound.
    """
    window = min(window, _WIDEST)
    k = window // 2
    b = _SCALE * above
    far = np.array(min(6.0, 11.0 / sqrt(window)))
    m, of_m = _nodes(32, -far, far)
    log_density = (
        lgamma(2 * k + 2) - 2.0 * lgamma(k + 1) + k * (special.log_ndtr(m) + special.log_ndtr(-m)) - m * m / 2.0
    )
    of_m = of_m * np.exp(log_density) / sqrt(2.0 * pi)
    # Beyond the end either the MAD is never so large, or the loss is never so far out.
    end = np.minimum((9.0 - m) / b, 1.0 + np.abs(m) + 12.0 / sqrt(window))
    s, of_s = _nodes(40 + window // 4, np.zeros_like(m), end)
    m = m[:, None]
    below = _binomial(k, 1.0 - special.ndtr(m - s) / special.ndtr(m))
    beyond = _binomial(k, 1.0 - special.ndtr(-m - s) / special.ndtr(-m))
    # i of the values below the median, and at least k - i of those beyond it.
    within = (below * np.cumsum(beyond[..., ::-1], axis=-1)).sum(axis=-1)
    integrand = b * np.exp(-((m + b * s) ** 2) / 2.0) / sqrt(2.0 * pi) * within
    odd = float((of_m * ((integrand * of_s).sum(axis=1) + special.ndtr(-(m[:, 0] + b * end)))).sum())
    return odd if window % 2 else odd / (1.0 - 0.53 / window)


def _binomial(k: int, chance: Floats) -> Floats:
    """The chances of 0 to k successes, along a last axis."""
    i, chance = np.arange(k + 1), chance[..., None]
    return np.asarray(special.binom(k, i) * chance**i * (1.0 - chance) ** (k - i))


def _nodes(n: int, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss-Legendre between two ends, along a last axis."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    half = (high - low)[..., None] / 2.0
    return low[..., None] + half * (1.0 + nodes), half * weights


def spike_places(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Indices of upward spikes: (loss - median) / scale above the limit, over the full window just before.

    The scale is 1.4826 x MAD, which estimates the SD under a normal law; where more than half of a window is one value
    the MAD is 0, and 1.2533 x the mean absolute deviation is taken (Iglewicz and Hoaglin 1993). After a window that is
    constant throughout any rise is a spike. A value that is not finite is a spike, and no window that holds one is
    judged: such a run has diverged anyway.

    Of losses that were logged with few digits each lies within half a step of their grid from the true one. A rise is
    then taken as one step smaller and the MAD as one step larger: a spike of the logged losses is one of the true ones,
    so that rounding adds no false alarm.
    """
    losses = np.asarray(losses, dtype=np.float64)
    broken = np.flatnonzero(~np.isfinite(losses))
    if losses.size <= window:
        return broken
    maybe = _maybe_risen(losses, above=above, window=window)
    before = np.lib.stride_tricks.sliding_window_view(losses, window)[maybe]
    whole = np.isfinite(before).all(axis=1) & np.isfinite(losses[window:][maybe])
    maybe = maybe[whole]
    before, now = before[whole], losses[window:][maybe]
    median = np.median(before, axis=1)
    distance = np.abs(before - median[:, None])
    mad = np.median(distance, axis=1)
    grid = grids(losses, maybe, window)
    with np.errstate(over="ignore"):
        scale = np.where((mad > 0) | (grid > 0), _SCALE * (mad + grid), 1.2533 * distance.mean(axis=1))
        risen = now - median - grid > above * scale
    return np.union1d(broken, maybe[risen] + window).astype(np.int64)


def early_spike_places(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Indices of spikes before the first full window: above the median of all that came before, and of the window that
    follows, by so many of that window's scale.

    Stationary noise is the same backwards, so that the chance of one step is at most `spike_chance` of its limit. The
    limit is higher than that of later steps: the first steps add `EARLY` to their chance. A loss that falls is below
    what came before, and no spike.
    """
    losses = np.asarray(losses, dtype=np.float64)
    judged = min(window - 1, losses.size - 1 - window)
    if judged < 1:
        return np.empty(0, dtype=np.int64)
    chance = EARLY * spike_chance(above, window) * (losses.size - window) / judged
    limit = max(above, _limit(chance, window)) if chance > 0.0 else above
    end, spikes = judged + window, []
    backwards = losses[: end + 1][::-1]
    for place in end - spike_places(backwards, above=limit, window=window):
        before, after = losses[:place], losses[place + 1 : place + 1 + window]
        if 1 <= place <= judged and np.isfinite(losses[: place + 1]).all():
            # The same spike with the median of what follows raised to that of what came before.
            lowered = np.append(after[::-1], losses[place] - max(float(np.median(before) - np.median(after)), 0.0))
            if spike_places(lowered, above=limit, window=window).size:
                spikes.append(int(place))
    return np.array(sorted(spikes), dtype=np.int64)


def grids(losses: Floats, places: np.ndarray, window: int) -> Floats:
    """The step of the grid on which the losses of some windows lie, each with the loss after it; 0 where on none.

    Decimals up to the eighth, of double or single precision, and the numbers of bfloat16 and of half precision. A grid
    counts where all losses of a window lie on it, which those that were not rounded do not.
    """
    grid = np.zeros(places.size)
    if not places.size:
        return grid
    decimal = np.zeros(losses.size)
    with np.errstate(over="ignore", invalid="ignore"):
        single = losses.astype(np.float32)
        is_single = single.astype(np.float64) == losses
        for digits in range(8, -1, -1):
            step = 10.0**-digits
            rounded = np.rint(losses * 10.0**digits) / 10.0**digits
            near = is_single & (rounded.astype(np.float32) == single) & (step > 8.0 * np.spacing(np.abs(single)))
            decimal[((rounded == losses) & (step > 8.0 * np.spacing(np.abs(losses)))) | near] = step
        fraction, exponent = np.frexp(losses)
    grid = np.lib.stride_tricks.sliding_window_view(decimal, window + 1)[places].min(axis=1)
    fraction = np.where(np.isfinite(losses), fraction, np.pi)  # on no grid
    for bits in (8, 11):
        on_grid = np.ldexp(fraction, bits) % 1.0 == 0.0
        spacing = np.where(on_grid, np.ldexp(1.0, exponent - bits), np.inf)
        widest = np.lib.stride_tricks.sliding_window_view(spacing, window + 1)[places].max(axis=1)
        grid = np.maximum(grid, np.where(np.isfinite(widest), widest, 0.0))
    return np.asarray(grid, dtype=np.float64)


def _maybe_risen(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Places after the first window that may be spikes: all that are, and few others, for a tenth of the time.

    A quarter of a window's length of neighbouring windows is judged by all their values, sorted once. A median is no
    lower than the value that has its rank among them. Half of a window lies within its MAD, so that the MAD is no
    smaller than half of the shortest range of so many values. More values than those of the windows do no harm.
    """
    half, step = (window + 1) // 2, window // 4
    finite = np.where(np.isfinite(losses), losses, 0.0)  # a window with another value is not judged
    finite = np.append(finite, np.zeros(step))
    values = np.lib.stride_tricks.sliding_window_view(finite, window + step)[::step]
    ranked = np.sort(values, axis=1)
    with np.errstate(over="ignore"):
        shortest = (ranked[:, half - 1 :] - ranked[:, : window + step - half + 1]).min(axis=1)
        rise = values[:, window:].max(axis=1) - ranked[:, (window - 1) // 2]
        maybe = rise * (1.0 + 1e-6) >= above * _SCALE * shortest / 2.0
    return np.flatnonzero(np.repeat(maybe, step)[: losses.size - window])
