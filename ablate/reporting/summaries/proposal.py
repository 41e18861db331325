"""Output of `ablate propose`, and of `ablate check` and `register` of a campaign."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Facts, Paragraph, Section
from ablate.reporting.wording import phrase
from prereg.campaign.history import keeps_of, runs_of
from prereg.campaign.record import CampaignRecord
from prereg.campaign.spec import Campaign

if TYPE_CHECKING:
    from ablate.proposing import ProposalResult


def proposal_section(result: ProposalResult) -> Section:
    """What became of a proposal, and what is left of the campaign. Of one that has not ended nothing but health."""
    proposal = result.proposal
    sentences: list[str] = []
    if proposal is None:
        sentences.append(phrase("proposal.none_left", result.record))
    elif result.answer == "inadmissible":
        sentences += [f"{fault}." for fault in result.faults]
    elif result.answer == "unfinished":
        assert result.ran is not None, result.source
        sentences.append(phrase("proposal.unfinished", result.ran.summary, result.source))
    elif result.decision is not None:
        sentences.append(phrase("proposal.because", result.decision, result.record.campaign))
        sentences += [phrase("proposal.deviation", deviation) for deviation in result.deviations]
    else:
        assert proposal.end is not None, result.source
        sentences.append(phrase("proposal.given_up", proposal.end))
    facts = Facts(tuple(_facts(result)))
    return Section("propose", phrase("proposal.title", result), (Paragraph(" ".join(sentences)), facts))


def _facts(result: ProposalResult) -> Iterator[tuple[str, str]]:
    record, proposal = result.record, result.proposal
    if proposal is not None:
        yield phrase("proposal.change_term"), phrase("proposal.change", proposal.entry.change)
        if result.same_change:
            yield phrase("proposal.repeated_term"), phrase("proposal.repeated", result.same_change)
    if result.decision is not None:
        for part in result.decision.parts:
            yield part.metric, phrase("proposal.part", part)
    yield phrase("proposal.left_term"), phrase("proposal.left", result, record)
    yield from others_in_words(record)


def others_in_words(record: CampaignRecord | None) -> Iterator[tuple[str, str]]:
    """The other campaigns of the same trainer, start or metric, in one line; none where there are none."""
    if record is not None and record.others:
        yield phrase("proposal.others_term"), phrase("proposal.others", record.others)


def campaign_section(campaign: Campaign, record: CampaignRecord | None) -> Section:
    """A valid campaign: what it promises, and how far it is."""
    history = () if record is None else record.history
    facts = (
        (phrase("proposal.promise_term"), phrase("proposal.promise", campaign)),
        (phrase("proposal.state_term"), phrase("proposal.state", record, keeps_of(history), runs_of(history))),
        *others_in_words(record),
    )
    return Section("check", phrase("proposal.valid", campaign), (Facts(facts),))


def registered_lines(record: CampaignRecord, new: bool) -> Iterator[str]:
    """That a campaign is registered, and since when; and which other campaigns there are."""
    yield phrase("proposal.registered", record, new)
    yield from (": ".join(fact) for fact in others_in_words(record))
