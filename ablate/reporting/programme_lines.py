"""The count of every registered test as a person reads it, and the false discovery rate over the programme.

Every p stands with its n and its method; what has none says so. Nothing here is a verdict, and the text says that.
"""

from __future__ import annotations

from rich.console import Console

from ablate.judge.programme import ENDINGS, WEALTH_SHARE, Programme, Registered
from ablate.reporting import text
from ablate.reporting.screen import new_table, put_row, say, show_table


def print_programme(console: Console, found: Programme) -> None:
    """How many tests, how each ended, and what holds over all of them together."""
    registrations = text.counted(found.n_registrations, "registration")
    studies = text.counted(found.n_studies, "study", "studies")
    say(
        console,
        f"{text.counted(len(found.confirmatory), 'confirmatory hypothesis', 'confirmatory hypotheses')} ever "
        f"registered, in {registrations} of {studies}.",
        style="bold",
    )
    for ending in ENDINGS:
        if found.count(ending):
            kept = sum(one.carried_over for one in found.confirmatory if one.ending == ending)
            more = f" ({kept} of them carried over unchanged into the registration that followed)" if kept else ""
            say(console, f"  {found.count(ending):>4}  {ending}{more}")
    again = [one for one in found.confirmatory if one.times_decided > 1]
    if again:
        say(console, f"  {len(again)} of these were decided more than once, on different evidence.")
    say(console, f"Exploratory hypotheses, counted apart: {len(found.exploratory)}.")
    for untold in found.untold:
        say(
            console,
            f"Not counted: the hypotheses of '{untold.study}' as registered {text.moment(untold.registered_at)}, "
            f"{untold.registration[:8]} ({untold.why}).",
        )
    unproven = {(one.study, one.registration) for one in found.confirmatory if not one.proven}
    for study, registration in sorted(unproven):
        say(console, f"'{study}', {registration[:8]}: rebuilt from the ledger, but not to its hash.")
    if found.confirmatory:
        _print_hypotheses(console, found.confirmatory)
    if found.steps:
        _print_steps(console, found)
    for fault in found.faults:
        say(console, f"DAMAGED  {fault}", style="bold red", wrap=False)
    if found.faults:
        say(console, "Only what precedes the damage is counted.")
    say(console, f"Ledger head: {found.head}", wrap=False)


def _print_hypotheses(console: Console, hypotheses: tuple[Registered, ...]) -> None:
    table = new_table(
        console,
        ("Hypothesis", "left"),
        ("Role", "left"),
        ("Ended as", "left"),
        ("p", "right"),
        ("Adjusted", "right"),
        ("n", "right"),
        ("Test", "left"),
    )
    for one in hypotheses:
        put_row(
            console,
            table,
            f"{one.study} {one.registration[:8]} {one.hypothesis}",
            one.role,
            one.ending + (f" (decided {one.times_decided} times)" if one.times_decided > 1 else ""),
            text.p_cell(one.p),
            text.p_cell(one.p_adjusted),
            text.NONE if one.n is None else str(one.n),
            one.method or text.NONE,
        )
    show_table(console, table)
    say(
        console,
        "p: of support, uncorrected. Adjusted: within its study, by the correction registered there; it decided. "
        "n: pairs of seeds.",
        style="dim",
    )


def _print_steps(console: Console, found: Programme) -> None:
    level = text.compact(found.level)
    table = new_table(
        console,
        ("#", "right"),
        ("Decided test", "left"),
        ("p", "right"),
        ("BH", "right"),
        ("BH finds", "left"),
        ("Level", "right"),
        ("LORD++ finds", "left"),
    )
    for step in found.steps:
        put_row(
            console,
            table,
            str(step.number),
            f"{step.study} {step.registration[:8]} {step.hypothesis}",
            text.p_cell(step.p),
            text.p_cell(step.bh_adjusted),
            "yes" if step.bh_found else "no",
            f"{step.lord_level:.2g}",
            "yes" if step.lord_found else "no",
        )
    show_table(console, table)
    bh, lord = sum(step.bh_found for step in found.steps), sum(step.lord_found for step in found.steps)
    say(
        console,
        f"Over {text.counted(len(found.steps), 'decided test')} at a false discovery rate of {level}: "
        f"Benjamini-Hochberg finds {bh}, LORD++ {lord}. This changes no verdict.",
        style="bold",
    )
    unknown = sum(step.p is None for step in found.steps)
    if unknown:
        say(console, f"A p that cannot be known ({unknown} of them) counts as 1: it takes its place and finds nothing.")
    say(
        console,
        f"BH: p adjusted over all of these at once (Benjamini and Hochberg 1995); a later study can change it. Level: "
        f"what LORD++ compares p with, in the order of decisions, initial wealth {text.compact(WEALTH_SHARE)} x "
        f"{level} (Ramdas and others 2017); it is never taken back. Both want independent p values, and hypotheses of "
        "one study share runs: read them as a scale, not as a guarantee.",
        style="dim",
    )
