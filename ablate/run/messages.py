"""What a worker and its scheduler say to each other: one JSON object a line, over pipes. No pickle.

scheduler ─▶ worker   {"do": "run", "spec": ..., "folder": ..., "corpora": ..., "root": ..., "device": ...,
                       "checkpoint_every_s": ..., "spread": ..., "until": ...}, {"do": "stop"},
                      {"do": "cohort", "specs": [...], "folders": [...], "seats": [...], "step": ...,
                       "checkpoint": ..., ...}
worker ─▶ scheduler   Message, below
"""

from __future__ import annotations

from typing import Literal

from prereg.part import Part


class Message(Part):
    """One line from a worker. It tells of health and progress only, never of a metric that could favour an arm."""

    event: Literal["ready", "progress", "ended", "stopped", "note"]
    """ready for a run; still going; ended (see status); stopped on request and saved; something a user should know."""
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
    status: Literal["done", "diverged", "failed"] | None = None
    """How it ended."""
    error: str | None = None
    """Last line of the error of a failed run."""
    text: str = ""
    """Of a note: one line. The same line of several workers is told once."""
