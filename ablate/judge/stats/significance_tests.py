"""Significance tests over seeds, one class each: p values and intervals of paired t, sign-flip, Wilcoxon, Welch.

Each row of an array is a study, each column a seed. `ablate decide` has one row and `ablate design` has thousands, and
both run this code: the test that plans is the test that decides. Nothing of studies, records
or reports is imported here.

    PairedT      Student's t on the differences of pairs
    BootstrapT   the studentised bootstrap of pairs
    SignFlip     every difference keeps its size and may change its sign
    SignedRank   the same over ranks (Wilcoxon)
    Welch        weighted means of arms whose runs are no pairs

The two-way test of seeds and items is in `two_way`, tests at looks in `sequential`, and all of them
are listed in `kinds`. Bootstraps of the mean itself (percentile and its kin) are not here: below twenty seeds they
reject a true null two to six times too often (docs/explanation/bootstrap.md).

A test is made once from its data and then gives p values against any null and intervals. The two-sided test against
zero, the one-sided tests against a margin and the interval therefore always rest on the same statistic and the same
resamples: they cannot disagree. It never picks a side from the data: the caller of a one-sided p names the side.

Numbers are computed in a unit of each row's own, the power of two just above its largest value: dividing by it is
exact, no sum or square over- or underflows in it, and a p does not change when data and null are multiplied by a power
of two.

To add a test: a class here with `@registrable`, which declares what the judge asks of it, with a value that somebody
else computed as its example, and its row of words in `prereg.study.words_of_tests`. The conformance suite
(tests/judge/test_conformance.py) then runs over it. Where pingouin or scipy computes it too, name that function in
`second_opinion` and add it to `OPINIONS` of `ablate.judge.recompute`.

To add a correction over several hypotheses: `multiplicity`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from math import factorial, floor, inf
from typing import ClassVar, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import special

from ablate.judge.stats.precision import ROUNDING
from ablate.judge.stats.root import root

Floats = npt.NDArray[np.float64]
Kept = npt.NDArray[np.bool_]
Ranks = npt.NDArray[np.int64]
Side = Literal["two", "greater", "less"]
"""`greater` is evidence that the effect is above the null, `less` below."""
Zeros = Literal["pratt", "wilcox"]

TINY: Final = float(np.nextafter(0.0, 1.0))
"""The smallest positive double: what a p value that underflows is reported as. A p is never 0."""
EQUAL: Final = 1e-12
"""Numbers that differ by less than this share of their size are tied: rounding broke the tie."""
SAME: Final = 1e-6
"""Differences whose spread is below this share of their size are the same: they have no SE. `EQUAL` would be too small:
losses are logged with few decimals, and 3.2783 - 3.2781 and 3.2766 - 3.2764 differ by 4e-16 as doubles, 2e-12 of their
size, which is a t of 1e12. Of public runs 1 in 3,100 two pairs got past 1e-12."""
FAR: Final = 2.0**500
"""A null this many units away is beyond any test, and its square is still finite."""

RESAMPLES: Final = 9_999
"""Monte Carlo draws: with them p = (1 + k) / 10,000 (Davison and Hinkley 1997, eq. 4.11)."""
ENUMERATED_PAIRS: Final = 10
"""Up to here bootstrap-t uses all n^n resamples: 10^10 index vectors are 92,378 multisets with their weights."""
FAST_ENUMERATED_PAIRS: Final = 8
"""Up to here all of them are no more than `RESAMPLES` (6,435 multisets): in simulated studies."""
TIED_PAIRS: Final = 7
"""Up to here a resample of several pairs with equal differences counts as beyond every t."""
BOOTSTRAPPED: Final = 199_999
"""Draws of a bootstrap-t that decides where not all resamples are used: the standard error of a p of .05 is .0005."""
ROWS_LISTED_PAIRS: Final = 12
"""Up to here the subset means of a sign-flip are listed for every row; then they are counted."""
LISTED_PAIRS: Final = 20
"""Up to here they are listed for the interval of one study, 8 MB; and simulated studies count all sign vectors."""
COUNTED_PAIRS: Final = 40
"""Up to here all 2^n sign vectors are counted, as pairs of halves of them: 2^20 subset sums a half, 8 MB each."""


class NoTestError(Exception):
    """These data admit no such test. Not a user's mistake: the finding is inconclusive and says why."""


def p_of_t(t: Floats, df: float | Floats, side: Side) -> Floats:
    """p of t statistics with `df` degrees of freedom; never 0.

    Examples
    --------
    The critical value 2.776 of four degrees of freedom, from any table of Student's law:

    >>> p_of_t(np.array([2.776445]), 4.0, "two").round(6).tolist()
    [0.05]
    """
    # The lower tail loses no digits; 1 - the distribution function is 0 from t = 9 on with many df.
    tail = -np.abs(t) if side == "two" else -t if side == "greater" else t
    p: Floats = np.maximum(special.stdtr(df, tail) * (2.0 if side == "two" else 1.0), TINY)
    return p


def two_of(above: Floats, below: Floats, side: Side) -> Floats:
    """The p of a side from both tails: twice the smaller for the two-sided test, at most 1.

    Examples
    --------
    >>> two_of(np.array([0.75]), np.array([0.5]), "two").tolist()
    [1.0]
    """
    if side == "two":
        return np.minimum(1.0, 2.0 * np.minimum(above, below))
    return above if side == "greater" else below


def exponent_of(values: Floats) -> int:
    """The power of two just above the largest size, 0 where all are zero.

    Examples
    --------
    >>> exponent_of(np.array([0.3, -5.0]))
    3
    """
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])


def sd_of(values: Floats) -> float:
    """The sample standard deviation (over n - 1), in a unit in which no square over- or underflows.

    Examples
    --------
    The squares of these deviations are beyond the largest double:

    >>> round(sd_of(np.array([1e200, 3e200])) / 1e200, 6)
    1.414214
    """
    power = exponent_of(values)
    return float(np.ldexp(np.ldexp(values, -power).std(ddof=1), power))


