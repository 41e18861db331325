"""How much of a text repeats itself: exact lines and paragraphs, counted as the words say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import House, tiny_text
from hypothesis import given
from hypothesis import strategies as st

from ablate import cli
from ablate.data import repetition as counting
from ablate.data.corpora import Library
from ablate.data.repetition import (
    RepetitionCounts,
    Share,
    repeated_from,
    repeated_units,
    repetition,
    repetition_in,
    text_lines,
    text_paragraphs,
)

TEXT = "one\ntwo\n\none \n\n \ntwo\none\n\none\ntwo\n"


def test_a_line_is_repeated_when_it_stood_earlier() -> None:
    assert list(text_lines(TEXT)) == ["one", "two", "one", "two", "one", "one", "two"]
    assert repeated_units(text_lines(TEXT)) == Share(5, 7)


def test_a_paragraph_is_what_stands_between_empty_lines() -> None:
    assert list(text_paragraphs(TEXT)) == ["one\ntwo", "one", "two\none", "one\ntwo"]
    assert repeated_units(text_paragraphs(TEXT)) == Share(1, 4)


def test_of_nothing_nothing_is_repeated() -> None:
    assert repeated_units(text_lines(" \n\n")) == Share(0, 0)
    assert repeated_units(text_lines("")).share == 0.0


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
def test_the_count_is_that_of_units_less_different_units(units: list[str]) -> None:
    assert repeated_units(units) == Share(len(units) - len(set(units)), len(units))


def test_held_out_units_are_looked_for_in_the_earlier_ones_alone() -> None:
    assert repeated_from(["a", "b"], ["c", "c", "a"]) == Share(1, 3)


def test_a_corpus_is_shown_with_what_repeats_in_it(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "corpus", "show", "tiny", "--root", str(house.path)])
    with pytest.raises(SystemExit):
        cli.main()
    told = capsys.readouterr().out
    assert "repeated lines: 378 of 380 (99.47%) occur earlier" in told
    assert "held-out lines: 38 of 38 (100.00%) of its last tenth occur in the rest" in told


@given(st.text(alphabet="a b\n\t\r", max_size=40))
def test_lines_and_paragraphs_are_those_of_a_plain_split(text: str) -> None:
    assert list(text_lines(text)) == [line.strip() for line in text.split("\n") if line.strip()]
    parts = re.split(r"\n[^\S\n]*\n\s*", text)
    assert list(text_paragraphs(text)) == [part.strip() for part in parts if part.strip()]


def test_the_held_out_part_is_the_end_of_the_text_or_a_text_of_its_own() -> None:
    text = "a\nb\n\nc\na\n"
    found = repetition(text, 0.4)
    assert found == RepetitionCounts(Share(1, 4), Share(0, 2), Share(1, 2), Share(0, 1), 1)
    own = repetition(text, "b\nd\n")
    assert (own.lines, own.held_out_lines) == (Share(2, 6), Share(1, 2))


def test_of_a_long_text_a_share_of_the_units_is_followed_and_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(0).integers(40_000, size=60_000)
    text = "".join(f"line {number}\n" for number in drawn)
    whole = repetition(text, 0.1)
    monkeypatch.setattr(counting, "EVERY_UNIT_UPTO", len(text) // 7)
    part = repetition(text, 0.1)
    assert (whole.one_in, part.one_in) == (1, 8)
    assert part.lines.units == pytest.approx(whole.lines.units / 8, rel=0.1)
    # Some 3,900 different units were followed: the standard error of a share is below 0.01.
    assert part.lines.share == pytest.approx(whole.lines.share, abs=0.03)
    assert part.held_out_lines.share == pytest.approx(whole.held_out_lines.share, abs=0.05)


def test_a_corpus_is_counted_once_and_again_where_what_was_kept_cannot_be_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library.of(house.path / "data" / "corpora")
    found = repetition_in(library, "tiny", 0.1)
    assert found == repetition(tiny_text(), 0.1)
    read: list[str] = []
    find = Library.find
    monkeypatch.setattr(Library, "find", lambda self, name: read.append(name) or find(self, name))
    assert repetition_in(library, "tiny", 0.1) == found
    assert read == []
    assert repetition_in(library, "tiny", 0.2) != found
    assert read == ["tiny"]
    for note in (library.cache / "repetition").iterdir():
        note.write_text("{")
    assert repetition_in(library, "tiny", 0.1) == found
    assert read == ["tiny"] * 2


def test_a_cache_that_cannot_be_written_costs_no_more_than_time(house: House, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    library = Library.of(house.path / "data" / "corpora")
    assert repetition_in(library, "tiny", 0.1) == repetition(tiny_text(), 0.1)
