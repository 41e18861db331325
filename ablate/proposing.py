"""Proposals of a campaign: `ablate propose`, from a change of the present best to its end.

A proposal is carried out by a registered study of two arms, `best` and `proposal`, whose looks are the campaign's
stages. So it runs, resumes, is sealed, audited and verified like any other study, on any launcher. What becomes of it
says `ablate.judge.campaign.procedure` alone, at a level that follows from all proposals before it; nothing of its
results is shown before that, and `ablate decide` refuses its study.

    opened -> proposed -> (runs of a stage -> staged) for each stage -> an end

Each step is one entry of the ledger, and what a crash leaves is taken up at the last one: `propose` carries on with the
proposal that is open, and begins another only where none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ablate.campaigning import (
    CampaignContext,
    commit_named,
    open_campaign,
    pinned_start,
    refuse_name_of_study,
    register_campaign,
)
from ablate.workspace import HERE, Workspace
from prereg.campaign.history import keeps_of, runs_of
from prereg.campaign.record import BegunProposal, CampaignRecord, Setup, content_of, seeds_of_proposal
from prereg.errors import RegistrationError, StudyError, Where
from prereg.registry.canon import sha256_of
from prereg.registry.disk import write_whole
from prereg.registry.ledger_entry import Change, LookedEntry, ProposedEntry, StagedEntry
from prereg.seeds import draw_nonce
from prereg.study.timed import timed_promises

if TYPE_CHECKING:
    from ablate.judge.campaign.procedure import ProposalDecision
    from ablate.judge.verdict import Check
    from ablate.notebook.results import Ran
    from ablate.records.evidence import Evidence
    from ablate.registering import Prepared
    from ablate.runner.options import RunOptions
    from ablate.workspace import StudyContext

Answer = Literal["keep", "drop", "out of budget", "inadmissible", "unfinished"]


@dataclass(frozen=True)
class ProposalResult:
    """What became of a proposal, or why none could begin."""

    source: Path
    """The campaign's file."""
    record: CampaignRecord
    """The campaign, with this proposal as it is now."""
    answer: Answer
    """`keep`, `drop` and `out of budget` are ends. `inadmissible`: the evidence is no basis for a decision.
    `unfinished`: runs are missing."""
    proposal: BegunProposal | None = None
    """The proposal; none where the budget allows no other."""
    path: Path | None = None
    """The file of the study that carries it out."""
    same_change: tuple[int, ...] = ()
    """Earlier proposals of the same change, by their numbers."""
    ran: Ran | None = None
    """How far its runs are, where this call made some."""
    decision: ProposalDecision | None = None
    """The decision that ended it; none before, and of one that was given up."""
    faults: tuple[str, ...] = ()
    """Of an inadmissible one, what is wrong with its evidence."""
    deviations: tuple[str, ...] = ()
    """Of one that ended, what was done otherwise than registered."""

    @property
    def n_kept(self) -> int:
        """Changes that were kept so far."""
        return keeps_of(self.record.history)

    @property
    def runs_left(self) -> int:
        """Runs of the budget that no ended proposal took."""
        return self.record.campaign.budget.runs - runs_of(self.record.history)


