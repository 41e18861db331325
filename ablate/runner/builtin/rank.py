"""A rank of a run other than the first: it does what the worker says, when it says so, and writes nothing.

    worker ─▶ rank       {"do": "join", ...}, then for each configuration {"do": "run", "words": [SPEC, PATHS]}, then
                         the names of the methods of `Trainer` that all ranks carry out together, with their words,
                         and {"do": "end"} at last

Everything it needs it makes itself: the corpus, the weights of the seed, the batch of a step, the masks. What it says
goes to its standard error, the worker's log.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from ablate.runner.builtin.equipment import THREADS
from ablate.runner.builtin.worker import Worker
from ablate.training.distributed import join, meeting_at
from ablate.training.kernels.backends import Paths
from ablate.training.trainer import Trainer
from prereg.errors import EvidenceError
from prereg.registry import disk
from prereg.registry.plan import RunSpec

STEPS_TOGETHER = ("begin", "restore", "step", "checkpoint", "whole_weights")
"""The methods of `Trainer` that a worker may ask for."""
LOCK_PATIENCE_S = 5.0
LAST_WORDS_S = 2.0
"""How long the words of a worker that was killed may take to end, after what was done together with it has broken."""
MEETING_PATIENCE_S = 60.0
"""What opening the file where ranks meet may take: milliseconds on an idle machine."""


def main() -> None:
    """Follow a worker until its orders end."""
    torch.set_num_threads(THREADS)
    np.seterr(all="raise", under="ignore")
    orders: queue.Queue[dict[str, Any]] = queue.Queue()
    # Between clearing up and opening the file where ranks meet: whichever is begun is ended before the other.
    meeting_gate = threading.Lock()
    worker_gone = threading.Event()

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
        worker_gone.set()
        with meeting_gate:
            _clear_up(meeting)
            os._exit(0)

    listener = threading.Thread(target=listen, args=(sys.stdin,), daemon=True)
    listener.start()
    try:
        _follow(orders, meeting_gate)
    except Exception:
        # What ranks do together breaks when the worker is killed, it may be a moment before its words end. Any process
        # that listens then clears up, and ends this process.
        traceback.print_exc()
        if worker_gone.wait(LAST_WORDS_S):
            listener.join(LOCK_PATIENCE_S + 1.0)
        sys.exit(1)


def _follow(orders: queue.Queue[dict[str, Any]], meeting_gate: threading.Lock) -> None:
    first = orders.get()
    assert first["do"] == "join", first
    place, size = Path(first["place"]), first["size"]
    with meeting_gate, _ended_by_the_kernel_after(MEETING_PATIENCE_S):
        if not place.parent.exists():
            sys.exit(f"the folder where the ranks of a run were to meet is gone: {place.parent}")
        store = meeting_at(place, size)
    ranks = join(first["shard"], first["rank"], size, store=store)
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


@contextmanager
def _ended_by_the_kernel_after(seconds: float) -> Iterator[None]:
    """End this process where the block takes longer, though no thread of Python may run meanwhile.

    Somebody else can remove the folder (another rank whose worker was killed, any process that sweeps) between the look
    at it and the opening of the file in it, which would then keep the listening thread from ending this process.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler of Python would wait for the interpreter's lock as well
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _clear_up(meeting: Path | None) -> None:
    """A worker that was killed cannot. Its lock outlasts its words by a moment."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while meeting is not None and meeting.exists() and time.monotonic() < deadline:
        disk.sweep()
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
