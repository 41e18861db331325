"""One proposal of a campaign: what it is judged by, and what it leaves to those after it."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import pytest
from campaign_samples import a_campaign
from scipy import stats

from ablate.judge.campaign.procedure import decide_proposal, judge_stage, open_proposal, proposal_level, stage_levels
from prereg.campaign.history import EndedProposal
from prereg.errors import EvidenceError

SEEDS = (2, 4, 8)
CLEAR = [-0.0105, -0.0098, -0.0112, -0.0101, -0.0095, -0.0103, -0.0108, -0.0099]
"""Gains of val/loss of ten times its smallest, with an SD of a twentieth of them."""


def ended(*ends: str, n_seeds: int = 8) -> list[EndedProposal]:
    return [
        EndedProposal.model_validate({"number": number, "end": end, "n_seeds": n_seeds})
        for number, end in enumerate(ends, start=1)
    ]


def test_the_levels_of_the_stages_spend_the_level_of_the_proposal() -> None:
    # By simulation of the t statistics at 4 and 8 pairs, at a level that a simulation can see.
    level, rng = 0.05, np.random.default_rng(1)
    levels = stage_levels(level, (4, 8), "pocock")
    x = rng.standard_normal((200_000, 8))
    crossed = np.zeros(len(x), dtype=bool)
    for n, nominal in zip((4, 8), levels, strict=True):
        crossed |= stats.ttest_1samp(x[:, :n], 0.0, axis=1, alternative="greater").pvalue <= nominal
    assert abs(crossed.mean() - level) < 4 * sqrt(level * (1 - level) / len(x))


def test_a_clear_gain_is_kept_at_the_first_stage_that_can_show_it() -> None:
    campaign = a_campaign()
    outcomes = [decide_proposal(campaign, [], CLEAR[:n], {}) for n in SEEDS]
    assert [decision.outcome for decision in outcomes] == ["next_stage", "next_stage", "keep"]
    kept = outcomes[-1]
    expected = stats.ttest_1samp(CLEAR, 0.0, alternative="less")
    assert kept.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert kept.level == 0.05 / 100
    assert kept.parts[0].improvement == pytest.approx(-np.mean(CLEAR))
    low = -expected.confidence_interval(1.0 - kept.stage_level).high
    assert kept.parts[0].bound == pytest.approx(low, rel=1e-6)
    assert kept.ended == EndedProposal(number=1, end="keep", n_seeds=8)
    assert outcomes[0].ended is None


def test_p_above_the_limit_of_a_stage_drops() -> None:
    campaign = a_campaign()
    worse = decide_proposal(campaign, [], [0.001, -0.0009], {})
    assert (worse.outcome, worse.reason) == ("drop", "futile")
    better = decide_proposal(campaign, [], [-0.001, 0.0009], {})
    assert better.outcome == "next_stage"
    assert (
        decide_proposal(a_campaign(stages={"seeds": SEEDS, "futility": [0.4, 0.2]}), [], [-0.001, 0.0009], {}).p > 0.4
    )


def test_a_gain_that_is_shown_and_too_small_is_dropped() -> None:
    small = [value / 10.0 for value in CLEAR]
    decision = decide_proposal(a_campaign(), [], small, {})
    assert (decision.outcome, decision.reason) == ("drop", "below_smallest")
    assert decision.p <= decision.stage_level
    assert decide_proposal(a_campaign(smallest=0.0005), [], small, {}).outcome == "keep"


def test_a_pair_without_a_value_drops_whatever_the_others_say() -> None:
    decision = decide_proposal(a_campaign(), [], [*CLEAR[:7], None], {})
    assert (decision.outcome, decision.reason, decision.p) == ("drop", "no_value", 1.0)
    assert decide_proposal(a_campaign(), [], [*CLEAR[:7], float("inf")], {}).reason == "no_value"


def test_equal_gains_are_no_evidence() -> None:
    decision = decide_proposal(a_campaign(), [], [-0.01] * 8, {})
    assert (decision.outcome, decision.reason, decision.parts[0].bound) == ("drop", "no_spread", None)


def test_equal_gains_of_rounded_values_are_no_evidence_and_wait_for_more_seeds() -> None:
    # Public runs: as doubles these differ by 4e-16, which would be a t of 1e12.
    rounded = [3.2781 - 3.2783, 3.2764 - 3.2766]
    assert rounded[0] != rounded[1]
    campaign = a_campaign(smallest=0.0)
    decision = decide_proposal(campaign, [], rounded, {})
    assert (decision.outcome, decision.p, decision.parts[0].bound) == ("next_stage", 1.0, None)
    assert decide_proposal(campaign, [], [-value for value in rounded], {}).reason == "no_spread"
    assert decide_proposal(campaign, [], [0.0, 0.0], {}).reason == "no_spread"


MEMORY = {"metric": "memory", "margin": 0.5, "better": "lower"}


@pytest.mark.parametrize(
    ("memory", "outcome"),
    [
        ([0.0] * 8, "keep"),
        ([0.3] * 8, "keep"),
        ([0.5] * 8, "drop"),
        ([-0.02, 0.03, 0.01, -0.04, 0.02, 0.0, 0.01, -0.01], "keep"),
        ([0.2, 0.6, 0.1, 0.5, 0.4, 0.3, 0.2, 0.6], "drop"),
        ([0.0] * 7 + [None], "drop"),
    ],
    ids=["no change", "within", "at its margin", "shown", "not shown", "no value"],
)
def test_a_guardrail_must_be_shown_to_hold(memory: list[float | None], outcome: str) -> None:
    decision = decide_proposal(a_campaign(guardrails=[MEMORY]), [], CLEAR, {"memory": memory})
    assert decision.outcome == outcome
    if outcome == "drop":
        assert decision.limiting == "memory"


def test_a_metric_that_should_rise_is_turned() -> None:
    campaign = a_campaign(metric="val/accuracy", smallest=0.002)
    assert decide_proposal(campaign, [], [-value for value in CLEAR], {}).outcome == "keep"
    assert decide_proposal(campaign, [], CLEAR, {}).reason == "not_shown"


def test_alpha_is_spent_evenly_and_the_false_discovery_rate_grows_with_keeps() -> None:
    any_false, rate = a_campaign(), a_campaign(error={"false_discovery_rate": 0.1})
    history = ended("keep", "drop", "keep", n_seeds=4)
    assert open_proposal(any_false, history).level == 0.05 / 100
    assert open_proposal(rate, history).level == pytest.approx(0.1 * 3 / 100)
    # With a keep at every proposal the levels of false discovery never pass the rate itself.
    levels = [proposal_level(rate, n_kept) for n_kept in range(100)]
    assert all(a < b for a, b in pairwise(levels))
    assert levels[-1] == pytest.approx(0.1)


def test_the_budget_ends_a_campaign_between_stages_and_between_proposals() -> None:
    campaign = a_campaign(budget={"proposals": 3, "runs": 20})
    open_at_four = [-0.004, -0.012, -0.020, -0.009]
    assert decide_proposal(campaign, ended("drop", n_seeds=4), open_at_four, {}).outcome == "out_of_budget"
    assert decide_proposal(campaign, ended("drop", n_seeds=2), open_at_four, {}).outcome == "next_stage"
    assert open_proposal(campaign, ended("drop", n_seeds=8)).refused is None
    assert open_proposal(campaign, ended("drop", "drop", n_seeds=4)).refused is None
    assert open_proposal(campaign, ended("drop", "drop", "drop", n_seeds=2)).refused == "no_proposals_left"
    spent = a_campaign(budget={"proposals": 3, "runs": 18})
    assert open_proposal(spent, ended("drop", n_seeds=8)).refused == "no_runs_left"
    with pytest.raises(EvidenceError, match="beyond the registered budget"):
        decide_proposal(spent, ended("drop", n_seeds=8), CLEAR[:2], {})


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([EndedProposal(number=2, end="drop", n_seeds=2)], "proposal 2 .* in place of proposal 1"),
        ([EndedProposal(number=1, end="drop", n_seeds=3)], "ended at 3 seeds"),
        (ended(*["drop"] * 101, n_seeds=2), "101 proposals"),
    ],
)
def test_a_history_that_is_not_the_campaigns_is_refused(history: list[EndedProposal], words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        open_proposal(a_campaign(), history)


@pytest.mark.parametrize(
    ("differences", "guardrails", "words"),
    [
        (CLEAR[:3], {}, "3 pairs of val/loss"),
        (CLEAR, {"memory": [0.0] * 8}, "no other: none"),
    ],
)
def test_what_is_no_stage_is_refused(differences: list[float], guardrails: Any, words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        decide_proposal(a_campaign(), [], differences, guardrails)


def test_a_row_among_many_is_judged_as_alone() -> None:
    campaign, rng = a_campaign(), np.random.default_rng(3)
    gains = rng.normal(0.003, 0.003, (500, 4))
    together = judge_stage(campaign, 1, gains, [], 0.0005)
    alone = [judge_stage(campaign, 1, row[None, :], [], 0.0005) for row in gains]
    assert together.p[0].tolist() == [float(each.p[0, 0]) for each in alone]
    assert together.drops.tolist() == [bool(each.drops[0]) for each in alone]
