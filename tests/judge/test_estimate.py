"""Claims about the paired tests: reference values, exactness, floors, degenerate data, and p agreeing with interval."""

from __future__ import annotations

import warnings
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from paired_tests import estimate, p_against, prepare
from scipy import stats

from ablate.judge.stats.kinds import class_of_test
from ablate.judge.stats.significance_tests import (
    COUNTED_PAIRS,
    RESAMPLES,
    TINY,
    BootstrapT,
    NoTestError,
    SignedRank,
    multisets,
    subset_mean,
    subset_means,
    subsets_up_to,
)

METHODS = ("paired_t", "bootstrap_t", "sign_flip", "wilcoxon")

# R's `sleep` data (Cushny and Peebles 1905, Student 1908): extra sleep under two drugs, ten patients.
SLEEP = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]) - np.array(
    [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
)
# Hollander and Wolfe (1973) depression data, the example of R's help page of wilcox.test.
DEPRESSION = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]) - np.array(
    [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
)

samples = st.integers(3, 8).flatmap(
    lambda n: st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=n, max_size=n, unique=True).map(np.array)
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_paired_t_gives_the_sleep_data_of_r() -> None:
    # R: t.test(extra ~ group, data = sleep, paired = TRUE)
    found = estimate(SLEEP, "paired_t", alpha=0.05, rng_seed=1)
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    assert found.se is not None and found.difference / found.se == pytest.approx(-4.0621, abs=5e-5)
    assert found.df == 9 and found.n == 10
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((-2.4598858, -0.7001142), abs=5e-8)


def test_the_paired_t_agrees_with_scipy_on_every_side() -> None:
    for null in (0.0, -1.0, 0.3):
        for side, name in (("two", "two-sided"), ("greater", "greater"), ("less", "less")):
            expected = stats.ttest_1samp(SLEEP, null, alternative=name).pvalue
            assert p_against(SLEEP, "paired_t", null=null, side=side, rng_seed=1) == pytest.approx(expected, rel=1e-10)


def test_wilcoxon_gives_the_depression_data_of_r() -> None:
    # R: wilcox.test(x, y, paired = TRUE, alternative = "greater"): V = 40, p-value = 0.01953
    assert p_against(DEPRESSION, "wilcoxon", null=0.0, side="greater", rng_seed=1) == pytest.approx(0.01953125, 1e-12)
    doubled, signs = SignedRank(DEPRESSION[None, :]).ranks(0.0)
    assert doubled[signs > 0].sum() == 2 * 40


def test_wilcoxon_is_exact_over_the_observed_ranks_with_ties_and_zeros_after_pratt() -> None:
    differences = np.array([0.0, 0.0, 0.0, -1.0, 2.0, 2.0, -3.0, 4.0, 4.0, 5.0])

    def enumerated(ranks: np.ndarray) -> float:
        observed = ranks[differences[differences != 0] > 0].sum()
        return float(np.mean([np.dot(signs, ranks) >= observed for signs in product((0, 1), repeat=ranks.size)]))

    pratt = enumerated(stats.rankdata(np.abs(differences))[differences != 0])  # zeros ranked, then left out
    dropped = enumerated(stats.rankdata(np.abs(differences[differences != 0])))
    found = p_against(differences, "wilcoxon", null=0.0, side="greater", rng_seed=1)
    assert found == pytest.approx(pratt, abs=1e-12) and pratt != dropped


def test_wilcoxon_with_zeros_left_out_before_ranking_is_scipys() -> None:
    differences = np.array([0.0, 0.0, 0.0, -1.0, 2.0, 2.0, -3.0, 4.0, 4.0, 5.0])
    found = {zeros: prepare(differences, "wilcoxon", 1, zeros).p(0.0, "two") for zeros in ("pratt", "wilcox")}
    for zeros, p in found.items():
        # scipy by permutation: every sign of the ranks that are left.
        peer = stats.wilcoxon(differences, zero_method=zeros, method=stats.PermutationMethod(n_resamples=np.inf))
        assert p == pytest.approx(peer.pvalue, abs=1e-12), zeros
    assert found["pratt"] != found["wilcox"]
    assert any("Wilcox" in note for note in prepare(differences, "wilcoxon", 1, "wilcox").notes)


def test_wilcoxon_shows_the_hodges_lehmann_estimate_that_its_interval_is_about() -> None:
    # R: wilcox.test(depression, conf.int = TRUE): (pseudo)median 0.46, 95% CI 0.010 to 0.786.
    found = estimate(DEPRESSION, "wilcoxon", alpha=0.05, rng_seed=1)
    assert found.difference == pytest.approx(0.46, abs=5e-4)
    # One outlier moves the mean out of the interval: it was shown as "0.0246 (95% CI 0.0432 to 0.0818)".
    skewed = np.array([0.05, 0.06, 0.045, 0.07, 0.055, 0.065, 0.0432, 0.09, 0.08, -0.31])
    found = estimate(skewed, "wilcoxon", alpha=0.1, rng_seed=1)
    assert found.interval is not None and found.difference is not None
    assert found.interval.low <= found.difference <= found.interval.high and skewed.mean() < found.interval.low
    turned = estimate(np.array([*skewed[:-1], -3.0]), "wilcoxon", alpha=0.1, rng_seed=1)
    assert any("has the other sign" in note for note in turned.notes)


@pytest.mark.slow
@given(
    st.integers(5, 9).flatmap(lambda n: st.lists(st.integers(-3, 4), min_size=n, max_size=n)),
    st.sampled_from([0.05, 0.1, 0.3]),
    st.sampled_from(["pratt", "wilcox"]),
)
@settings(max_examples=30, deadline=None)
def test_the_rank_interval_under_ties_and_zeros_holds_every_null_that_is_not_rejected(
    whole: list[int], alpha: float, zeros: str
) -> None:
    differences = np.array(whole, dtype=float)
    test = prepare(differences, "wilcoxon", 1, zeros)  # type: ignore[arg-type]
    nulls = np.arange(-4.0, 5.0, 0.125)  # every Walsh average, and points between
    kept = [null for null in nulls if test.p(null, "two") > alpha]
    bounds = test.bounds(alpha)
    if bounds is None:
        assert not kept or len(kept) == nulls.size
        return
    assert all(bounds[0] <= null <= bounds[1] for null in kept)
    # The other way is not always so: dropping zeros may reject a null between two that are kept, as with [0, 1, 1, -2,
    # -2, -2] at .3, where p of 0 is .25. The interval reaches over it, and so is never too short.
    assert bounds[0] <= 0.0 <= bounds[1] or test.p(0.0, "two") <= alpha
    # Closed where the end itself is not rejected, open where it is; nothing beyond the outermost kept null.
    for end, inwards in zip(bounds, (1e-9, -1e-9), strict=True):
        assert test.p(end, "two") > alpha or test.p(end + inwards, "two") > alpha
        assert test.p(end - inwards, "two") <= alpha


def test_the_hodges_lehmann_interval_is_that_of_r() -> None:
    # R: wilcox.test(depression, conf.int = TRUE): 95% CI 0.010 to 0.786 (exact level 0.961)
    found = estimate(DEPRESSION, "wilcoxon", alpha=0.05, rng_seed=1).interval
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.010, 0.786), abs=5e-4)


