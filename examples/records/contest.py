"""The contest: does each record of the leaderboard beat the one before it by 0.005 nats per token, at p < .01?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from statistics import fmean, stdev

import pandas as pd

import ablate
from ablate.judge.stats import t_power
from ablate.judge.stats.multiplicity import holm
from ablate.judge.verdict import Finding
from examples.records.printed import ALPHA, FOLDER, read_rows, rounds_to
from examples.records.runs import Run

MARGINS = {"sp1024": 0.00296, "sp4096": 0.00217, "sp8192": 0.00194, "sp8192-caseops": 0.00228}
"""0.005 nats per token in bits per byte, by tokenizer: 0.005 times the ratio of both losses of a record that prints
both, 1.17558517/1.98492632, 1.09744/2.52524, 1.08554/2.80405 and 1.0661/2.33302."""
ROUNDING = 0.00007
"""bits/byte. A leaderboard's score with four decimals lies no further from the mean that it shows."""


@dataclass(frozen=True)
class Record:
    """One record of the leaderboard with public values for each seed."""

    arm: str
    day: str
    """ISO 8601."""
    tokenizer: str
    leaderboard: str
    """bits/byte, as the leaderboard prints it."""
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """bits/byte."""

    @property
    def mean(self) -> float:
        """bits/byte."""
        return fmean(self.values)

    @property
    def sd(self) -> float:
        """bits/byte, over seeds."""
        return stdev(self.values)

    @property
    def best_seed_shown(self) -> bool:
        """Whether the leaderboard shows the best seed in place of the mean."""
        return abs(float(self.leaderboard) - self.mean) > ROUNDING


@dataclass(frozen=True)
class Comparison:
    """A record against the one before it."""

    record: Record
    before: Record
    difference: float
    """bits/byte, record minus the one before."""
    low: float
    high: float
    """One-sided 99% bounds of the difference."""
    p: float
    """One-sided, of a gain of less than the margin: the contest's rule."""
    p_any: float
    """One-sided, of no gain at all."""
    runs_80: int
    """Runs of each record with power .80 where the true gain is twice the margin."""
    p_holm: float = 1.0
    """p, corrected over all records."""

    @property
    def margin(self) -> float:
        """bits/byte."""
        return MARGINS[self.record.tokenizer]

    @property
    def holds(self) -> bool:
        """Under the contest's own rule."""
        return self.p < ALPHA

    @property
    def holds_after_holm(self) -> bool:
        """Also after Holm's correction."""
        return self.p_holm < ALPHA

    @property
    def more_runs(self) -> int:
        """Runs that the record itself lacks for power .80."""
        return max(0, self.runs_80 - len(self.record.values))


@dataclass(frozen=True)
class PrintedNumber:
    """A p value, t or df that an author or the leaderboard prints, and the same of the published values."""

    arm: str
    claim: str
    test: str
    quantity: str
    printed: str
    here: float
    n: int
    source: str
    differs: bool
    """Whether it is known, and explained, not to be the same."""
    remark: str

    @property
    def matched(self) -> bool:
        """Whether it rounds to the printed digits, or lies below a printed bound."""
        bound = self.printed.removeprefix("< ")
        return rounds_to(self.here, self.printed) if bound == self.printed else self.here < float(bound)


