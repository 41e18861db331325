"""The verb that trains a recorded run again and compares."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import chain
from ablate.verbs.options import AsJson, Exit, RootFolder, StudyFile, console, put_json
from prereg.escape import visible

if TYPE_CHECKING:
    from ablate.runner.messages import Message

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
    from ablate.reporting.reproduction import print_reproduction

    found = chain.reproduce(study, run, steps=steps, within=within, keep=keep, root=root, onlooker=_teller(run))
    if as_json:
        whole = {"reproduced": found.reproduced, "exact": found.exact, **found.model_dump(mode="json")}
        put_json(json.dumps(whole, indent=2))
    else:
        print_reproduction(console(), found)
    if not found.reproduced:
        raise typer.Exit(Exit.DIFFERENT)


def _teller(run: str) -> Callable[[Message], None]:
    """Progress on standard error: a line that is written over on a terminal, now and then a line elsewhere."""
    from ablate.runner.progress import doing

    told = [0.0]

    def tell(message: Message) -> None:
        live = sys.stderr.isatty()
        now = time.monotonic()
        if now - told[0] < (0.0 if live else _PLAIN_EVERY_S):
            return
        told[0] = now
        of = f" of {message.steps:,}" if message.steps else ""
        line = visible(f"{run}: " + (doing(message) or f"step {message.step:,}{of}, {message.steps_per_s:.1f} steps/s"))
        print(f"\r{line}\x1b[K" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    return tell
