"""Findings from final values: pairs by seed, contrasts, the registered test, intervals; outcomes come from `judge.py`.

The rules (which null, which side, which level, what is promised) stand in `ablate.judge.stats.null_hypotheses`. Here
values are put on the registered scale, paired over seeds by the claim's weights, tested and described. A seed enters
only when every arm of the claim has a value for it, and a seed left out is named in the notes. Effect sizes, tests
under `also` and simultaneous intervals are description: no
outcome depends on them. Under `test: items` a claim whose items cannot be paired is inconclusive and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.judge.judge import (
    AgainstMargin,
    Judged,
    Judgement,
    Tested,
    all_stable,
    judge,
    registered_test,
    step_level,
    zones,
)
from ablate.judge.readings import (
    notes_on_seeds,
    reading_of,
    rounding_of,
    samples_of,
    scaled,
    shared_seeds,
    stated,
    unusable,
    why_zeros_were_open,
)
from ablate.judge.stats.crossed_items import cross, over_items
from ablate.judge.stats.effects import effect_sizes, independent_effects
from ablate.judge.stats.estimate import interval_of, one_sample, speak_of_seeds, summarise
from ablate.judge.stats.kinds import class_of_test, over_seeds
from ablate.judge.stats.null_hypotheses import (
    NullHypothesis,
    deciding_interval,
    excludes,
    interval_level,
    nulls_in,
    rejected_null,
)
from ablate.judge.stats.precision import levelled
from ablate.judge.stats.sequential import RepeatedT
from ablate.judge.stats.significance_tests import (
    EQUAL,
    Floats,
    Kept,
    NoTestError,
    SignificanceTest,
    Studentized,
    exponent_of,
)
from ablate.judge.stats.two_way import TwoWay
from ablate.judge.stats.unpaired import Sample, welch
from ablate.judge.verdict import ArmSummary, Estimand, Estimate, Finding, Interval, MarginTest, Pair
from ablate.judge.wording import upper_bound
from prereg.registry.looks import Look, require_registered_look
from prereg.registry.plan import Cell
from prereg.rule.divergence import least_pairs
from prereg.study.claim import Claim
from prereg.study.spec import Study
from prereg.text import compact

Values = Mapping[str, Mapping[Cell, float]]


@dataclass(frozen=True)
class Contrast:
    """The pairs of one hypothesis on its registered scale, or the reason why there are none to test."""

    reading: str
    """What is read, and where on the curve, by the words of `reading_of`."""
    values: Mapping[Cell, float]
    """Its values by run."""
    seeds: tuple[int, ...] = ()
    left: Floats = field(default_factory=lambda: np.empty(0))
    right: Floats = field(default_factory=lambda: np.empty(0))
    notes: tuple[str, ...] = ()
    refused: str | None = None
    samples: tuple[Sample, ...] = ()
    """The runs by arm, for a test without pairs: there are no sides then."""
    rounding: Floats = field(default_factory=lambda: np.empty(0))
    """How far each pair's difference may lie from the one that was meant, by the precision of records."""
    zeros_are_open: str = ""
    """Why differences that are all zero say nothing about the claim's margin; empty where they do."""
    kept_within: float = 0.0
    """The claim's margin, where equal differences below it would say that less than it is left; else 0."""

    @property
    def recorded_differences(self) -> Floats:
        """Left minus right."""
        return self.left - self.right

    @property
    def differences(self) -> Floats:
        """The recorded differences, made equal where they are equal as far as records can tell. On a metric that is no
        count, those that are all smaller than the margin stay as they are: they show that less than it is left."""
        recorded = self.recorded_differences
        if not recorded.size:
            return recorded
        one_row = levelled(recorded[None, :], self.rounding[None, :], within=self.kept_within)
        return np.asarray(one_row[0])


@dataclass(frozen=True)
class JudgedStudy:
    """One study, judged."""

    findings: tuple[Finding, ...]
    """In the order of the study."""
    judgement: Judgement
    """The row that they are described from."""


