"""Assumptions of a design: SD and correlation of every claimed metric, from `assume` or another study's records.

Model of a metric: every arm has the same SD over seeds, any two arms the same correlation over shared seeds (compound
symmetry). Then the SD of every contrast follows from sd^2 (1 - r), the seed-by-arm interaction of a two-way table, and
that is what a pilot estimates: its mean square has (S - 1)(A - 1) degrees of freedom and an exact chi-square interval.
A plan takes its upper end, and no correlation from a few seeds (`cautious`): half of all estimates are too small.
The means of arms are taken out and never looked at: a pilot may tell how noisy a metric is, not who is better. How a
difference varies over items is assumed always (`assume: over_items`), with a pilot too.
"""

from __future__ import annotations

from math import isfinite, log, log10, sqrt

import numpy as np
from scipy import special

from ablate.judge.audit.headroom import ROOM_SD, no_room
from ablate.judge.design.effects import FEWEST_FOR_CORRELATION
from ablate.judge.readings import item_means
from ablate.judge.stats.significance_tests import Floats, sd_of
from ablate.records.evidence import Evidence
from prereg.errors import EvidenceError, SpecError, Where
from prereg.frozen import FrozenModel
from prereg.metrics.catalogue import ITEM_METRICS, task_of
from prereg.registry.registration import Registration
from prereg.study.analysis import Scale
from prereg.study.measure import units_of
from prereg.study.spec import Study

Group = tuple[str, Scale]


class ScaleBelief(FrozenModel):
    """What is believed of one metric on one scale."""

    metric: str
    """The metric."""
    scale: Scale
    """The scale of the claims about it."""
    sd: float
    """SD of one arm's value over seeds."""
    correlation: float
    """Correlation of two arms over shared seeds."""
    source: str
    """Where it comes from, with n."""
    level: float | None = None
    """Mean over all runs of the pilot; none without a pilot."""
    sd_difference_low: float | None = None
    """Lower end of the 95% interval of the SD of a difference of two arms; none for an assumption."""
    sd_difference_high: float | None = None
    """Upper end of it."""
    n_items: int | None = None
    """Items (or tasks) that a value is a mean over, for a test over new items; this and the next two are none without
    it."""
    sd_items: float | None = None
    """SD between items of the difference of two arms."""
    sd_residual: float | None = None
    """SD of that difference on one item under one seed, about what item and seed explain."""

    @property
    def variance_of_items(self) -> float:
        """What new items add to the variance of the mean difference of two arms; 0 where they are not known."""
        return 0.0 if self.n_items is None or self.sd_items is None else self.sd_items**2 / self.n_items

    @property
    def sd_of_rest(self) -> float:
        """SD of what arms of one seed do not share: the SD of a contrast is this times sqrt(sum of squared weights)."""
        return self.sd * sqrt(1.0 - self.correlation)

    @property
    def sd_shared(self) -> float:
        """SD of what all arms of a seed share, which no contrast has; 0 where the correlation is below 0, so that one
        arm then varies a little more than its SD."""
        return self.sd * sqrt(max(0.0, self.correlation))


class Beliefs(FrozenModel):
    """Everything the design takes for granted."""

    metrics: tuple[ScaleBelief, ...] = ()
    """By metric and scale."""
    seconds_per_run: float | None = None
    """Time of a run."""
    timed: str = "assumed"
    """Whether the time is assumed or measured, and on how many runs."""
    divergence: float = 0.0
    """Share of runs that diverge in the scenarios with divergence; 0 leaves them out."""

    def of(self, metric: str, scale: Scale) -> ScaleBelief | None:
        """The belief about a metric, if there is one."""
        return next((belief for belief in self.metrics if (belief.metric, belief.scale) == (metric, scale)), None)


def groups_of(study: Study) -> dict[Group, list[str]]:
    """(metric, scale) -> hypotheses about it."""
    groups: dict[Group, list[str]] = {}
    for name, claim in study.claims.items():
        groups.setdefault((claim.metric, study.hypotheses[name].scale), []).append(name)
    return groups


def assumed(study: Study) -> Beliefs:
    """The beliefs of the study's own `assume:` block. Raises `SpecError` where those about items contradict the SD."""
    beliefs = []
    for metric, scale in groups_of(study):
        belief = study.assume.of(metric)
        if belief is not None:
            # Without pairs the deciding test makes no use of a correlation of arms.
            correlation = belief.correlation if study.paired else 0.0
            plain = ScaleBelief(metric=metric, scale=scale, sd=belief.sd, correlation=correlation, source="assumed")
            beliefs.append(_with_items(study, plain))
    return Beliefs(
        metrics=tuple(beliefs), seconds_per_run=study.assume.seconds_per_run, divergence=study.assume.divergence
    )


def over_new_items(study: Study) -> bool:
    """Whether the deciding test speaks of new items."""
    return study.analysis.estimand == "new_seeds_and_items"


