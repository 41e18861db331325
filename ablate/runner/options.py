"""Options of `ablate run` (`RunOptions`), chosen for one call. None of it is registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunOptions:
    """Passed whole from the command line, or a notebook, to the scheduler. Checked where each is used.

    To add an option: a field here, its flag in `ablate.cli.runs`, its use in `ablate.runner.local` or a launcher. Only
    what moves no bit of a run: anything else is part of the study.
    """

    slots: int | None = None
    """Runs side by side; by default one per core, or per GPU, and fewer where memory is known to be
    short; 0 makes none, and only takes in what other processes have made."""

    only: tuple[str, ...] = ()
    """ARM/SEED of the runs to make; all by default."""

    next_look: bool = False
    """Stop at the next look of a sequential study, which is always so; refused for a fixed number of seeds."""

    checkpoint_every_s: float | None = None
    """Seconds between checkpoints of a run. Moves no bit."""

    devices_per_run: int = 1
    """GPUs that each run of a user's own trainer sees."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    on: Literal["local", "slurm", "ray"] = "local"
    """Processes of this machine; tasks of a Slurm job array, submitted and not waited for; tasks of Ray."""

    tasks: int | None = None
    """Of Slurm: tasks of the array; of Ray: tasks at a time."""

    slurm: tuple[str, ...] = ()
    """KEY=VALUE of a Slurm job, over `cluster.yaml`."""

    address: str | None = None
    """Of a Ray cluster; by default one on this machine."""
