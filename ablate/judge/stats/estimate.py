"""Estimate of a single study by a test: difference, interval, p, floor of p, and what a reader must know."""

from __future__ import annotations

import numpy as np

from ablate.judge.stats.crossed_items import OverItems, SeedsMeans
from ablate.judge.stats.significance_tests import SignificanceTest
from ablate.judge.verdict import Estimate, Interval


def one_sample(words: str) -> str:
    """The words of a test where each seed gives one number: the same arithmetic under its usual name.

    Examples
    --------
    >>> one_sample("paired t repeated at look 1 of 2")
    'one-sample t repeated at look 1 of 2'
    """
    # With one number a seed the paired t is Student's one-sample t, and no reader should look for pairs.
    return words.replace("paired t", "one-sample t")


def speak_of_seeds(test: SignificanceTest) -> None:
    """Name the test and count as where each seed gives one number and no two sides are compared."""
    test.words, test.counted = one_sample(test.words), "seeds"


def interval_of(
    test: SignificanceTest, alpha: float, *, over: int = 1, one_sided: bool = False, at: str = ""
) -> Interval | None:
    """The two-sided interval at 1 - alpha of a single study, by inverting the test.

    Parameters
    ----------
    over : int
        Over how many claims it is corrected (`alpha` is that of the corrected level already).
    one_sided : bool
        Whether its ends are one-sided bounds, each at 1 - alpha / 2.
    at : str
        At which level of a correction, in words that follow the method's.

    Returns
    -------
    Interval or None, where that is the whole line or the test has no p.

    Examples
    --------
    >>> from ablate.judge.stats.significance_tests import PairedT
    >>> interval = interval_of(PairedT(np.array([[1.0, 2.0, 3.0]])), 0.025, over=2)
    >>> interval.method, round(interval.low, 3), round(interval.high, 3)
    ('paired t, Bonferroni over 2', -1.583, 5.583)
    """
    if test.refusal():
        return None
    # NaN is the whole line, and an end at infinity is open: JSON has neither.
    low, high = (float(end[0]) for end in test.bounds(alpha))
    if np.isnan(low):
        return None
    method = test.words + (f", Bonferroni over {over}" if over > 1 else "") + at
    ends = (end if np.isfinite(end) else None for end in (low, high))
    return Interval(low=next(ends), high=next(ends), level=1.0 - alpha, over=over, one_sided=one_sided, method=method)


def summarise(test: SignificanceTest, alpha: float, *, one_sided: bool = False) -> Estimate:
    """What a test says of a single study: effect, interval at 1 - alpha, p against zero, and its floor.

    Examples
    --------
    >>> from ablate.judge.stats.significance_tests import PairedT
    >>> estimate = summarise(PairedT(np.array([[1.0, 2.0, 3.0]])), 0.05)
    >>> estimate.difference, estimate.n, round(estimate.p, 4)
    (2.0, 3, 0.0742)
    """
    # Without an interval the estimate says why, next to what the test itself notes.
    interval = interval_of(test, alpha, one_sided=one_sided)
    notes = test.notes if interval is not None else (*test.notes, test.without_interval(alpha))
    # A row without a standard error has NaN: none in a record, where NaN cannot be written.
    se, df = (
        None if value is None or np.isnan(value[0]) else float(value[0]) for value in (test.standard_error, test.df)
    )
    return Estimate(
        method=test.name,
        difference=float(test.difference[0]),
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
