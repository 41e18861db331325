"""A rank of a run other than the first: it does what the first says, when it says so, and writes nothing.

    first rank ─▶ rank   ("run", SPEC, PATHS, CORPORA, DEVICE) for each configuration, then the names of the methods of
                         `Trainer` that all ranks carry out together, with their arguments, and "end" at last

Everything it needs it makes itself: the corpus, the weights of the seed, the batch of a step, the masks. What it prints
goes to the worker's log.
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
from typing import NoReturn

import torch

from ablate.runner.builtin.equipment import LOST_A_RANK
from ablate.runner.builtin.worker import Worker
from ablate.training.device import CPU
from ablate.training.distributed import Replicated, is_lost_connection
from ablate.training.kernels.backends import Paths
from ablate.training.trainer import Trainer
from prereg.errors import EvidenceError
from prereg.registry import disk
from prereg.registry.plan import RunSpec

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
            spec, paths, corpora, device = map(str, words)
            # The first rank alone talks to the scheduler, and alone decides when to stop.
            worker = workers.setdefault(corpora, Worker(Path(corpora), say=lambda _: None, stop=threading.Event()))
            trainer = _trainer(worker, RunSpec.model_validate_json(spec), Paths(**json.loads(paths)), device, ranks)
            continue
        assert order in STEPS_TOGETHER and trainer is not None, order
        # The first rank meets the same fault in the same file, and begins anew; anything else would part their weights.
        assert order == "begin" or not half_restored, order
        half_restored = order == "restore" and not _restored(trainer, Path(str(words[0])))
        if order != "restore":
            getattr(trainer, order)(*words)


def _trainer(worker: Worker, spec: RunSpec, paths: Paths, device: str, ranks: Replicated) -> Trainer:
    text = worker.text(spec)
    if device != CPU:
        device = f"cuda:{ranks.rank}"
        torch.cuda.set_device(ranks.rank)
    return Trainer(spec.config, text.split, text.tokenizer.size, paths, ranks, device=device)


def _restored(trainer: Trainer, path: Path) -> bool:
    try:
        trainer.restore(path)
    except EvidenceError as error:
        print(error, file=sys.stderr, flush=True)
        return False
    return True
