"""Commands that make evidence, show its progress and judge it: run, train, status, decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ablate.cli.command import Result, Screen, command
from ablate.cli.options import Accept, Exit, Pilot, StudyFile
from ablate.cli.reports import from_evidence
from ablate.cli.studies import claimed_before
from ablate.workspace import Workspace
from prereg.errors import RunError, StudyError
from prereg.text import counted, listed

if TYPE_CHECKING:
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.options import RunOptions
    from ablate.study_status import StudyHealth


@command(interrupted="nothing sealed was lost; repeat the command to go on", events=True)
def run_command(
    workspace: Workspace,
    study: StudyFile,
    *,
    slots: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "--slots",
            min=0,
            help="Runs side by side (default: one per core or GPU; of times one); 0: collect.",
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ARM/SEED", help="Only this run (repeatable).")] = None,
    on: Annotated[
        Literal["local", "slurm", "ray"],
        typer.Option("--on", metavar="WHERE", help="local; slurm: submit a job array and exit; ray: tasks."),
    ] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of a job, over cluster.yaml, such as tasks=8 or partition=gpu."),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Of --on slurm or ray: so many tasks.")] = None,
    address: Annotated[str | None, typer.Option(help="Of --on ray: a cluster (default: one on this machine).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be made, and what it costs.")] = False,
    next_look: Annotated[
        bool, typer.Option("--next-look", help="Stop at the next look of a sequential study (always so).")
    ] = False,
    pilot: Pilot = None,
    accept: Accept = None,
    checkpoint_every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Save a checkpoint of each run this often (20).")
    ] = None,
    devices_per_run: Annotated[int, typer.Option(min=1, help="GPUs that each run of your own trainer sees.")] = 1,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
) -> Result:
    """Train every run that is not sealed yet.

    Registers the study first if need be, and says so. Ctrl-C stops cleanly; run again to resume.
    A sequential study is trained up to its next look, and no further before that look is taken.

    Example:  ablate run studies/quickstart.yaml
    """
    from ablate.runner.options import RunOptions

    # The command line has one name for each; which go together is checked by the API, as for a notebook.
    options = RunOptions(
        slots=slots,
        only=tuple(only or ()),
        next_look=next_look,
        checkpoint_every_s=checkpoint_every,
        devices_per_run=devices_per_run,
        device=device,
        on=on,
        tasks=tasks,
        slurm=tuple(slurm or ()),
        address=address,
    )
    if dry_run:
        return _costs(workspace, study, options)
    from ablate.running import run as make
    from ablate.trying import untried

    context = workspace.open(study)
    if context.load_registration() is None and (remark := untried(context)):
        workspace.watcher.note(remark)
    return _ran(study, make(study, options, workspace=workspace, pilot=pilot, accept_underpowered=accept), workspace)


def _costs(workspace: Workspace, study: Path, options: RunOptions) -> Result:
    from ablate.checking import check
    from ablate.reporting.summaries.run import run_costs_section
    from ablate.study_status import read_costs

    costs = read_costs(check(study, workspace), options)  # from records that are here; nothing is registered for it
    return Result(costs, lambda: [run_costs_section(costs)])


@command(interrupted="the run goes on where it was with the same command, where its trainer can")
def train_command(
    workspace: Workspace,
    study: StudyFile,
    run: Annotated[str, typer.Argument(metavar="ARM/SEED", help="A planned run, such as layernorm/3.")],
    *,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
    checkpoint_every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Save a checkpoint of the run this often (20).")
    ] = None,
) -> Result:
    """Make one planned run, for a scheduler of your own.

    Resumes the run where its trainer can. SIGTERM stops it; the same command goes on. Writes the run's folder and
    no ledger: `ablate run` afterwards seals what it finds.

    Example:  ablate train studies/embnorm.yaml layernorm/24103
    """
    from ablate import training

    done = training.train(study, run, workspace=workspace, device=device, checkpoint_every_s=checkpoint_every)

    def text() -> Iterator[str]:
        before = ", made before" if done.made_before else ""
        yield f"{run}: {done.status} at step {done.step:,}, attempt {done.attempts}{before}"
        if done.error:
            yield f"failed  {done.error}"
        if done.divergence:
            yield f"diverged  {done.divergence}"

    # A scheduler reads the exit code: 130 asks it to queue the run again, 5 not to.
    then = f"ablate train {study} {run}" if done.status == "stopped" else f"ablate run {study}"
    endings = {"failed": Exit.INCOMPLETE, "stopped": Exit.INTERRUPTED}
    return Result(done, text, next=then, exit=endings.get(done.status, Exit.OK))


@command(interrupted="the study is as it was")
def status_command(
    workspace: Workspace,
    screen: Screen,
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study file; every study of the workspace if left out.")
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until all runs are sealed.")] = False,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="With --watch: this often.")] = 2.0,
    results: Annotated[bool, typer.Option("--results", help="The numbers of an unfinished study, on record.")] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why they are needed now; kept in the ledger.")
    ] = None,
    past: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Record a look that somebody took at TIME, by whatever means; show nothing."),
    ] = None,
) -> Result:
    """Show how far a study has come.

    Progress only; results stay hidden. Without a study, a line for each study of the workspace. With --watch and
    --json a line each time; Ctrl-C ends the watching and leaves the study at work.
    A look by --results goes into the ledger before anything is shown, and counts: every report names it, and a study
    that was looked at before its last run ended gives no confirmatory verdict. A look at the files of a run with other
    tools leaves no entry: record it with --past, at any time.

    Example:  ablate status studies/embnorm.yaml
    """
    # Progress may be read at any time. A look at results is an act of its own, with its reason.
    if sum((watch, results, past is not None)) > 1 or (reason is not None and not results and past is None):
        raise RunError(
            "--reason without a look" if not (results or past) else "several of --watch, --results and --past",
            required="progress, or one look with its reason",
            fix=f'ablate status {study or "STUDY"} --results --reason "..."',
        )
    # Without a study: one line each, and nothing that belongs to one of them.
    if study is None:
        if watch or results or past is not None:
            raise RunError(
                "--watch, --results or --past without a study", required="one study", fix="ablate status STUDY"
            )
        return _every_status(workspace)
    if past is not None:
        return _record_look(workspace, study, reason or "", past)
    if results:
        return _show_results(workspace, study, reason or "")
    from ablate.reporting.summaries.run import status_section
    from ablate.study_status import status

    read = partial(status, study, workspace=workspace)
    health = _watch(read, every, screen) if watch else read()
    return Result(health, lambda: [status_section(health)], in_one_line=watch)


def _every_status(workspace: Workspace) -> Result:
    """A line for each study of the workspace; files that are no study are named as mistakes."""
    from ablate.reporting.summaries.run import studies_section
    from ablate.study_status import status

    studies: list[StudyHealth] = []
    mistakes: list[StudyError] = []
    for path in sorted(workspace.project.studies.glob("*.yaml")):
        try:
            studies.append(status(path, workspace=workspace))
        except StudyError as error:
            mistakes.append(error)
    return Result(studies, lambda: [studies_section(studies)], mistakes=mistakes)


def _watch(read: Callable[[], StudyHealth], every: float, screen: Screen) -> StudyHealth:
    """Redraw a study's progress until its runs have ended, or Ctrl-C; the last state, which is still to be shown."""
    import sys
    import time
    from contextlib import nullcontext, suppress

    from rich.live import Live

    from ablate.reporting import terminal
    from ablate.reporting.summaries.run import status_section

    # Drawn again in place on a terminal; in a pipe a line of JSON each time, until its reader leaves.
    console, health = screen.console, read()
    drawn = console.is_terminal and not screen.as_json
    live = Live(console=console, auto_refresh=False, transient=True) if drawn else nullcontext()
    with live, suppress(KeyboardInterrupt):
        while not health.ended and not getattr(sys.stdout, "left", False):
            if screen.as_json:
                screen.give(Result(health, in_one_line=True))
            if isinstance(live, Live):
                live.update(terminal.drawn(console, status_section(health)), refresh=True)
            time.sleep(every)
            health = read()
    return health


