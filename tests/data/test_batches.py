"""Batches are a pure function of (seed, step); splits and tokens are exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.data.batches import Batches, Split, chain_next, chain_start
from ablate.data.tokenizers import CharTokenizer
from prereg.errors import CorpusError


def test_a_batch_is_the_same_whenever_it_is_asked_for() -> None:
    batches = Batches(np.arange(1000), context=8, batch=4, seed=3)
    late = batches.at(7)
    for step in range(1, 7):
        batches.at(step)
    again = batches.at(7)
    assert torch.equal(late[0], again[0])
    assert late[2] == again[2]


def test_targets_are_inputs_moved_by_one_and_windows_stay_inside() -> None:
    tokens = np.arange(50)
    for step in range(1, 200):
        inputs, targets, _ = Batches(tokens, context=8, batch=4, seed=1).at(step)
        assert torch.equal(inputs + 1, targets)
        assert int(targets.max()) <= 49


def test_every_window_can_be_drawn_the_last_too() -> None:
    batches = Batches(np.arange(12), context=8, batch=8, seed=1)
    starts = {int(row[0]) for step in range(1, 60) for row in batches.at(step)[0]}
    assert starts == {0, 1, 2, 3}


def test_the_chain_is_a_fingerprint_of_order_and_content() -> None:
    one, two = b"one", b"two"
    assert chain_next(chain_next(chain_start(), one), two) != chain_next(chain_next(chain_start(), two), one)


def test_a_corpus_too_short_for_one_window_is_refused() -> None:
    with pytest.raises(CorpusError, match="validation split has 10 tokens"):
        Split(np.arange(90), np.arange(10)).require(16)


@given(st.text(min_size=1, alphabet=st.characters(codec="utf-8")))
def test_characters_survive_the_tokenizer(text: str) -> None:
    tokenizer = CharTokenizer.of(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert int(tokenizer.byte_lengths()[ids].sum()) == len(text.encode())


def test_a_stranger_is_refused_not_replaced() -> None:
    with pytest.raises(CorpusError, match="'z' is not in the vocabulary of 3"):
        CharTokenizer.of("abc").encode("abz")
