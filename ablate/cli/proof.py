"""Commands that prove a study to others: verify, bundle, reproduce, ledger."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.command import Result, Screen, Shown, command
from ablate.cli.options import Exit, StudyFile
from ablate.workspace import Workspace
from prereg.errors import StudyFileError, nearest
from prereg.escape import visible
from prereg.registry.paths import Root

if TYPE_CHECKING:
    from ablate.runner.messages import Message
    from ablate.verification.result import Verification
    from prereg.registry.ledger import Sound


@command()
def verify_command(
    workspace: Workspace,
    study: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STUDY]", help="A study file, or a bundle: zip file or folder; all studies if left out."
        ),
    ] = None,
    *,
    details: Annotated[bool, typer.Option("--all", help="Every item that was checked, and every seal.")] = False,
    signers: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Believe these ssh keys (studies/allowed_signers).")
    ] = None,
    roots: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Believe these authorities (studies/timestamp_roots.pem)."),
    ] = None,
) -> Result:
    """Check every frozen byte and name what changed.

    Study, lock, pinned code, ledger, seals, sealed records, verdict, reports; of one study, or of all; of a bundle, as
    a zip file or unpacked, with nothing but itself. Asks no server. Derives outcomes and judges the verdict again.
    Says what each study found, then in four lines what was checked, what was found or not checked, what no check can
    show, what deviated and who else holds it; then what to type next. Ends with 4 if something has changed, or if the
    records give no verdict, and with 8 if nothing has changed and this version judges differently.

    Example:  ablate verify studies/embnorm.yaml
    """
    from ablate.proving import verify as check
    from ablate.reporting.summaries.verification import next_step, verification_sections

    verification = check(study, workspace=workspace, signers=signers, roots=roots)
    return Result(
        verification,
        lambda: verification_sections(verification, details=details),  # drawing costs imports: only for text
        next=next_step(verification),
        exit=_ending(verification),
    )


def _ending(verification: Verification) -> Exit:
    if not verification.intact or verification.inadmissible:  # what was changed outweighs what is judged differently
        return Exit.INADMISSIBLE
    return Exit.DIFFERENTLY if verification.judged_differently else Exit.OK


@command(interrupted="no bundle was written")
def bundle_command(
    workspace: Workspace,
    study: StudyFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write (default: STUDY.ablate.zip).")
    ] = None,
    *,
    whole_ledger: Annotated[
        bool, typer.Option("--whole-ledger", help="Show the entries of other studies too, not only their links.")
    ] = False,
    weights: Annotated[bool, typer.Option("--weights", help="Include the trained weights.")] = False,
    evidence: Annotated[
        bool,
        typer.Option("--evidence", help="Write reports/STUDY/evidence.ablate.zip, to be committed with the study."),
    ] = False,
) -> Result:
    """Write a study into one file that others can check.

    Lock, ledger, sealed records, verdict and reports. `ablate verify FILE` needs no repository, corpus or network, and
    takes the file zipped again or unpacked too. With --evidence, verify, report and decide work in a clone that has no
    data/runs, from what is committed.

    Example:  ablate bundle studies/embnorm.yaml
    """
    from ablate.proving import bundle as write

    # What was written has been checked as a stranger would check it, by `verify` on the file alone.
    made = write(study, workspace=workspace, out=out, whole_ledger=whole_ledger, weights=weights, evidence=evidence)

    def text() -> Sequence[Shown]:
        from ablate.reporting.summaries.verification import bundle_section

        return [bundle_section(made.path, made.check, written=made.written)]

    then = f"git add {made.path.parent} && git commit" if evidence else f"ablate verify {made.path}"
    return Result({"path": made.path, "written": made.written, "check": made.check}, text, next=then)


def report_of_bundle(path: Path, out: Path | None) -> Result:
    """Write the reports of a bundle, and say where they are and what the bundle's verdict was found to be."""
    from ablate.proving import report_bundle as write

    checked, pages = write(path, out)
    contents = "" if checked.bundle is None else checked.bundle.contents_sha256
    judged = "; ".join(item.note for item in checked.items if item.what == "verdict judged again")
    return Result(
        {"wrote": pages, "contents": contents, "head": checked.head},
        lambda: [
            f"judged from the bundle alone, {path} (contents {contents[:8]}): {judged}",
            *(f"wrote {page}" for page in pages),
            f"ledger head {checked.head}",
        ],
    )


