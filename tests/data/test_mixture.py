"""Mixtures: windows in proportion to the weights, a pure function of seed and step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chisquare

from ablate.data.batches import Batches, Mixture, Pooled, Split
from ablate.gpt.streams import draw_below
from prereg.documents.sentences import field_in_words
from prereg.errors import CorpusError
from prereg.study.training import Data

SOURCES = {"a": np.arange(0, 1000), "b": np.arange(1000, 1500), "c": np.arange(2000, 2300)}


def mixture(a: float, b: float, c: float) -> Mixture:
    return Mixture(SOURCES, {"a": a, "b": b, "c": c})


def sources_of(windows: np.ndarray) -> list[str]:
    return ["abc"[int(first) // 1000] for first in windows[:, 0]]


def test_a_step_is_the_same_whenever_it_is_asked_for_and_another_seed_is_another() -> None:
    one = mixture(1, 2, 3)
    late = one.windows(1, 9, 16, 8)
    one.windows(1, 3, 16, 8)
    assert np.array_equal(one.windows(1, 9, 16, 8), late)
    assert not np.array_equal(one.windows(2, 9, 16, 8), late)


def test_no_window_reaches_out_of_its_source() -> None:
    for step in range(1, 100):
        windows = mixture(1, 1, 1).windows(1, step, 8, 12)
        assert (np.diff(windows, axis=1) == 1).all()
        for row, name in zip(windows, sources_of(windows), strict=True):
            assert set(row.tolist()) <= set(SOURCES[name].tolist())


def test_windows_come_in_proportion_to_the_weights() -> None:
    drawn = mixture(5, 3, 2).drawn(4, 2000, 16)
    assert sum(drawn.values()) == 32_000
    assert chisquare(list(drawn.values()), [16_000, 9_600, 6_400]).pvalue > 1e-3


@pytest.mark.parametrize("weights", [(0.0, 1.0, 2.0), (1.0, 0.0, 2.0), (1.0, 2.0, 0.0), (0.0, 0.0, 1.0)])
def test_a_source_of_weight_zero_is_never_drawn(weights: tuple[float, float, float]) -> None:
    drawn = mixture(*weights).drawn(1, 300, 16)
    assert [count == 0 for count in drawn.values()] == [weight == 0 for weight in weights]


@given(st.lists(st.floats(0.001, 1000.0), min_size=3, max_size=3), st.sampled_from([0.5, 2.0, 1024.0]))
def test_only_proportions_count(weights: list[float], factor: float) -> None:
    a, b, c = weights
    scaled = mixture(a * factor, b * factor, c * factor)
    assert np.array_equal(mixture(a, b, c).windows(1, 1, 16, 8), scaled.windows(1, 1, 16, 8))


def test_what_was_drawn_is_what_the_windows_are_of() -> None:
    one = mixture(1, 2, 3)
    seen = [name for step in range(1, 40) for name in sources_of(one.windows(7, step, 4, 8))]
    assert one.drawn(7, 39, 4) == {name: seen.count(name) for name in "abc"}


def test_a_mixture_of_one_source_reads_what_the_source_alone_would_be_read_as() -> None:
    alone = Batches(SOURCES["b"], context=8, batch=4, seed=3)
    mixed = Batches(mixture(0.0, 2.5, 0.0), context=8, batch=4, seed=3)
    assert [alone.at(step)[2] for step in range(1, 20)] == [mixed.at(step)[2] for step in range(1, 20)]


def test_every_source_must_hold_a_window_whatever_its_weight() -> None:
    short = Split(
        Mixture({"a": np.arange(100), "b": np.arange(5)}, {"a": 1.0, "b": 0.0}), Pooled({"a": np.arange(100)})
    )
    with pytest.raises(CorpusError, match="the training split of 'b' has 5 tokens"):
        short.require(8)
    short = Split(mixture(1, 1, 1), Pooled({"a": np.arange(100), "b": np.arange(5)}))
    with pytest.raises(CorpusError, match="the validation split of 'b' has 5 tokens"):
        short.require(8)


def test_a_mixture_that_can_draw_nothing_or_would_leave_a_corpus_unread_is_refused() -> None:
    with pytest.raises(ValidationError, match="every weight of the mixture is 0"):
        Data(mixture={"a": 0.0, "b": 0.0})
    with pytest.raises(ValidationError, match="'c' is not among the sources"):
        Data(corpus="c", mixture={"a": 1.0, "b": 1.0})
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Data(mixture={"a": -1.0, "b": 1.0})
    with pytest.raises(ValidationError, match="at least 2"):
        Data(mixture={"a": 1.0})
    assert Data(corpus="a", mixture={"b": 1.0, "a": 1.0}).sources == ("a", "b")


def test_a_mixture_is_told_by_its_shares() -> None:
    said = field_in_words("data.mixture", {"web": 3.0, "books": 1.0})
    assert said == 'mixture of "books" (25%) and "web" (75%), each window drawn in that proportion'


@given(st.integers(1, 2**63 - 1), st.integers(0, 10**6))
def test_draws_are_those_of_exact_arithmetic_below_every_bound(bound: int, counter: int) -> None:
    from ablate.gpt.streams import key

    words = np.random.Philox(key=key(3, "batch"), counter=[0, 0, 0, counter]).random_raw(20)
    expected = [(int(word) * bound) >> 64 for word in words]
    assert draw_below(3, "batch", counter, count=20, bound=bound).tolist() == expected
