"""Commands before any data: check, design, plan, register, amend, seal, and documents of a registration."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import api
from ablate.cli.options import (
    Accept,
    AsJson,
    Exit,
    Ots,
    Pilot,
    RootFolder,
    Sign,
    StudyFile,
    Timestamp,
    confirm_amendment,
    put,
    put_document,
    put_json,
    show,
    show_or_json,
)

if TYPE_CHECKING:
    from ablate.verification.seal import Sealing
    from prereg.registry.registration import Registration


def check(study: StudyFile, root: RootFolder = None, as_json: AsJson = False) -> None:
    """Validate a study and show its decision table.

    Reads the file, checks every field, claim and rule, and writes nothing. Nothing that a study brings is executed.
    Its published figures (docs/published.md) are checked with it.

    Example:  ablate check studies/embnorm.yaml
    """
    from ablate.reporting.summaries import study as study_summary

    context = api.check(study, root)
    published = api.published_beside(context)
    scripts, data = api.pin_code(context) if context.study.trainer == "command" else ((), ())
    notes = _repeated(context)
    if as_json:
        return put_json(study_summary.study_json(context.study, notes))
    sections = [study_summary.study_section(context.study, scripts, data)]
    if context.study.trainer == "gpt":
        sections += study_summary.sizes_sections(context.study, api.find_vocabulary(context))
    show(*sections)
    put(*notes, *([] if published is None else [published.words]))
    if context.study.trainer == "command":
        put(f"next:  ablate try {study}   (one short run per arm, before registering)")
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
    from ablate.reporting.summaries.study import design_section

    found = api.design(study, root=root, pilot=pilot)
    show_or_json(found, design_section, as_json=as_json)


def try_out(
    study: StudyFile,
    root: RootFolder = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per arm; with 3 or more, values for assume: too.")] = 1,
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
        put(f"next:  ablate {'try' if trial.problems else 'register'} {study}")
    if trial.problems:
        raise typer.Exit(Exit.MISTAKE)


def register(
    study: StudyFile,
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
    *,
    sign: Sign = None,
    timestamp: Timestamp = None,
    ots: Ots = False,
    as_json: AsJson = False,
) -> None:
    """Freeze a study in its lock and in the ledger.

    Doing it twice changes nothing. What would fail later costs nothing before: see ablate try. Seals are for others,
    and optional: see ablate seal.

    Example:  ablate register studies/embnorm.yaml
    """
    from ablate.verification.seal import attest, require_able

    require_able(sign=sign, timestamp=timestamp, ots=ots)
    registration, entry = api.register(study, root=root, pilot=pilot, accept_underpowered=accept)
    name, new, context = registration.study.study, entry is not None, api.open_study(study, root)
    if not as_json and new:
        put(f"registered {name} as {registration.sha256[:8]} at {registration.registered_at}", *_repeated(context))
        _print_power(registration)
        put(f"registration page: {context.root.page(name)}")
    elif not as_json:
        put(f"{name} is registered already, {registration.sha256[:8]} since {registration.registered_at}")
    wanted = new or sign is not None or timestamp is not None or ots
    sealing = attest(context, registration, sign=sign, timestamp=timestamp, ots=ots) if wanted else None
    if as_json:
        facts = {"study": name, "registration": registration.sha256, "registered_at": registration.registered_at}
        pending = [seal.kind for seal in sealing.pending] if sealing else []
        page = str(context.root.page(name))
        put_json(json.dumps({**facts, "registered_now": new, "page": page, "seals_pending": pending}, indent=2))
    elif sealing is not None:
        print_seals(sealing, study)


def _repeated(context: api.StudyContext) -> list[str]:
    """Notes on other registered studies whose runs this one would train again."""
    from prereg.registry.history import repeated

    return [f"Note: {other.words}." for other in repeated(context.root, context.study)]


def _print_power(registration: Registration) -> None:
    """What the new registration can find."""
    from ablate.judge.design.hindsight import frozen_design
    from ablate.reporting.summaries.study import power_section

    found = frozen_design(registration)
    assert found is not None, registration.study.study
    show(power_section(found))


def amend(
    study: StudyFile,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; kept in the ledger.")],
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the consequences and write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, whatever the consequences.")] = False,
    as_json: AsJson = False,
) -> None:
    """Register a changed study, with a reason.

    The earlier registration stays in the ledger, with what differs and whether evidence existed by then. If it
    did, hypotheses that the change affects are exploratory from then on, and no verdict rests on them: you are asked
    first. Runs that failed are no evidence as long as no two arms left a value of a claimed metric. Another title or
    question alone keeps the registration, its runs and its verdict.

    Example:  ablate amend studies/embnorm.yaml --reason "two more seeds, before any run" --dry-run
    """
    from ablate.reporting.summaries.explain import amendment_section
    from prereg.registry.amendments import affected, amendments_of

    preview, changed = api.preview_amendment(study, root=root), api.open_study(study, root).study
    if dry_run and as_json:
        return put_json(preview.model_dump_json(indent=2))
    reach = affected(changed, [preview])
    asks = not yes and bool(reach.hypotheses or reach.arms or reach.verdict)
    if dry_run or asks:
        show(amendment_section(changed, (), preview))
    if dry_run:
        return None
    if asks:
        confirm_amendment(study)
    registration, entry = api.amend(study, reason=reason, root=root, pilot=pilot, accept_underpowered=accept)
    if as_json:
        return put_json(entry.model_dump_json(indent=2))
    if entry.event == "reworded":
        show(amendment_section(registration.study, (), preview))
        return put(f"recorded as entry {entry.index}", f"ledger head {entry.sha256}")
    show(amendment_section(registration.study, api.registrations(study, root), amendments_of([entry])[0]))
    put(f"registration page: {api.open_study(study, root).root.page(registration.study.study)}")
    put(f"ledger head {entry.sha256}")
    return None


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


class Form(StrEnum):
    """The documents there are."""

    aspredicted = "aspredicted"
    osf = "osf"
    markdown = "markdown"


def export(
    study: StudyFile,
    form: Annotated[Form, typer.Option("--as", help="Which document: a form to hand in, or a page to read.")],
    root: RootFolder = None,
    out: Annotated[Path | None, typer.Option(help="A file to write; printed if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export a registration for OSF or AsPredicted.

    Full sentences from the lock; a study that is not registered is marked as a draft. Fields that only you can answer
    stay blank.

    Example:  ablate export studies/embnorm.yaml --as osf --out osf.md
    """
    document = api.export(study, form=form.value, root=root, as_json=as_json)
    if out is None:
        put_document(document.text)
        return
    api.save(document.text, out)
    put(f"wrote {out}" + (", a DRAFT: the study is not registered" if document.draft else ""))
    for title in document.blanks:
        put(f"left to you: {title}")


