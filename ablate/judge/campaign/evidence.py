"""Evidence of a proposal: the differences that its sealed runs give, and the decision that follows from them.

The study of a proposal has the arms `best` and `proposal` and one claim for each metric that decides: `gain`, then
`guardrail1` and so on, in the order of the campaign.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

from ablate.judge.campaign.procedure import ProposalDecision, decide_proposal
from ablate.judge.interim import restrict
from ablate.judge.readings import read_values, scaled
from ablate.records.evidence import Evidence
from prereg.campaign.record import BegunProposal, CampaignRecord
from prereg.campaign.spec import BEST, PROPOSAL
from prereg.registry.canon import sha256_of
from prereg.registry.plan import Cell
from prereg.registry.registration import Registration
from prereg.study.analysis import Scale
from prereg.text import counted

GAIN: Final = "gain"
"""The claim of a proposal's study that is about the campaign's metric."""


def guardrail_claim(number: int) -> str:
    """The claim about a guardrail, by its number from 1.

    >>> guardrail_claim(1)
    'guardrail1'
    """
    return f"guardrail{number}"


def decision_of(
    record: CampaignRecord, number: int, registration: Registration, evidence: Evidence
) -> ProposalDecision:
    """What becomes of a proposal at the stage whose runs these are.

    Parameters
    ----------
    number : int
        Which proposal, from 1; its level follows from the ends of those before it.
    """
    differences = _differences(registration, evidence)
    guardrails = {
        each.metric: differences[guardrail_claim(at)] for at, each in enumerate(record.campaign.guardrails, start=1)
    }
    return decide_proposal(record.campaign, record.history[: number - 1], differences[GAIN], guardrails)


def _differences(registration: Registration, evidence: Evidence) -> dict[str, list[float | None]]:
    """Claim -> proposal minus best, a pair each in the order of the seeds, on the claim's scale; none for a pair of
    which a run has no value."""
    study = registration.study
    seeds = list(dict.fromkeys(seed for _, seed in evidence.planned))
    differences: dict[str, list[float | None]] = {}
    for name, hypothesis in study.hypotheses.items():
        values = read_values(study, name, evidence)
        pairs = [
            (_on_scale(values, (PROPOSAL, seed), hypothesis.scale), _on_scale(values, (BEST, seed), hypothesis.scale))
            for seed in seeds
        ]
        differences[name] = [None if a is None or b is None else a - b for a, b in pairs]
    return differences


def _on_scale(values: Mapping[Cell, float], cell: Cell, scale: Scale) -> float | None:
    """A run's value on the registered scale; none where it has none, or one without a logarithm."""
    value = values.get(cell)
    if value is None or not isfinite(value) or (scale != "raw" and value <= 0.0):
        return None
    return scaled(value, scale)


def decided_again(
    record: CampaignRecord, proposal: BegunProposal, registration: Registration, evidence: Evidence
) -> tuple[str, ...]:
    """Where the runs of an ended proposal do not give what the ledger says of its stages, a sentence each.

    Parameters
    ----------
    evidence : Evidence
        Of all runs up to the stage that ended it, none of them missing.
    """
    faults = []
    for stage in proposal.stages:
        # What was given up was dropped unseen: no records decided it.
        if stage.given_up is not None:
            continue
        # The first seeds alone: what a later stage trained was not there when this one was decided.
        of_stage = restrict(evidence, proposal.entry.seeds[: stage.seeds])
        label = f"stage {stage.stage} of proposal {stage.number}, at {counted(stage.seeds, 'seed')}"
        if of_stage.sha256 != stage.evidence:
            faults.append(f"the records of {label} are not those that it was decided on")
            continue
        decision = decision_of(record, stage.number, registration, of_stage)
        if sha256_of(decision.model_dump(mode="json")) != stage.decision_sha256:
            faults.append(f"{label}: the ledger has another decision than its records give ({decision.outcome})")
    return tuple(faults)
