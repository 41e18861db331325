"""The speedrun's third track: fewest steps to 3.28, by a z test that takes the SD of one run as known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import sqrt

import pandas as pd
from scipy import stats

import ablate
from examples.records.printed import read_rows, rounds_to

TARGET = 3.28
"""nats/token."""
SIGMA = 0.0013
"""nats/token: the SD of one run that the track's rule takes as known, since 2026-04-30."""
LEVEL = 0.001
"""One-sided level of the track's rule, since 2026-04-30."""


@dataclass(frozen=True)
class StepRecord:
    """One record of the track whose z and p are printed, with its losses at the step that it claims."""

    arm: str
    day: str
    """ISO 8601."""
    step: str
    printed_z: str
    printed_p: str
    source: str
    losses: tuple[float, ...]
    """nats/token."""
    mean: float
    sd: float
    t_p: float
    """One-sided p of the one-sample t, which estimates the SD from these losses."""

    @property
    def n(self) -> int:
        """Runs."""
        return len(self.losses)

    @property
    def z(self) -> float:
        """Of the track's rule."""
        return (TARGET - self.mean) / (SIGMA / sqrt(self.n))

    @property
    def p(self) -> float:
        """One-sided, of the track's rule."""
        return float(stats.norm.sf(self.z))

    @property
    def z_of_one_run(self) -> float:
        """What is printed where the root of n is left out, from the mean with the five decimals that are printed."""
        # Half up, as authors round: the mean of Aurora is 3.278845 and printed as 3.27885.
        return (TARGET - round(self.mean + 1e-9, 5)) / SIGMA

    @property
    def matched(self) -> bool:
        """Whether p rounds to the printed digits."""
        return rounds_to(self.p, self.printed_p)

    @property
    def without_root(self) -> bool:
        """Whether the printed p is that of z without the root of n."""
        return not self.matched and rounds_to(float(stats.norm.sf(self.z_of_one_run)), self.printed_p)

    @property
    def holds(self) -> bool:
        """Under the track's own rule."""
        return self.p < LEVEL

    @property
    def holds_with_own_sd(self) -> bool:
        """At the same level with the SD of its own runs."""
        return self.t_p < LEVEL


def step_records() -> tuple[StepRecord, ...]:
    """Every record whose z and p are printed and whose losses at that step are public, in the order of the track."""
    losses: dict[str, list[float]] = defaultdict(list)
    for row in read_rows("steps.csv"):
        losses[row["arm"]].append(float(row["val_loss"]))
    made = []
    for row in read_rows("steps_claims.csv"):
        arm = row["arm"]
        frame = pd.DataFrame(
            [{"arm": arm, "seed": seed, "val_loss": loss} for seed, loss in enumerate(losses[arm], start=1)]
        )
        claim = {"target": {"claim": f"{arm} lowers val_loss below {TARGET}", "smallest": 0}}
        [finding] = ablate.judge_frame(frame, claim, alpha=LEVEL).judged
        [summary] = finding.arms
        assert finding.p_support is not None and summary.sd is not None, finding
        made.append(
            StepRecord(
                arm,
                row["date"],
                row["step"],
                row["printed_z"],
                row["printed_p"],
                row["source"],
                tuple(losses[arm]),
                summary.mean,
                summary.sd,
                finding.p_support,
            )
        )
    return tuple(made)


def first_six() -> tuple[float, float]:
    """z and p of TrustLight with the six runs that it had before two were added."""
    [record] = [record for record in step_records() if record.arm == "TrustLight"]
    z = (TARGET - sum(record.losses[:6]) / 6) / (SIGMA / sqrt(6))
    return z, float(stats.norm.sf(z))


def pooled_sd() -> float:
    """SD of one run, nats/token, pooled within the records."""
    records = step_records()
    return sqrt(sum((one.n - 1) * one.sd**2 for one in records) / sum(one.n - 1 for one in records))
