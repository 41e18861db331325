"""The process of the built-in trainer: it serves a scheduler, one run or one cohort after another.

When its scheduler dies, standard input ends and the process ends at once: whatever was checkpointed is resumed by the
next `ablate run`.

Of a run that is spread over devices, `torchrun` starts this program once for each. The first rank serves the scheduler;
any other does what the first says, when it says so, and writes nothing but to the worker's log:

    first rank ─▶ rank   ("run", SPEC, CORPORA, DEVICE) for each configuration, then the names of the methods of
                         `Trainer` that all ranks carry out together, with their arguments, and "end" at last
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch

from ablate.records.store import RunFolder
from ablate.runner.builtin.cohort import carry_out_together
from ablate.runner.builtin.resources import CHECKPOINT_EVERY_S, LOST_A_RANK, THREADS
from ablate.runner.builtin.worker import Worker
from ablate.runner.layout import WHOLE, Spread
from ablate.runner.messages import Pipes
from ablate.training.device import CPU
from ablate.training.distributed import ALONE, Ranks, Replicated, Shard, is_lost_connection, join, part
from ablate.training.trainer import Trainer
from prereg.errors import EvidenceError
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
    spread = Spread(**given) if isinstance(given, dict) else WHOLE
    return Worker(
        corpora, pipes.say, pipes.stop, study_folder, spread=spread, ranks=ranks, device=device, root=root, deadly=True
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


STEPS_TOGETHER = ("begin", "restore", "step", "checkpoint", "whole_weights")
"""The methods of `Trainer` that the first rank may ask for."""
_LOOK_EVERY_S = 0.5


def follow(ranks: Replicated) -> NoReturn:
    """Follow the first rank until its orders end, and then end this process."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # an order to stop, which the first rank carries out
    try:
        _follow(ranks)
    except Exception as error:
        traceback.print_exc()
        if is_lost_connection(error):
            os._exit(LOST_A_RANK)
        ranks.report_error(error)
        os._exit(1)
    os._exit(0)


def end_with_launcher() -> None:
    """End this process when the launcher has gone, in a thread: nobody is left to notice that another rank dies."""
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(_LOOK_EVERY_S)
        disk.remove_all()
        os._exit(LOST_A_RANK)

    threading.Thread(target=watch, daemon=True).start()


def _follow(ranks: Replicated) -> None:
    workers: dict[str, Worker] = {}
    trainer: Trainer | None = None
    half_restored = False
    while True:
        order, words = ranks.receive()
        if order == "end":
            return
        if order == "run":
            spec, corpora, device = map(str, words)
            # The first rank alone talks to the scheduler, and alone decides when to stop.
            worker = workers.setdefault(corpora, Worker(Path(corpora), say=lambda _: None, stop=threading.Event()))
            trainer = _trainer(worker, RunSpec.model_validate_json(spec), device, ranks)
            continue
        assert order in STEPS_TOGETHER and trainer is not None, order
        # The first rank meets the same fault in the same file, and starts over; anything else would part their weights.
        assert order == "begin" or not half_restored, order
        half_restored = order == "restore" and not _restored(trainer, Path(str(words[0])))
        if order != "restore":
            getattr(trainer, order)(*words)


def _trainer(worker: Worker, spec: RunSpec, device: str, ranks: Replicated) -> Trainer:
    text = worker.text(spec)
    if device != CPU:
        device = f"cuda:{ranks.rank}"
        torch.cuda.set_device(ranks.rank)
    return Trainer(spec.config, text.split, text.tokenizer.size, ranks, device=device)


def _restored(trainer: Trainer, path: Path) -> bool:
    try:
        trainer.restore(path)
    except EvidenceError as error:
        print(error, file=sys.stderr, flush=True)
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
