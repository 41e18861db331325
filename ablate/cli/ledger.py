"""The verb that reads the ledger: entry by entry, or as the programme of every test it registered."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate import api
from ablate.cli.options import AsJson, Exit, RootFolder, StudyFile, console, put_json

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
    from ablate.api import utc_now
    from ablate.reporting.summaries.proof import ledger_section, programme_section
    from ablate.reporting.terminal import show
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

        found = count_programme(
            Root.around(Path(), root), level=level, now=utc_now(), abandoned_after_days=abandoned_after
        )
        if as_json:
            put_json(found.model_dump_json(indent=2))
        else:
            show(console(), programme_section(found))
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
        show(console(), ledger_section(sound, study=name))
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
    from ablate.reporting.summaries import study as plan_summary
    from ablate.reporting.terminal import show

    if scale is None:
        runs = api.plan_runs(study, root=root)
        if as_json:
            put_json(json.dumps(asdict(runs), indent=2))
        else:
            show(console(), plan_summary.runs_section(runs))
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
        put_json(plan_summary.scale_json(found))
    else:
        show(console(), *plan_summary.scale_sections(found))
