"""A rank of a run other than the first: it does what the worker says, when it says so, and writes nothing.

    worker ─▶ follower   {"do": "join", ...}, then for each configuration {"do": "run", "words": [SPEC, PATHS]}, then
                         the names of the methods of `Trainer` that all ranks carry out together, with their words,
                         and {"do": "end"} at last

Everything it needs it makes itself: the corpus, the weights of the seed, the batch of a step, the masks. What it says
goes to its standard error, the worker's log.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from ablate.gpt.distributed import join
from ablate.gpt.paths import Paths
from ablate.gpt.train import Trainer
from ablate.run.equipment import THREADS
from ablate.run.worker import Worker
from prereg import scratch
from prereg.errors import EvidenceError
from prereg.plan import RunSpec

STEPS_TOGETHER = ("begin", "restore", "step", "checkpoint", "whole_weights")
"""The methods of `Trainer` that a worker may ask for."""
LOCK_PATIENCE_S = 5.0


def main() -> None:
    """Follow a worker until its orders end."""
    torch.set_num_threads(THREADS)
    np.seterr(all="raise", under="ignore")
    orders: queue.Queue[dict[str, Any]] = queue.Queue()

    def listen(lines: TextIO) -> None:
        # The worker is done or gone, and another rank may be waited for in vain: no order is finished first.
        meeting: Path | None = None
        for line in lines:
            order = json.loads(line)
            if order["do"] == "end":
                os._exit(0)
            if order["do"] == "join":
                meeting = Path(order["place"]).parent
            orders.put(order)
        _clear_up(meeting)
        os._exit(0)

    threading.Thread(target=listen, args=(sys.stdin,), daemon=True).start()
    first = orders.get()
    assert first["do"] == "join", first
    ranks = join(first["shard"], first["rank"], first["size"], place=Path(first["place"]))
    # The worker alone talks to the scheduler, and alone decides when to stop.
    texts = Worker(Path(first["corpora"]), say=lambda _: None, stop=threading.Event())
    trainer: Trainer | None = None
    half_restored = False
    while True:
        order = orders.get()
        if order["do"] == "run":
            spec = RunSpec.model_validate_json(order["words"][0])
            text = texts.text(spec)
            paths = Paths(**json.loads(order["words"][1]))
            trainer = Trainer(spec.config, text.split, text.tokenizer.size, paths, ranks)
            continue
        assert order["do"] in STEPS_TOGETHER and trainer is not None, order
        # The worker meets the same fault in the same file, and begins anew; anything else would part their weights.
        assert order["do"] == "begin" or not half_restored, order
        half_restored = order["do"] == "restore" and not _restored(trainer, Path(order["words"][0]))
        if order["do"] != "restore":
            getattr(trainer, order["do"])(*order["words"])


def _clear_up(meeting: Path | None) -> None:
    """A worker that was killed cannot. Its lock outlasts its words by a moment."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while meeting is not None and meeting.exists() and time.monotonic() < deadline:
        scratch.sweep()
        time.sleep(0.02)


def _restored(trainer: Trainer, path: Path) -> bool:
    try:
        trainer.restore(path)
    except EvidenceError as error:
        print(error, file=sys.stderr, flush=True)
        return False
    return True


if __name__ == "__main__":
    main()
