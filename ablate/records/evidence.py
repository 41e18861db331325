"""`Evidence`, what the judge and the report see of runs; for `evidence.ablate.zip` see `verification/evidence.py`.

Nothing else.

Reading is separate from judging: this module believes a run only when its seals match, says what
does not match, and draws no conclusion from it.

To add a field that the judge reads: here, filled in `ablate.records.gather.gather`, and in tests/evidence_factory.py,
which makes evidence for the tests of the judge. A field that moves a verdict belongs into `sha256`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.records.run_record import RunRecord
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_of
from prereg.registry.ledger_entry import Entry

ITEM_COLUMNS = ("variant", "seed", "task", "item", "item_sha256", "metric", "value")
"""Columns of `Evidence.items`: one row per arm, seed, metric and item."""
METRIC_COLUMNS = ("variant", "seed", "step", "metric", "value")
"""Columns of `Evidence.metrics`: one row per arm, seed, metric and step."""
Line = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Steps and values of one metric of one run, by step."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of one registration, as found on disk. `ablate.records.gather.gather` makes it.

    >>> import pandas as pd
    >>> rows = [("wide", 0, 1, "val/loss", 2.5), ("wide", 0, 2, "val/loss", 2.25)]
    >>> evidence = Evidence(planned=(("wide", 0),), runs=(), metrics=pd.DataFrame(rows, columns=METRIC_COLUMNS))
    >>> evidence.missing
    (('wide', 0),)
    >>> steps, values = evidence.lines("val/loss")["wide", 0]
    >>> steps.tolist(), values.tolist()
    ([1, 2], [2.5, 2.25])
    """

    planned: tuple[tuple[str, int], ...]
    """(arm, seed) of every planned run, in the plan's order."""
    runs: tuple[RunRecord, ...]
    """The records of planned runs that have one, whatever their status, in the plan's order."""
    metrics: pd.DataFrame
    """One row per arm, seed, metric and step (`METRIC_COLUMNS`); `variant` and `metric` are categories. Empty while
    values are withheld."""
    broken: tuple[str, ...] = ()
    """What does not match its seal, a sentence each."""
    extra: tuple[str, ...] = ()
    """ARM/SEED of run folders that no plan names."""
    ledger: tuple[Entry, ...] = ()
    """The ledger's entries of this study, in order; none where the ledger is damaged."""
    elsewhere: tuple[Entry, ...] = ()
    """Entries of other studies of the ledger: seals of an outcome that this one sealed later, and looks at outcomes of
    those studies before this registration."""
    ledger_faults: tuple[str, ...] = ()
    """What is wrong with the chain of the ledger, a sentence each."""
    history_faults: tuple[str, ...] = ()
    """Of a sound ledger: how two branches continued this study, and entries that git holds and the file lacks."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Hash of an entry -> its place among all of the ledger: where git has merged branches, `index` cannot compare
    entries of two of them. Empty where the evidence is of no ledger."""
    ledger_head: str = ""
    """sha256 of the last entry of the whole ledger."""
    unsealed: tuple[tuple[str, int], ...] = ()
    """Cells whose run.json claims an end that its seals or the ledger do not bear out."""
    items: pd.DataFrame | None = None
    """One row an item, arm, seed and metric (`ITEM_COLUMNS`), where items were scored; none where no run has any."""
    altered: tuple[str, ...] = ()
    """Registered files of a user's own trainer that are other bytes on this disk now, or are gone, a sentence each;
    found where a study is decided, and not where its records are all there is."""
    withheld: bool = False
    """Whether both tables were left unread because planned runs are missing: reading them would be an early look."""

    def place(self, entry: Entry) -> int:
        """Where an entry stands among those of all studies: after every one that it follows, else by its time."""
        return self.places.get(entry.sha256, entry.index)

    @property
    def missing(self) -> tuple[tuple[str, int], ...]:
        """Planned runs that have not ended, or whose end nothing vouches for."""
        ended = {run.cell for run in self.runs if run.status in ("done", "diverged")}
        return tuple(cell for cell in self.planned if cell not in ended or cell in self.unsealed)

    @property
    def sha256(self) -> str:
        """Hash of the evidence: the seals of every run, its items' among them where it has any, in the plan's order."""
        seals = {
            run.cell: [
                run.status,
                run.metrics_sha256,
                run.outcome_sha256,
                *([] if run.items_sha256 is None else [run.items_sha256]),
            ]
            for run in self.runs
        }
        return sha256_of([[variant, seed, seals.get((variant, seed))] for variant, seed in self.planned])

    def lines(self, metric: str) -> dict[tuple[str, int], Line]:
        """(variant, seed) -> steps and values of one metric in order, of every run that recorded it, in order.

        Raises `EvidenceError` where values are withheld.
        """
        if self.withheld:
            raise EvidenceError(
                f"values of {metric} while {len(self.missing)} of {len(self.planned)} planned runs are missing",
                required="a finished study, or a look that the ledger holds",
                fix='ablate status STUDY --results --reason "..."',
            )
        return self._stretches.of(metric)

    def curve(self, metric: str) -> pd.DataFrame:
        """`lines` as one frame: a row per arm, seed and step, with the columns variant, seed, step, value."""
        # One stretch per run, in the order of the runs: the columns below are these stretches, one after
        # another.
        line_by_cell = self.lines(metric)
        sizes = [len(steps) for steps, _ in line_by_cell.values()]
        return pd.DataFrame(
            {
                "variant": np.repeat(np.array([variant for variant, _ in line_by_cell], dtype=object), sizes),
                "seed": np.repeat(np.array([seed for _, seed in line_by_cell], dtype=np.int64), sizes),
                "step": np.concatenate([np.empty(0, np.int64), *(steps for steps, _ in line_by_cell.values())]),
                "value": np.concatenate([np.empty(0), *(values for _, values in line_by_cell.values())]),
            }
        ).astype({"variant": str})

    def final(self, metric: str) -> dict[tuple[str, int], float]:
        """The value at the last step of every finished run that recorded the metric there, by (arm, seed)."""
        # A run that diverged has no final value: what it had at its last step is not the result of the recipe.
        last_step_by_cell = {run.cell: run.steps for run in self.runs if run.status == "done"}
        value_by_cell = {}
        for cell, (steps, values) in self.lines(metric).items():
            # The last row at or before the last step; it counts only where it is of that very step.
            last = int(np.searchsorted(steps, last_step_by_cell.get(cell, -1), side="right")) - 1
            if cell in last_step_by_cell and last >= 0 and steps[last] == last_step_by_cell[cell]:
                value_by_cell[cell] = float(values[last])
        return value_by_cell

    @cached_property
    def _stretches(self) -> _Stretches:
        return _Stretches.of_table(self.metrics)


