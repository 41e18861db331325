"""Output of `ablate confirm --remove`: which kept changes can be taken out, with the interval that says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Block, Facts, Paragraph, Section
from ablate.reporting.estimates import decimals_for
from ablate.reporting.summaries.tables import REMOVALS, RemovalRow
from ablate.reporting.wording import phrase
from prereg import text as words

if TYPE_CHECKING:
    from ablate.judge.campaign.removal import GainWithin
    from ablate.removing import PlannedRemovals, RemovalResult, TriedRemoval


def planned_section(plan: PlannedRemovals) -> Section:
    """What would be tried, in which order, and in how many runs at most."""
    facts = (
        (phrase("removal.order_term"), phrase("removal.order", plan)),
        (phrase("removal.cost_term"), phrase("removal.cost", plan)),
        (phrase("removal.error_term"), phrase("removal.error", plan.record.campaign, plan.level)),
    )
    return Section("confirm", phrase("removal.planned", plan.record.campaign), (Facts(facts),))


def removal_section(result: RemovalResult) -> Section:
    """How far the removals are; of one that has not ended nothing of its results."""
    return Section("confirm", phrase("removal.title", result), tuple(removal_blocks(result)))


def removal_blocks(result: RemovalResult) -> list[Block]:
    """The same without its title."""
    blocks: list[Block] = []
    if result.open is not None and result.answer == "unfinished":
        ran = None if result.ran is None else result.ran.summary
        blocks.append(Paragraph(phrase("removal.unfinished", result.open, ran, result.source)))
    elif result.answer == "inadmissible":
        blocks.append(Paragraph(" ".join(f"{fault}." for fault in result.faults)))
    if result.tried:
        blocks.append(REMOVALS.of(_row(result, each) for each in result.tried))
    blocks.append(Facts(tuple(_facts(result))))
    blocks += [Paragraph(phrase("removal.deviation", each), "warning") for each in result.deviations]
    if len(result.reductions) > 1:
        blocks.append(Paragraph(phrase("removal.repeated", result.reductions), "warning"))
    return blocks


def _facts(result: RemovalResult) -> Iterator[tuple[str, str]]:
    campaign = result.record.campaign
    if result.together is not None:
        shown = None if result.together.gain is None else _shown(result.together.gain)
        yield phrase("removal.together_term"), phrase("removal.together", result.together, shown, result)
    for line in result.diff if result.answer == "reduced" else ():
        yield phrase("removal.delete_term"), phrase("removal.delete", line)
    for number, why in result.not_tried.items():
        yield phrase("removal.not_tried_term"), phrase("removal.not_tried", number, why, result.source)
    yield phrase("removal.error_term"), phrase("removal.error", campaign, None)


def _row(result: RemovalResult, tried: TriedRemoval) -> RemovalRow:
    entry = tried.removal.entry
    (proposal,) = (each for each in result.record.proposals if each.entry.number == entry.change)
    return RemovalRow(
        without=phrase("removal.without", proposal),
        change=phrase("proposal.change", proposal.entry.change),
        outcome=phrase("removal.outcome", tried, result.record.campaign),
        gain="" if tried.gain is None else _shown(tried.gain),
        level=tried.level,
        seeds=len(entry.seeds),
    )


def _shown(gain: GainWithin) -> str:
    """A gain with its interval, to as many decimals as the width bears."""
    ends = [gain.low, gain.high]
    finite = [end for end in ends if end is not None]
    decimals = decimals_for(max(finite) - min(finite) if len(finite) > 1 else 0.0, abs(gain.gain))
    numbers = [None if x is None else words.number(x, decimals) for x in (gain.gain, *ends)]
    return phrase("removal.gain", *numbers, gain.level)
