"""Report of a campaign: `ablate report CAMPAIGN`, every proposal, and the total gain next to the sum of the kept.

Read from the ledger and from what was decided: it runs, decides and logs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ablate.campaigning import open_campaign
from ablate.confirming import ConfirmationResult, read_confirmations
from ablate.workspace import HERE, Workspace
from prereg.campaign.record import CampaignRecord
from prereg.errors import EvidenceError, Where
from prereg.registry.disk import write_whole


@dataclass(frozen=True)
class CampaignSummary:
    """All that a campaign has come to."""

    record: CampaignRecord
    confirmations: tuple[ConfirmationResult, ...]
    """Every one, oldest first."""

    @property
    def of_best(self) -> ConfirmationResult | None:
        """The last decided confirmation of the present best; none where it has none."""
        best = self.record.best.sha256
        mine = [each for each in self.confirmations if each.confirmation.entry.best_sha256 == best]
        return next((each for each in reversed(mine) if each.decided is not None), None)


def summarize(campaign: str | Path, *, workspace: Workspace = HERE) -> CampaignSummary:
    """Read what a campaign has come to. Raises `EvidenceError` for one that is not registered, and where a decision is
    not what was taken.

        ablate.campaign_report.summarize("campaigns/night.yaml").of_best.total_gain
    """
    context = open_campaign(campaign, workspace=workspace)
    record = context.record()
    if record is None:
        raise EvidenceError(
            f"'{context.campaign.campaign}' is not registered, and has no proposals",
            required="a campaign that has begun",
            fix=f'ablate propose {context.path} --set PATH=VALUE --why "..."',
            where=Where(file=context.path),
        )
    return CampaignSummary(record, read_confirmations(context, record))


def report_campaign(campaign: str | Path, *, workspace: Workspace = HERE) -> tuple[Path, ...]:
    """Write `campaign.md` and `campaign.html` of a campaign into its folder of `reports`; returns the files. Raises as
    `summarize` does.

        ablate.campaign_report.report_campaign("campaigns/night.yaml")
    """
    from ablate.reporting import html, markdown
    from ablate.reporting.summaries.campaign_report import campaign_page

    context = open_campaign(campaign, workspace=workspace)
    page = campaign_page(summarize(campaign, workspace=workspace))
    folder = context.root.report(context.campaign.campaign)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"campaign.md": markdown.markdown_page(page), "campaign.html": html.html_page(page)}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    return tuple(folder / name for name in texts)
