"""Commands for a study that is being written: new, check, design, try, plan; its schema, and explanations."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import api
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
from prereg.errors import StudyError
from prereg.registry.paths import PUBLISHED_SUFFIX

if TYPE_CHECKING:
    from ablate.judge.design.warnings import DesignWarning
    from prereg.documents.published import LoadedPublished
    from prereg.study.command import ScriptPin

    Pins = tuple[tuple[ScriptPin, ...], tuple[ScriptPin, ...]]


def check(
    studies: Annotated[list[Path], typer.Argument(metavar="STUDY", help="Study files; of several, one line for each.")],
    root: RootFolder = None,
    as_json: AsJson = False,
) -> None:
    """Validate a study and show its decision table.

    Reads the file, checks every field, claim and rule, and writes nothing. Nothing that a study brings is executed.
    Its published figures (docs/published.md) are checked with it. Of several files, all are checked, one line each, and
    the exit code is 2 if any has a mistake.

    Example:  ablate check studies/embnorm.yaml
    """
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
        found.append(study_summary.study_json(context.study, notes, warnings))
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
) -> tuple[api.StudyContext, LoadedPublished | None, Pins, list[str], tuple[DesignWarning, ...]]:
    """A valid study with published figures, the files it would pin, notes and warnings. Raises `StudyError`."""
    from ablate.api.support import warnings_of

    context = api.check(study, root)
    published = api.published_beside(context)
    pins = api.pin_code(context) if context.study.trainer == "command" else ((), ())
    return context, published, pins, repeated_runs(context), warnings_of(context)


def _check_one(study: Path, root: Path | None, *, as_json: bool) -> None:
    from ablate.api.support import unnamed_metrics_file
    from ablate.reporting.summaries import study as study_summary

    context, published, (scripts, data), notes, warnings = _checked(study, root)
    if as_json:
        return put_json(study_summary.study_json(context.study, notes, warnings))
    sections = [study_summary.study_section(context.study, scripts, data)]
    if context.study.trainer == "gpt":
        sections += study_summary.sizes_sections(context.study, api.find_vocabulary(context))
    show(*sections)
    put(*notes, *([] if published is None else [published.words]))
    put(*filter(None, [unnamed_metrics_file(context.study, context.root, scripts)]))
    show_warnings(warnings)
    put(f"next:  ablate try {study}   (one short run per arm; --seeds 3: whole runs, and how noisy they are)")
    return None


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The study's name, and its file's.")],
    template: Annotated[
        str | None, typer.Option(metavar="KIND", help="What to begin with (asked on a terminal; else gpt).")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The question, as the report's title.")] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="The folder for studies/ (found, else the current one).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a new study from a template.

    Writes studies/NAME.yaml, which passes check and design and runs as it is, a script or a table where the template
    needs one, and data/.gitignore unless one is there. Replaces nothing. Templates: gpt, command, components,
    factorial, gate, huggingface, import, sequential, target, tuned, unpaired.

    Example:  ablate new my_study --template command
    """
    known = api.templates()
    if template is None and sys.stdin.isatty() and not as_json:
        width = max(map(len, known))
        put(*(f"  {one.ljust(width)}  {what}" for one, what in known.items()))
        template = input("Template [gpt]: ").strip() or None
        title = title or input("Title [the template's]: ").strip() or None
    made = api.new(name, template or next(iter(known)), title=title, root=root)
    if as_json:
        return put_json(json.dumps({"files": [str(path) for path in made.files], "next": made.next}, indent=2))
    ignored = "   (keeps runs and corpora out of git)"
    put(*(f"wrote {path}{ignored if path.name == '.gitignore' else ''}" for path in made.files))
    put(*(f"{'next:' if not number else '     '}  {command}" for number, command in enumerate(made.next)))
    return None


def explain(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="checks, amendments, metrics, or the name of one check or metric.")
    ],
    as_json: AsJson = False,
) -> None:
    """Explain a check, a metric, or what an amendment affects.

    checks: what each check of the evidence looks at, what its failure means, and why. amendments: what a change of
    each field affects when it is made after evidence. metrics: every metric with unit, direction and formula.

    Example:  ablate explain val/bits_per_byte
    """
    from ablate.reporting.blocks import Facts, Section
    from ablate.reporting.summaries.explain import explained

    rows = explained(topic)
    if as_json:
        put_json(json.dumps([{"name": name, **dict(facts)} for name, facts in rows], indent=2, ensure_ascii=False))
    else:
        show(*(Section(name, name, (Facts(facts),)) for name, facts in rows))


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
    from ablate.api.support import warnings_of
    from ablate.judge.design.reach import obstacle
    from ablate.judge.design.warnings import as_json as plain
    from ablate.reporting.summaries.study import design_section

    found = api.design(study, root=root, pilot=pilot)
    warnings = warnings_of(api.open_study(study, root), found)
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
    trial = api.try_out(study, root=root, seeds=seeds, limit_s=limit, replaced=replaced or (), on_run=say)
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
    scale: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help='Such as "1.3B x 50B tokens x 5 seeds on 64 H100", or "on 1 cpu".'),
    ] = None,
    mfu: Annotated[
        float | None, typer.Option(min=0.001, max=1.0, help="Assume this share of the device's peak FLOP/s.")
    ] = None,
    devices_per_run: Annotated[
        int | None, typer.Option(min=1, help="Devices of one run (default: those with which all runs end soonest).")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="ddp|fsdp", help="Whole weights on each of them, or cut over them.")
    ] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Sequences computed at once on a device.")] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="float32|bfloat16", help="Arithmetic, instead of the study's.")
    ] = None,
    recompute: Annotated[
        str | None, typer.Option(metavar="none|blocks", help="Recomputation, instead of the study's.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(min=2, help="Entries of the vocabulary.")] = None,
    peak_tflops: Annotated[float | None, typer.Option(min=0.001, help="Peak of a device that is not known.")] = None,
    memory_gb: Annotated[float | None, typer.Option(min=0.1, help="Memory of a device, in 10^9 bytes.")] = None,
    price: Annotated[float | None, typer.Option(min=0.0, help="Price of a device-hour.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a study's runs, and what they cost at scale.

    With --scale: parameters, memory of a device, FLOPs, hours and device-hours over arms and seeds, each with its
    formula. Time follows from recorded runs of the same kind of device, or from --mfu, which is marked as an
    assumption. Nothing is written.

    Example:  ablate plan studies/embnorm.yaml --scale "1.3B x 50B tokens x 5 seeds on 64 H100" --mfu 0.4
    """
    from ablate.reporting.summaries import study as study_summary

    if scale is None:
        runs = api.plan_runs(study, root=root)
        if as_json:
            put_json(json.dumps(asdict(runs), indent=2))
        else:
            show(study_summary.runs_section(runs))
        return
    found = api.plan_at_scale(
        study,
        scale,
        root=root,
        numerics={"dtype": dtype, "recompute": recompute},
        vocabulary=vocabulary,
        mfu=mfu,
        peak_tflops=peak_tflops,
        memory_gb=memory_gb,
        devices_per_run=devices_per_run,
        shard=shard,
        micro_batch=micro_batch,
        price=price,
    )
    if as_json:
        put_json(study_summary.scale_json(found))
    else:
        show(*study_summary.scale_sections(found))