@dataclass(frozen=True)
class _Stretches:
    """A table of metrics in stretches of rows: one run, one metric, steps in order. A table of many rows is looked
    through once, not for every metric."""

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    ends: npt.NDArray[np.intp]
    """Where each stretch ends, which is where the next begins."""
    cells: list[tuple[str, int]]
    """Whose run each stretch is."""
    metrics: npt.NDArray[np.integer[Any]]
    """Which metric each is of: a place in `names`."""
    names: list[str]

    @classmethod
    def of_table(cls, table: pd.DataFrame) -> _Stretches:
        """The stretches of a table, sorted only if it is not (`gather` sorts)."""
        variants, variant_names = _coded(table["variant"])
        metrics, names = _coded(table["metric"])
        seeds, steps = (table[name].to_numpy(np.int64) for name in ("seed", "step"))
        # In the order in which a stretch is told from the next: the first three say whose it is, the fourth its
        # order.
        columns = [variants, seeds, metrics, steps, table["value"].to_numpy(np.float64)]
        ends = _ends(columns)
        keys = zip(*(column[ends - 1].tolist() for column in columns[:3]), strict=True)
        # A new key at every end, and steps that fall at ends alone: then the table is in stretches already.
        falling = np.flatnonzero(steps[1:] < steps[:-1]) + 1
        if len(set(keys)) < len(ends) or not np.isin(falling, ends).all():
            order = np.lexsort(columns[3::-1])  # the last key of lexsort is the first to sort by
            columns = [column[order] for column in columns]
            ends = _ends(columns)
        variants, seeds, metrics, steps, values = columns
        # The last row of a stretch speaks for all of its rows: run and metric are the same in each.
        cells = [
            (variant_names[variant], seed)
            for variant, seed in zip(variants[ends - 1].tolist(), seeds[ends - 1].tolist(), strict=True)
        ]
        return cls(steps, values, ends, cells, metrics[ends - 1], names)

    def of(self, metric: str) -> dict[tuple[str, int], Line]:
        """The lines of one metric, by run."""
        if metric not in self.names:
            return {}
        line_by_cell = {}
        for stretch in np.flatnonzero(self.metrics == self.names.index(metric)).tolist():
            rows = slice(int(self.ends[stretch - 1]) if stretch else 0, int(self.ends[stretch]))
            line_by_cell[self.cells[stretch]] = self.steps[rows], self.values[rows]
        return dict(sorted(line_by_cell.items()))


def _coded(column: pd.Series[Any]) -> tuple[npt.NDArray[np.integer[Any]], list[str]]:
    """Texts as places in a list of them."""
    coded = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    codes = coded.cat.codes.to_numpy()
    # A row without a text has the code -1, which would name the last text there is.
    assert (codes >= 0).all(), f"a row without a {column.name}"
    return codes, [str(text) for text in coded.cat.categories]


def _ends(columns: list[npt.NDArray[Any]]) -> npt.NDArray[np.intp]:
    """Where variant, seed or metric change, and where the table ends."""
    size = len(columns[0])
    changed = np.zeros(max(size - 1, 0), dtype=bool)
    for column in columns[:3]:
        changed |= column[1:] != column[:-1]
    return np.append(np.flatnonzero(changed) + 1, [size] if size else []).astype(np.intp)
