"""Claims about standardised effects: published values, kept signs, noncentral-t intervals without NaN."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from ablate.judge.stats.effects import cliff_delta, effect_sizes, hedges_j, noncentral_interval

DRUG_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])  # R's `sleep`, group 1
DRUG_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])  # group 2


def by_name(left: np.ndarray, right: np.ndarray) -> dict:
    return {one.name: one for one in effect_sizes(left, right, alpha=0.05)}


def test_the_sleep_data_give_the_published_effects() -> None:
    # Recomputed in R from `sleep`: dz, J(9), g_z, noncentral-t interval of dz, d_av, Cliff's delta.
    found = by_name(DRUG_1, DRUG_2)
    assert found["d_z"].value == pytest.approx(-1.284558, abs=5e-7)
    assert hedges_j(9) == pytest.approx(0.9138749, abs=5e-8)
    assert found["g_z"].value == pytest.approx(-1.173925, abs=5e-7)
    assert (found["d_z"].interval.low, found["d_z"].interval.high) == pytest.approx((-2.118017, -0.414628), abs=1e-6)
    assert found["cliff_delta"].value == pytest.approx(-0.49)
    df = found["g_av"].df
    r = np.corrcoef(DRUG_1, DRUG_2)[0, 1]
    assert df == pytest.approx(18 / (1 + r**2))  # Cousineau (2020)
    assert found["g_av"].value / hedges_j(df) == pytest.approx(-0.832181, abs=5e-7)  # d_av


def test_every_effect_keeps_its_sign() -> None:
    # pingouin #450: an average d passed off as dz; others return |d|.
    there, back = by_name(DRUG_1, DRUG_2), by_name(DRUG_2, DRUG_1)
    for name, one in there.items():
        assert one.value < 0
        assert back[name].value == pytest.approx(-one.value)
    assert back["d_z"].interval.low == pytest.approx(-there["d_z"].interval.high)


def test_d_z_and_g_av_are_different_quantities() -> None:
    found = by_name(DRUG_1, DRUG_2)
    assert abs(found["d_z"].value - found["g_av"].value) > 0.3


@pytest.mark.parametrize("df", [2, 4, 9, 99])
@pytest.mark.parametrize("t", [-120.0, -37.7, -4.06, -1e-9, 0.0, 0.7, 12.0, 120.0])
def test_the_noncentral_interval_inverts_the_noncentral_t(t: float, df: int) -> None:
    # nct.cdf returns NaN on wide brackets; the search starts at t.
    found = noncentral_interval(t, df, 0.05)
    assert found is not None
    low, high = found
    assert low < t < high
    if abs(t) < 13:
        assert stats.nct.cdf(t, df, low) == pytest.approx(0.975, abs=1e-6)
        assert stats.nct.cdf(t, df, high) == pytest.approx(0.025, abs=1e-6)


def test_where_nct_breaks_down_there_is_no_interval_rather_than_nan() -> None:
    found = noncentral_interval(1e4, 1, 0.05)
    assert found is None or np.isfinite(found).all()


def test_the_noncentral_interval_covers_as_often_as_it_says() -> None:
    rng, n, delta = np.random.default_rng(3), 6, 0.8
    covered = 0
    for _ in range(400):
        x = rng.standard_normal(n) + delta
        low, high = noncentral_interval(x.mean() / x.std(ddof=1) * sqrt(n), n - 1, 0.2)  # type: ignore[misc]
        covered += low <= delta * sqrt(n) <= high
    assert covered / 400 == pytest.approx(0.8, abs=4 * sqrt(0.8 * 0.2 / 400))


def test_equal_differences_have_no_standardised_effect_but_a_cliff_delta() -> None:
    found = by_name(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]))
    assert "d_z" not in found and "g_z" not in found
    assert found["cliff_delta"].value == pytest.approx(5 / 9)


def test_two_pairs_give_no_corrected_effect_because_the_correction_is_zero() -> None:
    assert set(by_name(np.array([1.0, 3.0]), np.array([0.0, 1.0]))) == {"d_z", "cliff_delta"}


def test_cliff_delta_is_one_when_every_left_value_is_larger() -> None:
    assert cliff_delta(np.array([5.0, 6.0]), np.array([1.0, 2.0])) == 1.0


@pytest.mark.parametrize("t", [17.098429667537868, 18.65659695023039, 19.48814627954922])
def test_a_point_where_the_library_has_no_value_does_not_stop_the_search(t: float) -> None:
    # scipy's nct.cdf is NaN at single points inside a sound bracket (df 1, noncentrality about -9); its brentq raises.
    found = noncentral_interval(t, 1.0, 0.05)
    assert found is not None
    for bound, target in zip(found, (0.975, 0.025), strict=True):
        grid = (np.arange(400_000) + 0.5) / 400_000
        spread = np.abs(stats.norm.ppf(0.5 + grid / 2.0))  # chi with one degree of freedom, by its quantiles
        assert float(stats.norm.cdf(t * spread - bound).mean()) == pytest.approx(target, abs=1e-5)


def with_t(t: float, n: int) -> np.ndarray:
    """n differences whose t statistic is t."""
    x = np.random.default_rng(n).standard_normal(n)
    return (x - x.mean()) / x.std(ddof=1) + t / sqrt(n)


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("effect", [0.0, 0.5, 1.5, 3.0])
def test_the_interval_of_g_z_covers_the_effect_between_its_quantiles_and_nowhere_else(n: int, effect: float) -> None:
    # Coverage without chance: the interval falls with t, so it covers the effect just between two quantiles of t.
    # With limits times J, as once, 31% of samples missed an effect of 3 with three pairs.
    law = stats.nct(n - 1, effect * sqrt(n))
    for share, covers in ((0.02, False), (0.03, True), (0.97, True), (0.98, False)):
        found = by_name(with_t(float(law.ppf(share)), n), np.zeros(n))["g_z"].interval
        assert (found.low <= effect <= found.high) == covers, (share, found)


@pytest.mark.simulation
@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("effect", [0.0, 0.5, 1.5, 3.0])
def test_the_interval_of_g_z_covers_in_simulation(n: int, effect: float) -> None:
    rng, covered, given = np.random.default_rng(n), 0, 0
    for _ in range(400):
        found = by_name(rng.standard_normal(n) + effect, np.zeros(n))["g_z"].interval
        if found is not None:
            given += 1
            covered += found.low <= effect <= found.high
    assert given > 380 and covered / given == pytest.approx(0.95, abs=4 * sqrt(0.95 * 0.05 / given))


def test_g_z_has_the_interval_of_d_z() -> None:
    found = by_name(DRUG_1, DRUG_2)
    assert found["g_z"].interval == found["d_z"].interval
    assert found["g_z"].interval.low == pytest.approx(-2.118017, abs=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [2.0**-1040, 2.0**-830, 2.0**-665, 2.0**-530, 2.0**520, 2.0**1000, 2.0**1021])
def test_effects_do_not_depend_on_the_unit(scale: float) -> None:
    # Squares of differences below 1e-162 vanish, those beyond 1e154 overflow, and so do some differences at the last.
    left, right = np.round(16 * (DRUG_1 - 4.6)) / 16, np.round(16 * (4.6 - DRUG_2)) / 16
    for name, one in by_name(left * scale, right * scale).items():
        whole = by_name(left, right)[name]
        assert one.value == pytest.approx(whole.value, rel=1e-9)
        if whole.interval is not None:
            assert (one.interval.low, one.interval.high) == pytest.approx((whole.interval.low, whole.interval.high))


def test_the_correction_is_exact_at_any_number_of_pairs() -> None:
    # Beyond the first terms of its series nothing is left at df 1e6 and more; two log gammas lose seven digits there.
    for df in (1e4, 1e6, 1e9, 1e12):
        assert hedges_j(df) == pytest.approx(1 - 3 / (4 * df) - 7 / (32 * df**2), abs=2e-12 if df < 1e5 else 1e-15)