class SignificanceTest(ABC):
    """One test of every row: it is made once from its data, and then asked for p values and intervals.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs, finite. An effect is always left side minus right side.

    Attributes
    ----------
    exponent : array, one number a study
        `x`, `mean`, `size` and `span` are in the unit of each row, 2**exponent.
    usable : array, one truth value a study
        Rows that have the test; p is 1 for the others.

    Raises
    ------
    NoTestError
        Below two pairs.

    Notes
    -----
    A subclass says what `tail` and `bounds` are. In its docstring "Statistic", "Null", "p" and
    "Interval" are formulas, and "Fails" says where the error rate is not what it should be, with a
    measured number.
    """

    # What every class declares of itself.

    name: str
    """As a study writes it."""
    words: str
    """As the method of an interval says it."""
    fewest: ClassVar[int] = 2
    """Pairs from which it decides; with fewer it only describes."""
    of_pairs: ClassVar[bool] = True
    """Whether it is made from differences of pairs (`of_differences`)."""
    affordable: ClassVar[tuple[tuple[float, int], ...]] = ((inf, 10_000),)
    """How many simulated studies are affordable, each with the number of seeds up to which that holds."""
    second_opinion: ClassVar[Literal["", "ttest", "wilcoxon", "permutation_test", "ttest_ind"]] = ""
    """The function of pingouin or scipy that computes it too (`ablate.judge.recompute`); empty for none."""

    # What a test is of.

    counted = "pairs"
    """What each value is of."""
    sizes: tuple[int, ...] = ()
    """Runs of each arm, of a test without pairs."""
    against_mean = "the ranks point the other way than the mean; the direction is that of the ranks"
    """What the report says when `leaning` and the effect that is shown disagree."""
    standard_error: Floats | None = None
    """In the reader's unit, where the test has one."""
    df: Floats | None = None
    """Degrees of freedom, where the test has one number of them."""

    def __init__(self, x: Floats) -> None:
        assert x.ndim == 2, x.shape
        if x.shape[1] < 2:
            raise NoTestError(f"{x.shape[1]} pair(s); a test needs at least two")
        # Over the transposed values a row's largest is found many times faster, and is the same number.
        turned = np.ascontiguousarray(x.T)
        high, low = turned.max(axis=0), turned.min(axis=0)
        largest = np.maximum(high, -low)
        assert np.isfinite(largest).all(), x
        self.exponent = np.frexp(largest)[1]
        self.x: Floats = np.ldexp(np.ascontiguousarray(x), -self.exponent[:, None])
        self.n = x.shape[1]
        # Row by row numpy adds in one order whatever the number of rows, so that a study alone and
        # among thousands has the same mean to the bit.
        self.mean: Floats = self.x.mean(axis=1)
        self.size: Floats = np.ldexp(largest, -self.exponent)
        self.span: Floats = np.ldexp(high, -self.exponent) - np.ldexp(low, -self.exponent)
        self.usable: Kept = np.ones(len(x), dtype=bool)

    @classmethod
    def of_differences(cls, x: Floats, *, rng_seed: int, zeros: Zeros, simulated: bool) -> SignificanceTest:
        """The test of differences, studies x pairs; a class takes of the settings what it needs."""
        assert cls.of_pairs, f"{cls.name} is not made from differences of pairs"
        return cls(x)

    @staticmethod
    def numbers(n: int) -> int:
        """Numbers that a study of n seeds takes in the largest array of the test."""
        return n

    @classmethod
    def affordable_studies(cls, n: int) -> int:
        """How many simulated studies of n seeds a scenario of the design takes."""
        return next(studies for most_seeds, studies in cls.affordable if n <= most_seeds)

    @classmethod
    @abstractmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """Smallest p that any data of n pairs can give.

        >>> SignFlip.floor(5), SignFlip.floor(5, "greater")
        (0.0625, 0.03125)
        """

    @abstractmethod
    def tail(self, null: float, side: Side) -> Floats:
        """p of the null effect where a row is `usable`."""

    @abstractmethod
    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        """The interval at 1 - alpha: every null that the two-sided test does not reject at alpha.

        Returns
        -------
        The lower and the upper ends, one a study, in the reader's unit; NaN for the whole line.

        >>> differences = np.array([[0.1, 0.3, 0.2, 0.4, 0.25]])
        >>> [end.round(3) for end in PairedT(differences).bounds(0.05)]
        [array([0.111]), array([0.389])]
        """

    def p(self, null: float, side: Side) -> Floats:
        """p of the null effect.

        Parameters
        ----------
        null : float
            The effect under the null, in the reader's unit.
        side : "two", "greater" or "less"
            `greater` is evidence that the effect is above the null. The caller names it: a side that
            is picked from the data doubles the error rate.

        Returns
        -------
        array, one p a study: above 0, and 1 where a row has no such test.

        >>> differences = np.array([[0.1, 0.3, 0.2, 0.4, 0.25], [0.1, -0.3, 0.2, -0.4, 0.25]])
        >>> PairedT(differences).p(0.0, "greater").round(4)
        array([0.0037, 0.5832])
        """
        return np.where(self.usable, self.tail(null, side), 1.0)

    def leaning_at(self, null: float) -> Floats:
        """Sign of the statistic that the test itself looks at: where a rejection of the null would point."""
        return np.asarray(np.sign(self.mean - self.to_unit(null)))

    @property
    def difference(self) -> Floats:
        """The effect that is shown, in the reader's unit: the mean, unless a test has reason to give another."""
        return self.from_unit(self.mean)

    def refusal(self, null: float = 0.0) -> str:
        """Why a single study has no p of this null; empty where it has one."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of a single study must know."""
        return ("every difference is exactly zero",) if self.size[0] == 0.0 else ()

    def without_interval(self, alpha: float) -> str:
        """Why a single study has no interval."""
        return (
            f"{self.words} gives no finite {1.0 - alpha:.6g} interval from {self.n} {self.counted}: "
            f"its smallest two-sided p is {self.floor(self.n):.4g}"
        )

    def to_unit(self, null: float) -> Floats:
        """A null in the unit of every row; one that is beyond every value stays finite."""
        with np.errstate(over="ignore"):
            return np.asarray(np.clip(np.ldexp(null, -self.exponent), -FAR, FAR))

    def from_unit(self, value: Floats) -> Floats:
        """Values in the unit of every row as the reader's numbers; infinite beyond the largest double."""
        with np.errstate(over="ignore"):
            return np.asarray(np.ldexp(value, self.exponent))

    def by_row(self, bounds: Sequence[tuple[float, float] | None]) -> tuple[Floats, Floats]:
        """Intervals in the unit of every row as the reader's numbers."""
        ends = np.array([(np.nan, np.nan) if pair is None else pair for pair in bounds])
        return self.from_unit(ends[:, 0]), self.from_unit(ends[:, 1])


KINDS: Final[dict[str, type[SignificanceTest]]] = {}
"""Every test that a study can register, by its name. `kinds` imports the modules that fill it."""
Kind = TypeVar("Kind", bound=type[SignificanceTest])


def registrable(test: Kind) -> Kind:
    """List a class in `KINDS`."""
    assert test.name not in KINDS, test.name
    KINDS[test.name] = test
    return test


class Studentized(SignificanceTest):
    """What the tests with a standard error share: they are undefined where that error is zero."""

    zeros_decide = False
    """Whether differences that are all exactly zero reject a null away from zero. There is no t then: the caller says
    whether different arms could have had equal values (`ablate.judge.stats.null_hypotheses.why_zeros_are_open`)."""

    def __init__(self, x: Floats) -> None:
        super().__init__(x)
        self.usable = self.span > SAME * self.size
        spread: Floats = self.x.std(axis=1, ddof=1, mean=self.mean[:, None])
        self.se: Floats = spread / np.sqrt(self.n)
        self.standard_error = self.from_unit(self.se)

    def statistic(self, null: float) -> Floats:
        """t against the null; 0 where a row has no standard error."""
        t: Floats = (self.mean - self.to_unit(null)) / np.where(self.usable, self.se, np.inf)
        return t

    def p(self, null: float, side: Side) -> Floats:
        p = super().p(null, side)
        is_beyond_zero = (null > 0.0 and side == "less") or (null < 0.0 and side == "greater")
        if not (self.zeros_decide and is_beyond_zero):
            return p
        # The limit of t as the standard error goes to zero.
        return np.where(self.size == 0.0, self.floor(self.n, side), p)

    def around_mean(self, half: float | Floats) -> tuple[Floats, Floats]:
        """The interval of this half-width in the unit of every row."""
        return self.from_unit(self.mean - half), self.from_unit(self.mean + half)

    def refusal(self, null: float = 0.0) -> str:
        zero = self.size[0] == 0.0
        if self.usable[0] or (zero and (null == 0.0 or self.zeros_decide)):
            return ""
        which = "are zero" if zero else f"equal {self.from_unit(self.mean)[0]:.6g}"
        against = f" against {null:.6g}" if zero else ""
        return (
            f"all {self.n} differences {which}: their standard error is zero, so {self.words} has no p{against}; "
            "sign_flip is defined here"
        )


