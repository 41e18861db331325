"""Deciding test by its name (`KINDS`): how it is made from differences, and from how many pairs it may decide.

To add a test: see `significance_tests`. Importing this module is what fills `KINDS`.
"""

from __future__ import annotations

from ablate.judge.stats.significance_tests import KINDS, Floats, SignificanceTest, Zeros
from ablate.judge.stats.two_way import TwoWay
from prereg.study.words_of_tests import Test

assert TwoWay.name in KINDS, "the module of the two-way test fills its row"


def class_of_test(method: Test) -> type[SignificanceTest]:
    """The class of a test. Raises `KeyError` for one that nobody declared.

    Examples
    --------
    >>> class_of_test("welch").words, class_of_test("sign_flip").floor(6, "greater")
    ("Welch's t", 0.015625)
    """
    return KINDS[method]


def over_seeds(
    method: Test, x: Floats, *, rng_seed: int = 0, zeros: Zeros = "pratt", simulated: bool = False
) -> SignificanceTest:
    """The test of differences over seeds. Welch's test and the two-way test are made from runs and
    from items, and not here.

    Parameters
    ----------
    method : str
        Its name, as a study writes it.
    x : array, studies x pairs
        Differences of the pairs.
    rng_seed, zeros, simulated
        Of the tests that resample, and of signed ranks: see their classes.

    Raises
    ------
    NoTestError
        Below two pairs.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.5, 1.0, 1.5, 0.25, 0.75, 2.0]])
    >>> [float(over_seeds(method, x).p(0.0, "greater")[0]) for method in ("sign_flip", "wilcoxon")]
    [0.015625, 0.015625]
    """
    return class_of_test(method).of_differences(x, rng_seed=rng_seed, zeros=zeros, simulated=simulated)


def undecided(method: Test, n: int) -> str | None:
    """Why a test may describe n pairs and not decide from them; none where it may decide.

    Examples
    --------
    >>> undecided("paired_t", 3), undecided("bootstrap_t", 4)
    (None, None)
    >>> undecided("bootstrap_t", 3)
    '3 pairs, and bootstrap-t decides from 4 on: with fewer it errs more than alpha'
    """
    kind = class_of_test(method)
    # Below two pairs the test itself refuses, with its own words (`NoTestError`).
    if n >= kind.fewest or kind.fewest == 2:
        return None
    return f"{n} pairs, and {kind.words} decides from {kind.fewest} on: with fewer it errs more than alpha"