def values_by_arm(contest: str = "contest") -> dict[str, dict[int, float]]:
    """Arm -> seed -> the published value: bits/byte (nats/token for the arm that says so); of the speedrun
    nats/token."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for row in read_rows(f"{contest}.csv"):
        arm, seed, value = row.values()
        values[arm][int(seed)] = float(value)
    return values


@cache
def records() -> tuple[Record, ...]:
    """The records of the leaderboard with public values for each seed, in its order."""
    values = values_by_arm()
    return tuple(
        Record(
            row["arm"],
            row["date"],
            row["tokenizer"],
            row["leaderboard_bpb"],
            tuple(values[row["arm"]]),
            tuple(values[row["arm"]].values()),
        )
        for row in read_rows("contest_records.csv")
    )


def runs_of_contest(study: str) -> list[Run]:
    """Every run of a study of this folder about the contest. Training ends by the clock: a run has one step here."""
    arms = ablate.check(FOLDER / "studies" / f"{study}.yaml").study.arms
    return [
        Run(record.arm, seed, 1, record.day, value)
        for record in records()
        if record.arm in arms
        for seed, value in zip(record.seeds, record.values, strict=True)
    ]


def _frame(arms: Iterable[str], contest: str = "contest") -> pd.DataFrame:
    """The values of some arms. Runs are no pairs, so no two have one seed: `judge_frame` then takes all of them."""
    values, metric = values_by_arm(contest), {"contest": "val_bpb", "speedrun": "val_loss"}[contest]
    rows = [(arm, value) for arm in arms for value in values[arm].values()]
    return pd.DataFrame(
        [{"arm": arm, "seed": number, metric: value} for number, (arm, value) in enumerate(rows, start=1)]
    )


def one_sided(finding: Finding) -> float:
    """p of no gain, of a test that reports it two-sided."""
    estimate = finding.estimate
    assert estimate is not None and estimate.difference is not None, finding
    return estimate.p / 2 if estimate.difference < 0 else 1 - estimate.p / 2


def compared() -> tuple[Comparison, ...]:
    """Every record against the one before it, by Welch's t, with Holm's correction over all of them."""
    pairs = list(zip(records(), records()[1:], strict=False))
    claims = {
        record.arm: f"{record.arm} lowers val_bpb by at least {MARGINS[record.tokenizer]} than {before.arm}"
        for before, record in pairs
    }
    frame = _frame(record.arm for record in records())
    judged = ablate.judge_frame(frame, claims, test="welch", alpha=ALPHA, correct="none").judged
    made = [_comparison(before, record, one) for (before, record), one in zip(pairs, judged, strict=True)]
    adjusted = holm([one.p for one in made])
    return tuple(replace(one, p_holm=p) for one, p in zip(made, adjusted, strict=True))


def _comparison(before: Record, record: Record, finding: Finding) -> Comparison:
    estimate, margin = finding.estimate, finding.margin
    assert finding.hypothesis == record.arm and finding.n == len(record.values) + len(before.values), finding
    assert estimate is not None and estimate.difference is not None and finding.p_support is not None, finding
    assert margin is not None and margin.interval is not None, finding
    low, high = margin.interval.low, margin.interval.high
    assert low is not None and high is not None, finding
    return Comparison(
        record=record,
        before=before,
        difference=estimate.difference,
        low=low,
        high=high,
        p=finding.p_support,
        p_any=one_sided(finding),
        runs_80=runs_for_power(MARGINS[record.tokenizer]),
    )


def pooled_sd() -> float:
    """SD of one run, bits/byte, pooled within the records: three runs alone say little of it."""
    squares = sum((len(record.values) - 1) * record.sd**2 for record in records())
    return sqrt(squares / sum(len(record.values) - 1 for record in records()))


@cache
def runs_for_power(distance: float) -> int:
    """Runs of each record with which Welch's t shows a gain this far beyond the margin, with a chance of 80%."""
    size = distance / (pooled_sd() * sqrt(2.0))
    return next(n for n in range(3, 200) if t_power.t_test_power("margin", size, n, ALPHA, df=2 * n - 2) >= 0.8)


def printed_numbers(contest: str = "contest", claims: str = "contest_claims.csv") -> tuple[PrintedNumber, ...]:
    """Every p value, t and df that is printed, and whose values are public."""
    made = []
    for row in read_rows(claims):
        arms = [word for word in row["claim"].split() if word in values_by_arm(contest)]
        claim = {"claim": {"claim": row["claim"], "smallest": 0}}
        [finding] = ablate.judge_frame(
            _frame(arms, contest), claim, test=row["test"], alpha=ALPHA, correct="none"
        ).judged
        estimate = finding.estimate
        assert estimate is not None and estimate.difference is not None, finding
        assert estimate.se is not None and estimate.df is not None, finding
        number = {
            "one-sided p": one_sided(finding),
            "two-sided p": estimate.p,
            "t": abs(estimate.difference / estimate.se),
            "df": estimate.df,
        }[row["quantity"]]
        made.append(
            PrintedNumber(
                arm=row["arm"],
                claim=row["claim"],
                test="Welch's t" if row["test"] == "welch" else "one-sample t",
                quantity=row["quantity"],
                printed=row["printed"],
                here=number,
                n=finding.n,
                source=row["source"],
                differs=bool(row["differs"]),
                remark=row["remark"],
            )
        )
    return tuple(made)


def seven_seeds() -> float:
    """One-sided p, without a margin, of the record that reports the five lowest of seven seeds, with all seven."""
    claim = {"claim": {"claim": "MLPClip12-all lowers val_bpb than CaseOps-Gated", "smallest": 0}}
    frame = _frame(["MLPClip12-all", "CaseOps-Gated"])
    [finding] = ablate.judge_frame(frame, claim, test="welch", alpha=ALPHA, correct="none").judged
    return one_sided(finding)