class StudentT(Studentized):
    """What tests with Student's law share: t = (mean - null) / SE with `free` degrees of freedom."""

    free: float | Floats

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return TINY

    def tail(self, null: float, side: Side) -> Floats:
        return p_of_t(self.statistic(null), self.free, side)

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        return self.around_mean(special.stdtrit(self.free, 1.0 - alpha / 2.0) * self.se)


@registrable
class PairedT(StudentT):
    """Student's t test on the differences of pairs.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs, finite, two or more.

    Notes
    -----
    ::

        Statistic    t = (mean - null) / (s / sqrt(n)), s the SD of the n differences
        Null         the mean of the differences is `null`
        p            from Student's law with n - 1 degrees of freedom
        Interval     mean -+ t(1 - alpha / 2) s / sqrt(n)
        Fails        under skewed differences and few seeds: with the long tail against the claim it
                     errs in .12 to .16 at a nominal .05 from 3 pairs (tests/judge/test_size_slow.py);
                     undefined where all differences are equal

    References
    ----------
    Student (1908), The probable error of a mean. Biometrika 6, 1-25.

    Examples
    --------
    Student's own data (Cushny and Peebles' sleep) in R, ``t.test(extra ~ group, data = sleep, paired =
    TRUE)``: p-value = 0.002833, 95 percent confidence interval -2.4598858 -0.7001142.

    >>> sleep = np.array([[-1.2, -2.4, -1.3, -1.3, 0.0, -1.0, -1.8, -0.8, -4.6, -1.4]])
    >>> test = PairedT(sleep)
    >>> test.p(0.0, "two").round(6).tolist()
    [0.002833]
    >>> [end.round(7).tolist() for end in test.bounds(0.05)]
    [[-2.4598858], [-0.7001142]]
    """

    name = "paired_t"
    words = "paired t"
    second_opinion = "ttest"

    def __init__(self, x: Floats) -> None:
        super().__init__(x)
        self.free = self.n - 1.0
        self.df = np.full(len(x), self.free)


