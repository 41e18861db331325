"""Verbs that make evidence, show its progress, judge it and report it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import api
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
from prereg.text import counted

if TYPE_CHECKING:
    from ablate.api.clusters import Submitted
    from ablate.notebook.results import Decided, Ran
    from ablate.runner.progress import Watcher


def run(
    study: StudyFile,
    root: RootFolder = None,
    *,
    slots: Annotated[
        int | None,
        typer.Option("--slots", "--jobs", min=1, help="Runs side by side (default: one per core, or per GPU)."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ARM/SEED", help="Only this run (repeatable).")] = None,
    part: Annotated[
        str | None, typer.Option(metavar="I/N", help="Make runs alongside other parts that share the folder.")
    ] = None,
    lost_after: Annotated[
        float, typer.Option(min=3.0, metavar="SECONDS", help="Take over a part's runs after so long without a sign.")
    ] = 60.0,
    on: Annotated[
        str,
        typer.Option("--on", metavar="WHERE", help="local; slurm: submit parts and exit; ray: parts as tasks."),
    ] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Of a job, over cluster.yaml: tasks=8, at_once=4, partition=gpu, ..."),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Of --on slurm or ray: so many parts.")] = None,
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
    devices_per_run: Annotated[
        int, typer.Option(min=1, help="Spread each run over so many devices of this machine.")
    ] = 1,
    shard: Annotated[
        str | None,
        typer.Option(metavar="ddp|fsdp", help="With several: whole weights on each (ddp), or cut over them (fsdp)."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (a GPU where there is one), cpu, cuda, or cuda:N.")
    ] = "auto",
    cohort: Annotated[
        str, typer.Option(metavar="WHEN", help="Train seeds together: auto (on a GPU), on, off, or N at most.")
    ] = "auto",
    step: Annotated[
        str,
        typer.Option(metavar="KIND", help="How grouped runs compute steps: auto (eager), eager, or compiled."),
    ] = "auto",
) -> None:
    """Train every run that is not sealed yet.

    Registers the study first if need be, and says so. Ctrl-C stops cleanly; run again to resume.
    A sequential study is trained up to its next look, and no further before that look is taken.

    Example:  ablate run studies/quickstart.yaml
    """
    options = api.RunOptions(
        slots=slots,
        only=tuple(only or ()),
        part=part,
        lost_after_s=lost_after,
        next_look=next_look,
        checkpoint_every_s=checkpoint_every,
        devices_per_run=devices_per_run,
        shard=shard,
        device=device,
        cohort=cohort,
        step=step,
    )
    if dry_run:
        from ablate.api.status import read_costs
        from ablate.reporting.summaries.run import costs_section

        return show_or_json(read_costs(api.check(study, root), options), costs_section, as_json=as_json)
    given = {"--slurm": (slurm, "slurm"), "--tasks": (tasks, on if on != "local" else "slurm")}
    _require_place(study, on, {**given, "--address": (address, "ray")})
    if on == "slurm":
        flags = [*(slurm or ()), *([f"tasks={tasks}"] if tasks else [])]
        submitted = api.submit(study, options, flags=flags, root=root, pilot=pilot, accept_underpowered=accept)
        if submitted.job is not None:
            return _report_submitted(study, submitted, as_json=as_json)
    make = partial(api.run_on_ray, tasks=tasks, address=address) if on == "ray" else api.run
    done = make(
        study,
        options,
        root=root,
        watcher=_watcher(as_json),
        pilot=pilot,
        accept_underpowered=accept,
    )
    _report_run(study, done, as_json=as_json)
    if not done.summary.complete:
        raise typer.Exit(Exit.INTERRUPTED if done.summary.interrupted else Exit.INCOMPLETE)
    return None


def status(study: StudyFile, root: RootFolder = None, as_json: AsJson = False) -> None:
    """Show how far a study has come.

    Progress only; results stay hidden.

    Example:  ablate status studies/embnorm.yaml
    """
    from ablate.api.status import read_status
    from ablate.reporting.summaries.run import status_section

    found = read_status(api.open_study(study, root))
    show_or_json(found, status_section, as_json=as_json)


def watch(
    study: StudyFile,
    root: RootFolder = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Look this often.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Watch a study at work until no process is.

    Progress, speed, and the training loss of several arms together; nothing that separates them. Ctrl-C ends the
    watching and leaves the study at work. With --json a line per look.

    Example:  ablate watch studies/embnorm.yaml
    """
    import time
    from contextlib import nullcontext

    from rich.live import Live

    from ablate.api.status import watch_study
    from ablate.reporting import terminal
    from ablate.reporting.summaries.run import watch_section

    context, screen = api.open_study(study, root), console()
    seen, looked = watch_study(context, None, 0.0), time.monotonic()
    shown = screen.is_terminal and not as_json
    live = Live(console=screen, auto_refresh=False, transient=True) if shown else nullcontext()
    with live:
        while seen.health.active and not getattr(sys.stdout, "left", False):
            if as_json:
                put_json(seen.model_dump_json())
            if isinstance(live, Live):
                live.update(terminal.drawn(screen, watch_section(seen)), refresh=True)
            time.sleep(every)
            now = time.monotonic()
            seen, looked = watch_study(context, seen, now - looked), now
    if as_json:
        return put_json(seen.model_dump_json())
    return show(watch_section(seen))


