"""Record of a campaign in the ledger: registered once, then proposal by proposal; every gap in it is named.

    opened      the campaign, all that it promises
    proposed    a proposal, before its first run: what it changes, its seeds, the best it is compared with
    staged      what became of it at a stage; all but `next_stage` end it
    confirming  a confirmation, before its first run: the best so far against the start, on seeds of its own

Levels, budget and the present best follow from these entries, so that one which was left out would buy another try.

The seeds of a proposal follow from the campaign, its number, the last entry of the ledger before it, what it proposes,
and a nonce. The nonce is drawn after all of that is fixed and goes into the same entry, so that nobody can know the
seeds before the proposal is on record, and everybody can compute them afterwards. A campaign that was registered before
there were nonces has none: whoever proposed there could compute the seeds first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import JsonValue

from prereg.campaign.history import EndedProposal, require_history
from prereg.campaign.load import campaign_from_document
from prereg.campaign.spec import Campaign
from prereg.errors import EvidenceError, StudyError
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_of
from prereg.registry.history import as_json
from prereg.registry.ledger_entry import (
    AmendedEntry,
    Change,
    ConfirmingEntry,
    DecidedEntry,
    EarlierCampaign,
    Entry,
    OpenedEntry,
    ProposedEntry,
    RunStartedEntry,
    StagedEntry,
)
from prereg.registry.registration import Pins
from prereg.seeds import seeds_following
from prereg.study.arms import Config
from prereg.study.removed import config_with_removed
from prereg.study.training import Training

CAMPAIGN_EVENTS = ("opened", "proposed", "staged", "confirming")
"""The events of entries whose study is a campaign."""


class Setup(FrozenModel):
    """What one side of a comparison is: the start with the changes that were kept, or with one more."""

    commit: str | None = None
    """The commit whose code it runs, by its full hash; none where its code is that of the root."""
    settings: dict[str, JsonValue] = {}
    """Value by dotted path, over the start's configuration."""

    def changed(self, change: Change) -> Setup:
        """The setup with a change.

        >>> Setup(settings={"lr": 0.1}).changed(Change(commit=None, settings={"lr": 0.3})).settings
        {'lr': 0.3}
        """
        return Setup(commit=change.commit or self.commit, settings={**self.settings, **change.settings})

    @property
    def sha256(self) -> str:
        """sha256 of commit and settings."""
        return sha256_of(self.model_dump(mode="json"))


@dataclass(frozen=True)
class BegunProposal:
    """A proposal that is on record, and how far it is."""

    entry: ProposedEntry
    best: Setup
    """What it is compared with."""
    stages: tuple[StagedEntry, ...] = ()
    """What became of it at each stage so far."""

    @property
    def setup(self) -> Setup:
        """What it proposes."""
        return self.best.changed(self.entry.change)

    @property
    def end(self) -> StagedEntry | None:
        """The stage that ended it; none of an open one."""
        last = self.stages[-1] if self.stages else None
        return None if last is None or last.outcome == "next_stage" else last


@dataclass(frozen=True)
class BegunConfirmation:
    """A confirmation that is on record. How it ended says the decision of its study."""

    entry: ConfirmingEntry
    best: Setup
    """What it compares with the start."""
    proposals: int
    """How many proposals had ended before it."""


