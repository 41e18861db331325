"""Power of a paired t in plain floats, and the roots and ranks that spare an import: as the libraries give them."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, isnan, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, special, stats

from ablate.judge.stats import t_power
from ablate.judge.stats.root import root
from ablate.judge.stats.significance_tests import doubled_ranks


@pytest.mark.parametrize("n", [2, 3, 5, 10, 30, 200])
@pytest.mark.parametrize("size_sd", [0.0, 0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_power_is_that_of_the_noncentral_t(n: int, size_sd: float, alpha: float) -> None:
    shift, df = size_sd * sqrt(n), n - 1
    upper, one_sided = special.stdtrit(df, 1.0 - alpha / 2.0), special.stdtrit(df, 1.0 - alpha)
    expected = {
        "towards": stats.nct.sf(upper, df, shift),
        "either": stats.nct.sf(upper, df, shift) + stats.nct.cdf(-upper, df, shift),
        "margin": stats.nct.sf(one_sided, df, shift),
    }
    for kind, power in expected.items():
        if not isnan(power):  # scipy's nct has no value far in its tails
            assert t_power.t_test_power(kind, size_sd, n, alpha) == pytest.approx(power, abs=1e-8), kind  # type: ignore[arg-type]  # keys are kinds


@pytest.mark.parametrize("size_sd", [1e3, 1e6, 1e12])
def test_the_power_of_an_enormous_effect_is_there_at_once(size_sd: float) -> None:
    """Pairs that differ in their last digits alone: once it took time and memory as the effect in SDs."""
    assert t_power.t_test_power("towards", size_sd, 4, 0.05) == pytest.approx(1.0, abs=1e-12)
    # An effect that equals the margin is found, and shown to be smaller than the margin by mistake in alpha.
    at_margin = t_power.t_test_power("towards", size_sd, 4, 0.05, refuted_below=size_sd)
    assert at_margin == pytest.approx(0.95, abs=1e-4)
    assert t_power.seeds_for("equivalence", size_sd, 0.05, 0.8) == 2


@pytest.mark.parametrize("n", [2, 5, 30])
@pytest.mark.parametrize("margin_sd", [0.2, 1.0, 4.0])
def test_power_of_an_equivalence_is_its_integral_over_the_sample_sd(n: int, margin_sd: float) -> None:
    # The mean is within margin - critical S of zero, S the sample SD with its chi density.
    df, shift = n - 1, margin_sd * sqrt(n)
    critical = special.stdtrit(df, 0.95)

    def integrand(s: float) -> float:
        density = exp(
            log(2.0) + 0.5 * df * log(0.5 * df) - special.gammaln(0.5 * df) + (df - 1) * log(s) - 0.5 * df * s * s
        )
        return density * float(special.erf((shift - critical * s) / sqrt(2.0)))

    expected = integrate.quad(integrand, 0.0, shift / critical, epsabs=1e-13, epsrel=1e-11, limit=500)[0]
    assert t_power.t_test_power("equivalence", margin_sd, n, 0.05) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("df", [1, 2, 5.5, 19, 200, 1999])
@pytest.mark.parametrize("tail", [0.25, 0.05, 0.0125, 1e-4, 1e-6])
def test_the_quantile_of_t_is_scipys(df: float, tail: float) -> None:
    assert t_power.t_quantile(df, tail) == pytest.approx(-special.stdtrit(df, tail), rel=1e-8)


def test_the_size_that_reaches_a_power_and_the_seeds_for_it_invert_the_power() -> None:
    for kind in ("towards", "either", "margin", "equivalence"):
        size = t_power.detectable(kind, 8, 0.05)  # type: ignore[arg-type]  # a kind
        assert t_power.t_test_power(kind, size, 8, 0.05) == pytest.approx(0.8, abs=1e-7)  # type: ignore[arg-type]  # a kind
    n = t_power.seeds_for("towards", 0.6, 0.05, 0.8)
    assert n is not None and t_power.t_test_power("towards", 0.6, n, 0.05) >= 0.8 > t_power.t_test_power(
        "towards", 0.6, n - 1, 0.05
    )


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "cubic": lambda x: x**3 - 2.0 * x - 5.0,
    "log": lambda x: log(x / 3.0),
    "flat": lambda x: (x - 1.7) ** 9,
    "step": lambda x: -1.0 if x < 2.5 else 1.0,
    "tail": lambda x: float(special.ndtr(x - 4.0)) - 0.01,
}


@given(
    st.sampled_from(sorted(FUNCTIONS)), st.floats(0.01, 1.6), st.floats(3.5, 50.0), st.sampled_from([1e-13, 1e-9, 1e-3])
)
def test_roots_are_those_of_scipys_brentq_to_the_last_bit(name: str, low: float, high: float, xtol: float) -> None:
    function = FUNCTIONS[name]
    if function(low) * function(high) >= 0.0:
        return
    try:
        expected = optimize.brentq(function, low, high, xtol=xtol)
    except RuntimeError:  # a zero so flat that 100 steps do not find it
        with pytest.raises(AssertionError, match="no zero within"):
            root(function, low, high, xtol=xtol)
    else:
        assert root(function, low, high, xtol=xtol) == expected


def test_a_root_at_an_end_is_found_and_no_change_of_sign_is_our_own_mistake() -> None:
    assert root(lambda x: x, 0.0, 1.0, xtol=1e-9) == 0.0 and root(lambda x: x - 1.0, 0.0, 1.0, xtol=1e-9) == 1.0
    with pytest.raises(AssertionError):
        root(lambda x: x + 1.0, 0.0, 1.0, xtol=1e-9)


@given(st.lists(st.lists(st.integers(-4, 4), min_size=5, max_size=5), min_size=1, max_size=6))
def test_ranks_of_sizes_are_scipys_mid_ranks(rows: list[list[int]]) -> None:
    values = np.array(rows, dtype=np.float64)
    ranks, signs = doubled_ranks(values, "pratt")
    expected = np.where(values == 0.0, 0.0, 2.0 * stats.rankdata(np.abs(values), axis=1))
    assert (ranks == expected).all() and (signs == np.sign(values)).all()
