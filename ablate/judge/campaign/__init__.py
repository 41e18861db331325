"""Campaigns: what becomes of one proposal, with one error rate over all of them, and what a campaign can find."""
