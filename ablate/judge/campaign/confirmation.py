"""Confirmation of a campaign: its best against its start, in a study whose own rule decides.

The gains of kept changes were estimated on the runs that kept them, and only the larger ones were kept: their sum is
too large. A confirmation measures the whole stack at once, on seeds that no run had before.
"""

from __future__ import annotations

from typing import Any, Final

from ablate.judge.campaign.design import sd_of_differences
from ablate.judge.campaign.evidence import GAIN
from ablate.judge.campaign.procedure import ProposalDecision
from ablate.judge.campaign.proposal_study import claims_about, compared_arms
from ablate.judge.stats.t_power import detectable
from ablate.judge.verdict import Decision, Interval
from prereg.campaign.record import BegunConfirmation, BegunProposal, CampaignRecord
from prereg.campaign.spec import BEST, MOST_SEEDS
from prereg.frozen import FrozenModel

START_ARM: Final = "start"
"""The arm that the best is compared with."""
CONFIRMED: Final = "confirmed"
NOT_CONFIRMED: Final = "not confirmed"
_ALPHA: Final = 0.05
"""Two-sided: one comparison, which was chosen before its runs, spends no more than any study."""
_POWER: Final = 0.8


def seeds_by_default(record: CampaignRecord) -> int:
    """How many seeds a confirmation has where the user names no number.

    As many as the campaign's last stage, at whose stricter level every kept change was shown; and where `assume` says
    the noise, as many more as show a total gain of `smallest`, and hold every guardrail within its margin, with power
    80%, up to 64. A stack of two changes and more gains more than that, as far as its gains are real.
    """
    campaign = record.campaign
    # Of a gain the two-sided test at alpha, of a guardrail the one-sided one at alpha.
    sizes = [(campaign.metric, campaign.smallest, _ALPHA / 2)]
    sizes += [(each.metric, each.margin, _ALPHA) for each in campaign.guardrails]
    seeds = campaign.stages.seeds[-1]
    for metric, size, alpha in sizes:
        assumed = campaign.assume.metrics.get(metric)
        sd = 0.0 if assumed is None else sd_of_differences(assumed)
        while sd > 0.0 < size and seeds < MOST_SEEDS and sd * detectable("margin", seeds, alpha, _POWER) > size:
            seeds += 1
    return seeds


def confirmation_document(record: CampaignRecord, confirmation: BegunConfirmation) -> dict[str, Any]:
    """The plain data of a confirmation's study; it follows from the campaign and the ledger's entries alone."""
    campaign, entry = record.campaign, confirmation.entry
    claims = claims_about(campaign, BEST)
    # A smallest gain of zero leaves nothing that the gain could be refuted at.
    refutable = [name for name, claim in claims.items() if claim["smallest"] > 0.0]
    rule = [{"verdict": CONFIRMED, "when": " and ".join(f"supported({name})" for name in claims)}]
    if refutable:
        rule.append({"verdict": NOT_CONFIRMED, "when": " or ".join(f"refuted({name})" for name in refutable)})
    document: dict[str, Any] = {
        "study": entry.run_as,
        "title": f"{campaign.title} (confirmation {entry.number})",
        **({} if entry.again is None else {"question": entry.again}),
        **campaign.start,
    }
    document |= compared_arms(campaign, {START_ARM: record.start, BEST: confirmation.best})
    document |= {
        "seeds": list(entry.seeds),
        "hypotheses": claims,
        "decision": [*rule, {"verdict": "inconclusive"}],
        "analysis": {"alpha": _ALPHA},
        # The power at `smallest` alone refuses no confirmation: the stack is expected to gain more.
        "assume": {
            "metrics": {metric: each.model_dump(mode="json") for metric, each in campaign.assume.metrics.items()},
            "power_floor": 0.0,
        },
    }
    return document


class TotalGain(FrozenModel):
    """The gain of a best over the start, turned so that an improvement is positive."""

    gain: float
    """The mean of the paired differences, on the registered scale."""
    low: float | None
    """Lower end of its interval; none where there is no finite one."""
    high: float | None
    """Upper end."""
    level: float | None
    """Confidence level of the interval."""
    n_seeds: int
    """Pairs."""


def total_gain(record: CampaignRecord, decision: Decision) -> TotalGain | None:
    """Return the gain that a confirmation found; none where its evidence is no basis for one, or a run has no value."""
    if decision.status == "inadmissible":
        return None
    finding = next((each for each in decision.findings if each.hypothesis == GAIN), None)
    estimate = None if finding is None else finding.estimate
    if finding is None or estimate is None:
        return None
    # Differences are best minus start.
    sign = -1.0 if record.campaign.lower_is_better(finding.metric) else 1.0
    interval = estimate.interval
    low, high = _turned(interval, sign)
    return TotalGain(
        gain=sign * estimate.difference,
        low=low,
        high=high,
        level=None if interval is None else interval.level,
        n_seeds=finding.n,
    )


def _turned(interval: Interval | None, sign: float) -> tuple[float | None, float | None]:
    """Lower and upper end of an interval times a sign; none where there is no finite one."""
    ends = (None, None) if interval is None else (interval.low, interval.high)
    low, high = (None if end is None else sign * end for end in (ends if sign > 0.0 else ends[::-1]))
    return low, high


def estimated_gain(proposal: BegunProposal) -> float | None:
    """The gain of a proposal on the runs that decided it; none of one that is open, was given up, or had a run without
    a value."""
    end = proposal.end
    if end is None or end.decision is None:
        return None
    parts = ProposalDecision.model_validate(end.decision, strict=False).parts
    return parts[0].improvement if parts else None


def sum_of_kept(record: CampaignRecord, n_proposals: int) -> float:
    """The sum of the estimated gains of the changes that were kept among the first proposals: too large in the mean,
    because a change is kept where its estimate is large."""
    kept_by_then = (each for each in record.kept if each.entry.number <= n_proposals)
    return sum(gain for each in kept_by_then if (gain := estimated_gain(each)) is not None)
