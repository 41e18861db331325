"""Verbs for whoever doubts: what is frozen, whether it still is, and a file with which to ask that elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import chain
from ablate.verbs.options import AsJson, Exit, Ots, RootFolder, Sign, StudyFile, Timestamp, console

if TYPE_CHECKING:
    from ablate.attest import Sealing

_HELD = {
    "the same bytes": "it holds the lock, byte for byte",
    "other bytes": "it holds other bytes in place of the lock: git commit, then ablate seal again",
    "absent": "it does not hold the lock yet: git commit, then ablate seal",
}


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

    Study, lock, ledger, seals, sealed records, verdict; of one study, or of all. Asks no server. Of a bundle, with
    nothing but its file: every byte, and the verdict judged again from the records.

    Example:  ablate verify studies/embnorm.yaml
    """
    from ablate.report import console as told
    from ablate.verify import verify_house, verify_study

    if study is not None and _is_bundle(study):
        checked = chain.check_bundle(study, signers=signers, roots=roots)
        if as_json:
            print(checked.model_dump_json(indent=2))
        else:
            told.print_bundle_check(console(), checked)
        if not checked.stands:
            raise typer.Exit(Exit.INADMISSIBLE)
        return
    if study is not None:
        found = verify_study(study, root, signers=signers, roots=roots)
    else:
        found = verify_house(root, signers=signers, roots=roots)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        told.print_verification(console(), found)
    if not found.stands:
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
    weights: Annotated[bool, typer.Option("--weights", help="Take the trained weights in.")] = False,
) -> None:
    """Write a study into one file that others can check.

    Lock, ledger, sealed records, verdict and reports. `ablate verify FILE` needs no repository, corpus or network.

    Example:  ablate bundle studies/embnorm.yaml
    """
    from ablate.report import console as told

    made = chain.bundle(study, root=root, out=out, whole_ledger=whole_ledger, weights=weights)
    told.print_bundled(console(), made.path, made.check, written=made.written)
    print(f"next:  ablate verify {made.path}")


def _is_bundle(path: Path) -> bool:
    """Whether a word on the command line means a bundle: by its name, or by its first bytes whatever its name."""
    if path.suffix == ".zip":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def seal(
    study: StudyFile,
    root: RootFolder = None,
    *,
    sign: Sign = None,
    timestamp: Timestamp = None,
    ots: Ots = False,
) -> None:
    """Seal a registration for others, or pay what is owed.

    With no option: asks again for what could not be had, completes what calendars promised, and records the
    git commit. Ends with 5 while something is still owed. What seals prove is printed by ablate verify.

    Example:  ablate seal studies/embnorm.yaml --sign ~/.ssh/id_ed25519
    """
    from ablate import attest

    sealing = attest.seal(study, root=root, sign=sign, timestamp=timestamp, ots=ots)
    tell_seals(sealing, study)
    if sealing.owed:
        raise typer.Exit(Exit.INCOMPLETE)


def tell_seals(sealing: Sealing, study: Path) -> None:
    """What was sealed and what is owed, and the ledger's head after it."""
    from prereg.seals.attested import PROOFS

    for told in sealing.made:
        when = "" if told.time is None else f" at {told.time}"
        print(f"{PROOFS[told.kind].name}: {told.by}{when}")
        if told.file is not None:
            print(f"  wrote {told.file}")
        if told.git is not None:
            print(f"  {_HELD[told.git.lock]}")
            if not told.git.clean:
                print(f"  other files that differ from it, or are not in it: {told.git.n_changed}")
    for note in sealing.notes:
        print(note)
    for told in sealing.owed:
        print(f"{PROOFS[told.kind].name} OWED: {told.why}")
        print(f"  to pay:  ablate seal {study}")
    print(f"ledger head {sealing.head}")
