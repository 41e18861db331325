"""Verbs for whoever doubts: what is frozen, and whether it still is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.verbs.options import AsJson, Exit, RootFolder, console


def verify(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study file; all studies if left out.")
    ] = None,
    root: RootFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check every frozen byte and name what changed.

    Study, lock, ledger, sealed records, verdict; of one study, or of all.

    Example:  ablate verify studies/embnorm.yaml
    """
    from ablate.report import console as told
    from ablate.verify import verify_house, verify_study

    found = verify_study(study, root) if study is not None else verify_house(root)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        told.print_verification(console(), found)
    if not found.stands:
        raise typer.Exit(Exit.INADMISSIBLE)
