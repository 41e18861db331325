"""Claims about standardised effects: published values, kept signs, noncentral-t intervals without NaN."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from ablate.judge.effects import cliff_delta, effect_sizes, hedges_j, noncentral_interval

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
