"""A run made again, told: reproduced or not, and by how much it differs. Differences only; no value is shown."""

from __future__ import annotations

from rich.console import Console

from ablate.records.comparison import Reproduction
from ablate.reporting import text as words
from ablate.reporting.screen import new_table, put_row, say, show_table

_MOST_ROWS = 12


def print_reproduction(console: Console, found: Reproduction) -> None:
    """The result, then what differs."""
    say(console, _headline(found), style="bold")
    for one in found.provenance:
        say(console, f"{one.part}: sealed {_short(one.sealed)}, again {_short(one.again)}")
    if found.status_again not in (found.status_sealed, "beginning"):
        say(console, f"The sealed run ended as {found.status_sealed}, this one as {found.status_again}.")
    apart = sorted((m for m in found.metrics if not m.equal), key=lambda m: -m.largest_relative)
    if apart:
        table = new_table(
            console,
            ("Metric", "left"),
            ("Differs at", "right"),
            ("First at step", "right"),
            ("Largest absolute", "right"),
            ("Largest relative", "right"),
        )
        for m in apart[:_MOST_ROWS]:
            lone = m.only_sealed + m.only_again
            steps = f"{m.n_different:,} of {m.n:,} steps" + (f", {lone:,} in one run only" if lone else "")
            first = "" if m.first_step is None else f"{m.first_step:,}"
            absolute = words.NONE if m.largest_absolute is None else f"{m.largest_absolute:.3g}"
            put_row(console, table, m.metric, steps, first, absolute, f"{m.largest_relative:.3g}")
        show_table(console, table)
        if len(apart) > _MOST_ROWS:
            say(console, f"{len(apart) - _MOST_ROWS} more metrics differ by less (--json shows all).")
    same, values = len(found.metrics) - len(apart), sum(m.n for m in found.metrics)
    say(console, f"{same} of {words.counted(len(found.metrics), 'metric')} equal to the bit, over {values:,} values.")
    if found.weights != "not compared":
        say(console, f"Final weights: {found.weights}.")
    elif found.status_again == "beginning":
        say(console, "Final weights: not compared, since only the beginning was made.")
    else:
        say(console, "Final weights: not compared, since one of the records holds no hash of them.")
    if found.items != "not compared":
        apart_by = f", by at most {found.items_apart:.3g} relatively" if found.items_apart else ""
        other = ", for they are not those of the same items" if found.items_apart is None else ""
        say(console, f"Scores of items: {found.items}{apart_by}{other}.")
    if found.left_out:
        say(console, f"Not repeatable by definition, and left out: {words.listed(found.left_out)}.", style="dim")


def _headline(found: Reproduction) -> str:
    run = f"{found.study}: {found.variant}, seed {found.seed}"
    steps = f"{found.steps:,} of {found.of_steps:,} steps" if found.status_again == "beginning" else "the whole run"
    if found.exact:
        promise = "" if not found.unpromised else f" (not promised here: {'; '.join(found.unpromised)})"
        return f"{run}: REPRODUCED to the last bit, {steps}{promise}."
    largest = f"the largest relative difference is {found.largest_relative:.3g}"
    if not found.unpromised:
        return f"{run}: NOT REPRODUCED, {steps}: equal bits were promised, and {largest}."
    why = f"equal bits are not promised here ({'; '.join(found.unpromised)}); {largest}"
    if found.reproduced:
        return f"{run}: REPRODUCED within {found.within:g}, {steps}: {why}."
    asked = f", beyond the {found.within:g} that was accepted" if found.within is not None else ""
    return f"{run}: NOT REPRODUCED, {steps}: {why}{asked}."


def _short(text: str) -> str:
    return text[:12] if len(text) == 64 else text
