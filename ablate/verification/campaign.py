"""Verification of campaigns: the study of everything that they began derived again, and every end decided again.

The first shows nothing and is done for an open proposal too; runs are read of those alone that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablate.judge.campaign.confirmation import confirmation_document
from ablate.judge.campaign.evidence import decided_again, decision_of, evidence_faults
from ablate.judge.campaign.proposal_study import proposal_document
from ablate.judge.decide import decide
from ablate.judge.interim import restrict
from ablate.records.gather import gather
from prereg.campaign.record import (
    BegunProposal,
    CampaignRecord,
    campaign_faults,
    campaign_record,
    campaigns_of,
    content_of,
    start_sha256,
)
from prereg.campaign.spec import PROPOSAL
from prereg.errors import StudyError
from prereg.registry.history import differing_fields
from prereg.registry.ledger_entry import DecidedEntry, Entry
from prereg.registry.paths import Root
from prereg.registry.registration import Registration, load_registration
from prereg.study.spec import study_from_document
from prereg.text import counted, listed
from prereg.verification import Item, check_campaigns, item, not_checked

STUDIES = "studies of proposals"
CONFIRMATIONS = "studies of confirmations"
DECIDED_AGAIN = "proposals decided again"


def campaign_items(
    root: Root, entries: Sequence[Entry], named: str | None, runs_from: Mapping[str, Root]
) -> Iterator[Item]:
    """The record of every campaign, or of the one that is named, its studies, and its decisions judged again.
    `runs_from` says by campaign where its runs are read."""
    yield from check_campaigns(root, entries, named)
    for name in campaigns_of(entries):
        if named in (None, name) and not campaign_faults(entries, name):
            record = campaign_record(entries, name)
            assert record is not None, name
            yield from _items_of(runs_from.get(name, root), record)
            yield from _confirmations(root, record, entries)


def _items_of(root: Root, record: CampaignRecord) -> Iterator[Item]:
    """Of one campaign whose entries fit together."""
    name = record.campaign.campaign
    wrong, faults, absent, n_judged = list[str](), list[str](), 0, 0
    for proposal in record.proposals:
        end = proposal.end
        decided = end is not None and end.given_up is None
        try:
            registration = load_registration(root, proposal.entry.run_as)
        except StudyError:
            registration = None
        # What a crash kept from being registered has no runs, and what was given up before that has none either.
        if registration is None and not decided:
            continue
        different = _differences(record, proposal, registration)
        wrong += different
        if registration is None or end is None or not decided or different:
            continue
        evidence = gather(root, registration)
        of_stages = restrict(evidence, proposal.entry.seeds[: end.seeds])
        if of_stages.withheld or of_stages.missing:
            absent += 1
            continue
        n_judged += 1
        judged = decide(registration, evidence)
        faults += [
            f"proposal {end.number}: {check.name}: {check.found}"
            for check in evidence_faults(judged, decision_of(record, end.number, registration, of_stages))
        ]
        faults += decided_again(record, proposal, registration, of_stages)
    if record.proposals:
        yield item(name, STUDIES, *wrong, note=counted(len(record.proposals), "proposal"))
    if n_judged:
        yield item(name, DECIDED_AGAIN, *faults, note=counted(n_judged, "proposal"))
    if absent:
        yield not_checked(
            name,
            DECIDED_AGAIN,
            f"runs of {counted(absent, 'proposal')} are not here",
            "restore data/runs from a backup",
        )


def _differences(record: CampaignRecord, proposal: BegunProposal, registration: Registration | None) -> list[str]:
    """In what the study of a proposal is not the one that follows from the campaign and its entries."""
    entry = proposal.entry
    label = f"'{entry.run_as}', the study of proposal {entry.number},"
    if registration is None:
        return [f"{label} is not registered"]
    faults = _derived_otherwise(record, registration, proposal_document(record, proposal), label)
    if not faults:
        started = record.entry.start_sha256
        commit = registration.commit_of(PROPOSAL)
        config = registration.study.arms[PROPOSAL].config
        if content_of(started if commit is None else commit.sha256, config) != entry.content_sha256:
            faults.append(f"{label} trains other code or another configuration than the ledger has")
    return faults


def _derived_otherwise(
    record: CampaignRecord, registration: Registration, document: dict[str, Any], label: str
) -> list[str]:
    """In what a registered study is not the one that follows from the campaign, whose plain data are given."""
    faults = []
    if fields := differing_fields(study_from_document(document), registration.study):
        faults.append(f"{label} is not the one that follows from the campaign: {listed(each.field for each in fields)}")
    # Of the built-in trainer a proposal may read another corpus than the start.
    if registration.study.trainer == "command":
        own = start_sha256(registration, from_commit=record.entry.start_commit is not None)
        if own != record.entry.start_sha256:
            faults.append(f"{label} has other code or data than the campaign started with")
    return faults


def _confirmations(root: Root, record: CampaignRecord, entries: Sequence[Entry]) -> Iterator[Item]:
    """The studies of the confirmations of a campaign. Each is decided again as every study is."""
    faults, n_open = list[str](), 0
    for confirmation in record.confirmations:
        entry = confirmation.entry
        label = f"'{entry.run_as}', the study of confirmation {entry.number},"
        is_decided = any(isinstance(each, DecidedEntry) and each.study == entry.run_as for each in entries)
        n_open += not is_decided
        document = confirmation_document(record, confirmation)
        faults += _registered_otherwise(root, record, document, label, is_decided=is_decided)
    if record.confirmations:
        # One that was begun and left is part of what was tried.
        undecided = f", {n_open} of them not decided" if n_open else ""
        note = counted(len(record.confirmations), "confirmation") + undecided
        yield item(record.campaign.campaign, CONFIRMATIONS, *faults, note=note)


def _registered_otherwise(
    root: Root, record: CampaignRecord, document: dict[str, Any], label: str, *, is_decided: bool
) -> list[str]:
    """In what a study that is registered under a name is not the one whose plain data are given."""
    try:
        registration = load_registration(root, document["study"])
    except StudyError as error:
        return [f"{label} cannot be read: {error.found}"]
    if registration is None:
        # What a crash kept from being registered has no runs.
        return [f"{label} is not registered"] if is_decided else []
    return _derived_otherwise(record, registration, document, label)
