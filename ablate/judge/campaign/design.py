"""Design of a campaign, before its first proposal: false keeps, true gain, runs, by simulation of the procedure."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Final

import numpy as np

from ablate.judge.campaign.procedure import proposal_level, stage_levels
from ablate.judge.campaign.simulate import SEED, SimulatedCampaigns, World, simulate_campaigns
from ablate.judge.stats.significance_tests import Floats
from ablate.judge.stats.t_power import detectable
from prereg.campaign.spec import Campaign
from prereg.errors import SpecError, field_error
from prereg.frozen import FrozenModel
from prereg.study.measure import Assumption
from prereg.text import compact

CAMPAIGNS: Final = 2_000
"""Simulated campaigns a scenario: the standard error of a rate of .05 is .005."""
TARGET: Final = 0.8


class Rate(FrozenModel):
    """A mean over simulated campaigns, with the standard error of the simulation."""

    mean: float
    """The mean."""
    se: float
    """Its standard error."""


class CampaignScenario(FrozenModel):
    """A state of the world, and what campaigns come to in it."""

    useful: float
    """Share of useful changes among the proposals."""
    any_false_keep: Rate
    """Chance of one false keep or more."""
    false_discovery_rate: Rate
    """Mean share of false ones among the kept changes, 0 of a campaign without a keep."""
    true_keeps: Rate
    """Useful changes that are kept, a campaign."""
    useful_proposals: float
    """Useful changes that could be proposed, a campaign."""
    true_gain: Rate
    """Sum of the true gains of kept changes, in the metric's unit."""
    possible_gain: float
    """Sum of the true gains of all useful changes."""
    estimated_gain: float
    """Sum of the estimated gains of kept changes: selection makes it too large."""
    proposals: float
    """Proposals that the runs of the budget allow."""
    runs: Rate
    """Runs of a campaign, of both sides."""


class CampaignDesign(FrozenModel):
    """Operating characteristics of a campaign."""

    campaign: str
    """Its id."""
    error: str
    """What is bounded: any_false_keep or false_discovery_rate."""
    error_rate: float
    """At most this, over the whole campaign."""
    metric: str
    """What is to be improved."""
    smallest: float
    """The smallest gain worth keeping."""
    seeds: tuple[int, ...]
    """Pairs after each stage."""
    proposals: int
    """Most proposals."""
    runs: int
    """Most runs."""
    runs_of_proposal: int
    """Runs of a proposal that ends at the last stage."""
    first_level: float
    """The level that the first proposal spends, one-sided."""
    stage_levels: tuple[float, ...]
    """The nominal one-sided p that each of its stages asks for."""
    sd: float
    """Assumed SD of the paired differences."""
    gain: float
    """True gain of a useful change in the scenarios."""
    gain_80: float
    """The true gain at which the last stage alone shows the first proposal with power 80%, without guardrails."""
    n_sims: int
    """Simulated campaigns a scenario."""
    seed: int
    """Seed of the simulation."""
    cost_s: float | None = None
    """Time of all runs of the budget, one after another; none without `seconds_per_run`."""
    scenarios: tuple[CampaignScenario, ...]
    """One for each share of useful changes."""


