"""Whether the runs of a variant were stable, by the registered rule and nothing else.

A run is unstable when it diverged (its record says so) or when any step of its training loss is a spike: a robust
z-score against the trailing window above the registered limit. This describes runs; it tests no hypothesis.
"""

from __future__ import annotations

import numpy as np

from ablate.judge.procedure import Floats
from ablate.judge.verdict import Stability
from ablate.records.evidence import Evidence
from prereg.spec import Study

CURVE = "train/loss"


def judge_stability(study: Study, evidence: Evidence) -> tuple[Stability, ...]:
    """Every variant's stability, in the order of the study."""
    spike = study.stable.loss_spike
    table = evidence.curve(CURVE)
    found = []
    for arm in study.arms:
        runs = sorted(
            (run for run in evidence.runs if run.variant == arm and run.status in ("done", "diverged")),
            key=lambda run: run.seed,
        )
        diverged = tuple(run.seed for run in runs if run.status == "diverged")
        spikes: dict[int, tuple[int, ...]] = {}
        for run in runs:
            curve = table[(table["variant"] == arm) & (table["seed"] == run.seed)]
            losses, steps = curve["value"].to_numpy(np.float64), curve["step"].to_numpy(np.int64)
            risen = steps[spike_places(losses, above=spike.above, window=spike.window)]
            if risen.size:
                spikes[run.seed] = tuple(int(step) for step in risen)
        found.append(
            Stability(variant=arm, stable=not diverged and not spikes, runs=len(runs), diverged=diverged, spikes=spikes)
        )
    return tuple(found)


def spike_places(losses: Floats, *, above: float, window: int) -> np.ndarray:
    """Indices of upward spikes: (loss - median) / scale above the limit, over the full window just before.

    The scale is 1.4826 x MAD, which estimates the SD under a normal law. Where more than half of a window is one
    value the MAD is 0 and 1.2533 x the mean absolute deviation stands in (Iglewicz and Hoaglin 1993). A window that
    is constant throughout has no spread at all: then any rise is beyond every multiple of it, and is a spike.
    A value that is not finite is a spike, and no window that holds one is judged: such a run has diverged anyway.
    """
    losses = np.asarray(losses, dtype=np.float64)
    broken = np.flatnonzero(~np.isfinite(losses))
    if losses.size <= window:
        return broken
    before = np.lib.stride_tricks.sliding_window_view(losses, window)[:-1]
    whole = np.isfinite(before).all(axis=1) & np.isfinite(losses[window:])
    before, now = before[whole], losses[window:][whole]
    median = np.median(before, axis=1)
    distance = np.abs(before - median[:, None])
    scale = 1.4826 * np.median(distance, axis=1)
    scale = np.where(scale > 0, scale, 1.2533 * distance.mean(axis=1))
    risen = now - median > above * scale
    places = np.flatnonzero(whole)[risen] + window
    return np.union1d(broken, places).astype(np.int64)
