"""How much of a text repeats itself: exact lines and paragraphs, counted as the words say."""

from __future__ import annotations

import sys

import pytest
from conftest import House
from hypothesis import given
from hypothesis import strategies as st

from ablate import cli
from ablate.gpt.repetition import Share, lines, paragraphs, repeated, repeated_from

TEXT = "one\ntwo\n\none \n\n \ntwo\none\n\none\ntwo\n"


def test_a_line_is_repeated_when_it_stood_earlier() -> None:
    assert list(lines(TEXT)) == ["one", "two", "one", "two", "one", "one", "two"]
    assert repeated(lines(TEXT)) == Share(5, 7)


def test_a_paragraph_is_what_stands_between_empty_lines() -> None:
    assert list(paragraphs(TEXT)) == ["one\ntwo", "one", "two\none", "one\ntwo"]
    assert repeated(paragraphs(TEXT)) == Share(1, 4)


def test_of_nothing_nothing_is_repeated() -> None:
    assert repeated(lines(" \n\n")) == Share(0, 0)
    assert repeated(lines("")).share == 0.0


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
def test_the_count_is_that_of_units_less_different_units(units: list[str]) -> None:
    assert repeated(units) == Share(len(units) - len(set(units)), len(units))


def test_held_out_units_are_looked_for_in_the_earlier_ones_alone() -> None:
    assert repeated_from(["a", "b"], ["c", "c", "a"]) == Share(1, 3)


def test_a_corpus_is_shown_with_what_repeats_in_it(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "corpus", "show", "tiny", "--root", str(house.path)])
    with pytest.raises(SystemExit):
        cli.main()
    told = capsys.readouterr().out
    assert "repeated lines: 378 of 380 (99.47%) stood earlier" in told
    assert "held-out lines: 38 of 38 (100.00%) of its last tenth stand in the rest" in told
