"""Campaigns: their file read, checked, simulated, and registered before the first proposal (`ablate.proposing`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ablate.workspace import HERE, StudyContext, Workspace
from prereg.campaign.load import LoadedCampaign, load_campaign
from prereg.campaign.record import (
    CampaignRecord,
    campaign_record,
    campaign_sha256,
    confirmation_run_as,
    earlier_campaigns,
    proposal_run_as,
    start_sha256,
)
from prereg.campaign.spec import BEST, Campaign
from prereg.errors import EvidenceError, RegistrationError, StudyError, Where
from prereg.registry.canon import sha256_bytes
from prereg.registry.git_files import write_git_files
from prereg.registry.ledger_entry import OpenedEntry, RegisteredEntry
from prereg.registry.paths import Root
from prereg.text import listed

if TYPE_CHECKING:
    from ablate.judge.campaign.design import CampaignDesign
    from prereg.registry.ledger import Ledger

_WORDS: Final = ("title", "question", "assume")
"""Fields of a campaign on which nothing rests, so that they may be edited."""


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


@dataclass(frozen=True)
class CampaignContext:
    """A campaign's file that has been read, and the project it lies in."""

    workspace: Workspace
    path: Path
    root: Root
    loaded: LoadedCampaign

    @property
    def campaign(self) -> Campaign:
        return self.loaded.campaign

    @property
    def ledger(self) -> Ledger:
        """The ledger of all studies and campaigns of this root."""
        from prereg.registry.ledger import Ledger

        return Ledger(self.root.ledger)

    def record(self) -> CampaignRecord | None:
        """What the ledger holds of the campaign; none where it is not registered. Raises `EvidenceError` for a gap in
        it, and `RegistrationError` where the file is not what was registered."""
        record = campaign_record(self.ledger.entries(), self.campaign.campaign)
        if record is not None:
            self._require_unchanged(record)
        return record

    def _require_unchanged(self, record: CampaignRecord) -> None:
        was, now = (each.model_dump(mode="json") for each in (record.campaign, self.campaign))
        fields = [field for field in now if field not in _WORDS and was.get(field) != now[field]]
        if fields:
            raise RegistrationError(
                f"{listed(fields)} of '{self.campaign.campaign}' changed since it was registered on {record.entry.at}",
                required="the campaign as it was registered: levels and budget of every proposal follow from it",
                fix=f"undo the change; or begin another campaign, in a file of its own, by its new {fields[0]}",
                where=Where(file=self.path, line=self.loaded.line((fields[0],)), field=(fields[0],)),
            )

    def study_of_start(self) -> StudyContext:
        """The start alone, as a study that lies where the studies of proposals will."""
        from prereg.study.load import Loaded

        lines = {path[1:]: line for path, line in self.loaded.lines.items() if path[:1] == ("start",)}
        loaded = Loaded(self.campaign.probe, self.loaded.source_bytes, self.path, lines)
        return StudyContext(self.workspace, self.root.study(self.campaign.campaign), self.root, loaded)

    def placed(self, error: StudyError) -> StudyError:
        """An error of a study that was written from this campaign, at the campaign's own field."""
        first, *others = (
            type(each)(
                each.found,
                required=each.required,
                fix=each.fix,
                where=Where(
                    file=self.path,
                    line=self.loaded.line(("start", *each.where.field)),
                    field=("start", *each.where.field) if each.where.field else (),
                ),
            )
            for each in (error, *error.others)
        )
        return first.followed_by(others)


def open_campaign(path: str | Path, *, workspace: Workspace = HERE) -> CampaignContext:
    """Read a campaign's file, and find the folder that holds `studies/`. Raises `StudyError`."""
    path = Path(path)
    loaded = load_campaign(path)
    return CampaignContext(workspace, path, Root.find(path, workspace.root), loaded)


def check_campaign(path: str | Path, *, workspace: Workspace = HERE) -> CampaignContext:
    """Everything that can be known of a campaign before its first run: its fields, how its runs are made, and that it
    is still what was registered. Writes nothing. Raises `StudyError`.

        ablate.campaigning.check_campaign("campaigns/night.yaml").campaign.error_words
    """
    from ablate.checking import check_opened

    context = open_campaign(path, workspace=workspace)
    try:
        check_opened(context.study_of_start())
    except StudyError as error:
        raise context.placed(error) from None
    context.record()
    return context