_PLAIN_EVERY_S = 10.0


@command(interrupted="the sealed run is as it was")
def reproduce_command(
    workspace: Workspace,
    screen: Screen,
    study: StudyFile,
    run: Annotated[str, typer.Option("--run", metavar="VARIANT/SEED", help="The sealed run to make again.")],
    *,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Only so many steps: a cheap check of the beginning.")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(min=0.0, help="Accept this relative difference where equal bits are not promised."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the new run's records there (a new folder).")
    ] = None,
) -> Result:
    """Train one sealed run again and compare every bit.

    Every repeatable metric at every step and the final weights, against the sealed record. It is made in a scratch
    folder; record and ledger stay as they are. Ends with 0 if reproduced and 1 if not.

    Example:  ablate reproduce studies/embnorm.yaml --run layernorm/24101
    """
    from ablate.proving import reproduce as make_again

    onlooker = None if screen.quiet else _teller(run)
    # On standard error meanwhile, as it may take as long as the run did.
    comparison = make_again(study, run, steps=steps, within=within, keep=keep, workspace=workspace, onlooker=onlooker)

    def text() -> Sequence[Shown]:
        from ablate.reporting.summaries.run import reproduction_section

        return [reproduction_section(comparison)]

    facts = {"reproduced": comparison.reproduced, "exact": comparison.exact, **comparison.model_dump(mode="json")}
    return Result(facts, text, exit=Exit.OK if comparison.reproduced else Exit.DIFFERENT)


def _teller(run: str) -> Callable[[Message], None]:
    """Progress on standard error: a line that is written over on a terminal, now and then a line elsewhere."""
    from ablate.runner.progress import doing

    lines = [0.0]  # when the last one was printed

    def tell(message: Message) -> None:
        live = sys.stderr.isatty()
        now = time.monotonic()
        if now - lines[0] < (0.0 if live else _PLAIN_EVERY_S):
            return
        lines[0] = now
        of = f" of {message.steps:,}" if message.steps else ""
        line = visible(f"{run}: " + (doing(message) or f"step {message.step:,}{of}, {message.steps_per_s:.1f} steps/s"))
        # \r goes back to the first column, \x1b[K erases what a longer line left.
        print(f"\r{line}\x1b[K" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    return tell


@command()
def ledger_command(
    workspace: Workspace,
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="Only the entries of one study; all if left out.")
    ] = None,
) -> Result:
    """Read the ledger, entry by entry.

    Ends with the state of the chain and its head hash. A damaged ledger is shown as far as it is sound, and ends
    with 4.

    Example:  ablate ledger quickstart
    """
    from ablate.reporting.summaries.proof import ledger_section
    from prereg.registry.ledger import Ledger

    project, name = _named(study, workspace)
    # The entries up to the first fault: what comes after it is not shown as a fact.
    sound = Ledger(project.ledger).sound()
    if name is not None:
        _require_known(name, sound)
    facts = {
        "entries": [entry for entry in sound.entries if name in (None, entry.study)],
        "faults": sound.faults,
        "lines_beyond": sound.n_beyond,
        "torso_bytes": sound.torso_bytes,
        "head": sound.head,
    }
    ending = Exit.INADMISSIBLE if sound.faults else Exit.OK  # shown all the same, as far as it is sound
    return Result(facts, lambda: [ledger_section(sound, study=name)], exit=ending)


def _named(study: Path | None, workspace: Workspace) -> tuple[Root, str | None]:
    """The root, and the study's name if one is given; its file may be gone."""
    if study is None:
        return workspace.project, None
    if study.name == str(study) and study.suffix != ".yaml":  # a bare name, also of a study whose file is gone
        return workspace.project, study.name
    return Root.find(study, workspace.root), study.stem


def _require_known(name: str, sound: Sound) -> None:
    """A study that the sound part of the ledger knows; with damage, it may stand in the rest."""
    registered = {entry.study for entry in sound.entries}
    if name not in registered and not sound.faults:
        raise StudyFileError(
            f"no entry of the ledger is about '{name}'",
            required="a study that was registered",
            fix=nearest(name, registered) or "ablate ledger",
        )
