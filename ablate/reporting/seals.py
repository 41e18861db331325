"""What the terminal says of seals: each one found, and what its mechanism proves and does not."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ablate.reporting.screen import fit, say
from prereg.seals.examine import SealCheck
from prereg.seals.state import LEFT_OPEN_BY_ALL, PROOFS

STATES = {
    "holds": "holds",
    "unvouched": "not vouched for",
    "incomplete": "not complete",
    "unchecked": "not checked",
    "broken": "BROKEN",
    "owed": "PENDING",
}


def print_seals(console: Console, checks: Sequence[SealCheck]) -> None:
    """Every seal in a few lines, then one table of what such seals are worth. Nothing where there are none."""
    if not checks:
        return
    console.print()
    for check in checks:
        name = "seal" if check.kind is None else PROOFS[check.kind].name
        file = "" if check.file is None else f", {check.file}"
        earlier = " of an amended registration" if check.superseded else ""
        line = f"{STATES[check.state]}: {check.study}, {name}{earlier}{file}"
        style = {"broken": "bold red", "owed": "yellow"}.get(check.state, "")
        say(console, line, style=style, wrap=False)
        late = "; runs had begun when it was made" if check.after_runs and check.state != "owed" else ""
        console.print(Padding(fit(console, check.says + late), (0, 0, 0, 2), expand=False))
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    table.add_column("Seal", no_wrap=True)
    table.add_column("Proves")
    table.add_column("Does not prove")
    for kind, proof in PROOFS.items():
        if any(check.kind == kind for check in checks):
            table.add_row(*(fit(console, told) for told in (proof.name, proof.proves, proof.leaves_open)))
    if table.row_count:
        console.print()
        console.print(table)
        say(console, LEFT_OPEN_BY_ALL)
    console.print()
