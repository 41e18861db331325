"""Commands for a study that is being written: new, check, design, try, plan; its schema."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ablate
from ablate.cli.options import (
    AsJson,
    Exit,
    Pilot,
    RootFolder,
    StudyFile,
    put,
    put_error,
    put_json,
    show,
    show_or_json,
    show_warnings,
)
from ablate.cli.registering import repeated_runs
from prereg.errors import StudyError, UnsupportedError
from prereg.registry.paths import PUBLISHED_SUFFIX

if TYPE_CHECKING:
    from ablate.judge.design.warnings import DesignWarning
    from ablate.workspace import StudyContext
    from prereg.documents.published import LoadedPublished
    from prereg.study.command import ScriptPin

    Pins = tuple[tuple[ScriptPin, ...], tuple[ScriptPin, ...]]


def check(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY", help="Study files; of several, one line for each.")],
    root: RootFolder = None,
    as_json: AsJson = False,
) -> None:
    """Validate a study and show its decision table and what it costs.

    Reads the file, checks every field, claim and rule, and writes nothing. Nothing that a study brings is executed.
    Its published figures (docs/published.md) are checked with it. Of several files, all are checked, one line each, and
    the exit code is 2 if any has a mistake.

    Example:  ablate check studies/embnorm.yaml
    """
    from ablate.planning import planned
    from ablate.reporting.summaries import study as study_summary

    paths = dict.fromkeys(_study_of(path) for path in studies)
    if len(paths) == 1:
        return _check_one(next(iter(paths)), root, as_json=as_json)
    found, n_wrong = [], 0
    for path in paths:
        try:
            context, _, _, notes, warnings = _checked(path, root)
        except StudyError as error:
            n_wrong += 1
            put_error(error)
            continue
        found.append(study_summary.study_json(context.study, planned(context), notes, warnings))
        if not as_json:
            put(f"ok  {path}", *(f"    {note}" for note in notes))
            show_warnings(warnings)
    if as_json:
        put_json(f"[{', '.join(found)}]")
    elif n_wrong:
        put(f"{n_wrong} of {len(paths)} studies have mistakes")
    if n_wrong:
        raise typer.Exit(Exit.MISTAKE)
    return None


def _study_of(path: Path) -> Path:
    """The study that a file of published figures belongs to; any other path as it is."""
    name = path.name
    return path.with_name(name.removesuffix(PUBLISHED_SUFFIX) + ".yaml") if name.endswith(PUBLISHED_SUFFIX) else path


def _checked(
    study: Path, root: Path | None
) -> tuple[StudyContext, LoadedPublished | None, Pins, list[str], tuple[DesignWarning, ...]]:
    """A valid study with published figures, the files it would pin, notes and warnings. Raises `StudyError`."""
    from ablate.checking import warnings_of
    from ablate.pins import pin_code
    from ablate.workspace import published_beside

    context = ablate.check(study, root)
    published = published_beside(context)
    pins = pin_code(context) if context.study.trainer == "command" else ((), ())
    return context, published, pins, repeated_runs(context), warnings_of(context)


def _check_one(study: Path, root: Path | None, *, as_json: bool) -> None:
    from ablate.checking import unnamed_metrics_file
    from ablate.planning import planned
    from ablate.reporting.summaries import study as study_summary

    context, published, (scripts, data), notes, warnings = _checked(study, root)
    if as_json:
        return put_json(study_summary.study_json(context.study, planned(context), notes, warnings))
    costs = study_summary.costs_section(planned(context))
    show(study_summary.study_section(context.study, scripts, data), costs)
    put(*notes, *([] if published is None else [published.words]))
    put(*filter(None, [unnamed_metrics_file(context.study, context.root, scripts)]))
    show_warnings(warnings)
    put(f"next:  ablate try {study}   (one short run per arm; --seeds 3: whole runs, and how noisy they are)")
    return None


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The study's name, and its file's.")],
    *,
    template: Annotated[
        str | None, typer.Option(metavar="KIND", help="What to begin with (asked on a terminal; else gpt).")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The question, as the report's title.")] = None,
    script: Annotated[
        Path | None, typer.Option("--script", metavar="FILE", help="Your own training script, which is read.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="With --script: a table that it wrote.")
    ] = None,
    arms: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="With --script: an arm (repeatable).")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="The folder for studies/ (found, else the current one).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a new study from a template, or from your own training script.

    Writes studies/NAME.yaml, which passes check and design and runs as it is, a script or a table where the template
    needs one, and data/.gitignore unless one is there. Replaces nothing. Templates: gpt, command, components,
    factorial, gate, huggingface, import, sequential, target, tuned, unpaired.

    With --script, the options of a Python script and the columns of its metrics are read from its text, without running
    it, and comments in the study say what is to be filled in.

    Example:  ablate new my_study --script train.py --set dropout=0.1
    """
    known = ablate.templates()
    if template is not None and script is not None:
        fix = f"ablate new {name} --script {script}"
        raise UnsupportedError("--template and --script", required="one of the two", fix=fix)
    if template is None and script is None and sys.stdin.isatty() and not as_json:
        width = max(map(len, known))
        put(*(f"  {one.ljust(width)}  {what}" for one, what in known.items()))
        answers = _answers("Template [gpt]: ", *([] if title else ["Title [the template's]: "]))
        if answers is None:
            put("", "stopped: nothing was written")
            raise typer.Exit(Exit.INTERRUPTED)
        template, title = answers[0], title or answers[-1]
    made = ablate.new(
        name,
        template or next(iter(known)),
        title=title,
        root=root,
        script=script,
        metrics=metrics,
        arms=arms or (),
    )
    if as_json:
        files = [str(path) for path in made.files]
        return put_json(json.dumps({"files": files, "notes": made.notes, "next": made.next}, indent=2))
    ignored = "   (keeps runs and corpora out of git)"
    put(*(f"wrote {path}{ignored if path.name == '.gitignore' else ''}" for path in made.files))
    put(*made.notes)
    put(*(f"{'next:' if not number else '     '}  {command}" for number, command in enumerate(made.next)))
    return None


