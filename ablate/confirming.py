"""Confirmation of a campaign: `ablate confirm`, its best so far against its start on seeds that no run had before.

A confirmation is a study of its own, with the arms `start` and `best` and a fixed number of seeds. It is on record
before its first run, and `ablate.deciding` decides it as every other study. Its runs are outside the campaign's budget,
which is that of the search.

    confirming -> registered -> its runs -> decided

After a crash the same command continues from the last of these steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ablate.campaigning import CampaignContext, open_campaign, pinned_start, refuse_name_of_study
from ablate.workspace import HERE, Workspace
from prereg.campaign.record import BegunConfirmation, CampaignRecord, seeds_of_confirmation
from prereg.errors import RegistrationError, StudyError, Where
from prereg.registry.disk import write_whole
from prereg.registry.ledger_entry import ConfirmingEntry, DecidedEntry, ReportedEntry
from prereg.seeds import draw_nonce
from prereg.study.timed import timed_promises

if TYPE_CHECKING:
    from ablate.judge.campaign.confirmation import TotalGain
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.options import RunOptions

ConfirmationAnswer = Literal["confirmed", "not confirmed", "inconclusive", "inadmissible", "unfinished"]


@dataclass(frozen=True)
class ConfirmationResult:
    """What became of a confirmation."""

    source: Path
    """The campaign's file."""
    record: CampaignRecord
    """The campaign, as it is now."""
    confirmation: BegunConfirmation
    path: Path
    """The file of the study that carries it out."""
    answer: ConfirmationAnswer
    """`confirmed`, `not confirmed` and `inconclusive` are verdicts of its study. `inadmissible`: its evidence is no
    basis for one. `unfinished`: runs are missing."""
    ran: Ran | None = None
    """How far its runs are, where this call made some."""
    decided: Decided | None = None
    """The decision of its study; none before there is one."""

    @property
    def same_best(self) -> tuple[int, ...]:
        """The numbers of all confirmations of this best, this one among them."""
        best = self.confirmation.entry.best_sha256
        return tuple(each.entry.number for each in self.record.confirmations if each.entry.best_sha256 == best)

    @cached_property
    def total_gain(self) -> TotalGain | None:
        """The gain of the best over the start; none where nothing may be shown."""
        from ablate.judge.campaign.confirmation import total_gain

        return None if self.decided is None else total_gain(self.record, self.decided.decision)

    @cached_property
    def sum_of_kept(self) -> float:
        """The sum of the estimated gains of the kept changes, which selection makes too large."""
        from ablate.judge.campaign.confirmation import sum_of_kept

        return sum_of_kept(self.record, self.confirmation.proposals)


def confirm(
    campaign: str | Path,
    *,
    seeds: int | None = None,
    again: str | None = None,
    by: str | None = None,
    options: RunOptions | None = None,
    workspace: Workspace = HERE,
) -> ConfirmationResult:
    """Compare the best of a campaign with its start: register the comparison, run it, decide it.

    `seeds` is the number of pairs (`seeds_by_default` where it is left out). A confirmation that has not ended goes on;
    where the best was confirmed it is answered again, and `again` is the reason to confirm it once more, on other
    seeds. `by` is who confirms, for the ledger. Raises `StudyError` for a campaign that has kept nothing, while a
    proposal is open, and for whatever `run` and `decide` refuse.

        ablate.confirm("campaigns/night.yaml", seeds=12).total_gain
    """
    from ablate.running import require_one_at_a_time

    context = open_campaign(campaign, workspace=workspace)
    if options is not None:  # before anything is on record
        require_one_at_a_time(timed_promises(context.campaign.probe), options, context.root)
    record = context.record()
    if again is not None and not again.strip():
        raise RegistrationError(
            "--again without a reason", required="why, in words; it goes into the ledger", fix='--again "..."'
        )
    if by is not None and not by.strip():
        raise RegistrationError(
            "--by without a name", required="who confirms; it goes into the ledger", fix="--by NAME"
        )
    before = _to_go_on_with(context, record, again)
    if before is not None:
        # Its study has the seeds of its entry: another number would be another confirmation, uncounted.
        if seeds not in (None, len(before.entry.seeds)):
            raise RegistrationError(
                f"--seeds {seeds}, and confirmation {before.entry.number} has {len(before.entry.seeds)} seeds",
                required="the number that was registered",
                fix="leave it out; or, as another confirmation that is counted: --again REASON",
            )
        return _carried_out(context, before, options)
    return _carried_out(context, _begun(context, seeds, again, by), options)


