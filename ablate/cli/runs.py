"""Verbs that make evidence, show its progress, judge it and report it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ablate
from ablate.cli.options import (
    Accept,
    AsJson,
    Exit,
    Pilot,
    RootFolder,
    StudyFile,
    console,
    put,
    put_json,
    put_note,
    show,
    show_or_json,
)
from ablate.cli.reports import from_evidence
from prereg.errors import RunError
from prereg.text import counted, listed

if TYPE_CHECKING:
    from ablate.health import StudyHealth
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.progress import Watcher
    from ablate.workspace import StudyContext


def run(
    study: StudyFile,
    root: RootFolder = None,
    *,
    slots: Annotated[
        int | None,
        typer.Option("--jobs", "--slots", min=0, help="Runs side by side (default: one per core or GPU); 0: collect."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ARM/SEED", help="Only this run (repeatable).")] = None,
    on: Annotated[
        str,
        typer.Option("--on", metavar="WHERE", help="local; slurm: submit a job array and exit; ray: tasks."),
    ] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of a job, over cluster.yaml: tasks=8, at_once=4, partition=gpu, ..."),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Of --on slurm or ray: so many tasks.")] = None,
    address: Annotated[str | None, typer.Option(help="Of --on ray: a cluster (default: one on this machine).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be made, and what it costs.")] = False,
    as_json: AsJson = False,
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
) -> None:
    """Train every run that is not sealed yet.

    Registers the study first if need be, and says so. Ctrl-C stops cleanly; run again to resume.
    A sequential study is trained up to its next look, and no further before that look is taken.

    Example:  ablate run studies/quickstart.yaml
    """
    options = ablate.RunOptions(
        slots=slots,
        only=tuple(only or ()),
        next_look=next_look,
        checkpoint_every_s=checkpoint_every,
        devices_per_run=devices_per_run,
        device=device,
        on=on,  # type: ignore[arg-type]  # checked with the others
        tasks=tasks,
        slurm=tuple(slurm or ()),
        address=address,
    )
    if dry_run:
        from ablate.health import read_costs
        from ablate.reporting.summaries.run import costs_section

        return show_or_json(read_costs(ablate.check(study, root), options), costs_section, as_json=as_json)
    done = ablate.run(
        study,
        options,
        root=root,
        watcher=_watcher(as_json),
        pilot=pilot,
        accept_underpowered=accept,
    )
    _report_run(study, done, as_json=as_json)
    if not done.summary.complete and done.summary.job is None:
        raise typer.Exit(Exit.INTERRUPTED if done.summary.interrupted else Exit.INCOMPLETE)
    return None


def train(
    study: StudyFile,
    run: Annotated[str, typer.Argument(metavar="ARM/SEED", help="A planned run, such as layernorm/3.")],
    root: RootFolder = None,
    *,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
    checkpoint_every: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Save a checkpoint of the run this often (20).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one planned run, for a scheduler of your own.

    Resumes the run where its trainer can. SIGTERM stops it; the same command goes on. Writes the run's folder and
    no ledger: `ablate run` afterwards seals what it finds.

    Example:  ablate train studies/embnorm.yaml layernorm/3
    """
    from dataclasses import asdict

    done = ablate.train(study, run, root=root, device=device, checkpoint_every_s=checkpoint_every)
    if as_json:
        put_json(json.dumps(asdict(done)))
    else:
        after = ", made before" if done.made_before else ""
        put(f"{run}: {done.status} at step {done.step:,}, attempt {done.attempts}{after}")
        put(*([f"failed  {done.error}"] if done.error else []))
        put(f"next:  ablate {f'run {study}' if done.status != 'stopped' else f'train {study} {run}'}")
    if done.status in ("failed", "stopped"):
        raise typer.Exit(Exit.INCOMPLETE if done.status == "failed" else Exit.INTERRUPTED)


