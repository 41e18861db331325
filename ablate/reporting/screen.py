"""Words and tables on a terminal or into a file: what every `print_...` of the report shares.

Every text goes through `fit`: nothing that a study or a stranger brings is read as markup or reaches the terminal as a
control, and on a stream that cannot write `−`, plain ASCII is written.
"""

from __future__ import annotations

from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from prereg.escape import visible

ASCII = str.maketrans({"−": "-", "–": "-", "±": "+/-", "∞": "inf", "×": "x"})
Justify = Literal["left", "right"]
_NARROW = frozenset(
    {"Outcome", "Difference [interval]", "p", "n", "Line", "Step", "Smallest", "Decides", "Bytes"}
    | {"#", "Date", "Event", "Hash", "Adjusted", "Level"}
)
"""Columns that are never broken over lines."""


def new_table(console: Console, *columns: tuple[str, Justify]) -> Table:
    """An empty table: no lines, bold heads on a terminal only."""
    plain = not console.is_terminal
    table = Table(box=None, pad_edge=False, header_style="" if plain else "bold", padding=(0, 2, 0, 0))
    for name, justify in columns:
        narrow = name in _NARROW
        table.add_column(fit(console, name), justify=justify, no_wrap=narrow, overflow="fold")
    return table


def show_table(console: Console, table: Table) -> None:
    """The table between blank lines."""
    console.print()
    console.print(table)
    console.print()


def put_row(console: Console, table: Table, *cells: str, style: str = "") -> None:
    """One more row; the style is the first cell's, beside bold."""
    texts = [fit(console, cell) for cell in cells]
    texts[0].stylize(f"bold {style}".strip())
    table.add_row(*texts)


def say(console: Console, text: str, *, style: str = "", wrap: bool = True) -> None:
    """A line of text. One that is to be copied whole is not wrapped."""
    console.print(fit(console, text, style=style), soft_wrap=not wrap)


def fit(console: Console, text: str, *, style: str = "") -> Text:
    """One line of text, every character of it visible, in what the stream can write."""
    plain = visible(text)
    try:
        plain.encode(console.encoding)
    except UnicodeEncodeError:
        plain = plain.translate(ASCII).encode("ascii", "replace").decode()
    return Text(plain, style=style)