def propose(
    campaign: str | Path,
    change: Mapping[str, Any] | None = None,
    *,
    commit: str | None = None,
    why: str | None = None,
    again: str | None = None,
    give_up: str | None = None,
    by: str | None = None,
    options: RunOptions | None = None,
    workspace: Workspace = HERE,
) -> ProposalResult:
    """Propose a change of the present best: register it, run its stages, and say what became of it.

    `change` are values by dotted path, `commit` is the name of a commit; `why` is why it may help. Without a change the
    proposal that is open goes on, and where none is the last one is answered again; `give_up` is the reason to end the
    open one as a drop, without a look at its runs.
    `again` is the reason to propose what was proposed before, `by` is who proposes. Registers the campaign if need be.
    Raises `StudyError` for a change that is none, or does not fit, for a proposal while another is open, and for
    whatever `run` refuses.

        ablate.propose("campaigns/night.yaml", {"optim.lr": 3e-3}, why="the loss falls slowly").answer
    """
    from ablate.running import require_one_at_a_time

    context = open_campaign(campaign, workspace=workspace)
    if options is not None:  # before anything is on record
        require_one_at_a_time(timed_promises(context.campaign.probe), options, context.root)
    record, _ = register_campaign(campaign, workspace=workspace)
    wanted = dict(change or {}), commit
    _settle(context, record)
    if record.open is not None:
        _require_same(context, record, record.open, wanted)
        if give_up is not None:
            return _given_up(context, record.open, give_up)
        return _carried_out(context, record.open, options)
    if give_up is not None:
        raise RegistrationError(
            f"no proposal of '{context.campaign.campaign}' is open",
            required="--give-up only while one is",
            fix=f"ablate ledger {context.campaign.campaign}",
        )
    if not any(wanted) and record.proposals:
        # What a crash kept from being answered, or a reader asks for again.
        return _answered(context, record)
    if not any(wanted):
        raise RegistrationError(
            "no change is named",
            required="a change of the best: values of its configuration, or a commit",
            fix=f'ablate propose {context.path} --set PATH=VALUE --why "..."',
        )
    from ablate.judge.campaign.procedure import open_proposal

    if open_proposal(record.campaign, record.history).refused is not None:
        return ProposalResult(context.path, record, "out of budget")
    proposal = _begun(context, wanted, why, again, by)
    return _carried_out(context, proposal, options)


def _require_same(
    context: CampaignContext,
    record: CampaignRecord,
    proposal: BegunProposal,
    wanted: tuple[dict[str, Any], str | None],
) -> None:
    """Refuse another change while a proposal is open: its end would not be known to the one that follows."""
    settings, commit = wanted
    if any(wanted) and _change(context, record, settings, commit) != proposal.entry.change:
        raise RegistrationError(
            f"proposal {proposal.entry.number} has not ended, and this is another change",
            required="one proposal at a time: what the next is compared with follows from its end",
            fix=f"ablate propose {context.path}   (goes on with it; --give-up REASON drops it)",
        )


def _begun(
    context: CampaignContext,
    wanted: tuple[dict[str, Any], str | None],
    why: str | None,
    again: str | None,
    by: str | None,
) -> BegunProposal:
    """Put a proposal on record, with its seeds; everything that can be refused is refused before."""
    settings, commit = wanted
    missing = {"--why": "a reason", "--again": "a reason to repeat it", "--by": "the name of who proposes it"}
    for option, text in (("--why", why), ("--again", again), ("--by", by)):
        if (option == "--why" and text is None) or (text is not None and not text.strip()):
            raise RegistrationError(
                f"a proposal without {missing[option]}",
                required="words that go into the ledger: why it may help, why again, or who proposes it",
                fix=f'{option} "..."',
            )
    assert why is not None
    # The seeds follow from the last entry of the ledger: none may come between.
    with context.ledger.hold():
        record = context.record()
        assert record is not None and record.open is None, context.path
        change = _change(context, record, settings, commit)
        best, setup = record.best, record.best.changed(change)
        number = len(record.proposals) + 1
        name = f"{record.campaign.campaign}-p{number}"
        refuse_name_of_study(context, name)
        if pinned_start(context)[1] != record.entry.start_sha256:
            raise RegistrationError(
                f"code or data of '{record.campaign.campaign}' are not what they were when it was registered",
                required="the best as it was kept: a change is a proposal",
                fix="restore the files; a changed script is proposed as --commit, of a campaign that starts from one",
                where=Where(file=context.path),
            )
        content = _content(context, record, setup)
        _refuse_repeated(context, record, content, again)
        # Of a merge, the end that the next entry names as the one before it.
        head = context.ledger.head().partition("+")[0]
        seeds_with = partial(
            seeds_of_proposal,
            record.entry.registration,
            number,
            head=head,
            content=content,
            n_seeds=record.campaign.stages.seeds[-1],
            used=record.used_seeds,
        )
        words = {"again": again, "by": by}
        optional: dict[str, Any] = {name: text.strip() for name, text in words.items() if text is not None}
        without_nonce = ProposedEntry(
            study=record.campaign.campaign,
            registration=record.entry.registration,
            at=context.workspace.clock(),
            number=number,
            change=change,
            why=why.strip(),
            seeds=seeds_with(nonce=None),
            best_sha256=best.sha256,
            content_sha256=content,
            run_as=name,
            **optional,
        )
        # Whether its study can be registered is found before the proposal is on record, with seeds that anyone can
        # compute. The file with the real ones is written after it: a user who read them first, and stopped
        # this process, would choose among nonces.
        path = _write_study(context, record, BegunProposal(without_nonce, best))
        try:
            _prepared(context, path)
        except StudyError as error:
            raise context.placed(error) from None
        finally:
            path.unlink(missing_ok=True)
        nonce = draw_nonce()
        entry = without_nonce.model_copy(update={"nonce": nonce, "seeds": seeds_with(nonce=nonce)})
        context.ledger.append(entry)
        record = context.record()
        assert record is not None and record.open is not None, context.path
        _registered(context, record, record.open)
        return record.open


