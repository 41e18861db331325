"""Retried runs at their worst: values for a run of which a start was lost; the check itself is in `sensitivity.py`.

Someone who begins a run again because its value is bad gives up the worst of his pairs. So the pair of such a run is
replaced by the worst of the other pairs of each hypothesis, and by the best, and its p values are found again. Without
pairs (welch) the run takes the worst and the best value of the other runs of its arm. What the lost start
had really recorded is not known, so this is no bound. Without any effect, where the worst run of five lies above the
mean and is begun again once, "supported" at a level of .025 becomes .054, and a verdict of it .036; where every such
run is begun again until it lies below, .209 and .017 (tests/judge/test_retried.py).

takes the study, its values, and the retried runs; gives p values by hypothesis at both ends; raises nothing
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ablate.judge.findings import Values, contrast, judge_hypotheses
from ablate.judge.readings import reading_of
from ablate.judge.stats.null_hypotheses import Nulls, found_nulls
from ablate.judge.stats.significance_tests import TINY
from prereg.registry.looks import Look
from prereg.registry.plan import Cell
from prereg.rule.divergence import End, refutable
from prereg.study.spec import Study

Swap = dict[Cell, Cell]
"""Run -> the run whose value it takes."""


def worst_cases(
    study: Study,
    values: Values,
    retried: Sequence[Cell],
    *,
    look: Look | None,
    items: pd.DataFrame | None,
) -> dict[End, dict[str, Nulls]]:
    """End -> hypothesis -> its p values where its retried runs are at that end. Hypotheses without any are absent."""
    nulls_by_end: dict[End, dict[str, Nulls]] = {"supported": {}, "refuted": {}}
    for name in study.hypotheses:
        mine = [cell for cell in retried if cell[0] in study.claims[name].named]
        if not mine:
            continue
        weighed = []
        # The hypothesis alone is taken to its ends; what that does to its family is `Judgement.possible`'s.
        for swap in _swaps(study, name, values, mine, look):
            moved = judge_hypotheses(
                study,
                _swapped(values, reading_of(study, name), swap),
                look=look,
                items=None if items is None else _swapped_items(items, swap),
            )
            weighed.append(found_nulls(moved)[name])
        possible = [nulls for nulls in weighed if nulls is not None]
        if not possible or len(possible) < len(
            weighed
        ):  # nothing to put in its place, or no test of it: anything may be
            possible = [Nulls(TINY, 1.0), Nulls(1.0, TINY)]
        support = [nulls.support for nulls in possible]
        refute = [nulls.refute if nulls.refute is not None else 1.0 for nulls in possible]
        both = refutable(study, name)
        nulls_by_end["supported"][name] = Nulls(min(support), max(refute) if both else None)
        nulls_by_end["refuted"][name] = Nulls(max(support), min(refute) if both else None)
    return nulls_by_end


def _swaps(study: Study, name: str, values: Values, mine: Sequence[Cell], look: Look | None) -> Iterator[Swap]:
    """The lowest and the highest of what is left of a hypothesis, in place of its retried runs."""
    seeds = study.seeds if look is None else study.seeds[: look.n_seeds]
    pairs, ends = contrast(study, name, values, seeds), (np.argmin, np.argmax)
    if study.paired:
        touched = {seed for _, seed in mine}
        left = [at for at, seed in enumerate(pairs.seeds) if seed not in touched]
        for end in ends if left else ():
            substitute = pairs.seeds[left[int(end(pairs.differences[left]))]]
            yield {(arm, seed): (arm, substitute) for seed in touched for arm in study.claims[name].named}
        return
    for end in ends:
        swap: Swap = {}
        for sample in pairs.samples:
            touched = {seed for arm, seed in mine if arm == sample.arm}
            left = [at for at, seed in enumerate(sample.seeds) if seed not in touched]
            # The end of the effect is that of a value, or the other one, by the weight of its arm.
            pick = end if sample.weight > 0 else ends[end is ends[0]]
            if left and touched:
                substitute = sample.seeds[left[int(pick(sample.values[left]))]]
                swap |= {(sample.arm, seed): (sample.arm, substitute) for seed in touched}
        if swap:
            yield swap


def _swapped(values: Values, reading: str, swap: Swap) -> dict[str, dict[Cell, float]]:
    taken = {name: dict(value_by_run) for name, value_by_run in values.items()}
    taken[reading] |= {cell: values[reading][source] for cell, source in swap.items() if source in values[reading]}
    return taken


def _swapped_items(items: pd.DataFrame, swap: Swap) -> pd.DataFrame:
    """The scores of items of the same runs."""
    parts = [items[~_of(items, swap)]]
    for (arm, seed), substitute in swap.items():
        parts.append(items[_of(items, [substitute])].assign(variant=arm, seed=seed))
    return pd.concat(parts, ignore_index=True)


def _of(items: pd.DataFrame, cells: Collection[Cell] | Mapping[Cell, Cell]) -> pd.Series[bool]:
    held = set(cells)
    pairs = zip(items["variant"].astype(str), items["seed"], strict=True)
    return pd.Series([(arm, int(seed)) in held for arm, seed in pairs], index=items.index, dtype=bool)
