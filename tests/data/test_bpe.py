"""Byte pairs: lossless, the same every time, trained on the training split only, and exact about bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import tiny_text
from hypothesis import given
from hypothesis import strategies as st

from ablate.data import tokenizers, toy
from ablate.data.corpora import Library
from ablate.data.reading import read_corpus
from ablate.data.tokenizers import bpe_of, keep_bpe, train_bpe
from prereg.errors import CorpusError
from prereg.study.training import Bpe, Data

TRAINED = train_bpe(tiny_text() + "naïve café, ünïcode 😀 \n\n  spaces\t\r\n", 300)
ANY_TEXT = st.text(alphabet=st.characters(codec="utf-8"))


@given(ANY_TEXT)
def test_every_text_gets_itself_back(text: str) -> None:
    assert TRAINED.decode(TRAINED.encode(text)) == text


@given(ANY_TEXT)
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(text: str) -> None:
    assert int(TRAINED.byte_lengths()[TRAINED.encode(text)].sum()) == len(text.encode())


@given(st.lists(st.text(alphabet="ab \n\t", max_size=12)))
def test_a_token_never_reaches_over_a_run_of_line_breaks(lines: list[str]) -> None:
    text = "\n".join(lines)
    cut = text.rfind("\n") + 1
    whole = [*TRAINED.encode(text[:cut]).tolist(), *TRAINED.encode(text[cut:]).tolist()]
    assert TRAINED.encode(text).tolist() == whole


def test_a_long_text_is_cut_into_the_same_tokens_whatever_is_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = tiny_text()
    whole, trained = TRAINED.encode(text), train_bpe(text, 275)
    monkeypatch.setattr(tokenizers, "PIECES_AT_ONCE", 7)
    assert np.array_equal(TRAINED.encode(text), whole)
    assert train_bpe(text, 275) == trained


def test_the_first_merges_are_the_commonest_pairs() -> None:
    # By hand, after Sennrich et al. (2016): in "aab aab aab", 'aa' and 'ab' stand three times each, and the lower ids
    # decide; then 'aab' from 'aa' + 'b', then with the space before it (two times).
    trained = train_bpe("aab aab aab", 259)
    assert trained.merges == (("a", "a"), ("aa", "b"), ("Ġ", "aab"))
    assert [trained.decode(np.array([one])) for one in trained.encode("aab aab")] == ["aab", " aab"]


def test_the_same_text_gives_the_same_tokenizer_in_every_process_and_with_any_number_of_threads() -> None:
    code = (
        "from ablate.data import toy\nfrom ablate.data.tokenizers import train_bpe\n"
        "print(train_bpe(toy.text()[:100_000], 330).sha256)"
    )
    other = {**os.environ, "RAYON_NUM_THREADS": "4", "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=other)
    assert done.stdout.strip() == train_bpe(toy.text()[:100_000], 330).sha256


def test_another_text_or_another_size_is_another_tokenizer() -> None:
    one = train_bpe(tiny_text(), 270)
    assert train_bpe(tiny_text(), 271).sha256 != one.sha256
    assert train_bpe("other words here, other words there\n" * 5, 270).sha256 != one.sha256


def test_more_entries_than_a_text_can_give_are_refused_with_what_it_gives() -> None:
    with pytest.raises(CorpusError, match="gives 259 byte-pair entries") as caught:
        train_bpe("aab aab aab", 400)
    assert caught.value.fix == "tokenizer: {bpe: 259}, or a longer text"
    with pytest.raises(CorpusError) as caught:
        train_bpe("a", 400)
    assert "char" in caught.value.fix


def test_ids_that_end_within_a_character_are_refused_and_not_patched() -> None:
    ids = TRAINED.encode("日")  # three bytes that no merge has joined
    assert len(ids) == 3
    with pytest.raises(CorpusError, match="no text at byte 0"):
        TRAINED.decode(ids[:2])


def library(tmp_path: Path, text: str) -> Library:
    found = Library.of(tmp_path / "data" / "corpora", {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    source = tmp_path / "source.txt"
    source.write_text(text, encoding="utf-8")
    found.add("mine", source)
    return found


def test_it_is_trained_on_the_training_split_only(tmp_path: Path) -> None:
    train, held_out = tiny_text()[:4000], "zyzyzyzyzy " * 40
    share = len(held_out) / len(train + held_out)
    whole = library(tmp_path, train + held_out)
    found = read_corpus(whole, Data(corpus="mine", tokenizer=Bpe(bpe=275), validation=share)).tokenizer
    assert found.sha256 == train_bpe(train, 275).sha256
    assert train_bpe(train + held_out, 275).sha256 != found.sha256


@pytest.mark.parametrize("share", [0.1, 0.137, 0.5])
def test_every_tokenizer_splits_the_text_at_the_same_character(tmp_path: Path, share: float) -> None:
    text = "größer als ½ — 日本\n" * 60
    found = library(tmp_path, text)
    chars = read_corpus(found, Data(corpus="mine", validation=share))
    pairs = read_corpus(found, Data(corpus="mine", validation=share, tokenizer=Bpe(bpe=262)))
    for one, other in ((chars.split.train, pairs.split.train), (chars.split.validation, pairs.split.validation)):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, np.ndarray)
        assert chars.tokenizer.decode(one) == pairs.tokenizer.decode(other)  # type: ignore[union-attr]
        held = chars.tokenizer.decode(one).encode()  # type: ignore[union-attr]
        for reading, ids in ((chars, one), (pairs, other)):
            lengths = reading.tokenizer.byte_lengths()
            assert lengths is not None
            assert int(lengths[ids].sum()) == len(held)


def test_a_registered_tokenizer_is_kept_and_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = train_bpe(tiny_text(), 272)
    keep_bpe(kept, tmp_path)
    monkeypatch.setattr(tokenizers, "train_bpe", lambda *_: pytest.fail("it was trained again"))
    monkeypatch.setattr(tokenizers, "TRAINED", {})
    assert bpe_of(tiny_text(), 272, tmp_path, kept.sha256) == kept


def test_what_is_kept_and_damaged_is_trained_again_and_mended(tmp_path: Path) -> None:
    kept = train_bpe(tiny_text(), 272)
    path = keep_bpe(kept, tmp_path)
    whole = path.read_bytes()
    for damage in (b"", whole[:-40], whole.replace(b'"e"', b'"q"', 1)):
        path.write_bytes(damage)
        assert bpe_of(tiny_text(), 272, tmp_path, kept.sha256) == kept
        assert path.read_bytes() == whole
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_planted_tokenizer_is_believed_only_under_the_registered_hash(tmp_path: Path) -> None:
    planted = train_bpe("planted words, planted words, planted\n", 265)
    keep_bpe(planted, tmp_path)
    real = train_bpe(tiny_text(), 265)
    assert bpe_of(tiny_text(), 265, tmp_path, None) == real
    assert bpe_of(tiny_text(), 265, tmp_path, real.sha256) == real
