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
NEED_A_STUDY = ("studies/own.yaml", "studies/ledger.jsonl")
"""In an example that reads or changes a study: each has a decided one of its own."""
FIRST_CALLS = (
    "prereg.study.spec.Study",
    "prereg.study.load.load_study",
    "prereg.study.macros.expand",
    "prereg.study.claim.parse_claim",
    "prereg.yaml_model.YamlModel.to_yaml",
    "prereg.rule.rule.Rule.parse",
    "prereg.metrics.catalogue.Catalogue",
    "prereg.metrics.catalogue.declaration_of",
)
"""What a stranger calls first."""


def needs_a_study(example: doctest.DocTest) -> bool:
    return any(name in str(example.docstring) for name in NEED_A_STUDY)


@pytest.mark.parametrize(
    "example",
    [pytest.param(example, id=example.name, marks=[pytest.mark.slow] * needs_a_study(example)) for example in EXAMPLES],
)
def test_the_example_of_a_docstring_gives_what_it_says(
    example: doctest.DocTest, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(request.getfixturevalue("decided_copy").path if needs_a_study(example) else tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    result = runner.run(example, out=report.append)
    assert result.attempted and not result.failed, "".join(report)


def test_what_a_stranger_calls_first_has_an_example() -> None:
    assert {*FIRST_CALLS} <= {example.name for example in EXAMPLES}
