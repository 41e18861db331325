"""Is the evidence what was promised? Checked before any inference, and answered with every check, passed ones too.

A failed check of severity `inadmissible` means that no verdict is given; a `deviation` is listed next to the verdict;
a `note` is a remark. Nothing here compares arms. A new check is a function in one of the modules; the order of modules,
and of the functions in each, is that of every verdict. The report, the terminal and docs/checks.md show what each check
looks at, what its failure means, and why, by the tables at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

from ablate.judge import interim, recompute
from ablate.judge.audit import (
    comparable,
    headroom,
    history,
    ledger,
    outcomes,
    pairs,
    runs,
    sensitivity,
    tuning,
    user_checks,
)
from ablate.judge.audit.checks import DECLARED, AuditContext, Declared
from ablate.judge.verdict import OWN, Check, Severity

OF_EVIDENCE = (ledger, runs, pairs, history, outcomes, comparable, interim, tuning)
OF_FINDINGS = (user_checks, recompute, headroom, sensitivity)
"""Modules whose checks `decide` makes itself, of more than an `AuditContext`."""


def declarations(modules: Sequence[ModuleType] = (*OF_EVIDENCE, *OF_FINDINGS)) -> list[Declared]:
    """The declaration of every check of the modules, in the order in which they are made."""
    return [one for module in modules for one in DECLARED.values() if one.run.__module__ == module.__name__]


def audit(context: AuditContext) -> tuple[Check, ...]:
    """Every check of the evidence, in the order of every verdict."""
    return tuple(check for one in declarations(OF_EVIDENCE) for check in one.run(context))


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
    declared = DECLARED.get(OWN if check.name.startswith(OWN) else check.name)
    return declared.why if declared else ""


def rows() -> list[tuple[str, str, str, str]]:
    """The table in words: check, what it looks at, consequence, why."""
    return [
        (
            f"{one.name}NAME" if one.name == OWN else one.name,
            one.looks_at,
            " or ".join(MEANS[severity] for severity in one.consequence),
            one.why,
        )
        for one in declarations()
    ]
