"""The bound of a campaign under laws that its proof does not name, in fewer campaigns than tests/campaign_rates.py."""

from __future__ import annotations

import json
from math import sqrt

import numpy as np
import pytest
from campaign_rates import (
    ANY_PAIR,
    GAIN,
    OUT,
    ROOT,
    WORST_PAIR,
    Changes,
    Drifting,
    Row,
    TwoGroups,
    campaign_of,
    candidate_fails,
    decimal,
    failing,
    normal,
    one_seed,
    paired,
    t3,
)

from ablate.judge.campaign.design import design_campaign
from ablate.judge.campaign.simulate import World, simulate_campaigns
from ablate.reporting.wording import phrase

CAMPAIGNS = 1_500


@pytest.mark.slow
@pytest.mark.parametrize("useful", [0.0, 0.05])
@pytest.mark.parametrize("law", [normal, t3, failing, Drifting()], ids=["normal", "t3", "failing", "walking SD"])
def test_a_campaign_keeps_falsely_no_more_often_than_it_promises(law: object, useful: float) -> None:
    world = World(useful, GAIN, 1.0, noise=paired(law))  # type: ignore[arg-type]
    simulated = simulate_campaigns(campaign_of("any false keep"), world, CAMPAIGNS, np.random.default_rng(11))
    assert simulated.any_false_keep.mean() <= 0.05 + 4.0 * sqrt(0.05 * 0.95 / CAMPAIGNS)


@pytest.mark.slow
def test_the_false_discovery_rate_holds_where_useful_changes_raise_the_level() -> None:
    simulated = simulate_campaigns(
        campaign_of("false discovery rate", stages={"seeds": [4, 8], "futility": [0.3]}),
        World(0.1, 3.0, 1.0),
        CAMPAIGNS,
        np.random.default_rng(12),
    )
    shares = simulated.false_share
    assert shares.mean() <= 0.1 + 4.0 * shares.std() / sqrt(CAMPAIGNS)
    # Not for want of keeps: nearly all useful changes are kept, and some false ones.
    assert simulated.true_gain.mean() > 0.9 * simulated.possible_gain.mean()
    assert simulated.false_keeps.any()


@pytest.mark.slow
def test_what_loops_do_keeps_falsely_nearly_always() -> None:
    simulated = one_seed(normal, Changes(0.05), CAMPAIGNS, np.random.default_rng(13))
    assert simulated.any_false_keep.mean() > 0.95


@pytest.mark.slow
def test_a_rare_failure_of_the_change_breaks_the_bound() -> None:
    # Known, and said in reports/campaigns/README.md: should a later version hold it, the page must say so.
    world = World(0.0, GAIN, 1.0, noise=candidate_fails)
    simulated = simulate_campaigns(campaign_of("any false keep"), world, CAMPAIGNS, np.random.default_rng(14))
    assert simulated.any_false_keep.mean() > 0.2


@pytest.mark.slow
def test_two_sides_whose_noise_differs_break_the_bound() -> None:
    """As the two groups of public runs do that err most: the proposal varies more, and has rare bad runs."""
    rng = np.random.default_rng(15)
    proposal = 4.0 - rng.gamma(4.0, 1.0, 4_000)
    best = 0.4 * rng.standard_normal(4_000)
    of_two, of_one = (
        simulate_campaigns(
            campaign_of("any false keep"),
            World(0.0, GAIN, 1.0, noise=TwoGroups(side - side.mean(), proposal - proposal.mean())),
            CAMPAIGNS,
            np.random.default_rng(16),
        ).any_false_keep.mean()
        for side in (best, proposal)
    )
    # Both sides from the skewed group: the skew cancels.
    assert of_two > 0.1
    assert of_one <= 0.05 + 4.0 * sqrt(0.05 * 0.95 / CAMPAIGNS)


def test_what_design_and_the_page_say_of_public_runs_was_measured() -> None:
    rows = [Row(**row) for row in json.loads(OUT.read_text(encoding="utf-8"))]
    pairs = [row for row in rows if row.table == "pairs"]
    docs = " ".join((ROOT / "docs" / "campaigns.md").read_text(encoding="utf-8").split())
    assume = {"metrics": {"val/loss": {"sd": 1.0}}, "useful": [0.0], "gain": 1.0}
    for error in ("any false keep", "false discovery rate"):
        any_pair, worst = (
            next(row for row in pairs if row.rule == error and row.noise.startswith(noise))
            for noise in (ANY_PAIR, WORST_PAIR)
        )
        assert (any_pair.campaigns, worst.campaigns) == (68_000, 10_000)
        bounded = "any_false" if error == "any false keep" else "false_rate"
        rates = [decimal(tuple(getattr(row, bounded))) for row in (any_pair, worst)]
        said = phrase("campaign.not_normal", design_campaign(campaign_of(error, assume=assume), n_campaigns=2))
        assert all(rate in said for rate in rates), (said, rates)
        if error == "any false keep":
            assert all(rate in docs for rate in rates)
