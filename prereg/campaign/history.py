"""History of a campaign's proposals that have ended: the part of each by which later ones are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from prereg.campaign.spec import Campaign
from prereg.errors import EvidenceError
from prereg.frozen import FrozenModel

End = Literal["keep", "drop", "out_of_budget"]


class EndedProposal(FrozenModel):
    """One proposal that has ended, as the ledger holds it."""

    number: Annotated[int, Field(ge=1)]
    """Which proposal, from 1, without a gap."""
    end: End
    """`out_of_budget`: neither kept nor dropped, because a next stage could not be paid."""
    n_seeds: Annotated[int, Field(ge=2)]
    """Pairs of runs at its end: those of a stage."""


def require_history(campaign: Campaign, history: Sequence[EndedProposal]) -> None:
    """Raise `EvidenceError` where proposals that ended cannot be those of the campaign: levels and budget of the next
    one follow from them, and one that was left out would buy another try."""
    # 1. One by one: none missing, and each ended where a stage ends.
    for number, ended in enumerate(history, start=1):
        if ended.number != number:
            raise EvidenceError(
                f"proposal {ended.number} of '{campaign.campaign}' in place of proposal {number}",
                required="every proposal that was begun, in order: each has spent its level, whatever its end",
                fix=f"restore the ledger's entries of proposal {number}",
            )
        if ended.n_seeds not in campaign.stages.seeds:
            raise EvidenceError(
                f"proposal {number} of '{campaign.campaign}' ended at {ended.n_seeds} seeds",
                required=f"an end at one of its stages: {list(campaign.stages.seeds)} seeds",
                fix="restore the ledger, or the campaign as it was registered",
            )
    # 2. Together: within the budget, from whose number of proposals the level of each follows.
    most = campaign.budget.proposals
    if len(history) > most or runs_of(history) > campaign.budget.runs:
        raise EvidenceError(
            f"'{campaign.campaign}' has {len(history)} proposals and {runs_of(history)} runs",
            required=f"at most {most} proposals and {campaign.budget.runs} runs, as registered",
            fix="restore the campaign as it was registered",
        )


def runs_of(history: Sequence[EndedProposal]) -> int:
    """Runs that ended proposals took: both sides of every pair."""
    return sum(2 * ended.n_seeds for ended in history)


def keeps_of(history: Sequence[EndedProposal]) -> int:
    """How many were kept."""
    return sum(ended.end == "keep" for ended in history)
