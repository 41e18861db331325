"""What the judge and the report see of runs: sealed records, the plan, the ledger's entries. Nothing else.

Reading is separate from judging: this module believes a run only when its seals match, says what
does not match, and draws no conclusion from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ablate.records.run_record import RunRecord
from prereg.canon import sha256_of
from prereg.errors import EvidenceError
from prereg.ledger import Entry

ITEM_COLUMNS = ("variant", "seed", "task", "item", "item_sha256", "metric", "value")
METRIC_COLUMNS = ("variant", "seed", "step", "metric", "value")


@dataclass(frozen=True)
class Evidence:
    """The evidence of one registration, as found on disk."""

    planned: tuple[tuple[str, int], ...]
    runs: tuple[RunRecord, ...]
    metrics: pd.DataFrame
    broken: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    ledger: tuple[Entry, ...] = ()
    elsewhere: tuple[Entry, ...] = ()
    """Entries of other studies of the ledger: seals of an outcome that this one sealed later, and looks at outcomes of
    those studies before this registration."""
    ledger_faults: tuple[str, ...] = ()
    ledger_head: str = ""
    unsealed: tuple[tuple[str, int], ...] = ()
    """Cells whose run.json claims an end that its seals or the ledger do not bear out."""
    items: pd.DataFrame | None = None
    """One row an item, arm, seed and metric (`ITEM_COLUMNS`), where items were scored; none where no run has any."""
    withheld: bool = False
    """Whether both tables were left unread because planned runs are missing: reading them would be an early look."""

    @property
    def missing(self) -> tuple[tuple[str, int], ...]:
        """Planned runs that have not ended, or whose end nothing vouches for."""
        ended = {(run.variant, run.seed) for run in self.runs if run.status in ("done", "diverged")}
        return tuple(cell for cell in self.planned if cell not in ended or cell in self.unsealed)

    @property
    def sha256(self) -> str:
        """Hash of the evidence: the seals of every run, its items' among them where it has any, in the plan's order."""
        seals = {
            (run.variant, run.seed): [
                run.status,
                run.metrics_sha256,
                run.outcome_sha256,
                *([] if run.items_sha256 is None else [run.items_sha256]),
            ]
            for run in self.runs
        }
        return sha256_of([[variant, seed, seals.get((variant, seed))] for variant, seed in self.planned])

    def curve(self, metric: str) -> pd.DataFrame:
        """variant, seed, step, value of one metric, in order. Raises `EvidenceError` where values are withheld."""
        self._require_open(metric)
        return self._rows(self.metrics["metric"] == metric)

    def _require_open(self, metric: str) -> None:
        if self.withheld:
            raise EvidenceError(
                f"values of {metric} while {len(self.missing)} of {len(self.planned)} planned runs are missing",
                required="a finished study, or a look that the ledger holds",
                fix='ablate peek STUDY --reason "..."',
            )

    def _rows(self, wanted: pd.Series[bool] | npt.NDArray[np.bool_]) -> pd.DataFrame:
        """Some rows in order, their variants as plain texts, which tables of many rows do not hold (`gather`)."""
        rows = self.metrics.loc[wanted, ["variant", "seed", "step", "value"]]
        return rows.sort_values(["variant", "seed", "step"], ignore_index=True).astype({"variant": str})

    def final(self, metric: str) -> dict[tuple[str, int], float]:
        """The value at the last evaluated step of every finished run that recorded the metric."""
        done = {(run.variant, run.seed): run.steps for run in self.runs if run.status == "done"}
        self._require_open(metric)
        # Of the metric's rows alone the step is looked at: a report asks for every metric in turn.
        wanted = (self.metrics["metric"] == metric).to_numpy(copy=True)
        wanted[wanted] = self.metrics["step"][wanted].isin(set(done.values()))
        rows = self._rows(wanted)
        columns = (rows["variant"].tolist(), rows["seed"].tolist(), rows["step"].tolist(), rows["value"].tolist())
        return {
            (variant, seed): value
            for variant, seed, step, value in zip(*columns, strict=True)
            if done.get((variant, seed)) == step
        }
