"""Effect sizes (standardised) of a paired contrast: description, always shown next to the raw difference.

    d_z          mean / SD of the differences
    g_z          d_z x J(n - 1), with Hedges' (1981) exact gamma form of J; the interval is that of d_z
    g_av         mean / root mean variance of the two sides x J(df), df = 2 (n - 1) / (1 + r^2)
    cliff_delta  P(left > right) - P(left < right) over all cross pairs
    hedges_g     of two arms without pairs: difference of means / pooled SD x J(n1 + n2 - 2). It takes equal variances
                 for granted and has no interval: the noncentral t's covers .92 with 5 and 5 runs of which one arm has
                 four times the SD, .86 with 8 and 3 at twice, .66 with 12 and 3 at four times (1,500 samples each)

d_z and g_av are different quantities: with correlation r between the sides, d_z = d_av / sqrt(2 (1 - r)) at
equal variances, so one must never be passed off as the other. Signs are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log, sqrt

import numpy as np
from scipy import special

from ablate.judge.stats.root import root
from ablate.judge.stats.significance_tests import EQUAL, SAME, Floats
from ablate.judge.stats.unpaired import Sample
from ablate.judge.verdict import EffectSize, Interval

_NEAR_OVERFLOW = 2.0**1000


def effect_sizes(
    left: Floats, right: Floats, differences: Floats | None = None, *, alpha: float, paired: bool = True
) -> tuple[EffectSize, ...]:
    """The standardised effects of left minus right; those that the data leave undefined are not given.

    Parameters
    ----------
    left, right : array, one number a seed
        Both sides of the claim, on its scale.
    differences : array, optional
        Left minus right, as the tests see it: equal where records can tell no difference.
    alpha : float
        The intervals are at 1 - alpha.
    paired : bool
        Whether the right side is a sample. Where it is a constant, d_z and g_z are Cohen's d of one
        sample, and what compares two samples is left out.

    Notes
    -----
    d_z and g_z estimate the same population effect, so that both have its one noncentral-t interval:
    the correction of g_z is of the estimate's bias, and limits times J would cover the effect too
    seldom.

    Examples
    --------
    Differences 1, 2, 3: their mean is 2 and their SD 1.

    >>> effects = effect_sizes(np.array([2.0, 3.0, 5.0]), np.array([1.0, 1.0, 2.0]), alpha=0.05)
    >>> [(effect.name, round(effect.value, 3)) for effect in effects]
    [('d_z', 2.0), ('g_z', 1.128), ('g_av', 1.023), ('cliff_delta', 0.889)]
    """
    assert left.shape == right.shape and left.ndim == 1, (left.shape, right.shape)
    # Their difference could overflow; a common factor leaves every standardised effect as it is.
    if max(np.abs(left).max(), np.abs(right).max()) > _NEAR_OVERFLOW:
        left, right, differences = left * 2.0**-50, right * 2.0**-50, None
    differences = _unit(left - right if differences is None else differences)
    n = left.size
    effects: list[EffectSize] = []
    if n >= 2 and np.ptp(differences) > SAME * np.abs(differences).max():
        d_z = float(differences.mean() / differences.std(ddof=1))
        interval = _effect_interval(d_z, n, alpha)
        effects.append(EffectSize(name="d_z", value=d_z, interval=interval, df=float(n - 1)))
        if n >= 3:  # J(1) is 0: with two pairs g_z would be 0 whatever the data
            effects.append(EffectSize(name="g_z", value=hedges_j(n - 1) * d_z, interval=interval, df=float(n - 1)))
    if not paired:
        return tuple(effects)
    # From both sides and not from the differences: it needs each side's own variance.
    average = _g_av(left, right)
    if average is not None:
        effects.append(average)
    effects.append(EffectSize(name="cliff_delta", value=cliff_delta(left, right)))
    return tuple(effects)


def independent_effects(samples: Sequence[Sample]) -> tuple[EffectSize, ...]:
    """The standardised effects of two arms without pairs; none for a claim of more arms.

    Examples
    --------
    Means 5 and 2, and 1 the SD of both: d is 3, and J(4) = .798 its correction.

    >>> first = Sample("a", 1.0, (1, 2, 3), np.array([4.0, 5.0, 6.0]))
    >>> second = Sample("b", -1.0, (1, 2, 3), np.array([1.0, 2.0, 3.0]))
    >>> [(effect.name, round(effect.value, 3)) for effect in independent_effects([first, second])]
    [('hedges_g', 2.394), ('cliff_delta', 1.0)]
    """
    if len(samples) != 2:
        return ()
    # The arm that counts positively first, so that the effect has the sign of the claim's difference.
    first, second = sorted(samples, key=lambda sample: -sample.weight)
    both = _unit(np.concatenate([first.values, second.values]))
    left, right = both[: first.values.size], both[first.values.size :]
    effects = []
    df = both.size - 2
    # Pooled SD, sqrt((SS1 + SS2) / (n1 + n2 - 2)).
    pooled = sqrt((float(((left - left.mean()) ** 2).sum()) + float(((right - right.mean()) ** 2).sum())) / df)
    if df > 1 and max(np.ptp(left), np.ptp(right)) > EQUAL * np.abs(both).max():
        d = float(left.mean() - right.mean()) / pooled
        effects.append(EffectSize(name="hedges_g", value=hedges_j(df) * d, df=float(df)))
    effects.append(EffectSize(name="cliff_delta", value=cliff_delta(first.values, second.values)))
    return tuple(effects)


def hedges_j(df: float) -> float:
    """The exact small-sample correction J of a standardised mean difference.

    Notes
    -----
    J(df) = Gamma(df / 2) / (sqrt(df / 2) Gamma((df - 1) / 2)), about 1 - 3 / (4 df - 1).

    References
    ----------
    Hedges (1981), Distribution theory for Glass's estimator of effect size and related estimators.
    J. Educ. Statist. 6, 107-128.

    Examples
    --------
    By hand: Gamma(1) / Gamma(1/2) is 1 / sqrt(pi).

    >>> round(hedges_j(2), 6) == round(np.pi**-0.5, 6)
    True
    """
    assert df > 1, df
    # As a ratio: the difference of two log gammas loses a digit with every factor of ten of df.
    return float(special.poch((df - 1.0) / 2.0, 0.5)) / sqrt(df / 2.0)


def cliff_delta(left: Floats, right: Floats) -> float:
    """Cliff's delta of left over right, P(left > right) - P(left < right); pairing plays no part in it.

    References
    ----------
    Cliff (1993), Dominance statistics: ordinal analyses to answer ordinal questions. Psychol. Bull.
    114, 494-509.

    Examples
    --------
    >>> cliff_delta(np.array([1.0, 4.0]), np.array([2.0, 3.0]))
    0.0
    """
    return float(np.sign(left[:, None] - right[None, :]).mean())


# A claim is judged by `decide`, each `verify` and each page; where t is large nctdtr takes a tenth of a second.
@lru_cache(maxsize=4096)
def noncentral_interval(t: float, df: float, alpha: float) -> tuple[float, float] | None:
    """The noncentralities under which t is the alpha/2 and the 1 - alpha/2 quantile; none if not computable.

    References
    ----------
    Steiger and Fouladi (1997), Noncentrality interval estimation and the evaluation of statistical
    models: the confidence interval of a noncentral t is found by turning its quantiles around.

    Examples
    --------
    With many degrees of freedom t is normal about its noncentrality.

    >>> low, high = noncentral_interval(3.0, 1e6, 0.05)
    >>> round(low, 3), round(high, 3)
    (1.04, 4.96)
    """
    size = abs(t)  # nctdtr fails sooner for negative t; the interval of -t is the mirrored one
    low = _noncentrality(size, df, 1.0 - alpha / 2.0)
    high = _noncentrality(size, df, alpha / 2.0)
    if low is None or high is None:
        return None
    return (low, high) if t >= 0 else (-high, -low)


def _noncentrality(t: float, df: float, target: float) -> float | None:
    """The noncentrality with P(T <= t) = target.

    scipy's nctdtr returns NaN far from t, so the bracket starts at t and doubles outwards only until the sign
    changes; a NaN on the way gives no interval rather than a wrong one.
    """

    def excess(noncentrality: float) -> float:
        return float(special.nctdtr(df, noncentrality, t)) - target

    def everywhere(noncentrality: float) -> float:
        # The NaNs are single points, too, within a bracket whose ends are sound: there the integral itself is taken.
        by_scipy = excess(noncentrality)
        return by_scipy if np.isfinite(by_scipy) else _nct_cdf(t, df, noncentrality) - target

    excess_at_t = excess(t)
    if not np.isfinite(excess_at_t):
        return None
    if excess_at_t == 0.0:
        return t
    # The CDF falls with the noncentrality: too large a CDF wants a larger one.
    step = 0.5 if excess_at_t > 0 else -0.5
    inner, outer = t, t + step
    for _ in range(60):
        value = excess(outer)
        if not np.isfinite(value):
            return None
        if value * excess_at_t <= 0:
            return root(everywhere, min(inner, outer), max(inner, outer), xtol=1e-10)
        step *= 2.0
        inner, outer = outer, outer + step
    return None


def _nct_cdf(t: float, df: float, noncentrality: float) -> float:
    """P((Z + delta) / S <= t) as the mean of Phi(t S - delta) over S = sqrt(chi2 / df)."""

    from scipy import integrate  # here: few intervals need it, and loading it takes longer than they do

    constant = (1.0 - 0.5 * df) * log(2.0) - float(special.gammaln(0.5 * df))

    def integrand(s: float) -> float:
        chi = s * sqrt(df)  # sqrt of a chi-square; its density
        density = np.exp(constant + special.xlogy(df - 1.0, chi) - 0.5 * chi**2)
        return float(special.ndtr(t * s - noncentrality) * density * sqrt(df))

    return float(integrate.quad(integrand, 0.0, np.inf, limit=200, epsabs=1e-13, epsrel=1e-11)[0])


def _effect_interval(d_z: float, n: int, alpha: float) -> Interval | None:
    bounds = noncentral_interval(d_z * sqrt(n), n - 1, alpha)
    if bounds is None:
        return None
    # t = d_z sqrt(n), and its noncentrality is delta sqrt(n).
    low, high = (bound / sqrt(n) for bound in bounds)
    return Interval(low=low, high=high, level=1.0 - alpha, method="noncentral t")


def _unit(values: Floats) -> Floats:
    """The values times a power of two that brings the largest below 1: squares neither overflow nor vanish."""
    exponent = np.frexp(np.abs(values).max())[1]
    # In two steps: for subnormal numbers the power itself would overflow.
    return np.asarray(np.ldexp(np.ldexp(values, -(exponent // 2)), -(exponent - exponent // 2)))


def _g_av(left: Floats, right: Floats) -> EffectSize | None:
    """Mean difference over the root mean variance, corrected with the df for paired samples (Cousineau
    2020, Approximating the distribution of Cohen's d_p in within-subject designs): 2 (n - 1) / (1 + r^2)."""
    n = left.size
    if n < 3 or np.ptp(left) <= EQUAL * np.abs(left).max() or np.ptp(right) <= EQUAL * np.abs(right).max():
        return None
    both = _unit(np.concatenate([left, right]))  # one unit for both sides: their variances are added
    r = float(np.corrcoef(_unit(left), _unit(right))[0, 1])
    left, right = both[:n], both[n:]
    pooled = sqrt((float(left.var(ddof=1)) + float(right.var(ddof=1))) / 2.0)
    df = 2.0 * (n - 1) / (1.0 + r * r)
    return EffectSize(name="g_av", value=hedges_j(df) * float((left - right).mean()) / pooled, df=df)
