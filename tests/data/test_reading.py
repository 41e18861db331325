"""From what a study says of its data to token ids: one text by characters is read as it always was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from split_samples import split_of

from ablate.data.batches import Mixture, Pooled
from ablate.data.corpora import Library
from ablate.data.reading import read_corpora
from ablate.data.tokenizers import CharTokenizer
from prereg.study.training import Data

TEXT = "größer als ½ — 日本\n" * 37 + "Z"


def library(tmp_path: Path, **texts: str) -> Library:
    found = Library.of(tmp_path / "data" / "corpora", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    for name, text in texts.items():
        source = tmp_path / f"{name}.txt"
        source.write_text(text, encoding="utf-8")
        found.add(name, source)
    return found


@pytest.mark.parametrize("share", [0.1, 0.137, 0.5])
def test_one_text_by_characters_is_split_and_numbered_as_it_always_was(tmp_path: Path, share: float) -> None:
    reading = read_corpora(library(tmp_path, mine=TEXT), Data(corpus="mine", validation=share))
    tokenizer = CharTokenizer.of(TEXT)
    before = split_of(tokenizer.encode(TEXT), share, context=8)
    assert reading.tokenizer == tokenizer
    for one, other in ((reading.split.train, before.train), (reading.split.validation, before.validation)):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


def test_the_sources_of_a_mixture_share_one_vocabulary_and_keep_their_own_ends(tmp_path: Path) -> None:
    found = library(tmp_path, one="ab" * 50, two="bc" * 100)
    reading = read_corpora(found, Data(mixture={"two": 1.0, "one": 0.0}, validation=0.1))
    assert reading.tokenizer == CharTokenizer("abc")
    train, held = reading.split.train, reading.split.validation
    assert isinstance(train, Mixture)
    assert isinstance(held, Pooled)
    assert {name: len(part) for name, part in train.sources.items()} == {"one": 90, "two": 180}
    assert {name: len(part) for name, part in held.parts.items()} == {"one": 10, "two": 20}
    assert list(train.sources) == list(held.parts) == ["one", "two"]
    assert {name: found.characters for name, found in reading.corpora.items()} == {"one": 100, "two": 200}


def test_weights_change_no_tokenizer_and_no_validation_text(tmp_path: Path) -> None:
    found = library(tmp_path, one="the cat sat\n" * 50, two="a dog ran off\n" * 50)
    readings = [
        read_corpora(found, Data.model_validate({"mixture": weights, "tokenizer": {"bpe": 262}}))
        for weights in ({"one": 1.0, "two": 0.0}, {"one": 2.0, "two": 7.0})
    ]
    assert readings[0].tokenizer == readings[1].tokenizer
    for name in ("one", "two"):
        first, second = (reading.split.validation.parts[name] for reading in readings)  # type: ignore[union-attr]
        assert first[0 : len(first)].tolist() == second[0 : len(second)].tolist()
