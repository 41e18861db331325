"""The examples in the docstrings of `prereg` run and give what they say."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import prereg

ROOT = Path(prereg.__file__).parent
MODULES = sorted(
    ".".join(("prereg", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)

FINDER = doctest.DocTestFinder()
EXAMPLES = [example for module in MODULES for example in FINDER.find(import_module(module)) if example.examples]
NEEDS_A_STUDY = "studies/"
"""In an example that reads or changes a study: each has a decided one of its own, `studies/own.yaml`."""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=example.name, marks=[pytest.mark.slow] * (NEEDS_A_STUDY in str(example.docstring)))
        for example in EXAMPLES
    ],
)
def test_the_example_of_a_docstring_gives_what_it_says(
    example: doctest.DocTest, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_a_study = NEEDS_A_STUDY in str(example.docstring)
    monkeypatch.chdir(request.getfixturevalue("decided_copy").path if needs_a_study else tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    result = runner.run(example, out=report.append)
    assert result.attempted and not result.failed, "".join(report)
