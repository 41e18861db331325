"""Corrections over the hypotheses of one role: Holm 1979, and step-down max-T by joint resampling.

Step-down max-T over the hypotheses of one role (Westfall and Young 1993, algorithm 4.1), seeds resampled jointly.

Shared seeds make the tests of a role depend on each other, and Holm must assume the worst dependence. Here the seeds
are resampled once for the whole family, so the dependence is the data's own:

    sign_flip, wilcoxon     one sign a seed, shared by all hypotheses; all 2^n of them up to 20 seeds
    bootstrap_t, paired_t   one vector of resampled seeds, shared by all; all n^n of them up to 10 seeds

The second row is only for studies registered before `ablate.api.support` refused it: at five seeds its power is .34
where Holm's is .74. A multivariate t with estimated correlation errs instead, in .058 at three seeds and .053 at five.

The p floor is that of one test, not m times it. Every hypothesis is shifted to its own null first, supports and
refutations are families of their own, and statistics are standardised, so that units do not matter. Two-sided
hypotheses enter by |T| and one-sided ones by T. A hypothesis that points away from its claim cannot be rejected but
keeps its place in the maximum.

A paired t has no joint resampling of its own: in a family of two or more its corrected p is the joint bootstrap-t's,
and never below its own. A family of one is not corrected.

Seeds that differ. Signs are drawn for the union of the seeds, and each hypothesis uses those of its own. Resampled
indices have no such reading, so where diverged runs leave the hypotheses of a role with different seeds the
bootstrap's family is corrected by Holm's procedure, which needs no joint distribution, and the findings say so.

Two one-sided tests (does_not_change, and the refutation of changes) have a null on either side and only one of them
can be true. The p is the largest over the choices of a side for every such hypothesis, so that a family of one is
the plain TOST; `MOST_TWO_SIDED_MARGINS` keeps the number of choices small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import floor, inf
from typing import Final

import numpy as np
import numpy.typing as npt

from ablate.judge.stats.estimate import p_floor
from ablate.judge.stats.paired_t import EQUAL, Floats, Procedure, Side, Studentized
from ablate.judge.stats.resample import LISTED_PAIRS, RESAMPLES, row_counts, studentized_draws
from ablate.judge.verdict import Interval
from prereg.study.analysis import Analysis

EDGE: Final = 1e-9
"""True effects this close to a null, relative to its margin, lie on it."""
MOST_TWO_SIDED_MARGINS: Final = 6
"""More hypotheses of one role with a null on either side are refused: 2^6 choices of sides are tried."""


@dataclass(frozen=True)
class Null:
    """What must be rejected: every point, from its side, and the test's statistic must point `towards` if not 0."""

    points: tuple[tuple[float, Side], ...]
    towards: int = 0

    def p(self, test: Procedure) -> float:
        """p of the null by one test: two points are an intersection-union test, and the larger p counts."""
        if self.towards and test.leaning != self.towards:
            return 1.0
        return max(test.p(point, side) for point, side in self.points)

    def excludes(self, effect: float) -> bool:
        """Whether the null is false at a true effect. One within `EDGE` of a point, relative to it, lies on it."""
        if self.towards:
            return effect * self.towards > 0.0
        return all(
            effect != point
            if side == "two"
            else (effect - point) * (1.0 if side == "greater" else -1.0) > EDGE * abs(point)
            for point, side in self.points
        )


