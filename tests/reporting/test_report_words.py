"""Numbers in words: signs, decimals, p values, intervals, durations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.judge.verdict import Interval
from ablate.reporting import estimates
from prereg import text as words

ps = st.floats(min_value=5e-324, max_value=1.0, exclude_min=False)


@given(ps)
def test_a_p_value_is_never_shown_as_zero(p: float) -> None:
    digits = words.p_value(p).lstrip("<> ")
    assert float(digits) > 0


@given(ps)
def test_a_p_value_never_changes_its_side_of_a_usual_threshold(p: float) -> None:
    text = words.p_value(p)
    shown = float(text.lstrip("<> "))
    for mark in words.P_MARKS:
        below = shown < mark or (text.startswith("<") and shown <= mark)
        assert below == (p < mark), (text, mark)


@given(st.floats(min_value=1e-4, max_value=0.999))
def test_a_shown_p_value_is_close_to_the_real_one(p: float) -> None:
    text = words.p_value(p)
    if text[0] not in "<>":
        assert abs(float(text) - p) <= 0.0005


@given(ps, ps)
def test_a_larger_p_value_never_reads_as_a_smaller_one(first: float, second: float) -> None:
    def shown(p: float) -> float:
        return float(words.p_value(p).lstrip("<> "))

    small, large = sorted((first, second))
    # A p next to a threshold gets more digits than its neighbour: order holds within the last shown digit.
    assert shown(small) <= shown(large) + 0.0005


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.034, ".034"),
        (0.04996, ".04996"),
        (0.05, ".050"),
        (0.0007, ".0007"),
        (1.0, "1"),
        (0.9999, "> .999"),
        (0.00009, "< .0001"),
        (5e-324, "< .0001"),
        (0.2, ".200"),
        (0.0499999999999, "< .05"),
    ],
)
def test_p_values_read_like_this(p: float, text: str) -> None:
    assert words.p_value(p) == text


@pytest.mark.parametrize("p", [0.0, -0.1, 1.1, math.nan])
def test_what_is_no_p_value_is_our_own_mistake(p: float) -> None:
    with pytest.raises(AssertionError):
        words.p_value(p)


def test_a_p_value_that_does_not_exist_is_a_dash() -> None:
    assert estimates.p_cell(None) == "–" and estimates.p_cell(0.034) == ".034"


def test_minus_signs_are_real_and_zero_has_none() -> None:
    assert words.number(-1.25, 2) == "−1.25"
    assert words.number(-0.0004, 2) == "0.00"
    assert estimates.signed(0.5, 1) == "+0.5"
    assert estimates.signed(-0.001, 2) == "0.00"


@given(st.floats(min_value=-1e12, max_value=1e12), st.integers(0, 8))
def test_a_number_reads_back_as_what_was_rounded(value: float, decimals: int) -> None:
    text = words.number(value, decimals).replace("−", "-").replace(",", "")
    assert float(text) == pytest.approx(value, abs=0.5000001 * 10**-decimals, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.02, "0.02"),
        (0.0, "0"),
        (614_400, "614,400"),
        (1e-9, "1e−09"),
        (-3.5, "−3.5"),
        (100.0, "100"),
        (0.000125, "0.000125"),
    ],
)
def test_a_margin_is_as_short_as_it_can_be(value: float, text: str) -> None:
    assert words.compact(value) == text


@pytest.mark.parametrize(
    ("spread", "decimals"), [(0.0123, 3), (1.5, 1), (25.0, 0), (0.0, 3), (1e-30, 8), (math.inf, 3)]
)
def test_a_spread_gets_two_significant_digits(spread: float, decimals: int) -> None:
    assert estimates.decimals_for(spread) == decimals


def test_an_open_interval_says_so() -> None:
    assert estimates.interval(Interval(low=None, high=0.5, level=0.95, method="t"), 1) == "[−∞, +0.5]"
    assert estimates.interval(None, 1) == "no finite interval"


def test_the_judges_sentences_get_real_minus_signs_and_keep_their_hyphens() -> None:
    assert (
        estimates.proper("a-1 minus b is -0.02 (95% CI -.03 to 0.1, sign-flip)")
        == "a-1 minus b is −0.02 (95% CI −.03 to 0.1, sign-flip)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245.0, "4 min 05 s"),
        (7620.0, "2 h 07 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_times_are_told_in_utc_and_an_odd_one_is_left_alone() -> None:
    assert words.moment("2026-05-04T15:20:00+02:00") == "2026-05-04 13:20 UTC"
    assert words.moment("yesterday") == "yesterday"


def test_counts_lists_and_ranges() -> None:
    assert words.counted(1, "run") == "1 run"
    assert words.counted(2, "hypothesis", "hypotheses") == "2 hypotheses"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed([]) == ""
    assert words.ranged([1, 2, 3]) == "1 to 3"
    assert words.ranged([1, 3]) == "1, 3"
    assert words.ranged([7, 2**31]) == "7, 2147483648"  # the seeds of a comparison of commits lie far apart
    assert words.ranged([5, 6, 2**31]) == "5, 6, 2147483648"
