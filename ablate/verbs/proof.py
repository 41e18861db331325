"""Verbs that check a study and bundle it: here, and in one file for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate import chain
from ablate.verbs.options import AsJson, Exit, RootFolder, StudyFile, console, put, put_json


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
    from ablate.reporting.proof_lines import print_bundle_check, print_verification
    from ablate.verify import verify_house, verify_study

    if study is not None and _is_bundle(study):
        checked = chain.check_bundle(study, signers=signers, roots=roots)
        if as_json:
            put_json(checked.model_dump_json(indent=2))
        else:
            print_bundle_check(console(), checked)
        if not checked.stands or checked.inadmissible:
            raise typer.Exit(Exit.INADMISSIBLE)
        return
    if study is not None:
        found = verify_study(study, root, signers=signers, roots=roots)
    else:
        found = verify_house(root, signers=signers, roots=roots)
    if as_json:
        put_json(found.model_dump_json(indent=2))
    else:
        print_verification(console(), found)
    if not found.stands or found.inadmissible:
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
    from ablate.reporting.proof_lines import print_bundled

    made = chain.bundle(study, root=root, out=out, whole_ledger=whole_ledger, weights=weights)
    print_bundled(console(), made.path, made.check, written=made.written)
    put(f"next:  ablate verify {made.path}")


def _is_bundle(path: Path) -> bool:
    """Whether a word on the command line means a bundle: by its name, or by its first bytes whatever its name."""
    if path.suffix == ".zip":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"
