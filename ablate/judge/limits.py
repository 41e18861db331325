"""Did every run keep to the limits that its budget promised? A breach is listed next to the verdict, no more.

The limits are about cost. A run that took more memory or time than promised ended as it would have ended, so its pair
stands; a reader who is to pay for the winning arm wants to know all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from ablate.judge.checks import named_run, none_against
from ablate.judge.verdict import Check
from ablate.records.run_record import RunRecord
from prereg.study.analysis import breaches, promises_any, unmeasured
from prereg.study.spec import Study

LIMITS = "every run kept to its promised limits"


def check_limits(study: Study, ended: Iterable[RunRecord]) -> tuple[Check, ...]:
    """One check where any arm promises a limit, and none where there is nothing to keep to."""
    held = [
        (run, study.training(run.variant).budget)
        for run in ended
        if run.variant in study.arms and promises_any(study.training(run.variant).budget)
    ]
    if not held:
        return ()
    wrong = []
    for run, budget in held:
        name = named_run(run)
        peak = run.peak_memory_bytes
        for breach in breaches(budget, wall_s=run.wall_s, peak_memory_bytes=peak):
            upper = " (an upper bound: this system reports it for the whole process only)"
            bound = upper if breach.limit == "max_memory_gib" and run.memory_since == "process" else ""
            wrong.append(f"{name}: {breach.words}{bound}")
        if unmeasured(budget, peak_memory_bytes=peak):
            wrong.append(f"{name}: its memory was not measured")
    return (
        none_against(
            LIMITS,
            wrong,
            "memory and time within the limits of the budget",
            "deviation",
            found=f"{len(held)} runs with limits, {len(wrong)} breaches",
        ),
    )
