"""The process of the built-in trainer: it serves a scheduler, one run after another.

When its scheduler dies, standard input ends and the process ends at once: whatever was checkpointed is resumed by the
next `ablate run`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from ablate.gpt.device import CPU
from ablate.records.store import RunFolder
from ablate.runner.builtin.resources import CHECKPOINT_EVERY_S, THREADS
from ablate.runner.builtin.run import Worker
from ablate.runner.messages import Pipes
from prereg.registry import disk
from prereg.registry.plan import RunSpec


def main() -> None:
    """Serve a scheduler over standard input and output."""
    torch.set_num_threads(THREADS)
    np.seterr(all="raise", under="ignore")
    pipes = Pipes()
    worker: Worker | None = None
    for order in pipes.orders(_leave):
        if worker is None:
            worker = _worker(pipes, order)
        every_s, until = order.get("checkpoint_every_s"), order.get("until")
        worker.checkpoint_every_s = float(every_s) if isinstance(every_s, int | float) else CHECKPOINT_EVERY_S
        spec = RunSpec.model_validate_json(json.dumps(order["spec"]))
        worker.carry_out(spec, RunFolder(Path(order["folder"])), until if isinstance(until, int) else None)


def _leave() -> NoReturn:
    """The scheduler is gone: nothing more may be written on its behalf."""
    disk.remove_all()
    os._exit(3)


def _worker(pipes: Pipes, order: dict[str, Any]) -> Worker:
    corpora, study_folder, root = (Path(str(order[place])) for place in ("corpora", "study_folder", "root"))
    device = str(order.get("device") or CPU)
    return Worker(corpora, pipes.say, pipes.stop, study_folder, device=device, root=root)


if __name__ == "__main__":
    main()
