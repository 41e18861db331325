"""Simulation of campaigns through the functions that judge real ones: false keeps, true gain and runs.

A campaign is a row. Proposals come one after the other, and a row's level, budget and end follow from its own keeps, as
in a real campaign. Differences are in the metric's unit, turned so that a gain is positive. What is drawn is a `World`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ablate.judge.campaign.procedure import judge_stage, proposal_level, stage_levels
from ablate.judge.stats.precision import levelled
from ablate.judge.stats.significance_tests import Floats
from prereg.campaign.spec import Campaign

Counts = npt.NDArray[np.int64]
Noise = Callable[[np.random.Generator, int, Counts, int], Floats]
"""Noise of one proposal of every campaign: generator, number of the proposal from 0, keeps of each campaign so far and
seeds give differences, campaigns x seeds, whose mean is 0 and whose SD is 1."""
SEED: Final = 20_261_127


def normal_noise(rng: np.random.Generator, number: int, n_kept: Counts, n_seeds: int) -> Floats:
    """Independent normal differences."""
    return rng.standard_normal((n_kept.size, n_seeds))


@dataclass(frozen=True)
class World:
    """What is true of the proposals of a campaign."""

    useful: float
    """Share of useful changes."""
    gain: float
    """True gain of each of them, in the metric's unit."""
    sd: float
    """SD of the differences, in the same unit."""
    others: float = 0.0
    """True gain of all other changes; at 0 false keeps are likeliest."""
    noise: Noise = normal_noise
    guardrail_sds: tuple[float, ...] = ()
    """SD of the differences of each guardrail, which are independent and normal."""
    rounding: float = 0.0
    """How far the recorded gain of a pair may lie from the one that was meant, in the same unit
    (`ablate.judge.stats.precision`)."""
    worsens: float = 0.0
    """How much every change worsens each guardrail, in margins; from 1 on every keep is false."""


@dataclass(frozen=True)
class SimulatedCampaigns:
    """What came of simulated campaigns, one an entry."""

    false_keeps: Counts
    """Kept changes whose true gain is 0 or less, or that worsen a guardrail by its margin."""
    true_keeps: Counts
    true_gain: Floats
    """Sum of the true gains of all kept changes."""
    estimated_gain: Floats
    """Sum of their estimated gains, which selection makes too large."""
    possible_gain: Floats
    """Sum of the true gains of all useful proposals that the budget of proposals allows."""
    n_proposals: Counts
    """Proposals that were begun."""
    n_runs: Counts

    @property
    def any_false_keep(self) -> Floats:
        """1 for a campaign with a false keep."""
        return (self.false_keeps > 0).astype(np.float64)

    @property
    def false_share(self) -> Floats:
        """The false discovery proportion of each campaign: 0 of one without a keep."""
        share: Floats = self.false_keeps / np.maximum(self.false_keeps + self.true_keeps, 1)
        return share


def simulate_campaigns(
    campaign: Campaign, world: World, n_campaigns: int, rng: np.random.Generator
) -> SimulatedCampaigns:
    """Campaigns of one world, proposal by proposal.

    Parameters
    ----------
    n_campaigns : int
        How many.
    rng : Generator
        Where all draws come from.
    """
    seeds = campaign.stages.seeds
    false_keeps, true_keeps = np.zeros(n_campaigns, dtype=np.int64), np.zeros(n_campaigns, dtype=np.int64)
    true_gain, estimated, possible = (np.zeros(n_campaigns) for _ in range(3))
    n_proposals, n_runs = np.zeros(n_campaigns, dtype=np.int64), np.zeros(n_campaigns, dtype=np.int64)
    for number in range(campaign.budget.proposals):
        n_kept = false_keeps + true_keeps
        # A row draws whether or not it still has runs, so that its draws do not depend on those of other rows.
        is_useful = rng.random(n_campaigns) < world.useful
        gain = np.where(is_useful, world.gain, world.others)
        x = gain[:, None] + world.sd * world.noise(rng, number, n_kept, seeds[-1])
        guardrails = [
            -world.worsens * each.margin + sd * rng.standard_normal((n_campaigns, seeds[-1]))
            for each, sd in zip(campaign.guardrails, world.guardrail_sds, strict=True)
        ]
        possible += np.where(is_useful, gain, 0.0)
        can_begin = campaign.budget.runs - n_runs >= 2 * seeds[0]
        n_proposals += can_begin
        in_stage = np.flatnonzero(can_begin)
        levels = _levels_by_keeps(campaign, n_kept)
        for stage, (n, new) in enumerate(zip(seeds, campaign.stages.new_seeds, strict=True)):
            # Where the stage cannot be paid the proposal is out of budget, and neither kept nor dropped.
            in_stage = in_stage[campaign.budget.runs - n_runs[in_stage] >= 2 * new]
            if not in_stage.size:
                break
            n_runs[in_stage] += 2 * new
            gains = x[in_stage, :n]
            rows = judge_stage(
                campaign,
                stage,
                levelled(gains, np.full_like(gains, world.rounding), within=campaign.smallest),
                [each[in_stage, :n] for each in guardrails],
                levels[n_kept[in_stage], stage],
            )
            kept = in_stage[rows.keeps]
            is_true = (gain[kept] > 0.0) & (world.worsens < 1.0)
            true_keeps[kept] += is_true
            false_keeps[kept] += ~is_true
            true_gain[kept] += gain[kept]
            estimated[kept] += rows.improvement[0][rows.keeps]
            in_stage = in_stage[~rows.keeps & ~rows.drops]
    return SimulatedCampaigns(
        false_keeps=false_keeps,
        true_keeps=true_keeps,
        true_gain=true_gain,
        estimated_gain=estimated,
        possible_gain=possible,
        n_proposals=n_proposals,
        n_runs=n_runs,
    )


def _levels_by_keeps(campaign: Campaign, n_kept: Counts) -> Floats:
    """Nominal levels, numbers of keeps x stages; only numbers that occur are worked out."""
    levels = np.zeros((int(n_kept.max(initial=0)) + 1, len(campaign.stages.seeds)))
    for keeps in np.unique(n_kept):
        level = proposal_level(campaign, int(keeps))
        levels[keeps] = stage_levels(level, campaign.stages.seeds, campaign.stages.spending)
    return levels
