"""Output of `ablate confirm`: the total gain, the sum of the kept estimates next to it, and every proposal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablate.judge.campaign.confirmation import estimated_gain
from ablate.reporting.blocks import Block, Facts, Paragraph, Section, Table
from ablate.reporting.estimates import decimals_for
from ablate.reporting.summaries.proposal import others_in_words
from ablate.reporting.summaries.tables import PROPOSALS, ProposalRow
from ablate.reporting.wording import phrase
from prereg import text as words
from prereg.campaign.record import CampaignRecord

if TYPE_CHECKING:
    from ablate.confirming import ConfirmationResult


def confirmation_section(result: ConfirmationResult) -> Section:
    """How the confirmation ended; nothing of its results before that."""
    blocks = (*confirmation_blocks(result), proposals_table(result.record))
    return Section("confirm", phrase("confirmation.title", result), blocks)


def confirmation_blocks(result: ConfirmationResult) -> Iterator[Block]:
    """The same without its title and the proposals."""
    if result.decided is None:
        ran = None if result.ran is None else result.ran.summary
        yield Paragraph(phrase("confirmation.unfinished", ran, result.source))
    else:
        yield Paragraph(result.decided.headline)
        yield Facts((*gains_in_words(result), *others_in_words(result.record)))
    if len(result.same_best) > 1:
        yield Paragraph(phrase("confirmation.repeated", result.same_best), "warning")


def gains_in_words(result: ConfirmationResult) -> Iterator[tuple[str, str]]:
    """The total gain with its interval, and the sum of the kept estimates."""
    total, record = result.total_gain, result.record
    if total is not None:
        ends = [total.low, total.high]
        finite = [end for end in ends if end is not None]
        # As many decimals as the width of the interval bears; the sum gets the same.
        decimals = decimals_for(max(finite) - min(finite) if len(finite) > 1 else 0.0, abs(total.gain))
        gain, *bounds = (None if x is None else words.number(x, decimals) for x in (total.gain, *ends))
        yield phrase("confirmation.total_term"), phrase("confirmation.total", total, gain, bounds, record.campaign)
        n_kept = sum(each.entry.number <= result.confirmation.proposals for each in record.kept)
        shown = words.number(result.sum_of_kept, decimals)
        yield phrase("confirmation.sum_term"), phrase("confirmation.sum", shown, n_kept)


def proposals_table(record: CampaignRecord) -> Table:
    """Every proposal with its end."""
    return PROPOSALS.of(
        ProposalRow(
            number=proposal.entry.number,
            change=phrase("proposal.change", proposal.entry.change),
            end=phrase("confirmation.end", proposal.end),
            seeds=None if proposal.end is None else proposal.end.seeds,
            gain=estimated_gain(proposal),
            why=proposal.entry.why,
        )
        for proposal in record.proposals
    )
