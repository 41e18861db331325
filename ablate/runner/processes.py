"""A worker as its scheduler sees it: a process with an environment of its own, the job it is on, and orders to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Protocol

from ablate.runner.layout import WHOLE, Spread
from ablate.training.device import CPU, EAGER, ENVIRONMENT
from prereg.registry import disk
from prereg.registry.plan import CommandSpec, RunSpec

Spec = RunSpec | CommandSpec

ALONE: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # Freed memory stays with the process, and comes in large pages: a step otherwise asks the kernel for the same
    # pages again and again, a tenth of its time. Other C libraries ignore it.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=8589934592"
    ":glibc.malloc.mmap_threshold=8589934592:glibc.malloc.top_pad=268435456",
}
"""Environment of a worker that trains many runs side by side."""


@dataclass(frozen=True)
class Job:
    """What a worker is sent: one run, or the runs of a variant that are trained together."""

    specs: tuple[Spec, ...]
    members: tuple[int, ...] = ()
    """The seeds of a cohort, with those that have ended; none for a run by itself."""
    step: str = EAGER
    """How a cohort's steps are computed."""


@dataclass
class WorkerProcess:
    """One worker, the job it is on, and the runs of the job that have not ended."""

    process: subprocess.Popen[str]
    number: int
    lane: int = 0
    """Which of the slots it has, and with it which GPUs."""
    job: Job | None = None
    open: dict[str, Spec] = field(default_factory=dict)
    stopping: bool = False
    idle: bool = False
    """Whether it waits because other parts are at work on all that is left."""
    heard: float = field(default_factory=time.monotonic)
    """When it last said something."""

    def send(self, command: dict[str, object]) -> None:
        """One command. A worker that has just died is noticed by its reader, not here."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()

    def end(self, patience_s: float | None = None) -> None:
        """No more commands, which ends an idle worker; one that outlasts the patience is killed."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_worker(
    *, own: bool, log: IO[str], device: str = CPU, gpus: Sequence[str] = (), spread: Spread = WHOLE
) -> subprocess.Popen[str]:
    """A worker process: of a user's own trainer, or of the built-in one for a device, or for several by `torchrun`.

    It sees the named GPUs alone.
    """
    # A user's own trainer keeps its threads to itself; the built-in one trains many runs side by side.
    needed = {} if own else ALONE if device == CPU else {**ALONE, **ENVIRONMENT}
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    program = ["-m", "ablate.runner.external.trainer" if own else "ablate.runner.builtin.process"]
    if spread.devices > 1 and not own:
        processes = f"--nproc-per-node={spread.devices}"
        logs = f"--log-dir={disk.make('torchrun')}"  # its own default is a folder that nobody removes
        program = ["-m", "torch.distributed.run", "--standalone", processes, logs, *program, spread.shard]
    return subprocess.Popen(
        [sys.executable, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
        env={**os.environ, **needed, **seen},
    )


class Interruptible(Protocol):
    """What counts how often it was interrupted."""

    interrupts: int


@contextmanager
def interrupts_heard(heard: Interruptible) -> Iterator[None]:
    """Ctrl-C and SIGTERM become a count, so that no ledger append is ever cut in two by an exception."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def count(_signal: int, _frame: object) -> None:
        heard.interrupts += 1

    earlier = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