@registrable
class BootstrapT(Studentized):
    """The studentised bootstrap of pairs, symmetric in |t*| for the two-sided test and the interval.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs, finite, two or more.
    rng_seed : int
        Seed of the resamples, where not all of them are used. It is the same for every study: one that
        followed a registration could be chosen with it.
    simulated : bool
        Whether the rows are simulated studies: fewer resamples of many pairs are used then.

    Notes
    -----
    ::

        Statistic    t as of `PairedT`; of every resample of the pairs t* = (mean* - mean) / (s* / sqrt(n))
        Null         the mean of the differences is `null`
        p            (1 + k) / (1 + N): k of the N resamples of two pairs or more reach t. The observed
                     sample is one more draw, so that the p of an enumeration is never 0 either
        Interval     mean -+ c s / sqrt(n), c the largest |t*| that leaves p above alpha
        Fails        with 3 pairs it errs in .07 at a nominal .05, and decides nothing there (`fewest`);
                     in .06 to .07 with 6 and 7 pairs that are rounded to one SD; undefined where all
                     differences are equal

    A resample that draws one pair only has no t*. It is dropped, from the count and from the total:
    counting it as extreme makes the test never reject at n = 3. A resample of several pairs whose
    differences are equal has no spread either. With up to `TIED_PAIRS` pairs its t* is infinite, with the
    sign of its shift, and it counts: dropping it too made the test err in .17 with 4 pairs and in .10 with
    7, where differences are rounded to one SD. With more it is dropped as well, and the test errs in .07
    with 8 and .06 with 9 (reports/bench/precision.md has the rates of either rule).

    How it is counted: with a and q the sum and the sum of squares of a resample's centred values and
    r = a^2 / (n q), t*^2 = (n - 1) r / (1 - r). So t* is compared with t by comparing r with
    t^2 / (n - 1 + t^2), and every resample of every row is a product of matrices. Where rounding could
    part the two (nearly equal values, a steep t) the t* of the row are computed by
    `studentized_draws`, as for the interval.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, section 12.5: the bootstrap-t.
    Hall (1988), On symmetric bootstrap confidence intervals. JRSS B 50, 35-45.
    Davison and Hinkley (1997), Bootstrap Methods and their Application, eq. 4.11: the 1 + k.

    Examples
    --------
    Published intervals come from random draws, and nothing printed can be met to the digit. So the
    example is an enumeration by other code: scipy's t of each of the 5^5 resamples of five pairs.

    >>> from itertools import product
    >>> from scipy.stats import ttest_1samp
    >>> x = np.array([0.3, -0.1, 0.5, 0.9, 0.2])
    >>> resamples = np.array(list(product(x, repeat=5)))
    >>> resamples = resamples[np.ptp(resamples, axis=1) > 0]
    >>> t, t_star = ttest_1samp(x, 0.0).statistic, ttest_1samp(resamples, x.mean(), axis=1).statistic
    >>> expected = (1 + (np.abs(t_star) >= t - 1e-12).sum()) / (1 + len(resamples))
    >>> float(BootstrapT(x[None, :]).p(0.0, "two")[0]) == float(expected)
    True

    By hand: of the 2^2 resamples of two pairs two have spread, and their t* is 0, so p is 1 / (1 + 2).

    >>> BootstrapT(np.array([[1.0, 3.0]])).p(0.0, "two").round(6).tolist()
    [0.333333]
    """

    name = "bootstrap_t"
    words = "bootstrap-t"
    # Two-sided .072 and one-sided .094 at three pairs: more often than alpha (tests/judge/test_size_slow.py).
    fewest = 4
    affordable = ((6, 2_000), (inf, 500))

    def __init__(self, x: Floats, *, rng_seed: int = 0, simulated: bool = False) -> None:
        super().__init__(x)
        self.rng_seed, self.simulated = rng_seed, simulated
        # Counts of each pair in each resample, pairs x resamples, the same for all rows.
        counts, self.weights = _spread_resamples(self.n, rng_seed, simulated)
        # Two values that all but agree make resamples with next to no spread, where r is close to 1
        # and 1 - r has few digits left: their rows are counted by t* itself.
        self.close = np.diff(np.sort(self.x, axis=1), axis=1).min(axis=1) < 1e-6 * self.size
        # Sums and sums of squares of all rows in one product: 2 studies x pairs times pairs x resamples.
        centred = self.x - self.mean[:, None]
        both = np.concatenate([centred, self.n * centred**2])
        parts = []
        for start in range(0, counts.shape[1], _BLOCK):
            sums = both @ counts[:, start : start + _BLOCK].astype(np.float64)
            signed, squares = sums[: len(x)], sums[len(x) :]
            # a |a| / (n q): r with the sign of the resample's shift, so that one array serves both
            # tails.
            signed *= np.abs(signed)
            with np.errstate(divide="ignore", invalid="ignore"):  # equal values: `close`
                signed /= squares
            parts.append(signed)
        self.signed = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        self._draws: tuple[Floats, Floats] | None = None

    @classmethod
    def of_differences(cls, x: Floats, *, rng_seed: int, zeros: Zeros, simulated: bool) -> SignificanceTest:
        return cls(x, rng_seed=rng_seed, simulated=simulated)

    @staticmethod
    def numbers(n: int) -> int:
        return max(512, len(multisets(n)[1])) if n <= FAST_ENUMERATED_PAIRS else RESAMPLES

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        """1 / (1 + resamples of two pairs or more), reached because t* does not move with the effect and t does."""
        return 1.0 / (1 + (n**n - n if n <= ENUMERATED_PAIRS else BOOTSTRAPPED))

    def tail(self, null: float, side: Side) -> Floats:
        t = self.statistic(null)
        slack = EQUAL * np.maximum(1.0, np.abs(t))  # a tie that rounding broke counts as a tie
        # t* reaches t where the signed r reaches t |t| / (n - 1 + t^2): the map is increasing.
        least = np.abs(t) - slack if side == "two" else t - slack if side == "greater" else -t - slack
        square = least * np.abs(least)
        limit = (square / (self.n - 1 + np.abs(square)))[:, None]
        # How many resamples reach t, of how many; the observed sample is one more of both.
        reaching = self._reaching(slice(None), limit, side)
        total = float(self.signed.shape[1]) if self.weights is None else self.weights.sum()
        # Rows whose count hangs on rounding are counted again, by t* itself.
        unsure = self.close | np.isnan(limit[:, 0])
        steep = np.flatnonzero(np.abs(t) > _STEEP)
        # A t so large meets no resample near it but by rounding; where one is near, its t* are computed.
        low, high = (self._reaching(steep, limit[steep] + by, side) for by in (-_NEAR, _NEAR))
        unsure[steep] |= low != high
        p: Floats = (1.0 + np.minimum(reaching, total)) / (1.0 + total)
        for row in np.flatnonzero(self.usable & unsure):
            t_star, weights = self.draws(int(row))
            if side == "two":
                extreme = np.abs(t_star) >= abs(t[row]) - slack[row]
            else:
                extreme = t_star >= t[row] - slack[row] if side == "greater" else t_star <= t[row] + slack[row]
            p[row] = (1.0 + weights[extreme].sum()) / (1.0 + weights.sum())
        return p

    def _reaching(self, rows: slice | npt.NDArray[np.intp], limit: Floats, side: Side) -> Floats:
        """How many resamples reach a limit on r, row by row."""
        signed = self.signed[rows]
        counts = np.zeros(len(signed))
        if side != "less":
            counts += self._counted(signed >= limit)
        if side != "greater":
            counts += self._counted(signed <= -limit)
        return counts

    def _counted(self, reached: Kept) -> Floats:
        return row_counts(reached).astype(np.float64) if self.weights is None else reached @ self.weights

    def draws(self, row: int) -> tuple[Floats, Floats]:
        """t* of the resamples of two pairs or more of a row, and how often each occurs."""
        if self._draws is not None:
            return self._draws
        t_star, weights = studentized_draws(self.x[row], self.rng_seed, simulated=self.simulated)
        of_several_pairs = ~np.isnan(t_star)
        t_and_weights = t_star[of_several_pairs], weights[of_several_pairs]
        if len(self.x) == 1:
            self._draws = t_and_weights
        return t_and_weights

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        halves = np.full(len(self.x), np.nan)
        for row in range(len(self.x)):
            if self.size[row] == 0.0:
                halves[row] = 0.0
                continue
            t_star, weights = self.draws(row)
            # p(null) > alpha  <=>  at least floor(alpha (N + 1)) of the |t*| reach |t(null)|.
            rank = floor(alpha * (1.0 + weights.sum()) + EQUAL)
            if rank >= 1:
                order = np.argsort(-np.abs(t_star), kind="stable")
                reached = np.cumsum(weights[order])
                critical = np.abs(t_star)[order][np.searchsorted(reached, rank)]
                # Where more than alpha of the resamples have no spread every null is kept: the whole line, NaN.
                halves[row] = critical * self.se[row] if np.isfinite(critical) else np.nan
        return self.around_mean(halves)

    @property
    def notes(self) -> tuple[str, ...]:
        if self.size[0] == 0.0:
            return super().notes
        t_star, weights = self.draws(0)
        enumerated = self.n <= _enumerated(self.simulated)
        total = float(self.n**self.n) if enumerated else float(_drawn(self.simulated))
        how = (
            f"all {self.n}^{self.n} resamples enumerated"
            if enumerated
            else f"{int(total):,} resamples, drawn alike whatever the study: another draw moves the third or fourth "
            "digit of p"
        )
        equal = int(weights[np.isinf(t_star)].sum())
        ties = f", {equal} of several pairs with equal differences counted as beyond every t" if equal else ""
        return (f"{how}, {int(total - weights.sum())} without spread dropped{ties}, the observed sample counted",)

    def without_interval(self, alpha: float) -> str:
        t_star, weights = self.draws(0)
        equal, total = weights[np.isinf(t_star)].sum(), weights.sum()
        if self.usable[0] and (1.0 + equal) / (1.0 + total) > alpha:
            return (
                f"{self.words} gives no finite {1.0 - alpha:.6g} interval: {equal / total:.3g} of the resamples draw "
                "equal differences alone, and have no standard error"
            )
        return super().without_interval(alpha)


_BLOCK: Final = 100_000
"""Resamples whose sums are made at a time."""
_DRAWN_AT_A_TIME: Final = 1_000_000
"""Numbers of resamples that are drawn at a time."""
_STEEP: Final = 100.0
"""The form over rows loses digits of a t beyond this; see `_NEAR`."""
_NEAR: Final = 1e-7
"""Where the counts of resamples differ within this of the limit on r, a steep t is compared with their t*."""


def _enumerated(simulated: bool) -> int:
    return FAST_ENUMERATED_PAIRS if simulated else ENUMERATED_PAIRS


def _drawn(simulated: bool) -> int:
    return RESAMPLES if simulated else BOOTSTRAPPED


@lru_cache(maxsize=8)
def _spread_resamples(n: int, rng_seed: int, simulated: bool) -> tuple[npt.NDArray[np.uint16], Floats | None]:
    """Resamples of two pairs or more as counts, pairs x resamples, and how often each occurs (none: once)."""
    weights: Floats | None = None
    if n <= _enumerated(simulated):
        # A resample of one value only is the multiset that counts it n times.
        every, ways = multisets(n)
        spread = every.max(axis=1) < n
        counts, weights = every[spread].astype(np.uint16), ways[spread]
    else:
        parts = []
        for drawn in _index_vectors(n, rng_seed, simulated):
            # Index vectors to counts: how often each pair was drawn.
            part = np.zeros((len(drawn), n), dtype=np.uint16)
            np.add.at(part, (np.arange(len(drawn))[:, None], drawn), 1)
            parts.append(part)
        counts = np.concatenate(parts)
        counts = counts[counts.max(axis=1) < n]
    counts = np.ascontiguousarray(counts.T)
    counts.setflags(write=False)
    return counts, weights


