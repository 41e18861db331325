"""Discoveries over a whole programme: levels that add up, and a rate that is kept."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.judge.programme import benjamini_hochberg, gamma, lord

P = st.floats(1e-12, 1.0)
STREAM = st.lists(P, max_size=60)

# R package onlineFDR 1.5.0, help page of LORD, section Examples: `sample.df` and LORD(sample.df, random=FALSE),
# printed by the package to seven significant digits (https://dsrobertson.github.io/onlineFDR/reference/LORD.html).
EXAMPLE_P = (2.90e-08, 0.06743, 0.01514, 0.08174, 0.00171, 3.60e-05, 0.79149, 0.27201, 0.28295, 7.59e-08)
EXAMPLE_P += (0.69274, 0.30443, 0.00136, 0.72342, 0.54757)
EXAMPLE_LEVELS = (0.0002675839, 0.0024664457, 0.0005732818, 0.0004872805, 0.0004059066, 0.0003447286, 0.0029745013)
EXAMPLE_LEVELS += (0.0008450114, 0.0007305648, 0.0006243143, 0.0032185913, 0.0010617227, 0.0009256825, 0.0008019657)
EXAMPLE_LEVELS += (0.0007059610,)
EXAMPLE_FOUND = (1, 6, 10)
# The same page, LORD(sample.df, alpha=0.1, w0=0.05) after set.seed(1), which shuffles equal dates as listed here.
SHUFFLED_P = (2.90e-08, 0.06743, 0.01514, 0.08174, 0.00171, 0.27201, 3.60e-05, 0.79149, 7.59e-08, 0.28295)
SHUFFLED_P += (0.69274, 0.72342, 0.30443, 0.54757, 0.00136)
SHUFFLED_LEVELS = (0.0026758385, 0.0032577488, 0.0010775352, 0.0009078052, 0.0007616238, 0.0006517385, 0.0005682672)
SHUFFLED_LEVELS += (0.0058549106, 0.0016151293, 0.0067518870, 0.0023619734, 0.0020342733, 0.0017477495, 0.0015277362)
SHUFFLED_LEVELS += (0.0013569121,)


def test_the_documented_example_of_onlinefdr_comes_out_as_printed_there() -> None:
    tests = lord(EXAMPLE_P, alpha=0.05)
    assert [one.level for one in tests] == pytest.approx(EXAMPLE_LEVELS, abs=5e-11)
    assert tuple(at for at, one in enumerate(tests, start=1) if one.found) == EXAMPLE_FOUND


def test_its_example_with_another_level_and_another_wealth_does_too() -> None:
    tests = lord(SHUFFLED_P, alpha=0.1, w0=0.05)
    assert [one.level for one in tests] == pytest.approx(SHUFFLED_LEVELS, abs=1e-10)
    assert [one.found for one in tests] == [at in (1, 7, 9) for at in range(1, 16)]


def test_gamma_decreases_and_sums_to_no_more_than_one() -> None:
    n = 200_000
    values = np.array([gamma(j) for j in range(1, n + 1)])
    assert (np.diff(values) < 0).all()
    # The tail by its integral, with u = sqrt(log x): 2 (u^3 + 3 u^2 + 6 u + 6) exp(-u), times the scale.
    u = sqrt(log(n + 0.5))
    tail = 0.07720838 * 2 * (u**3 + 3 * u**2 + 6 * u + 6) * exp(-u)
    assert values.sum() + tail == pytest.approx(0.97631, abs=1e-4)


@given(STREAM, st.floats(0.01, 0.5), st.floats(0.01, 1.0))
def test_levels_never_sum_to_more_than_alpha_times_the_discoveries(p: list[float], alpha: float, share: float) -> None:
    # Ramdas et al. 2017: the estimate of the false discovery proportion stays at or below alpha, at every time.
    spent, found = 0.0, 0
    for one in lord(p, alpha=alpha, w0=share * alpha):
        spent += one.level
        found += one.found
        assert spent <= alpha * max(1, found) * (1 + 1e-9)


@given(STREAM, st.data())
def test_a_smaller_p_value_never_lowers_a_later_level(p: list[float], data: st.DataObject) -> None:
    smaller = [data.draw(st.floats(1e-13, value)) for value in p]
    for before, after in zip(lord(p, alpha=0.05), lord(smaller, alpha=0.05), strict=True):
        assert after.level >= before.level
        assert after.found >= before.found


@given(STREAM, STREAM)
def test_what_comes_later_changes_no_earlier_decision(first: list[float], later: list[float]) -> None:
    assert lord(first + later, alpha=0.05)[: len(first)] == lord(first, alpha=0.05)


def test_benjamini_hochberg_gives_the_example_of_its_paper() -> None:
    # Benjamini and Hochberg 1995, section 3.2: fifteen p values, the first four found at .05.
    p = (0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240)
    p += (0.4262, 0.5719, 0.6528, 0.7590, 1.0000)
    adjusted = benjamini_hochberg(p)
    assert [value <= 0.05 for value in adjusted] == [True] * 4 + [False] * 11
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)
    assert benjamini_hochberg(()) == ()


@given(st.lists(P, min_size=1, max_size=30), st.randoms())
def test_benjamini_hochberg_keeps_the_order_it_was_given(p: list[float], random: object) -> None:
    order = list(range(len(p)))
    random.shuffle(order)  # type: ignore[attr-defined]
    adjusted = benjamini_hochberg(p)
    shuffled = benjamini_hochberg([p[at] for at in order])
    assert shuffled == pytest.approx([adjusted[at] for at in order], rel=1e-12)
    assert all(value >= raw * (1 - 1e-12) for value, raw in zip(adjusted, p, strict=True))


@pytest.mark.simulation
@pytest.mark.parametrize("share_of_nulls", [1.0, 0.7])
def test_the_false_discovery_rate_is_kept_in_simulation(share_of_nulls: float) -> None:
    # Normal statistics, one-sided; where it is false, the null lies three standard errors off.
    from scipy import stats

    rng = np.random.default_rng(20260101)
    n_streams, n_tests, alpha = 4000, 60, 0.1
    null = rng.random((n_streams, n_tests)) < share_of_nulls
    p = np.clip(stats.norm.sf(rng.standard_normal(null.shape) + np.where(null, 0.0, 3.0)), 1e-300, 1.0)
    found = np.array([[one.found for one in lord(row, alpha=alpha)] for row in p.tolist()])
    false = (found & null).sum(axis=1) / np.maximum(1, found.sum(axis=1))
    assert false.mean() < alpha + 3 * false.std() / sqrt(n_streams)
    # A procedure that finds nothing would keep the rate too.
    assert found[~null].mean() > 0.2 if share_of_nulls < 1 else found.any(axis=1).mean() > 0.0
