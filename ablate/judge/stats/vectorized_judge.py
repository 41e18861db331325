"""Thousands of simulated studies judged at once: the scalar judge written over rows, and nothing else.

A design asks for thousands of studies in a dozen states of the world. One study at a time that takes minutes; here
each row of an array is a study. Outcomes are those of the scalar judge and not merely close:
`tests/judge/test_batch.py` draws studies at random and compares. Where rounding could part the two (resamples of
nearly equal values, ranks that tie) a row is given to the scalar test. The studies of one call share the resamples of
one `rng_seed`: each is judged as the scalar judge would with that seed. One exception: from `resample.LISTED_PAIRS`
to `resample.COUNTED_PAIRS` the scalar sign-flip counts all sign vectors, which takes too long for thousands of
studies; here they are drawn as they are beyond, and a design says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ablate.judge.stats.multiplicity import holm_rows, rejected_rows
from ablate.judge.stats.null_hypotheses import Null, is_gated, levels_of, nulls_of
from ablate.judge.stats.paired_t import TINY, Floats
from ablate.judge.stats.resample import FAST_ENUMERATED_PAIRS, RESAMPLES, multisets
from ablate.judge.stats.vectorized_tests import (
    CHUNK,
    ROWS_LISTED_PAIRS,
    Kept,
    OverItems,
    Rows,
    RowsOfItems,
    rows_of_test,
    unpaired_tests,
)
from prereg.rule.condition import Outcome
from prereg.rule.divergence import End, least_pairs, refutable
from prereg.study.analysis import Test
from prereg.study.spec import Study

Codes = npt.NDArray[np.int8]
OUTCOME: tuple[Outcome, ...] = ("supported", "refuted", "inconclusive")
"""What a code means."""


Items = Mapping[str, OverItems]
"""By hypothesis; needed under `estimand: new_seeds_and_items` alone."""


def judge_rows(
    study: Study,
    differences: Mapping[str, Floats],
    kept: Mapping[str, Kept] | None = None,
    ends: Mapping[End, Kept] | None = None,
    *,
    rng_seed: int = 0,
    rows_of: Callable[[Floats], Rows] | None = None,
    items: Items | None = None,
) -> tuple[Codes, Codes]:
    """Outcome codes, studies x hypotheses, and `sensitivity.possible_outcomes` over rows: a bit for each outcome to
    reckon with.

    `differences` are studies x seeds, `kept` the pairs that enter, `ends` the ends towards which lost pairs push each
    hypothesis, each studies x hypotheses. `rows_of` makes another test than the study's own: at a look of a sequential
    study, the test of that look.
    """
    names = list(study.hypotheses)
    weighed = []
    for name in names:
        mine = None if kept is None else kept[name]
        (p,) = weigh_rows(study, name, differences[name], mine, rng_seed=rng_seed, rows_of=rows_of, items=items)
        weighed.append(p)
    support, refute = (np.stack([p[which] for p in weighed], axis=1) for which in (0, 1))
    codes = code_rows(study, names, support, refute)
    can = np.array([refutable(study, name) for name in study.hypotheses])
    possible = np.left_shift(1, codes).astype(np.int8)
    for end, moved in (ends or {}).items():
        at = (TINY, 1.0) if end == "supported" else (1.0, TINY)
        there = code_rows(study, names, np.where(moved, at[0], support), np.where(moved & can, at[1], refute))
        possible |= np.left_shift(1, there).astype(np.int8)
    both = 1 << OUTCOME.index("supported") | 1 << OUTCOME.index("refuted")
    possible[possible & both == both] |= 1 << OUTCOME.index("inconclusive")
    return codes, possible


@dataclass(frozen=True)
class Shifted:
    """The same studies under another truth: every difference moved by `by`, and another margin than the registered."""

    by: float = 0.0
    smallest: float | None = None


def weigh_rows(
    study: Study,
    name: str,
    differences: Floats,
    kept: Kept | None = None,
    *,
    cases: Sequence[Shifted] = (Shifted(),),
    rng_seed: int = 0,
    rows_of: Callable[[Floats], Rows] | None = None,
    items: Items | None = None,
) -> list[tuple[Floats, Floats]]:
    """p of support and of refutation of one hypothesis, study by study; 1 where it has no p.

    In each case, with one preparation of the tests for all: every test moves with its differences. Over new items a p
    is only known to lie at or below the levels of the correction, which decides the same.
    """
    new_items = study.analysis.estimand == "new_seeds_and_items"
    assert not new_items or items is not None, study.analysis
    claim = study.claims[name]
    found = [(np.ones(len(differences)), np.ones(len(differences))) for _ in cases]
    tests = _tests(study, name, differences, kept, rng_seed=rng_seed, rows_of=rows_of, items=items)
    for rows, test in tests:
        for (support, refute), case in zip(found, cases, strict=True):
            smallest = study.hypotheses[name].smallest if case.smallest is None else case.smallest
            for p, null in zip((support, refute), nulls_of(claim.verb, claim.better, smallest), strict=True):
                # A study that cannot be tested keeps its place in the family with p = 1.
                if null is not None:
                    p[rows] = np.where(test.usable, _p_of(test, null, case.by), 1.0)
        del test  # its arrays make room for the next block's
    return found


def _tests(
    study: Study,
    name: str,
    differences: Floats,
    kept: Kept | None,
    *,
    rng_seed: int,
    rows_of: Callable[[Floats], Rows] | None,
    items: Items | None,
) -> Iterator[tuple[npt.NDArray[np.intp], Rows]]:
    """The test of one hypothesis, a block of studies at a time; studies that cannot be tested are in none."""
    if not study.paired:
        yield from unpaired_tests(study, name, differences, kept)
        return
    resampled = 1 if rows_of is not None else _resampled(study.analysis.test, differences.shape[1])
    for rows, values in _blocks(differences, kept, least_pairs(study), resampled):
        if items is not None and study.analysis.estimand == "new_seeds_and_items":
            yield rows, RowsOfItems(values, items[name], rows, levels_of(study, name))
        else:
            yield rows, rows_of_test(study, values, rng_seed) if rows_of is None else rows_of(values)


def code_rows(study: Study, names: list[str], support: Floats, refute: Floats) -> Codes:
    """Outcome codes of the named hypotheses, whole roles (or the gate) at a time; p are studies x hypotheses."""
    uncorrected = study.analysis.correct == "none"
    codes = np.empty(support.shape, dtype=np.int8)
    supported = np.empty(support.shape, dtype=bool)
    for together in dict.fromkeys(study.corrected_with(name) for name in names):
        places = [names.index(name) for name in together]
        p = support[:, places]
        if is_gated(study, together):
            supported[:, places] = rejected_rows(study.gate_steps, p, study.analysis.alpha)
        else:
            supported[:, places] = (p if uncorrected else holm_rows(p)) <= study.analysis.alpha
    for family in dict.fromkeys(study.family_of(name) for name in names):
        places = [names.index(name) for name in family]
        p = refute[:, places] if uncorrected else holm_rows(refute[:, places])
        refuted = p <= study.analysis.alpha
        yields = np.array([study.claims[names[place]].verb.startswith("does_not") for place in places])
        kept = supported[:, places] & (~refuted | yields)
        codes[:, places] = np.where(kept, 0, np.where(refuted, 1, 2))
    return codes


def _resampled(test: Test, n: int) -> int:
    """How many numbers a study takes in the largest array over its resamples."""
    if test == "bootstrap_t":
        return max(512, len(multisets(n)[1])) if n <= FAST_ENUMERATED_PAIRS else RESAMPLES
    if test == "sign_flip":
        return 2**n if n <= ROWS_LISTED_PAIRS else RESAMPLES
    return n


def _blocks(
    differences: Floats, kept: Kept | None, least: int, resampled: int
) -> Iterator[tuple[npt.NDArray[np.intp], Floats]]:
    """Studies with equally many complete pairs and all or not all of them with a size, a block at a time."""
    for rows, values in _complete(differences, kept, least):
        sized = np.isfinite(values).all(axis=1)
        for alike in (np.flatnonzero(sized), np.flatnonzero(~sized)):
            step = max(1, CHUNK // resampled)
            for start in range(0, alike.size, step):
                chosen = alike[start : start + step]
                yield rows[chosen], values[chosen]


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


def _p_of(test: Rows, null: Null, by: float) -> Floats:
    """`Null.p` over rows whose differences are all moved by `by`: they meet a point as the rows meet point - by."""
    p = [test.p(point - by, side) for point, side in null.points]
    found = p[0] if len(p) == 1 else np.maximum(*p)
    if not null.towards:
        return found
    leaning = test.leaning if by == 0.0 else test.leaning_at(-by)
    return np.where(leaning == null.towards, found, 1.0)
