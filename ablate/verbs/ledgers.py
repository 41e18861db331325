"""The verb that reads the ledger: entry by entry, or as the programme of every test it registered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.verbs.options import AsJson, Exit, RootFolder, console, put_json

if TYPE_CHECKING:
    from prereg.registry.ledger import Sound
    from prereg.registry.paths import Root


def ledger(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="Only the entries of one study; all if left out.")
    ] = None,
    root: RootFolder = None,
    *,
    hypotheses: Annotated[
        bool, typer.Option("--hypotheses", help="Count every hypothesis ever registered, and how it ended.")
    ] = False,
    level: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="With --hypotheses: the false discovery rate over all of them.")
    ] = 0.05,
    abandoned_after: Annotated[
        int, typer.Option(min=1, metavar="DAYS", help="With --hypotheses: silence after which a study is abandoned.")
    ] = 90,
    as_json: AsJson = False,
) -> None:
    """Read the ledger, entry by entry.

    Ends with the state of the chain and its head hash. A damaged ledger is shown as far as it is sound, and ends
    with 4. --hypotheses counts every test this repository ever registered, decided or not, and gives the false
    discovery rate over all of them (Benjamini-Hochberg, and LORD++ in the order of decisions); no verdict changes.

    Example:  ablate ledger --hypotheses
    """
    from ablate.chain import utc_now
    from prereg.errors import SpecError
    from prereg.registry.ledger import Ledger
    from prereg.registry.paths import Root

    if hypotheses and study is not None:
        raise SpecError(
            "--hypotheses with a study: a rate over all tests is not one study's",
            required="every study of the repository",
            fix="ablate ledger --hypotheses",
        )
    if hypotheses:
        from ablate.judge.programme import count_programme
        from ablate.reporting.programme_lines import print_programme

        found = count_programme(
            Root.around(Path(), root), level=level, now=utc_now(), abandoned_after_days=abandoned_after
        )
        if as_json:
            put_json(found.model_dump_json(indent=2))
        else:
            print_programme(console(), found)
        if found.faults:
            raise typer.Exit(Exit.INADMISSIBLE)
        return
    house, name = _named(study, root)
    sound = Ledger(house.ledger).sound()
    if name is not None:
        _require_known(name, sound)
    if as_json:
        shown = [entry.model_dump(mode="json") for entry in sound.entries if name in (None, entry.study)]
        state = {"faults": sound.faults, "lines_beyond": sound.n_beyond, "torso_bytes": sound.torso_bytes}
        put_json(json.dumps({"entries": shown, **state, "head": sound.head}, indent=2, ensure_ascii=False))
    else:
        from ablate.reporting.ledger_lines import print_ledger

        print_ledger(console(), sound, study=name)
    if sound.faults:
        raise typer.Exit(Exit.INADMISSIBLE)


def _named(study: Path | None, given: Path | None) -> tuple[Root, str | None]:
    """The root, and the study's name if one is given; its file may be gone."""
    from prereg.registry.paths import Root

    if study is None:
        return Root.around(Path(), given), None
    if study.name == str(study) and study.suffix != ".yaml":
        return Root.around(Path(), given), study.name
    return Root.find(study, given), study.stem


def _require_known(name: str, sound: Sound) -> None:
    """A study that the sound part of the ledger knows; with damage, it may stand in the rest."""
    from prereg.errors import StudyFileError, nearest

    known = {entry.study for entry in sound.entries}
    if name not in known and not sound.faults:
        raise StudyFileError(
            f"no entry of the ledger is about '{name}'",
            required="a study that was registered",
            fix=nearest(name, known) or "ablate ledger",
        )