def judge_hypotheses(
    study: Study,
    values: Values,
    *,
    rng_seed: int = 0,
    look: Look | None = None,
    items: pd.DataFrame | None = None,
    withheld: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """The findings of `judge_study` alone, for which neither stability nor lost pairs matter."""
    judged = judge_study(
        study, values, None, all_stable(study), rng_seed=rng_seed, look=look, items=items, withheld=withheld
    )
    return judged.findings


def judge_study(
    study: Study,
    values: Values,
    lost: Kept | None,
    stable: Kept,
    *,
    rng_seed: int = 0,
    look: Look | None = None,
    items: pd.DataFrame | None = None,
    withheld: Mapping[str, str] | None = None,
) -> JudgedStudy:
    """Every hypothesis' finding, and the judgement of the study.

    Parameters
    ----------
    values : mapping
        metric -> {(arm, seed): final value}, by the words of `reading_of` where a claim reads another value than the
        last.
    lost, stable : array, 1 x arms
        Those of `judge`.
    rng_seed : int
        Seed of resampling tests. It is the same for every study: one that followed the registration could be chosen
        with it.
    look : Look, optional
        The registered look at which a sequential study is judged, by its adjusted tests; any other without one.
    items : data frame, optional
        The items of `Evidence`.
    withheld : mapping of hypothesis to reason, optional
        Of these nothing is concluded; their numbers are given.
    """
    # From values to tests, one row; then the same judge as for simulated studies.
    require_registered_look(study, look)
    seeds = study.seeds if look is None else study.seeds[: look.n_seeds]
    contrasts = {name: contrast(study, name, values, seeds) for name in study.hypotheses}
    tested = {name: _tested(study, name, pairs, rng_seed, look=look, items=items) for name, pairs in contrasts.items()}
    tests = {name: test for name, test in tested.items() if isinstance(test, SignificanceTest)}
    judgement = judge(study, {name: _one_row(tests.get(name)) for name in study.hypotheses}, lost, stable)
    judged = judgement.single({name: name in tests for name in study.hypotheses})
    for name, reason in (withheld or {}).items():
        judged[name] = replace(judged[name], outcome="inconclusive", note=reason)
    against = {name: margin for name, margin in zones(study, tests, judged).items() if name not in (withheld or {})}
    findings = []
    for at, name in enumerate(study.hypotheses):
        p = None
        if name in tests:
            refute = judgement.refute[0, at] if nulls_in(study, name)[1] is not None else None
            p = float(judgement.support[0, at]), None if refute is None else float(refute)
        finding = _finding(
            study,
            name,
            pairs=contrasts[name],
            tested=tested[name],
            p=p,
            judged=judged[name],
            against=against.get(name),
            level_of_step=step_level(judgement, name, judged[name].gate),
            rng_seed=rng_seed,
            items=items,
        )
        findings.append(finding)
    return JudgedStudy(tuple(findings), judgement)


def _one_row(test: SignificanceTest | None) -> Tested:
    """The test of a single study, as the judge takes it; nothing where there is none."""
    return [] if test is None else [(np.zeros(1, dtype=np.intp), test)]


def contrast(
    study: Study, name: str, values: Values, seeds: Sequence[int] | None = None, *, fewest: int | None = None
) -> Contrast:
    """Left and right side of a claim by seed, on its scale; refused with fewer complete pairs than a test needs, or,
    where pairs are left out, than the study registered. `fewest` is for description, in place of both. For a test
    without pairs, the runs of each arm."""
    claim, scale, reading = study.claims[name], study.hypotheses[name].scale, reading_of(study, name)
    complete = "complete pair(s)" if claim.is_paired else "seed(s) with a value"
    value_by_run, arms, fewest_left = values.get(reading, {}), claim.named, least_pairs(study)
    if not study.paired:
        samples, sample_notes, because = samples_of(study, name, value_by_run, fewest=fewest)
        return Contrast(reading, value_by_run, samples=samples, notes=sample_notes, refused=because)
    # Seeds that every arm of the claim has a value for; a pair with one side is no pair.
    used_seeds: list[int] = []
    notes: list[str] = []
    planned = seeds if seeds is not None else study.seeds
    for seed in planned:
        lacking = [arm for arm in arms if (arm, seed) not in value_by_run]
        if lacking:
            notes.append(f"seed {seed} is left out: no {reading} from {', '.join(lacking)}")
        else:
            used_seeds.append(seed)
    used = {(arm, seed): value_by_run[arm, seed] for seed in used_seeds for arm in arms}
    refused = unusable(reading, scale, used)
    least = 2 if len(used_seeds) == len(planned) else fewest_left
    if refused is None and len(used_seeds) < (least if fewest is None else fewest):
        refused = f"{len(used_seeds)} {complete}, and a test needs at least two"
        if fewest is not None or len(used_seeds) >= 2:
            refused = f"{len(used_seeds)} {complete}, and at least {fewest or least} must be there"
    if refused is not None:
        return Contrast(reading, value_by_run, notes=tuple(notes), refused=refused)
    # Weighted sums of the arms' values on the claim's scale, each side by seed.
    sides = [
        np.array(
            [
                sum(weight * scaled(value_by_run[arm, seed], scale) for arm, weight in weights.items())
                for seed in used_seeds
            ],
            dtype=np.float64,
        )
        for weights in (claim.left, claim.right)
    ]
    weight_by_arm = {arm: abs(weight) for arm, weight in claim.weights.items()}
    rounding = [
        sum(weight * rounding_of(value_by_run[arm, seed], scale) for arm, weight in weight_by_arm.items())
        for seed in used_seeds
    ]
    if claim.constant is not None:
        sides[1] = np.full(len(used_seeds), scaled(claim.constant, scale))
    # Two finite values can lie further apart than the largest double.
    with np.errstate(over="ignore"):
        apart: npt.NDArray[np.bool_] = ~np.all(np.isfinite([*sides, sides[0] - sides[1]]), axis=0)
    too_far = [seed for seed, is_apart in zip(used_seeds, apart, strict=True) if is_apart]
    if too_far:
        reason = f"{reading} differs by more than the largest number there is, seed {too_far[0]}"
        return Contrast(reading, value_by_run, notes=tuple(notes), refused=reason)
    rounding_by_pair = np.array(rounding)
    zeros_are_open = why_zeros_were_open(study, name, value_by_run, used_seeds, rounding_by_pair)
    return Contrast(
        reading,
        value_by_run,
        tuple(used_seeds),
        sides[0],
        sides[1],
        tuple(notes),
        rounding=rounding_by_pair,
        zeros_are_open=zeros_are_open,
        kept_within=0.0 if zeros_are_open else study.hypotheses[name].smallest,
    )


def _tested(
    study: Study, name: str, pairs: Contrast, rng_seed: int, *, look: Look | None, items: pd.DataFrame | None
) -> SignificanceTest | NoTestError:
    """The deciding test, or why there is none: a test that is defined against zero and not against the margin (all
    differences zero) decides nothing either."""
    if pairs.refused is not None:
        return NoTestError(pairs.refused)
    analysis, claim = study.analysis, study.claims[name]
    try:
        # Over items, over runs of each arm, or over pairs.
        test: SignificanceTest
        if analysis.test == TwoWay.name:
            test = _over_items(study, name, pairs, items, analysis.estimand)
        elif pairs.samples:
            test = welch(pairs.samples)
        else:
            x = pairs.differences[None, :]
            test = registered_test(study, x, zeros_decide=not pairs.zeros_are_open, look=look, rng_seed=rng_seed)
    except NoTestError as error:
        return error if claim.is_paired else NoTestError(one_sample(str(error)))
    if not claim.is_paired and not pairs.samples:
        speak_of_seeds(test)
    # Both nulls of the claim must be testable: without a standard error the t is undefined against any margin.
    points = [point for null in nulls_in(study, name) if null is not None for point, _ in null.points]
    refused = next(filter(None, map(test.refusal, points)), "")
    if refused and pairs.zeros_are_open and not pairs.samples and not pairs.differences.any():
        refused += f"; {pairs.zeros_are_open}"
    return NoTestError(refused) if refused else test


def _about_zeros(test: SignificanceTest, pairs: Contrast, metric: str, smallest: float) -> str:
    """What differences that are all exactly zero show, where they decide; else nothing."""
    if not (isinstance(test, Studentized) and test.zeros_decide and test.size[0] == 0.0):
        return ""
    n = len(pairs.seeds)
    return (
        f"all {n} differences are exactly zero, and {metric} is no count: arms that differed would differ in it, so a "
        f"difference of {compact(smallest)} or more is ruled out; the p is the limit of {test.words} as the standard "
        f"error goes to zero, and a change that acts in up to {100.0 * upper_bound(0, n):.0f}% of runs could give the "
        f"same (95% bound, n = {n})"
    )


def _over_items(
    study: Study, name: str, pairs: Contrast, items: pd.DataFrame | None, estimand: Estimand
) -> SignificanceTest:
    """The test over the items that every arm of the claim was scored on under every seed of the pairs."""
    if items is None:
        raise NoTestError("no item was recorded")
    claim, harness = study.claims[name], study.measure.harness
    sides, clustered = (claim.left, claim.right), harness is not None and harness.clusters == "tasks"
    crossed = cross(items, claim.metric, *sides, pairs.seeds, clustered=clustered, new_items=estimand != "new_seeds")
    # The pairs are means of these items, except under `also`, where they are the recorded values of the metric.
    if study.analysis.test != TwoWay.name:
        return over_items(crossed, estimand=estimand)
    return over_items(crossed, estimand=estimand, differences=pairs.recorded_differences, rounding=pairs.rounding)


def _finding(
    study: Study,
    name: str,
    *,
    pairs: Contrast,
    tested: SignificanceTest | NoTestError,
    p: tuple[float, float | None] | None,
    judged: Judged,
    against: AgainstMargin | None,
    level_of_step: float | None,
    rng_seed: int,
    items: pd.DataFrame | None,
) -> Finding:
    hypothesis, claim, analysis = study.hypotheses[name], study.claims[name], study.analysis
    family = len(study.family_of(name))
    level = _level(study, claim)
    notes = [*pairs.notes, *([judged.note] if judged.note else [])]
    # Without pairs: what pairing would have given over the seeds that the arms share.
    shared = shared_seeds(pairs.samples) if pairs.samples else None
    notes += notes_on_seeds(pairs.samples) if pairs.samples else []
    if shared is not None and shared.correlation is not None and shared.correlation < 0.0:
        notes.append("over shared seeds the arms vary against each other: where that is no chance, p is too small")
    # The registered test: estimate, interval of its family, test against the margin, interval of its step.
    deciding: Estimate | None = None
    interval: Interval | None = None
    margin: MarginTest | None = None
    step: Interval | None = None
    if isinstance(tested, NoTestError):
        notes.append(str(tested))
    else:
        test = tested
        notes += filter(None, [_about_zeros(test, pairs, claim.metric, hypothesis.smallest)])
        constant = claim.constant is not None
        deciding = summarise(test, level, one_sided=constant)
        # Without a correction no interval of a family of several is simultaneous, and none is given as if it were.
        if analysis.correct != "none" or family == 1:
            # Doubled where the claim is one-sided, as its own interval is.
            share = interval_level(study, name) * (level / analysis.alpha)
            together = study.corrected_with(name) if judged.gate is None else study.gate_steps[0]
            interval = interval_of(test, share, over=len(together), one_sided=constant) if share else None
            if interval is None:
                why = test.without_interval(share) if share else "it is in no first step of the gate"
                notes.append(f"no simultaneous interval: {why}")
        # A reader who sees a difference of one sign and a p that rests on the other must be told.
        shown_effect, leaning = float(test.difference[0]), float(test.leaning_at(0.0)[0])
        if leaning and leaning != np.sign(shown_effect):
            notes.append(test.against_mean)
        if isinstance(test, RepeatedT):
            notes.append(test.describe(analysis.alpha))
            notes.append("effect sizes and tests under 'also' are description and not adjusted for the looks")
        if against is not None:
            margin = _margin(test, against, analysis.alpha, family if analysis.correct != "none" else 1)
        kind, outcome = (claim.verb, claim.better, hypothesis.smallest), judged.outcome
        shown = deciding_interval(kind, outcome, deciding, simultaneous=interval, margin=margin)
        null = rejected_null(*kind, outcome) if shown is None and family > 1 else None
        step = _step(test, null, level_of_step, gated=judged.gate is not None)
    # Description: effects, tests under `also`, pairs.
    also, unable = _description(study, name, pairs, rng_seed, items)
    effects = (
        effect_sizes(pairs.left, pairs.right, pairs.differences, alpha=analysis.alpha, paired=claim.is_paired)
        if pairs.seeds
        else ()
    )
    if pairs.samples:
        effects = independent_effects(pairs.samples)
    return Finding(
        hypothesis=name,
        claim=hypothesis.claim,
        role=hypothesis.role,
        metric=claim.metric,
        unit=study.unit(name),
        scale=hypothesis.scale,
        better=claim.better,
        smallest=hypothesis.smallest,
        outcome=judged.outcome,
        n=sum(sample.values.size for sample in pairs.samples) or len(pairs.seeds),
        family=family,
        alpha=analysis.alpha,
        estimate=deciding,
        simultaneous=interval,
        p_support=None if p is None else p[0],
        p_refute=None if p is None else p[1],
        p_support_adjusted=judged.support,
        p_refute_adjusted=judged.refute,
        effects=effects,
        also=also,
        pairs=_pairs(pairs),
        arms=arm_summaries(claim.named, pairs.values, study.seeds),
        correlation=_correlation(pairs) if claim.is_paired else None,
        notes=(*notes, *unable),
        margin=margin,
        gate=judged.gate,
        percent=hypothesis.percent,
        samples=stated(pairs.samples),
        shared=shared,
        step=step,
    )


def _step(test: SignificanceTest, null: NullHypothesis | None, level: float | None, *, gated: bool) -> Interval | None:
    """The interval at the level at which a step of the correction rejected a null; two-sided where the null is. None
    without a null, where no step has a level, and where it does not show the rejection either."""
    if null is None or level is None:
        return None
    # A one-sided test at `level` is the two-sided interval at 1 - 2 level.
    two_sided = any(side == "two" for _, side in null.points)
    share = level if two_sided else 2.0 * level
    by = "the gate" if gated else "the step of Holm's procedure"
    at = f", {'two-sided ' * two_sided}at the level of {by} that decided"
    made = interval_of(test, share, one_sided=not two_sided, at=at) if 0.0 < share < 1.0 else None
    return made if made is not None and excludes(made, null) else None


def _level(study: Study, claim: Claim) -> float:
    """1 less the level of a finding's intervals. A constant is tested on one side: the ends are one-sided bounds."""
    alpha = study.analysis.alpha
    return 2.0 * alpha if claim.constant is not None and alpha < 0.5 else alpha


def _margin(test: SignificanceTest, against: AgainstMargin, alpha: float, corrected: int) -> MarginTest:
    """The test against the margin, with its interval at 1 - 2 alpha over the claims that are corrected together."""
    # At a level of one half or more there is no interval at 1 - 2 alpha.
    # A one-sided test at alpha / m is the two-sided interval at 1 - 2 alpha / m (Schuirmann 1987).
    share = 2.0 * alpha / corrected
    bounds = interval_of(test, share, over=corrected, one_sided=True) if share < 1.0 else None
    return MarginTest(zone=against.zone, p_reached=against.reached, p_short=against.short, interval=bounds)


def _description(
    study: Study, name: str, pairs: Contrast, rng_seed: int, items: pd.DataFrame | None
) -> tuple[tuple[Estimate, ...], tuple[str, ...]]:
    """The tests registered under `also`; they decide nothing."""
    estimates, unable, claim = [], [], study.claims[name]
    for method in study.analysis.also if pairs.seeds else ():
        try:
            if method == TwoWay.name:
                crossed = _over_items(study, name, pairs, items, "new_seeds_and_items")
                estimates.append(summarise(crossed, study.analysis.alpha))
                continue
            # At every number of pairs that gives a test, also below `fewest`: it decides nothing.
            x = pairs.differences[None, :]
            test = over_seeds(method, x, rng_seed=rng_seed, zeros=study.analysis.zeros)
            if refused := test.refusal():
                raise NoTestError(refused)
            if not claim.is_paired:
                speak_of_seeds(test)
            estimates.append(summarise(test, _level(study, claim), one_sided=claim.constant is not None))
        except NoTestError as error:
            unable.append(f"{class_of_test(method).words}: {error}")
    return tuple(estimates), tuple(unable)


def _pairs(pairs: Contrast) -> tuple[Pair, ...]:
    return tuple(
        Pair(seed=seed, left=float(left), right=float(right), difference=float(difference))
        for seed, left, right, difference in zip(pairs.seeds, pairs.left, pairs.right, pairs.differences, strict=True)
    )


def arm_summaries(arms: Iterable[str], values: Mapping[Cell, float], seeds: Sequence[int]) -> tuple[ArmSummary, ...]:
    """Mean and SD of every arm over all seeds with a finite value, on the metric's own scale; of an arm without any
    value none."""
    summaries = []
    for arm in arms:
        finals = np.array([values[arm, seed] for seed in seeds if isfinite(values.get((arm, seed), np.nan))])
        if finals.size:
            # Scaled by a power of two, which is exact, so that the squares of an SD do not overflow.
            power = exponent_of(finals)
            unit = np.ldexp(finals, -power)
            summaries.append(
                ArmSummary(
                    arm=arm,
                    n=int(finals.size),
                    mean=float(np.ldexp(unit.mean(), power)),
                    sd=float(np.ldexp(unit.std(ddof=1), power)) if finals.size > 1 else None,
                )
            )
    return tuple(summaries)


def _correlation(pairs: Contrast) -> float | None:
    """Correlation of the sides; with two pairs it is always 1 or -1 and says nothing."""
    sides = (pairs.left, pairs.right)
    if sides[0].size < 3 or any(np.ptp(side) <= EQUAL * np.abs(side).max() for side in sides):
        return None
    left, right = (np.ldexp(side, -exponent_of(side)) for side in sides)
    return float(np.corrcoef(left, right)[0, 1])
