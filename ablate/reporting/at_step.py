"""What the runs of one arm recorded at one step: mean, SD and n over the seeds asked for, and why a value is lacking.

Description: no test, no interval. A run that diverged later has a value here; one that had diverged before has none,
and is named, so that a mean over fewer seeds never passes for one over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord

PERPLEXITY, LOSS = "val/perplexity", "val/loss"
_LARGEST_LOSS = 700.0  # exp of more is no double


@dataclass(frozen=True)
class ArmAtStep:
    """The values of one metric of one arm at one step."""

    arm: str
    asked: tuple[int, ...]
    """The seeds asked for."""
    values: Mapping[int, float]
    """Seed -> value."""
    lacking: Mapping[int, str]
    """Seed -> why it has no value."""
    derived: frozenset[int] = frozenset()
    """Seeds whose perplexity is exp of their recorded loss, since it was not recorded itself."""
    later: Mapping[int, int] = field(default_factory=dict)
    """Seed -> the step at which its run diverged, for those that have a value and diverged after it."""

    @property
    def n(self) -> int:
        """Seeds that have a value."""
        return len(self.values)

    @property
    def whole(self) -> bool:
        """Whether every seed asked for has a value."""
        return self.n == len(self.asked)

    @property
    def mean(self) -> float | None:
        """The mean over the seeds that have a value; none where none has."""
        return fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """The sample standard deviation (n - 1) over them; none below two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None


def read_at(evidence: Evidence, metric: str, arm: str, seeds: Sequence[int], step: int) -> ArmAtStep:
    """What these seeds of an arm recorded of a metric at a step.

    One thing is derived where it was not recorded: perplexity, which is defined as exp of the loss, from that loss of
    the same run and step.
    """
    recorded = _at(evidence, metric, arm, step)
    losses = _at(evidence, LOSS, arm, step) if metric == PERPLEXITY else {}
    runs = {run.seed: run for run in evidence.runs if run.variant == arm}
    values: dict[int, float] = {}
    lacking: dict[int, str] = {}
    derived = set()
    for seed in seeds:
        if seed in recorded:
            values[seed] = recorded[seed]
        elif seed in losses and losses[seed] < _LARGEST_LOSS:
            values[seed] = math.exp(losses[seed])
            derived.add(seed)
        else:
            lacking[seed] = _why(runs.get(seed), step)
    later = {seed: runs[seed].steps for seed in values if seed in runs and runs[seed].status == "diverged"}
    return ArmAtStep(arm, tuple(seeds), values, lacking, frozenset(derived), later)


def _at(evidence: Evidence, metric: str, arm: str, step: int) -> dict[int, float]:
    frame = evidence.metrics
    rows = frame[(frame["metric"] == metric) & (frame["variant"] == arm) & (frame["step"] == step)]
    return {int(seed): float(value) for seed, value in zip(rows["seed"], rows["value"], strict=True)}


def _why(run: RunRecord | None, step: int) -> str:
    if run is None:
        return "no run"
    if run.status == "diverged" and run.steps <= step:
        return f"diverged at step {run.steps:,}"
    if run.steps < step:
        return f"ends at step {run.steps:,}"
    return f"not recorded at step {step:,}"
