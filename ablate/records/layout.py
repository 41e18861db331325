"""How a run's layout is written and read: by itself, or one seat in a cohort of seeds that are trained together.

The layout names every seat, vacant ones too, because it is the number of seats that moves the last digits, and because
whoever takes a run up again, or makes it once more, needs the same seats.
"""

from __future__ import annotations

import re

from ablate.records.run_record import SINGLE

WHOLE_ONLY = ("update/", "adam/")
"""Beginnings of the names of metrics that are measured only of a run whose weights and moments lie whole and alone in
one process: of no seat of a cohort, and of no run cut over devices. A claim that reads one refuses these layouts."""


def layout_of(seats: tuple[int, ...]) -> str:
    """The words for a provenance: `single`, or `cohort of 3: seeds 1,2,3`."""
    assert len(set(seats)) == len(seats) > 0, seats
    return SINGLE if len(seats) == 1 else f"cohort of {len(seats)}: seeds {','.join(map(str, seats))}"


def seats_in(layout: str) -> tuple[int, ...]:
    """The seeds of a cohort by its words; empty for a run by itself, and for words that are not ours."""
    found = re.fullmatch(r"cohort of \d+: seeds (-?\d+(?:,-?\d+)+)", layout)
    return tuple(int(seed) for seed in found.group(1).split(",")) if found else ()
