"""Thousands of simulated studies judged at once: the scalar judge written over rows, and nothing else.

A design asks for 20,000 studies in a dozen states of the world. One study at a time that takes minutes; here each
row of an array is a study. Every number is made by the same operations in the same order as in `procedure`,
`resample`, `nulls` and `multiplicity`, so that outcomes are the same and not merely close: `tests/test_batch.py`
draws studies at random and compares. What has no such form (bootstrap-t, signed ranks, many pairs under sign-flip,
any correction but Holm's or none) is left to the scalar judge, and `batchable` says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.procedure import EQUAL, TINY, Floats, Side
from ablate.judge.verdict import Outcome
from prereg.claim import Verb
from prereg.divergence import End, least_pairs, refutable
from prereg.metrics import Better
from prereg.spec import Study

Codes = npt.NDArray[np.int8]
Kept = npt.NDArray[np.bool_]
OUTCOME: tuple[Outcome, ...] = ("supported", "refuted", "inconclusive")
"""What a code means."""
FLIPPED_PAIRS = 8
"""Up to here sign-flip is enumerated for all studies at once: 255 subset means a study."""
_CHUNK = 4_000_000
"""Subset means held at a time: 32 MB."""


def batchable(study: Study, n: int) -> bool:
    """Whether this judge over rows knows the study's test with n pairs, its correction and its stopping."""
    known = study.analysis.test == "paired_t" or (study.analysis.test == "sign_flip" and n <= FLIPPED_PAIRS)
    return known and study.analysis.correct in ("holm", "none") and study.stopping == "fixed"


def judge_rows(
    study: Study,
    differences: Mapping[str, Floats],
    kept: Mapping[str, Kept] | None = None,
    *,
    rows_of: Callable[[Floats], Rows] | None = None,
) -> Codes:
    """Outcome codes, studies x hypotheses; `differences` are studies x seeds, `kept` the pairs that enter.

    `rows_of` makes another test than the study's own: at a look of a sequential study, the test of that look.
    """
    return code_rows(study, list(study.hypotheses), *_ps(study, differences, kept, rows_of))


def judge_rows_at_worst(
    study: Study,
    differences: Mapping[str, Floats],
    kept: Mapping[str, Kept],
    ends: Mapping[End, Kept],
    *,
    rows_of: Callable[[Floats], Rows] | None = None,
) -> tuple[Codes, Codes]:
    """The same codes, and `lost_pairs.possible_outcomes` over rows: a bit for each outcome to reckon with.

    `ends` are the ends towards which lost pairs push each hypothesis, each studies x hypotheses.
    """
    support, refute = _ps(study, differences, kept, rows_of)
    names = list(study.hypotheses)
    codes = code_rows(study, names, support, refute)
    can = np.array([refutable(study, name) for name in study.hypotheses])
    possible = np.left_shift(1, codes).astype(np.int8)
    for end, moved in ends.items():
        at = (TINY, 1.0) if end == "supported" else (1.0, TINY)
        there = code_rows(study, names, np.where(moved, at[0], support), np.where(moved & can, at[1], refute))
        possible |= np.left_shift(1, there).astype(np.int8)
    both = 1 << OUTCOME.index("supported") | 1 << OUTCOME.index("refuted")
    possible[possible & both == both] |= 1 << OUTCOME.index("inconclusive")
    return codes, possible


def _ps(
    study: Study,
    differences: Mapping[str, Floats],
    kept: Mapping[str, Kept] | None,
    rows_of: Callable[[Floats], Rows] | None,
) -> tuple[Floats, Floats]:
    """p of support and of refutation before correction, studies x hypotheses; 1 where there is none."""
    names = list(study.hypotheses)
    n_studies = len(differences[names[0]])
    support, refute = np.ones((n_studies, len(names))), np.ones((n_studies, len(names)))
    for place, name in enumerate(names):
        whole = None if kept is None else kept[name]
        support[:, place], refute[:, place] = weigh_rows(study, name, differences[name], whole, rows_of=rows_of)
    return support, refute


def weigh_rows(
    study: Study,
    name: str,
    differences: Floats,
    kept: Kept | None = None,
    *,
    rows_of: Callable[[Floats], Rows] | None = None,
    smallest: float | None = None,
) -> tuple[Floats, Floats]:
    """p of support and of refutation of one hypothesis, study by study; 1 where it has no p. `smallest` replaces the
    registered margin."""
    if rows_of is None:
        assert batchable(study, differences.shape[1]), (study.analysis, study.stopping, differences.shape)
        rows_of = RowsOfT if study.analysis.test == "paired_t" else _RowsOfFlips
    claim = study.claims[name]
    smallest = study.hypotheses[name].smallest if smallest is None else smallest
    support, refute = np.ones(len(differences)), np.ones(len(differences))
    for rows, values in _complete(differences, kept, least_pairs(study)):
        test = rows_of(values)
        supporting, refuting = _weigh(test, claim.verb, study.better(name), smallest)
        # A study that cannot be tested keeps its place in the family with p = 1.
        support[rows] = np.where(test.usable, supporting, 1.0)
        if refuting is not None:
            refute[rows] = np.where(test.usable, refuting, 1.0)
    return support, refute


def code_rows(study: Study, names: list[str], support: Floats, refute: Floats) -> Codes:
    """Outcome codes of the named hypotheses, whole roles at a time, from their p values (studies x hypotheses)."""
    codes = np.empty(support.shape, dtype=np.int8)
    for role in dict.fromkeys(study.hypotheses[name].role for name in names):
        places = [names.index(name) for name in study.family(role)]
        supported, refuted = (_corrected(study, p[:, places]) <= study.analysis.alpha for p in (support, refute))
        yields = np.array([study.claims[names[place]].verb.startswith("does_not") for place in places])
        supported &= ~refuted | yields
        codes[:, places] = np.where(supported, 0, np.where(refuted, 1, 2))
    return codes


