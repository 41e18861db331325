"""The catalogue of tables: the columns of every table of findings, checks, runs and designs, each declared once.

A table is rows of one kind and a `Catalogued` here: its columns as functions of a row, its caption and note as phrases
of `templates/tables.txt`. HTML, Markdown, LaTeX, the terminal and notebooks are renderings of the table that it makes;
the columns of the CSV files are in `exports/files.py`, as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ablate.judge.verdict import Finding
from ablate.reporting import estimates
from ablate.reporting.blocks import Table, columns
from ablate.reporting.estimates import NONE
from ablate.reporting.view import FindingView, n_of, test_of
from ablate.reporting.wording import phrase
from prereg import text as words

Row = TypeVar("Row")
Cell = Callable[[Row], str]


@dataclass(frozen=True)
class Catalogued(Generic[Row]):
    """A kind of table."""

    name: str
    """Of its phrases in `templates/tables.txt`: NAME and NAME_note."""
    cells: Mapping[str, Cell[Row]]
    """Heading, as of `blocks.columns` -> what it shows of a row."""
    optional: frozenset[str] = frozenset()
    """Headings that are left out where every cell is a dash or empty."""
    note: bool = False
    """Whether it has a note."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the table: folded, grouped, stacked."""

    def of(self, rows: Iterable[Row], *, marked: Callable[[Row], bool] | None = None, **values: object) -> Table:
        """The table of some rows; `values` are for its caption and note."""
        kept = list(rows)
        cells = [[cell(row) for cell in self.cells.values()] for row in kept]
        shown = [
            at
            for at, heading in enumerate(self.cells)
            if heading not in self.optional or any(row[at] not in (NONE, "") for row in cells)
        ]
        headings = [heading for at, heading in enumerate(self.cells) if at in shown]
        return Table(
            phrase(f"tables.{self.name}", **values),
            columns(*headings),
            tuple(tuple(row[at] for at in shown) for row in cells),
            phrase(f"tables.{self.name}_note", **values) if self.note else "",
            marked=frozenset(at for at, row in enumerate(kept) if marked is not None and marked(row)),
            **self.shape,
        )


_FINDING: Mapping[str, Cell[FindingView]] = {
    "Hypothesis": lambda view: view.label,
    "Claim": lambda view: view.finding.claim_shown,
    "Role": lambda view: view.role,
    "Outcome": lambda view: view.outcome,
    "Difference:": lambda view: view.difference,
    "Interval:": lambda view: view.interval,
    "p:": lambda view: view.p,
    "n:": lambda view: view.n,
    "Test": lambda view: view.test,
    "Margin:": lambda view: view.margin,
}
"""Every column of a table in which a finding is a row: a column added here can be named by all of them."""


def _of_finding(*headings: str) -> dict[str, Cell[FindingView]]:
    return {heading: _FINDING[heading] for heading in headings}


def _second(cell: Cell[FindingView]) -> Cell[tuple[str, FindingView]]:
    return lambda row: cell(row[1])


FINDINGS = Catalogued(
    "findings",
    _of_finding("Hypothesis", "Outcome", "Difference:", "Interval:", "p:", "n:"),
    note=True,
    shape={"stacked": True},
)
EFFECTS_BY_STUDY = Catalogued[tuple[str, FindingView]](
    "studies",
    {"Study": lambda row: row[0]}
    | {
        heading: _second(_FINDING[heading])
        for heading in ("Hypothesis", "Claim", "Outcome", "Difference:", "Interval:", "p:", "n:", "Test")
    },
    note=True,
    shape={"grouped": True},
)
PAPER = Catalogued(
    "paper",
    _of_finding("Hypothesis", "Outcome")
    | {"Difference:": lambda view: view.amount}
    | _of_finding("Interval:", "p:", "n:", "Margin:"),
    note=True,
)
ALSO = Catalogued[tuple[FindingView, Any]](
    "also",
    {
        "Hypothesis": lambda row: row[0].label,
        "Test": lambda row: test_of(row[1], paired=row[0].paired),
        "Difference:": lambda row: row[0].signed(row[1].difference),
        "Interval:": lambda row: estimates.interval(row[1].interval, row[0].decimals),
        "Two-sided p, alone:": lambda row: row[0].p_cell(row[1].p),
        "Smallest p possible:": lambda row: row[0].p_cell(row[1].p_floor),
        "n:": lambda row: n_of(row[1], row[1].n),
    },
    note=True,
)
GATE = Catalogued[FindingView](
    "gate",
    {
        "Hypothesis": lambda view: view.label,
        "Share at first:": lambda view: estimates.significant(_gate(view.finding).weight, 6),
        "Tested at level:": lambda view: estimates.significant(_gate(view.finding).level, 6),
        "p, alone:": lambda view: view.p_cell(view.finding.p_support),
        "p, adjusted:": lambda view: view.p_cell(view.finding.p_support_adjusted),
        "Passed": lambda view: phrase("tables.passed", view.finding.p_support, _gate(view.finding).level),
    },
    note=True,
)
PAIRING = Catalogued[FindingView](
    "pairing",
    {
        "Hypothesis": lambda view: view.label,
        "Shared seeds:": lambda view: str(_shared(view).n),
        "Standard error without pairs:": lambda view: words.number(_shared(view).se_unpaired, view.decimals + 1),
        "With pairs:": lambda view: words.number(_shared(view).se_paired, view.decimals + 1),
        "Correlation:": lambda view: (
            NONE if _shared(view).correlation is None else words.number(_shared(view).correlation, 2)
        ),
    },
    note=True,
)
CHECKS_FAILED = Catalogued[Any](
    "failed",
    {
        "Check": lambda row: row.check.name,
        "Found": lambda row: row.check.found,
        "Required": lambda row: row.check.required or NONE,
        "Consequence": lambda row: row.consequence,
        "Why": lambda row: row.why or NONE,
    },
    note=True,
)


def _gate(finding: Finding) -> Any:
    assert finding.gate is not None, finding.hypothesis
    return finding.gate


def _shared(view: FindingView) -> Any:
    assert view.finding.shared is not None, view.name
    return view.finding.shared


def seeds_table(views: Iterable[FindingView]) -> Table:
    """The evidence of each claim as numbers: its pairs seed by seed; without pairs, the runs of its arms."""
    rows = []
    for view in views:
        rows += [
            (view.label, str(pair.seed), view.number(pair.left), view.number(pair.right), view.signed(pair.difference))
            for pair in view.finding.pairs
        ]
        rows += [
            (view.label, f"{seed} ({view.labels.arm(sample.arm)})", view.number(value), NONE, NONE)
            for sample in view.finding.samples
            for seed, value in zip(sample.seeds, sample.values, strict=True)
        ]
    heads = columns("Hypothesis", "Seed", "Left side:", "Right side:", "Difference:")
    return Table(phrase("tables.seeds"), heads, tuple(rows), grouped=True)
