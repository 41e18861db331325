"""The corpora of this house on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from ablate.reporting import text
from ablate.reporting.screen import new_table, put_row, show_table


def print_corpora(console: Console, rows: Iterable[tuple[str, int, str, object, str]]) -> None:
    """Corpora by name: size, hash, where they are, licence."""
    table = new_table(
        console, ("Corpus", "left"), ("Bytes", "right"), ("sha256", "left"), ("Where", "left"), ("Licence", "left")
    )
    for name, size_bytes, sha256, found, licence in rows:
        put_row(console, table, name, f"{size_bytes:,}", text.short(sha256), str(found), licence)
    show_table(console, table)
