"""How a check says what it found: in counts, with the first few faults, and with runs by arm and seed."""

from __future__ import annotations

from collections.abc import Iterable

from ablate.judge.verdict import Check, Severity
from ablate.records.run_record import RunRecord
from prereg.registry.plan import Cell


def none_against(
    name: str, faults: Iterable[str], required: str, severity: Severity = "inadmissible", *, found: str = ""
) -> Check:
    """A check that passes when there is nothing to list. `found` is said before the list, else how many there are."""
    items = list(faults)
    said = f"{found}{listed(items)}" if found else (f"{len(items)}{listed(items)}" if items else "none against it")
    return Check(name=name, passed=not items, severity=severity, found=said, required=required)


def listed(items: list[str], most: int = 5) -> str:
    """The first few of a list, and how many more there are."""
    if not items:
        return ""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ": " + "; ".join(items[:most]) + more


def named(cell: Cell) -> str:
    """`rope seed 3`."""
    variant, seed = cell
    return f"{variant} seed {seed}"


def named_run(run: RunRecord) -> str:
    """The same, of a run's record."""
    return named((run.variant, run.seed))
