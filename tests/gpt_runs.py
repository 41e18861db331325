"""Single runs of the built-in trainer by the primitive that makes every run, with the trainer in this process.

To start a process takes seconds, and a signal from outside arrives at no particular step. So `ablate.gpt.main` is
called here in the place of a process, and sent SIGTERM, or given up as if it had been killed, after a chosen step.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO

import pytest

from ablate.gpt.main import main
from ablate.gpt.trainer import StepResult, Trainer
from ablate.records.store import RunFolder
from ablate.runner.messages import Message
from ablate.runner.process import Place, held, make_run
from prereg.registry.plan import CommandSpec, RunSpec


class KilledError(BaseException):
    """The trainer is gone, and whoever made the run with it."""


@dataclass
class Control:
    """What a scheduler would say."""

    stopped: bool = False

    def wait(self, timeout_s: float, output: Sequence[IO[bytes]] = ()) -> None:
        """Nothing happens meanwhile: the trainer has ended when it has been started."""


class Ended:
    """A trainer that has run in this process, as one that was started is handled."""

    peak_memory_bytes = 2**20

    def __init__(self, status: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        ended = subprocess.Popen(["true"])  # a number that belongs to no process
        ended.wait()
        self.pid, self.status = ended.pid, status
        self.stdout, self.stderr = stdout, stderr

    def poll(self) -> int:
        return self.status


def start_here(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Ended:
    """Make the run at once."""
    assert words[-2:] == ("-m", "ablate.gpt"), words
    stdout, stderr = StringIO(), StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status = main(environment)
    return Ended(status, _file_of(stdout), _file_of(stderr))


def _file_of(output: StringIO) -> IO[bytes]:
    """What its reader reads, and closes."""
    file = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115
    file.write(output.getvalue().encode())
    file.seek(0)
    return file


def carry_out(
    root: Path,
    folder: Path,
    spec: RunSpec | CommandSpec,
    *,
    stop_at: int | None = None,
    kill_at: int | None = None,
    checkpoint_every_s: float | None = None,
    until: int | None = None,
) -> Message:
    """One attempt at a run, and how it ended. Stopped once it is at a step; killed before it takes one, which raises
    `KilledError`."""
    control, taken = Control(), Trainer.step
    begun = Trainer.begin

    def stop() -> None:
        control.stopped = True
        os.kill(os.getpid(), signal.SIGTERM)

    def begin(trainer: Trainer, seed: int) -> dict[str, str]:
        hashes = begun(trainer, seed)
        if stop_at == 0 and not control.stopped:
            stop()
        return hashes

    def step(trainer: Trainer) -> StepResult:
        if trainer.progress.step + 1 == kill_at:
            raise KilledError
        result = taken(trainer)
        if result.step == stop_at:
            stop()
        return result

    place = Place(root, checkpoint_every_s=checkpoint_every_s, until=until)
    target = RunFolder(folder)
    with held(target), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        patch.setattr(Trainer, "begin", begin)
        return make_run(spec, target, place, control, lambda _: None, start=start_here)