def design_campaign(campaign: Campaign, *, n_campaigns: int = CAMPAIGNS) -> CampaignDesign:
    """Simulate a campaign as registered, in one scenario for each of its `assume.useful`.

    Raises `SpecError` where `assume` does not say the SD of the metric and of every guardrail, or no gain is assumed
    and `smallest` is 0.

    Examples
    --------
    >>> from prereg.campaign.load import campaign_from_document
    >>> campaign = campaign_from_document({
    ...     "campaign": "night", "title": "Which changes help?", "metric": "val/loss", "smallest": 0.002,
    ...     "start": {"base": {"data": {"corpus": "toy"}}}, "stages": {"seeds": [3, 6]},
    ...     "budget": {"proposals": 10, "runs": 120}, "error": {"any_false_keep": 0.05},
    ...     "assume": {"metrics": {"val/loss": {"sd": 0.002, "correlation": 0.5}}, "useful": [0.2], "gain": 0.006},
    ... })
    >>> design = design_campaign(campaign, n_campaigns=200)
    >>> design.sd, design.first_level, design.scenarios[0].any_false_keep.mean < 0.1
    (0.002, 0.005, True)
    """
    sd = sd_of_differences(_assumed(campaign, campaign.metric))
    guardrail_sds = tuple(sd_of_differences(_assumed(campaign, each.metric)) for each in campaign.guardrails)
    gain = campaign.assume.gain or 2.0 * campaign.smallest
    if gain == 0.0:
        raise field_error(
            ("assume", "gain"),
            "no gain of a useful change is assumed, and smallest is 0",
            "the gain for which the campaign is designed",
            f"gain: {compact(2.0 * sd)}   (two SDs of the differences)",
        )
    world = World(useful=0.0, gain=gain, sd=sd, guardrail_sds=guardrail_sds)
    level = proposal_level(campaign, 0)
    seeds = campaign.stages.seeds
    levels = stage_levels(level, seeds, campaign.stages.spending)
    seconds = campaign.assume.seconds_per_run
    return CampaignDesign(
        campaign=campaign.campaign,
        error=next(iter(type(campaign.error).model_fields)),
        error_rate=campaign.error_rate,
        metric=campaign.metric,
        smallest=campaign.smallest,
        seeds=seeds,
        proposals=campaign.budget.proposals,
        runs=campaign.budget.runs,
        runs_of_proposal=campaign.n_runs_of_proposal,
        first_level=level,
        stage_levels=levels,
        sd=sd,
        gain=gain,
        gain_80=sd * detectable("margin", seeds[-1], levels[-1], TARGET),
        n_sims=n_campaigns,
        seed=SEED,
        cost_s=None if seconds is None else seconds * campaign.budget.runs,
        scenarios=tuple(
            scenario_of(
                useful,
                # The same draws in every scenario: what differs is the share alone.
                simulate_campaigns(campaign, replace(world, useful=useful), n_campaigns, np.random.default_rng(SEED)),
                gain,
            )
            for useful in campaign.assume.useful
        ),
    )


def scenario_of(useful: float, simulated: SimulatedCampaigns, gain: float) -> CampaignScenario:
    """The means of simulated campaigns.

    Parameters
    ----------
    useful, gain
        Share and true gain of the useful changes that were drawn.
    """
    return CampaignScenario(
        useful=useful,
        any_false_keep=rate_of(simulated.any_false_keep),
        false_discovery_rate=rate_of(simulated.false_share),
        true_keeps=rate_of(simulated.true_keeps.astype(np.float64)),
        # All useful changes of a scenario have the same gain, so the sum of gains counts them.
        useful_proposals=float(simulated.possible_gain.mean()) / gain,
        true_gain=rate_of(simulated.true_gain),
        possible_gain=float(simulated.possible_gain.mean()),
        estimated_gain=float(simulated.estimated_gain.mean()),
        proposals=float(simulated.n_proposals.mean()),
        runs=rate_of(simulated.n_runs.astype(np.float64)),
    )


def rate_of(values: Floats) -> Rate:
    """Mean and standard error over campaigns."""
    return Rate(mean=float(values.mean()), se=float(values.std(ddof=1)) / sqrt(values.size))


def _assumed(campaign: Campaign, metric: str) -> Assumption:
    assumed = campaign.assume.metrics.get(metric)
    if assumed is None:
        raise SpecError(
            f"nothing is assumed of {metric}",
            required="its SD over seeds, and the correlation of two arms over shared ones: without a scale nothing can "
            "be simulated",
            fix=f"assume: {{metrics: {{{metric}: {{sd: 0.01, correlation: 0}}}}}}   (a few runs of the start say it)",
        ).at(field=("assume", "metrics"))
    return assumed


def sd_of_differences(assumed: Assumption) -> float:
    """Var(a - b) = 2 sd^2 (1 - correlation), for two arms of one SD."""
    return assumed.sd * sqrt(2.0 * (1.0 - assumed.correlation))
