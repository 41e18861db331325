"""The toy corpus: the same everywhere, and its entropy rate is exact."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ablate.data import toy
from ablate.data.corpora import TOY_SHA256, Library
from prereg.registry.canon import sha256_bytes


def test_the_text_is_the_pinned_one() -> None:
    assert sha256_bytes(toy.text().encode()) == TOY_SHA256
    assert 1_100_000 <= len(toy.text()) < 1_100_100


def test_its_length_and_characters_are_known_without_making_it() -> None:
    extent = Library.of(Path("nowhere"), {}).extent("toy")
    assert (extent.characters, extent.held_out, extent.alphabet) == (len(toy.text()), None, frozenset(toy.text()))


def test_no_two_states_are_spelled_alike_so_a_text_determines_its_path() -> None:
    words, _ = toy.chain()
    assert len(set(words)) == len(words)
    # prefix-free: every word ends in its only space or line break
    assert all(word[-1] in " \n" and not set(word[:-1]) & {" ", "\n"} for word in words)


def test_the_chain_is_irreducible_and_aperiodic() -> None:
    _, weights = toy.chain()
    reach = np.linalg.matrix_power((weights > 0).astype(float) + np.eye(len(weights)), len(weights))
    assert (reach > 0).all()
    steps = np.linalg.matrix_power((weights > 0).astype(float), 60)
    assert (steps > 0).all()


def test_the_entropy_rate_is_that_of_the_power_iteration() -> None:
    # An independent route: iterate the chain to its stationary distribution, sum the entropy by hand.
    words, weights = toy.chain()
    transition = weights / weights.sum(1, keepdims=True)
    pi = np.full(len(words), 1 / len(words))
    for _ in range(5000):
        pi = pi @ transition
    nats = sum(pi[i] * -sum(p * math.log(p) for p in row if p > 0) for i, row in enumerate(transition))
    length = sum(pi[i] * len(word) for i, word in enumerate(words))
    assert toy.entropy_rate() == pytest.approx(nats / length, rel=1e-9)
    assert toy.entropy_rate() == pytest.approx(0.3124458570351, rel=1e-10)


def test_the_text_is_as_surprising_as_the_entropy_rate_says() -> None:
    words, weights = toy.chain()
    index = {word: i for i, word in enumerate(words)}
    path = [index[w] for w in toy.text().replace("\n", "\n\0").replace(" ", " \0").split("\0") if w]
    transition = weights / weights.sum(1, keepdims=True)
    surprise = -np.log(transition[path[:-1], path[1:]])
    rate = surprise.sum() / sum(len(words[i]) for i in path[1:])
    # Monte Carlo error over about 200,000 words
    error = 3 * surprise.std() / math.sqrt(len(surprise)) / np.mean([len(words[i]) for i in path])
    assert abs(rate - toy.entropy_rate()) < error
