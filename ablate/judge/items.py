"""Inference over seeds x items: each item is scored under every seed, so an item's luck is shared by all seeds.

The paired difference of seed s on item i is y[s, i] = mean + a_s + b_i + e_si. Items are paired by task, item and
content hash. What the verdict speaks of is declared (`estimand`):

    new_seeds             the items are the ones that matter: the paired t over the seeds' means, df = S - 1
    new_seeds_and_items   both are samples: the two-way standard error below

A t over seeds alone ignores that all of them met the same items: at ten seeds its 95% interval covers about 71%.

**Two-way standard error** (Cornfield and Tukey 1956; df after Satterthwaite 1946). With mean squares of seeds, items
and their interaction, the variance components are (MS_S - MS_SI) / I and (MS_I - MS_SI) / S, and

    SE^2 = (MS_S + MS_I - MS_SI) / (S I)     df = (sum of terms)^2 / sum of (term^2 / its df)

A component whose estimate is not positive is taken to be 0 and its mean square leaves the sum: SE^2 is then the other
factor's MS / (S I) with that factor's df, or MS_SI / (S I) when neither is positive.

**Clusters.** Where a suite says that items of a task belong together (a paradigm), tasks replace items as the second
factor. Tasks may differ in size; the estimate stays the mean over items, and a task counts by its linearised share
(the ratio estimator, Cochran 1977, ch. 6): mean + C n_c / N (mean of the task - mean), its own mean if sizes are equal.

**Metrics that count tasks alike** (`prereg.item_metrics`) are means of tasks' means, and those are the values here.

**Pigeonhole bootstrap** (McCullagh 2000, Owen 2007): seeds and items are drawn independently, each with replacement,
and every drawn cell is counted as often as its row times its column. Its percentile interval is description: its
variance carries the interaction three times (Owen 2007), so it is wide where that is large, and with three seeds
narrow where it is small.

The trap: `scipy.stats.bootstrap` with its default `batch=None` builds resamples x items at once, 1.9 GB at 10,000.
Here draws are counts, items with equal columns are drawn as one kind (exactly, by the multinomial), and no chunk
exceeds `_CHUNK` cells.

Nothing here reads records: `cross` takes the table of items that `Evidence` carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from ablate.judge.procedure import EQUAL, TINY, Floats, NoTestError, PairedT, Procedure, Side
from ablate.judge.resample import RESAMPLES
from ablate.judge.verdict import Estimand, Interval, ItemLayout
from prereg.item_metrics import ITEM_METRICS

_CHUNK: Final = 1_500_000
"""Cells of resampling counts held at a time: 12 MB as integers and as many as floats."""
_FEW_KINDS: Final = 2_000
"""Up to so many different columns, counts are drawn kind by kind; above, item by item, which is then cheaper."""


@dataclass(frozen=True)
class Crossed:
    """Paired differences, seeds x items, and which cluster each item belongs to (itself, where none is declared)."""

    values: Floats
    seeds: tuple[int, ...]
    clusters: npt.NDArray[np.int64]
    averaged: int | None = None
    """Items behind the values, where these are means of tasks; none where they are items."""

    def layout(self, estimand: Estimand) -> ItemLayout:
        """What is crossed with the seeds, in numbers."""
        n_units = self.sizes.size
        n_items = self.values.shape[1] if self.averaged is None else self.averaged
        single = self.averaged is None and n_units == n_items
        return ItemLayout(n_items=n_items, unit="items" if single else "tasks", n_units=n_units, estimand=estimand)

    @property
    def sizes(self) -> Floats:
        """Items of each cluster."""
        return np.bincount(self.clusters).astype(np.float64)

    @property
    def totals(self) -> Floats:
        """Sums over the items of each cluster, seeds x clusters."""
        return np.stack([np.bincount(self.clusters, weights=row) for row in self.values])

    @property
    def cells(self) -> Floats:
        """Seeds x clusters, such that plain means are means over items: the values themselves without clusters."""
        sizes, mean = self.sizes, self.values.mean()
        return np.asarray(mean + sizes.size / sizes.sum() * (self.totals - sizes * mean))


def cross(
    items: pd.DataFrame,
    metric: str,
    left: Mapping[str, float],
    right: Mapping[str, float],
    seeds: Sequence[int],
    *,
    clustered: bool = False,
) -> Crossed:
    """Left minus right on every item and seed. Raises `NoTestError` when the arms did not all meet the same items."""
    if metric not in ITEM_METRICS:
        raise NoTestError(f"{metric} is no mean over items ({', '.join(ITEM_METRICS)} are)")
    arms = list(dict.fromkeys([*left, *right]))
    named = items["seed"].isin(list(seeds)) & items["variant"].isin(arms)
    rows = items[(items["metric"] == ITEM_METRICS[metric].scores) & named]
    key = ["task", "item"]
    contents = rows.groupby(key)["item_sha256"].nunique()
    if (contents > 1).any():
        task, item = contents[contents > 1].index[0]
        raise NoTestError(f"{int((contents > 1).sum())} item(s) differ in content between runs, first {task}/{item}")
    if rows.duplicated(["variant", "seed", *key]).any():
        raise NoTestError(f"{metric} is recorded twice for some item of a run")
    wide = rows.pivot(index=["variant", "seed"], columns=key, values="value")
    wide = wide.reindex(pd.MultiIndex.from_product([arms, list(seeds)], names=["variant", "seed"]))
    wide = wide.sort_index(axis=1)  # the order of rows in the table moves no draw
    lacking = int((~np.isfinite(wide.to_numpy(np.float64))).sum())
    if wide.shape[1] == 0 or lacking:
        raise NoTestError(
            f"{lacking} of {wide.size} values of {metric} are missing: every arm and seed must score the same items"
        )
    table = wide.to_numpy(np.float64).reshape(len(arms), len(seeds), -1)
    weights = np.array([left.get(arm, 0.0) - right.get(arm, 0.0) for arm in arms])
    values = np.tensordot(weights, table, axes=1)
    tasks = np.asarray(pd.factorize(wide.columns.get_level_values("task"))[0], dtype=np.int64)
    n_items = values.shape[1]
    if ITEM_METRICS[metric].counts_alike == "tasks":
        by_task = Crossed(values, tuple(seeds), tasks)
        means = np.asarray(by_task.totals / by_task.sizes)
        return Crossed(means, tuple(seeds), np.arange(means.shape[1], dtype=np.int64), averaged=n_items)
    return Crossed(values, tuple(seeds), tasks if clustered else np.arange(n_items, dtype=np.int64))


class TwoWay(Procedure):
    """t with the two-way standard error; where the items are fixed, the paired t over the seeds' means and no other."""

    name = "items"
    words = "two-way t over seeds and items"

    def __init__(
        self, crossed: Crossed, *, estimand: Estimand = "new_seeds_and_items", differences: Floats | None = None
    ) -> None:
        """`differences` are the seeds' means as whoever asks has them already; equal to the items' but for rounding."""
        cells = crossed.cells
        means = cells.mean(axis=1)
        size = float(np.abs(cells).max())
        if differences is not None:
            assert np.allclose(differences, means, rtol=1e-9, atol=1e-9 * size), (differences, means)
        super().__init__(means if differences is None else differences)
        self.seeds = crossed.seeds
        self.crossed = crossed
        self.items = crossed.layout(estimand)
        n_seeds, n_units = cells.shape
        unit = self.items.unit
        self.fixed = PairedT(self.differences) if estimand == "new_seeds" else None
        if self.fixed is not None:
            self.words = f"paired t over the seeds' means of {'these' if n_units > 1 else 'this'} {unit}"
            self.se, self.df = self.fixed.se, self.fixed.df
            return
        self.words = f"two-way t over seeds and {unit}"
        if n_units < 2:
            raise NoTestError(f"{n_units} {unit[:-1]}: the variance over {unit} is unknown, not zero")
        variance, self.df, dropped = variance_of_mean(mean_squares(cells), n_seeds, n_units, estimand)
        if variance <= (EQUAL * size) ** 2:
            raise NoTestError(f"the standard error over {n_seeds} seeds and {n_units} {unit} is zero: there is no p")
        self.se = sqrt(variance)
        self.notes += tuple(
            f"the estimated variance of {unit if factor == 'items' else factor} is not positive and was taken as 0"
            for factor in dropped
        )

    @classmethod
    def floor(cls, n: int, side: Side = "two") -> float:
        return TINY

    def p(self, null: float, side: Side) -> float:
        if self.fixed is not None:
            return self.fixed.p(null, side)
        assert self.se is not None and self.df is not None
        t = (self.mean - null) / self.se
        tail = {"two": -abs(t), "greater": -t, "less": t}[side]
        return max(float(special.stdtr(self.df, tail)) * (2.0 if side == "two" else 1.0), TINY)

    def bounds(self, alpha: float) -> tuple[float, float] | None:
        if self.fixed is not None:
            return self.fixed.bounds(alpha)
        assert self.se is not None and self.df is not None
        half = float(special.stdtrit(self.df, 1.0 - alpha / 2.0)) * self.se
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class MeanSquares:
    """Of the crossed layout without replication."""

    seeds: float
    items: float
    interaction: float


