"""Commands propose, confirm and mcp, and check and register of a campaign: options, output, exit codes.

What happens is in `ablate/campaigning.py`, `ablate/proposing.py`, `ablate/confirming.py` and
`ablate/serving.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.command import Result, Shown, command
from ablate.cli.options import Exit
from ablate.workspace import Workspace
from prereg.errors import StudyError, UnsupportedError

if TYPE_CHECKING:
    from ablate.confirming import ConfirmationResult
    from ablate.proposing import ProposalResult
    from prereg.campaign.record import BegunProposal, CampaignRecord
    from prereg.campaign.spec import Campaign

_ENDINGS = {
    "keep": Exit.OK,
    "drop": Exit.WORSE,
    "out of budget": Exit.INCONCLUSIVE,
    "inadmissible": Exit.INADMISSIBLE,
    "unfinished": Exit.INCOMPLETE,
}


@command(interrupted="nothing sealed was lost; repeat the command to go on")
def propose_command(
    workspace: Workspace,
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="Path of a campaign's file, such as campaigns/night.yaml.")
    ],
    *,
    replaced: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A value of the configuration that changes (repeatable)."),
    ] = None,
    commit: Annotated[
        str | None, typer.Option(metavar="REF", help="A commit whose code takes the place of the best one's.")
    ] = None,
    why: Annotated[str | None, typer.Option(metavar="TEXT", help="Why it may help; kept in the ledger.")] = None,
    again: Annotated[
        str | None, typer.Option(metavar="REASON", help="Propose what was proposed before; it counts as another.")
    ] = None,
    give_up: Annotated[
        str | None, typer.Option("--give-up", metavar="REASON", help="End the open proposal as a drop, unseen.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who proposes it: a person, or a program; kept in the ledger.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Runs side by side (default: one per core or GPU).")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
) -> Result:
    """Propose a change of a campaign's best.

    Registers it against the best so far, with fresh seeds, runs its stages, and answers: keep, drop or out of budget. A
    keep is the next best. Nothing of its results is shown before it has ended. Without a change the proposal that is
    open goes on; where none is, the last one is answered again.

    Example:  ablate propose campaigns/night.yaml --set optim.lr=3e-3 --why "the loss falls slowly"
    """
    from ablate.proposing import propose
    from ablate.runner.options import RunOptions
    from ablate.runner.trial import assignment

    result = propose(
        campaign,
        dict(map(assignment, replaced or ())),
        commit=commit,
        why=why,
        again=again,
        give_up=give_up,
        by=by,
        options=RunOptions(slots=slots, device=device),
        workspace=workspace,
    )

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.proposal import proposal_section

        yield proposal_section(result)

    then = f"ablate propose {campaign}" if result.answer == "unfinished" else f"ablate verify {campaign}"
    return Result(_facts(result), text, next=then, exit=_ending(result))


def _ending(result: ProposalResult) -> Exit:
    if result.answer == "unfinished" and result.ran is not None and result.ran.summary.interrupted:
        return Exit.INTERRUPTED
    ending = _ENDINGS[result.answer]
    # A keep with deviations is not 0, as a pass of `gate` is not.
    return Exit.DEVIATIONS if ending == Exit.OK and result.deviations else ending


def _facts(result: ProposalResult) -> dict[str, Any]:
    proposal = result.proposal
    return {
        "answer": result.answer,
        "campaign": result.source,
        "registration": result.record.entry.registration,
        "number": None if proposal is None else proposal.entry.number,
        "change": None if proposal is None else proposal.entry.change,
        "why": None if proposal is None else proposal.entry.why,
        "seeds": None if proposal is None else proposal.entry.seeds,
        "study": result.path,
        "same_change_as": result.same_change,
        "decision": result.decision,
        "faults": result.faults,
        "deviations": result.deviations,
        "best": result.record.best,
        "other_campaigns": result.record.others,
        "proposals": len(result.record.proposals),
        "kept": result.n_kept,
        "runs_left": result.runs_left,
    }


_CONFIRMED = {
    "confirmed": Exit.OK,
    "not confirmed": Exit.WORSE,
    "inconclusive": Exit.INCONCLUSIVE,
    "inadmissible": Exit.INADMISSIBLE,
    "unfinished": Exit.INCOMPLETE,
}


@command(interrupted="nothing sealed was lost; the next call goes on")
def mcp_command(
    workspace: Workspace,
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="Path of a campaign's file, such as campaigns/night.yaml.")
    ],
    *,
    slots: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Runs side by side (default: one per core or GPU).")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
) -> Result:
    """Serve a campaign to a coding agent.

    Speaks the Model Context Protocol on standard input and output, until that ends. Its tools propose, decide and
    confirm as the commands do; none shows a result before its proposal has ended. Needs the extra `mcp`.

    Example:  ablate mcp campaigns/night.yaml
    """
    from ablate.campaigning import check_campaign

    if find_spec("mcp") is None:
        raise UnsupportedError(
            "the package mcp is not installed",
            required="the official Python SDK of the Model Context Protocol",
            fix="pip install 'ablate-prereg[mcp]'",
        )
    # Before the server: an agent cannot repair a file that it is not shown.
    context = check_campaign(campaign, workspace=workspace)
    import anyio

    from ablate.serving import serve

    jobs = () if slots is None else (f"--jobs={slots}",)
    anyio.run(serve, context, (*jobs, f"--device={device}"))
    return Result()


@command(interrupted="nothing sealed was lost; repeat the command to go on")
def confirm_command(
    workspace: Workspace,
    campaign: Annotated[
        Path, typer.Argument(metavar="CAMPAIGN", help="Path of a campaign's file, such as campaigns/night.yaml.")
    ],
    *,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="Pairs of runs (default: by the last stage and `assume`)."),
    ] = None,
    again: Annotated[
        str | None, typer.Option(metavar="REASON", help="Confirm once more what was confirmed before; it is counted.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who confirms: a person, or a program; kept in the ledger.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Runs side by side (default: one per core or GPU).")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
) -> Result:
    """Compare a campaign's best with its start.

    Registers a study of the two with fresh seeds, runs it, decides it, and shows the total gain with its interval, the
    sum of the kept estimates, and every proposal. One that has not ended goes on; where the best was confirmed it is
    answered again.

    Example:  ablate confirm campaigns/night.yaml --seeds 12
    """
    from ablate.confirming import confirm
    from ablate.runner.options import RunOptions

    options = RunOptions(slots=slots, device=device)
    result = confirm(campaign, seeds=seeds, again=again, by=by, options=options, workspace=workspace)

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.confirmation import confirmation_section

        yield confirmation_section(result)

    then = f"ablate confirm {campaign}" if result.answer == "unfinished" else f"ablate verify {campaign}"
    return Result(_confirmed(result), text, next=then, exit=_end_of_confirmation(result))


def _end_of_confirmation(result: ConfirmationResult) -> Exit:
    if result.answer == "unfinished" and result.ran is not None and result.ran.summary.interrupted:
        return Exit.INTERRUPTED
    deviates = result.decided is not None and result.decided.status == "decided_with_deviations"
    ending = _CONFIRMED[result.answer]
    return Exit.DEVIATIONS if ending == Exit.OK and deviates else ending


def _confirmed(result: ConfirmationResult) -> dict[str, Any]:
    entry = result.confirmation.entry
    decision = None if result.decided is None else result.decided.decision
    # A finding of evidence that is no basis for a verdict is the total gain in other words.
    if decision is not None and decision.status == "inadmissible":
        decision = decision.model_copy(update={"findings": ()})
    return {
        "answer": result.answer,
        "campaign": result.source,
        "registration": result.record.entry.registration,
        "number": entry.number,
        "again": entry.again,
        "same_best": result.same_best,
        "seeds": entry.seeds,
        "study": result.path,
        "start": result.record.start,
        "best": result.confirmation.best,
        "total_gain": result.total_gain,
        "sum_of_kept": result.sum_of_kept,
        "other_campaigns": result.record.others,
        "proposals": [_of_proposal(each) for each in result.record.proposals],
        "decision": decision,
    }


def names_campaign(path: Path) -> bool:
    """Whether a path is that of a campaign's file. One that cannot be read is not: as a study it gets its message."""
    from prereg.campaign.load import is_campaign

    try:
        return path.is_file() and is_campaign(path)
    except StudyError:
        return False