@dataclass(frozen=True)
class CampaignRecord:
    """A registered campaign, its proposals and its confirmations, as the ledger holds them."""

    entry: OpenedEntry
    campaign: Campaign
    proposals: tuple[BegunProposal, ...]
    confirmations: tuple[BegunConfirmation, ...] = ()
    others: tuple[EarlierCampaign, ...] = ()
    """The other campaigns of the same trainer, start or metric that were registered before its last entry."""

    @property
    def start(self) -> Setup:
        """What the first proposal was compared with."""
        return Setup(commit=self.entry.start_commit)

    @property
    def kept(self) -> tuple[BegunProposal, ...]:
        """Proposals whose change was kept, oldest first."""
        return tuple(each for each in self.proposals if each.end is not None and each.end.outcome == "keep")

    @property
    def best(self) -> Setup:
        """The start with every change that was kept."""
        return self.kept[-1].setup if self.kept else self.start

    @property
    def open(self) -> BegunProposal | None:
        """The proposal that has not ended; none where all have."""
        last = self.proposals[-1] if self.proposals else None
        return None if last is None or last.end is not None else last

    @property
    def history(self) -> tuple[EndedProposal, ...]:
        """How each proposal ended, but for an open one."""
        return history_of(self.proposals)

    @property
    def begun(self) -> tuple[BegunProposal | BegunConfirmation, ...]:
        """All proposals, then all confirmations: each is carried out by a study."""
        return (*self.proposals, *self.confirmations)

    @property
    def requires_nonces(self) -> bool:
        """True where the next proposal or confirmation must have a nonce: by the registration, or because an earlier
        one has."""
        return self.entry.seeds_follow_from == "nonce" or any(each.entry.nonce is not None for each in self.begun)

    @property
    def used_seeds(self) -> frozenset[int]:
        """The seeds of all proposals and confirmations."""
        return frozenset(seed for begun in self.begun for seed in begun.entry.seeds)


def history_of(proposals: Iterable[BegunProposal]) -> tuple[EndedProposal, ...]:
    """How each of these proposals ended, but for an open one."""
    ended = []
    for proposal in proposals:
        end = proposal.end
        if end is not None:
            assert end.outcome != "next_stage", end
            ended.append(EndedProposal(number=end.number, end=end.outcome, n_seeds=end.seeds))
    return tuple(ended)


def campaign_sha256(
    promised: dict[str, Any], start_sha256: str, start_commit: str | None, seeds_follow_from: str | None = None
) -> str:
    """Return the hash of a registered campaign: what it promises, what its runs are made with, and what its seeds
    follow from."""
    hashed: dict[str, Any] = {"campaign": promised, "start": start_sha256, "commit": start_commit}
    # Left out where absent: campaigns from before there were nonces keep their hash.
    if seeds_follow_from is not None:
        hashed["seeds_follow_from"] = seeds_follow_from
    return sha256_of(hashed)


def seeds_of_proposal(
    registration: str,
    number: int,
    *,
    head: str,
    content: str,
    nonce: str | None,
    n_seeds: int,
    used: Collection[int],
) -> tuple[int, ...]:
    """Return the seeds of a proposal.

    Parameters
    ----------
    registration
        sha256 of the campaign.
    head
        sha256 of the ledger's entry before the proposal's own.
    content
        sha256 over code and configuration that are proposed: other words for them draw no other seeds.
    nonce
        What was drawn for this proposal; none in a campaign from before there were nonces.
    used
        Seeds of the campaign's earlier proposals, none of which comes again.
    """
    known_before = f"{registration} {number} {head} {content}"
    return tuple(seeds_following(_with_nonce(known_before, nonce), n_seeds, used))


def seeds_of_confirmation(
    registration: str,
    number: int,
    *,
    head: str,
    best_sha256: str,
    nonce: str | None,
    n_seeds: int,
    used: Collection[int],
) -> tuple[int, ...]:
    """Return the seeds of a confirmation, which follow as those of a proposal do."""
    known_before = f"{registration} confirmation {number} {head} {best_sha256}"
    return tuple(seeds_following(_with_nonce(known_before, nonce), n_seeds, used))


def _with_nonce(known_before: str, nonce: str | None) -> str:
    return known_before if nonce is None else f"{known_before} {nonce}"


def _gain_of_keep(end: StagedEntry) -> float | None:
    """The estimated gain that the decision of a keep holds; none where it is no decision."""
    parts = (end.decision or {}).get("parts")
    # The gain is the first part (`ablate.judge.campaign.procedure.ProposalDecision`).
    first = parts[0] if isinstance(parts, list) and parts else None
    gain = first.get("improvement") if isinstance(first, dict) else None
    return float(gain) if isinstance(gain, int | float) else None


