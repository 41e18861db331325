"""Procedure of a campaign, for a proposal at a stage: kept, dropped, on to the next stage, or out of budget.

Pure functions of the registered campaign, of how earlier proposals ended, and of the differences that a stage sees.

**One proposal.** Its differences are proposal minus best on n pairs of runs with seeds that no earlier proposal had,
turned so that a gain is positive. Its null is the union

    H:  gain <= 0,  or  some guardrail worsens by its margin or more.

At stage k each part has the one-sided p of a paired t over all seeds so far, and the largest of them counts: under H
one part is true, so that the largest p is small no more often than that part's (intersection-union, Berger 1982).
The change is kept at the first stage whose p is at or below that stage's nominal level, if the estimated gain is at
least `smallest`. The nominal levels c_1, .., c_K spend the proposal's level a by the exact joint law of the t
statistics (`ablate.judge.stats.spending`): the chance of a crossing at any stage is a. Drops by futility, and the
filter by `smallest`, can only take keeps away.

**The campaign.** Let F be all that is known when proposal t begins: every earlier run and decision, the present best,
the change itself. Its level a_t follows from F alone. Its runs have seeds that were never used, for both sides, so that

    P(keep t | F) <= a_t   wherever H_t is true.                                                            (1)

F may have been used in any way: by a program that learns from every decision, with a best that changes after each
keep. With T registered proposals:

    any false keep    a_t = alpha / T. By (1) the expected number of false keeps is at most the sum of a_t, alpha, and
                      the chance of one or more is no larger (Bonferroni).
    false discovery   a_t = alpha (R_{t-1} + 1) / T, R the keeps so far: LOND (Javanmard and Montanari 2015, 2018) with
    rate              the registered horizon. Under (1), E_t = 1{keep t} / a_t has a conditional mean of at most 1 in
                      every true null, and a keep at t means R_n >= R_{t-1} + 1 at every n >= t. So at every n
                          FDP_n = sum_{t <= n, H_t true} 1{keep t} / max(R_n, 1)
                                <= sum_{H_t true} a_t E_t / (R_{t-1} + 1) = sum_{H_t true} (alpha / T) E_t,
                      and the last sum, which does not depend on n, has a mean of at most alpha. So the mean of the
                      largest false discovery proportion over all n is at most alpha: the rate holds whenever the
                      campaign ends, also where its end depends on what was seen. (This is the argument by which Xu and
                      Ramdas (2024, AISTATS, PMLR 238) prove e-LOND; its levels and those of LOND are the same, and a p
                      that is superuniform given the past needs no e-value of another form.)

LORD++, SAFFRON and ADDIS give more level to proposals after a keep. Their proofs of the false discovery rate ask that
the p values are independent and the levels monotone (Ramdas, Yang, Wainwright and Jordan 2017; Ramdas, Zrnic,
Wainwright and Jordan 2018; Tian and Ramdas 2019); under (1) alone they bound the modified rate E V / E R. Here a later
hypothesis depends on earlier decisions, so they are not used.

**What (1) needs.** Normal differences with one SD within a proposal, whatever the SD of others. Both sides trained anew
for every proposal: with runs of the best that several proposals share, their luck is a part of F, and (1) fails. No run
left out, no seed run before the proposal was registered. reports/campaigns/README.md measures what heavy tails, skew,
drift and shared runs of the best do.

`keep` is not the verdict of a study: it says that a change is taken on, and the campaign's confirmation judges the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

import numpy as np
from scipy import special

from ablate.judge.stats.significance_tests import SAME, TINY, Floats, Kept, PairedT
from ablate.judge.stats.spending import Spending, nominal_levels
from prereg.campaign.history import EndedProposal, keeps_of, require_history, runs_of
from prereg.campaign.spec import AnyFalseKeep, Campaign
from prereg.errors import EvidenceError
from prereg.frozen import FrozenModel

Outcome = Literal["keep", "drop", "next_stage", "out_of_budget"]
Reason = Literal[
    "shown",
    "open",
    "futile",
    "not_shown",
    "below_smallest",
    "no_spread",
    "no_value",
    "no_runs_left",
    "no_proposals_left",
]
"""Why: `shown` of a keep; `open` of a next stage. Of a drop `futile` (p above the stage's limit), `not_shown` (at the
last stage), `below_smallest` (shown above zero at the last stage, and too small), `no_spread` (all gains are equal, so
that there is no noise to compare them with), `no_value` (a run of a pair has no value of a metric that decides: it
diverged or failed). Of `out_of_budget` what there is none of."""


class Opening(FrozenModel):
    """What the next proposal of a campaign would be."""

    number: int
    """Which proposal, from 1."""
    level: float
    """The part of the campaign's error that it spends by being begun, one-sided."""
    stage_levels: tuple[float, ...]
    """The nominal one-sided p that each stage asks of every part of the null."""
    runs_left: int
    """Runs of the budget that are left."""
    refused: Literal["no_runs_left", "no_proposals_left"] | None = None
    """Why it cannot begin; none where it can."""