def _answers(*questions: str) -> list[str | None] | None:
    """What is typed at each question, none for an empty line; nothing at all after Ctrl-C or Ctrl-D."""
    try:
        return [input(question).strip() or None for question in questions]
    except (EOFError, KeyboardInterrupt):
        return None


def schema(
    *,
    published: Annotated[
        bool, typer.Option("--published", help="Instead: of the published figures of a study (docs/published.md).")
    ] = False,
) -> None:
    """Print the JSON schema of a study file.

    Give it to an editor for completion and hover text.

    Example:  ablate schema > study.schema.json
    """
    from prereg.documents.published import json_schema, published_schema

    put_json(json.dumps(published_schema() if published else json_schema(), indent=2, ensure_ascii=False))


def design(study: StudyFile, root: RootFolder = None, pilot: Pilot = None, as_json: AsJson = False) -> None:
    """Simulate the registered rule before any data.

    Says what can be found with these seeds, how often by chance, and how many seeds it would take.

    Example:  ablate design studies/embnorm.yaml
    """
    from ablate.checking import warnings_of
    from ablate.judge.design.reach import obstacle
    from ablate.judge.design.warnings import as_json as plain
    from ablate.reporting.summaries.study import design_section
    from ablate.workspace import open_study

    found = ablate.design(study, root=root, pilot=pilot)
    warnings = warnings_of(open_study(study, root), found)
    if as_json:
        whole = found.model_dump(mode="json") | {"warnings": plain(warnings)}
        put_json(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        show(design_section(found))
        show_warnings(warnings)
        if obstacle(found) is None:
            put(f"next:  ablate register {study}")


def try_out(
    study: StudyFile,
    root: RootFolder = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per arm; from 3 on whole runs, and values to assume.")] = 1,
    limit: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="Stop each run after so long.")] = 60.0,
    replaced: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Replace a value of the configuration (repeatable)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one short run per arm before registering.

    Finds what would fail later: a wrong flag or path, a missing package, a metric under another name, a setting that
    changes nothing. Also says what the plan costs. Seeds are outside the plan, nothing is logged and no value is shown.

    Example:  ablate try studies/own-trainer.yaml
    """
    from ablate.reporting.summaries.run import trial_section

    say = (lambda _: None) if as_json else lambda run: put(f"trying {run}")
    trial = ablate.try_out(study, root=root, seeds=seeds, limit_s=limit, replaced=replaced or (), on_run=say)
    show_or_json(trial, trial_section, as_json=as_json)
    if not as_json:
        then = f"ablate design {study}"
        if trial.problems:
            then = f"what each problem says to try, then ablate try {study} again"
        elif trial.assume:
            then = f"write that assume: line into {study}, then {then}"
        put(f"next:  {then}")
    if trial.problems:
        raise typer.Exit(Exit.MISTAKE)


def plan(
    study: StudyFile,
    root: RootFolder = None,
    *,
    commands: Annotated[
        bool, typer.Option("--commands", help="Print a command for each run that is left, and log the starts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a study's runs, and what they cost.

    Of each arm its runs, parameters, tokens, FLOPs (6 N D) and device-hours, where they are known. Nothing is written.
    With --commands it prints a line for each run of a registered study that is left, for a scheduler of your own
    (Kubernetes, SkyPilot, a shell loop) on machines that share the folder; `ablate run STUDY --jobs 0` then collects.

    Example:  ablate plan studies/embnorm.yaml
    """
    if commands:
        import shlex

        lines = [list(words) for words in ablate.plan_commands(study, root=root)]
        return put_json(json.dumps(lines)) if as_json else put(*(shlex.join(words) for words in lines))
    from ablate.reporting.summaries.study import runs_section

    runs = ablate.plan_runs(study, root=root)
    if as_json:
        put_json(json.dumps(asdict(runs), indent=2))
    else:
        show(runs_section(runs))
    return None