def start_sha256(pins: Pins, *, from_commit: bool) -> str:
    """One hash over all that the runs of a start are made with, but for its configuration and its commit.

    Parameters
    ----------
    from_commit
        Whether its code is that of a commit, which the study of each proposal pins.
    """
    return sha256_of(
        {
            "scripts": [as_json(pin) for pin in (() if from_commit else pins.scripts or ())],
            "data_files": [as_json(pin) for pin in pins.data_files],
            "corpus": as_json(pins.corpus),
            "data": as_json(pins.data),
            "tasks": as_json(pins.tasks),
            "own_checks": {},  # what older versions hashed too
        }
    )


def content_of(code_sha256: str, config: Config) -> str:
    """The hash of what a proposal trains, whatever its name: code and configuration.

    Parameters
    ----------
    code_sha256
        Of a commit, the hash over its files; else the `start_sha256` of the campaign.
    """
    # As recipes of seals: removed fields are in it, so that a campaign of an earlier version has the same hashes.
    plain = config_with_removed(config.model_dump(mode="json")) if isinstance(config, Training) else config
    return sha256_of({"code": code_sha256, "config": plain})


def campaigns_of(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Every campaign that a ledger speaks of, in its order."""
    return tuple(dict.fromkeys(entry.study for entry in entries if entry.event in CAMPAIGN_EVENTS))


def studies_of_campaign(entries: Iterable[Entry], campaign: str) -> tuple[str, ...]:
    """The studies that carry out proposals and confirmations of a campaign, in the order of the ledger."""
    begun = ProposedEntry | ConfirmingEntry
    return tuple(entry.run_as for entry in entries if isinstance(entry, begun) and entry.study == campaign)


def earlier_campaigns(entries: Sequence[Entry], opened: OpenedEntry) -> tuple[EarlierCampaign, ...]:
    """Return the campaigns of a ledger with the trainer, the start or the metric of one that is registered after these
    entries: a campaign that begins anew after bad luck has an error rate of its own, and the two together have a larger
    one."""
    earlier = []
    for name in campaigns_of(entries):
        of_campaign = [entry for entry in entries if entry.study == name]
        first = next((entry for entry in of_campaign if isinstance(entry, OpenedEntry)), None)
        if first is None or name == opened.study:
            continue
        same_start, same_trainer = _start_of(first) == _start_of(opened), _has_same_trainer(first, opened)
        same_metric = first.campaign.get("metric") == opened.campaign.get("metric")
        if not (same_start or same_trainer or same_metric):
            continue
        confirmed_by = {entry.run_as for entry in of_campaign if isinstance(entry, ConfirmingEntry)}
        verdicts = [
            entry.verdict or entry.status
            for entry in entries
            if isinstance(entry, DecidedEntry) and entry.study in confirmed_by
        ]
        confirmation = {"confirmation": verdicts[-1]} if verdicts else {}
        earlier.append(
            EarlierCampaign(
                campaign=name,
                proposals=sum(isinstance(entry, ProposedEntry) for entry in of_campaign),
                kept=sum(isinstance(entry, StagedEntry) and entry.outcome == "keep" for entry in of_campaign),
                same_start=same_start,
                same_trainer=same_trainer,
                same_metric=same_metric,
                **confirmation,
            )
        )
    return tuple(earlier)


def other_campaigns(entries: Sequence[Entry], name: str) -> tuple[EarlierCampaign, ...]:
    """Return the other campaigns with the trainer, the start or the metric of a registered one that were registered
    before its last entry, and how far they have come by now. By the ledger, and not by what its own entry says: whoever
    begins anew after bad luck could leave them out there, or could have registered several at once."""
    places = [at for at, entry in enumerate(entries) if entry.study == name and entry.event in CAMPAIGN_EVENTS]
    opened = next(entry for entry in entries if entry.study == name and isinstance(entry, OpenedEntry))
    registered = {entry.study for entry in entries[: places[-1]] if isinstance(entry, OpenedEntry)}
    found = [each for each in earlier_campaigns(entries, opened) if each.campaign in registered]
    # A slice of a ledger has the entries of one campaign alone, and what its own entry says of the others.
    here = {each.campaign for each in found}
    return (*(each for each in opened.earlier if each.campaign not in here), *found)


def _has_same_trainer(one: OpenedEntry, other: OpenedEntry) -> bool:
    """Return True where two campaigns train by the built-in trainer; or by the same command, a file of code that both
    name, the same bytes, or the same commit."""
    starts: list[dict[str, Any]] = [dict(each.campaign["start"] or {}) for each in (one, other)]  # type: ignore[arg-type]  # a mapping, by its model
    kinds = {start.get("trainer") or "gpt" for start in starts}
    if kinds != {"command"}:
        return len(kinds) == 1
    if one.start_sha256 == other.start_sha256 or (one.start_commit == other.start_commit is not None):
        return True
    words, files = zip(*map(_words_of_trainer, starts), strict=True)
    return bool(words[0] and words[0] == words[1]) or bool(files[0] & files[1])


def _words_of_trainer(start: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of a command that are neither options nor filled in, and the files of code of a start."""
    command = [str(word) for word in start.get("command") or ()]
    words = frozenset(word for word in command if "{" not in word and not word.startswith("-"))
    code = start.get("code")
    return words, frozenset([code] if isinstance(code, str) else map(str, code or ()))


def _start_of(opened: OpenedEntry) -> tuple[Any, ...]:
    """What the runs of a campaign's start are made with: the name of a commit is no part of it, its hash is."""
    start: dict[str, Any] = dict(opened.campaign["start"] or {})  # type: ignore[arg-type]  # a mapping, by its model
    if isinstance(start.get("base"), dict):
        start["base"] = {key: value for key, value in start["base"].items() if key != "commit"}
    return start, opened.start_sha256, opened.start_commit


def proposal_run_as(entries: Iterable[Entry], study: str) -> ProposedEntry | None:
    """The proposal that a study carries out; none of a study that is no campaign's."""
    return next((entry for entry in entries if isinstance(entry, ProposedEntry) and entry.run_as == study), None)


def confirmation_run_as(entries: Iterable[Entry], study: str) -> ConfirmingEntry | None:
    """The confirmation that a study carries out; none of a study that is none."""
    return next((entry for entry in entries if isinstance(entry, ConfirmingEntry) and entry.run_as == study), None)


def end_of(entries: Iterable[Entry], proposal: ProposedEntry) -> str | None:
    """How a proposal ended, in words; none while it is open."""
    about = proposal.study, proposal.number
    stages = [entry for entry in entries if isinstance(entry, StagedEntry) and (entry.study, entry.number) == about]
    return stages[-1].outcome.replace("_", " ") if stages and stages[-1].outcome != "next_stage" else None


def campaign_record(entries: Sequence[Entry], name: str) -> CampaignRecord | None:
    """The record of a campaign; none where the ledger has none. Raises `EvidenceError` for the first gap in it."""
    mine = [entry for entry in entries if entry.study == name and entry.event in CAMPAIGN_EVENTS]
    if not mine:
        return None
    faults = campaign_faults(entries, name)
    if faults:
        raise EvidenceError(
            faults[0],
            required="every entry of a campaign, in order: levels and budget follow from them",
            fix="restore studies/ledger.jsonl from version control",
        )
    return replace(_read(mine), others=other_campaigns(entries, name))


def _read(mine: Sequence[Entry]) -> CampaignRecord:
    opened = mine[0]
    assert isinstance(opened, OpenedEntry), opened
    record = CampaignRecord(opened, campaign_from_document(opened.campaign), ())
    for entry in mine[1:]:
        record = _with(record, entry)
    return record


def _with(record: CampaignRecord, entry: Entry) -> CampaignRecord:
    """The record with one more entry, which fits."""
    if isinstance(entry, ProposedEntry):
        return replace(record, proposals=(*record.proposals, BegunProposal(entry, record.best)))
    if isinstance(entry, ConfirmingEntry):
        begun = BegunConfirmation(entry, record.best, len(record.proposals))
        return replace(record, confirmations=(*record.confirmations, begun))
    assert isinstance(entry, StagedEntry), entry
    *before, last = record.proposals
    return replace(record, proposals=(*before, replace(last, stages=(*last.stages, entry))))


def campaign_faults(entries: Sequence[Entry], name: str) -> list[str]:
    """What is wrong with the record of a campaign, a sentence each; the first ends the reading."""
    return list(_faults(entries, name))[:1]


def _faults(entries: Sequence[Entry], name: str) -> Iterator[str]:
    mine = [entry for entry in entries if entry.study == name and entry.event in CAMPAIGN_EVENTS]
    opened = mine[0] if mine else None
    # 1. Registered once, before everything else, as its hash says.
    if not isinstance(opened, OpenedEntry):
        yield f"the ledger has no entry that registers the campaign '{name}'"
        return
    if opened.registration != campaign_sha256(
        opened.campaign, opened.start_sha256, opened.start_commit, opened.seeds_follow_from
    ):
        yield f"the registration of '{name}' is not the hash of what its entry promises"
    try:
        campaign = campaign_from_document(opened.campaign)
    except StudyError as error:
        yield f"the entry of '{name}' promises no campaign: {error.found}"
        return
    # 2. Each further entry, held against the record of those before it.
    before = CampaignRecord(opened, campaign, ())
    for entry in mine[1:]:
        fault = (
            f"'{name}' was registered a second time"
            if isinstance(entry, OpenedEntry)
            else f"an entry of '{name}' is of another registration"
            if entry.registration != opened.registration
            else _fault_of_proposal(campaign, before, entry)
            if isinstance(entry, ProposedEntry)
            else _fault_of_stage(campaign, before, entry)
            if isinstance(entry, StagedEntry)
            else _fault_of_confirmation(before, entry)
            if isinstance(entry, ConfirmingEntry)
            else ""
        )
        if fault:
            yield fault
            return
        before = _with(before, entry)
    # 3. Nothing that ran before what it belongs to was on record, and no study that was changed.
    order = {entry.sha256: place for place, entry in enumerate(entries)}
    for begun in before.begun:
        named = begun.entry
        what = _WHAT[type(named)]
        of_study = [entry for entry in entries if entry.study == named.run_as]
        if any(isinstance(entry, AmendedEntry) for entry in of_study):
            yield f"'{named.run_as}', which carries out {what} {named.number} of '{name}', was amended"
        if any(isinstance(entry, RunStartedEntry) and order[entry.sha256] < order[named.sha256] for entry in of_study):
            yield f"a run of {what} {named.number} of '{name}' was started before the {what} was on record"


def _fault_of_proposal(campaign: Campaign, before: CampaignRecord, entry: ProposedEntry) -> str:
    """What is wrong with a proposal, in a sentence; empty where nothing is."""
    label = f"proposal {entry.number} of '{entry.study}'"
    repeats = [each.entry.number for each in before.proposals if each.entry.content_sha256 == entry.content_sha256]
    seeds = seeds_of_proposal(
        entry.registration,
        entry.number,
        head=entry.previous,
        content=entry.content_sha256,
        nonce=entry.nonce,
        n_seeds=campaign.stages.seeds[-1],
        used=before.used_seeds,
    )
    # The first that holds is named: what follows from it would be named as well.
    faults = {
        f"{label} began before the one before it ended": before.open is not None,
        f"{label} in place of proposal {len(before.proposals) + 1}": entry.number != len(before.proposals) + 1,
        f"{label} is beyond its budget of {campaign.budget.proposals}": entry.number > campaign.budget.proposals,
        f"{label} is not compared with the best before it": entry.best_sha256 != before.best.sha256,
        f"{label} has the code and configuration of proposal {max(repeats, default=0)}, and no reason to repeat it": (
            bool(repeats) and entry.again is None
        ),
        f"{label} has no nonce, from which its seeds have to follow": before.requires_nonces and entry.nonce is None,
        f"the seeds of {label} do not follow from the entry before it, from what it proposes and from its nonce": (
            entry.seeds != seeds
        ),
    }
    return next((text for text, holds in faults.items() if holds), "")


def _fault_of_confirmation(before: CampaignRecord, entry: ConfirmingEntry) -> str:
    """What is wrong with a confirmation, in a sentence; empty where nothing is."""
    label = f"confirmation {entry.number} of '{entry.study}'"
    repeats = [each.entry.number for each in before.confirmations if each.entry.best_sha256 == entry.best_sha256]
    seeds = seeds_of_confirmation(
        entry.registration,
        entry.number,
        head=entry.previous,
        best_sha256=entry.best_sha256,
        nonce=entry.nonce,
        n_seeds=len(entry.seeds),
        used=before.used_seeds,
    )
    # As for a proposal, but outside the budget.
    faults = {
        f"{label} began before the proposal before it ended": before.open is not None,
        f"{label} in place of confirmation {len(before.confirmations) + 1}": (
            entry.number != len(before.confirmations) + 1
        ),
        f"{label} is of a campaign that has kept nothing": not before.kept,
        f"{label} is not about the best before it": entry.best_sha256 != before.best.sha256,
        f"{label} is about the best of confirmation {max(repeats, default=0)}, and has no reason to repeat it": (
            bool(repeats) and entry.again is None
        ),
        f"{label} has no nonce, from which its seeds have to follow": before.requires_nonces and entry.nonce is None,
        f"the seeds of {label} do not follow from the entry before it, from the best and from its nonce": (
            entry.seeds != seeds
        ),
    }
    return next((text for text, holds in faults.items() if holds), "")


_WHAT: Final = {ProposedEntry: "proposal", ConfirmingEntry: "confirmation"}


def _fault_of_stage(campaign: Campaign, before: CampaignRecord, entry: StagedEntry) -> str:
    """What is wrong with the end of a stage, in a sentence; empty where nothing is."""
    label = f"stage {entry.stage} of proposal {entry.number} of '{entry.study}'"
    proposal, seeds = before.open, campaign.stages.seeds
    if proposal is None or entry.number != proposal.entry.number:
        return f"{label} is of no proposal that is open"
    if entry.stage != len(proposal.stages) + 1 or entry.stage > len(seeds):
        return f"{label} in place of stage {len(proposal.stages) + 1} of {len(seeds)}"
    faults = {
        f"{label} has {entry.seeds} seeds, not {seeds[entry.stage - 1]}": entry.seeds != seeds[entry.stage - 1],
        f"{label} names no evidence": entry.given_up is None and None in (entry.evidence, entry.decision_sha256),
        f"{label} was given up and not dropped": entry.given_up is not None and entry.outcome != "drop",
        f"{label} keeps a change and holds no gain": entry.outcome == "keep" and _gain_of_keep(entry) is None,
        f"{label} is the last, and names a next one": entry.stage == len(seeds) and entry.outcome == "next_stage",
        f"the decision of {label} is not the one that it hashes": entry.decision is not None
        and sha256_of(entry.decision) != entry.decision_sha256,
    }
    fault = next((text for text, holds in faults.items() if holds), "")
    if fault:
        return fault
    # Whether budget and stages allow it, whatever it ends as: levels of what follows rest on the history.
    try:
        require_history(
            campaign, (*before.history, EndedProposal(number=entry.number, end="drop", n_seeds=entry.seeds))
        )
    except EvidenceError as error:
        return error.found
    return ""