class PartOfNull(FrozenModel):
    """What a stage says of the gain, or of one guardrail."""

    metric: str
    """Its name."""
    margin: float | None = None
    """Of a guardrail; none of the gain."""
    improvement: float
    """Estimated improvement of the metric by the change, in its own unit on the registered scale."""
    bound: float | None
    """Its lower bound over all stages, at the proposal's level; none where the differences do not vary."""
    p: float
    """Nominal one-sided p of this stage."""


class ProposalDecision(FrozenModel):
    """What becomes of a proposal at a stage."""

    number: int
    """Which proposal, from 1."""
    stage: int
    """Which stage, from 1; 0 where it could not begin."""
    n_seeds: int
    """Pairs that the stage sees."""
    outcome: Outcome
    """What becomes of it."""
    reason: Reason
    """Why."""
    level: float
    """The part of the campaign's error that the proposal spends, one-sided, over all its stages and whatever its
    end."""
    stage_level: float
    """The nominal one-sided p that this stage asks for."""
    p: float
    """The largest nominal p of the parts of its null; 1 where a value is missing."""
    limiting: str
    """The metric that this p is of."""
    parts: tuple[PartOfNull, ...]
    """The gain, then each guardrail; empty where a value is missing."""
    runs_left: int
    """Runs of the budget that are left after this stage."""

    @property
    def ended(self) -> EndedProposal | None:
        """What later proposals must know of it; none before its end, and of one that could not begin."""
        if self.outcome == "next_stage" or self.stage == 0:
            return None
        return EndedProposal(number=self.number, end=self.outcome, n_seeds=self.n_seeds)


def proposal_level(campaign: Campaign, n_kept: int) -> float:
    """The level of a proposal that begins after `n_kept` keeps.

    Parameters
    ----------
    n_kept : int
        Keeps of the campaign so far, at most one less than its proposals.

    References
    ----------
    Javanmard and Montanari (2018), Online rules for control of false discovery rate and false discovery
    exceedance. Ann. Statist. 46, 526-554. See the head of this module.
    """
    assert 0 <= n_kept < campaign.budget.proposals, n_kept
    share = campaign.error_rate / campaign.budget.proposals
    return share if isinstance(campaign.error, AnyFalseKeep) else share * (n_kept + 1)


@lru_cache(maxsize=4096)
def stage_levels(level: float, seeds: tuple[int, ...], spending: Spending) -> tuple[float, ...]:
    """The nominal one-sided p at or below which each stage keeps, so that the chance of any keep is `level`.

    Examples
    --------
    Two stages of 4 and 8 pairs: O'Brien and Fleming's type leaves nearly all to the second.

    >>> [f"{level:.3g}" for level in stage_levels(0.0005, (4, 8), "obrien_fleming")]
    ['8.54e-07', '0.000499']
    """
    levels = nominal_levels(np.array([level]), seeds, spending, two_sided=False)[:, 0]
    return tuple(float(each) for each in levels)


def open_proposal(campaign: Campaign, history: Sequence[EndedProposal]) -> Opening:
    """What the next proposal may spend, or why there is none. Raises `EvidenceError` for a history that is not the
    campaign's."""
    require_history(campaign, history)
    left = campaign.budget.runs - runs_of(history)
    if len(history) == campaign.budget.proposals:
        return Opening(number=len(history) + 1, level=0.0, stage_levels=(), runs_left=left, refused="no_proposals_left")
    level = proposal_level(campaign, keeps_of(history))
    return Opening(
        number=len(history) + 1,
        level=level,
        stage_levels=stage_levels(level, campaign.stages.seeds, campaign.stages.spending),
        runs_left=left,
        refused="no_runs_left" if left < 2 * campaign.stages.seeds[0] else None,
    )