def _show_results(workspace: Workspace, study: Path, reason: str) -> Result:
    """Log an early look, then show it."""
    from ablate.early_looks import early_results
    from ablate.reporting.summaries.run import early_look_section

    look = early_results(study, reason=reason, workspace=workspace)
    logged = (f"this look is entry {look.entry.index} of the ledger", f"ledger head {look.entry.sha256}")
    facts = {**look.early_look.model_dump(mode="json"), "entry": look.entry.index, "head": look.entry.sha256}
    return Result(facts, lambda: [early_look_section(look.early_look), *logged])


def _record_look(workspace: Workspace, study: Path, reason: str, past: str) -> Result:
    """Log an early look that took place before, and show nothing of it."""
    from ablate.early_looks import record_look

    entry = record_look(study, reason=reason, took_place=past, workspace=workspace)
    return Result(
        {**entry.stated, "entry": entry.index, "head": entry.sha256},
        lambda: [
            f"recorded: an early look, when {entry.ended} of {entry.planned} planned runs had ended",
            "by the registered rules this study gives no verdict",
            f"this look is entry {entry.index} of the ledger",
            f"ledger head {entry.sha256}",
        ],
    )


_ENDINGS = {
    "decided": Exit.OK,
    "decided_with_deviations": Exit.DEVIATIONS,
    "inconclusive": Exit.INCONCLUSIVE,
    "inadmissible": Exit.INADMISSIBLE,
    "continue": Exit.INCONCLUSIVE,  # a look that decided nothing yet
    "unfinished": Exit.UNFINISHED,
}