def _change(context: CampaignContext, record: CampaignRecord, settings: dict[str, Any], commit: str | None) -> Change:
    """What is to be changed, with the commit's full hash."""
    if commit is not None and record.entry.start_commit is None:
        raise RegistrationError(
            f"--commit {commit}, and '{record.campaign.campaign}' does not start from a commit",
            required="a start whose code is a commit, so that a proposal can be another one",
            fix="in another campaign: start: {base: {commit: main, ...}}",
            where=Where(file=context.path, line=context.loaded.line(("start", "base")), field=("start", "base")),
        )
    full = None if commit is None else commit_named(context, commit, "--commit")
    return Change(commit=full, settings=settings)


def _content(context: CampaignContext, record: CampaignRecord, setup: Setup) -> str:
    """One hash over code and configuration of a setup. Raises `StudyError` for a setting that does not fit."""
    from prereg.commits.resolve import LaidOut, pin_commit, repository_of
    from prereg.study.arms import configured

    probe = record.campaign.probe
    try:
        config, _ = configured(probe.base, setup.settings, dict.fromkeys(setup.settings, ("base",)))
    except StudyError as error:
        raise type(error)(error.found, required=error.required, fix=error.fix) from None
    code = record.entry.start_sha256
    if setup.commit is not None:
        laid_out = LaidOut.of(probe)
        code = pin_commit(repository_of(context.root, probe), setup.commit, laid_out).sha256
    return content_of(code, config)


def _refuse_repeated(context: CampaignContext, record: CampaignRecord, content: str, again: str | None) -> None:
    """Refuse what is the best already; and what was proposed before, unless it is said why."""
    if content == _content(context, record, record.best):
        raise RegistrationError(
            "the change changes nothing: the best has this code and configuration already",
            required="another code, or another configuration",
            fix=f"ablate ledger {record.campaign.campaign}   (lists what was kept)",
        )
    # By what would run, not by its words: another name of a value or another commit of the same files is the same.
    before = [each for each in record.proposals if each.entry.content_sha256 == content]
    if before and again is None:
        end = before[-1].end
        assert end is not None, before
        raise RegistrationError(
            f"proposal {before[-1].entry.number} had this code and configuration, and ended as "
            f"{end.outcome.replace('_', ' ')}",
            required="each change once: a second try spends a level of its own, on new seeds",
            fix='another change; or, counted as a proposal of its own: --again "..."',
        )
    if again is not None and not before:
        raise RegistrationError(
            "--again, and this was not proposed before", required="--again only for what was", fix="leave it out"
        )


def _write_study(context: CampaignContext, record: CampaignRecord, proposal: BegunProposal) -> Path:
    """Write the study that carries out a proposal; it follows from the campaign and its entries alone."""
    from ablate.judge.campaign.proposal_study import proposal_document
    from prereg.yaml_model import yaml_text

    path = context.root.study(proposal.entry.run_as)
    number, file = proposal.entry.number, record.entry.file
    header = f"# Written by `ablate propose` for proposal {number} of {file}, which decides it.\n"
    write_whole(path, (header + yaml_text(proposal_document(record, proposal))).encode())
    return path