@dataclass(frozen=True)
class StageRows:
    """A stage of many proposals, one a row."""

    p: Floats
    """parts x rows: nominal one-sided p of the gain, then of each guardrail."""
    improvement: Floats
    """parts x rows: the mean differences, turned so that an improvement is positive."""
    keeps: Kept
    drops: Kept
    """Neither: on to the next stage."""


def judge_stage(
    campaign: Campaign, stage: int, gains: Floats, guardrails: Sequence[Floats], levels: Floats | float
) -> StageRows:
    """A stage of many proposals: a real one is a single row.

    Parameters
    ----------
    stage : int
        Which stage, from 0.
    gains : array, proposals x pairs
        Differences of the metric, turned so that an improvement is positive.
    guardrails : sequence of such arrays
        The same of each guardrail, in the order of the campaign.
    levels : array or float
        The nominal level of this stage for each proposal.
    """
    assert gains.shape[1] == campaign.stages.seeds[stage], gains.shape
    tests = [PairedT(gains), *(PairedT(each) for each in guardrails)]
    nulls = (0.0, *(-each.margin for each in campaign.guardrails))
    p = np.stack([test.p(null, "greater") for test, null in zip(tests, nulls, strict=True)])
    # Without noise there is no t. A cost such as memory is what it is; of the gain that would take rounded values for
    # evidence, so that the same gain for every seed has a p of 1, and goes on to more seeds where it is above 0.
    for at, (test, null) in enumerate(zip(tests, nulls, strict=True)):
        p[at] = np.where(_varies(test), p[at], np.where(test.mean > test.to_unit(null), TINY, 1.0))
    is_futile = p.max(axis=0) > campaign.stages.limits[stage]
    p[0] = np.where(_varies(tests[0]), p[0], 1.0)
    improvement = np.stack([test.from_unit(test.mean) for test in tests])
    keeps = (p.max(axis=0) <= levels) & (improvement[0] >= campaign.smallest)
    is_last = stage == len(campaign.stages.seeds) - 1
    drops = ~keeps & (is_last | is_futile)
    return StageRows(p, improvement, keeps, drops)


