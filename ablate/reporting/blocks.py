"""Blocks that a report is made of: sections of paragraphs, facts, tables and figures. No Markdown, no HTML.

Every text here is plain text written by us or taken from a study; a renderer escapes all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Tone = Literal["plain", "warning", "aside", "lead", "trust"]
Shape = Literal["panel", "wide", "narrow"]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """Terms and what they are. On a terminal a text whose term is empty is an item of a list."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column's heading and whether its cells are numbers."""

    name: str
    numeric: bool = False


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by their headings; one that ends in a colon holds numbers, as in Markdown's `---:`.

    >>> columns("Arm", "Loss:")
    (Column(name='Arm', numeric=False), Column(name='Loss', numeric=True))
    """
    return tuple(Column(name.removesuffix(":"), name.endswith(":")) for name in names)


@dataclass(frozen=True)
class Table:
    """A table with a caption; its first column names the rows."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    marked: frozenset[int] = frozenset()
    """Rows that a reader must not miss."""
    folded: bool = False
    """Whether the page may show it folded: detail behind a statement made elsewhere."""
    grouped: bool = False
    """Whether rows that begin alike belong together, and the page may set them apart from the next ones."""
    stacked: bool = False
    """Whether a phone may show each row as a block, its second cell on top and every other under its column's name."""

    def __post_init__(self) -> None:
        for row in self.rows:
            # A short row would move cells under other headings, in every format alike.
            assert len(row) == len(self.columns), (self.caption, row)


@dataclass(frozen=True)
class Panel:
    """One drawing: an altair chart, and in words what it shows."""

    title: str
    make: Callable[[], Any]
    """The chart, made where it is drawn: Markdown draws none, and composing one takes longer than telling it."""
    words: str
    shape: Shape = "panel"
    """`panel`: one of a grid; `wide` and `narrow`: one drawing for a broad page or paper, one for a phone."""

    @property
    def chart(self) -> Any:
        """The chart."""
        return self.make()


@dataclass(frozen=True)
class Figure:
    """Panels under one caption."""

    name: str
    """Empty where the text around it names it."""
    caption: str
    panels: tuple[Panel, ...]
    characters: tuple[str, ...] = ()
    """The same in lines of characters, for a terminal and Markdown."""


Block = Paragraph | Facts | Table | Figure


@dataclass(frozen=True)
class Section:
    """A headed part of the report."""

    id: str
    title: str
    blocks: tuple[Block, ...]
