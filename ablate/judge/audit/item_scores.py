"""What the table of items says of a run: the value that a claim reads, and whether all runs met the same items.

The audit here compares identities and sums, never arms: a run that was scored on other items, on an item whose text
changed, or twice on one, has no partner, and nothing is dropped to make it one. Pairing itself is
`ablate.judge.stats.items.cross`, which refuses the same again.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from ablate.judge.audit.checks import named, none_against
from ablate.judge.verdict import Check, Severity
from ablate.records.evidence import Evidence
from prereg.metrics.items import ITEM_METRICS
from prereg.registry.plan import Cell
from prereg.study.spec import Study

_ROUNDING = 1e-9
"""How far a recorded mean may lie from that of its items: two ways of adding up the same scores differ by less."""


def item_means(items: pd.DataFrame, metric: str) -> dict[Cell, float]:
    """(arm, seed) -> the metric's value, from the scores of the run's items; not a number where a score is none."""
    declared = ITEM_METRICS[metric]
    rows = items[items["metric"] == declared.scores]
    found: dict[Cell, float] = {}
    # In the order of the items' names: a sum depends on its order in the last bit.
    for (arm, seed), run in rows.sort_values(["task", "item"], kind="stable").groupby(["variant", "seed"], sort=True):
        values = run["value"].to_numpy(np.float64)
        if declared.counts_alike == "tasks":
            codes = pd.factorize(run["task"])[0]
            values = np.bincount(codes, weights=values) / np.bincount(codes)
        found[str(arm), int(str(seed))] = float(values.mean())
    return found


def check_items(study: Study, evidence: Evidence) -> tuple[Check, ...]:
    """Whether the items of all runs are the same ones, sealed, and those that the recorded metrics are means of."""
    if evidence.items is None:
        return ()
    claimed = any(claim.metric in ITEM_METRICS for claim in study.claims.values())
    severity: Severity = "inadmissible" if claimed else "deviation"
    done = [(run.variant, run.seed) for run in evidence.runs if run.status == "done"]
    sealed = {(run.variant, run.seed) for run in evidence.runs if run.items_sha256 is not None}
    keys = ["metric", "task", "item", "item_sha256"]
    # Numbered once for all runs: compared a row at a time, 700,000 rows take seconds.
    rows = evidence.items.assign(
        identity=evidence.items.groupby(keys, sort=False, dropna=False).ngroup(),
        known_as=evidence.items.groupby(keys[:3], sort=False, dropna=False).ngroup(),
    )
    met: dict[Cell, bytes] = {}
    twice: list[str] = []
    unsealed: list[str] = []
    for (arm, seed), run in rows.groupby(["variant", "seed"], sort=True):
        cell = (str(arm), int(str(seed)))
        met[cell] = np.sort(run["identity"].to_numpy(np.int64)).tobytes()
        repeated = len(run) - run["known_as"].nunique()
        if repeated:
            twice.append(f"{named(cell)}: {repeated} twice")
        if cell not in sealed:
            unsealed.append(named(cell))
    # The items of most runs are taken for the right ones: which run is named changes with that, not whether one is.
    usual = Counter(met[cell] for cell in done if cell in met).most_common(1)
    other = [
        f"{named(cell)}: {'other items' if cell in met else 'no items'}"
        for cell in done
        if usual and met.get(cell) != usual[0][0]
    ]
    return (
        none_against(
            "every finished run scored the same items",
            [*twice, *other],
            "the same tasks, items and texts under every arm and seed, each once",
            severity,
        ),
        none_against("every item is sealed with its run", unsealed, "an items hash in the run's record", severity),
        none_against(
            "every recorded mean is that of its items",
            _disagreeing(evidence),
            f"metrics that agree with the scores they average, to {_ROUNDING:g}",
            severity,
        ),
    )


def _disagreeing(evidence: Evidence) -> list[str]:
    assert evidence.items is not None
    wrong = []
    recorded_metrics = sorted(set(evidence.metrics["metric"].unique()) | set(ITEM_METRICS))
    for metric in (name for name in recorded_metrics if name in ITEM_METRICS):
        recorded, means = evidence.final(metric), item_means(evidence.items, metric)
        wrong += [
            f"{metric} of {named(cell)} is {value:.6g}, its items' mean {means[cell]:.6g}"
            for cell, value in recorded.items()
            if cell in means and not abs(value - means[cell]) <= _ROUNDING * max(1.0, abs(value))
        ]
    return wrong
