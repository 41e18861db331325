"""Items x seeds, paired: differences from a table of items, and their test; the two-way test is in `two_way.py`.

Items are paired by task, item and content hash. What the verdict speaks of is declared (`estimand`): over these
very items the test is the paired t over the seeds' means; over new ones the two-way test (`two_way`). Nothing here
reads records: `cross` takes the table of items that `Evidence` carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from ablate.judge.readings import rows_of
from ablate.judge.stats.precision import levelled
from ablate.judge.stats.significance_tests import EQUAL, Floats, NoTestError, PairedT, SignificanceTest
from ablate.judge.stats.two_way import Spread, Tail, TwoWay, spread_of, spread_within, tail_of
from ablate.judge.verdict import Estimand, ItemLayout
from prereg.metrics.catalogue import ITEM_METRICS, task_of


@dataclass(frozen=True)
class Crossed:
    """Paired differences, seeds x items, and which cluster each item belongs to (itself, where none is declared)."""

    values: Floats
    clusters: npt.NDArray[np.int64]
    averaged: int | None = None
    """Items behind the values, where these are means of tasks; none where they are items."""
    strata: npt.NDArray[np.int64] | None = None
    """The task of each item, where tasks are fixed and count alike, and items are sampled within them."""

    def layout(self, estimand: Estimand) -> ItemLayout:
        """What is crossed with the seeds, in numbers."""
        n_units = self.sizes.size
        n_items = self.values.shape[1] if self.averaged is None else self.averaged
        single = self.averaged is None and n_units == n_items
        # (sum n)^2 / sum n^2 of cluster sizes n is 1 / sum(share^2) (Kish 1965): how many equal clusters weigh
        # as much.
        unequal = estimand == "new_seeds_and_items" and np.ptp(self.sizes) > 0
        return ItemLayout(
            n_items=n_items,
            unit="items" if single else "tasks",
            n_units=n_units,
            estimand=estimand,
            effective=float(1.0 / (self.weights**2).sum()) if unequal else None,
            strata=None if self.strata is None else int(self.strata[-1]) + 1,
        )

    @property
    def sizes(self) -> Floats:
        """Items of each cluster."""
        return np.bincount(self.clusters).astype(np.float64)

    @property
    def totals(self) -> Floats:
        """Sums over the items of each cluster, seeds x clusters."""
        return np.stack([np.bincount(self.clusters, weights=row) for row in self.values])

    @property
    def weights(self) -> Floats:
        """Share of each cluster in the items; of each item in the mean over strata."""
        if self.strata is not None:
            n_items = np.bincount(self.strata)
            return np.asarray(1.0 / (n_items.size * n_items[self.strata]))
        return np.asarray(self.sizes / self.sizes.sum())

    @property
    def means(self) -> Floats:
        """Means over the items of each cluster, seeds x clusters."""
        return np.asarray(self.totals / self.sizes)


def cross(
    items: pd.DataFrame,
    metric: str,
    left: Mapping[str, float],
    right: Mapping[str, float],
    seeds: Sequence[int],
    *,
    clustered: bool = False,
    new_items: bool = False,
) -> Crossed:
    """Left minus right on every item and seed.

    Parameters
    ----------
    items : data frame
        That of `Evidence`: variant, seed, metric, task, item, item_sha256, value.
    left, right : mapping of arm to weight
        The sides of the claim.
    clustered : bool
        Whether tasks, and not items, are what is sampled.
    new_items : bool
        Whether the verdict speaks of new items: tasks that count alike and are not themselves sampled
        are strata then.

    Raises
    ------
    NoTestError
        Where the arms did not all meet the same items.

    Examples
    --------
    >>> rows = [(arm, 1, "harness/accuracy", "add", item, item, value)
    ...         for arm, values in {"a": (1.0, 1.0), "b": (0.0, 1.0)}.items()
    ...         for item, value in zip("xy", values)]
    >>> columns = ["variant", "seed", "metric", "task", "item", "item_sha256", "value"]
    >>> crossed = cross(pd.DataFrame(rows, columns=columns), rows[0][2], {"a": 1.0}, {"b": 1.0}, [1])
    >>> crossed.values.tolist()
    [[1.0, 0.0]]
    """
    if metric not in ITEM_METRICS:
        raise NoTestError(f"{metric} is no mean over items ({', '.join(ITEM_METRICS)} are)")
    # The rows of these runs, each item once in a run and the same in all: what is refused here the audit
    # refuses too, and `judge_frame` has no audit.
    arms = list(dict.fromkeys([*left, *right]))
    named = items["seed"].isin(list(seeds)) & items["variant"].isin(arms)
    rows = rows_of(items[named], metric)
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
    # A missing item is not left out: which ones are missing may depend on the arm.
    lacking = int((~np.isfinite(wide.to_numpy(np.float64))).sum())
    if wide.shape[1] == 0 or lacking:
        raise NoTestError(
            f"{lacking} of {wide.size} values of {metric} are missing: every arm and seed must score the same items"
        )
    table = wide.to_numpy(np.float64).reshape(len(arms), len(seeds), -1)  # arms x seeds x items
    weights = np.array([left.get(arm, 0.0) - right.get(arm, 0.0) for arm in arms])
    values = np.tensordot(weights, table, axes=1)
    tasks = np.asarray(pd.factorize(wide.columns.get_level_values("task"))[0], dtype=np.int64)
    n_items = values.shape[1]
    # What is sampled: items within tasks, means of tasks, single items, or whole tasks.
    if ITEM_METRICS[metric].counts_alike == "tasks":
        if new_items and not clustered:
            return Crossed(values, np.arange(n_items, dtype=np.int64), strata=tasks)
        by_task = Crossed(values, tasks)
        means = np.asarray(by_task.totals / by_task.sizes)
        return Crossed(means, np.arange(means.shape[1], dtype=np.int64), averaged=n_items)
    by_itself = not clustered or task_of(metric) is not None
    return Crossed(values, np.arange(n_items, dtype=np.int64) if by_itself else tasks)


class SeedsMeans(PairedT):
    """The paired t over the seeds' means of these very items."""

    name = TwoWay.name

    def __init__(self, x: Floats, layout: ItemLayout) -> None:
        super().__init__(x)
        self.items = layout
        self.words = f"paired t over the seeds' means of {'these' if layout.n_units > 1 else 'this'} {layout.unit}"


