"""What still matches what was frozen, in this project and in a bundle, and what no check of either can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding

from ablate.reporting import text
from ablate.reporting.screen import fit, say

if TYPE_CHECKING:
    from pathlib import Path

    from ablate.verification.check import BundleCheck
    from ablate.verification.result import Verification


def print_verification(console: Console, found: Verification) -> None:
    """Every frozen thing that was checked, faults in full, and what its seals are worth."""
    from ablate.reporting.seals import print_seals

    for item in found.items:
        note = f" ({item.note})" if item.note else ""
        say(
            console,
            f"{'ok     ' if not item.faults else 'CHANGED'}  {item.study}: {item.what}{note}",
            wrap=False,
            style="" if not item.faults else "bold red",
        )
        for fault in item.faults:
            say(console, f"         - {fault}", wrap=False)
    print_seals(console, found.seals)
    _print_inadmissible(console, found)
    faults = sum(len(item.faults) for item in found.items)
    say(
        console,
        "All hashes that could be checked match."
        if found.stands
        else f"{text.counted(faults, 'fault')} found: what was frozen is not what is here.",
        style="bold",
    )
    say(console, f"Ledger head: {found.head}", wrap=False)


def print_bundle_check(console: Console, found: BundleCheck) -> None:
    """What was checked of a bundle, what is not in it, and what only somebody else's copy of a hash can show."""
    for item in found.items:
        say(
            console,
            f"{'ok     ' if not item.faults else 'CHANGED'}  {item.study}: {item.what}",
            style="" if not item.faults else "bold red",
        )
        for line in (*item.faults, *([item.note] if item.note else [])):
            console.print(Padding(fit(console, line), (0, 0, 0, 9), expand=False))
    _print_inadmissible(console, found)
    faults = sum(len(item.faults) for item in found.items)
    say(
        console,
        "All checks of the bundle pass."
        if found.stands
        else f"{text.counted(faults, 'fault')} found: the bundle is not sound.",
        style="bold",
    )
    _print_limits(console, found)


def print_bundled(console: Console, path: Path, found: BundleCheck, *, written: bool) -> None:
    """The bundle that was written, or was there already; it has been checked."""
    say(console, f"{'wrote' if written else 'is there already:'} {path} ({found.size_bytes:,} bytes)", wrap=False)
    _print_limits(console, found)


def _print_inadmissible(console: Console, found: Verification) -> None:
    for item in found.items:
        if item.inadmissible:
            say(console, f"{item.study}: inadmissible, so no verdict comes from these records.", style="bold")


def _print_limits(console: Console, found: BundleCheck) -> None:
    for one in found.left_out:
        say(console, f"Not in it: {one.what}: {one.why}.")
    say(
        console,
        "No check of a bundle can show that it was not made up as a whole. Compare one of these with what somebody "
        "else holds, or look at the seals of its lock:",
    )
    say(console, f"Bundle sha256: {found.sha256}", wrap=False)
    say(console, f"Ledger head:   {found.head or 'unknown'}", wrap=False)
