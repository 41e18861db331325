"""Examples in docstrings run: those of the Python API where a study is decided, all others in an empty folder."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
from own_trainer import OwnHouse

import ablate

ROOT = Path(__file__).resolve().parents[2]

EXAMPLES = [
    example
    for path in sorted(ROOT.glob("ablate/*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
    for module in [importlib.import_module(f"ablate.{path.stem}")]
    for example in doctest.DocTestFinder().find(module, extraglobs={"ablate": ablate})
    if example.examples
]
"""Of the functions of the Python API, and of what they are made of."""
NEED_NONE = {"RunOptions", "Study", "StudyError", "Workspace"}
"""Classes, which the functions' examples show."""
OF_A_SCRIPT = {"fingerprint", "must_match"}
"""They give nothing outside a study; shown in the docstring of `ablate.client`, and run by docs/how-to."""
LEFT = {
    "amend",
    "bundle",
    "confirm",
    "early_results",
    "export_model",
    "gate",
    "import_runs",
    "propose",
    "reproduce",
    "try_out",
}
"""They need a study that is not decided, a repository, weights, or minutes."""

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted([*ROOT.glob("ablate/*/**/*.py"), *ROOT.glob("benchmarks/*.py")])
    if ">>> " in path.read_text(encoding="utf-8")
]
"""Below the Python API, where an example runs by itself; those of `prereg` run in tests/prereg/test_docstrings.py."""


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.REPORT_NDIFF)
    assert result.attempted and not result.failed


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name.removeprefix("ablate."))
def test_the_example_of_a_docstring_gives_what_it_says(
    example: doctest.DocTest, decided_copy: OwnHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(decided_copy.path)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(example, out=report.append)
    assert result.attempted and not result.failed, "".join(report)


def test_every_function_for_a_notebook_has_an_example() -> None:
    with_example = {example.name.rpartition(".")[2] for example in EXAMPLES}
    assert with_example & {*ablate.__all__} == {*ablate.__all__} - NEED_NONE - OF_A_SCRIPT - LEFT