def decide_proposal(
    campaign: Campaign,
    history: Sequence[EndedProposal],
    differences: Sequence[float | None],
    guardrails: Mapping[str, Sequence[float | None]],
) -> ProposalDecision:
    """What becomes of a proposal at the stage that its differences make up.

    Parameters
    ----------
    campaign : Campaign
        As it was registered.
    history : sequence of EndedProposal
        Every proposal before this one, in order.
    differences : sequence of float
        Proposal minus best, a pair each, in the order of their seeds, on the registered scale; as many as a stage has.
        None where one of the two runs has no value, because it diverged or failed. Those that are equal as far as their
        records can tell are equal (`ablate.judge.stats.precision.levelled`).
    guardrails : mapping of metric to such differences
        Every guardrail of the campaign.

    Returns
    -------
    ProposalDecision
        The change is dropped where a pair has no value: that can only cost a keep.

    Raises
    ------
    EvidenceError
        The history is not that of the campaign, or differences are no stage of it.

    Examples
    --------
    >>> from prereg.campaign.load import campaign_from_document
    >>> campaign = campaign_from_document({
    ...     "campaign": "night", "title": "Which changes help?", "metric": "val/loss", "smallest": 0.002,
    ...     "start": {"base": {"data": {"corpus": "toy"}}}, "stages": {"seeds": [3, 6]},
    ...     "budget": {"proposals": 20, "runs": 200}, "error": {"any_false_keep": 0.05},
    ... })
    >>> decide_proposal(campaign, [], [-0.010, -0.011, -0.012], {}).outcome
    'next_stage'
    >>> after = decide_proposal(campaign, [], [-0.010, -0.011, -0.012, -0.009, -0.011, -0.010], {})
    >>> after.outcome, after.level, after.parts[0].improvement
    ('keep', 0.0025, 0.0105)
    """
    opening = open_proposal(campaign, history)
    n_seeds = len(differences)
    _require_stage(campaign, n_seeds, guardrails)
    stages = campaign.stages.seeds
    stage = stages.index(n_seeds)
    left = opening.runs_left - 2 * n_seeds
    if opening.refused is not None or left < 0:
        raise EvidenceError(
            f"proposal {opening.number} of '{campaign.campaign}' has {2 * n_seeds} runs, and "
            f"{max(0, opening.runs_left)} were left",
            required="no proposal, and no stage, beyond the registered budget",
            fix="restore the campaign as it was registered",
        )
    common: dict[str, Any] = {
        "number": opening.number,
        "stage": stage + 1,
        "n_seeds": n_seeds,
        "level": opening.level,
        "stage_level": opening.stage_levels[stage],
        "runs_left": left,
    }
    # Turned so that an improvement is positive: differences are proposal minus best.
    raw = {campaign.metric: differences, **{each.metric: guardrails[each.metric] for each in campaign.guardrails}}
    for metric, values in raw.items():
        if any(value is None or not isfinite(value) for value in values):
            return ProposalDecision(**common, outcome="drop", reason="no_value", p=1.0, limiting=metric, parts=())
    turned = [
        np.array([values], dtype=np.float64) * (-1.0 if campaign.lower_is_better(metric) else 1.0)
        for metric, values in raw.items()
    ]
    rows = judge_stage(campaign, stage, turned[0], turned[1:], opening.stage_levels[stage])
    parts = tuple(
        PartOfNull(
            metric=metric,
            margin=margin,
            improvement=float(rows.improvement[at, 0]),
            bound=_lower_bound(turned[at], opening.stage_levels[stage]),
            p=float(rows.p[at, 0]),
        )
        for at, (metric, margin) in enumerate(
            zip(raw, (None, *(each.margin for each in campaign.guardrails)), strict=True)
        )
    )
    largest = max(parts, key=lambda part: part.p)
    outcome, reason = _ending(campaign, rows, stage, opening.stage_levels[stage], left)
    if outcome == "drop" and parts[0].bound is None:
        reason = "no_spread"
    return ProposalDecision(**common, outcome=outcome, reason=reason, p=largest.p, limiting=largest.metric, parts=parts)


def _ending(campaign: Campaign, rows: StageRows, stage: int, level: float, left: int) -> tuple[Outcome, Reason]:
    """The outcome of one row, and why."""
    if rows.keeps[0]:
        return "keep", "shown"
    seeds = campaign.stages.seeds
    if rows.drops[0]:
        if stage < len(seeds) - 1:
            return "drop", "futile"
        return "drop", "below_smallest" if float(rows.p.max()) <= level else "not_shown"
    # Known before the next stage is begun: a stage that cannot be paid whole is not begun at all.
    if left < 2 * campaign.stages.new_seeds[stage + 1]:
        return "out_of_budget", "no_runs_left"
    return "next_stage", "open"


def _varies(test: PairedT) -> Kept:
    """Rows whose differences are not all the same."""
    varies: Kept = test.span > SAME * test.size
    return varies


def _lower_bound(x: Floats, level: float) -> float | None:
    """The lower end of the one-sided interval at 1 - level, which inverts the test of the stage."""
    test = PairedT(x)
    if not _varies(test)[0]:
        return None
    # In the row's own unit, as the test is: nothing over- or underflows there.
    bound = test.mean + special.stdtrit(test.free, level) * test.se
    return float(test.from_unit(bound)[0])


def _require_stage(campaign: Campaign, n_seeds: int, guardrails: Mapping[str, Sequence[float | None]]) -> None:
    names = [each.metric for each in campaign.guardrails]
    if sorted(guardrails) != sorted(names):
        raise EvidenceError(
            f"differences of {sorted(guardrails) or 'no guardrail'} for '{campaign.campaign}'",
            required=f"of every guardrail that it registers, and no other: {names or 'none'}",
            fix="the metrics of the campaign",
        )
    for metric, n in ((campaign.metric, n_seeds), *((name, len(guardrails[name])) for name in names)):
        if n not in campaign.stages.seeds or n != n_seeds:
            raise EvidenceError(
                f"{n} pairs of {metric} for '{campaign.campaign}'",
                required=f"as many of every metric as a stage has: {list(campaign.stages.seeds)}",
                fix="judge a stage when all its runs have ended",
            )