def _to_go_on_with(
    context: CampaignContext, record: CampaignRecord | None, again: str | None
) -> BegunConfirmation | None:
    """The confirmation that this call is about; none where it begins another. Raises `RegistrationError` where it
    cannot."""
    last = record.confirmations[-1] if record is not None and record.confirmations else None
    # The same call once more, after whatever ended it.
    if last is not None and not _is_decided(context, last) and again in (None, last.entry.again):
        return last
    if record is None or not record.kept:
        raise RegistrationError(
            f"'{context.campaign.campaign}' has kept no change",
            required="a best that is not the start: without a keep there is nothing to confirm",
            fix=f'ablate propose {context.path} --set PATH=VALUE --why "..."',
            where=Where(file=context.path),
        )
    if record.open is not None:
        raise RegistrationError(
            f"proposal {record.open.entry.number} of '{context.campaign.campaign}' has not ended",
            required="its end first: it may change the best",
            fix=f"ablate propose {context.path}   (goes on with it; --give-up REASON drops it)",
        )
    same = [each for each in record.confirmations if each.entry.best_sha256 == record.best.sha256]
    if again is None:
        return same[-1] if same else None
    if not same:
        raise RegistrationError(
            "--again, and this best was not confirmed before",
            required="--again only for one that was",
            fix="leave it out",
        )
    return None


def _is_decided(context: CampaignContext, confirmation: BegunConfirmation) -> bool:
    entries = context.ledger.entries()
    return any(isinstance(entry, DecidedEntry) and entry.study == confirmation.entry.run_as for entry in entries)


def _begun(context: CampaignContext, n_seeds: int | None, again: str | None, by: str | None) -> BegunConfirmation:
    """Put a confirmation on record, with its seeds; everything that can be refused is refused before."""
    from ablate.judge.campaign.confirmation import seeds_by_default

    # The seeds follow from the last entry of the ledger: none may come between.
    with context.ledger.hold():
        record = context.record()
        assert record is not None and record.kept and record.open is None, context.path
        number = len(record.confirmations) + 1
        name = f"{record.campaign.campaign}-confirm{number}"
        refuse_name_of_study(context, name)
        require_start(context, record)
        # Of a merge, the end that the next entry names as the one before it.
        head = context.ledger.head().partition("+")[0]
        seeds_with = partial(
            seeds_of_confirmation,
            record.entry.registration,
            number,
            head=head,
            best_sha256=record.best.sha256,
            n_seeds=n_seeds or seeds_by_default(record),
            used=record.used_seeds,
        )
        words = {"again": again, "by": by}
        optional: dict[str, Any] = {name: text.strip() for name, text in words.items() if text is not None}
        without_nonce = ConfirmingEntry(
            study=record.campaign.campaign,
            registration=record.entry.registration,
            at=context.workspace.clock(),
            number=number,
            best_sha256=record.best.sha256,
            seeds=seeds_with(nonce=None),
            run_as=name,
            **optional,
        )
        # The study is found registrable with seeds that anyone can compute, and its file is written again after the
        # entry: a user who read the real seeds first and stopped this process could choose among nonces.
        begun = BegunConfirmation(without_nonce, record.best, len(record.proposals))
        path = _write_study(context, record, begun)
        try:
            require_registrable(context, path)
        finally:
            path.unlink(missing_ok=True)
        nonce = draw_nonce()
        context.ledger.append(without_nonce.model_copy(update={"nonce": nonce, "seeds": seeds_with(nonce=nonce)}))
    record = context.record()
    assert record is not None, context.path
    return record.confirmations[-1]


def require_start(context: CampaignContext, record: CampaignRecord) -> None:
    """Refuse a campaign whose code or data are not those that it started with."""
    if pinned_start(context)[1] != record.entry.start_sha256:
        raise RegistrationError(
            f"code or data of '{record.campaign.campaign}' are not what they were when it was registered",
            required="start and best as they were compared",
            fix="restore the files",
            where=Where(file=context.path),
        )