def status(
    study: StudyFile,
    root: RootFolder = None,
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
    as_json: AsJson = False,
) -> None:
    """Show how far a study has come.

    Progress only; results stay hidden. With --watch and --json a line each time; Ctrl-C ends the watching and leaves
    the study at work.
    A look by --results goes into the ledger before anything is shown, and counts: every report names it, and a study
    that was looked at before its last run ended gives no confirmatory verdict. A look at the files of a run with other
    tools leaves no entry: record it with --past, at any time.

    Example:  ablate status studies/embnorm.yaml
    """
    if sum((watch, results, past is not None)) > 1 or (reason is not None and not results and past is None):
        raise RunError(
            "--reason without a look" if not (results or past) else "several of --watch, --results and --past",
            required="progress, or one look with its reason",
            fix=f'ablate status {study} --results --reason "..."',
        )
    if past is not None:
        return _record_look(study, root, reason or "", past, as_json=as_json)
    if results:
        return _show_results(study, root, reason or "", as_json=as_json)
    from ablate.health import read_status
    from ablate.reporting.summaries.run import status_section
    from ablate.workspace import open_study

    context = open_study(study, root)
    if not watch:
        return show_or_json(read_status(context), status_section, as_json=as_json)
    last = _watch(context, every, as_json=as_json)
    return put_json(last.model_dump_json()) if as_json else show(status_section(last))


def _watch(context: StudyContext, every: float, *, as_json: bool) -> StudyHealth:
    """Redraw a study's progress until its runs have ended, or Ctrl-C; the last state, which is still to be shown."""
    import time
    from contextlib import nullcontext, suppress

    from rich.live import Live

    from ablate.health import read_status
    from ablate.reporting import terminal
    from ablate.reporting.summaries.run import status_section

    screen, found = console(), read_status(context)
    shown = screen.is_terminal and not as_json
    live = Live(console=screen, auto_refresh=False, transient=True) if shown else nullcontext()
    with live, suppress(KeyboardInterrupt):
        while not found.ended and not getattr(sys.stdout, "left", False):
            if as_json:
                put_json(found.model_dump_json())
            if isinstance(live, Live):
                live.update(terminal.drawn(screen, status_section(found)), refresh=True)
            time.sleep(every)
            found = read_status(context)
    return found


def _show_results(study: Path, root: Path | None, reason: str, *, as_json: bool) -> None:
    """Log an early look, then show it."""
    from ablate.reporting.summaries.run import early_look_section

    seen = ablate.early_results(study, reason=reason, root=root)
    if as_json:
        facts = seen.early_look.model_dump(mode="json")
        return put_json(json.dumps({**facts, "entry": seen.entry.index, "head": seen.entry.sha256}))
    show(early_look_section(seen.early_look))
    return put(f"this look is entry {seen.entry.index} of the ledger", f"ledger head {seen.entry.sha256}")


def _record_look(study: Path, root: Path | None, reason: str, past: str, *, as_json: bool) -> None:
    """Log an early look that took place before, and show nothing of it."""
    entry = ablate.record_look(study, reason=reason, took_place=past, root=root)
    if as_json:
        return put_json(json.dumps({**entry.body, "entry": entry.index, "head": entry.sha256}))
    return put(
        f"recorded: an early look, when {entry.body['ended']} of {entry.body['planned']} planned runs had ended",
        "by the registered rules this study gives no verdict",
        f"this look is entry {entry.index} of the ledger",
        f"ledger head {entry.sha256}",
        f"next:  ablate decide {study}   (ablate report {study} where its sealed records are gone)",
    )


