"""A hundred thousand inputs: the loader and the rule parser refuse in words, soon, and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prereg.errors import SpecError, StudyError, StudyFileError, nearest
from prereg.study.load import load_study
from prereg.yaml_reader import parse_yaml

SCRIPT = Path(__file__).parents[1].joinpath("fuzzing.py")
# Together one hundred thousand; the share of each follows from what one input costs.
NUMBERS = {"conditions": 40_000, "rules": 15_000, "fragments": 29_000, "files": 4_000, "documents": 12_000}


def fuzz(kind: str, n: int, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(n), str(seed)], capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["failed"] is None, told["failed"]
    assert told["taken"] + told["refused"] == n
    assert told["refused"] > n / 10
    assert told["worst_s"] < 10.0, told  # milliseconds on an idle machine
    assert told["longest_message"] < 6_000, told
    return told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conditions", "documents"])
def test_a_few_hundred_inputs_are_taken_or_refused_in_words(kind: str) -> None:
    assert fuzz(kind, 300, seed=7)["taken"] > 0


@pytest.mark.simulation
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_hundred_thousand_inputs_are_taken_or_refused_in_words(kind: str) -> None:
    told = fuzz(kind, NUMBERS[kind], seed=20260101)
    if kind != "fragments":  # no fragment is a study, and of everything else some must get through
        assert told["taken"] > NUMBERS[kind] / 100


def test_the_numbers_sum_to_a_hundred_thousand() -> None:
    assert sum(NUMBERS.values()) == 100_000


# What fuzzing and inputs made to hurt have found, each refused ever since.


def test_a_long_row_of_combining_marks_is_refused_before_it_is_composed() -> None:
    # Normal form sorts marks by their class in quadratic time: half a mebibyte of them took minutes.
    source = ("a: a" + "\u0301\u0323" * 200_000 + "\n").encode()
    with pytest.raises(StudyFileError, match="more than 30 combining marks"):
        parse_yaml(source, {})
    with pytest.raises(StudyFileError, match="normal form C"):
        parse_yaml(("a: a" + "\u0323\u0301" * 15 + "\n").encode(), {})


@pytest.mark.parametrize("source", ["a: [" + "1," * 500_000 + "1]", "a: [" + "{b: c}, " * 130_000 + "]"])
def test_a_document_of_very_many_values_is_refused_before_it_is_read_whole(source: str) -> None:
    with pytest.raises(StudyFileError, match="more than 20,000 keys and values"):
        parse_yaml(source.encode(), {})


@pytest.mark.parametrize(
    "source",
    [
        "a: !<" + "x" * 500_000 + "> b",
        "a: &" + "x" * 500_000 + " b",
        "x" * 500_000 + ": 1",
        "study: " + "9" * 500_000,
        "study: 1e" + "9" * 500_000,
        'study: "' + "x" * 500_000 + '"',
    ],
)
def test_a_message_about_a_long_text_stays_one_that_can_be_read(source: str, tmp_path: Path) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(source)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    assert len(str(caught.value)) < 6_000


def test_a_scalar_of_ten_megabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(b"a: " + b"x" * 10_000_000)
    with pytest.raises(StudyFileError, match="larger than 1 MiB"):
        load_study(path)


def test_the_nearest_word_of_a_very_long_one_is_not_searched_for() -> None:
    known = ["layernorm", "y" * 300_000]
    assert nearest("x" * 300_000, known).startswith("use one of: layernorm")
    assert nearest("layernrm", known) == "did you mean 'layernorm'?"
    assert "characters more)" in str(SpecError("found", fix=nearest("x", known)))
