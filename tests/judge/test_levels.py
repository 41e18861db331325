"""Claims about levels of looks: the exact law of t statistics, its known limit, and what numerics may cost."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest
from scipy import special, stats

from ablate.judge.stats.spending import Spending, nominal_levels, spent

SPENDINGS: tuple[Spending, ...] = ("obrien_fleming", "pocock")


def levels_at(alpha: float, looks: tuple[int, ...], spending: Spending, *, two_sided: bool = True) -> tuple[float, ...]:
    found = nominal_levels(np.array([alpha]), looks, spending, two_sided=two_sided)
    return tuple(map(float, found[:, 0]))


def box(levels: tuple[float, ...], looks: tuple[int, ...]) -> float:
    """The chance that any of these looks rejects if t were normal, by an integration that shares no code with ours."""
    n = np.array(looks, dtype=float)
    z = -special.ndtri(np.array(levels) / 2)
    cov = np.sqrt(np.minimum.outer(n, n) / np.maximum.outer(n, n))
    return 1.0 - float(stats.multivariate_normal(cov=cov).cdf(z, lower_limit=-z))


def rejected(
    looks: tuple[int, ...], levels: dict[str, tuple[bool, tuple[float, ...]]], studies: int, seed: int
) -> dict[str, float]:
    """The share of null studies in which any look rejects, by rows of normal differences."""
    rng, step = np.random.default_rng(seed), 100_000
    counts = dict.fromkeys(levels, 0)
    for _ in range(studies // step):
        x = rng.standard_normal((step, looks[-1]))
        t = [sqrt(n) * x[:, :n].mean(axis=1) / x[:, :n].std(axis=1, ddof=1) for n in looks]
        upper = [special.stdtr(n - 1, -one) for n, one in zip(looks, t, strict=True)]
        for name, (two_sided, own) in levels.items():
            p = [2 * np.minimum(one, 1 - one) if two_sided else one for one in upper]
            counts[name] += int(np.any([one <= level for one, level in zip(p, own, strict=True)], axis=0).sum())
    return {name: count / studies for name, count in counts.items()}


@pytest.mark.parametrize(
    ("spending", "known"),
    [
        # Five equal looks, .025 on one side: the program ld98 of Reboussin et al. (2000), now R's ldbounds.
        ("obrien_fleming", (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)),
        ("pocock", (2.4380, 2.4268, 2.4101, 2.3966, 2.3859)),
    ],
)
def test_with_many_seeds_five_equal_looks_have_the_published_boundaries(
    spending: Spending, known: tuple[float, ...]
) -> None:
    looks = tuple(20_000 * k for k in range(1, 6))
    levels = levels_at(0.025, looks, spending, two_sided=False)
    assert -special.ndtri(np.array(levels)) == pytest.approx(known, abs=1.5e-4)
    # The program's symmetric two-sided boundaries at .05 are these on either side.
    both = levels_at(0.05, looks, spending)
    assert -special.ndtri(np.array(both) / 2) == pytest.approx(known, abs=1.5e-4)


@pytest.mark.parametrize(
    ("spending", "known"),
    [
        # R's gsDesign(k = 4, test.type = 2, alpha = 0.025, sfu = sfLDOF), and the same with sfLDPocock.
        ("obrien_fleming", (4.333, 2.963, 2.359, 2.014)),
        ("pocock", (2.368, 2.368, 2.358, 2.350)),
    ],
)
def test_with_many_seeds_four_equal_looks_have_the_boundaries_of_gsdesign(
    spending: Spending, known: tuple[float, ...]
) -> None:
    looks = tuple(20_000 * k for k in range(1, 5))
    two_sided = -special.ndtri(np.array(levels_at(0.05, looks, spending)) / 2)
    one_sided = -special.ndtri(np.array(levels_at(0.025, looks, spending, two_sided=False)))
    assert two_sided == pytest.approx(known, abs=6e-4) and one_sided == pytest.approx(known, abs=6e-4)


def test_with_many_seeds_the_levels_spend_alpha_by_the_multivariate_normal_too() -> None:
    looks = (6_000, 10_000, 20_000)
    levels = levels_at(0.05, looks, "obrien_fleming")
    assert [round(level, 5) for level in levels] == [0.00009, 0.00302, 0.04899]
    for k in (1, 2, 3):
        assert box(levels[:k], looks[:k]) == pytest.approx(
            spent(0.05, looks[k - 1] / looks[-1], "obrien_fleming"), abs=1e-5
        )


@pytest.mark.slow
def test_two_looks_spend_alpha_by_an_integral_over_the_plane_of_mean_and_spread() -> None:
    # Three differences in the orthonormal frame (1,1)/sqrt 2, (1,-1)/sqrt 2, third: t at two seeds is a / c, and at
    # three cot of the angle to (1,1,1). On the unit sphere a point is (sin b cos l, sin b sin l, cos b).
    first, last = levels_at(0.2, (2, 3), "pocock")
    bounds = -special.stdtrit(1, first / 2), -special.stdtrit(2, last / 2)

    heights, longitudes = (np.arange(400) + 0.5) / 400, pi * (np.arange(20_000) + 0.5) / 20_000
    h, at = np.meshgrid(heights, longitudes)
    a, c = np.sqrt(1 - h**2) * np.cos(at), np.sqrt(1 - h**2) * np.sin(at)
    share = 0.0
    for sign in (1.0, -1.0):
        along = (sqrt(2.0) * a + sign * h) / sqrt(3.0)
        t = sqrt(2.0) * along / np.sqrt(1 - along**2)
        share += float(((np.abs(a / c) >= bounds[0]) | (np.abs(t) >= bounds[1])).mean()) / 2
    assert share == pytest.approx(0.2, abs=1e-4)


def test_the_first_look_spends_its_share_and_one_look_is_the_fixed_test() -> None:
    assert levels_at(0.05, (3, 10), "pocock")[0] == pytest.approx(float(spent(0.05, 0.3, "pocock")), rel=1e-12)
    assert levels_at(0.05, (7,), "obrien_fleming") == pytest.approx((0.05,), rel=1e-12)


def test_levels_for_3_5_8_and_10_seeds_lie_below_those_of_brownian_motion() -> None:
    # Brownian motion's, by recursive integration (Armitage, McPherson and Rowe 1969), computed by a program of its own.
    brownian = {
        "obrien_fleming": (0.0000855, 0.0030208, 0.0234334, 0.0425780),
        "pocock": (0.020787, 0.016501, 0.019950, 0.017826),
    }
    for spending in SPENDINGS:
        ours = levels_at(0.05, (3, 5, 8, 10), spending)
        assert ours[0] == pytest.approx(brownian[spending][0], abs=1e-6)
        assert all(one < other for one, other in zip(ours[1:], brownian[spending][1:], strict=True))
        many = levels_at(0.05, (30_000, 50_000, 80_000, 100_000), spending)
        assert many == pytest.approx(brownian[spending], abs=2e-6)


@pytest.mark.simulation
@pytest.mark.parametrize("spending", SPENDINGS)
@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("looks", [(3, 5, 10), (2, 3, 4), (4, 40), (98, 99, 100)])
def test_finer_grids_move_no_level_by_more_than_a_ten_thousandth(
    looks: tuple[int, ...], two_sided: bool, spending: Spending
) -> None:
    alphas = np.array([1e-11, 1e-6, 1e-3, 0.0125, 0.05, 0.2])
    ours = nominal_levels(alphas, looks, spending, two_sided=two_sided)
    finer = nominal_levels(alphas, looks, spending, two_sided=two_sided, finer=2)
    worst = np.abs(ours / finer - 1).max()
    assert worst < (1e-6 if two_sided and looks[0] == 3 else 1e-4)


@pytest.mark.parametrize("spending", SPENDINGS)
@pytest.mark.parametrize("looks", [(3, 5, 8, 10), (2, 3, 4, 5, 6), (2, 12)])
@pytest.mark.simulation
def test_a_level_grows_with_alpha_and_is_no_less_than_what_its_look_spends(
    looks: tuple[int, ...], spending: Spending
) -> None:
    alphas = special.ndtr(np.linspace(special.ndtri(1e-12), 0.0, 30))
    for two_sided in (True, False):
        levels = nominal_levels(alphas, looks, spending, two_sided=two_sided)
        assert (np.diff(levels, axis=1) > 0).all() and (levels <= alphas * (1 + 1e-8)).all()
        totals = np.array([spent(alphas, n / looks[-1], spending, two_sided=two_sided) for n in looks])
        # A chance of crossing here is part of a chance of crossing here first: the bound by the sum of chances.
        assert (levels >= np.diff(totals, axis=0, prepend=0.0) * (1 - 1e-8)).all()


def test_levels_are_the_same_to_the_last_bit_and_touch_no_global_randomness() -> None:
    state = np.random.get_state()[1].copy()
    alphas = np.array([1e-9, 0.0125, 0.05])
    first = nominal_levels(alphas, (3, 5, 9), "pocock")
    assert np.array_equal(first, nominal_levels(alphas, (3, 5, 9), "pocock"))
    assert np.array_equal(state, np.random.get_state()[1])


@pytest.mark.slow
def test_half_a_million_null_studies_reject_as_often_as_promised() -> None:
    looks, studies = (3, 5, 8, 10), 500_000
    levels = {
        f"{spending} {two_sided}": (two_sided, levels_at(0.05, looks, spending, two_sided=two_sided))
        for spending in SPENDINGS
        for two_sided in (True, False)
    }
    for name, share in rejected(looks, levels, studies, seed=1).items():
        assert share == pytest.approx(0.05, abs=4 * sqrt(0.05 * 0.95 / studies)), name


@pytest.mark.simulation
@pytest.mark.parametrize("looks", [(3, 5, 8, 10), (2, 3, 4, 5)])
def test_three_million_null_studies_reject_as_often_as_promised_at_every_alpha(looks: tuple[int, ...]) -> None:
    studies = 3_000_000
    alphas = (0.2, 0.05, 0.0125, 0.001)
    levels = {
        f"{spending} {two_sided} {alpha}": (two_sided, levels_at(alpha, looks, spending, two_sided=two_sided))
        for spending in SPENDINGS
        for two_sided in (True, False)
        for alpha in alphas
    }
    for name, share in rejected(looks, levels, studies, seed=2).items():
        alpha = float(name.split()[-1])
        print(f"{looks} {name}: {share:.5f} of {studies:,}")
        assert share == pytest.approx(alpha, abs=4 * sqrt(alpha * (1 - alpha) / studies)), name
