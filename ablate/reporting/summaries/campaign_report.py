"""Page of a campaign (`ablate report CAMPAIGN`): what it kept, and what that gains in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablate.reporting.blocks import Facts, Paragraph, Section
from ablate.reporting.document import Banner, Document
from ablate.reporting.summaries.confirmation import confirmation_blocks, gains_in_words, proposals_table
from ablate.reporting.summaries.proposal import campaign_section, others_in_words
from ablate.reporting.wording import phrase

if TYPE_CHECKING:
    from ablate.campaign_report import CampaignSummary


def campaign_page(summary: CampaignSummary) -> Document:
    """The page: of what has not ended nothing but that."""
    record = summary.record
    ends = Counter("open" if each.end is None else each.end.outcome.replace("_", " ") for each in record.proposals)
    headline = phrase("campaign_report.headline", record, ends)
    banner = Banner("index", phrase("campaign_report.word"), headline, tuple(_reasons(summary)), ())
    return Document("", record.campaign.title, banner, (), tuple(_sections(summary)))


def _reasons(summary: CampaignSummary) -> Iterator[str]:
    """What all of it gains, and what else was tried, a sentence each."""
    best = summary.of_best
    if best is None:
        yield phrase("campaign_report.not_confirmed", summary.record)
    else:
        yield from (phrase("campaign_report.fact", *fact) for fact in gains_in_words(best))
    yield from (phrase("campaign_report.fact", *fact) for fact in others_in_words(summary.record))


def _sections(summary: CampaignSummary) -> Iterator[Section]:
    record = summary.record
    for result in summary.confirmations:
        about = phrase("campaign_report.about", result, record)
        title = phrase("campaign_report.confirmation", result)
        number = result.confirmation.entry.number
        yield Section(f"confirmation{number}", title, (Paragraph(about, "lead"), *confirmation_blocks(result)))
    yield Section("proposals", phrase("campaign_report.proposals"), (proposals_table(record),))
    best = Facts(tuple((path, phrase("campaign_report.value", value)) for path, value in record.best.settings.items()))
    commit = Paragraph(phrase("campaign_report.best", record))
    yield Section("best", phrase("campaign_report.best_title"), (commit, *([best] if best.items else [])))
    yield Section("promise", phrase("campaign_report.promise"), campaign_section(record.campaign, record).blocks)
