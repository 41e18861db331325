"""Terminal output: blocks on a terminal or into a file, at the console's width. Colour only repeats what the words say.

Every text goes through `fit`: nothing that a study or a stranger brings is read as markup or reaches the terminal as a
control, and on a stream that cannot write `−`, plain ASCII is written. A word is never broken, except in a table: a
path or a hash can be copied whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, assert_never

from rich.box import HEAVY
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from ablate.reporting.blocks import Block, Facts, Figure, Paragraph, Section, Table
from prereg.escape import visible

if TYPE_CHECKING:
    from ablate.reporting.document import Document

_ASCII = str.maketrans(
    {"−": "-", "–": "-", "±": "+/-", "∞": "inf", "×": "x", "●": "*", "○": "o", "◉": "@"}
    | {"─": "-", "├": "[", "┤": "]", "│": "|", "░": ".", "┼": "+", "┊": ":"}
    | dict(zip("▁▂▃▄▅▆▇█", "..--==##", strict=True))
)
_TONES = {"plain": "", "lead": "bold", "warning": "bold red", "aside": "dim", "trust": ""}
_STATUSES = {"decided": "blue", "decided_with_deviations": "magenta", "inadmissible": "red"}
"""Yellow for every other status."""
_FIRST_CELLS = {"supported": "blue", "refuted": "yellow", "inconclusive": "dim"}
_STATISTIC = re.compile(r"\b([np]) ([=<]) ")
_SHORT = 12
"""A column of single words is not broken over lines if none is longer."""


def show(console: Console, *sections: Section) -> None:
    """Print sections: a blank line around each table and figure, and between sections."""
    gap = begun = False
    for part in chain.from_iterable(_section(console, section) for section in sections):
        # Blank lines come from both sides of a table: several become one, and none comes first.
        if part is None:
            gap = begun
            continue
        if gap:
            console.print()
        # Text is broken already; rich would break it once more, within a path.
        console.print(part, soft_wrap=isinstance(part, Text))
        gap, begun = False, True


def drawn(console: Console, section: Section) -> Group:
    """A section as one thing that can be drawn again in its place."""
    return Group(*(Text() if part is None else part for part in _section(console, section)))


def show_document(console: Console, document: Document) -> None:
    """Print a document's banner (framed on a terminal), its opening and its sections; what failed comes right under
    the verdict."""
    banner, style = document.banner, _STATUSES.get(document.banner.status, "yellow")
    failed = [f"- {reason}" for reason in banner.failed]
    body = [f"{banner.word.upper()}: {banner.headline}", *failed, *banner.reasons, document.title]
    lines = [fit(console, line) for line in body]
    lines[0].stylize(f"bold {style}")
    lines[-1].stylize("dim")
    if console.is_terminal:
        console.print(Panel(Text("\n").join(lines), box=HEAVY, border_style=style, padding=(0, 1)))
    else:
        for line in lines:
            console.print(_wrap(console, line.plain), soft_wrap=True)
    console.print()
    show(console, Section("", "", document.opening), *document.sections)


def fit(console: Console, text: str) -> Text:
    """One line of text, every character of it visible, in what the stream can write."""
    plain = visible(text)
    try:
        plain.encode(console.encoding)
    except UnicodeEncodeError:
        # Signs of ours have a spelling in ASCII; letters of a study that have none become question marks.
        plain = plain.translate(_ASCII).encode("ascii", "replace").decode()
    return Text(plain)


def _section(console: Console, section: Section) -> Iterator[RenderableType | None]:
    """What is printed of a section; None is a blank line."""
    yield None
    if section.title:
        yield _wrap(console, section.title, style="bold")
    for block in section.blocks:
        yield from _block(console, block)


def _block(console: Console, block: Block) -> Iterator[RenderableType | None]:
    match block:
        case Paragraph():
            yield _wrap(console, block.text, style=_TONES[block.tone])
        case Facts():
            for term, text in block.items:
                yield _wrap(console, f"{term}: {text}" if term else f"- {text}", indent="  ")
        case Table():
            yield None
            if block.caption:
                yield _wrap(console, block.caption)
            yield _table(console, block)
            if block.note:
                yield _wrap(console, block.note, style="dim")
            yield None
        case Figure():
            yield None
            # A figure that has no form in characters is described in words.
            drawn = block.characters or tuple(panel.words for panel in block.panels)
            yield Text("\n").join(fit(console, line) for line in drawn)
            yield None
        case _:
            assert_never(block)


def _table(console: Console, table: Table) -> Grid:
    named = any(column.name for column in table.columns)
    grid = Grid(box=None, show_header=named, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, column in enumerate(table.columns):
        words = [column.name, *(row[at] for row in table.rows)]
        # Numbers and single words keep to a line; other columns share the room that is left.
        unbroken = column.numeric or all(len(word) <= _SHORT and " " not in word for word in words)
        head = fit(console, column.name)
        # Folded, not cut: a hash that ends in an ellipsis cannot be copied.
        grid.add_column(head, justify="right" if column.numeric else "left", no_wrap=unbroken, overflow="fold")
    for at, row in enumerate(table.rows):
        cells = [fit(console, cell) for cell in row]
        warned = "red" if at in table.marked else _FIRST_CELLS.get(row[0], "")
        cells[0].stylize(f"bold {warned}")
        grid.add_row(*cells)
    return grid


def _wrap(console: Console, text: str, *, style: str = "", indent: str = "") -> Text:
    """The text broken between words; every line but the first is indented."""
    # `n = 5` and `p < .0001` stay on one line: `wrap` breaks at no no-break space.
    plain = _STATISTIC.sub("\\1\u00a0\\2\u00a0", fit(console, text).plain)
    lines = wrap(plain, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return Text("\n".join(lines).replace("\u00a0", " "), style=style)