def mean_squares(cells: Floats) -> MeanSquares:
    """The two-way analysis of variance of seeds x items."""
    n_seeds, n_items = cells.shape
    mean = cells.mean()
    rows, columns = cells.mean(axis=1) - mean, cells.mean(axis=0) - mean
    rest = cells - mean - rows[:, None] - columns[None, :]
    return MeanSquares(
        seeds=float(n_items * (rows**2).sum() / (n_seeds - 1)),
        items=float(n_seeds * (columns**2).sum() / (n_items - 1)),
        interaction=float((rest**2).sum() / ((n_seeds - 1) * (n_items - 1))),
    )


def variance_of_mean(
    squares: MeanSquares, n_seeds: int, n_items: int, estimand: Estimand
) -> tuple[float, float, tuple[str, ...]]:
    """(SE^2, Satterthwaite df, factors whose component was taken as 0)."""
    cells = n_seeds * n_items
    by_seed, by_item, both = float(n_seeds - 1), float(n_items - 1), float((n_seeds - 1) * (n_items - 1))
    if estimand == "new_seeds":
        return squares.seeds / cells, by_seed, ()
    seeds, items = squares.seeds > squares.interaction, squares.items > squares.interaction
    if seeds and items:
        total = squares.seeds + squares.items - squares.interaction
        spread = squares.seeds**2 / by_seed + squares.items**2 / by_item + squares.interaction**2 / both
        return total / cells, total**2 / spread, ()
    if seeds:
        return squares.seeds / cells, by_seed, ("items",)
    if items:
        return squares.items / cells, by_item, ("seeds",)
    return squares.interaction / cells, both, ("seeds", "items")


