"""What one run leaves behind in `run.json`: status, pairing, budget, provenance, seals.

A run is done when its `run.json` says so and the hashes in it match; nothing else is believed.
Metrics themselves live beside it, in `metrics.jsonl` while the run lives and `metrics.parquet`
once sealed, and the scores of single items, where there are any, in `items.parquet` (see `ablate.records.store`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue, SerializerFunctionWrapHandler, model_serializer

from ablate.records.harness_record import HarnessRecord
from prereg.part import Part

Status = Literal["running", "done", "diverged", "failed"]


class Pairing(Part):
    """What makes two runs of one seed a matched pair. Equal hashes, or no pair."""

    initial: dict[str, str]
    """Parameter name -> sha256 of its initial bytes. Variants must agree on every name they share."""
    batches: str
    """Chained sha256 of every batch of token ids the run consumed, in order."""
    dropout: str
    """Chained sha256 of the keys of every dropout mask drawn; a mask is a pure function of key and shape."""
    corpus: str
    """sha256 of the corpus."""
    tokenizer: str
    """sha256 of the tokenizer's definition."""


class Provenance(Part):
    """With what the run was made."""

    code: str
    """sha256 over the source of everything that can move a number of a run."""
    commit: str | None
    """git commit of the tool's source tree, where there is one."""
    dirty: bool | None
    """Whether that tree had uncommitted changes."""
    python: str
    """Python version."""
    torch: str
    """torch version."""
    numpy: str
    """numpy version."""
    platform: str
    """Operating system and machine type."""
    processor: str
    """Model name of the processor."""
    device: str
    """Device class: cpu or the accelerator's name."""
    threads: int
    """Threads of one run."""


class RunRecord(Part):
    """One run: of one study, one registration, one variant, one seed."""

    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration the run was made under."""
    variant: str
    """The arm."""
    seed: int
    """The seed."""
    status: Status
    """running, done, diverged (an outcome, with its curve kept), or failed (an error of the machine or the code)."""
    attempts: int
    """Times the run was started, resumptions included."""
    resumed_from: tuple[int, ...] = ()
    """Steps at which later attempts took the run up again."""
    config: dict[str, JsonValue]
    """The resolved configuration."""
    steps: int
    """Optimiser steps taken."""
    tokens: int
    """Tokens consumed."""
    parameters: int
    """Trainable parameters, tied ones counted once."""
    pairing: Pairing | None
    """Hashes of what the pair must share; none before the run has begun."""
    provenance: Provenance
    """With what it was made."""
    started_at: str
    """Start of the first attempt, UTC, ISO 8601."""
    ended_at: str | None = None
    """End of the last attempt."""
    train_s: float = 0.0
    """Seconds in training steps."""
    eval_s: float = 0.0
    """Seconds in evaluation."""
    wall_s: float = 0.0
    """Seconds from the worker taking the run to its seal, over all attempts."""
    error: str | None = None
    """Last line of the error of a failed run."""
    metrics_sha256: str | None = None
    """sha256 of the sealed metrics.parquet."""
    weights_sha256: str | None = None
    """sha256 of the final weights.safetensors; none, and not written, in records made before it was kept."""
    outcome_sha256: str | None = None
    """sha256 over the repeatable metrics alone (no timings): equal for a run repeated to the last bit. Where items were
    scored, over their scores too."""
    items_sha256: str | None = None
    """sha256 of the sealed items.parquet; not written where no item was scored."""
    harness: HarnessRecord | None = None
    """How the zero- and few-shot tasks were asked; not written where there were none."""

    @model_serializer(mode="wrap")
    def _as_before_without_later_seals(self, handler: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        # A record without them is written as it always was, and a version that knows none of them can read it.
        written: dict[str, JsonValue] = handler(self)
        for seal in ("items_sha256", "weights_sha256", "harness"):
            if getattr(self, seal) is None:
                written.pop(seal, None)
        return written