def test_sign_flip_enumerates_every_sign_vector() -> None:
    differences = np.array([0.3, -0.1, 0.5, 0.9, -0.2, 0.4])
    for null in (0.0, 0.2, -0.5):
        shifted = differences - null
        sums = np.array([np.dot(signs, shifted) for signs in product((1, -1), repeat=6)])
        two = np.mean(np.abs(sums) >= abs(shifted.sum()) - 1e-12)
        greater = np.mean(sums >= shifted.sum() - 1e-12)
        assert p_against(differences, "sign_flip", null=null, side="two", rng_seed=1) == pytest.approx(two)
        assert p_against(differences, "sign_flip", null=null, side="greater", rng_seed=1) == pytest.approx(greater)


def test_sign_flip_beyond_enumeration_draws_and_never_gives_zero() -> None:
    n = COUNTED_PAIRS + 1
    found = estimate(np.linspace(1.0, 2.0, n), "sign_flip", alpha=0.05, rng_seed=1)
    assert found.p == pytest.approx(class_of_test("sign_flip").floor(n)) == 2 / 10_000
    assert any("random sign vectors" in note and "third digit" in note for note in found.notes)


@pytest.mark.parametrize("n", [2, 7, 13, 16])
def test_counting_by_halves_is_the_enumeration(n: int) -> None:
    for differences in (rng(n).standard_normal(n) + 0.3, np.round(4 * rng(n).standard_normal(n)) / 10):
        means = np.sort(subset_means(differences[None, :])[0])
        for limit in (0.0, 0.1, -0.3, 0.7):
            listed = 1 + int((means <= limit + 1e-12).sum())
            assert subsets_up_to(differences - limit - 1e-12) == listed
            p = p_against(differences, "sign_flip", null=limit, side="greater")
            assert p == listed / 2**n
        for rank in {1, 2, max(1, 2**n // 40)}:
            assert subset_mean(differences, rank) == pytest.approx(means[rank - 1], abs=2e-12)


@pytest.mark.slow
def test_thirty_pairs_are_flipped_exactly_without_random_numbers() -> None:
    # By 9,999 random sign vectors the p of these differences came out anywhere between .036 and .043.
    differences = rng(5).standard_normal(30) + 0.37
    found = {estimate(differences, "sign_flip", alpha=0.05, rng_seed=seed).model_dump_json() for seed in range(3)}
    assert len(found) == 1
    test = prepare(differences, "sign_flip", 1)
    # An exact count on integers: sums of the rounded differences, by convolution.
    whole = np.rint(differences * 2000).astype(np.int64)
    ways = np.zeros(2 * int(np.abs(whole).sum()) + 1)
    ways[ways.size // 2] = 1.0
    for value in np.abs(whole):
        ways = np.roll(ways, value) + np.roll(ways, -value)
    beyond = np.abs(np.arange(ways.size) - ways.size // 2) >= abs(int(whole.sum()))
    expected = float(ways[beyond].sum()) / 2**30
    assert prepare(whole.astype(float), "sign_flip", 1).p(0.0, "two") == pytest.approx(expected, rel=1e-12)
    for alpha in (0.05, 0.01, 1e-5):
        bounds = test.bounds(alpha)
        assert bounds is not None
        for end, outwards in zip(bounds, (-1e-9, 1e-9), strict=True):
            assert test.p(end + outwards, "two") <= alpha < test.p(end - outwards, "two")


def test_bootstrap_t_enumerates_all_index_vectors_up_to_six_pairs() -> None:
    # The same p from 5^5 index vectors one by one, by the rule that stands in BootstrapT.
    differences = np.array([0.3, -0.1, 0.5, 0.9, 0.2])
    n, mean = 5, differences.mean()
    t = mean / (differences.std(ddof=1) / np.sqrt(n))
    drawn = differences[np.array(list(product(range(n), repeat=n)))]
    spread = drawn.std(axis=1, ddof=1)
    kept = np.ptp(drawn, axis=1) > 0
    stars = (drawn.mean(axis=1)[kept] - mean) / (spread[kept] / np.sqrt(n))
    assert kept.sum() == 5**5 - 5
    expected = (1 + np.sum(np.abs(stars) >= abs(t) - 1e-9)) / (1 + kept.sum())
    assert p_against(differences, "bootstrap_t", null=0.0, side="two", rng_seed=1) == pytest.approx(expected)
    one_sided = (1 + np.sum(stars >= t - 1e-9)) / (1 + kept.sum())
    assert p_against(differences, "bootstrap_t", null=0.0, side="greater", rng_seed=1) == pytest.approx(one_sided)


def test_bootstrap_t_needs_no_draws_up_to_ten_pairs_and_its_draws_near_that_enumeration() -> None:
    for n in range(2, 11):
        counts, ways = multisets(n)
        assert len(counts) == len(np.unique(counts, axis=0)) == comb(2 * n - 1, n) and ways.sum() == n**n
        assert (counts.sum(axis=1) == n).all()
    exact = p_against(SLEEP, "bootstrap_t", null=0.0, side="two", rng_seed=1)
    assert exact == p_against(SLEEP, "bootstrap_t", null=0.0, side="two", rng_seed=2)
    drawn = BootstrapT(SLEEP[None, :], rng_seed=1, simulated=True).p(0.0, "two")[0]
    assert drawn == pytest.approx(exact, abs=5 * np.sqrt(exact / RESAMPLES))


def test_bootstrap_t_drops_resamples_without_spread_and_can_reject_at_three() -> None:
    # Counting them as extreme would keep p at 3/27 and above: the test would never reject at n = 3.
    found = estimate(np.array([10.0, 10.1, 10.3]), "bootstrap_t", alpha=0.05, rng_seed=1)
    assert found.p == pytest.approx(1 / 25) == pytest.approx(class_of_test("bootstrap_t").floor(3))
    assert any("3 without spread dropped" in note for note in found.notes)


def test_the_bootstrap_is_paired_and_does_not_see_what_pairs_share() -> None:
    # Resampling the two arms independently (deep-significance; dabest #193) would let seed-to-seed swings swamp this.
    shared = np.array([0.0, 50.0, -30.0, 80.0, 20.0, -70.0])
    left, right = shared + np.array([1.0, 1.2, 0.9, 1.1, 1.05, 0.95]), shared
    assert estimate(left - right, "bootstrap_t", alpha=0.05, rng_seed=1).p < 0.001


@pytest.mark.slow
def test_the_seed_is_honoured_and_another_seed_gives_other_numbers() -> None:
    # rliable's `arch` bootstrap ignored its seed because the library drew from numpy's global state.
    more = np.concatenate([SLEEP, SLEEP[:3] + 0.15])  # ten pairs are enumerated
    first = p_against(more, "bootstrap_t", null=0.0, side="two", rng_seed=1)
    np.random.seed(0)
    again = p_against(more, "bootstrap_t", null=0.0, side="two", rng_seed=1)
    other = p_against(more, "bootstrap_t", null=0.0, side="two", rng_seed=2)
    assert first == again != other
    assert abs(first - other) < 0.01


def test_smallest_attainable_p_of_the_exact_tests() -> None:
    # 2 / 2^n: the table in the statistics notes of this project.
    for n, floor in ((3, 0.25), (5, 0.0625), (6, 0.03125), (8, 0.0078125), (10, 0.001953125)):
        extreme = np.arange(1.0, n + 1)
        for method in ("sign_flip", "wilcoxon"):
            assert class_of_test(method).floor(n) == floor
            assert estimate(extreme, method, alpha=0.05, rng_seed=1).p == pytest.approx(floor)


def test_the_floor_of_the_bootstrap_is_reached() -> None:
    for n in (2, 3, 4, 5, 6, 7):
        extreme = 1e6 + np.arange(n) * 1.37 ** np.arange(n)
        assert estimate(extreme, "bootstrap_t", alpha=0.05, rng_seed=1).p == pytest.approx(
            class_of_test("bootstrap_t").floor(n)
        )


@pytest.mark.slow
def test_p_is_never_zero() -> None:
    far = np.array([1e6, 1e6 + 1.0, 1e6 + 2.0] * 40)
    for method in METHODS:
        for side in ("two", "greater", "less"):
            assert p_against(far, method, null=0.0, side=side, rng_seed=1) > 0.0
    assert p_against(far, "paired_t", null=0.0, side="two", rng_seed=1) >= TINY


@given(samples, st.sampled_from(METHODS), st.floats(-5, 5).map(lambda x: round(x, 2)))
@settings(max_examples=60, deadline=None)
def test_a_one_sided_p_belongs_to_its_side_and_not_to_the_data(
    differences: np.ndarray, method: str, null: float
) -> None:
    # autorank picks the side after looking: the two one-sided p values would then never be large together.
    greater = p_against(differences, method, null=null, side="greater", rng_seed=1)  # type: ignore[arg-type]
    less = p_against(differences, method, null=null, side="less", rng_seed=1)  # type: ignore[arg-type]
    assert greater + less >= 1.0 - 1e-9
    mirrored = p_against(-differences, method, null=-null, side="less", rng_seed=1)  # type: ignore[arg-type]
    assert mirrored == pytest.approx(greater, rel=1e-9)


@given(samples, st.sampled_from(METHODS), st.sampled_from([0.05, 0.1, 0.3]), st.floats(0.01, 0.99))
@settings(max_examples=120, deadline=None)
def test_a_null_is_rejected_exactly_when_it_lies_outside_the_interval(
    differences: np.ndarray, method: str, alpha: float, share: float
) -> None:
    test = prepare(differences, method, 1)  # type: ignore[arg-type]
    bounds = test.bounds(alpha)
    if bounds is None:
        # No null at all may be rejected then.
        assert test.p(float(differences.max() * 100 + 1e3), "two") > alpha
        return
    low, high = bounds
    width = max(high - low, 1e-3)
    inside = low + share * (high - low)
    walsh = (differences[:, None] + differences[None, :]) / 2.0
    assume(np.abs(walsh - inside).min() > 1e-6)  # on a Walsh average the ranks tie and their law is another
    assert test.p(inside, "two") > alpha
    for outside in (low - share * width - 1e-6, high + share * width + 1e-6):
        assume(np.abs(walsh - outside).min() > 1e-6)
        assert test.p(outside, "two") <= alpha + 1e-9


@pytest.mark.parametrize("method", ["paired_t", "bootstrap_t", "sign_flip", "wilcoxon"])
def test_the_ends_of_the_interval_are_where_the_p_crosses_alpha(method: str) -> None:
    differences = np.array([0.31, -0.12, 0.55, 0.93, 0.24, 0.47, 0.11, 0.68])
    test = prepare(differences, method, 1)  # type: ignore[arg-type]
    for alpha in (0.05, 0.0731, 0.1, 0.1237, 0.2):
        bounds = test.bounds(alpha)
        assert bounds is not None
        for end, outwards in zip(bounds, (-1e-7, 1e-7), strict=True):
            assert test.p(end + outwards, "two") <= alpha < test.p(end - outwards, "two")


def test_no_interval_is_given_where_none_is_attainable_and_the_note_says_why() -> None:
    for method in ("sign_flip", "wilcoxon"):
        found = estimate(np.arange(1.0, 6.0), method, alpha=0.05, rng_seed=1)
        assert found.interval is None
        assert any("no finite 0.95 interval from 5 pairs" in note for note in found.notes)


def test_equal_differences_have_no_t_and_say_so_while_sign_flip_still_works() -> None:
    # 0.3 apart up to rounding: the SE is rounding noise, and t would be about 1e16.
    same = np.array([1.1, 2.2, 3.3, 4.4, 5.5, 6.6]) - np.array([0.8, 1.9, 3.0, 4.1, 5.2, 6.3])
    for method in ("paired_t", "bootstrap_t"):
        with pytest.raises(NoTestError, match="standard error is zero"):
            estimate(same, method, alpha=0.05, rng_seed=1)
    assert estimate(same, "sign_flip", alpha=0.05, rng_seed=1).p == pytest.approx(2 / 64)


def test_equal_differences_of_losses_with_four_decimals_have_no_t() -> None:
    # Public runs: as doubles these differ by 4e-16, 2e-12 of their size, which would be a t of 1e12.
    same = np.array([3.2781, 3.2764, 3.2790]) - np.array([3.2783, 3.2766, 3.2792])
    assert np.ptp(same) > 0.0
    for method in ("paired_t", "bootstrap_t"):
        with pytest.raises(NoTestError, match="standard error is zero"):
            estimate(same, method, alpha=0.05, rng_seed=1)


def test_differences_that_are_all_zero_give_p_one() -> None:
    for method in METHODS:
        found = estimate(np.zeros(8), method, alpha=0.05, rng_seed=1)
        assert found.p == 1.0
        assert any("exactly zero" in note for note in found.notes)
        assert found.interval is not None and (found.interval.low, found.interval.high) == (0.0, 0.0)
    with pytest.raises(NoTestError, match=r"against 0\.1"):
        p_against(np.zeros(8), "paired_t", null=0.1, side="less", rng_seed=1)


def test_fewer_than_two_pairs_are_no_test() -> None:
    with pytest.raises(NoTestError, match="at least two"):
        estimate(np.array([1.0]), "paired_t", alpha=0.05, rng_seed=1)


def test_values_that_are_not_finite_are_our_bug() -> None:
    with pytest.raises(AssertionError):
        estimate(np.array([1.0, np.nan]), "paired_t", alpha=0.05, rng_seed=1)


def test_a_test_that_is_not_built_is_refused() -> None:
    with pytest.raises(AssertionError, match="items"):
        estimate(SLEEP, "items", alpha=0.05, rng_seed=1)


def test_wilcoxon_leans_where_its_ranks_lean_and_not_where_the_mean_does() -> None:
    differences = np.array([*np.linspace(0.1, 1.0, 19), -1000.0])
    test = prepare(differences, "wilcoxon", 1)
    assert test.mean < 0 and test.leaning == 1


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(FINITE, min_size=2, max_size=8).map(np.array),
    FINITE,
    st.sampled_from(METHODS),
    st.sampled_from(["two", "greater", "less"]),
)
@settings(max_examples=60, deadline=None)
def test_no_finite_number_breaks_a_test(differences: np.ndarray, null: float, method: str, side: str) -> None:
    # Differences below 1e-200 were divided by zero, and sums near 1e308 overflowed.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            test = prepare(differences, method, 1)  # type: ignore[arg-type]
            assert 0.0 < test.p(null, side) <= 1.0  # type: ignore[arg-type]
            test.estimate(0.2)
        except NoTestError:
            return


@given(
    st.lists(st.floats(-8, 8).map(lambda x: round(x, 3)), min_size=3, max_size=7).map(np.array),
    st.floats(-4, 4).map(lambda x: round(x, 2)),
    st.sampled_from(METHODS),
    st.integers(-980, 1010),
)
@settings(max_examples=60, deadline=None)
def test_a_p_does_not_move_with_the_unit(differences: np.ndarray, null: float, method: str, power: int) -> None:
    def p_values(scale: float) -> list[float] | str:
        try:
            test = prepare(differences * scale, method, 1)  # type: ignore[arg-type]
            return [test.p(null * scale, side) for side in ("two", "greater", "less")]
        except NoTestError as error:
            return type(error).__name__

    assert p_values(2.0**power) == p_values(1.0)
