"""How a run's layout is written and read: by itself, or one seat in a cohort of seeds that are trained together.

The layout names every seat, vacant ones too, because it is the number of seats that moves the last digits, and because
whoever takes a run up again, or makes it once more, needs the same seats. It names how steps are computed where that is
not operator by operator, for the same reasons.
"""

from __future__ import annotations

import re

from ablate.records.run_record import SINGLE

WHOLE_ONLY = ("update/", "adam/")
"""Beginnings of the names of metrics that are measured only of a run whose weights and moments lie whole and alone in
one process: of no seat of a cohort, and of no run cut over devices. A claim that reads one refuses these layouts."""


_COHORT = re.compile(r"cohort of \d+: seeds (-?\d+(?:,-?\d+)+)(?:; steps ([a-z-]+))?")
PLAIN_STEP = "eager"
"""The way to compute steps that a layout does not mention."""


def layout_of(seats: tuple[int, ...], step: str = PLAIN_STEP) -> str:
    """The words for a provenance: `single`, `cohort of 3: seeds 1,2,3`, or the same with `; steps compiled`."""
    assert len(set(seats)) == len(seats) > 0, seats
    if len(seats) == 1:
        assert step == PLAIN_STEP, step
        return SINGLE
    told = f"cohort of {len(seats)}: seeds {','.join(map(str, seats))}"
    return told if step == PLAIN_STEP else f"{told}; steps {step}"


def seats_in(layout: str) -> tuple[int, ...]:
    """The seeds of a cohort by its words; empty for a run by itself, and for words that are not ours."""
    found = _COHORT.fullmatch(layout)
    return tuple(int(seed) for seed in found.group(1).split(",")) if found else ()


def step_in(layout: str) -> str:
    """How steps were computed, by the words of a layout."""
    found = _COHORT.fullmatch(layout)
    return (found.group(2) if found else None) or PLAIN_STEP
