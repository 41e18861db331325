"""Claims about the table of checks: every check is in it, with the weights it has, and the docs show that table."""

from __future__ import annotations

import re
from pathlib import Path

from evidence_factory import make_evidence, one_claim, small_study, with_amendments
from test_admissible import test_a_broken_promise_is_caught as broken

from ablate.judge.audit.audit import MEANS, OF_EVIDENCE, OF_FINDINGS, audit, declarations, rows, why
from ablate.judge.audit.checks import DECLARED, AuditContext
from ablate.judge.audit.user_checks import OWN
from ablate.judge.decide import decide
from ablate.judge.verdict import Check
from docs.generator.checks import checks_page
from prereg.registry.amendments import AMENDMENT_EFFECTS

ROOT = Path(__file__).resolve().parents[2]


def require_declared(check: Check) -> None:
    row = DECLARED[OWN if check.name.startswith(OWN) else check.name]
    assert check.severity in row.consequence, (check.name, check.severity, row.consequence)


def test_every_broken_promise_has_a_row_with_its_consequence() -> None:
    cases = next(mark for mark in broken.pytestmark if mark.name == "parametrize").args[1]
    registration, evidence = make_evidence(small_study())
    for name, severity, change in cases:
        checks = audit(AuditContext(registration, change(registration, evidence)))
        for check in checks:
            require_declared(check)
        assert [check.severity for check in checks if check.name == name and not check.passed] == [severity]


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


def test_every_check_is_declared_in_a_module_of_the_audit_with_a_reason() -> None:
    modules = {module.__name__ for module in (*OF_EVIDENCE, *OF_FINDINGS)}
    assert {one.run.__module__ for one in DECLARED.values()} == modules
    assert len(declarations()) == len(DECLARED)
    assert all(one.looks_at and one.why and set(one.consequence) <= set(MEANS) for one in declarations())
    made = {path.stem for path in (ROOT / "ablate").rglob("*.py") if re.search(r"\bCheck\(", path.read_text("utf-8"))}
    assert made == {"checks", "verdict"}, "a check is made by ablate.judge.audit.checks, from its declaration"


def test_a_check_of_another_version_has_no_reason_here() -> None:
    check = Check(name="of another version", passed=False, severity="deviation", found="x", required="y")
    assert why(check) == ""


def test_the_page_of_checks_has_every_check_and_every_effect_of_an_amendment() -> None:
    page = checks_page()
    assert page.count("\n| ") == len(rows()) + len(AMENDMENT_EFFECTS) + 4
