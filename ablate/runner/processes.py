"""A worker as its scheduler sees it: a process with an environment of its own, the job it is on, and orders to it.

And one run in a folder of its own, by a worker like any other, without a ledger or a scheduler: `run_alone`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO, Protocol

from pydantic import ValidationError

from ablate.gpt.device import CPU, ENVIRONMENT, choose_device
from ablate.records.provenance import NOT_STATED
from ablate.records.store import RunFolder
from ablate.runner.messages import Message
from prereg.errors import RunError
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec, RunSpec
from prereg.registry.registration import folder_of_study

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


@dataclass
class WorkerProcess:
    """One worker, and the run that it makes."""

    process: subprocess.Popen[str]
    number: int
    lane: int = 0
    """Which of the slots it has, and with it which GPUs."""
    spec: Spec | None = None
    """The run that it makes, until that has ended."""
    ready: bool = False
    """Whether it has said that it takes orders."""
    stopping: bool = False
    idle: bool = False
    """Whether it waits because other parts are at work on all that is left."""

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


def start_worker(*, own: bool, log: IO[str], device: str = CPU, gpus: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A worker process: of a user's own trainer, or of the built-in one for a device.

    It sees the named GPUs alone.
    """
    # A user's own trainer keeps its threads to itself; the built-in one trains many runs side by side.
    needed = {} if own else ALONE if device == CPU else {**ALONE, **ENVIRONMENT}
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    program = "ablate.runner.worker" if own else "ablate.runner.builtin.process"
    return subprocess.Popen(
        [sys.executable, "-m", program],
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


PATIENCE_S = 10.0


def rerun(
    spec: Spec,
    folder: Path,
    root: Root,
    *,
    made_on: str = CPU,
    until: int | None = None,
    onlooker: Callable[[Message], None] | None = None,
) -> RunFolder:
    """The folder of a registered run, sealed, or after step `until` as it is then. Raises `RunError` where it fails.

    By itself, on one device: a run that was made on an accelerator, on one where there is one.
    """
    study_folder = folder_of_study(root, spec.study)
    device = choose_device(CPU if made_on in (CPU, NOT_STATED) else "auto")
    alone = {"until": until}
    last = run_alone(spec, folder, root, study_folder, device=device, order=alone, onlooker=onlooker)
    if last.status == "failed":
        raise RunError(f"the run failed: {last.error}", required="a run that ends")
    return RunFolder(folder)


def run_alone(
    spec: Spec,
    folder: Path,
    root: Root,
    study_folder: Path,
    *,
    device: str = CPU,
    order: Mapping[str, object] | None = None,
    limit_s: float | None = None,
    onlooker: Callable[[Message], None] | None = None,
) -> Message:
    """What a worker says at the end of a run: ended, or stopped, which it is `limit_s` seconds after it has begun.

    `order` adds to what the scheduler would send. Raises `RunError` where the worker dies.
    """
    with TemporaryFile("w+", encoding="utf-8") as log:
        own = isinstance(spec, CommandSpec)
        worker = WorkerProcess(start_worker(own=own, log=log, device=device), 0)
        limit = Timer(limit_s or 0.0, worker.send, ({"do": "stop"},))
        try:
            worker.send(
                {
                    "do": "run",
                    "spec": spec.model_dump(mode="json"),
                    "folder": str(folder),
                    "corpora": str(root.corpora),
                    "root": str(root.path),
                    "study_folder": str(study_folder),
                    "device": device,
                    **(order or {}),
                }
            )
            last = _follow(worker, onlooker, limit if limit_s is not None else None)
        finally:
            limit.cancel()
            worker.end(PATIENCE_S)  # the end of its input ends a worker, whatever it is at, with its child
            assert worker.process.stdout is not None
            worker.process.stdout.close()
        if last is None or last.event not in ("ended", "stopped"):
            log.seek(0)
            said = " / ".join(log.read().strip().splitlines()[-3:])
            raise RunError(
                f"the worker died (exit {worker.process.returncode})" + (f"; its last words: {said}" if said else ""),
                required="a run that ends",
            )
    return last


def _follow(worker: WorkerProcess, onlooker: Callable[[Message], None] | None, limit: Timer | None) -> Message | None:
    """Listen until the run has ended. The last words, of a worker that went away too."""
    assert worker.process.stdout is not None
    last = None
    for line in worker.process.stdout:
        try:
            message = Message.model_validate_json(line)
        except ValidationError:
            return None
        if message.waits:
            worker.send({"do": "noted"})  # this run is in no ledger
        if message.event == "begun" and limit is not None:
            limit.start()
        if message.event in ("ready", "begun"):
            continue
        last = message
        if message.event in ("ended", "stopped"):
            break
        if onlooker is not None and message.event == "progress":
            onlooker(message)
    return last
