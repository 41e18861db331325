"""Commands that register a study: register, amend, seal, and documents of a registration."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import ablate
from ablate.cli.options import (
    Accept,
    AsJson,
    Pilot,
    RootFolder,
    Sign,
    StudyFile,
    confirm_amendment,
    put,
    put_document,
    put_json,
    show,
    show_warnings,
)

if TYPE_CHECKING:
    from ablate.verification.seal import Sealing
    from ablate.workspace import StudyContext


class Form(StrEnum):
    """The documents there are."""

    osf = "osf"
    markdown = "markdown"


_HELD = {
    "the same bytes": "it holds the lock, byte for byte",
    "other bytes": "it holds other bytes in place of the lock: git commit, then ablate seal again",
    "absent": "it does not hold the lock yet: git commit, then ablate seal",
}


def register(
    study: StudyFile,
    root: RootFolder = None,
    pilot: Pilot = None,
    accept: Accept = None,
    *,
    sign: Sign = None,
    as_json: AsJson = False,
) -> None:
    """Freeze a study in its lock and in the ledger.

    Doing it twice changes nothing. What would fail later costs nothing before: see ablate try. Seals are for others,
    and optional: see ablate seal.

    Example:  ablate register studies/embnorm.yaml
    """
    from ablate.checking import warnings_of
    from ablate.judge.design.retrospective import frozen_design
    from ablate.judge.design.warnings import as_json as plain
    from ablate.reporting.summaries.study import power_section
    from ablate.verification.seal import attest, require_able
    from ablate.workspace import open_study
    from prereg.registry.git_files import lacks_union

    require_able(sign)
    context = open_study(study, root)  # before: a registration writes out what the file leaves to a default
    merges = lacks_union(context.root)
    registration, entry = ablate.register(study, root=root, pilot=pilot, accept_underpowered=accept)
    name, new = registration.study.study, entry is not None
    planned = frozen_design(registration)
    warnings = warnings_of(context, planned) if new else ()
    if not as_json and new:
        put(f"registered {name} at {registration.registered_at}", *repeated_runs(context))
        assert planned is not None, name
        show(power_section(planned))
        show_warnings(warnings)
        if merges:
            put("added to studies/.gitattributes: ledger.jsonl merge=union (git merges ledgers by it)")
        put(f"registration page: {context.root.page(name)}")
    elif not as_json:
        put(f"{name} is registered already, since {registration.registered_at}")
    if not as_json:
        put(f"registration {registration.sha256}")
    sealing = attest(context, registration, sign=sign) if new or sign is not None else None
    if as_json:
        facts = {
            "study": name,
            "registration": registration.sha256,
            "registered_at": registration.registered_at,
            "registered_now": new,
            "page": str(context.root.page(name)),
            "warnings": plain(warnings),
        }
        put_json(json.dumps(facts, indent=2, ensure_ascii=False))
    elif sealing is not None:
        print_seals(sealing)
    if new and not as_json:
        put(f"next:  ablate run {study}   (ablate import: runs made elsewhere)")


def repeated_runs(context: StudyContext) -> list[str]:
    """Notes on other registered studies whose runs this one would train again."""
    from prereg.registry.history import repeated

    return [f"Note: {other.words}." for other in repeated(context.root, context.study)]


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
    first. Runs that failed are no evidence as long as no two arms left a value of a claimed metric. Runs are
    kept unless the change is one of what they depend on. Another title or question alone keeps the registration, its
    runs and its verdict.

    Example:  ablate amend studies/embnorm.yaml --reason "two more seeds, before any run" --dry-run
    """
    from ablate.reporting.summaries.study import amendment_section
    from ablate.workspace import open_study
    from prereg.registry.amendments import affected, amendments_of

    preview, changed = ablate.preview_amendment(study, root=root), open_study(study, root).study
    if dry_run and as_json:
        return put_json(preview.model_dump_json(indent=2))
    reach = affected(changed, [preview])
    asks = not yes and bool(reach.hypotheses or reach.arms or reach.verdict)
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        if dry_run or asks:
            show(amendment_section(changed, (), preview))
        if asks and not dry_run:
            confirm_amendment(study)
    if dry_run:
        return None
    registration, entry = ablate.amend(study, reason=reason, root=root, pilot=pilot, accept_underpowered=accept)
    if as_json:
        return put_json(entry.model_dump_json(indent=2))
    if entry.event == "reworded":
        show(amendment_section(registration.study, (), preview))
        return put(f"recorded as entry {entry.index}", f"ledger head {entry.sha256}")
    show(amendment_section(registration.study, ablate.registrations(study, root), amendments_of([entry])[0]))
    put(f"registration page: {open_study(study, root).root.page(registration.study.study)}")
    put(f"ledger head {entry.sha256}")
    return None


def export(
    study: StudyFile,
    form: Annotated[Form, typer.Option("--as", help="Which document: a form to hand in, or a page to read.")],
    root: RootFolder = None,
    out: Annotated[Path | None, typer.Option(help="A file to write; printed if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export a registration for OSF, or as a page to read.

    Full sentences from the lock; a study that is not registered is marked as a draft. Fields that only you can answer
    stay blank.

    Example:  ablate export studies/embnorm.yaml --as osf --out osf.md
    """
    document = ablate.export(study, form=form.value, root=root, as_json=as_json)
    if out is None and as_json:
        return put_json(document.text.rstrip())
    if out is None:
        return put_document(document.text)
    ablate.save(document.text, out)
    put(f"wrote {out}" + (", a DRAFT: the study is not registered" if document.draft else ""))
    for title in document.blanks:
        put(f"left to you: {title}")
    return None


def seal(
    study: StudyFile,
    root: RootFolder = None,
    *,
    sign: Sign = None,
    timestamp: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep this RFC 3161 timestamp of the lock (docs/proof.md).")
    ] = None,
) -> None:
    """Sign a registration, keep a timestamp of it, and record the git commit.

    A seal is a file next to the lock whose hash the ledger holds, or a commit. ablate verify checks all of them and
    prints what they prove; ssh-keygen, openssl and git check them without ablate.

    Example:  ablate seal studies/embnorm.yaml --sign ~/.ssh/id_ed25519
    """
    from ablate.verification import seal as attest

    print_seals(attest.seal(study, root=root, sign=sign, timestamp=timestamp))


def print_seals(sealing: Sealing) -> None:
    """Print what was sealed, and the ledger's head after it."""
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
    put(*sealing.notes, f"ledger head {sealing.head}")
