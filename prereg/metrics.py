"""Every metric the built-in trainer records: name, unit, which way is better, how it is defined.

The trainer writes these names, claims are checked against them, the judge reads the direction of
`does_not_worsen` here, and reports take their units from here. A metric is defined once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Better = Literal["lower", "higher", "neither"]
Suite = Literal["loss", "calibration", "activations", "gradients", "speed"]


@dataclass(frozen=True)
class Metric:
    """The declaration of one metric."""

    name: str
    unit: str
    better: Better
    suite: Suite
    definition: str
    repeatable: bool = True
    """Whether the same seed on the same machine gives the same bits (timings do not)."""
    raw_scale: bool = True
    """Whether a mean of raw differences is a sensible estimand (perplexity wants its logarithm)."""


_DECLARED = (
    Metric(
        "train/loss",
        "nats/token",
        "lower",
        "loss",
        "mean cross-entropy of the step's own batch, before the update, with dropout as trained",
    ),
    Metric(
        "val/loss",
        "nats/token",
        "lower",
        "loss",
        "mean cross-entropy over every token of the validation split, in disjoint windows of the context length",
    ),
    Metric("val/perplexity", "", "lower", "loss", "exp(val/loss)", raw_scale=False),
    Metric(
        "val/bits_per_byte",
        "bits/byte",
        "lower",
        "loss",
        "summed cross-entropy over the validation split / ln 2 / bytes of its UTF-8 text",
    ),
    Metric(
        "val/accuracy",
        "share",
        "higher",
        "loss",
        "share of validation tokens that are the most probable next token (ties: lowest id)",
    ),
    Metric(
        "grad/norm",
        "",
        "neither",
        "gradients",
        "global L2 norm of the gradient before clipping, mean over the steps since the last evaluation",
    ),
    Metric(
        "embedding/norm",
        "",
        "neither",
        "activations",
        "mean over validation positions (first 16 windows) of the L2 norm of the first block's input",
    ),
    Metric(
        "speed/tokens_per_s",
        "tokens/s",
        "higher",
        "speed",
        "training tokens consumed / seconds in training steps, evaluation left out",
        repeatable=False,
    ),
    Metric("speed/eval_s", "s", "lower", "speed", "seconds spent in evaluation so far", repeatable=False),
)

_FAMILIES = (
    Metric(
        "grad/layer_N",
        "",
        "neither",
        "gradients",
        "L2 norm of the gradient of block N (from 0) before clipping, mean over the steps since the last evaluation",
    ),
)
"""Metrics of which there is one a block; N stands for its number."""

OF_SOURCES = ("val/loss", "val/bits_per_byte")
"""Metrics that are recorded of each source of a mixture too, as METRIC/SOURCE."""
_SOURCE = re.compile(rf"({'|'.join(OF_SOURCES)})/([A-Za-z0-9][A-Za-z0-9_-]*)")
_NUMBER = r"(0|[1-9]\d{0,3})"


class Catalogue(Mapping[str, Metric]):
    """Every metric by name; a member of a family is found by its own name, and listed by the family's."""

    def __init__(self, declared: tuple[Metric, ...], families: tuple[Metric, ...]) -> None:
        self._declared = {metric.name: metric for metric in declared}
        self._families = {
            re.compile(re.escape(family.name).replace("_N", f"_{_NUMBER}")): family for family in families
        }

    def __getitem__(self, name: str) -> Metric:
        if name in self._declared:
            return self._declared[name]
        for pattern, family in self._families.items():
            found = pattern.fullmatch(name)
            if found is not None:
                definition = family.definition.replace("block N (from 0)", f"block {found[1]} (from 0)")
                return replace(family, name=name, definition=definition)
        source = source_of(name)
        if source is not None:
            whole = self._declared[name.removesuffix(f"/{source}")]
            of_part = f"the validation part of '{source}'"
            return replace(whole, name=name, definition=whole.definition.replace("the validation split", of_part))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def layer(self, name: str) -> int | None:
        """The block that a metric is about; none where it is about no single one."""
        found = next((m for pattern in self._families if (m := pattern.fullmatch(name))), None)
        return int(found[1]) if found else None


def source_of(name: str) -> str | None:
    """The source of a mixture that a metric is about; none where it is about no single one."""
    found = _SOURCE.fullmatch(name)
    return found[2] if found else None


METRICS = Catalogue(_DECLARED, _FAMILIES)