def pigeonhole(crossed: Crossed, rng: np.random.Generator, *, resamples: int = RESAMPLES) -> Floats:
    """Means over resampled seeds x resampled items (or clusters), each factor drawn by itself."""
    columns = np.vstack([crossed.totals, crossed.sizes])
    n_seeds, n_items = len(crossed.seeds), columns.shape[1]
    kinds, count = np.unique(columns, axis=1, return_counts=True)
    grouped = kinds.shape[1] <= _FEW_KINDS
    if not grouped:
        kinds = columns
    made = np.empty(resamples)
    step = max(1, _CHUNK // kinds.shape[1])
    for start in range(0, resamples, step):
        many = min(step, resamples - start)
        if grouped:
            drawn = rng.multinomial(n_items, count / n_items, size=many)
        else:
            places = rng.integers(0, n_items, size=(many, n_items), dtype=np.int64)
            places += n_items * np.arange(many)[:, None]
            drawn = np.bincount(places.ravel(), minlength=many * n_items).reshape(many, n_items)
        sums = drawn @ kinds.T
        seeds = rng.multinomial(n_seeds, np.full(n_seeds, 1.0 / n_seeds), size=many)
        made[start : start + many] = (sums[:, :-1] * seeds).sum(axis=1) / (n_seeds * sums[:, -1])
    return made


def pigeonhole_interval(means: Floats, alpha: float) -> Interval:
    """Percentile interval of the resampled means: description beside the two-way t."""
    rank = max(1, floor(alpha / 2.0 * (means.size + 1)))
    ordered = np.sort(means)
    return Interval(
        low=float(ordered[rank - 1]),
        high=float(ordered[-rank]),
        level=1.0 - alpha,
        method=f"pigeonhole bootstrap, percentile, {means.size} resamples; description only",
    )
