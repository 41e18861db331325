"""What the user of `ablate run` chooses for one call. None of it is registered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """Passed whole from the command line, or a notebook, to the scheduler. Checked where each is used."""

    slots: int | None = None
    """Runs side by side; by default one per core; of a user's own trainer or on an accelerator one per GPU, or one."""
    only: tuple[str, ...] = ()
    """ARM/SEED of the runs to make; all by default."""
    next_look: bool = False
    """Stop at the next look of a sequential study, which is always so; refused for a fixed number of seeds."""
    checkpoint_every_s: float | None = None
    """Seconds between checkpoints of a run. Moves no bit."""
    devices_per_run: int = 1
    """Devices that each run is spread over. A run is spread, or trained together with others, not both."""
    shard: str | None = None
    """With several devices: ddp (whole weights on each) or fsdp (cut over them); by default ddp."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    cohort: str = "auto"
    """auto, on, off, or how many seeds at most are trained together."""
    step: str = "auto"
    """How steps of runs trained together are computed: auto, eager or compiled."""
