"""Claims about the table of checks: every check is in it, with the weights it has, and the docs show that table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from evidence_factory import make_evidence, one_claim, small_study, with_amendments
from test_admissible import test_a_broken_promise_is_caught as broken
from typer.testing import CliRunner

from ablate.cli import app
from ablate.judge.audit.audit import audit
from ablate.judge.audit.consequences import DECLARED, MEANS, checks_page, consequence_of, declared, rows
from ablate.judge.decide import decide
from ablate.judge.verdict import Check
from prereg.registry.amendments import TOUCHES

ROOT = Path(__file__).resolve().parents[1]


def require_declared(check: Check) -> None:
    row = declared(check)
    assert row.why, f"'{check.name}' has no row in ablate/judge/audit/consequences.py"
    assert check.severity in row.consequence, (check.name, check.severity, row.consequence)


def test_every_broken_promise_has_a_row_with_its_consequence() -> None:
    cases = next(mark for mark in broken.pytestmark if mark.name == "parametrize").args[1]
    registration, evidence = make_evidence(small_study())
    for name, severity, change in cases:
        checks = audit(registration, change(registration, evidence))
        for check in checks:
            require_declared(check)
        failed = next(check for check in checks if check.name == name and not check.passed)
        assert consequence_of(failed) == MEANS[severity]


def test_the_rest_of_the_checks_have_rows_too() -> None:
    study = one_claim(decision=[{"verdict": "yes", "when": "supported(h)"}, {"verdict": "inconclusive"}])
    for made in (
        make_evidence(study, diverged=(("layernorm", 1),)),
        make_evidence(small_study(seeds=[1, 2, 3, 4], stopping={"looks": [2, 4]})),
        make_evidence(
            small_study(variants={"none": {}, "layernorm": {"model.width": 32}, "rmsnorm": {"optim.lr": 0.1}})
        ),
        with_amendments(*make_evidence(small_study()), ("runs started", [("seeds", [1], [1, 2, 3, 4, 5])])),
        make_evidence(small_study(checks=[{"name": "mine", "entry_point": "mine:look"}])),
    ):
        found = decide(*made)
        assert found.checks
        for check in found.checks:
            require_declared(check)


def test_every_name_that_the_judge_spells_is_declared() -> None:
    named = {row.name for row in DECLARED}
    for module in ("admissible", "matching", "view", "item_scores", "asked"):
        tree = ast.parse((ROOT / "ablate" / "judge" / f"{module}.py").read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") not in ("Check", "_none", "_check"):
                continue
            spelled = [word.value for word in call.keywords if word.arg == "name"] + call.args[:1]
            for text in spelled:
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    assert text.value in named, f"{module}: '{text.value}' has no row in consequences.py"


def test_no_check_is_declared_twice_and_none_without_a_reason() -> None:
    assert len({row.name for row in DECLARED}) == len(DECLARED)
    assert all(row.looks_at and row.why and row.consequence for row in DECLARED)


def test_an_unknown_check_is_told_and_not_weighed() -> None:
    check = Check(name="of another version", passed=False, severity="deviation", found="x", required="y")
    assert declared(check).why == "" and consequence_of(check) == MEANS["deviation"]


def test_the_page_of_checks_is_the_one_that_the_code_declares() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    assert page == checks_page(), "python -m ablate.judge.audit.consequences docs/checks.md"
    assert page.count("\n| ") == len(rows()) + len(TOUCHES) + 4


@pytest.mark.parametrize("option", ["--admissibility", "--amendments"])
def test_the_tables_are_printed_in_80_columns(option: str) -> None:
    done = CliRunner().invoke(app, ["check", option], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    flat = " ".join(done.output.split())
    wanted = [row[0] for row in rows()] if option == "--admissibility" else [row.said for row in TOUCHES]
    assert all(" ".join(text.split()) in flat for text in wanted)
    assert max(map(len, done.output.splitlines())) <= 80


def test_a_check_without_a_study_says_what_it_wants() -> None:
    done = CliRunner().invoke(app, ["check"])
    assert done.exit_code != 0 and "no study is named" in str(done.exception)