def peek(
    study: StudyFile,
    reason: Annotated[str, typer.Option(help="Why the numbers are needed now; kept in the ledger.")],
    root: RootFolder = None,
    as_json: AsJson = False,
    past: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Record a look that somebody took at TIME, by whatever means; show nothing."),
    ] = None,
) -> None:
    """Look at an unfinished study's numbers, on record.

    The look goes into the ledger before anything is shown, and counts: every report names it, and a study that was
    looked at before its last run ended gives no confirmatory verdict. For its progress alone, use `ablate status`.
    A look at the files of a run with other tools leaves no entry: record it with --past, at any time.

    Example:  ablate peek studies/embnorm.yaml --reason "the loss of one arm looks broken"
    """
    from ablate.reporting.summaries.run import early_look_section

    if past is not None:
        entry = api.record_look(study, reason=reason, took_place=past, root=root)
        if as_json:
            put_json(json.dumps({**entry.body, "entry": entry.index, "head": entry.sha256}))
            return
        put(f"recorded: an early look, when {entry.body['ended']} of {entry.body['planned']} planned runs had ended")
        put("by the registered rules this study gives no verdict")
        put(f"this look is entry {entry.index} of the ledger")
        put(f"ledger head {entry.sha256}")
        put(f"next:  ablate decide {study}   (ablate report {study} where its sealed records are gone)")
        return
    seen = api.peek(study, reason=reason, root=root)
    if as_json:
        put_json(
            json.dumps(
                {**seen.early_look.model_dump(mode="json"), "entry": seen.entry.index, "head": seen.entry.sha256}
            )
        )
        return
    show(early_look_section(seen.early_look))
    put(f"this look is entry {seen.entry.index} of the ledger")
    put(f"ledger head {seen.entry.sha256}")


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
        decided = api.decide(study, root=root, announce=announce)
    except Exception:
        if logged:
            words = f"the decision above is in the ledger; its report was not written. To retry:  ablate report {study}"
            print(words, file=sys.stderr)
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
            "head": summary.head,
            **({"look": done.look.model_dump()} if done.look is not None else {}),
        }
        return put_json(json.dumps(facts))
    put(f"{name}: {summary.sealed} of {summary.planned} runs sealed")
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


def _require_place(study: Path, on: str, given: dict[str, tuple[object, str]]) -> None:
    found = "" if on in ("local", "slurm", "ray") else f"--on {on}"
    for option, (value, place) in given.items():
        found = f"{option} without --on {place}" if value and on != place else found
    if found:
        raise RunError(found, required="--on local, slurm or ray", fix=f"ablate run {study} --on slurm")


def _report_submitted(study: Path, done: Submitted, *, as_json: bool) -> None:
    assert done.job is not None
    if as_json:
        facts = {"event": "submitted", "registration": done.registration.sha256, "runs_left": done.left}
        return put_json(json.dumps({**facts, **done.job.model_dump()}))
    name, runs = done.registration.study.study, counted(done.left, "run")
    if done.registered_now:
        put(f"registered {name} before any run; registration {done.registration.sha256}")
    put(f"{name}: {runs} left, submitted as Slurm job {done.job.id} ({counted(done.job.tasks, 'task')})")
    put(f"script {done.job.script}", f"next:  ablate status {study}, later again: ablate run {study} --on slurm")
    return None


def _watcher(as_json: bool) -> Watcher:
    from ablate.runner.progress import JsonWatcher, LiveWatcher, PlainWatcher

    if as_json:
        return JsonWatcher(sys.stdout)
    screen = console()
    if screen.is_terminal:
        return LiveWatcher(screen)
    return PlainWatcher(sys.stdout)
