"""Losses of predictors that only count, next to which a model's loss is read."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import log
from pathlib import Path

import numpy as np
import pytest

from ablate.data.baselines import Baselines, counting_baselines, kept_baselines
from ablate.data.batches import Split
from ablate.data.corpora import Library
from ablate.data.reading import read_corpus
from ablate.data.toy import entropy_rate
from prereg.study.training import Data


def split_of(train: list[int], held: list[int]) -> Split:
    return Split(np.array(train, dtype=np.uint16), np.array(held, dtype=np.uint16))


def test_losses_are_those_of_counts_written_out() -> None:
    train, held, size = [0, 1, 1, 2, 0, 1, 2, 2, 0, 1], [1, 2, 0, 3, 1], 4
    single, double, after = Counter(train), Counter(pairwise(train)), Counter(train[:-1])
    p1 = {token: (single[token] + 1 / size) / (len(train) + 1) for token in range(size)}
    assert sum(p1.values()) == pytest.approx(1.0)
    for a in range(size):
        assert sum((double[a, b] + p1[b]) / (after[a] + 1) for b in range(size)) == pytest.approx(1.0)
    found = counting_baselines(split_of(train, held), size, corpus="own", characters=False)
    assert isinstance(found, Baselines)
    assert found.uniform == log(4) and found.tokens == 4 and found.floor is None
    assert found.unigram == pytest.approx(-sum(log(p1[b]) for b in held[1:]) / 4, rel=1e-12)
    pairs = pairwise(held)
    assert found.bigram == pytest.approx(-sum(log((double[a, b] + p1[b]) / (after[a] + 1)) for a, b in pairs) / 4)


def test_on_the_toy_corpus_each_predictor_is_better_and_none_beats_the_source(tmp_path: Path) -> None:
    reading = read_corpus(Library.of(tmp_path, {}), Data(corpus="toy"))
    size, key = reading.tokenizer.size, {"tokenizer": reading.tokenizer.sha256}
    found = kept_baselines(tmp_path, key, reading.split, size, corpus="toy", characters=True)
    assert isinstance(found, Baselines)
    assert entropy_rate() == found.floor
    assert found.floor < found.bigram < found.unigram < found.uniform == log(size)
    assert len(list((tmp_path / "baselines").iterdir())) == 1
    # Kept: a split that is never read gives the same.
    assert kept_baselines(tmp_path, key, split_of([0], [0]), size, corpus="toy", characters=True) == found