def _complete(differences: Floats, kept: Kept | None, least: int) -> Iterator[tuple[npt.NDArray[np.intp], Floats]]:
    """Studies with equally many complete pairs, all or at least `least`, and these pairs in the order of the seeds."""
    if kept is None:
        yield np.arange(len(differences)), differences
        return
    counts = kept.sum(axis=1)
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        if count >= (2 if count == differences.shape[1] else least):
            yield rows, np.ascontiguousarray(differences[rows][kept[rows]].reshape(len(rows), count))


class Rows(ABC):
    """One test for every row."""

    def __init__(self, values: Floats) -> None:
        self.values, self.n = values, values.shape[1]
        self.mean = values.mean(axis=1)
        self.size = np.abs(values).max(axis=1)
        self.usable: Kept = np.ones(len(values), dtype=bool)
        self.leaning = np.sign(self.mean)

    @abstractmethod
    def p(self, null: float, side: Side) -> Floats:
        """p of the null effect, row by row; see `Procedure.p`."""


class RowsOfT(Rows):
    """`PairedT` over rows."""

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        # Equal differences have no SE. All zero, the scalar test says p = 1 or nothing at all: the same outcome.
        self.usable = np.ptp(values, axis=1) > EQUAL * self.size
        self.se = values.std(axis=1, ddof=1) / np.sqrt(self.n)

    def p(self, null: float, side: Side) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (self.mean - null) / self.se
        tail = -np.abs(t) if side == "two" else -t if side == "greater" else t
        p: Floats = np.maximum(t_cdf(self.n - 1, tail) * (2.0 if side == "two" else 1.0), TINY)
        return p


_SERIES_DF = 40
_TAIL = 1e-4


def t_cdf(df: int, t: Floats) -> Floats:
    """Student's t at whole degrees of freedom: the finite series (Abramowitz and Stegun 26.7.3 and 26.7.4), which is
    ten times faster than `stdtr`, and `stdtr` in the tails, where the series loses digits."""
    if df > _SERIES_DF:
        found: Floats = special.stdtr(float(df), t)
        return found
    with np.errstate(invalid="ignore", over="ignore"):
        cos2 = df / (df + t * t)
        sine = t * np.sqrt(cos2 / df)
    odd = df % 2
    term = np.sqrt(cos2) if odd else np.ones_like(t)
    total = np.zeros_like(t) if df == 1 else term
    for k in range(2 + odd, df - 1, 2):
        term = term * (cos2 * ((k - 1) / k))
        total = total + term
    inside = (2.0 / np.pi) * (np.arcsin(sine) + sine * total) if odd else sine * total
    found = 0.5 + 0.5 * inside
    outer = ~((found > _TAIL) & (found < 1.0 - _TAIL))  # NaN, too
    found[outer] = special.stdtr(float(df), t[outer])
    return found


class _RowsOfFlips(Rows):
    """`SignFlip` over rows, by the same doubling."""

    def p(self, null: float, side: Side) -> Floats:
        step = max(1, _CHUNK // 2**self.n)
        return np.concatenate([self._p(at, at + step, null, side) for at in range(0, len(self.values), step)])

    def _p(self, start: int, stop: int, null: float, side: Side) -> Floats:
        values = self.values[start:stop]
        sums, counts = np.zeros((len(values), 1)), np.zeros(1)
        for column in values.T:
            sums = np.concatenate([sums, sums + column[:, None]], axis=1)
            counts = np.concatenate([counts, counts + 1.0])
        means = sums[:, 1:] / counts[1:]
        slack = (EQUAL * np.maximum(self.size[start:stop], abs(null)))[:, None]
        total = 2.0**self.n
        above = (1.0 + (means <= null + slack).sum(axis=1)) / total
        below = (1.0 + (means >= null - slack).sum(axis=1)) / total
        chosen: Floats = {"two": np.minimum(1.0, 2.0 * np.minimum(above, below)), "greater": above, "less": below}[side]
        return chosen


def _weigh(test: Rows, verb: Verb, better: Better, smallest: float) -> tuple[Floats, Floats | None]:
    """`nulls.weigh` over rows."""
    two_sided = test.p(0.0, "two")

    def towards(sign: int) -> Floats:
        return np.where(test.leaning == sign, two_sided, 1.0)

    def short_of(sign: int) -> Floats:
        return test.p(sign * smallest, "less" if sign > 0 else "greater")

    if verb in ("lowers", "raises"):
        sign = -1 if verb == "lowers" else 1
        return towards(sign), short_of(sign)
    if verb in ("lowers_by", "raises_by"):
        sign = -1 if verb == "lowers_by" else 1
        return test.p(sign * smallest, "greater" if sign > 0 else "less"), short_of(sign)
    if verb == "does_not_worsen":
        worse = 1 if better == "lower" else -1
        return short_of(worse), towards(worse)
    within = np.maximum(short_of(1), short_of(-1)) if smallest > 0 else None
    if verb == "changes":
        return two_sided, within
    assert within is not None, (verb, smallest)
    return within, two_sided


def _corrected(study: Study, p: Floats) -> Floats:
    """`multiplicity.holm` over rows, or nothing."""
    if study.analysis.correct == "none":
        return p
    m = p.shape[1]
    order = np.argsort(p, axis=1, kind="stable")
    steps = np.minimum(1.0, np.arange(m, 0, -1) * np.take_along_axis(p, order, axis=1))
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=1), axis=1)
    return adjusted
