"""What a worker and its scheduler say to each other: one JSON object a line, over pipes. No pickle.

scheduler ─▶ worker   {"do": "run", "spec": ..., "folder": ..., "corpora": ..., "root": ..., "device": ...,
                       "checkpoint_every_s": ..., "spread": ..., "until": ...}, {"do": "stop"},
                      {"do": "cohort", "specs": [...], "folders": [...], "seats": [...], "step": ...,
                       "checkpoint": ..., ...}, {"do": "noted"} once the ledger holds the start of a run
worker ─▶ scheduler   Message, below
"""

from __future__ import annotations

from typing import Literal

from prereg.frozen import Part
from prereg.metrics.user_code import EXIT_STATUS


class Asking(Part):
    """How far a run has been asked its tasks: counts and seconds, never an answer."""

    tasks: str
    """What it is asked, as the study names it."""
    shots: int = 0
    """Examples in the prompts that are being asked."""
    requests: int = 0
    """Requests answered."""
    of: int = 0
    """Requests in all; 0 before they are known."""
    seconds: float = 0.0
    """Since it began to be asked."""
    seconds_left: float | None = None
    """About how long the rest takes; none before there is a speed to go by."""


class Measuring(Part):
    """A metric of the study's own that is being taken: code that may never end."""

    metric: str
    """Its name."""
    limit_s: float
    """Seconds that it may take, as registered."""


class Message(Part):
    """One line from a worker. It tells of health and progress only, never of a metric that could favour an arm."""

    event: Literal["ready", "begun", "progress", "ended", "stopped", "note"]
    """ready for a run; begun, with its record written and no step taken; still going; ended (see status); stopped on
    request and saved; something a user should know."""
    run_id: str | None = None
    """Which run."""
    step: int = 0
    """Steps taken."""
    steps: int = 0
    """Steps planned."""
    steps_per_s: float = 0.0
    """Speed since the last line."""
    falling: bool | None = None
    """Whether the training loss is below where it began; none before it is known."""
    asking: Asking | None = None
    """While a trained run is asked its tasks."""
    measuring: Measuring | None = None
    """While a metric of the study's own is taken."""
    status: Literal["done", "diverged", "failed"] | None = None
    """How it ended."""
    error: str | None = None
    """Last line of the error of a failed run."""
    text: str = ""
    """Of a note: one line. The same line of several workers is told once."""
    attempt: int = 0
    """Of a run that has begun: which start of its record this is, from 1."""
    resumed: bool = False
    """Of a run that has begun: whether it goes on from a checkpoint, at `step`."""
    made_with: str = ""
    """Of a run that has begun: hash of the parts of its provenance that may move a bit."""
    waits: bool = False
    """Of a run that has begun: whether it takes no step before the scheduler says `noted`."""

    def overdue(self, silent_s: float, exit_status: int | None) -> str | None:
        """Of a worker whose last words these are, and that is gone: whether an own metric has ended it, in words."""
        measuring = self.measuring
        if measuring is None or exit_status != EXIT_STATUS or silent_s < measuring.limit_s:
            return None
        return (
            f"the metric {measuring.metric} took longer than its limit of {measuring.limit_s:g} s, and its process was "
            f"ended, as nothing else stopped it; try: make it faster, or register a larger limit_s of "
            f"{measuring.metric} (the worker's log says how far it was)"
        )
