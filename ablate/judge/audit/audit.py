"""Is the evidence what was promised? Checked before any inference, and answered with every check, passed ones too.

A failed check of severity `inadmissible` means that no verdict is given; a `deviation` is listed next to the verdict;
a `note` is a remark. Nothing here compares arms. A new check is a function in one of the modules; the order of modules,
and of the functions in each, is that of every verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

from ablate.judge import recompute, view
from ablate.judge.audit import (
    amendments,
    headroom,
    history,
    ledger,
    lost_pairs,
    outcomes,
    pairs,
    provenance,
    runs,
    user_checks,
)
from ablate.judge.audit.checks import DECLARED, AuditContext, Declared
from ablate.judge.verdict import Check

OF_EVIDENCE = (ledger, runs, pairs, provenance, history, outcomes, view)
OF_FINDINGS = (user_checks, recompute, headroom, amendments, lost_pairs)
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
