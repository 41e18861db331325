"""Command gate: its options, output and exit code; what happens is `ablate/gating.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.command import Result, Shown, command
from ablate.cli.options import Accept, Exit
from ablate.workspace import Workspace

if TYPE_CHECKING:
    from ablate.gating import Gated

_ENDINGS = {
    "equivalent": Exit.OK,
    "better": Exit.OK,
    "identical": Exit.OK,
    "same code": Exit.OK,
    "worse": Exit.WORSE,
    "undecided": Exit.INCONCLUSIVE,
    "inadmissible": Exit.INADMISSIBLE,
    "unfinished": Exit.INCOMPLETE,
}


@command(interrupted="nothing sealed was lost; repeat the command to go on")
def gate_command(
    workspace: Workspace,
    study: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", help="A study with the arms base and head (ablate new NAME --template commits)."
        ),
    ],
    *,
    base: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="Branch, tag or hash to compare with (default: as the study says)."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="What is compared with it; WORKTREE is the files as they lie here."),
    ] = None,
    again: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="A second comparison of the same commits, on new seeds; it is counted."),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write the answer as Markdown, at most 15 lines."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Runs side by side (default: one per core or GPU).")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
    accept: Accept = None,
) -> Result:
    """Compare two commits of your training code.

    Writes the study for these commits, registers it before its first run, trains up to the look that decides, and
    answers: equivalent, better, worse, identical or undecided. The same files and settings again resume, or show the
    same answer, under whatever commit they lie.

    Example:  ablate gate studies/harmless.yaml --base main --head HEAD
    """
    from ablate.gating import gate as compare
    from ablate.runner.options import RunOptions

    # As far as it goes in one call: through all looks up to the one that decides. After an interruption the same
    # command resumes.
    gated = compare(
        study,
        base=base,
        head=head,
        again=again,
        options=RunOptions(slots=slots, device=device),
        accept_underpowered=accept,
        workspace=workspace,
    )
    return _shown(gated, summary)


def _shown(gated: Gated, summary: Path | None) -> Result:
    from ablate.reporting.summaries.gate import gate_section

    if summary is not None:
        from ablate.reporting.markdown import part
        from prereg.registry.disk import write_whole

        # Written whatever the answer: a job of CI shows the summary of a gate that failed.
        write_whole(summary, f"{part(gate_section(gated))}\n".encode())

    def text() -> Iterator[Shown]:
        yield gate_section(gated, table=False)

    return Result(_facts(gated), text, next=_next(gated), exit=_ending(gated))


def _ending(gated: Gated) -> Exit:
    ending = _ENDINGS[gated.answer]
    # A pass with deviations is not 0.
    if gated.decided is not None and gated.decided.status == "decided_with_deviations" and ending == Exit.OK:
        return Exit.DEVIATIONS
    if gated.answer == "unfinished" and gated.ran is not None and gated.ran.summary.interrupted:
        return Exit.INTERRUPTED
    return ending


def _next(gated: Gated) -> str:
    if gated.answer == "unfinished":
        # The gate's study, by which the same commits resume.
        return f"ablate gate {gated.source} --base {gated.base.name} --head {gated.head.name}"
    return "" if gated.path is None else f"ablate verify {gated.path}"


def _facts(gated: Gated) -> dict[str, Any]:
    registration = gated.registration
    return {
        "answer": gated.answer,
        "base": {"name": gated.base.name, "commit": gated.base.hash},
        "head": {"name": gated.head.name, "commit": gated.head.hash},
        "gate": gated.source,
        "gate_changed_since_base": gated.study_changed,
        "study": None if gated.path is None else gated.path,
        "registration": None if registration is None else registration.sha256,
        "earlier_comparisons": gated.earlier.of_pair if gated.earlier.is_known else None,
        "earlier_with_this_base": dict(gated.earlier.of_base),
        "earlier_with_other_bases": gated.earlier.elsewhere,
        "not_compared": gated.not_compared,
        "decision": None if gated.decided is None else gated.decided.decision,
    }
