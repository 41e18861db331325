"""What a test says of a single study: difference, interval, p, floor of p, and what a reader must know."""

from __future__ import annotations

import numpy as np

from ablate.judge.stats.crossed_items import OverItems, SeedsMeans
from ablate.judge.stats.tests import SignificanceTest
from ablate.judge.verdict import Estimate, Interval


def one_sample(words: str) -> str:
    """The words of a test where each seed gives one number: the same arithmetic under its usual name."""
    return words.replace("paired t", "one-sample t")


def speak_of_seeds(test: SignificanceTest) -> None:
    """Name the test and count as where each seed gives one number and no two sides are compared."""
    test.words, test.counted = one_sample(test.words), "seeds"


def shown_difference(test: SignificanceTest) -> float | None:
    """The effect that is shown; none where the test gives none."""
    shown = float(test.difference[0])
    return None if np.isnan(shown) else shown


def interval_of(
    test: SignificanceTest, alpha: float, *, over: int = 1, one_sided: bool = False, at: str = ""
) -> Interval | None:
    """The two-sided interval at 1 - alpha, by inverting the test; none where that is the whole line.

    `over`, `one_sided` and `at` say what it is for: over how many claims it is corrected, whether its ends are bounds
    and at which level of a correction.
    """
    if test.refusal():
        return None
    low, high = (float(end[0]) for end in test.bounds(alpha))
    if np.isnan(low):
        return None
    method = test.words + (f", Bonferroni over {over}" if over > 1 else "") + at
    ends = (end if np.isfinite(end) else None for end in (low, high))
    return Interval(low=next(ends), high=next(ends), level=1.0 - alpha, over=over, one_sided=one_sided, method=method)


def summarise(test: SignificanceTest, alpha: float, *, one_sided: bool = False) -> Estimate:
    """What a prepared test says."""
    interval = interval_of(test, alpha, one_sided=one_sided)
    notes = test.notes if interval is not None else (*test.notes, test.without_interval(alpha))
    se, df = (None if one is None or np.isnan(one[0]) else float(one[0]) for one in (test.standard_error, test.df))
    return Estimate(
        method=test.name,
        difference=shown_difference(test),
        ranked=test.unsized,
        interval=interval,
        p=float(test.p(0.0, "two")[0]),
        p_floor=test.floor(test.n),
        n=test.n,
        se=se,
        df=df,
        notes=notes,
        items=test.items if isinstance(test, SeedsMeans | OverItems) else None,
        sizes=test.sizes,
    )
