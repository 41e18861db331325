"""The process of the built-in trainer: it serves a scheduler, one run or one cohort after another.

When its scheduler dies, standard input ends and the process ends at once: whatever was checkpointed is resumed by the
next `ablate run`. Of a run that is spread over devices, `torchrun` starts this program once for each: the first rank
serves the scheduler, the others follow it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch

from ablate.records.store import RunFolder
from ablate.runner.builtin.cohort import carry_out_together
from ablate.runner.builtin.equipment import CHECKPOINT_EVERY_S, THREADS
from ablate.runner.builtin.rank import end_with_launcher, follow
from ablate.runner.builtin.worker import Worker
from ablate.runner.messages import Pipes
from ablate.runner.placement import Spread
from ablate.training.device import CPU
from ablate.training.distributed import ALONE, Ranks, Shard, join, part
from prereg.registry import disk
from prereg.registry.plan import RunSpec


def main(shard: str | None = None) -> None:
    """Serve a scheduler over standard input and output; with `shard` as one of the processes that torchrun started."""
    torch.set_num_threads(THREADS)
    np.seterr(all="raise", under="ignore")
    pipes = Pipes()
    ranks = ALONE if shard is None else _join(cast(Shard, shard))
    worker: Worker | None = None
    for order in pipes.orders(_leave):
        if worker is None:
            worker = _worker(pipes, order, ranks)
        every_s = order.get("checkpoint_every_s")
        worker.checkpoint_every_s = float(every_s) if isinstance(every_s, int | float) else CHECKPOINT_EVERY_S
        _obey(worker, order)
    if ranks.busy:
        _leave()
    ranks.send("end")
    part()


def _join(shard: Shard) -> Ranks:
    """The first rank joins the others. Any other follows it from here to its end."""
    end_with_launcher()
    ranks = join(shard)
    if ranks.rank > 0:
        follow(ranks)
    return ranks


def _leave() -> NoReturn:
    """The scheduler is gone, or the other ranks are: nothing more may be written on its behalf."""
    disk.remove_all()
    os._exit(3)


def _worker(pipes: Pipes, order: dict[str, Any], ranks: Ranks) -> Worker:
    corpora, study_folder, root = (Path(str(order[place])) for place in ("corpora", "study_folder", "root"))
    given, device = order.get("spread"), str(order.get("device") or CPU)
    spread = Spread(**given) if isinstance(given, dict) else Spread()
    return Worker(
        corpora,
        pipes.say,
        pipes.stop,
        study_folder,
        spread=spread,
        ranks=ranks,
        device=device,
        root=root,
        deadly=True,
    )


def _obey(worker: Worker, order: dict[str, Any]) -> None:
    """One run by itself, or several together."""
    if order["do"] == "run":
        spec = RunSpec.model_validate_json(json.dumps(order["spec"]))
        until = order.get("until")
        worker.carry_out(spec, RunFolder(Path(order["folder"])), until if isinstance(until, int) else None)
        return
    specs = [RunSpec.model_validate_json(json.dumps(spec)) for spec in order["specs"]]
    folders = [RunFolder(Path(folder)) for folder in order["folders"]]
    assigned = list(zip(specs, folders, strict=True))
    carry_out_together(worker, assigned, tuple(order["members"]), Path(order["checkpoint"]), str(order["step"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
