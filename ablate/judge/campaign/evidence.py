"""Evidence of a proposal: the differences that its sealed runs give, and the decision that follows from them.

The study of a proposal has the arms `best` and `proposal` and one claim for each metric that decides: `gain`, then
`guardrail1` and so on, in the order of the campaign.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Final

import numpy as np

from ablate.judge.campaign.procedure import ProposalDecision, decide_proposal
from ablate.judge.interim import restrict
from ablate.judge.readings import read_values, rounding_of, scaled
from ablate.judge.stats.precision import levelled
from ablate.judge.verdict import Check, Decision
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
_LOST_PAIRS: Final = "the verdict is the same with lost pairs at their worst"
_RUNS_BEGUN_AGAIN: Final = "the verdict is the same with runs begun again at their worst"


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
    which a run has no value. Gains that are equal as far as their records can tell are equal."""
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
        if None not in differences[name]:
            rounding = [
                sum(rounding_of(values[arm, seed], hypothesis.scale) for arm in (PROPOSAL, BEST)) for seed in seeds
            ]
            gains = np.array(differences[name], dtype=np.float64)
            # No gain below `smallest` is kept, whatever its p.
            levelled_gains = levelled(gains[None, :], np.array([rounding]), within=hypothesis.smallest)
            differences[name] = levelled_gains[0].tolist()
    return differences


def _on_scale(values: Mapping[Cell, float], cell: Cell, scale: Scale) -> float | None:
    """A run's value on the registered scale; none where it has none, or one without a logarithm."""
    value = values.get(cell)
    if value is None or not isfinite(value) or (scale != "raw" and value <= 0.0):
        return None
    return scaled(value, scale)


def evidence_faults(judged: Decision, decision: ProposalDecision) -> tuple[Check, ...]:
    """Return the failed checks because of which the runs of a stage are no basis for a decision; none says what the
    runs show.

    Parameters
    ----------
    judged : Decision
        Of the proposal's study, for its audit.
    decision : ProposalDecision
        What becomes of the proposal by these runs.
    """
    failed = [check for check in judged.checks if not check.passed and check.severity == "inadmissible"]
    faults = []
    for check in failed:
        # The study leaves out a pair of which a run diverged, and asks what that could change. The campaign drops the
        # change, and asks nothing.
        if decision.reason == "no_value" and check.name in (_LOST_PAIRS, _RUNS_BEGUN_AGAIN):
            continue
        # What this check found names the verdict that the runs point to.
        faults.append(check.model_copy(update={"found": "it is not"}) if check.name == _RUNS_BEGUN_AGAIN else check)
    return tuple(faults)


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