Member = tuple[Procedure, Null]


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p values in the order given: monotone in p, never above 1."""
    assert all(0.0 < value <= 1.0 for value in p), p
    return tuple(holm_rows(np.array([p]))[0].tolist())


def holm_rows(p: Floats) -> Floats:
    """The same of many studies, one a row."""
    order = np.argsort(p, axis=1, kind="stable")
    steps = np.minimum(1.0, np.arange(p.shape[1], 0, -1) * np.take_along_axis(p, order, axis=1))
    adjusted = np.empty_like(p)
    # The running maximum is what makes it monotone: leaving it out is the classical mistake.
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=1), axis=1)
    return adjusted


def adjust(members: Sequence[Member | None], *, rng_seed: int) -> tuple[tuple[float, ...], str]:
    """Corrected p values in the order given, and a note where joint resampling was not possible.

    None is a hypothesis that cannot be tested: it gets 1, and has no statistic that could enter a maximum.
    """
    tested = [member for member in members if member is not None]
    own = [null.p(test) for test, null in tested]
    note = ""
    if len(members) <= 1 or not tested:
        found = own
    elif not resampled_together([test for test, _ in tested]):
        found = list(holm([*own, *[1.0] * (len(members) - len(tested))]))
        note = (
            "corrected by Holm's procedure: hypotheses of this role have different seeds, which no joint bootstrap has"
        )
    else:
        choices = [
            _stepped_down(
                [(test, *point, null.towards) for (test, null), point in zip(tested, side, strict=True)], rng_seed
            )
            for side in product(*(null.points for _, null in tested))
        ]
        found = np.maximum(np.max(choices, axis=0), own).tolist()
        seeds = {seed for test, _ in tested for seed in test.seeds}
        if not isinstance(tested[0][0], Studentized) and len(seeds) > LISTED_PAIRS:
            note = f"max-T over {RESAMPLES} random joint sign vectors: another draw moves the third digit of p"
    left = iter(found)
    return tuple(1.0 if member is None else float(next(left)) for member in members), note


def p_floor_of(analysis: Analysis, family: int, n: int, side: Side) -> float:
    """Smallest p after correction that any n pairs can give, at the first step."""
    # A paired t in a family under max-T is corrected by the joint bootstrap-t, and that has a floor.
    joint = analysis.correct == "max_t" and family > 1 and analysis.test == "paired_t"
    if analysis.correct == "max_t" and family > 1 and not joint and n > LISTED_PAIRS:
        return max(p_floor(analysis.test, n, side), 1.0 / (RESAMPLES + 1))  # random joint signs
    steps = family if analysis.correct == "holm" else 1
    return min(1.0, steps * p_floor("bootstrap_t" if joint else analysis.test, n, side))


def resampled_together(tests: Sequence[Procedure]) -> bool:
    """Whether one joint resampling serves all of them."""
    return not isinstance(tests[0], Studentized) or len({test.seeds for test in tests}) == 1


def intervals(tests: Sequence[Procedure], alpha: float, *, family: int, rng_seed: int) -> tuple[Interval, ...] | None:
    """Single-step simultaneous intervals: mean +- c SE, c the 1 - alpha quantile of the joint bootstrap's max |t*|.

    None where there are none: sign-flip and rank tests of several hypotheses have a joint null for every point of a
    space, and no interval a hypothesis; nor has a family with different seeds, or one with a zero standard error.
    """
    if not isinstance(tests[0], Studentized) or not resampled_together(tests) or any(test.all_zero for test in tests):
        return None
    drawn, weights = _bootstrapped(tests, rng_seed)
    largest = np.abs(drawn).max(axis=1)
    rank = floor(alpha * (1.0 + weights.sum()) + EQUAL)
    if rank < 1:
        return None
    order = np.argsort(-largest, kind="stable")
    place = int(np.searchsorted(np.cumsum(weights[order]), rank))
    if place >= largest.size:
        return None
    found = []
    for test in tests:
        assert isinstance(test, Studentized)
        low, high = test.around_mean(float(largest[order][place]) * test.scaled_se)
        found.append(Interval(low=low, high=high, level=1.0 - alpha, method=f"joint bootstrap-t, max-T over {family}"))
    return tuple(found)


def step_down(observed: Floats, drawn: Floats, weights: Floats, *, extra: float) -> Floats:
    """Monotone adjusted p: at each step the maximum runs over the hypotheses not yet passed.

    `drawn` is draws x hypotheses; `extra` is 1 where the observed sample is not among the draws. A p is never 0.
    """
    order = np.argsort(-observed, kind="stable")
    maxima = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
    adjusted = np.empty(observed.size)
    running = 0.0
    for step, place in enumerate(order):
        # A tie that rounding broke counts as a tie.
        slack = EQUAL * max(1.0, abs(observed[place])) if np.isfinite(observed[place]) else 0.0
        reached = weights[maxima[:, step] >= observed[place] - slack].sum()
        running = max(running, float((extra + reached) / (extra + weights.sum())))
        adjusted[place] = running
    return adjusted


Tested = tuple[Procedure, float, Side, int]


def _stepped_down(points: Sequence[Tested], rng_seed: int) -> Floats:
    """Step-down p of one null point a hypothesis."""
    tests = [test for test, *_ in points]
    if isinstance(tests[0], Studentized):
        drawn, weights = _bootstrapped(tests, rng_seed)
        observed = np.array([test.statistic(null) or 0.0 for test, null, *_ in points])  # type: ignore[attr-defined]
        extra = 1.0
    else:
        drawn, extra = _flipped([(test, null) for test, null, *_ in points], rng_seed)
        observed, weights = drawn[0].copy(), np.ones(len(drawn) - int(extra))
        drawn = drawn[int(extra) :]
    for place, (_, _, side, _) in enumerate(points):
        if side == "two":
            drawn[:, place], observed[place] = np.abs(drawn[:, place]), abs(observed[place])
        elif side == "less":
            drawn[:, place], observed[place] = -drawn[:, place], -observed[place]
    for place, (test, _, _, towards) in enumerate(points):
        if towards and test.leaning != towards:
            observed[place] = -inf
    return step_down(observed, drawn, weights, extra=extra)


def _bootstrapped(tests: Sequence[Procedure], rng_seed: int) -> tuple[Floats, Floats]:
    """t* of every test (draws x tests) and the weight of each draw.

    Each test draws from a generator in the same state, so that the indices are shared: that is the joint resampling.
    A draw in which any of them has no spread is dropped for all, by the zero-SE rule of `BootstrapT`.
    """
    columns, weights = [], np.ones(0)
    for test in tests:
        t_star, weights, _ = studentized_draws(test.scaled, np.random.default_rng(rng_seed))
        columns.append(np.zeros_like(t_star) if test.all_zero else t_star)
    drawn = np.stack(columns, axis=1)
    kept = ~np.isnan(drawn).any(axis=1)
    return drawn[kept], weights[kept]


def _flipped(points: Sequence[tuple[Procedure, float]], rng_seed: int) -> tuple[Floats, float]:
    """Standardised flipped sums, draws x tests, the observed ones first; 1.0 where those are not one of the draws.

    A sum over its root sum of squares has variance 1 under flips, whatever the unit and however many the seeds. It is
    a monotone function of t, because flips leave the sum of squares alone.
    """
    seeds = sorted({seed for test, _ in points for seed in test.seeds})
    scores = np.zeros((len(seeds), len(points)))
    place_of = {seed: place for place, seed in enumerate(seeds)}
    for column, (test, null) in enumerate(points):
        scores[[place_of[seed] for seed in test.seeds], column] = test.scores(null)
    size = np.sqrt((scores**2).sum(axis=0))
    scores /= np.where(size > 0, size, 1.0)
    if len(seeds) <= LISTED_PAIRS:
        sums = np.zeros((1, len(points)))
        for row in scores:  # doubling: no 2^n x n table of signs
            sums = np.concatenate([sums + row, sums - row])
        return sums, 0.0
    signs = 2.0 * np.random.default_rng(rng_seed).integers(0, 2, size=(RESAMPLES, len(seeds))) - 1.0
    return np.concatenate([scores.sum(axis=0, keepdims=True), signs @ scores]), 1.0


@dataclass(frozen=True)
class ScoredRows:
    """One hypothesis of many studies, for a joint sign-flip; studies are rows."""

    tested: npt.NDArray[np.bool_]
    """Which studies have a test of it."""
    leaning: Floats
    """`Procedure.leaning`."""
    scores: Callable[[float], Floats]
    """null -> studies x seeds: the scores of the pairs, 0 where there is no pair. A zero adds nothing to any flipped
    sum, so that all seeds may be flipped instead of those that some hypothesis has."""


def adjust_rows(members: Sequence[ScoredRows], chosen: Sequence[Null | None], own: Floats, *, rng_seed: int) -> Floats:
    """`adjust` by sign-flips for many studies at once: corrected p values, studies x hypotheses.

    `own` are the p values before correction. Without a null, or without a test, a p is 1.
    """
    tested = np.stack([one.tested & (null is not None) for one, null in zip(members, chosen, strict=True)], axis=1)
    known = [place for place, null in enumerate(chosen) if null is not None]
    if not known:
        return np.ones(own.shape)
    nulls = [null for null in chosen if null is not None]
    points = {
        (at, point): members[at].scores(point)
        for at, null in zip(known, nulls, strict=True)
        for point, _ in null.points
    }
    against = np.stack(
        [
            np.full(len(own), False) if null.towards == 0 else members[at].leaning != null.towards
            for at, null in zip(known, nulls, strict=True)
        ],
        axis=1,
    )
    adjusted = own.copy()
    for choice in product(*(null.points for null in nulls)):
        scores = np.stack([points[at, point] for at, (point, _) in zip(known, choice, strict=True)], axis=1)
        found = _flipped_rows(scores, [side for _, side in choice], tested[:, known], against, rng_seed)
        adjusted[:, known] = np.maximum(adjusted[:, known], found)
    return np.asarray(np.where(tested, adjusted, 1.0))


_CHUNK: Final = 400_000
"""Flipped sums held at a time."""


def _flipped_rows(
    scores: Floats, sides: Sequence[Side], tested: npt.NDArray[np.bool_], against: npt.NDArray[np.bool_], rng_seed: int
) -> Floats:
    """`_stepped_down` by sign-flips, row by row; `scores` are studies x hypotheses x seeds."""
    n_studies, family, n = scores.shape
    size = np.sqrt((scores**2).sum(axis=2, keepdims=True))
    scores = scores / np.where(size > 0.0, size, 1.0)
    symmetric = all(side == "two" for side in sides)
    signs, extra = _signs(n, rng_seed, symmetric)
    turn = np.array([-1.0 if side == "less" else 1.0 for side in sides])[:, None]
    two = np.array([side == "two" for side in sides])
    adjusted = np.empty((n_studies, family))
    step = max(1, _CHUNK // (family * signs.shape[1]))
    for start in range(0, n_studies, step):
        rows = slice(start, start + step)
        mine = scores[rows] * turn
        # One product of two matrices is several times faster than one a study.
        drawn, observed = (mine.reshape(-1, n) @ signs).reshape(*mine.shape[:2], -1), mine.sum(axis=2)
        drawn[:, two], observed[:, two] = np.abs(drawn[:, two]), np.abs(observed[:, two])
        drawn[~tested[rows]] = -inf
        observed[~tested[rows] | against[rows]] = -inf
        # A tie that rounding broke counts as a tie.
        limit = observed - EQUAL * np.maximum(1.0, np.where(np.isfinite(observed), np.abs(observed), 1.0))
        order, places = np.argsort(-observed, axis=1, kind="stable"), np.arange(len(mine))
        maxima, reached = np.full((len(mine), signs.shape[1]), -inf), np.empty(observed.shape)
        for last in range(family - 1, -1, -1):  # the maximum runs over the hypotheses not yet passed
            at = order[:, last]
            np.maximum(maxima, drawn[places, at], out=maxima)
            reached[:, last] = row_counts(maxima >= limit[places, at][:, None])
        p = np.maximum.accumulate((extra + reached) / (extra + signs.shape[1]), axis=1)
        np.put_along_axis(adjusted[rows], order, p, axis=1)
    return adjusted


@lru_cache(maxsize=8)
def _signs(n: int, rng_seed: int, symmetric: bool) -> tuple[Floats, float]:
    """Sign vectors, seeds x draws, and 1.0 where the observed one is not among them, as in `_flipped`.

    Where the sign of a sum does not matter (`symmetric`) all of them are those with a fixed first sign.
    """
    if n > LISTED_PAIRS:
        drawn = 2.0 * np.random.default_rng(rng_seed).integers(0, 2, size=(RESAMPLES, n)) - 1.0
        return np.ascontiguousarray(drawn.T), 1.0
    free = n - 1 if symmetric else n
    flips = np.arange(2**free)[None, :] >> np.arange(free)[:, None] & 1
    signs = np.ones((n, 2**free))
    signs[n - free :] -= 2.0 * flips
    return signs, 0.0
