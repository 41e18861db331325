"""From what a study says of its data to token ids: one text by characters is read as it always was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from split_samples import split_of

from ablate.data.corpora import Library
from ablate.data.reading import read_corpus
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
    reading = read_corpus(library(tmp_path, mine=TEXT), Data(corpus="mine", validation=share))
    tokenizer = CharTokenizer.of(TEXT)
    before = split_of(tokenizer.encode(TEXT), share, context=8)
    assert reading.tokenizer == tokenizer
    for one, other in ((reading.split.train, before.train), (reading.split.validation, before.validation)):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
