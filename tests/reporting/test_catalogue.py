"""The catalogue of tables: every kind has its phrases, and nothing but the catalogue makes a table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import ablate.reporting
from ablate.planning import PlannedArm
from ablate.reporting import tables
from ablate.reporting.catalogue import Catalogued
from ablate.reporting.summaries import tables as of_commands

HERE = Path(ablate.reporting.__file__).parent
PHRASES = set(re.findall(r"{% macro (\w+)\(", (HERE / "templates" / "tables.txt").read_text(encoding="utf-8")))
KINDS = {
    f"{module.__name__.removeprefix('ablate.reporting.')}.{name}": kind
    for module in (tables, of_commands)
    for name, kind in vars(module).items()
    if isinstance(kind, Catalogued)
}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_table_has_its_phrases_and_its_optional_columns(name: str) -> None:
    kind = KINDS[name]
    assert kind.name in PHRASES or not kind.caption
    assert f"{kind.name}_note" in PHRASES or not kind.note
    assert kind.optional <= set(kind.cells)


def test_a_column_that_is_empty_in_every_row_is_left_out_where_it_is_optional() -> None:
    arm = PlannedArm("none", 5, None, 1000, None, None)
    table = of_commands.COSTS.of([arm])
    assert [column.name for column in table.columns] == ["Arm", "Runs", "Tokens a run"]
    assert table.rows == (("none", "5", "1,000"),)


def test_nothing_but_the_catalogue_makes_a_table() -> None:
    makers = {
        path.relative_to(HERE).as_posix()
        for path in HERE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Table"
    }
    assert makers == {"catalogue.py"}
