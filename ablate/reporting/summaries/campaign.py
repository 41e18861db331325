"""Output of `ablate design` for a campaign: its levels, and what campaigns come to in each state of the world."""

from __future__ import annotations

from ablate.judge.campaign.design import CampaignDesign
from ablate.reporting.blocks import Facts, Section
from ablate.reporting.tables import CAMPAIGNS
from ablate.reporting.wording import phrase
from prereg import text as words


def campaign_design_section(design: CampaignDesign) -> Section:
    """False keeps, true gain and runs of a campaign, by simulation."""
    cost = "" if design.cost_s is None else words.duration(design.cost_s)
    names = ("levels", "reach", "scale", "simulated", "not_normal")
    facts = Facts(tuple((phrase(f"campaign.{name}_term"), phrase(f"campaign.{name}", design)) for name in names))
    table = CAMPAIGNS.of(design.scenarios, design=design)
    return Section("design", phrase("campaign.title", design, cost), (facts, table))