def _with_items(study: Study, belief: ScaleBelief) -> ScaleBelief:
    """The belief with what `assume` says of the items of its metric."""
    assumption = study.assume.of(belief.metric)
    spread, harness = None if assumption is None else assumption.over_items, study.measure.harness
    if spread is None or harness is None or belief.metric not in ITEM_METRICS or not over_new_items(study):
        return belief
    n_items = units_of(belief.metric, harness) if spread.items is None else spread.items
    if n_items is None:
        return belief
    # The residual of items averages to an SD of sd_residual / sqrt(items) over seeds, which is part of the SD of a
    # difference of two arms, sqrt(2) sd_of_rest: it cannot be more.
    where = Where(field=("assume", "metrics", belief.metric, "over_items", "sd_residual"))
    most = belief.sd_of_rest * sqrt(2.0 * n_items)
    if spread.sd_residual > most * (1.0 + 1e-9):
        raise SpecError(
            f"sd_residual is {spread.sd_residual:g} over {n_items:,} items, which alone gives the mean over them an SD "
            f"over seeds of {spread.sd_residual / sqrt(n_items):.4g}; a difference of two variants is believed to have "
            f"{sqrt(2.0) * belief.sd_of_rest:.4g} ({belief.source})",
            required=f"sd_residual of at most {most:.4g}: sd * sqrt(2 (1 - correlation) * items)",
            fix=f"sd_residual: {most:.3g}, or a larger sd",
            where=where,
        )
    over_items = {"n_items": n_items, "sd_items": spread.sd_items, "sd_residual": spread.sd_residual}
    return belief.model_copy(update=over_items)


def learned(study: Study, pilot: Registration, evidence: Evidence) -> Beliefs:
    """Beliefs from the sealed records of another study. Raises `EvidenceError` where they cannot tell."""
    name = pilot.study.study
    if name == study.study:
        raise EvidenceError(
            f"'{name}' cannot be its own pilot",
            required="another study: numbers that plan a test may not come from the data that it will judge",
        )
    if evidence.missing:
        raise EvidenceError(
            f"the pilot '{name}' lacks {len(evidence.missing)} of {len(evidence.planned)} planned runs",
            required="a finished pilot: reading an unfinished study's values is an early look at it",
            fix=f"ablate run {name}",
        )
    faults = [*evidence.broken, *evidence.ledger_faults]
    if faults:
        raise EvidenceError(f"the pilot '{name}' is damaged: {faults[0]}", required="records whose seals hold")
    done = [run for run in evidence.runs if run.status == "done"]
    diverged = sum(run.status == "diverged" for run in evidence.runs)
    # Diverged runs end early: only whole ones tell how long a run takes.
    seconds = [run.wall_s for run in done if run.wall_s is not None]
    return Beliefs(
        metrics=tuple(_with_items(study, _learned(study, group, pilot, evidence)) for group in groups_of(study)),
        seconds_per_run=float(np.mean(seconds)) if seconds else study.assume.seconds_per_run,
        timed=f"mean of {len(seconds)} runs of the pilot '{name}'" if seconds else "assumed",
        divergence=diverged / len(evidence.runs) if diverged else study.assume.divergence,
    )


def _learned(study: Study, group: Group, pilot: Registration, evidence: Evidence) -> ScaleBelief:
    metric, scale = group
    name, final = pilot.study.study, evidence.final(metric)
    if task_of(metric) is not None and evidence.items is not None:
        done = {run.cell for run in evidence.runs if run.status == "done"}
        final = {cell: value for cell, value in item_means(evidence.items, metric).items() if cell in done}
    arms = list(pilot.study.arms)
    seeds = [seed for seed in pilot.study.seeds if all(isfinite(final.get((arm, seed), np.nan)) for arm in arms)]
    if len(seeds) < 3:
        raise EvidenceError(
            f"the pilot '{name}' has {metric} from every arm for {len(seeds)} seed(s)",
            required="at least 3 seeds that every arm finished",
            fix=f"assume: {{metrics: {{{metric}: {{sd: SD, correlation: R}}}}}}",
        )
    raw = np.array([[final[arm, seed] for arm in arms] for seed in seeds])
    if scale != "raw" and raw.min() <= 0.0:
        raise EvidenceError(
            f"{metric} of the pilot '{name}' has values at or below 0, which have no logarithm",
            required="positive values for a claim on a log scale",
        )
    # Seeds x arms, on the claim's scale.
    table = raw if scale == "raw" else np.vectorize(log if scale == "log" else log10)(raw)
    require_headroom(study, metric, raw, name)
    source = f"pilot '{name}', {len(seeds)} seeds x {len(arms)} arms, upper 80% limit of the SD"
    low: float | None = None
    high: float | None = None
    correlation: float | None = None
    if len(arms) == 1:
        # One arm shows no correlation: 0, with which a contrast is the noisiest.
        sd = sd_range(sd_of(table) ** 2, len(seeds) - 1)[1]
        source = f"pilot '{name}', {len(seeds)} seeds of one arm, upper 80% limit of the SD, correlation not known"
    else:
        rest, total = variances(table)
        sd, correlation = cautious(rest, total, len(seeds), len(arms), paired=study.paired)
        # Of a difference of two arms: within seeds where they are paired, else of independent runs.
        variance, df = rest, (len(seeds) - 1) * (len(arms) - 1)
        if not study.paired:
            variance, df = total, (len(seeds) - 1) * len(arms)
        low, high = (sqrt(2.0 * variance * df / chi_square_quantile(q, df)) for q in (0.975, 0.025))
    return ScaleBelief(
        metric=metric,
        scale=scale,
        sd=sd,
        correlation=correlation or 0.0,
        source=source,
        level=float(table.mean()),
        sd_difference_low=low,
        sd_difference_high=high,
    )


