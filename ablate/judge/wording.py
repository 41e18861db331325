"""A finding in one plain sentence: what, by how much, how sure, from how many, by which method.

It never says "no effect" for a p above alpha, and never writes a p of 0. Its interval is the one that agrees with the
outcome (`deciding_interval`): by the kind of the claim two-sided against zero, or with ends that are one-sided bounds,
over all claims that are corrected together. A one-sided test against the margin adds t against it and both p values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import expm1, floor, isclose, log10

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.readings import reading_of
from ablate.judge.stats.estimate import one_sample
from ablate.judge.stats.kinds import words
from ablate.judge.stats.null_hypotheses import Null, deciding_interval, excludes, is_gated, levels_of, nulls_of
from ablate.judge.stats.tests import EQUAL
from ablate.judge.verdict import (
    Estimate,
    Finding,
    Interval,
    ItemLayout,
    MarginTest,
    Stability,
    correction_of,
    shown_zone,
)
from prereg.documents.procedures import PSEUDOMEDIAN, meaning, zone_in_words
from prereg.rule.condition import Outcome
from prereg.study.analysis import EProcess, Looks
from prereg.study.labels import NO_LABELS, Labels
from prereg.study.spec import Study
from prereg.text import compact, counted, crosses, level, listed, p_value


def said_p(p: float, levels: Sequence[float] = ()) -> str:
    """A p value as `= .0004` or `< .0001`, never rounded across one of the levels in use."""
    text = p_value(p, levels)
    return text if text[0] in "<>" else f"= {text}"


def same_in_every_pair(left: npt.ArrayLike, right: npt.ArrayLike, *, paired: bool = True) -> str:
    """What a reader must know where every pair has the same difference; nothing where they differ.

    Without `paired` each seed gives one number, and the right side is the same for all.
    """
    sides = [np.asarray(side_, dtype=np.float64) for side_ in (left, right)]
    differences = sides[0] - sides[1]
    size = max(float(np.abs(one).max(initial=0.0)) for one in sides)
    if differences.size < 2 or not np.isfinite(size) or np.ptp(differences) > EQUAL * size:
        return ""
    n = differences.size
    if not paired:
        return f"all {n} seeds give the same value: the seed seems to do nothing to it"
    if all(np.ptp(one) <= EQUAL * size for one in sides):
        return (
            f"all {n} seeds give the same values: the seed seems to do nothing, or the metric does not depend on it, "
            f"and {n} pairs are then no more evidence than one"
        )
    if np.abs(differences).max() <= EQUAL * size:
        return (
            f"all {n} differences are zero: the arms seem not to differ, or the metric does not depend on what they "
            "change"
        )
    return (
        f"all {n} differences are the same: the seed seems to do nothing to them, or the metric does not depend on it"
    )


def sentence(
    study: Study,
    name: str,
    *,
    outcome: Outcome,
    estimate: Estimate | None,
    adjusted: float | None,
    reason: str,
    simultaneous: Interval | None = None,
    margin: MarginTest | None = None,
    step: Interval | None = None,
    same: str = "",
) -> str:
    """The finding of one hypothesis; `adjusted` is the corrected p of the null that was rejected, or of support.

    `same` is what `same_in_every_pair` says of the pairs.
    """
    hypothesis, claim = study.hypotheses[name], study.claims[name]
    unit = study.unit(name)
    claim = replace(claim, metric=reading_of(study, name, shown=True))
    same = f" Note: {same}." if same else ""
    if estimate is None:
        undecided = meaning(claim, "inconclusive", hypothesis.smallest, unit=unit, baseline=study.baseline)
        return f"{_capital(undecided.removesuffix(' is undecided'))} cannot be tested: {reason}.{same}"
    unit = f" {unit}" if unit else ""
    kind = (claim.verb, claim.better, hypothesis.smallest)
    bounds = deciding_interval(kind, outcome, estimate, simultaneous=simultaneous, margin=margin, step=step)
    one_sided = bounds is not None and is_of_bounds(bounds, estimate, simultaneous, constant=claim.constant is not None)
    ending = f"; smallest that matters {hypothesis.smallest:g}"
    if claim.percent is not None:
        ending = f"{ratio(study, name, estimate, bounds)}; smallest that matters {compact(claim.percent)}%"
    if margin is not None:
        ending += f"; zone: {zone_in_words(claim.verb, claim.better, shown_zone(outcome, margin))}"
    ending += f".{same}"
    flip = outcome == "supported" and claim.verb in ("lowers", "lowers_below")
    said = [] if bounds is None else [_bounds(study, name, bounds, estimate, flip=flip, one_sided=one_sided)]
    evidence = ", ".join(
        [*said, *_details(study, name, estimate, adjusted, bounds=bounds, margin=margin, outcome=outcome)]
    )
    head = _capital(meaning(claim, outcome, hypothesis.smallest, unit=unit.strip(), baseline=study.baseline))
    if estimate.difference is None:
        return f"{head}; runs diverged, so no difference can be stated ({evidence}){ending}"
    by_how_much = _number(-estimate.difference if flip else estimate.difference, estimate)
    centre = f"a {PSEUDOMEDIAN} of " if is_pseudomedian(estimate) else ""
    if outcome == "supported" and claim.verb in ("lowers", "raises", "lowers_below", "raises_above"):
        return f"{head} by {centre}{by_how_much}{unit} ({evidence}){ending}"
    shown = f"{'has' if centre else 'is'} {centre}{by_how_much}{unit}"
    what = f"{claim.left_side} minus {claim.right_side}" if claim.trend is None else claim.left_side
    return f"{head}: {what} {shown} ({evidence}){ending}"


ONLY_P = "decided by p alone, as no interval of this method shows it"


def is_of_bounds(bounds: Interval, estimate: Estimate, simultaneous: Interval | None, *, constant: bool) -> bool:
    """Whether the ends of the interval that is shown are one-sided bounds: not those of the two against zero."""
    return constant or (bounds not in (estimate.interval, simultaneous) and "two-sided" not in bounds.method)


def bounds_in_words(bounds: Interval) -> str:
    """What the ends of an interval at 1 - 2 alpha are."""
    return f"one-sided {level((1.0 + bounds.level) / 2.0)} bounds"


def is_pseudomedian(estimate: Estimate) -> bool:
    """Whether the difference of an estimate is the Hodges-Lehmann one and not the mean."""
    return estimate.method == "wilcoxon" or estimate.ranked > 0


def details_of(study: Study, finding: Finding) -> str:
    """What decided a finding, behind its interval: test, n, p values, and why the interval may not show the outcome."""
    if finding.estimate is None:
        return ""
    name, outcome, margin = finding.hypothesis, finding.outcome, finding.margin
    kind = (study.claims[name].verb, finding.better, finding.smallest)
    bounds = deciding_interval(
        kind, outcome, finding.estimate, simultaneous=finding.simultaneous, margin=margin, step=finding.step
    )
    parts = _details(study, name, finding.estimate, finding.p_shown, bounds=bounds, margin=margin, outcome=outcome)
    return ", ".join(parts)


def ratio(study: Study, name: str, estimate: Estimate, bounds: Interval | None) -> str:
    """A difference of logarithms as a ratio; nothing where it is no ratio of two means, or not of means."""
    if estimate.difference is None or not is_ratio(study, name, estimate):
        return ""
    width = 0.0 if bounds is None or bounds.low is None or bounds.high is None else bounds.high - bounds.low
    decimals = min(6, max(1, 1 - floor(log10(100.0 * width)))) if width > 0.0 else 2

    def percent(difference: float) -> str:
        change = 100.0 * expm1(difference)
        return f"{abs(change):.{decimals}f}% {'lower' if change < 0.0 else 'higher'}"

    means = (
        "geometric means over seeds"
        if study.claims[name].is_paired
        else "the geometric mean over seeds to the constant"
    )
    text = f"; as a ratio of {means} {percent(estimate.difference)}"
    if bounds is None or bounds.low is None or bounds.high is None:
        return text
    return f"{text} ({100 * bounds.level:.6g}% interval {percent(bounds.low)} to {percent(bounds.high)})"


def is_ratio(study: Study, name: str, estimate: Estimate) -> bool:
    """Whether a difference of logarithms is the ratio of two means."""
    claim = study.claims[name]
    sides = (claim.left, claim.right) if claim.is_paired else (claim.left,)
    return not is_pseudomedian(estimate) and all(isclose(sum(side_.values()), 1.0) for side_ in sides)


def stability_in_words(arm: Stability, labels: Labels = NO_LABELS) -> str:
    """`fast is stable: of 5 runs none diverged or had a loss spike; the rate may still be up to 45% (95% bound)`."""
    runs = counted(arm.runs, "run")
    bound = f"{share_of_bound(arm)} (95% bound)"
    if arm.stable:
        found = f"{labels.arm(arm.variant)} is stable: of {runs} none diverged or had a loss spike"
        return f"{found}; the rate may still be up to {bound}"
    spiked = sum(bool(steps) for steps in arm.spikes.values())
    why = [f"{len(arm.diverged)} diverged"] * bool(arm.diverged) + [f"{spiked} had loss spikes"] * bool(spiked)
    why += [f"{len(arm.not_reached)} did not reach the registered level"] * bool(arm.not_reached)
    return f"{labels.arm(arm.variant)} is unstable: of {runs} {listed(why)}; the rate may be up to {bound}"


def unstable_runs(arm: Stability) -> int:
    """Runs that diverged, had a loss spike or did not reach a registered level; one that did several counts once."""
    return len({*arm.diverged, *arm.not_reached, *(seed for seed, steps in arm.spikes.items() if steps)})


def share_of_bound(arm: Stability) -> str:
    """The one-sided 95% upper bound of Clopper and Pearson (1934) for the chance that a run is unstable."""
    return f"{100.0 * upper_bound(unstable_runs(arm), arm.runs):.0f}%"


def upper_bound(k: int, n: int) -> float:
    """The largest chance of an event under which at most k of n would still have a probability of 5%."""
    return 1.0 if k >= n else float(special.betaincinv(k + 1, n - k, 0.95))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:] if text.startswith("whether ") else text


def _details(
    study: Study,
    name: str,
    estimate: Estimate,
    adjusted: float | None,
    *,
    bounds: Interval | None,
    margin: MarginTest | None,
    outcome: Outcome,
) -> list[str]:
    if not study.claims[name].kind.against_margin(outcome):
        margin = None
    m = _corrected_over(study, name)
    parts = []
    tested = "t-test e-process" if isinstance(study.stopping, EProcess) else words(study.analysis.test)
    if not study.claims[name].is_paired:
        tested = one_sample(tested)
    if estimate.ranked:
        tested = f"signed ranks, diverged runs ranked worst in {estimate.ranked} of {estimate.n} pairs"
    n = f"n = {estimate.n} seeds"
    if estimate.sizes:
        n = f"n = {listed(list(map(str, estimate.sizes)))} runs of {listed(list(study.claims[name].weights))}"
    parts += [tested, n] if estimate.items is None else _over_items(estimate, estimate.items)
    if margin is not None:
        parts += _against_margin(study, name, estimate, margin)
    if bounds is None and outcome != "inconclusive" and estimate.interval is not None:
        parts.append(ONLY_P)
    parts += disagreement(study, name, outcome, bounds, margin)
    if adjusted is not None and (margin is None or m > 1 or is_gated(study, study.corrected_with(name))):
        parts.append(_said_correction(study, name, adjusted, outcome))
    return parts


def _against_margin(study: Study, name: str, estimate: Estimate, margin: MarginTest) -> list[str]:
    """t against the margin, and both one-sided p values."""
    claim, smallest, levels = study.claims[name], study.hypotheses[name].smallest, levels_of(study, name)
    parts = []
    if estimate.se and estimate.difference is not None and not isinstance(study.stopping, EProcess):
        margins = [claim.direction * smallest] if claim.direction else [-smallest, smallest]
        found = " and ".join(f"{(estimate.difference - one) / estimate.se:.2f} against {one:g}" for one in margins)
        # Over items the degrees of freedom are named with the layout.
        df = f", df {estimate.df:.4g}" if estimate.df is not None and estimate.items is None else ""
        parts.append(f"t = {found}{df}")
    reached, short = (
        zone_in_words(claim.verb, claim.better, zone) for zone in ("at least the margin", "short of the margin")
    )
    parts.append(
        f"one-sided p {said_p(margin.p_reached, levels)} for '{reached}' and {said_p(margin.p_short, levels)} for "
        f"'{short}'"
    )
    return parts


def disagreement(
    study: Study, name: str, outcome: Outcome, bounds: Interval | None, margin: MarginTest | None
) -> list[str]:
    """Why the interval of an inconclusive finding lies on one side of the margin or of zero; nothing where it does not.
    No outcome that was found is shown with such an interval."""
    if bounds is None or margin is None or outcome != "inconclusive":
        return []
    claim, smallest = study.claims[name], study.hypotheses[name].smallest
    support, refute = nulls_of(claim.verb, claim.better, smallest)
    deciding: tuple[Null | None, ...] = (support, refute) if claim.by is not None else (support,)
    if not any(null is not None and excludes(bounds, null) for null in deciding):
        return []
    if is_gated(study, study.corrected_with(name)):
        return ["decided by the gate, whose level for it is not that of this interval"]
    sided = "one-sided " * (margin is not None)
    return [f"decided by the {sided}test, of which this interval is not the exact inverse"]


def _over_items(estimate: Estimate, items: ItemLayout) -> list[str]:
    """The test over seeds and items: which, over how many of both, and of what it speaks."""
    count = f"{items.n_units:,} {items.unit if items.n_units > 1 else items.unit[:-1]}"
    if items.unit == "tasks":
        count += f" ({items.n_items:,} items)"
    if items.estimand == "new_seeds":
        return [
            f"paired t over {estimate.n} seeds on their means of {count}",
            f"df {estimate.df:.4g}",
            f"for new seeds on these {items.unit}",
        ]
    units = f"{items.n_units - 1:,} over {items.unit}"
    of_which = ""
    if items.strata is not None and items.df is not None:
        count += f" within {items.strata:,} tasks"
        units, of_which = f"{items.df:,.4g} over items", " of these tasks"
    if items.effective is not None:
        units = f"exact over {items.effective:.3g} effective tasks"
    return [
        f"two-way t over {estimate.n} seeds x {count}",
        f"df {estimate.n - 1} over seeds and {units}",
        f"for new seeds and new {items.unit}{of_which}",
    ]


def _said_correction(study: Study, name: str, adjusted: float, outcome: Outcome) -> str:
    against = {"supported": "", "refuted": " for the refutation", "inconclusive": " for support"}[outcome]
    levels = levels_of(study, name)
    p = said_p(adjusted, levels)
    if study.claims[name].constant is not None:
        against += ", one-sided"
    elif (
        outcome == "refuted"
        and study.hypotheses[name].smallest == 0.0
        and not study.claims[name].verb.startswith("does")
    ):
        against += ", one-sided, as the interval is not"
    together = study.corrected_with(name)
    if outcome != "refuted" and is_gated(study, together):
        return f"gate p {p} over {len(together)}{against}"
    m = _corrected_over(study, name)
    if m > 1:
        return f"Holm p {p} over {m}{against}"
    return f"p {p}{against}"


def _corrected_over(study: Study, name: str) -> int:
    """How many hypotheses of its family a hypothesis is corrected with, itself among them."""
    return 1 if study.analysis.correct == "none" else len(study.family_of(name))


def kind_of_interval(study: Study) -> str:
    """A sequential study's intervals are not the ordinary ones, and are named."""
    if study.stopping == "fixed":
        return "CI"
    return "repeated CI" if isinstance(study.stopping, Looks) else "anytime-valid CI"


