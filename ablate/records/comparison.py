"""Comparison of two records of one run, for `ablate reproduce`: every metric at every step, and the weights.

Nothing is run here.

Bits are compared, not digits: two numbers are equal when all sixty-four bits are. Of numbers that are not, the largest
distances are reported and never the numbers themselves, so that repeating a run of an unfinished study is no look at
its outcome; of such a study only relative ones, since an absolute distance over a relative one is the number. Metrics
whose definition says that they are not repeatable (speed, time) are left out, by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ablate.records.outcome import is_repeatable
from ablate.records.provenance import differing
from ablate.records.rows import Row
from ablate.records.run_record import Provenance
from ablate.records.store import ItemScore
from prereg.frozen import FrozenModel

Compared = Literal["equal", "different", "not compared"]


class Differing(FrozenModel):
    """One part of the provenance in which the two runs differ."""

    part: str
    """Which."""
    sealed: str
    """Of the sealed run."""
    again: str
    """Of the run made again."""


class MetricCompared(FrozenModel):
    """One metric of both runs."""

    metric: str
    """Its name."""
    n: int
    """Steps at which both recorded it."""
    n_different: int
    """Those at which the values differ in any bit."""
    only_sealed: int
    """Steps at which only the sealed run recorded it."""
    only_again: int
    """Steps at which only the run made again did."""
    largest_absolute: float | None = 0.0
    """The largest |a - b|; none while the study is unfinished, for over the relative one it gives the value itself."""
    largest_relative: float = 0.0
    """The largest |a - b| / max(|a|, |b|)."""
    first_step: int | None = None
    """The first step at which the values differ."""

    @property
    def equal(self) -> bool:
        """Whether both recorded it at the same steps, with the same bits."""
        return not (self.n_different or self.only_sealed or self.only_again)


class Reproduction(FrozenModel):
    """What came of making a run again."""

    study: str
    """The study's id."""
    registration: str
    """sha256 of its registration."""
    variant: str
    """The arm."""
    seed: int
    """The seed."""
    steps: int
    """Steps that were compared."""
    of_steps: int
    """Steps of the sealed run."""
    status_sealed: str
    """How the sealed run ended."""
    status_again: str
    """How the other one did; `beginning` where only the first steps were made."""
    unpromised: tuple[str, ...]
    """Why equal bits are not guaranteed here, a sentence each; none where they are."""
    provenance: tuple[Differing, ...]
    """Parts of the provenance that may move a bit and differ."""
    metrics: tuple[MetricCompared, ...]
    """Every repeatable metric of either run, by name."""
    left_out: tuple[str, ...]
    """Metrics that are not repeatable by their definition, and were not compared."""
    weights: Compared
    """The final weights, by their hash."""
    items: Compared
    """Scores of items, where there are any."""
    items_apart: float | None = None
    """The largest relative difference of two scores of one item; none where the same items were not scored."""
    within: float | None = None
    """The largest relative difference that the caller accepts where equal bits are not guaranteed."""
    seconds: float = 0.0
    """What it took."""

    @property
    def exact(self) -> bool:
        """Whether nothing that was compared differs in a bit."""
        # "beginning": only the first steps were made, so there is no end to compare.
        alike = self.status_again in (self.status_sealed, "beginning")
        return alike and all(m.equal for m in self.metrics) and "different" not in (self.weights, self.items)

    @property
    def largest_relative(self) -> float:
        """Over all metrics, and scores of items."""
        return max((*(m.largest_relative for m in self.metrics), self.items_apart or 0.0))

    @property
    def reproduced(self) -> bool:
        """To the bit; or, where that is not guaranteed, at every step within what the caller accepts."""
        if self.exact:
            return True
        # A tolerance excuses distances alone: a lacking step, another end or other items are no rounding.
        same_end = self.status_again in (self.status_sealed, "beginning")
        same_steps = not any(m.only_sealed or m.only_again for m in self.metrics)
        within_tolerance = self.within is not None and self.largest_relative <= self.within
        items_comparable = self.items != "different" or self.items_apart is not None
        return bool(self.unpromised) and same_end and same_steps and within_tolerance and items_comparable


