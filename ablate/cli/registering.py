"""Commands that register a study: register, amend, seal; what may be registered, `ablate/registering.py` decides."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.command import Result, Screen, Shown, command
from ablate.cli.options import Accept, Pilot, Sign, StudyFile
from ablate.cli.studies import claimed_before, noted, order_of_runs, repeated_runs, warned
from ablate.workspace import Workspace
from prereg.errors import RegistrationError, UnsupportedError

if TYPE_CHECKING:
    from ablate.verification.seal import Sealing

_HELD = {
    "the same bytes": "it holds the lock, byte for byte",
    "other bytes": "it holds other bytes in place of the lock: git commit, then ablate seal again",
    "absent": "it does not hold the lock yet: git commit, then ablate seal",
}


@command(interrupted="what the ledger does not hold was not done; repeat the command")
def register_command(
    workspace: Workspace,
    study: StudyFile,
    pilot: Pilot = None,
    accept: Accept = None,
    *,
    sign: Sign = None,
) -> Result:
    """Freeze a study in its lock and in the ledger.

    Doing it twice changes nothing. What would fail later costs nothing before: see ablate try. Seals are for others,
    and optional: see ablate seal.

    Example:  ablate register studies/embnorm.yaml
    """
    from ablate.cli.campaigns import names_campaign

    if names_campaign(study):
        from ablate.cli.campaigns import register_one_campaign

        for option, value in (("--pilot", pilot), ("--accept-underpowered", accept), ("--sign", sign)):
            if value is not None:
                raise UnsupportedError(
                    f"{option} with a campaign", required="the campaign alone", fix=f"ablate register {study}"
                )
        return register_one_campaign(study, workspace)
    from ablate import registering
    from ablate.checking import warnings_of
    from ablate.judge.design.retrospective import design_in_lock
    from ablate.judge.design.warnings import warnings_as_json
    from ablate.verification.seal import attest, require_able
    from prereg.registry.git_files import lacks_union

    require_able(sign)  # a key that cannot sign is found before anything is registered
    context = workspace.open(study)  # before: a registration writes out what the file leaves to a default
    merges = lacks_union(context.root)
    registration, entry = registering.register(study, workspace=workspace, pilot=pilot, accept_underpowered=accept)
    name, new = registration.study.study, entry is not None
    planned = design_in_lock(registration)  # as it was registered, not simulated again
    warnings = warnings_of(context, planned) if new else ()
    earlier = claimed_before(context)
    sealing = attest(context, registration, sign=sign) if new or sign is not None else None

    def text() -> Iterator[Shown]:
        from ablate.reporting.summaries.study import power_section

        if new:
            yield f"registered {name} at {registration.registered_at}"
            yield from noted([*repeated_runs(context), *order_of_runs(context)])
            if earlier.words:
                yield f"{earlier.words}."
            assert planned is not None, name
            yield power_section(planned)
            yield from warned(warnings)
            if merges:
                yield "added to studies/.gitattributes: ledger.jsonl merge=union (git merges ledgers by it)"
            yield f"registration page: {context.root.page(name)}"
        else:
            yield f"{name} is registered already, since {registration.registered_at}"
        yield f"registration {registration.sha256}"
        if sealing is not None:
            yield from _seals(sealing)

    facts = {
        "study": name,
        "registration": registration.sha256,
        "registered_at": registration.registered_at,
        "registered_now": new,
        "page": context.root.page(name),
        "warnings": warnings_as_json(warnings),
        "claimed_before": earlier.model_dump(mode="json"),
    }
    return Result(facts, text, next=f"ablate run {study}   (ablate import: runs made elsewhere)" if new else "")


@command(interrupted="what the ledger does not hold was not done; repeat the command")
def amend_command(
    workspace: Workspace,
    screen: Screen,
    study: StudyFile,
    reason: Annotated[str, typer.Option(help="Why, in a sentence; kept in the ledger.")],
    *,
    pilot: Pilot = None,
    accept: Accept = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the consequences and write nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, whatever the consequences.")] = False,
) -> Result:
    """Register a changed study, with a reason.

    The earlier registration stays in the ledger, with what differs and whether evidence existed by then. If it
    did, hypotheses that the change affects are exploratory from then on, and no verdict rests on them: you are asked
    first. Runs that failed are no evidence as long as no two arms left a value of a claimed metric. Runs are
    kept unless the change is one of what they depend on. Another title or question alone keeps the registration, its
    runs and its verdict.

    Example:  ablate amend studies/embnorm.yaml --reason "two more seeds, before any run" --dry-run
    """
    from ablate import registering
    from ablate.reporting.summaries.study import amendment_section
    from prereg.registry.amendments import affected, amendments_of

    # What the amendment would do is worked out first, and nothing is written for it.
    preview, changed = registering.preview_amendment(study, workspace=workspace), workspace.open(study).study
    if dry_run:
        return Result(preview, lambda: [amendment_section(changed, (), preview)])
    reach = affected(changed, [preview])
    if not yes and (reach.hypotheses or reach.arms or reach.verdict):  # only where it costs something
        screen.show(amendment_section(changed, (), preview))
        _confirm(screen, study)
    registration, entry = registering.amend(
        study, reason=reason, workspace=workspace, pilot=pilot, accept_underpowered=accept
    )
    if entry.event == "reworded":  # title or question alone: the registration stays
        recorded = (f"recorded as entry {entry.index}", f"ledger head {entry.sha256}")
        return Result(entry, lambda: [amendment_section(registration.study, (), preview), *recorded])

    def text() -> Iterator[Shown]:
        entries = registering.registrations(study, workspace)
        yield amendment_section(registration.study, entries, amendments_of([entry])[0])
        yield f"registration page: {workspace.open(study).root.page(registration.study.study)}"
        yield f"ledger head {entry.sha256}"

    return Result(entry, text)


def _confirm(screen: Screen, study: Path) -> None:
    """Ask on a terminal; elsewhere refuse. Raises `RegistrationError` for anything but yes."""
    answer = screen.ask("Amend all the same? [y/N] ") if sys.stdin.isatty() else ""
    if answer.lower() not in ("y", "yes"):
        raise RegistrationError(
            "this amendment after evidence was not confirmed, and nothing was written",
            required="--yes, or the answer y on a terminal",
            fix=f"ablate amend {study} --reason TEXT --yes",
        )


@command(interrupted="what the ledger does not hold was not done; repeat the command")
def seal_command(
    workspace: Workspace,
    study: StudyFile,
    *,
    sign: Sign = None,
    timestamp: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep this RFC 3161 timestamp of the lock (docs/proof.md).")
    ] = None,
) -> Result:
    """Sign or timestamp a registration, and record its commit.

    A seal is a file next to the lock whose hash the ledger holds, or a commit. ablate verify checks all of them and
    prints what they prove; ssh-keygen, openssl and git check them without ablate.

    Example:  ablate seal studies/embnorm.yaml --sign ~/.ssh/id_ed25519
    """
    from ablate.verification.seal import seal as attest

    # Without --sign and --timestamp the commit that holds the lock is recorded, if there is one.
    sealing = attest(study, workspace=workspace, sign=sign, timestamp=timestamp)
    return Result(sealing, lambda: _seals(sealing))


def _seals(sealing: Sealing) -> Iterator[str]:
    """What was sealed, and the ledger's head after it."""
    from prereg.seals.state import KINDS

    for text in sealing.made:  # those that were made now; earlier ones are in the notes
        when = "" if text.time is None else f" at {text.time}"
        yield f"{KINDS[text.kind].name}: {text.by}{when}"
        if text.file is not None:
            yield f"  wrote {text.file}"
        if text.git is not None:
            yield f"  {_HELD[text.git.lock]}"
            if not text.git.clean:
                yield f"  other files that differ from it, or are not in it: {text.git.n_changed}"
    yield from (*sealing.notes, f"ledger head {sealing.head}")