_HELD = {
    "the same bytes": "it holds the lock, byte for byte",
    "other bytes": "it holds other bytes in place of the lock: git commit, then ablate seal again",
    "absent": "it does not hold the lock yet: git commit, then ablate seal",
}


def seal(
    study: StudyFile,
    root: RootFolder = None,
    *,
    sign: Sign = None,
    timestamp: Timestamp = None,
    ots: Ots = False,
) -> None:
    """Sign or timestamp a registration; retry what is pending.

    With no option: retries what is pending, completes what calendars promised, and records the git commit. Ends
    with 5 while a seal is pending. What seals prove is printed by ablate verify.

    Example:  ablate seal studies/embnorm.yaml --sign ~/.ssh/id_ed25519
    """
    from ablate.verification import seal as attest

    sealing = attest.seal(study, root=root, sign=sign, timestamp=timestamp, ots=ots)
    print_seals(sealing, study)
    if sealing.pending:
        raise typer.Exit(Exit.INCOMPLETE)


def print_seals(sealing: Sealing, study: Path) -> None:
    """Print what was sealed, what is pending, and the ledger's head after it."""
    from prereg.seals.state import PROOFS

    for text in sealing.made:
        when = "" if text.time is None else f" at {text.time}"
        put(f"{PROOFS[text.kind].name}: {text.by}{when}")
        if text.file is not None:
            put(f"  wrote {text.file}")
        if text.git is not None:
            put(f"  {_HELD[text.git.lock]}")
            if not text.git.clean:
                put(f"  other files that differ from it, or are not in it: {text.git.n_changed}")
    for note in sealing.notes:
        put(note)
    for text in sealing.pending:
        put(f"{PROOFS[text.kind].name} PENDING: {text.why}")
        put(f"  retry:  ablate seal {study}")
    put(f"ledger head {sealing.head}")
