"""Is the evidence what was promised? Checked before any inference, and answered with every check, passed ones too.

A failed check of severity `inadmissible` means that no verdict is given; a `deviation` is listed next to the verdict;
a `note` is a remark. Nothing here compares arms. The order of `MODULES`, and of the checks in each, is that of every
verdict; a new check is a function in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ablate.judge import view
from ablate.judge.audit import amendments, headroom, history, ledger, lost_pairs, outcomes, pairs, runs, user_checks
from ablate.judge.audit.checks import DECLARED, AuditContext, Declared
from ablate.judge.verdict import Check

MODULES = (
    ledger,
    runs,
    pairs,
    runs,
    history,
    outcomes,
    view,
    user_checks,
    headroom,
    amendments,
    lost_pairs,
)


def declarations() -> tuple[Declared, ...]:
    """The declaration of every check, in the order in which they are made."""
    places = [module.__name__ for module in MODULES]
    return tuple(sorted(DECLARED.values(), key=lambda one: places.index(one.run.__module__)))


def audit(context: AuditContext) -> tuple[Check, ...]:
    """Every check of the evidence, without those that `decide` makes of its findings."""
    return tuple(check for one in declarations() if one.stage == "audit" for check in one.run(context))


def admissible(checks: Iterable[Check]) -> bool:
    """Whether a verdict may be given."""
    return all(check.passed or check.severity != "inadmissible" for check in checks)
