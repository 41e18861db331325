"""What the zero- and few-shot tasks of a run come to: every `harness/` metric, its unit and its definition.

Those that are plain means over scored items stand in `prereg.metrics.items`, because seeds x items can judge them; the
rest stands here. `harness_metric` finds both. An *asking* is one item under one number of shots and one prompt; an item
is asked once for each pair of them, and its score is the mean over its askings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from prereg.metrics.catalogue import Better
from prereg.metrics.items import ITEM_METRICS


@dataclass(frozen=True)
class HarnessMetric:
    """The declaration of one metric of the tasks."""

    name: str
    unit: str
    better: Better
    definition: str


_NORMALISED = "the same with every log-likelihood divided by the number of characters of its choice"

_DECLARED = (
    HarnessMetric(
        "harness/macro_accuracy_median_prompt",
        "share",
        "higher",
        "median over the prompts of a task pack of the macro accuracy under that prompt alone",
    ),
    HarnessMetric(
        "harness/macro_accuracy_spread_prompt",
        "share",
        "neither",
        "largest minus smallest macro accuracy over the prompts of a task pack",
    ),
    HarnessMetric(
        "harness/ece",
        "share",
        "lower",
        "expected calibration error over all askings (Guo et al. 2017; 15 bins of equal width): the probability of the "
        "answer, a softmax over the choices' log-likelihoods, against the share of right answers",
    ),
    HarnessMetric("harness/ece_normalised", "share", "lower", f"harness/ece, {_NORMALISED}"),
    HarnessMetric(
        "harness/brier",
        "",
        "lower",
        "mean over all askings of the squared distance between the softmax over the choices' log-likelihoods and the "
        "right answer, summed over choices (Brier 1950): 0 to 2, and 0.5 for even odds between two choices",
    ),
    HarnessMetric("harness/brier_normalised", "", "lower", f"harness/brier, {_NORMALISED}"),
    HarnessMetric(
        "harness/truncated",
        "",
        "neither",
        "requests (a prompt with one choice) longer than the model's context, whose beginning was not seen",
    ),
    HarnessMetric(
        "harness/unencodable",
        "",
        "neither",
        "items left out, for every variant alike, because the tokenizer has no token for some character of theirs",
    ),
)

HARNESS_FAMILIES = (
    HarnessMetric(
        "harness/macro_accuracy_prompt_N",
        "share",
        "higher",
        "macro accuracy under prompt N of the task pack alone (from 0)",
    ),
)
"""Metrics of which there is one a prompt; N stands for its number."""

HARNESS_METRICS: dict[str, HarnessMetric] = {metric.name: metric for metric in _DECLARED}
_PATTERNS = {re.compile(re.escape(one.name).replace("_N", r"_(0|[1-9]\d{0,3})")): one for one in HARNESS_FAMILIES}


def harness_metric(name: str) -> HarnessMetric | None:
    """The declaration of a metric of the tasks, a mean over items or not; none for any other name."""
    item = ITEM_METRICS.get(name)
    if item is not None:
        return HarnessMetric(item.name, item.unit, item.better, item.definition)
    if name in HARNESS_METRICS:
        return HARNESS_METRICS[name]
    for pattern, family in _PATTERNS.items():
        found = pattern.fullmatch(name)
        if found is not None:
            return replace(family, name=name, definition=family.definition.replace("prompt N", f"prompt {found[1]}"))
    return None


def harness_names() -> tuple[str, ...]:
    """Every name that can be claimed; families by their own."""
    return (*ITEM_METRICS, *ITEM_METRICS.families, *HARNESS_METRICS, *(family.name for family in HARNESS_FAMILIES))


def shots_of(name: str) -> int | None:
    """The number of shots that a metric is about; none where it is about all that were declared."""
    found = re.fullmatch(r"harness/\w+_shots_(0|[1-9]\d{0,3})", name)
    return int(found[1]) if found else None


def prompt_of(name: str) -> int | None:
    """The prompt that a metric is about; none where it is about all of the pack."""
    found = re.fullmatch(r"harness/\w+_prompt_(0|[1-9]\d{0,3})", name)
    return int(found[1]) if found else None