def decide(study: StudyFile, root: RootFolder = None, as_json: AsJson = False) -> None:
    """Apply the registered rule and write the report.

    Logs the decision, shows it, then writes verdict.json, report.md and report.html under reports/STUDY/.
    At a look of a sequential study that decides nothing it logs the look, says CONTINUE and ends with 3; while planned
    runs are missing it logs nothing, says UNFINISHED and ends with 6. A verdict with deviations from what was
    registered ends with 7.

    Example:  ablate decide studies/embnorm.yaml
    """
    from ablate.reporting.document import decision_document
    from ablate.reporting.terminal import show_document

    logged: list[Decided] = []

    def announce(done: Decided) -> None:
        if done.evidence_path is not None:
            put_note(from_evidence(done.evidence_path))
        if as_json:
            put_json(done.decision.model_dump_json(indent=2))
        else:
            show_document(console(), decision_document(done.decision, done.registration, earlier=done.earlier))
        sys.stdout.flush()
        logged.extend([done] if done.verdict_path is not None else [])

    try:
        decided = ablate.decide(study, root=root, announce=announce)
    except Exception:
        if logged:
            put_note(
                f"the decision above is in the ledger; its report was not written. To retry:  ablate report {study}"
            )
        raise
    if not as_json:
        put("", f"Report: {decided.html_path}" if decided.html_path is not None else "No report was written.")
        put(f"Ledger head: {decided.head}")
        if decided.decision.status in ("continue", "unfinished"):
            put(f"next:  ablate run {study}{' --next-look' * (decided.decision.status == 'continue')}")
    raise typer.Exit(
        {
            "decided": Exit.OK,
            "decided_with_deviations": Exit.DEVIATIONS,
            "inconclusive": Exit.INCONCLUSIVE,
            "inadmissible": Exit.INADMISSIBLE,
            "continue": Exit.INCONCLUSIVE,
            "unfinished": Exit.UNFINISHED,
        }[decided.decision.status]
    )


def _report_run(study: Path, done: Ran, *, as_json: bool) -> None:
    """How a call of `run` ended, and what to type next."""
    summary, name = done.summary, done.registration.study.study
    if summary.job is not None:
        return _report_submitted(study, done, as_json=as_json)
    if as_json:
        facts = {
            "event": "summary",
            "study": name,
            "registration": done.registration.sha256,
            "registered_now": done.registered_now,
            "planned": summary.planned,
            "done": summary.sealed,
            "failed": list(summary.failed),
            "interrupted": summary.interrupted,
            **({"gave_up": summary.gave_up} if summary.gave_up else {}),
            **({"disk_full": True} if summary.disk_full else {}),
            **({"elsewhere": list(summary.elsewhere)} if summary.elsewhere else {}),
            "head": summary.head,
            **({"look": done.look.model_dump()} if done.look is not None else {}),
        }
        return put_json(json.dumps(facts))
    put(f"{name}: {summary.sealed} of {summary.planned} runs sealed")
    put(*([f"at work in other processes: {listed(summary.elsewhere)}"] if summary.elsewhere else []))
    if done.look is not None:
        left = len(done.registration.study.seeds) - done.look.n_seeds
        put(f"these are the runs of {done.look.words}; planned seeds that wait for its result: {left}")
    put(*(f"failed  {failure}" for failure in summary.failed[: 1 if summary.gave_up or summary.disk_full else None]))
    if summary.gave_up:
        left = summary.planned - summary.sealed - len(summary.failed)
        put(f"{len(summary.failed)} runs failed in the same way, and {left} were not started")
        put(*(f"stderr  {path}" for path in summary.stderr[:1]))
    put(f"ledger head {summary.head}")
    if summary.disk_full:
        put(f"next:  free space, then ablate run {study}")
    elif summary.gave_up:
        put(f"next:  ablate try {study}, then ablate amend {study} --reason TEXT")
    else:
        put(f"next:  ablate {'decide' if summary.complete and summary.whole else 'run'} {study}")
    return None


def _report_submitted(study: Path, done: Ran, *, as_json: bool) -> None:
    summary = done.summary
    assert summary.job is not None
    n_left = summary.planned - summary.sealed
    if as_json:
        facts = {"event": "submitted", "registration": done.registration.sha256, "runs_left": n_left}
        return put_json(json.dumps({**facts, **summary.job.model_dump()}))
    name, runs = done.registration.study.study, counted(n_left, "run")
    put(f"{name}: {runs} left, submitted as Slurm job {summary.job.id} ({counted(summary.job.tasks, 'task')})")
    put(f"script {summary.job.script}", f"next:  ablate status {study}, later again: ablate run {study} --on slurm")
    return None


def _watcher(as_json: bool) -> Watcher:
    from ablate.runner.progress import JsonWatcher, LiveWatcher, PlainWatcher

    if as_json:
        return JsonWatcher(sys.stdout)
    screen = console()
    if screen.is_terminal:
        return LiveWatcher(screen)
    return PlainWatcher(sys.stdout)
