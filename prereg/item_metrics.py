"""Metrics that are means over scored items: what a claim names so that seeds x items can judge it.

The one place where such a metric is defined. A run's items table holds one score an item under the name in `scores`;
a metric says how scores become its value:

    items    every item counts the same, whatever its task
    tasks    every task counts the same: the mean over tasks of the mean over a task's items. A task is then the unit
             that is sampled, so that over new items the metric asks for `clusters: tasks`

They stand apart from `prereg.metrics`, which is what the built-in trainer writes along its curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prereg.metrics import Better


@dataclass(frozen=True)
class ItemMetric:
    """The declaration of one metric over items."""

    name: str
    scores: str
    """The metric of the items table that it averages."""
    counts_alike: Literal["items", "tasks"]
    """What has the same weight in the mean."""
    unit: str
    better: Better
    definition: str


_DECLARED = (
    ItemMetric(
        "harness/accuracy",
        "harness/accuracy",
        "items",
        "share",
        "higher",
        "share of the items of all tasks that are answered correctly",
    ),
    ItemMetric(
        "harness/macro_accuracy",
        "harness/accuracy",
        "tasks",
        "share",
        "higher",
        "mean over tasks of the share of a task's items that are answered correctly",
    ),
)

ITEM_METRICS: dict[str, ItemMetric] = {metric.name: metric for metric in _DECLARED}
