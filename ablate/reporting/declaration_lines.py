"""What a failed check of the evidence means, and a field changed after evidence: declared once, for every study."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding

from ablate.reporting.screen import fit, say


def print_admissibility(console: Console) -> None:
    """Every check of the evidence, what it looks at, and what its failure means."""
    from ablate.judge.audit.consequences import rows

    _print_declarations(console, [(check, looks, f"if it fails: {means}", why) for check, looks, means, why in rows()])


def print_touches(console: Console) -> None:
    """What a change of each field touches, when it is made after evidence."""
    from prereg.registry.amendments import TOUCHES

    _print_declarations(console, [(", ".join(row.fields), "", f"touches {row.said}", row.why) for row in TOUCHES])


def _print_declarations(console: Console, rows: Sequence[tuple[str, str, str, str]]) -> None:
    for name, looks, means, why in rows:
        say(console, name, style="bold")
        for line in (f"looks at: {looks}" if looks else "", f"{means}; {why}"):
            if line:
                console.print(Padding(fit(console, line), (0, 0, 0, 2)))
