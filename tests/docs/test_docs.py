"""The docs are tests: every command has help with an example and a line in docs/commands.md; every study loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

import ablate as api
from ablate import cli
from ablate.creating import STEPS
from ablate.judge.stats import t_power

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


def verbs() -> dict[str, Any]:
    """Every verb by the words that call it."""
    found: dict[str, Any] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*words, name))
        if not hasattr(command, "commands"):
            found[" ".join(words)] = command

    walk(typer.main.get_command(cli.app), ())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted(verbs()))
def test_every_verb_has_help_with_an_example_of_itself(verb: str) -> None:
    text = verbs()[verb].help or ""
    assert f"Example:  ablate {verb}" in text


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_every_command_is_in_the_table_of_commands(verb: str) -> None:
    assert f"`{verb.rsplit(maxsplit=1)[-1]}`" in COMMANDS or f"`ablate {verb.split(maxsplit=1)[0]}" in COMMANDS


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_every_command_has_the_common_options(verb: str) -> None:
    named = {name for option in verbs()[verb].params for name in option.opts}
    assert {"--root", "--json", "--quiet", "-q"} <= named


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_every_study_loads_and_this_version_can_carry_it_out(path: Path) -> None:
    case = api.check(path)
    assert case.study.study == path.stem


def test_the_embnorm_study_has_seeds_that_no_registered_study_had() -> None:
    """A study that was never registered here promises seeds before any run; version 0.1 had decided it on 1 to 5."""
    assert not (ROOT / "studies" / "embnorm.lock.json").exists()
    spent: set[int] = set()
    for lock in [*ROOT.glob("studies/*.lock.json"), *ROOT.glob("archive/0.1/studies/*.lock.json")]:
        spent |= seeds_in(json.loads(lock.read_text(encoding="utf-8")))
    study = api.load(ROOT / "studies" / "embnorm.yaml")
    assert {1, 2, 3, 4, 5, 311, 316} <= spent
    assert len(study.seeds) == 5 and min(study.seeds) > 10_000
    assert not spent.intersection(study.seeds)
    assert "Not blind" in study.question


def seeds_in(document: Any) -> set[int]:
    """Return every whole number below a field that is called `seeds`, at any depth."""
    if isinstance(document, dict):
        return set().union(
            *(whole_numbers(value) if name == "seeds" else seeds_in(value) for name, value in document.items())
        )
    if isinstance(document, list):
        return set().union(*map(seeds_in, document))
    return set()


def whole_numbers(document: Any) -> set[int]:
    """Return every whole number in a list, or the one given."""
    if isinstance(document, list):
        return set().union(*map(whole_numbers, document))
    return {document} if isinstance(document, int) else set()


def test_the_study_in_the_readme_is_the_quickstart_less_its_beliefs() -> None:
    block = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert block is not None
    shown = yaml.safe_load(block.group(1))
    whole = yaml.safe_load((ROOT / "studies" / "quickstart.yaml").read_text(encoding="utf-8"))
    assert shown == {key: value for key, value in whole.items() if key in shown}
    assert set(whole) - set(shown) == {"question", "measure", "assume"}


ORDER = ("new", *STEPS)


PAGES = {
    path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"docs/decisions.md"}))
def test_every_page_goes_from_a_file_to_a_verdict_in_one_order(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    typed = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    tables = re.findall(r"^\| `ablate (\w+)", text, re.MULTILINE)
    for found in (re.findall(r"^(?:\.venv/bin/)?ablate (\w+)", typed, re.MULTILINE), tables):
        steps = [step for step in dict.fromkeys(found) if step in ORDER]
        assert steps == sorted(steps, key=ORDER.index), page


@pytest.mark.slow
def test_every_step_says_which_one_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = api.new("mine", "command")
    assert [command.split()[1] for command in made.next] == list(STEPS)
    for step, then in (("check", "try"), ("design", "register"), ("register", "run")):
        done = CliRunner().invoke(cli.app, [step, "studies/mine.yaml"])
        assert done.exit_code == 0 and f"next:  ablate {then} studies/mine.yaml" in done.output


def test_make_knows_every_target_the_docs_name() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    texts = README + COMMANDS + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in set(re.findall(r"\bmake ([a-z-]+)\b(?= +#|`|\n)", texts)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_public_names_are_the_ones_a_notebook_needs() -> None:
    code = "import ablate, sys; assert 'torch' not in sys.modules; print(*ablate.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        *("RunOptions", "Study", "StudyError", "Workspace", "amend", "bundle", "check", "config", "confirm", "decide"),
        *("design", "early_results", "export_model", "fingerprint", "gate", "import_runs", "judge_frame", "load"),
        *("log", "must_match", "new"),
        *("plan_runs", "propose", "register", "report", "reproduce", "results", "run", "seed", "status"),
        *("train", "try_out"),
    ]


def test_no_tracked_text_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"/root/|/home/[a-z]+/|pypi\.org|deb\.debian|registry\.npmjs")
    for name in listed.stdout.split():
        if name.endswith((".py", ".md", ".toml", ".yaml", ".json", ".jsonl")) and name != "tests/docs/test_docs.py":
            found = pattern.search((ROOT / name).read_text(encoding="utf-8"))
            assert found is None, (name, found)


def test_every_relative_link_of_the_docs_leads_to_a_file() -> None:
    for page in (
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ):
        text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))  # a grammar has brackets of its own
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), (page.name, target)


TO_WRITE = {
    f"ablate/{name}" for name in ("reporting/sections/cost.py", "reporting/templates/cost.txt", "templates/KIND.yaml")
}
"""The files that recipes have their reader write."""


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md"])
def test_what_a_page_for_contributors_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    places = set(re.findall(r"`((?:ablate|prereg|tests|docs|benchmarks)/[\w./-]*)`", text)) - TO_WRITE
    places |= set(re.findall(r"python (?:-m pytest )?(tests/[\w./-]+)", text))
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []
    for name, place in re.findall(r"`(\w+)` (?:of|in)\s+`((?:ablate|prereg|tests)/[\w./]+\.\w+)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / place).read_text(encoding="utf-8")), (page, name, place)


def test_the_tree_of_the_architecture_is_the_tree() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    shown, above = set(), [""] * 4
    for indent, folder in re.findall(r"^    ( *)(\w+/)  ", text, re.MULTILINE):
        above[len(indent) // 2] = folder
        shown.add("".join(above[: len(indent) // 2 + 1]).rstrip("/"))
    packages = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "prereg").rglob("__init__.py")}
    packages |= {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "ablate").glob("*/__init__.py")}
    assert all((ROOT / folder).is_dir() for folder in shown)
    assert {name for name in packages if name.count("/") <= 1} <= shown


def test_the_seeds_of_the_designs_page_are_those_that_power_needs() -> None:
    text = (ROOT / "docs" / "designs.md").read_text()
    kinds = (("`lowers`", "towards"), ("`by at least D`", "margin"), ("`does_not_change`", "equivalence"))
    for verbs, kind in (*kinds, ("`below C`", "margin")):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {verbs}")]
        shown = [int(cell) for cell in line.split("|")[2:-1]]
        assert shown == [t_power.seeds_for(kind, size, 0.05, 0.8) for size in (0.5, 1.0, 1.5, 2.0, 3.0)], line
