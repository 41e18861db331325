"""Limits that a budget promises beside its steps, and what it means to break one.

A limit is a promise about cost, not about the outcome: a run that breaks one goes on to its end, since ending it would
take its pair away. What is left is an event of the study, in the ledger and next to the verdict. Nothing here measures.
"""

from __future__ import annotations

from prereg.part import Part
from prereg.training import Budget
from prereg.words import compact

GIB = 2**30


class Breach(Part):
    """One limit that one run did not keep to."""

    limit: str
    """The field of the budget."""
    promised: float
    """Its value, in the field's own unit."""
    measured: float
    """What the run took, in the same unit."""

    @property
    def words(self) -> str:
        """What was promised and what came."""
        what, unit = ("memory", "GiB") if self.limit == "max_memory_gib" else ("time", "s")
        return f"{compact(round(self.measured, 3))} {unit} of {what}, promised at most {compact(self.promised)} {unit}"


def breaches(budget: Budget, *, wall_s: float, peak_memory_bytes: int | None) -> tuple[Breach, ...]:
    """The limits of a budget that a run broke. Memory that nobody measured breaks nothing here; see `unmeasured`."""
    memory = None if peak_memory_bytes is None else peak_memory_bytes / GIB
    found = []
    for limit, promised, measured in (
        ("max_memory_gib", budget.max_memory_gib, memory),
        ("max_wall_s", budget.max_wall_s, wall_s),
    ):
        if promised is not None and measured is not None and measured > promised:
            found.append(Breach(limit=limit, promised=promised, measured=measured))
    return tuple(found)


def unmeasured(budget: Budget, *, peak_memory_bytes: int | None) -> bool:
    """Whether a promise about memory was made that nothing can be said about."""
    return budget.max_memory_gib is not None and peak_memory_bytes is None


def promises_any(budget: Budget) -> bool:
    """Whether a budget holds any limit."""
    return budget.max_memory_gib is not None or budget.max_wall_s is not None
