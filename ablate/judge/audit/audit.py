"""Audit of the evidence: every check of checks.toml, called in order, and whether a verdict may be given.

Checked before any inference, and answered with every check, passed ones too.

A failed check of severity `inadmissible` means that no verdict is given; a `deviation` is listed next to the verdict;
a `note` is a remark. Nothing here compares arms. To add a check: see `checks`. A new module of checks is named in
`WITH_BODIES`. The report, the terminal and docs/checks.md show what each check looks at, what its
failure means, and why.
"""

from __future__ import annotations

from collections.abc import Iterable

from ablate.judge import interim, recompute
from ablate.judge.audit import (
    comparable,
    headroom,
    history,
    ledger,
    order,
    outcomes,
    pairs,
    runs,
    sensitivity,
    tuning,
)
from ablate.judge.audit.checks import BODIES, DECLARED, AuditContext
from ablate.judge.verdict import Check, Severity

WITH_BODIES = (
    ledger, runs, pairs, history, order, outcomes, comparable, interim, tuning, recompute, headroom,
    sensitivity,
)  # fmt: skip
"""The modules that hold the bodies of checks."""
assert set(BODIES) == set(DECLARED), set(BODIES) ^ set(DECLARED)


def audit(context: AuditContext) -> tuple[Check, ...]:
    """Every check of the evidence, in the order of every verdict."""
    of_evidence = (name for name, declared in DECLARED.items() if declared.of == "evidence")
    return tuple(check for name in of_evidence for check in BODIES[name](context))


def admissible(checks: Iterable[Check]) -> bool:
    """Whether a verdict may be given."""
    return all(check.passed or check.severity != "inadmissible" for check in checks)


MEANS: dict[Severity, str] = {
    "inadmissible": "no verdict",
    "deviation": "listed next to the verdict",
    "note": "remark",
}
"""What a failed check means for the verdict, in words."""


def why(check: Check) -> str:
    """Why a failure of the check means what it means; empty for a check that only another version declares."""
    declared = DECLARED.get(check.name)
    return declared.reason if declared else ""


def rows() -> list[tuple[str, str, str, str]]:
    """The table in words: check, what it looks at, consequence, why."""
    return [
        (
            declared.name,
            declared.looks_at,
            " or ".join(MEANS[severity] for severity in declared.consequence),
            declared.reason,
        )
        for declared in DECLARED.values()
    ]
