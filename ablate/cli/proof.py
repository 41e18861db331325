"""Verbs that check a study and bundle it: here, and in one file for others."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import api
from ablate.cli.options import AsJson, Exit, RootFolder, StudyFile, console, put, put_json
from prereg.escape import visible

if TYPE_CHECKING:
    from ablate.runner.messages import Message


def verify(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study file or a bundle; all studies if left out.")
    ] = None,
    root: RootFolder = None,
    as_json: AsJson = False,
    *,
    signers: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Believe these ssh keys (studies/allowed_signers).")
    ] = None,
    roots: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Believe these authorities (studies/timestamp_roots.pem)."),
    ] = None,
) -> None:
    """Check every frozen byte and name what changed.

    Study, lock, pinned code, ledger, seals, sealed records, verdict; of one study, or of all. Asks no server. Of a
    bundle, with nothing but its file. Derives outcomes and judges the verdict again where the
    records are here; ends with 4 if something has changed, or if the records give no verdict.

    Example:  ablate verify studies/embnorm.yaml
    """
    from ablate.reporting.summaries.proof import bundle_check_section, verification_section
    from ablate.reporting.terminal import show
    from ablate.verification.verify import verify_house, verify_study

    if study is not None and _is_bundle(study):
        checked = api.check_bundle(study, signers=signers, roots=roots)
        if as_json:
            put_json(checked.model_dump_json(indent=2))
        else:
            show(console(), bundle_check_section(checked))
        if not checked.intact or checked.inadmissible:
            raise typer.Exit(Exit.INADMISSIBLE)
        return
    if study is not None:
        found = verify_study(study, root, signers=signers, roots=roots)
    else:
        found = verify_house(root, signers=signers, roots=roots)
    if as_json:
        put_json(found.model_dump_json(indent=2))
    else:
        show(console(), verification_section(found))
    if not found.intact or found.inadmissible:
        raise typer.Exit(Exit.INADMISSIBLE)


def bundle(
    study: StudyFile,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write (default: STUDY.ablate.zip).")
    ] = None,
    root: RootFolder = None,
    *,
    whole_ledger: Annotated[
        bool, typer.Option("--whole-ledger", help="Show the entries of other studies too, not only their links.")
    ] = False,
    weights: Annotated[bool, typer.Option("--weights", help="Include the trained weights.")] = False,
) -> None:
    """Write a study into one file that others can check.

    Lock, ledger, sealed records, verdict and reports. `ablate verify FILE` needs no repository, corpus or network.

    Example:  ablate bundle studies/embnorm.yaml
    """
    from ablate.reporting.summaries.proof import bundle_section
    from ablate.reporting.terminal import show

    made = api.bundle(study, root=root, out=out, whole_ledger=whole_ledger, weights=weights)
    show(console(), bundle_section(made.path, made.check, written=made.written))
    put(f"next:  ablate verify {made.path}")


def _is_bundle(path: Path) -> bool:
    """Whether a word on the command line means a bundle: by its name, or by its first bytes whatever its name."""
    if path.suffix == ".zip":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


_PLAIN_EVERY_S = 10.0


def reproduce(
    study: StudyFile,
    run: Annotated[str, typer.Option("--run", metavar="VARIANT/SEED", help="The sealed run to make again.")],
    root: RootFolder = None,
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
    as_json: AsJson = False,
) -> None:
    """Train one sealed run again and compare every bit.

    Every repeatable metric at every step and the final weights, against the sealed record. It is made in a scratch
    folder; record and ledger stay as they are. Ends with 0 if reproduced and 1 if not.

    Example:  ablate reproduce studies/embnorm.yaml --run layernorm/1
    """
    from ablate.reporting.summaries.run import reproduction_section
    from ablate.reporting.terminal import show

    found = api.reproduce(study, run, steps=steps, within=within, keep=keep, root=root, onlooker=_teller(run))
    if as_json:
        whole = {"reproduced": found.reproduced, "exact": found.exact, **found.model_dump(mode="json")}
        put_json(json.dumps(whole, indent=2))
    else:
        show(console(), reproduction_section(found))
    if not found.reproduced:
        raise typer.Exit(Exit.DIFFERENT)


def _teller(run: str) -> Callable[[Message], None]:
    """Progress on standard error: a line that is written over on a terminal, now and then a line elsewhere."""
    from ablate.runner.progress import doing

    lines = [0.0]

    def tell(message: Message) -> None:
        live = sys.stderr.isatty()
        now = time.monotonic()
        if now - lines[0] < (0.0 if live else _PLAIN_EVERY_S):
            return
        lines[0] = now
        of = f" of {message.steps:,}" if message.steps else ""
        line = visible(f"{run}: " + (doing(message) or f"step {message.step:,}{of}, {message.steps_per_s:.1f} steps/s"))
        print(f"\r{line}\x1b[K" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    return tell
