"""Check of headroom: had a claimed metric room to move?

At its floor or its ceiling it cannot show a difference, whatever the seeds say.

The same rule is applied twice: to a pilot, before registration (`ablate.judge.design.assumptions`), which is refused;
and to the baseline in the final evidence, where it is listed next to the verdict. The rule of the study was promised,
so there is a verdict, but its reader must know that a guardrail at its floor holds for free. No two arms are compared.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

import numpy as np

from ablate.judge.audit.checks import AuditContext, Found, check_body
from ablate.judge.stats.significance_tests import EQUAL, Floats, exponent_of
from prereg.metrics.catalogue import METRICS, TASK_METRICS

BOUNDS: Final[dict[str, tuple[float, float]]] = {"share": (0.0, 1.0)}
"""Unit -> the least and greatest value that a metric of this unit can have."""
ROOM_SD: Final = 2.0
"""A mean within so many SDs over seeds of a bound lies at it."""


def no_room(metric: str, values: Floats) -> tuple[str, str] | None:
    """Why values (seeds x arms) of a metric leave no room, and the word `floor` or `ceiling` (empty where they are the
    same for every seed); None where there is room.

    Examples
    --------
    >>> no_room("harness/accuracy", np.array([[0.98], [0.99], [1.0]]))[1]
    'ceiling'
    >>> no_room("harness/accuracy", np.array([[0.60], [0.61], [0.62]])) is None
    True
    """
    if np.ptp(values, axis=0).max() <= EQUAL * np.abs(values).max():
        return f"is the same for every seed ({values.flat[0]:.6g}, n = {values.size} runs)", ""
    # A metric of the user's own has no declared unit; an accuracy is a share by its name.
    declared = METRICS.get(metric) or TASK_METRICS.get(metric)
    unit = declared.unit if declared is not None else ("share" if metric.endswith("accuracy") else "")
    power = exponent_of(values)  # in a unit of their own, in which no square over- or underflows
    in_unit = np.ldexp(values, -power)
    spread, middle = (float(np.ldexp(value, power)) for value in (in_unit.std(axis=0, ddof=1).mean(), in_unit.mean()))
    for bound, word in zip(BOUNDS.get(unit, ()), ("floor", "ceiling"), strict=False):
        # So near a bound, an effect towards it would be cut off.
        if abs(middle - bound) < ROOM_SD * spread:
            numbers = f"mean {middle:.4g}, SD {spread:.2g}, n = {values.size} runs, bound {bound:g}"
            return f"lies at its {word}: {numbers}", word
    return None


@check_body("every claimed metric had headroom")
def check_headroom(context: AuditContext) -> Found:
    """The check that fails when a claimed metric of the baseline cannot move; none where all can."""
    study, faults = context.study, []
    for reading, name, cells in context.readings:
        finals = [
            value
            for seed in study.seeds_of(study.baseline)
            if isfinite(value := cells.get((study.baseline, seed), np.nan))
        ]
        values = np.array(finals, dtype=np.float64)[:, None]
        fault = no_room(study.claims[name].metric, values) if len(finals) > 1 else None
        if fault is not None:
            faults.append(f"{reading} of {study.baseline} {fault[0]}")
    return faults
