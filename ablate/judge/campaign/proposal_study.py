"""The study that carries out a proposal: two arms, the campaign's claims, its stages as looks.

It follows from the campaign and the ledger's entries before the proposal alone, so that `verify` can derive it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.judge.campaign.evidence import GAIN, guardrail_claim
from ablate.judge.campaign.procedure import open_proposal
from prereg.campaign.record import BegunProposal, CampaignRecord, Setup
from prereg.campaign.spec import BEST, PROPOSAL, Campaign
from prereg.study.analysis import MOST_ALPHA


def proposal_document(record: CampaignRecord, proposal: BegunProposal) -> dict[str, Any]:
    """The plain data of a proposal's study."""
    campaign, entry = record.campaign, proposal.entry
    number = entry.number
    level = open_proposal(campaign, record.history[: number - 1]).level
    document: dict[str, Any] = {
        "study": entry.run_as,
        "title": f"{campaign.title} (proposal {number})",
        "question": entry.why,
        **campaign.start,
    }
    document |= compared_arms(campaign, {BEST: proposal.best, PROPOSAL: proposal.setup})
    document["seeds"] = list(entry.seeds)
    stages = campaign.stages
    if len(stages.seeds) > 1:
        document["stopping"] = {"looks": list(stages.seeds), "spending": stages.spending}
    # A two-sided test at twice the level spends the level on the side of the gain.
    document["analysis"] = {"alpha": min(2.0 * level, MOST_ALPHA)}
    claims = claims_about(campaign, PROPOSAL)
    document["hypotheses"] = claims
    document["decision"] = [
        {"verdict": "keep", "when": " and ".join(f"supported({name})" for name in claims)},
        {"verdict": "drop"},
    ]
    return document


def compared_arms(campaign: Campaign, setups: Mapping[str, Setup]) -> dict[str, Any]:
    """Base, variants and baseline of a study of two sides, the first of them the baseline."""
    arms: dict[str, Any] = {
        "variants": {
            arm: {**setup.settings, **({} if setup.commit is None else {"commit": setup.commit})}
            for arm, setup in setups.items()
        },
        "baseline": next(iter(setups)),
    }
    base = campaign.start.get("base")
    if isinstance(base, dict):
        # The commit is that of each arm.
        arms["base"] = {key: value for key, value in base.items() if key != "commit"}
    return arms


def claims_about(campaign: Campaign, arm: str) -> dict[str, dict[str, Any]]:
    """The claims of a study that compares an arm with its baseline: the gain, then each guardrail within its margin."""
    lower = campaign.lower_is_better(campaign.metric)
    claims = {
        GAIN: {"claim": f"{arm} {'lowers' if lower else 'raises'} {campaign.metric}"}
        | _reading(campaign, campaign, campaign.smallest)
    }
    for at, guardrail in enumerate(campaign.guardrails, start=1):
        claims[guardrail_claim(at)] = (
            {"claim": f"{arm} does_not_worsen {guardrail.metric}"}
            | _reading(campaign, guardrail, guardrail.margin)
            | {"role": "guardrail"}
        )
    return claims


def _reading(campaign: Campaign, measured: Any, smallest: float) -> dict[str, Any]:
    """Scale, place on the curve, margin and direction of a claim, as campaign or guardrail say them."""
    read = measured.read if isinstance(measured.read, str) else measured.read.model_dump(mode="json")
    better = "lower" if campaign.lower_is_better(measured.metric) else "higher"
    return {"smallest": smallest, "scale": measured.scale, "read": read, "better": better}