LIMIT = 0.8
"""Confidence of each end of a range of SDs. A plan with the upper end has the power that it states, or more, in so many
of all pilots (Browne 1995, "On the use of a pilot sample for sample size determination")."""


def sd_range(variance: float, df: int) -> tuple[float, float]:
    """Lower and upper limit of an SD, each at `LIMIT`, from a sample variance: df s^2 / sigma^2 is chi-square.

    Examples
    --------
    From five runs an SD of 1 is uncertain by almost a factor of two.

    >>> [round(limit, 3) for limit in sd_range(1.0, 4)]
    [0.817, 1.558]
    """
    low, high = (sqrt(variance * df / chi_square_quantile(q, df)) for q in (LIMIT, 1.0 - LIMIT))
    return low, high


def chi_square_quantile(chance: float, df: int) -> float:
    """The value that a chi-square with `df` degrees of freedom stays below with a chance.

    Examples
    --------
    >>> round(chi_square_quantile(0.95, 1), 3)  # 1.96^2
    3.841
    """
    return 2.0 * float(special.gammaincinv(df / 2.0, chance))


def cautious(rest: float, total: float, n_seeds: int, n_arms: int, *, paired: bool) -> tuple[float, float | None]:
    """SD of one arm and correlation of two to plan with, from the variances of so many seeds: the SD of an arm and that
    of a difference each at its upper limit, and no correlation from fewer than `FEWEST_FOR_CORRELATION` seeds.

    Examples
    --------
    Five seeds show no correlation, twenty do.

    >>> sd, correlation = cautious(0.5, 1.0, 5, 2, paired=True)
    >>> round(sd, 3), correlation
    (1.558, None)
    >>> round(cautious(0.5, 1.0, 20, 2, paired=True)[1], 3)
    0.5
    """
    if not paired:
        return sd_range(total, (n_seeds - 1) * n_arms)[1], None
    # Arms of a seed may move together: what is counted as independent are then seeds, and not runs.
    _, high = sd_range(total, n_seeds - 1)
    # The SD of a difference is sqrt(2) times this one. Where it is the larger, correlation 0 and the SD of an arm alone
    # would plan for less noise than was seen.
    _, high_rest = sd_range(rest, (n_seeds - 1) * (n_arms - 1))
    high = max(high, high_rest)
    return high, min(0.999, 1.0 - (high_rest / high) ** 2) if n_seeds >= FEWEST_FOR_CORRELATION else None


def variances(table: Floats) -> tuple[float, float]:
    """Mean square of the seed-by-arm interaction, and the variance of one arm over seeds: seeds x arms.

    Examples
    --------
    Two arms that move together share all of their variance.

    >>> variances(np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]))
    (0.0, 1.0)
    """
    seeds, arms = table.shape
    # Two-way analysis of variance: arms' means taken out, then seeds' means; the rest has (S - 1)(A - 1) df.
    centred = table - table.mean(axis=0)
    by_seed = centred.mean(axis=1, keepdims=True)
    rest = float(((centred - by_seed) ** 2).sum()) / ((seeds - 1) * (arms - 1))
    return rest, float((centred**2).sum()) / ((seeds - 1) * arms)


def require_headroom(study: Study, metric: str, values: Floats, pilot: str) -> None:
    """Refuse a metric that does not move, or that lies at the end of its range: there no difference can show."""
    fault = no_room(metric, values)
    if fault is None:
        return
    text, bound = fault
    # A metric that never moves, or one at the end of its range.
    required, fix = "a metric that varies over seeds", "another metric"
    if bound:
        required = f"at least {ROOM_SD:g} SDs of room: at its {bound} a metric cannot show a difference, "
        required += "and its SD is no guide"
        fix = "a harder or easier measure, or a metric without that bound"
    named = next(name for name, claim in study.claims.items() if claim.metric == metric)
    raise SpecError(
        f"in the pilot '{pilot}', {metric} {text}",
        required=required,
        fix=fix,
        where=Where(field=("hypotheses", named)),
    )
