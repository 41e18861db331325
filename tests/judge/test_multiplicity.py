"""Claims about Holm's correction."""

from __future__ import annotations

import gc
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from ablate.judge.stats.multiplicity import holm


def test_holm_gives_the_published_example() -> None:
    # R: p.adjust(c(.01, .04, .03, .005), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))


def test_holm_keeps_the_order_given_and_is_monotone() -> None:
    # The trap: an un-monotone or reordered step-down gives [.03, .03, .04] or [.03, .01, .04].
    assert holm([0.03, 0.01, 0.02]) == pytest.approx((0.04, 0.03, 0.04))


@pytest.mark.parametrize("p", [*permutations([0.001, 0.01, 0.02, 0.3]), *product([0.01, 0.02, 1.0], repeat=3)])
def test_holm_agrees_with_statsmodels_over_every_permutation_and_tie(
    p: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # which statsmodels does each time, over all that tests have loaded
    assert holm(p) == pytest.approx(tuple(multipletests(p, method="holm")[1]))


@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=12))
def test_holm_corrects_and_never_reverses(p: list[float]) -> None:
    # spotify-confidence PR 101: a correction that corrected nothing.
    adjusted = holm(p)
    assert all(raw <= after <= 1.0 for raw, after in zip(p, adjusted, strict=True))
    assert min(adjusted) == pytest.approx(min(1.0, len(p) * min(p)))
    for i, first in enumerate(p):
        for j, second in enumerate(p):
            if first < second:
                assert adjusted[i] <= adjusted[j]


def test_holm_of_one_is_itself_and_of_none_is_none() -> None:
    assert holm([0.04]) == (0.04,)
    assert holm([]) == ()


def test_a_p_of_zero_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        holm([0.0, 0.5])
