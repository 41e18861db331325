"""Verification of campaigns: every ended proposal decided again, from its sealed runs and the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.judge.campaign.evidence import decided_again
from ablate.judge.interim import restrict
from ablate.records.gather import gather
from prereg.campaign.record import CampaignRecord, campaign_faults, campaign_record, campaigns_of
from prereg.errors import StudyError
from prereg.registry.ledger_entry import Entry
from prereg.registry.paths import Root
from prereg.registry.registration import load_registration
from prereg.text import counted
from prereg.verification import Item, check_campaigns, item, not_checked

DECIDED_AGAIN = "proposals decided again"


def campaign_items(root: Root, entries: Sequence[Entry], named: str | None) -> Iterator[Item]:
    """The record of every campaign, or of the one that is named, and its decisions judged again."""
    yield from check_campaigns(entries, named)
    for name in campaigns_of(entries):
        if named in (None, name) and not campaign_faults(entries, name):
            record = campaign_record(entries, name)
            assert record is not None, name
            yield from _decided_again(root, record)


def _decided_again(root: Root, record: CampaignRecord) -> Iterator[Item]:
    name, faults, absent, n_judged = record.campaign.campaign, list[str](), 0, 0
    for proposal in record.proposals:
        # Runs of an open one stay unseen, and one that was given up was decided on none.
        if proposal.end is None or proposal.end.given_up is not None:
            continue
        try:
            registration = load_registration(root, proposal.entry.run_as)
        except StudyError:
            registration = None
        if registration is None or registration.study.seeds != proposal.entry.seeds:
            faults.append(f"'{proposal.entry.run_as}' is not the study of proposal {proposal.entry.number}")
            continue
        arms = {arm: (each.commit, dict(each.overrides)) for arm, each in registration.study.arms.items()}
        for arm, setup in (("best", proposal.best), ("proposal", proposal.setup)):
            commit, overrides = arms[arm]
            if (commit, {key: value for key, value in overrides.items() if key != "commit"}) != (
                setup.commit,
                setup.settings,
            ):
                faults.append(f"'{proposal.entry.run_as}' has another {arm} than proposal {proposal.entry.number}")
        seen = restrict(gather(root, registration), proposal.entry.seeds[: proposal.end.seeds])
        if seen.withheld or seen.missing:
            absent += 1
            continue
        faults += decided_again(record, proposal, registration, seen)
        n_judged += 1
    if n_judged or faults:
        yield item(name, DECIDED_AGAIN, *faults, note=counted(n_judged, "proposal"))
    if absent:
        yield not_checked(
            name,
            DECIDED_AGAIN,
            f"runs of {counted(absent, 'proposal')} are not here",
            "restore data/runs from a backup",
        )
