"""Metrics that are means over scored items: what a claim names so that seeds x items can judge it.

The one place where such a metric is defined. A run's items table holds one score an item under the name in `scores`;
a metric says how scores become its value:

    items    every item counts the same, whatever its task
    tasks    every task counts the same: the mean over tasks of the mean over a task's items. A task is then the unit
             that is sampled, so that over new items the metric asks for `clusters: tasks`

An item that is asked several times (with several numbers of shots, or under several prompts) has one score: the share
of its askings that were answered correctly. These metrics stand apart from `prereg.metrics.catalogue`, which is what
the built-in trainer writes along its curve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from prereg.metrics.catalogue import Better

if TYPE_CHECKING:
    from prereg.study.measure import Harness


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

_FAMILIES = (
    ItemMetric(
        "harness/accuracy_shots_N",
        "harness/accuracy_shots_N",
        "items",
        "share",
        "higher",
        "share of the items of all tasks that are answered correctly with N examples in the prompt",
    ),
    ItemMetric(
        "harness/macro_accuracy_shots_N",
        "harness/accuracy_shots_N",
        "tasks",
        "share",
        "higher",
        "mean over tasks of the share of a task's items that are answered correctly with N examples in the prompt",
    ),
)
"""Metrics of which there is one for each number of shots; N stands for it."""


class ItemCatalogue(Mapping[str, ItemMetric]):
    """Every metric over items by name; a member of a family is found by its own name, and not listed."""

    def __init__(self, declared: tuple[ItemMetric, ...], families: tuple[ItemMetric, ...]) -> None:
        self._declared = {metric.name: metric for metric in declared}
        self.families = {family.name: family for family in families}
        self._patterns = {
            re.compile(re.escape(name).replace("_N", r"_(0|[1-9]\d{0,3})")): family
            for name, family in self.families.items()
        }

    def __getitem__(self, name: str) -> ItemMetric:
        if name in self._declared:
            return self._declared[name]
        for pattern, family in self._patterns.items():
            found = pattern.fullmatch(name)
            if found is not None:
                scores, definition = family.scores.replace("_N", f"_{found[1]}"), family.definition
                return replace(family, name=name, scores=scores, definition=definition.replace(" N ", f" {found[1]} "))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


ITEM_METRICS = ItemCatalogue(_DECLARED, _FAMILIES)

PACKS: dict[str, tuple[int, int]] = {"blimp": (67, 1_000), "blimp-prompts": (67, 1_000), "zorro": (23, 0)}
"""Known task packs: how many tasks they hold, and how many items each task has at least (0: not known here)."""


def units_of(metric: str, harness: Harness) -> int | None:
    """How many items, or tasks where these are what is sampled, a mean of this metric is over; none where it is not
    known before the tasks are read."""
    tasks, each = PACKS.get(harness.tasks, (0, 0))
    if harness.clusters == "tasks" or ITEM_METRICS[metric].counts_alike == "tasks":
        return tasks or None
    return tasks * harness.items_per_task if harness.items_per_task <= each else None