def compare_rows(
    sealed: Sequence[Row], again: Sequence[Row], *, up_to: int
) -> tuple[tuple[MetricCompared, ...], tuple[str, ...]]:
    """Compare the rows of a sealed run with those of the same run made again, bit by bit.

    `up_to` is the last step that counts: of a run made again only in part, later steps are no
    difference.
    Returns one `MetricCompared` per repeatable metric of either run, by name, and the names of those left out.

        >>> from ablate.records.rows import Row
        >>> metrics, left_out = compare_rows([Row(1, "val/loss", 2.0)], [Row(1, "val/loss", 2.5)], up_to=1)
        >>> metrics[0].n_different, metrics[0].largest_relative, left_out
        (1, 0.2, ())
    """
    # One table per run, as a run's rows hold each (metric, step) once: metric -> step -> value.
    tables: list[dict[str, dict[int, float]]] = []
    for rows in (sealed, again):
        table: dict[str, dict[int, float]] = {}
        for row in rows:
            if row.step <= up_to:
                table.setdefault(row.metric, {})[row.step] = row.value
        tables.append(table)
    # Of either run: a metric that only one of them has is a difference, not a gap in the comparison.
    names = sorted(tables[0].keys() | tables[1].keys())
    left_out = tuple(name for name in names if not is_repeatable(name))
    return tuple(
        _compared(name, tables[0].get(name, {}), tables[1].get(name, {})) for name in names if name not in left_out
    ), left_out


def compare_items(sealed: Sequence[ItemScore], again: Sequence[ItemScore]) -> tuple[Compared, float | None]:
    """The scores of items of both runs, whatever the order they are written in.

    And how far apart they lie, at most and relatively: none where they are not scores of the same items.

        >>> from ablate.records.store import ItemScore
        >>> score = ItemScore("blimp", "1", "ab" * 32, "acc", 1.0)
        >>> compare_items([score], [score])
        ('equal', 0.0)
    """
    if not sealed and not again:
        return "not compared", None
    sealed_scores, scores_again = (
        {(i.task, i.item, i.item_sha256, i.metric): i.value for i in items} for items in (sealed, again)
    )
    # The hash of the text is part of the key: the same id with another text is another item.
    if sealed_scores.keys() != scores_again.keys():
        return "different", None
    # By hex(): == would take 0.0 for -0.0, and no NaN for itself.
    differing_pairs = [
        (sealed_scores[key], scores_again[key])
        for key in sealed_scores
        if sealed_scores[key].hex() != scores_again[key].hex()
    ]
    largest = max((_relative(abs(a - b), max(abs(a), abs(b))) for a, b in differing_pairs), default=0.0)
    return "different" if differing_pairs else "equal", largest


def provenance_differences(sealed: Provenance, again: Provenance) -> tuple[Differing, ...]:
    """The parts that may move a bit and are not the same."""
    return tuple(
        Differing(part=part, sealed=str(getattr(sealed, part)), again=str(getattr(again, part)))
        for part in differing(sealed, again)
    )


def _compared(name: str, sealed: dict[int, float], again: dict[int, float]) -> MetricCompared:
    # n counts steps that both have; steps that one lacks are counted apart, since no distance can be given for
    # them.
    both = sorted(sealed.keys() & again.keys())
    # By hex(): == would take 0.0 for -0.0.
    apart = [step for step in both if sealed[step].hex() != again[step].hex()]
    absolute = [abs(sealed[step] - again[step]) for step in apart]
    scales = [max(abs(sealed[step]), abs(again[step])) for step in apart]
    assert all(map(math.isfinite, absolute)), name  # a record holds finite numbers only
    return MetricCompared(
        metric=name,
        n=len(both),
        n_different=len(apart),
        only_sealed=len(sealed.keys() - again.keys()),
        only_again=len(again.keys() - sealed.keys()),
        largest_absolute=max(absolute, default=0.0),
        largest_relative=max(map(_relative, absolute, scales), default=0.0),
        first_step=apart[0] if apart else None,
    )


def _relative(distance: float, scale: float) -> float:
    """Zeros of opposite sign differ in a bit and by nothing."""
    return distance / scale if scale else 0.0
