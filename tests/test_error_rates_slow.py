"""Cells of the table of error rates measured again with another seed; none above nominal with normal differences."""

from __future__ import annotations

from math import sqrt

import error_rates as rates
import numpy as np
import pandas as pd
import pytest

from ablate.judge.hypotheses import judge_hypotheses
from ablate.judge.item_scores import item_means
from ablate.records.evidence import ITEM_COLUMNS

pytestmark = pytest.mark.slow

Z = 4.5
"""Standard errors of a difference: of some 150 comparisons one in a thousand sets fails by chance."""
AGAIN = [
    *((rates.Cell("fixed", "paired_t", n, law), 0.5) for n in rates.SEEDS for law in (*rates.LAWS, "correlated")),
    *((rates.Cell("fixed", "sign_flip", 8, law), 0.3) for law in (*rates.LAWS, "correlated")),
    *((rates.Cell("fixed", "bootstrap_t", 5, law), 0.1) for law in ("normal", "exponential")),
    (rates.Cell("fixed", "bootstrap_t", 8, "normal"), 1.0),
    *((rates.Cell("fixed", "wilcoxon", 8, law), 0.3) for law in ("normal", "exponential")),
    *((rates.Cell("looks", "paired_t", 8, law), 0.2) for law in ("normal", "exponential", "correlated")),
    *((rates.Cell("e_process", "paired_t", 8, law), 0.2) for law in ("normal", "mixture")),
    *((rates.Cell("items", "items: new_seeds", n, "normal"), 0.3) for n in rates.SEEDS),
    *((rates.Cell(crossed, "items: new_seeds_and_items", 5, "normal"), 0.3) for crossed in rates.SIZES),
    *((rates.Cell("items", "items: new_seeds_and_items", 3, law), 0.3) for law in ("normal", "exponential")),
    *((rates.Cell("fixed", test, 8, "diverging"), 0.4) for test in ("paired_t", "sign_flip")),
    (rates.Cell("fixed", "paired_t", 5, "diverging"), 0.4),
]


def test_with_normal_differences_no_rate_of_the_table_is_above_nominal() -> None:
    assert rates.excesses(rates.committed()) == []


@pytest.mark.parametrize(("cell", "scale"), AGAIN, ids=[cell.words for cell, _ in AGAIN])
def test_a_cell_measured_again_agrees_with_the_table(cell: rates.Cell, scale: float) -> None:
    row = next(one for one in rates.committed()["cells"] if rates.Cell(*(one[key] for key in KEYS)) == cell)
    found = rates.measure(cell, 12345, scale)
    print(cell.words, {key: f"{one['share']:.4f} ± {one['error']:.4f}" for key, one in found.items()})
    assert rates.excesses({"cells": [row | found]}) == []
    for key, one in found.items():
        error = sqrt(one["error"] ** 2 + row[key]["error"] ** 2)
        assert abs(one["share"] - row[key]["share"]) <= Z * error, (cell.words, key, one, row[key])


KEYS = ("design", "test", "n", "law")


@pytest.mark.parametrize("crossed", rates.SIZES)
def test_items_are_judged_here_as_from_a_table_of_items(crossed: str) -> None:
    cell = rates.Cell(crossed, "items: new_seeds_and_items", 5, "normal")
    study, rng = rates.rule_of(cell), np.random.default_rng(9)
    tables, tasks = rates._tables(cell, 1, 8, rng)
    seen = set()
    for values in tables:
        effect = float(rng.uniform(-2.0, 2.0))
        shifted = values + effect
        rows = [
            (arm, seed, f"{task:03d}", f"{item:04d}", f"{item}", "harness/accuracy", float(shift * score))
            for shift, arm in enumerate(study.arms)
            for seed, scores in zip(study.seeds, shifted, strict=True)
            for item, (task, score) in enumerate(zip(tasks, scores, strict=True))
        ]
        table = pd.DataFrame(rows, columns=list(ITEM_COLUMNS))
        read = {"harness/accuracy": item_means(table, "harness/accuracy")}
        for finding in judge_hypotheses(study, read, items=table):
            name = finding.hypothesis
            way = rates.claimed(study, name)
            ours = rates._supported(study, name, values * way, tasks, effect)
            assert ours == (finding.outcome == "supported"), (name, effect, finding.sentence)
            seen.add((name, ours))
    assert ("gain", True) in seen and ("gain", False) in seen