def check_one_campaign(path: Path, workspace: Workspace) -> Result:
    """`ablate check` of a campaign."""
    from ablate.campaigning import check_campaign

    context = check_campaign(path, workspace=workspace)
    campaign, record = context.campaign, context.record()

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.proposal import campaign_section

        yield campaign_section(campaign, record)

    return Result(
        _of_campaign(campaign, record),
        text,
        next=f"ablate design {path}" if record is None else f"ablate propose {path}",
    )


def _of_campaign(campaign: Campaign, record: CampaignRecord | None) -> dict[str, Any]:
    """All that a campaign promises, how far it is, and how each of its proposals ended; of an open one no result."""
    from prereg.campaign.history import runs_of

    proposals = () if record is None else record.proposals
    begun = None if record is None else record.open
    left = campaign.budget.runs - (0 if record is None else runs_of(record.history))
    return {
        "campaign": campaign.campaign,
        "title": campaign.title,
        "registration": None if record is None else record.entry.registration,
        "error": campaign.error_words,
        "metric": campaign.metric,
        "lower_is_better": campaign.lower_is_better(campaign.metric),
        "smallest": campaign.smallest,
        "guardrails": campaign.guardrails,
        "stages": campaign.stages,
        "budget": campaign.budget,
        "other_campaigns": () if record is None else record.others,
        "proposals_left": campaign.budget.proposals - len(proposals),
        "runs_left": left,
        # As the start has them; what has changed since is in the best.
        "settings": campaign.start["base"],
        "best": None if record is None else record.best,
        "open": None
        if begun is None
        else {"number": begun.entry.number, "change": begun.entry.change, "study": begun.entry.run_as},
        "proposals": [_of_proposal(each) for each in proposals],
        "confirmations": []
        if record is None
        else [{"number": each.entry.number, "study": each.entry.run_as} for each in record.confirmations],
    }


def _of_proposal(proposal: BegunProposal) -> dict[str, Any]:
    """A proposal and its end; the estimate of one that has ended alone."""
    from ablate.judge.campaign.confirmation import estimated_gain

    entry, end = proposal.entry, proposal.end
    return {
        "number": entry.number,
        "change": entry.change,
        "why": entry.why,
        "by": entry.by,
        "end": None if end is None else end.outcome,
        "given_up": None if end is None else end.given_up,
        "seeds": None if end is None else end.seeds,
        "estimated_gain": estimated_gain(proposal),
    }


def register_one_campaign(path: Path, workspace: Workspace) -> Result:
    """`ablate register` of a campaign."""
    from ablate.campaigning import register_campaign

    record, new = register_campaign(path, workspace=workspace)

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.proposal import registered_lines

        yield from registered_lines(record, new)

    facts = {
        "campaign": record.campaign.campaign,
        "registration": record.entry.registration,
        "registered_at": record.entry.at,
        "registered_now": new,
        "start_commit": record.entry.start_commit,
        "other_campaigns": record.others,
    }
    return Result(facts, text, next=f'ablate propose {path} --set PATH=VALUE --why "..."' if new else "")