def require_registrable(context: CampaignContext, path: Path) -> None:
    """Raise `StudyError`, at the campaign's own field, for a written study that cannot be registered."""
    from ablate.registering import prepare

    try:
        prepare(replace(context.workspace, root=context.root.path).open(path))
    except StudyError as error:
        raise context.placed(error) from None


def _write_study(context: CampaignContext, record: CampaignRecord, confirmation: BegunConfirmation) -> Path:
    """Write the study that carries out a confirmation; it follows from the campaign and its entries alone."""
    from ablate.judge.campaign.confirmation import confirmation_document
    from prereg.yaml_model import yaml_text

    entry = confirmation.entry
    header = f"# Written by `ablate confirm` for confirmation {entry.number} of {record.entry.file}.\n"
    path = context.root.study(entry.run_as)
    write_whole(path, (header + yaml_text(confirmation_document(record, confirmation))).encode())
    return path


def read_confirmations(context: CampaignContext, record: CampaignRecord) -> tuple[ConfirmationResult, ...]:
    """Every confirmation of a campaign with its decision, as far as it has one; runs and decides nothing. Raises
    `EvidenceError` where a decision is not what was taken."""
    from ablate.deciding import results

    workspace = replace(context.workspace, root=context.root.path)
    read = []
    for confirmation in record.confirmations:
        path = context.root.study(confirmation.entry.run_as)
        result = ConfirmationResult(context.path, record, confirmation, path, "unfinished")
        if _is_decided(context, confirmation):
            result = _answered(replace(result, decided=results(path, workspace=workspace)))
        read.append(result)
    return tuple(read)


def _carried_out(
    context: CampaignContext, confirmation: BegunConfirmation, options: RunOptions | None
) -> ConfirmationResult:
    """Make what runs are missing, and decide; of one that is decided, its decision."""
    record = context.record()
    assert record is not None, context.path
    run_as = confirmation.entry.run_as
    result = ConfirmationResult(context.path, record, confirmation, context.root.study(run_as), "unfinished")
    ran, decided = run_and_decide(context, run_as, lambda: _write_study(context, record, confirmation), options)
    result = replace(result, ran=ran, decided=decided)
    return result if decided is None else _answered(result)


def run_and_decide(
    context: CampaignContext, study: str, write_study: Callable[[], object], options: RunOptions | None
) -> tuple[Ran | None, Decided | None]:
    """Make what runs a study of a campaign misses, and decide it; of one that is decided, its decision.

    Parameters
    ----------
    write_study
        Writes the file of the study, which follows from the ledger; called as long as the study is not registered.

    Returns
    -------
    tuple of Ran and Decided
        How far its runs are, where this call made some; and its decision, none while runs are missing.
    """
    from ablate.deciding import decide, results
    from ablate.runner.options import RunOptions
    from ablate.running import run

    workspace = replace(context.workspace, root=context.root.path)
    path = context.root.study(study)
    mine = [entry for entry in context.ledger.entries() if entry.study == study]
    decisions = [entry for entry in mine if isinstance(entry, DecidedEntry)]
    # What was inadmissible may have been restored since.
    is_decided = bool(decisions) and decisions[-1].verdict is not None
    if is_decided and any(isinstance(entry, ReportedEntry) for entry in mine):
        return None, results(path, workspace=workspace)
    if is_decided:
        # A crash came between the decision and its files: the same decision is logged once, and its files are written.
        return None, decide(path, workspace=workspace)
    # Not registered yet: the file follows from the ledger, whatever lies there.
    if not mine:
        write_study()
    ran = run(path, options or RunOptions(), workspace=workspace)
    return ran, decide(path, workspace=workspace) if ran.summary.complete else None


def _answered(result: ConfirmationResult) -> ConfirmationResult:
    from ablate.judge.campaign.confirmation import CONFIRMED, NOT_CONFIRMED

    assert result.decided is not None, result.path
    status, verdict = result.decided.status, result.decided.verdict
    verdicts: dict[str | None, ConfirmationAnswer] = {CONFIRMED: "confirmed", NOT_CONFIRMED: "not confirmed"}
    if status == "unfinished":
        return result
    answer: ConfirmationAnswer = "inadmissible" if status == "inadmissible" else verdicts.get(verdict, "inconclusive")
    return replace(result, answer=answer)