def _bounds(
    study: Study,
    name: str,
    interval: Interval,
    estimate: Estimate,
    *,
    flip: bool,
    one_sided: bool,
) -> str:
    """`97.5% CI 0.040 to 0.058, Bonferroni over 2`; `90% CI 0.040 to 0.058, one-sided 95% bounds`."""
    assert interval.low is not None and interval.high is not None, interval
    smallest = study.hypotheses[name].smallest
    ends = (-interval.high, -interval.low) if flip else (interval.low, interval.high)
    low, high = (_number(end, estimate, (0.0, smallest, -smallest)) for end in ends)
    said = f"{100 * interval.level:.6g}% {kind_of_interval(study)} {low} to {high}"
    said += f", {bounds_in_words(interval)}" if one_sided else ""
    return ", ".join(filter(None, [said, correction_of(interval)]))


def _number(value: float, estimate: Estimate, marks: Sequence[float] = ()) -> str:
    """As many decimals as the interval deserves, three significant digits of its width, and more where rounding would
    cross one of the marks."""
    interval = estimate.interval
    width = 0.0 if interval is None or interval.low is None or interval.high is None else interval.high - interval.low
    if width <= 0.0:
        return f"{value:.4g}"
    decimals = max(0, 2 - floor(log10(width)))
    if decimals > 8 or (decimals == 0 and abs(value) >= 1e7):
        return f"{value:.4g}"
    decimals = next((more for more in range(decimals, 9) if not crosses(value, more, marks)), decimals)
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0.0 else text