class OverItems(TwoWay):
    """The two-way test of one table of items."""

    def __init__(self, x: Floats, crossed: Crossed, layout: ItemLayout) -> None:
        """Raises `NoTestError` where there is no standard error."""
        table, weights = crossed.means, crossed.weights
        n_units, unit = weights.size, layout.unit
        if n_units < 2:
            raise NoTestError(f"{n_units} {unit[:-1]}: the variance over {unit} is unknown, not zero")
        spread: Spread
        tail: Tail
        # Items within fixed tasks have a t of the smallest task's df; sampled units a tail of their own weights.
        if crossed.strata is not None:
            spread, df = spread_within(table, crossed.strata)
            tail = lambda critical: 2.0 * float(special.stdtr(df, -critical))  # noqa: E731
            layout = layout.model_copy(update={"df": df})
        else:
            spread, tail = spread_of(table, weights), tail_of(weights)
        if float(spread.half(1.0, 1.0)) <= EQUAL * float(np.abs(table).max()):
            raise NoTestError(f"the standard error over {x.shape[1]} seeds and {n_units} {unit} is zero: there is no p")
        rows = Spread(*(np.array([part], dtype=np.float64) for part in (spread.seeds, spread.units, spread.both)))
        super().__init__(x, rows, tail)
        self.items, self.words = layout, f"two-way t over seeds and {unit}"
        self.task_sizes = crossed.sizes

    @property
    def notes(self) -> tuple[str, ...]:
        if self.items.effective is None:
            return super().notes
        return (
            *super().notes,
            f"{self.items.n_units} tasks of {self.task_sizes.min():.0f} to {self.task_sizes.max():.0f} items weigh "
            f"like {self.items.effective:.3g} of equal size",
        )


def over_items(
    crossed: Crossed,
    *,
    estimand: Estimand = "new_seeds_and_items",
    differences: Floats | None = None,
    rounding: Floats | None = None,
) -> SignificanceTest:
    """The test of seeds and items; where the items are fixed, the paired t over the seeds' means.

    Parameters
    ----------
    crossed : Crossed
        Paired differences, seeds x items.
    estimand : "new_seeds" or "new_seeds_and_items"
        What the verdict speaks of.
    differences : array, optional
        The seeds' means as the caller has them already; equal to the items' but for rounding.
    rounding : array, optional
        How far each of these differences may lie from the one that was meant.

    Raises
    ------
    NoTestError
        Where there is no standard error.

    Examples
    --------
    Over these items the p is that of a t over the seeds' means; over new items it is larger.

    >>> values = np.array([[0.2, 0.5, 0.3], [0.4, 0.9, 0.1], [0.3, 0.8, 0.4]])
    >>> crossed = Crossed(values, np.arange(3))
    >>> these, new = (over_items(crossed, estimand=one) for one in ("new_seeds", "new_seeds_and_items"))
    >>> float(these.p(0.0, "two")[0]) == float(PairedT(values.mean(axis=1)[None]).p(0.0, "two")[0])
    True
    >>> float(these.p(0.0, "two")[0]) < float(new.p(0.0, "two")[0])
    True
    """
    # (seeds,): each seed's weighted mean over units.
    means = np.asarray(crossed.means @ crossed.weights)
    if means.size < 2:
        raise NoTestError(f"{means.size} pair(s); a test needs at least two")
    if differences is not None:
        size = float(np.abs(crossed.means).max())
        assert np.allclose(differences, means, rtol=1e-9, atol=1e-9 * size), (differences, means)
        means = differences if rounding is None else levelled(differences[None, :], rounding[None, :])[0]
    layout = crossed.layout(estimand)
    # These items are all there are: they add no variance, and the seeds' means are one sample.
    if estimand == "new_seeds":
        return SeedsMeans(means[None, :], layout)
    return OverItems(means[None, :], crossed, layout)
