"""`Catalogued`, a kind of table: columns as functions of a row, declared once; the tables are in `tables.py`.

The tables of reports are declared in `tables.py`, those of commands in `summaries/tables.py`; captions and notes are
phrases of `templates/tables.txt`. HTML, Markdown, LaTeX, the terminal and notebooks render the table that comes out. To
add a column, add a heading and a function of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ablate.reporting.blocks import Table, columns
from ablate.reporting.estimates import NONE
from ablate.reporting.wording import phrase

Row = TypeVar("Row")
UNKNOWN = "?"
"""A cost that nothing is known of."""
Cell = Callable[[Row], str]


@dataclass(frozen=True)
class Catalogued(Generic[Row]):
    """A kind of table."""

    name: str
    """Of its phrases in `templates/tables.txt`: NAME and NAME_note."""
    cells: Mapping[str, Cell[Row]]
    """Heading, as of `blocks.columns` -> what it shows of a row."""
    optional: frozenset[str] = frozenset()
    """Headings that are left out where every cell is empty, a dash or unknown."""
    caption: bool = True
    """Whether it has a caption; on a terminal the section's title says what a table is."""
    note: bool = False
    """Whether it has a note."""
    marked: Callable[[Row], bool] | None = None
    """Which rows a reader must not miss."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the table: folded, grouped, stacked."""

    def of(self, rows: Iterable[Row], *, further: Mapping[str, Cell[Row]] | None = None, **values: object) -> Table:
        """The table of some rows; `further` are columns that depend on the study, `values` go into caption and note."""
        listed, cells_of = list(rows), {**self.cells, **(further or {})}
        # Every cell is made, also of columns that are then left out: whether one is shown depends on its
        # cells.
        cells = [{heading: cell(row) for heading, cell in cells_of.items()} for row in listed]
        shown = [
            heading
            for heading in cells_of
            if heading not in self.optional or any(row[heading] not in (NONE, UNKNOWN, "") for row in cells)
        ]
        return Table(
            phrase(f"tables.{self.name}", **values) if self.caption else "",
            columns(*shown),
            tuple(tuple(row[heading] for heading in shown) for row in cells),
            phrase(f"tables.{self.name}_note", **values) if self.note else "",
            # By place: two rows may be equal.
            marked=frozenset(at for at, row in enumerate(listed) if self.marked is not None and self.marked(row)),
            **self.shape,
        )


def picked(cells: Mapping[str, Cell[Row]], *headings: str) -> dict[str, Cell[Row]]:
    """Some of the columns that kinds of tables share, in this order.

    >>> list(picked({"Arm": str, "Seed": str, "n:": str}, "n:", "Arm"))
    ['n:', 'Arm']
    """
    return {heading: cells[heading] for heading in headings}