def register_campaign(path: str | Path, *, workspace: Workspace = HERE) -> tuple[CampaignRecord, bool]:
    """Register a campaign, or return the record of one that is registered; and whether it was registered now.

    Raises `StudyError` for a campaign that this version cannot carry out, or whose file is not what was registered.

        record, new = ablate.campaigning.register_campaign("campaigns/night.yaml")
    """
    context = check_campaign(path, workspace=workspace)
    _require_history(context)
    # Between the look whether it is registered and the entry nobody else may register it.
    with context.ledger.hold():
        record = context.record()
        if record is not None:
            return record, False
        refuse_name_of_study(context, context.campaign.campaign)
        commit, made_with = pinned_start(context)
        commits: dict[str, Any] = {} if commit is None else {"start_commit": commit}
        promised = context.campaign.model_dump(mode="json")
        opened = OpenedEntry(
            study=context.campaign.campaign,
            registration=campaign_sha256(promised, made_with, commit, "nonce"),
            at=workspace.clock(),
            file=context.root.relative(context.path.resolve()),
            source_sha256=sha256_bytes(context.loaded.source_bytes),
            campaign=promised,
            start_sha256=made_with,
            seeds_follow_from="nonce",
            **commits,
        )
        # Named and not refused: whether two campaigns ask one question no rule can say.
        if earlier := earlier_campaigns(context.ledger.entries(), opened):
            opened = opened.model_copy(update={"earlier": earlier})
        write_git_files(context.root)
        context.ledger.append(opened)
        record = context.record()
        assert record is not None, context.path
        return record, True


def _require_history(context: CampaignContext) -> None:
    """Refuse a campaign of which the ledger lacks entries that git's history holds: what was left out would buy another
    try."""
    from prereg.seals.git import ledger_history

    if faults := ledger_history(context.root).faults(context.root, context.campaign.campaign):
        raise EvidenceError(
            faults[0],
            required="every entry of a campaign that a commit holds: levels and budget follow from them",
            fix=faults[-1],
        )


def refuse_name_of_study(context: CampaignContext, name: str) -> None:
    """Refuse the name of a registered study: entries of the ledger tell studies and campaigns apart by their names."""
    if any(isinstance(entry, RegisteredEntry) and entry.study == name for entry in context.ledger.entries()):
        raise RegistrationError(
            f"'{name}' is a registered study",
            required="a name that no study has",
            fix=f"another name of the campaign, for instance {context.campaign.campaign}-2",
            where=Where(file=context.path, line=context.loaded.line(("campaign",)), field=("campaign",)),
        )


def refuse_proposal(context: StudyContext, required: str) -> None:
    """Refuse the study of a campaign's proposal, which the campaign alone runs, decides and shows.

    Parameters
    ----------
    required
        What is needed in place of the call that is refused.
    """
    # Of a damaged ledger what can be read: the audit names the damage, and gives no verdict.
    entries = context.ledger.readable()
    proposal = proposal_run_as(entries, context.study.study)
    if proposal is None:
        return
    files = (entry.file for entry in entries if isinstance(entry, OpenedEntry) and entry.study == proposal.study)
    raise RegistrationError(
        f"'{context.study.study}' is proposal {proposal.number} of the campaign '{proposal.study}', which decides it",
        required=required,
        fix=f"ablate propose {next(files, 'CAMPAIGN')}",
    )


def refuse_amendment(context: StudyContext) -> None:
    """Refuse to amend a study that follows from a campaign and its ledger alone."""
    refuse_proposal(context, "a proposal as it was registered; what it should have been is another proposal")
    entries, study = context.ledger.entries(), context.study.study
    begun = confirmation_run_as(entries, study)
    if begun is not None:
        files = (entry.file for entry in entries if isinstance(entry, OpenedEntry) and entry.study == begun.study)
        raise RegistrationError(
            f"'{study}' is confirmation {begun.number} of the campaign '{begun.study}'",
            required="a confirmation as it was registered",
            fix=f"ablate confirm {next(files, 'CAMPAIGN')} --again REASON",
        )


def pinned_start(context: CampaignContext) -> tuple[str | None, str]:
    """The commit that the campaign starts from, if it does; and one hash over all else that its runs are made with."""
    from ablate.pinning import pin

    start = context.study_of_start()
    try:
        pins = pin(start).pins
    except StudyError as error:
        raise context.placed(error) from None
    commit = start.study.commits.get(BEST)
    full = None if commit is None else commit_named(context, commit, "start.base.commit")
    return full, start_sha256(pins, from_commit=commit is not None)


def commit_named(context: CampaignContext, name: str, where: str) -> str:
    """The full hash of a commit."""
    from prereg.commits.pins import WORKTREE
    from prereg.commits.resolve import missing_commit, repository_of

    repository = repository_of(context.root, context.campaign.probe)
    if name == WORKTREE:
        raise RegistrationError(
            f"{where} {WORKTREE}", required="a commit, which others can look up", fix="git commit, then its name"
        )
    commit = repository.commit_of(name)
    if commit is None:
        raise missing_commit(repository, f"{where} {name}: no commit of this repository has that name")
    return commit