def _prepared(context: CampaignContext, path: Path) -> Prepared:
    """All that the registration of a proposal's study takes. Its design is not asked whether it can decide: the
    campaign's level is what it is."""
    from ablate.checking import check
    from ablate.pinning import pin
    from ablate.registering import Prepared, characterise

    study = check(path, replace(context.workspace, root=context.root.path))
    return Prepared(study, pin(study), characterise(study), None)


def _register(prepared: Prepared) -> None:
    from prereg.registry.register import register_study

    prepared.write(register_study)


def _carried_out(context: CampaignContext, proposal: BegunProposal, options: RunOptions | None) -> ProposalResult:
    """Run an open proposal from stage to stage, and decide each, until it ends or runs are missing."""
    from ablate.deciding import judge_evidence
    from ablate.judge.campaign.evidence import decision_of, evidence_faults
    from ablate.runner.options import RunOptions
    from ablate.running import run

    workspace = replace(context.workspace, root=context.root.path)
    path = context.root.study(proposal.entry.run_as)
    ran: Ran | None = None
    while True:
        record = context.record()
        assert record is not None and record.open is not None, path
        proposal = record.open
        # 1. The study, which a crash may have kept from being registered, and the looks that it has to hold.
        study = _registered(context, record, proposal)
        _complete_looks(context, proposal)
        # 2. The runs of the stage.
        ran = run(path, options or RunOptions(), workspace=workspace)
        result = ProposalResult(context.path, record, "unfinished", proposal, path, _same_change(record, proposal), ran)
        if not ran.summary.complete:
            return result
        # 3. Whether the evidence is fit says the audit of every study, and nothing but that is shown of it.
        registration = study.load_registration()
        assert registration is not None, path
        judged, evidence = judge_evidence(study, registration)
        if evidence.missing or evidence.ledger_faults:
            if judged.status == "inadmissible":
                return replace(result, answer="inadmissible", faults=_failed(judged.checks, "inadmissible"))
            return result
        decision = decision_of(record, proposal.entry.number, registration, evidence)
        if faults := evidence_faults(judged, decision):
            return replace(result, answer="inadmissible", faults=_failed(faults, "inadmissible"))
        # 4. The decision: on record first, then shown, and only where it is an end.
        _log_stage(context, record, decision, evidence, _failed(judged.checks, "deviation"))
        if decision.outcome != "next_stage":
            return replace(_ended(context), ran=ran)


def _failed(checks: Iterable[Check], severity: str) -> tuple[str, ...]:
    """Return the failed checks of a severity, with what they found."""
    failed = [check for check in checks if not check.passed and check.severity == severity]
    return tuple(f"{check.name}: {check.found}" for check in failed)


def _registered(context: CampaignContext, record: CampaignRecord, proposal: BegunProposal) -> StudyContext:
    """The registered study of a proposal; registered now where a crash came before that."""
    path = context.root.study(proposal.entry.run_as)
    if not path.is_file():
        _write_study(context, record, proposal)
    prepared = None
    study = replace(context.workspace, root=context.root.path).open(path)
    if study.load_registration() is None:
        _write_study(context, record, proposal)
        prepared = _prepared(context, path)
        _register(prepared)
        study = prepared.context
    return study


def _complete_looks(context: CampaignContext, proposal: BegunProposal) -> None:
    """Put the looks of decided stages into the ledger, as far as a crash kept them from it: by them `run` knows how
    many seeds are due."""
    from prereg.registry.looks import looks_of, taken_looks
    from prereg.registry.registration import load_registration

    registration = load_registration(context.root, proposal.entry.run_as)
    looks = () if registration is None else looks_of(registration.study)
    if registration is None or not looks:
        return
    taken = taken_looks(context.ledger.entries(), registration.lineage)
    for stage in proposal.stages[len(taken) :]:
        # One that was given up saw no runs.
        if stage.given_up is None:
            context.ledger.append(
                LookedEntry(
                    study=proposal.entry.run_as,
                    registration=registration.sha256,
                    at=context.workspace.clock(),
                    look=stage.stage,
                    of=len(looks),
                    seeds=stage.seeds,
                    evidence=stage.evidence or "",
                    final=stage.outcome != "next_stage",
                )
            )


