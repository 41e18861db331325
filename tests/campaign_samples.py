"""Campaigns as plain data."""

from __future__ import annotations

from typing import Any

from prereg.campaign.load import campaign_from_document
from prereg.campaign.spec import Campaign


def campaign_document(**changes: Any) -> dict[str, Any]:
    """A campaign of a trainer of one's own, as a file would hold it."""
    return {
        "campaign": "night",
        "title": "Which changes lower the loss?",
        "start": {
            "trainer": "command",
            "command": ["{python}", "train.py", "--lr={lr}", "--seed={seed}"],
            "base": {"lr": 0.1},
        },
        "metric": "val/loss",
        "smallest": 0.002,
        "stages": {"seeds": [2, 4, 8], "futility": [0.5, 0.2]},
        "budget": {"proposals": 100, "runs": 800},
        "error": {"any_false_keep": 0.05},
    } | changes


def a_campaign(**changes: Any) -> Campaign:
    """The same, read."""
    return campaign_from_document(campaign_document(**changes))
