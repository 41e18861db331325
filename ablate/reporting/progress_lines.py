"""An unfinished study on the terminal: its health, and what an early look at it shows.

`ablate status` must answer at once, so nothing here loads statistics or charts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console

from ablate.reporting import text
from ablate.reporting.screen import new_table, put_row, say, show_table

if TYPE_CHECKING:
    from ablate.api.status import StudyHealth
    from ablate.judge.glimpse import ClaimSoFar, Glimpse


def print_status(console: Console, health: StudyHealth) -> None:
    """How far the runs have come: progress only, nothing that separates arms."""
    say(console, f"{health.study}: {health.title}", style="bold")
    if health.registered is None:
        say(console, "Not registered.")
    else:
        changed = "" if health.unchanged else ", but the study file has changed since"
        say(console, f"Registered as {text.short(health.registered)}{changed}.")
    counts = Counter(run.state for run in health.runs)
    tally = ", ".join(f"{count} {state}" for state, count in counts.items())
    at_work = " A process is at work." if health.active else ""
    say(console, f"{text.counted(len(health.runs), 'run')}: {tally}.{at_work}")
    _say_decided(console, health)
    if health.next_look is not None:
        say(console, f"Next: {health.next_look}. The runs of later seeds wait for what it says.")
    table = new_table(
        console, ("Run", "left"), ("State", "left"), ("Step", "right"), ("Training loss", "left"), ("Attempts", "right")
    )
    loss = {True: "falling", False: "NOT FALLING", None: ""}
    for run in health.runs:
        if run.state not in ("done", "waiting"):
            put_row(
                console,
                table,
                f"{run.variant}, seed {run.seed}",
                run.state,
                f"{run.step:,} of {run.steps:,}",
                loss[run.falling],
                str(run.attempts),
            )
    if table.row_count:
        show_table(console, table)
    for lacking, count in Counter(run.lacking for run in health.runs if run.lacking).items():
        say(console, f"{text.counted(count, 'run')}: {lacking}", wrap=False)
    for run in health.runs:
        if run.error:
            say(console, f"{run.variant}, seed {run.seed}: {run.error}", wrap=False)
        for breach in run.breaches:
            say(console, f"{run.variant}, seed {run.seed}, beyond its budget: {breach}", wrap=False)


def _say_decided(console: Console, health: StudyHealth) -> None:
    if health.decided is not None:
        say(console, f"Decided: {health.decided}")
    if health.overruled:
        say(console, "An early look was recorded after the decision: by the registered rules there is no verdict.")
    if health.peeked:
        looks = text.counted(health.peeked, "early look")
        say(console, f"The ledger holds {looks} at its numbers; every report will say so.")


def print_glimpse(console: Console, seen: Glimpse) -> None:
    """An early look: description by claim, and what it is not."""
    say(console, f"{seen.study}: {seen.ended} of {text.counted(seen.planned, 'planned run')} ended.", style="bold")
    table = new_table(console, ("Claim", "left"), ("By arm: mean (SD, n)", "left"), ("Difference (SD, n)", "right"))
    for claim in seen.claims:
        arms = "; ".join(f"{arm.arm} {arm.mean:.4g} ({_spread(arm.sd)}, {arm.n})" for arm in claim.arms)
        put_row(console, table, claim.claim, arms or "no run yet", _difference_so_far(claim))
    show_table(console, table)
    if seen.diverged:
        say(console, f"Diverged, and without a number here: {text.listed(seen.diverged)}")
    say(
        console,
        "Description only: means over the seeds that have ended, differences paired by seed and left minus right. No "
        "test is made: at an unplanned look its error rate would not be the registered one.",
        style="dim",
    )


def _difference_so_far(claim: ClaimSoFar) -> str:
    if claim.difference is None:
        return claim.note or "no pair yet"
    return f"{text.signed(claim.difference, 4)} {claim.unit} ({_spread(claim.sd)}, {claim.n})"


def _spread(sd: float | None) -> str:
    return text.NONE if sd is None else f"{sd:.2g}"