def _log_stage(
    context: CampaignContext,
    record: CampaignRecord,
    decision: ProposalDecision,
    evidence: Evidence,
    deviations: tuple[str, ...],
) -> None:
    document = decision.model_dump(mode="json")
    # Numbers of a stage that another one follows would show how the proposal fares.
    shown: dict[str, Any] = {} if decision.outcome == "next_stage" else {"decision": document}
    if shown and deviations:
        shown["deviations"] = deviations
    assert record.open is not None, context.path
    with context.ledger.hold():
        now = context.record()
        assert now is not None, context.path
        _require_open(context, now, record.open)
        context.ledger.append(
            StagedEntry(
                study=record.campaign.campaign,
                registration=record.entry.registration,
                at=context.workspace.clock(),
                number=decision.number,
                stage=decision.stage,
                seeds=decision.n_seeds,
                outcome=decision.outcome,
                evidence=evidence.sha256,
                decision_sha256=sha256_of(document),
                **shown,
            )
        )


def _given_up(context: CampaignContext, proposal: BegunProposal, reason: str) -> ProposalResult:
    """End an open proposal as a drop, without a look at its runs: that can only cost a keep."""
    if not reason.strip():
        raise RegistrationError(
            "--give-up without a reason", required="why, in words; it goes into the ledger", fix='--give-up "..."'
        )
    from ablate.runner.local import study_lock

    # Not while another process makes its runs: it would go on with a proposal that has ended.
    with study_lock(context.root, proposal.entry.run_as), context.ledger.hold():
        record = context.record()
        assert record is not None, context.path
        _require_open(context, record, proposal)
        stage = len(proposal.stages) + 1
        context.ledger.append(
            StagedEntry(
                study=record.campaign.campaign,
                registration=record.entry.registration,
                at=context.workspace.clock(),
                number=proposal.entry.number,
                stage=stage,
                seeds=record.campaign.stages.seeds[stage - 1],
                outcome="drop",
                given_up=reason.strip(),
            )
        )
    return _ended(context)


def _require_open(context: CampaignContext, record: CampaignRecord, proposal: BegunProposal) -> None:
    """Refuse an entry about a stage that another process has entered meanwhile."""
    if record.open != proposal:
        raise RegistrationError(
            f"proposal {proposal.entry.number} went on in another process",
            required="one process at a time that carries out a proposal",
            fix=f"ablate propose {context.path}",
        )


def _ended(context: CampaignContext) -> ProposalResult:
    """The result of a proposal whose end is on record now."""
    record = context.record()
    assert record is not None, context.path
    _settle(context, record)
    return _answered(context, record)


def _settle(context: CampaignContext, record: CampaignRecord) -> None:
    """Complete what a crash may have kept from the last proposal after its end was on record: its last look."""
    if record.proposals and record.open is None:
        _complete_looks(context, record.proposals[-1])


def _answered(context: CampaignContext, record: CampaignRecord) -> ProposalResult:
    """How the last proposal ended, as the ledger has it."""
    from ablate.judge.campaign.procedure import ProposalDecision

    proposal = record.proposals[-1]
    end = proposal.end
    assert end is not None, proposal
    answers: dict[str, Answer] = {"keep": "keep", "drop": "drop", "out_of_budget": "out of budget"}
    return ProposalResult(
        context.path,
        record,
        answers[end.outcome],
        proposal,
        context.root.study(proposal.entry.run_as),
        _same_change(record, proposal),
        decision=None if end.decision is None else ProposalDecision.model_validate(end.decision, strict=False),
        deviations=end.deviations,
    )


def _same_change(record: CampaignRecord, proposal: BegunProposal) -> tuple[int, ...]:
    """Earlier proposals of the same change, or of the same code and configuration."""
    mine = proposal.entry
    return tuple(
        each.entry.number
        for each in record.proposals
        if each.entry.number < mine.number
        and (each.entry.change == mine.change or each.entry.content_sha256 == mine.content_sha256)
    )
