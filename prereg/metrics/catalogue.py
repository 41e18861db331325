"""Every metric the built-in trainer records: name, unit, which way is better, how it is defined.

The trainer writes these names, claims are checked against them, the judge reads the direction of
`does_not_worsen` here, and reports take their units from here. A metric is defined once. What is declared
stands here, in `prereg.metrics.declarations` and in `prereg.metrics.declarations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from prereg.metrics.declarations import (
    CALIBRATION,
    CALIBRATION_FAMILIES,
    INSIDE,
    INSIDE_FAMILIES,
    MOVING,
    MOVING_FAMILIES,
    QUALITY,
    SUITES,
    Better,
    Counted,
    Metric,
    Suite,
)

__all__ = ["METRICS", "Better", "Catalogue", "Metric", "Suite"]


def _timed(name: str, unit: str, better: Better, suite: Suite, definition: str, *, reference: str = "") -> Metric:
    return Metric(name, unit, better, suite, definition, repeatable=False, reference=reference)


_SPEED: Final = (
    _timed(
        "speed/tokens_per_s",
        "tokens/s",
        "higher",
        "speed",
        "training tokens consumed / seconds in training steps, evaluation left out",
    ),
    _timed("speed/eval_s", "s", "lower", "speed", "seconds spent in evaluation so far"),
    *(
        _timed(f"speed/measure_{suite}_s", "s", "lower", "speed", f"seconds of the suite {suite} in this evaluation")
        for suite in SUITES
        if suite not in ("gradients", "speed")
    ),
    _timed(
        "speed/measure_gradients_s",
        "s",
        "lower",
        "speed",
        "seconds of the suite gradients in this evaluation and the step before it; the norms taken in every step are "
        "part of the step",
    ),
    _timed("speed/measure_own_s", "s", "lower", "speed", "seconds of the study's own metrics in this evaluation"),
)

_COST: Final = (
    _timed(
        "cost/inference_tokens_per_s",
        "tokens/s",
        "higher",
        "cost",
        "tokens of one forward pass over measure.inference.batch windows of measure.inference.length / median seconds "
        "of measure.inference.repeats passes, after one that is not counted",
    ),
    _timed(
        "cost/peak_memory",
        "bytes",
        "lower",
        "cost",
        "largest resident memory of the process that trained, since the run began or was taken up, libraries and what "
        "earlier runs of the process left behind included; recorded where the system lets a process start that count "
        "anew (Linux)",
    ),
    Metric(
        "cost/flops_per_token",
        "FLOP/token",
        "lower",
        "cost",
        "arithmetic of training on one token, forward and backward: 6 x weights that take part in products (looking up "
        "an embedding multiplies nothing) + 12 x layers x heads x head size x context (`prereg.size`)",
        reference="Chowdhery et al. 2022, appendix B",
    ),
    _timed(
        "cost/flops_per_s",
        "FLOP/s",
        "higher",
        "cost",
        "cost/flops_per_token x training tokens consumed / seconds in training steps",
    ),
    _timed(
        "cost/mfu",
        "share",
        "higher",
        "cost",
        "cost/flops_per_s / the fastest of three products of two 1024 x 1024 matrices in the registered arithmetic, "
        "timed in the same process right after training: a limit that was measured, not a maker's figure",
        reference="Chowdhery et al. 2022",
    ),
    _timed(
        "cost/energy",
        "J",
        "lower",
        "cost",
        "energy of the processor packages over the run by their own counters (RAPL), everything else that ran on the "
        "machine included; recorded where the counters can be read and the run was made in one go",
        reference="David et al. 2010",
    ),
)

OF_SOURCES = ("val/loss", "val/bits_per_byte")
"""Metrics that are recorded of each source of a mixture too, as METRIC/SOURCE."""
_SOURCE = re.compile(rf"({'|'.join(OF_SOURCES)})/([A-Za-z0-9][A-Za-z0-9_-]*)")
_NUMBER = r"(0|[1-9]\d{0,3})"


class Catalogue(Mapping[str, Metric]):
    """Every metric by name; a member of a family is found by its own name, and is not listed."""

    def __init__(self, declared: tuple[Metric, ...], families: tuple[Metric, ...]) -> None:
        self.families = families
        """Metrics of which there is one a block or a bin; N stands for its number."""
        self._declared = {metric.name: metric for metric in declared}
        assert len(self._declared) == len(declared), "a metric is declared twice"
        self._families = {
            re.compile(re.escape(family.name).replace("_N", f"_{_NUMBER}")): family for family in families
        }

    def __getitem__(self, name: str) -> Metric:
        if name in self._declared:
            return self._declared[name]
        for pattern, family in self._families.items():
            found = pattern.fullmatch(name)
            if found is not None:
                definition = family.definition.replace(" N (from 0)", f" {found[1]} (from 0)")
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
        return self._number(name, "block")

    def bin(self, name: str) -> int | None:
        """The bin of confidence that a metric is about; none where it is about no single one."""
        return self._number(name, "bin")

    def _number(self, name: str, counted: Counted) -> int | None:
        found = (pattern.fullmatch(name) for pattern, family in self._families.items() if family.counted == counted)
        return next((int(match[1]) for match in found if match is not None), None)


def source_of(name: str) -> str | None:
    """The source of a mixture that a metric is about; none where it is about no single one."""
    found = _SOURCE.fullmatch(name)
    return found[2] if found else None


METRICS = Catalogue(
    (*QUALITY, *CALIBRATION, *MOVING, *INSIDE, *_SPEED, *_COST),
    (*CALIBRATION_FAMILIES, *INSIDE_FAMILIES, *MOVING_FAMILIES),
)