def _index_vectors(n: int, rng_seed: int, simulated: bool) -> list[npt.NDArray[np.int64]]:
    """Random index vectors, draws x pairs, in blocks: the same for every study."""
    rng, total, step = np.random.default_rng(rng_seed), _drawn(simulated), max(1, _DRAWN_AT_A_TIME // n)
    return [rng.integers(0, n, size=(min(step, total - start), n)) for start in range(0, total, step)]


def studentized_draws(differences: Floats, rng_seed: int, *, simulated: bool = False) -> tuple[Floats, Floats]:
    """t* of every resample of the pairs of one study, and how often each occurs.

    NaN for a resample of one pair alone, and for one of several equal differences beyond `TIED_PAIRS`
    pairs. Up to there that is infinite, with the sign of its shift, and 0 where it has none.

    Up to `ENUMERATED_PAIRS` (simulated: `FAST_ENUMERATED_PAIRS`) resamples are multisets with their
    counts; beyond that, random index vectors, once each.

    Examples
    --------
    Three pairs: of 27 index vectors 3 draw one value only; each of the 6 others occurs 3 times, and
    the sample itself 6 times.

    >>> t_star, times = studentized_draws(np.array([-1.0, 0.0, 1.0]), 0)
    >>> int(np.isnan(t_star).sum()), sorted(times.tolist())
    (3, [1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 6.0])
    """
    n = differences.size
    centred = differences - differences.mean()
    # A spread below this is rounding.
    least = (EQUAL if n <= TIED_PAIRS else SAME) * np.abs(differences).max()
    blocks = []
    if n <= _enumerated(simulated):
        every, weights = multisets(n)
        step = max(1, _DRAWN_AT_A_TIME // n)
        for start in range(0, len(every), step):
            counts = every[start : start + step].astype(np.float64)  # resamples x pairs
            shift = counts @ centred / n  # mean* - mean
            spread = np.sqrt((counts * (centred[None, :] - shift[:, None]) ** 2).sum(axis=1) / (n - 1))
            # Range of the values that were drawn at all: 0 means no spread, exactly.
            chosen = counts > 0
            width = np.where(chosen, centred, -np.inf).max(axis=1) - np.where(chosen, centred, np.inf).min(axis=1)
            t_star = _t_of(shift, spread, width, least, n)
            is_dropped = counts.max(axis=1) == n if n <= TIED_PAIRS else width <= least
            blocks.append(np.where(is_dropped, np.nan, t_star))
        return np.concatenate(blocks), weights
    for indices in _index_vectors(n, rng_seed, simulated):
        drawn = centred[indices]
        width = np.ptp(drawn, axis=1)
        t_star = _t_of(drawn.mean(axis=1), drawn.std(axis=1, ddof=1), width, least, n)
        blocks.append(np.where(width <= least, np.nan, t_star))
    return np.concatenate(blocks), np.ones(_drawn(simulated))


def _t_of(shift: Floats, spread: Floats, width: Floats, least: float, n: int) -> Floats:
    """t* of resamples. Of one without spread it is infinite, or 0 where it has no shift either."""
    has_spread = width > least
    without_spread = np.where(np.abs(shift) > least, np.copysign(np.inf, shift), 0.0)
    return np.where(has_spread, shift / np.where(has_spread, spread / np.sqrt(n), 1.0), without_spread)


@lru_cache(maxsize=16)
def multisets(n: int) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Every resample of n from n as counts, and how many of the n^n index vectors give it.

    That is the multinomial coefficient n! / (c1! ... cn!); there are binom(2n - 1, n) multisets.

    Examples
    --------
    >>> counts, ways = multisets(2)
    >>> counts.tolist(), ways.tolist()
    ([[0, 2], [1, 1], [2, 0]], [1.0, 2.0, 1.0])
    """
    counts, left = np.zeros((1, 0), dtype=np.uint8), np.array([n])
    for _ in range(n - 1):  # place by place, every number that is left
        choices = left + 1
        taken = np.arange(choices.sum()) - np.repeat(np.cumsum(choices) - choices, choices)
        left = np.repeat(left, choices) - taken
        counts = np.concatenate([np.repeat(counts, choices, axis=0), taken[:, None].astype(np.uint8)], axis=1)
    counts = np.concatenate([counts, left[:, None].astype(np.uint8)], axis=1)
    # A product of small factorials divides n!, and both are whole numbers below 2^53.
    factorials = np.array([float(factorial(c)) for c in range(n + 1)])
    ways = factorial(n) / factorials[counts].prod(axis=1)
    assert ways.sum() == n**n, (n, ways.sum())
    counts.setflags(write=False)
    ways.setflags(write=False)
    return counts, ways


@registrable
class SignFlip(SignificanceTest):
    """The exact sign-flip test of the mean, also called Fisher's randomisation test of pairs.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs, finite, two or more.
    rng_seed : int
        Seed of the sign vectors, where they are drawn.
    simulated : bool
        Whether the rows are simulated studies: sign vectors are drawn from fewer pairs on then.

    Notes
    -----
    ::

        Statistic    the sum of the differences less the null, over all 2^n choices of their signs
        Null         the differences are symmetric about `null`
        p            the share of sign vectors whose sum reaches the observed one. A flipped sum does
                     exactly when the mean of the flipped subset does not exceed the null (Hartigan
                     1969), so the number of subsets with such a mean gives every p. The empty subset
                     is the observed sample: p is never below 1 / 2^n
        Interval     between two of the sorted subset means
        Fails        it cannot reject at .05 with fewer than 6 pairs; it errs as `PairedT` does where
                     differences are skewed

    Subset means are listed up to `ROWS_LISTED_PAIRS` pairs, counted by halves (`subsets_up_to`) up to
    `COUNTED_PAIRS` (in simulated studies up to `LISTED_PAIRS`); beyond that random sign vectors are
    drawn and p = (1 + k) / (1 + B).

    References
    ----------
    Fisher (1935), The Design of Experiments, section 21.
    Hartigan (1969), Using subsample values as typical values. JASA 64, 1303-1317.

    Examples
    --------
    Fisher: of Darwin's 15 pairs of maize 863 of the 2^15 sign vectors reach the sum of 314 eighths of an
    inch on one side, and as many on the other.

    >>> maize = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    >>> (2**15 * SignFlip(np.array([maize], dtype=float)).p(0.0, "two")).tolist()
    [1726.0]
    """

    name = "sign_flip"
    words = "sign-flip"
    affordable = ((8, 6_000), (10, 3_000), (ROWS_LISTED_PAIRS, 1_500), (LISTED_PAIRS, 500), (inf, 1_500))
    second_opinion = "permutation_test"

    def __init__(self, x: Floats, *, rng_seed: int = 0, simulated: bool = False) -> None:
        super().__init__(x)
        # Three ways to the same count, by the number of pairs: listed means, halves, random sign
        # vectors.
        self.drawn = self.n > (LISTED_PAIRS if simulated else COUNTED_PAIRS)
        self.means: Floats | None = None
        """Of every non-empty subset, studies x subsets; none where they are counted."""
        if self.drawn:
            flipped = random_flips(self.n, rng_seed)
            self.means = self.x @ flipped
            self.means /= flipped.sum(axis=0)
        elif self.n <= ROWS_LISTED_PAIRS:
            self.means = subset_means(self.x)
        self.total = 2.0**self.n if self.means is None else 1.0 + self.means.shape[1]

    @classmethod
    def of_differences(cls, x: Floats, *, rng_seed: int, zeros: Zeros, simulated: bool) -> SignificanceTest:
        return cls(x, rng_seed=rng_seed, simulated=simulated)

    @staticmethod
    def numbers(n: int) -> int:
        return 2**n if n <= ROWS_LISTED_PAIRS else RESAMPLES

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return (2.0 if side == "two" else 1.0) / (2.0**n if n <= COUNTED_PAIRS else RESAMPLES + 1)

    def tail(self, null: float, side: Side) -> Floats:
        limit = self.to_unit(null)
        slack = EQUAL * np.maximum(self.size, np.abs(limit))  # a tie that rounding broke counts as a tie
        above = below = np.ones(len(limit))
        if side != "less":
            above = self._reached((limit + slack)[:, None], 1.0) / self.total
        if side != "greater":
            below = self._reached((limit - slack)[:, None], -1.0) / self.total
        return two_of(above, below, side)

    def _reached(self, limit: Floats, sign: float) -> Floats:
        """Subsets, the empty one among them, whose mean does not exceed the limit; with a sign of -1 not below it."""
        if self.means is None:
            # mean of a subset <= limit where its values less the limit add up to at most 0.
            shifted = sign * (self.x - limit)
            return np.array([subsets_up_to(row) for row in shifted], dtype=np.float64)
        reached = self.means <= limit if sign > 0 else self.means >= limit
        return np.asarray(1.0 + row_counts(reached))

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        # The two-sided p of a null is 2 (1 + subsets up to it) / 2^n: the ends leave `rank` - 1
        # subset means beyond them on each side.
        rank = floor(alpha * self.total / 2.0 + EQUAL)
        if rank < 1:
            return self.by_row([None] * len(self.x))
        means = subset_means(self.x) if self.means is None and self.n <= LISTED_PAIRS else self.means
        if means is not None:
            means = np.sort(means, axis=1)
            return self.from_unit(means[:, rank - 1]), self.from_unit(means[:, -rank])
        return self.by_row([(subset_mean(row, rank), -subset_mean(-row, rank)) for row in self.x])

    @property
    def notes(self) -> tuple[str, ...]:
        if self.drawn:
            how = (
                f"{int(self.total) - 1} random sign vectors, the observed sample counted: another draw moves the third "
                f"digit of p; exact up to {COUNTED_PAIRS} pairs"
            )
        elif self.n <= LISTED_PAIRS:
            how = f"all 2^{self.n} sign vectors enumerated"
        else:
            how = f"all 2^{self.n} sign vectors counted, as sums of two halves"
        return (*super().notes, how)


def subset_means(x: Floats) -> Floats:
    """Means of all non-empty subsets of every row: studies x (2^n - 1).

    Examples
    --------
    >>> subset_means(np.array([[1.0, 3.0]])).tolist()
    [[1.0, 3.0, 2.0]]
    """
    # By doubling: 8 MB a row of 20, where a table of signs takes 160.
    means, counts = np.zeros((len(x), 2 ** x.shape[1])), np.zeros(2 ** x.shape[1])
    for place, column in enumerate(x.T):
        half = 2**place
        # Every subset without this pair, and the same with it; sums until the last line.
        np.add(means[:, :half], column[:, None], out=means[:, half : 2 * half])
        counts[half : 2 * half] = counts[:half] + 1.0
    means[:, 1:] /= counts[1:]
    return means[:, 1:]


@lru_cache(maxsize=4)
def random_flips(n: int, rng_seed: int) -> Floats:
    """Random subsets of the pairs, pairs x draws, without the empty one: the same for every study.

    Examples
    --------
    >>> flips = random_flips(50, 0)
    >>> flips.shape, bool(flips.any(axis=0).all())
    ((50, 9999), True)
    """
    flipped = np.random.default_rng(rng_seed).integers(0, 2, size=(RESAMPLES, n)).astype(np.float64)
    return np.ascontiguousarray(flipped[flipped.any(axis=1)].T)


def subsets_up_to(values: Floats) -> int:
    """How many subsets have a sum of at most 0, the empty one among them: exact, by meeting in the middle.

    Every subset is one of the first half and one of the second, so the sorted subset sums of the halves
    answer for all 2^n of them (Horowitz and Sahni 1974; for this test Pagano and Tritchler 1983 count on
    a grid instead). Time and memory grow with 2^(n/2).

    Examples
    --------
    Of {1, -2, 4}: the empty set, {-2} and {1, -2}.

    >>> subsets_up_to(np.array([1.0, -2.0, 4.0]))
    3
    """
    # All subset sums of each half by doubling: 2^(n/2) of them, sorted.
    halves = []
    for half in np.array_split(values, 2):
        sums = np.zeros(1)
        for value in half:
            sums = np.concatenate([sums, sums + value])
        halves.append(np.sort(sums))
    return int(np.searchsorted(halves[0], -halves[1], side="right").sum())


def subset_mean(values: Floats, rank: int) -> float:
    """The mean of a subset with rank - 1 smaller ones among all non-empty subsets, up to 1e-12 of the
    largest value.

    Examples
    --------
    The means of all subsets of {1, 3} are 1, 2 and 3.

    >>> round(subset_mean(np.array([1.0, 3.0]), 2), 9)
    2.0
    """
    # The number of means up to a point is nearly normal in the point: a root on the normal scale is
    # found in few steps, each of which counts all subsets anew.
    total, size = 2.0**values.size, float(np.abs(values).max())
    target = float(special.ndtri(rank / total))  # reached with rank + 1 subsets, the empty one among them, less 1/2

    def above(point: float) -> float:
        return float(special.ndtri((subsets_up_to(values - point) - 0.5) / total)) - target

    low, high, tolerance = float(values.min()), float(values.max()), EQUAL * size
    if subsets_up_to(values - low) - 1 >= rank or high - low <= tolerance:
        return low
    # A narrow bracket about the normal guess, where it holds the root.
    spread = float(values.std()) / np.sqrt(values.size)
    for end in (float(values.mean()) + (target - 0.3) * spread, float(values.mean()) + (target + 0.3) * spread):
        if low < end < high:
            low, high = (low, end) if above(end) > 0 else (end, high)
    crossing = root(above, low, high, xtol=tolerance)
    return crossing if above(crossing) > 0 else crossing + tolerance


@registrable
class SignedRank(SignificanceTest):
    """Wilcoxon's signed-rank test of the pseudomedian, exact over the observed ranks.

    Parameters
    ----------
    x : array, studies x pairs
        Differences of the pairs.
    zeros : "pratt" or "wilcox"
        What becomes of differences equal to the null: `pratt` ranks them with the others and then
        leaves them out, so that a zero still says how small the rest is not; `wilcox` leaves them out
        before ranking.

    Notes
    -----
    ::

        Statistic    V, the sum of the ranks of |difference - null| whose difference lies above the null;
                     ties have mid-ranks
        Null         the differences are symmetric about `null`
        p            from all 2^n signs of the observed ranks, as one convolution
        Interval     the nulls that are not rejected. p is constant between neighbouring Walsh averages,
                     so it is taken at each of them and between them, and the interval reaches to the
                     outermost nulls that are not rejected: exact under ties and zeros too, where the
                     law of the ranks itself moves with the null
        Fails        it cannot reject at .05 with fewer than 6 pairs; it tests the pseudomedian, not the
                     mean

    The effect shown is Hodges and Lehmann's estimate, the median of the Walsh averages.

    References
    ----------
    Wilcoxon (1945), Individual comparisons by ranking methods. Biometrics Bulletin 1, 80-83.
    Pratt (1959), Remarks on zeros and ties in the Wilcoxon signed rank procedures. JASA 54, 655-667.
    Hodges and Lehmann (1963), Estimates of location based on rank tests. Ann. Math. Statist. 34, 598-611.

    Examples
    --------
    Hollander and Wolfe's depression data in R, ``wilcox.test(x, y, paired = TRUE, alternative =
    "greater")``: V = 40, p-value = 0.01953.

    >>> x = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    >>> y = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    >>> SignedRank((x - y)[None, :]).p(0.0, "greater").tolist()
    [0.01953125]
    """

    name = "wilcoxon"
    words = "Wilcoxon signed-rank"
    affordable = ((6, 6_000), (inf, 2_500))
    second_opinion = "wilcoxon"
    against_mean = "the ranks point the other way than the Hodges-Lehmann estimate; the direction is that of the ranks"

    def __init__(self, x: Floats, *, zeros: Zeros = "pratt") -> None:
        super().__init__(x)
        self.zeros: Zeros = zeros
        self.given = x

    @classmethod
    def of_differences(cls, x: Floats, *, rng_seed: int, zeros: Zeros, simulated: bool) -> SignificanceTest:
        return cls(x, zeros=zeros)

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return (2.0 if side == "two" else 1.0) / 2.0**n

    def ranks(self, null: float) -> tuple[Ranks, Floats]:
        """Twice the mid-ranks, 0 for a zero, and the signs."""
        limit = self.to_unit(null)
        scale = np.maximum(self.size, np.abs(limit))
        scale[scale == 0.0] = 1.0
        # Ties and zeros survive the shift's rounding.
        shifted = np.round((self.x - limit[:, None]) / scale[:, None], 12)
        return doubled_ranks(shifted, self.zeros)

    def leaning_at(self, null: float) -> Floats:
        doubled, signs = self.ranks(null)
        return np.asarray(np.sign((doubled * signs).sum(axis=1)), dtype=np.float64)

    def tail(self, null: float, side: Side) -> Floats:
        return rank_sum_p(*self.ranks(null), side)

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        if self.floor(self.n) > alpha:
            return self.by_row([None] * len(self.x))
        return self.by_row([self._bounds(row, size or 1.0, alpha) for row, size in zip(self.x, self.size, strict=True)])

    def _bounds(self, values: Floats, size: float, alpha: float) -> tuple[float, float] | None:
        walsh = walsh_averages(values)
        walsh = walsh[np.concatenate([[True], np.diff(walsh) > 4.0 * EQUAL * size])]
        # Every null that differs to the test: beyond the outermost averages, on each of them, and between two.
        nulls = np.empty(2 * walsh.size + 1)
        nulls[1::2], nulls[2:-1:2] = walsh, (walsh[:-1] + walsh[1:]) / 2.0
        nulls[0], nulls[-1] = walsh[0] - size, walsh[-1] + size
        scale = np.maximum(size, np.abs(nulls))[:, None]
        scale[scale == 0.0] = 1.0
        ranks = doubled_ranks(np.round((values - nulls[:, None]) / scale, 12), self.zeros)
        # From the outermost nulls that are kept; none, or kept to the very end of the line, is no
        # interval.
        inside = np.flatnonzero(rank_sum_p(*ranks, "two") > alpha)
        if inside.size == 0 or inside[0] == 0 or inside[-1] == nulls.size - 1:
            return None
        ends = []
        for place, inwards in ((int(inside[0]), 1), (int(inside[-1]), -1)):
            # Kept between averages and not on the one before: an open end, moved by what rounding makes a tie of.
            end = nulls[place] if place % 2 else nulls[place - inwards] + 2.0 * inwards * EQUAL * size
            ends.append(float(end))
        return ends[0], ends[1]

    @property
    def difference(self) -> Floats:
        return np.array([hodges_lehmann(row) for row in self.given])

    @property
    def notes(self) -> tuple[str, ...]:
        shown = float(self.difference[0])
        notes = (
            *super().notes,
            f"exact over the observed ranks; zeros after {self.zeros.capitalize()}, ties as mid-ranks",
            "tests and bounds the pseudomedian; the difference shown is its Hodges-Lehmann estimate",
        )
        if np.sign(shown) * self.mean[0] < 0:
            notes += (f"the mean difference, {self.from_unit(self.mean)[0]:.6g}, has the other sign",)
        return notes

    def without_interval(self, alpha: float) -> str:
        if self.floor(self.n) <= alpha:
            return f"no {1.0 - alpha:.6g} interval: with these ties and zeros every null or none is rejected"
        return super().without_interval(alpha)


def walsh_averages(values: Floats) -> Floats:
    """Means of all pairs of values, each with itself too, ascending.

    Examples
    --------
    >>> walsh_averages(np.array([3.0, 1.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    # Halved before they are added: the sum of two large values could overflow.
    upper, lower = np.triu_indices(values.size)
    return np.sort(values[upper] / 2.0 + values[lower] / 2.0)


def hodges_lehmann(differences: Floats) -> float:
    """Return the median of the Walsh averages.

    Examples
    --------
    >>> hodges_lehmann(np.array([1.0, 2.0, 6.0]))
    2.75
    """
    exponent = exponent_of(differences)
    return float(np.ldexp(np.median(walsh_averages(np.ldexp(differences, -exponent))), exponent))


def doubled_ranks(shifted: Floats, zeros: Zeros) -> tuple[Ranks, Floats]:
    """Twice the mid-ranks of every row, integers so that their law is one exact convolution, and the signs.

    A zero has rank 0: it adds nothing to any sum, whether it was ranked with the others (pratt) or not
    (wilcox).

    Examples
    --------
    >>> x = np.array([[0.0, -1.0, 2.0, 2.0]])
    >>> [doubled_ranks(x, zeros)[0].tolist() for zeros in ("pratt", "wilcox")]
    [[[0, 4, 7, 7]], [[0, 2, 5, 5]]]
    """
    sizes = np.abs(shifted)
    ranks = np.ones(sizes.shape, dtype=np.int64)
    for column in sizes.T[..., None]:  # twice a mid-rank: 1 + those that are equal, itself too, + 2 x those below
        ranks += 2 * (column < sizes) + (column == sizes)
    if zeros == "wilcox":
        ranks -= 2 * np.count_nonzero(sizes == 0.0, axis=1)[:, None]
    return np.where(sizes == 0.0, 0, ranks), np.sign(shifted)


def rank_sum_p(doubled: Ranks, signs: Floats, side: Side) -> Floats:
    """p of the sum of the positive ranks of every row under random signs; 1 where no rank is left.

    Examples
    --------
    Five positive differences: all 2^5 signs but one give a smaller sum.

    >>> rank_sum_p(np.array([[2, 4, 6, 8, 10]]), np.ones((1, 5)), "greater").tolist()
    [0.03125]
    """
    observed = np.where(signs > 0, doubled, 0).sum(axis=1)
    above, below = np.empty(len(doubled)), np.empty(len(doubled))
    # The law of V depends on the set of ranks alone: rows with the same set share their tails.
    ordered, plain = np.sort(doubled, axis=1), 2 * np.arange(1, doubled.shape[1] + 1)
    # Nearly all rows have neither ties nor zeros; patterns are only looked for among the others.
    alike = (ordered == plain).all(axis=1)
    patterns, place = np.unique(ordered[~alike], axis=0, return_inverse=True)
    tied, place = np.flatnonzero(~alike), place.reshape(-1)
    groups = [(plain, np.flatnonzero(alike))]
    groups += [(pattern, tied[place == index]) for index, pattern in enumerate(patterns)]
    for pattern, rows in groups:
        if rows.size:
            tails = rank_sum_tails(tuple(pattern[pattern > 0].tolist()))
            above[rows], below[rows] = tails[0][observed[rows]], tails[1][observed[rows]]
    return two_of(above, below, side)


@lru_cache(maxsize=1024)
def rank_sum_tails(doubled: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Chance under random signs that the doubled sum of positive ranks is at least, and at most, each number.

    Examples
    --------
    Ranks 1 and 2, doubled: the sums 0, 2, 4 and 6 have a chance of 1/4 each.

    >>> rank_sum_tails((2, 4))[0].tolist()
    [1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25]
    """
    # The generating function is the product of (1 + z^rank) / 2: one convolution a rank, exact in
    # doubles up to 2^-52 of each chance.
    share = np.zeros(sum(doubled) + 1)
    share[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(share)
        # The sum is larger by `rank` where the sign is positive, and the same where it is not: each with a
        # chance of 1/2.
        moved[rank:] = share[: share.size - rank]
        share = (share + moved) / 2.0
    below = np.cumsum(share)
    above = below[::-1]  # the law is symmetric
    for tail in (above, below):
        tail.setflags(write=False)
    return above, below


@registrable
class Welch(StudentT):
    """Welch's t test of a weighted sum of arm means, over independent runs.

    Parameters
    ----------
    arms : sequence of arrays, studies x runs
        Weight times value of the runs of each arm, two runs or more; arms may differ in their number.

    Notes
    -----
    ::

        Statistic    t = (sum of w m - null) / SE, SE^2 = sum of w^2 s^2 / n over the arms
        Null         the weighted sum of the arms' means is `null`
        p            from Student's law with df = SE^4 / sum((w^2 s^2 / n)^2 / (n - 1))
        Interval     the weighted sum -+ t(1 - alpha / 2) SE
        Fails        with few runs of the arm that varies most (12 and 2 runs err in .107 at a nominal
                     .05); undefined where no arm has any spread. An arm without any adds none

    Runs of different arms are no pairs here: each arm has its own runs, of any number and under any
    seeds.

    References
    ----------
    Satterthwaite (1946), An approximate distribution of estimates of variance components. Biometrics
    Bulletin 2, 110-114.
    Welch (1947), The generalization of Student's problem. Biometrika 34, 28-35.

    Examples
    --------
    R, ``t.test(extra ~ group, data = sleep)``: df = 17.776, p-value = 0.07939, 95 percent confidence
    interval -3.3654832 0.2054832.

    >>> first = np.array([[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]])
    >>> second = np.array([[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]])
    >>> test = Welch([first, -second])
    >>> test.df.round(3).tolist(), test.p(0.0, "two").round(5).tolist()
    ([17.776], [0.07939])
    >>> [end.round(7).tolist() for end in test.bounds(0.05)]
    [[-3.3654832], [0.2054832]]
    """

    name = "welch"
    words = "Welch's t"
    of_pairs = False
    second_opinion = "ttest_ind"

    def __init__(self, arms: Sequence[Floats]) -> None:
        # Not that of `SignificanceTest`, which reads differences of pairs: there are none.
        largest = np.max([np.abs(runs).max(axis=1) for runs in arms], axis=0)
        self.exponent = np.frexp(largest)[1]
        by_arm = [np.ldexp(runs, -self.exponent[:, None]) for runs in arms]
        self.sizes = tuple(runs.shape[1] for runs in by_arm)
        self.n = sum(self.sizes)
        self.size = np.ldexp(largest, -self.exponent)
        self.mean = np.asarray(sum(runs.mean(axis=1) for runs in by_arm), dtype=np.float64)
        variances = []
        for runs in by_arm:
            # An arm whose runs all have one value, up to rounding, has no variance.
            alike = np.ptp(runs, axis=1) <= 2.0 * ROUNDING * np.abs(runs).max(axis=1)
            variances.append(np.where(alike, 0.0, runs.var(axis=1, ddof=1) / runs.shape[1]))
        total = np.asarray(sum(variances), dtype=np.float64)
        self.usable = total > 0.0
        # df = 1 / sum(share^2 / (n - 1)): shares of the total, whose squares cannot vanish as SE^4 can.
        shares = [variance / np.where(self.usable, total, 1.0) for variance in variances]
        spent = np.asarray(sum(share**2 / (n - 1) for share, n in zip(shares, self.sizes, strict=True)))
        self.free = 1.0 / np.where(self.usable, spent, 1.0)
        self.df = np.where(self.usable, self.free, np.nan)
        self.se = np.sqrt(total)
        self.standard_error = self.from_unit(self.se)
        # Equal values in every arm: their means differ by more than rounding, or not at all.
        self.all_zero: Kept = ~self.usable & (np.abs(self.mean) <= 2.0 * ROUNDING * self.size)

    def bounds(self, alpha: float) -> tuple[Floats, Floats]:
        low, high = super().bounds(alpha)
        # Of equal runs everywhere the interval is the point 0, which their means meet but for rounding.
        return np.where(self.usable, low, 0.0), np.where(self.usable, high, 0.0)

    def refusal(self, null: float = 0.0) -> str:
        if self.usable[0] or (self.all_zero[0] and null == 0.0):
            return ""
        if self.all_zero[0]:
            return f"all runs have one value: their standard error is zero, so Welch's t has no p against {null:.6g}"
        return (
            "all runs of each arm have one value: their standard error is zero, so Welch's t has no p; the seed "
            "seems to do nothing"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.usable[0] else ("every run of every arm has the same value",)


def row_counts(reached: Kept) -> npt.NDArray[np.int64]:
    """How many are true, row by row.

    Examples
    --------
    >>> row_counts(np.array([[True, False, True]])).tolist()
    [2]
    """
    # Bits are counted twice as fast as booleans.
    return np.asarray(np.bitwise_count(np.packbits(reached, axis=1)).sum(axis=1, dtype=np.int64))
