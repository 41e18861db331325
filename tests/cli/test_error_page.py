"""docs/errors.md: every class of the error tree, each example carried out, each message saying what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from error_examples import EXAMPLES, Example, carried, page, tree

from ablate.cli.options import Exit
from prereg.errors import StudyError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.title)
@pytest.mark.slow
def test_an_example_raises_its_class_and_says_what_is_required_or_to_try(example: Example) -> None:
    found = carried(example)
    assert example.error in found.raised
    assert found.code == Exit.MISTAKE, found.said
    assert "  required: " in found.said


@pytest.mark.slow
def test_the_page_is_what_the_examples_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/error_examples.py docs/errors.md"


def test_every_class_but_the_root_has_an_example() -> None:
    assert {one.error for one in EXAMPLES} == {*tree()} - {StudyError}
    assert len({one.title for one in EXAMPLES}) == len(EXAMPLES) >= 25


def test_no_path_and_no_year_of_a_machine_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.search(r"/(tmp|home|root)/|\b20\d\d-", text) is None
