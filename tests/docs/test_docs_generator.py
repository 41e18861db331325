"""The generated reference says what the code declares, no more and no less."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from conftest import House

from ablate.cli.options import Exit
from ablate.judge.verdict import WORDS_OF, Decision
from ablate.records.run_record import RunRecord
from docs.generator import PAGES
from docs.generator.markdown import anchor
from docs.generator.parts import commands
from prereg.metrics.catalogue import METRICS, SUITES
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import ENTRY_KINDS, Event
from prereg.registry.paths import Root
from prereg.rule.condition import DEEPEST, MEANS, STATES, parse_condition
from prereg.study.schema import json_schema
from prereg.study.verbs import MEANS_OF_VERBS, VERBS

ROOT = Path(__file__).resolve().parents[2]


@cache
def generated(name: str) -> str:
    """A generated page, made once for all that is checked of it."""
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_gives(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generated(name), "python -m docs.generator"


@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_a_page_has_the_cells_of_its_table_and_every_link_its_heading(name: str) -> None:
    text = generated(name)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    for table in tables:
        assert len({re.sub(r"\\\|", "", line).count("|") for line in table.splitlines()}) == 1, table[:200]
    headings = {anchor(found) for found in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


def test_what_the_page_of_modules_points_to_is_there() -> None:
    """Each place of a pointer: a file and, in code, the names that it is said to hold."""
    pointers = generated("modules.md").split("\n## ablate\n")[0]
    places = re.findall(r"\[`[\w./]+`\]\(\.\./([\w./]+)\)[:,] ((?:`[\w.]+`(?:, (?=`))?)*)", pointers)
    assert len(places) > 30
    for path, names in places:
        code = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                defined = re.search(rf"^ *(?:(?:async )?def|class) {part}\b|^{part}\b.* = ", code, re.MULTILINE)
                assert defined is not None, (path, name)


def test_every_field_of_a_study_stands_once_in_the_table_of_its_model() -> None:
    schema = json_schema()
    models = [schema, *(one for one in schema["$defs"].values() if "properties" in one)]
    rows = re.findall(r"^\| `(\w+)` \|", generated("reference/study-file.md"), re.MULTILINE)
    assert sorted(rows) == sorted(field for model in models for field in model["properties"])
    assert len(rows) > 120
    assert all(
        value.get("description") for model in models for value in model["properties"].values() if "$ref" not in value
    )


def test_every_option_of_every_command_is_listed() -> None:
    page = generated("reference/options.md")
    for name, command in commands():
        section = re.search(rf"## `ablate {name}`\n(.*?)(?=\n## |\Z)", page, re.DOTALL)
        assert section is not None, name
        wanted = [option for one in command.params if one.param_type_name == "option" for option in one.opts]
        assert [option for option in wanted if not re.search(rf"^\* `.*{option}\b", section[1], re.MULTILINE)] == []


def test_every_exit_code_is_explained() -> None:
    page = generated("reference/exit-codes.md")
    for code in Exit:
        assert page.count(f"| **{int(code)}** |") == 1 and code.meaning and code.of
    assert int(Exit.DIFFERENT) == 1 and Exit(130) is Exit.INTERRUPTED


def test_every_question_and_verb_of_the_grammars_is_explained() -> None:
    assert [question.partition("(")[0] for question in MEANS] == list(STATES)
    for question in MEANS:
        parse_condition(question)
    assert {word for said in MEANS_OF_VERBS for word in re.findall(r"\w+", said)} >= set(VERBS)
    assert f"at most {DEEPEST} deep" in " ".join(generated("reference/rule.md").split())


def test_every_event_is_explained_with_every_field_that_a_ledger_has(decided: House) -> None:
    page = generated("reference/files.md")
    assert {kind.model_fields["event"].default for kind in ENTRY_KINDS} == set(get_args(Event))
    for root in (ROOT, decided.path):
        for entry in Ledger(Root(root).ledger).entries():
            assert not entry.model_extra, (root, entry.event, entry.model_extra)
            for field in entry.stated:
                assert f"| `{entry.event}` | `{field}` | " in page, (root, entry.event, field)


def test_every_field_of_a_record_and_of_a_verdict_is_listed() -> None:
    page = generated("reference/files.md")
    for model in (RunRecord, Decision):
        written = [field for field in model.model_fields if field not in WORDS_OF.get(model, ())]
        assert [field for field in written if f"| `{field}` |" not in page] == []


def test_every_metric_stands_on_its_page_once_and_every_suite_with_its_price() -> None:
    page = generated("metrics.md")
    for metric in (*METRICS.values(), *METRICS.families):
        assert page.count(f"| `{metric.name}` |") == 1, metric.name
    for suite, told in SUITES.items():
        assert f"## {suite}\n" in page and told.cost in page
