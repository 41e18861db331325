"""Welch's t over rows: each row is one study, its runs in columns, arm by arm.

A row holds as many columns for every arm of the claim as the largest arm has runs, in the order of the claim's
weights; a run that is not planned is NaN, and one that was lost is not `kept`. `arms_of` lays them out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.paired_t import EQUAL, TINY, Floats, Side
from ablate.judge.stats.vectorized_tests import Kept, Rows
from prereg.rule.divergence import least_of
from prereg.study.analysis import LEAST_RUNS
from prereg.study.spec import Study


def arms_of(study: Study, name: str, values: Floats) -> Floats:
    """The columns of a claim by arm: studies x arms x runs."""
    weights = study.claims[name].weights
    return values.reshape(len(values), len(weights), values.shape[1] // len(weights))


def moved_by(study: Study, name: str, values: Floats, by: float) -> Floats:
    """The same studies with an effect that is larger by this: the runs of the first arm are shifted."""
    weight = next(iter(study.claims[name].weights.values()))
    arms = arms_of(study, name, values).copy()
    arms[:, 0] += by / weight
    return np.asarray(arms.reshape(values.shape))


def unpaired_tests(
    study: Study, name: str, values: Floats, kept: Kept | None
) -> Iterator[tuple[npt.NDArray[np.intp], Rows]]:
    """The test on every row that has enough runs of each arm, rows with equally many runs together."""
    weights = np.array(list(study.claims[name].weights.values()))
    parts = arms_of(study, name, values) * weights[None, :, None]
    there = ~np.isnan(parts)
    planned = there[:1].sum(axis=2)
    if kept is not None:
        there &= kept.reshape(parts.shape)
    counts = there.sum(axis=2)
    least = np.array([[least_of(study, int(size)) for size in planned[0]]])
    enough = np.all((counts >= LEAST_RUNS) & ((counts == planned) | (counts >= least)), axis=1)
    for sizes in np.unique(counts[enough], axis=0):
        rows = np.flatnonzero(enough & np.all(counts == sizes, axis=1))
        arms = [parts[rows, at][there[rows, at]].reshape(rows.size, size) for at, size in enumerate(sizes)]
        yield rows, RowsOfWelch(arms)


class RowsOfWelch(Rows):
    """`Welch` over rows: weighted runs by arm, each row in its own unit."""

    def __init__(self, arms: list[Floats]) -> None:
        # Not that of `Rows`, which reads differences of pairs.
        largest = np.max([np.abs(one).max(axis=1) for one in arms], axis=0)
        self.exponent = np.frexp(largest)[1]
        self.arms = [np.ldexp(one, -self.exponent[:, None]) for one in arms]
        self.n = sum(one.shape[1] for one in arms)
        self.size = np.ldexp(largest, -self.exponent)
        self.mean: Floats = np.sum([one.mean(axis=1) for one in self.arms], axis=0)
        self.leaning = np.sign(self.mean)
        variances = np.array(
            [
                np.where(
                    np.ptp(one, axis=1) <= EQUAL * np.abs(one).max(axis=1), 0.0, one.var(axis=1, ddof=1) / one.shape[1]
                )
                for one in self.arms
            ]
        )
        total = variances.sum(axis=0)
        # Without any spread the scalar test says p = 1 or nothing at all: the same outcome.
        self.usable: Kept = total > 0.0
        shares = variances / np.where(self.usable, total, 1.0)
        free = np.array([[one.shape[1] - 1.0] for one in self.arms])
        self.df = 1.0 / np.where(self.usable, (shares**2 / free).sum(axis=0), 1.0)
        self.se = np.where(self.usable, np.sqrt(total), np.inf)

    def p(self, null: float, side: Side) -> Floats:
        t = (self.mean - self.to_unit(null)) / self.se
        tail = -np.abs(t) if side == "two" else -t if side == "greater" else t
        p: Floats = np.maximum(special.stdtr(self.df, tail) * (2.0 if side == "two" else 1.0), TINY)
        return p
