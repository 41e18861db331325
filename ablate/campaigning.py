"""`ablate design` of a campaign: what its file can find before its first proposal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prereg.campaign.load import load_campaign
from prereg.errors import StudyError

if TYPE_CHECKING:
    from ablate.judge.campaign.design import CampaignDesign


def simulate_campaign(path: str | Path) -> CampaignDesign:
    """False keeps, true gain and runs of the campaign in a file, by simulation.

    Raises `StudyError`, placed at its line, for a file that is no campaign, and for one that assumes no SD.

        ablate.campaigning.simulate_campaign("campaigns/night.yaml").scenarios[0].true_gain
    """
    from ablate.judge.campaign.design import design_campaign

    loaded = load_campaign(Path(path))
    try:
        return design_campaign(loaded.campaign)
    except StudyError as error:
        raise error.at(file=loaded.path, line=loaded.line(error.where.field)) from None
