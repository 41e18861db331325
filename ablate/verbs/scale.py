"""The verb that says what a study will cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ablate import chain
from ablate.verbs.options import AsJson, RootFolder, StudyFile, console, put_json


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
    from ablate.reporting import scale_table

    if scale is None:
        runs = chain.plan_runs(study, root=root)
        if as_json:
            put_json(json.dumps(asdict(runs), indent=2))
        else:
            scale_table.print_runs(console(), runs.study, len(runs.seeds), runs.arms)
        return
    found = chain.plan_at_scale(
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
        put_json(scale_table.as_json(found))
    else:
        scale_table.print_scale(console(), found)