@command(interrupted="what the ledger holds was decided; repeat the command to go on")
def decide_command(workspace: Workspace, screen: Screen, study: StudyFile) -> Result:
    """Apply the registered rule and write the report.

    Logs the decision, shows it, then writes verdict.json, report.md and report.html under reports/STUDY/.
    At a look of a sequential study that decides nothing it logs the look, says CONTINUE and ends with 3; while planned
    runs are missing it logs nothing, says UNFINISHED and ends with 6. A verdict with deviations from what was
    registered ends with 7.

    Example:  ablate decide studies/embnorm.yaml
    """
    from ablate.deciding import decide as judge
    from ablate.reporting.document import decision_document

    logged: list[Decided] = []

    def announce(done: Decided) -> None:
        """Show the decision once it is in the ledger: a report that cannot be drawn takes no decision with it."""
        if done.evidence_path is not None:
            screen.note(from_evidence(done.evidence_path))
        document = decision_document(
            done.decision, done.registration, earlier=done.earlier, claimed_before=done.claimed_before
        )
        screen.give(Result(done.decision, lambda: [document]))
        logged.extend([done] if done.verdict_path is not None else [])

    # Shown by `announce`, before the reports are drawn; what is left for the end is where they lie.
    try:
        decided = judge(study, workspace=workspace, announce=announce)
    except Exception:
        if logged:
            screen.note(
                f"the decision above is in the ledger; its report was not written. To retry:  ablate report {study}"
            )
        raise
    status = decided.decision.status
    report = f"Report: {decided.html_path}" if decided.html_path is not None else "No report was written."
    then = f"ablate verify {study}   (every byte, then judged again)"
    if status in ("continue", "unfinished"):
        then = f"ablate run {study}{' --next-look' * (status == 'continue')}"
    return Result(None, lambda: ["", report, f"Ledger head: {decided.head}"], next=then, exit=_ENDINGS[status])


def _ran(study: Path, done: Ran, workspace: Workspace) -> Result:
    """How a call of `run` ended, and what to type next."""
    summary, name = done.summary, done.registration.study.study
    if summary.job is not None:
        return _submitted(study, done)
    # Keys that are mostly absent are left out, for people who read these lines by eye.
    facts = {
        "event": "summary",
        "study": name,
        "registration": done.registration.sha256,
        "registered_now": done.registered_now,
        "planned": summary.planned,
        "done": summary.sealed,
        "failed": summary.failed,
        "interrupted": summary.interrupted,
        **({"gave_up": summary.gave_up} if summary.gave_up else {}),
        **({"disk_full": True} if summary.disk_full else {}),
        **({"elsewhere": summary.elsewhere} if summary.elsewhere else {}),
        "head": summary.head,
        **({"look": done.look} if done.look is not None else {}),
    }

    def text() -> Iterator[str]:
        yield f"{name}: {summary.sealed} of {summary.planned} runs sealed"
        # A study that `run` itself has registered: `register` would have said it.
        if done.registered_now and (earlier := claimed_before(workspace.open(study)).words):
            yield f"{earlier}."
        if summary.elsewhere:
            yield f"at work in other processes: {listed(summary.elsewhere)}"
        if done.look is not None:
            left = len(done.registration.study.seeds) - done.look.n_seeds
            yield f"these are the runs of {done.look.words}; planned seeds that wait for its result: {left}"
        # They failed in one way: the first says it.
        shown = summary.failed[:1] if summary.gave_up or summary.disk_full else summary.failed
        yield from (f"failed  {failure}" for failure in shown)
        if summary.gave_up:
            left = summary.planned - summary.sealed - len(summary.failed)
            yield f"{len(summary.failed)} runs failed in the same way, and {left} were not started"
            yield from (f"stderr  {path}" for path in summary.stderr[:1])
        yield f"ledger head {summary.head}"

    # A choice of runs may be complete and the study not.
    then = f"ablate {'decide' if summary.complete and summary.whole else 'run'} {study}"
    if summary.disk_full:
        then = f"free space, then ablate run {study}"
    elif summary.gave_up:
        then = f"ablate try {study}, then ablate amend {study} --reason TEXT"
    ending = Exit.INTERRUPTED if summary.interrupted else Exit.INCOMPLETE  # 130 outweighs 5: the same command resumes
    return Result(facts, text, next=then, exit=Exit.OK if summary.complete else ending, in_one_line=True)


def _submitted(study: Path, done: Ran) -> Result:
    job, n_left = done.summary.job, done.summary.planned - done.summary.sealed
    assert job is not None
    name, runs = done.registration.study.study, counted(n_left, "run")

    def text() -> Iterator[str]:
        yield f"{name}: {runs} left, submitted as Slurm job {job.id} ({counted(job.tasks, 'task')})"
        yield f"script {job.script}"

    facts = {"event": "submitted", "registration": done.registration.sha256, "runs_left": n_left}
    then = f"ablate status {study}, later again: ablate run {study} --on slurm"
    return Result({**facts, **job.model_dump()}, text, next=then, in_one_line=True)
