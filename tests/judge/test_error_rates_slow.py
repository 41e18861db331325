"""Cells of the table of error rates measured again with another seed; none above nominal with normal differences."""

from __future__ import annotations

from math import sqrt

import error_rates as rates
import numpy as np
import pandas as pd
import pytest

from ablate.judge.findings import judge_hypotheses
from ablate.judge.readings import item_means
from ablate.judge.stats.vectorized_judge import OUTCOME
from ablate.records.evidence import ITEM_COLUMNS

pytestmark = pytest.mark.simulation

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
    (rates.Cell("equal tasks", "items: new_seeds_and_items", 5, "correlated"), 0.2),
    (rates.Cell("items", "items: new_seeds", 3, "correlated"), 0.2),
    (rates.Cell("unequal tasks", "items: new_seeds_and_items", 8, "correlated"), 0.2),
    (rates.Cell("unequal tasks", "items: new_seeds_and_items", 3, "31% diverge"), 0.3),
    (rates.Cell("looks", "paired_t", 8, "31% diverge"), 0.2),
    (rates.Cell("e_process", "paired_t", 5, "31% diverge"), 0.2),
    *((rates.Cell("fixed", test, 8, "31% diverge"), 0.4) for test in ("paired_t", "sign_flip")),
    (rates.Cell("fixed", "paired_t", 5, "31% diverge"), 0.4),
    (rates.Cell("fixed", "paired_t", 8, "10% diverge"), 0.4),
    *((rates.Cell("fixed", "wilcoxon", 8, law), 0.3) for law in rates.DIVERGING if "diverge" not in law),
]


def test_with_normal_differences_no_rate_of_the_table_is_above_nominal() -> None:
    assert rates.excesses(rates.committed()) == []


@pytest.mark.parametrize(("cell", "scale"), AGAIN, ids=[cell.words for cell, _ in AGAIN])
def test_a_cell_measured_again_agrees_with_the_table(cell: rates.Cell, scale: float) -> None:
    row = next(one for one in rates.committed()["cells"] if rates.cell_of(one) == cell)
    measured = rates.row_of(cell, 12345, scale)
    found = {key: measured[key] for key in rates.NUMBERS if key in measured}
    print(cell.words, {key: f"{one['share']:.4f} ± {one['error']:.4f}" for key, one in found.items()})
    assert rates.excesses({"cells": [row | found]}) == []
    for key, one in found.items():
        error = sqrt(one["error"] ** 2 + row[key]["error"] ** 2)
        assert abs(one["share"] - row[key]["share"]) <= Z * error, (cell.words, key, one, row[key])


def test_only_cells_that_the_table_lacks_or_that_are_named_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known, measured = rates.committed(), []
    lacking = known | {"cells": known["cells"][1:]}
    first = rates.cell_of(known["cells"][0])

    def measure(cell: rates.Cell, *_: object) -> dict[str, object]:
        measured.append(cell)
        return {key: known["cells"][0][key] for key in rates.NUMBERS if key in known["cells"][0]}

    monkeypatch.setattr(rates, "measure", measure)
    monkeypatch.setattr(rates, "refused", lambda cell: None if cell in wanted else "not asked")
    wanted = {rates.cell_of(row) for row in known["cells"]}
    found = rates.table(known=lacking, only=("looks, paired_t, 8 seeds, t3",))
    assert measured == [first, rates.Cell("looks", "paired_t", 8, "t3")]
    assert [rates.cell_of(row) for row in found["cells"]] == [rates.cell_of(row) for row in known["cells"]]
    rest = [row for row in known["cells"] if rates.cell_of(row) not in measured]
    assert [row for row in found["cells"] if rates.cell_of(row) not in measured] == rest


@pytest.mark.parametrize("crossed", rates.SIZES)
def test_items_are_judged_here_as_from_a_table_of_items(crossed: str) -> None:
    cell = rates.Cell(crossed, "items: new_seeds_and_items", 5, "normal")
    study, rng = rates.rule_of(cell), np.random.default_rng(9)
    sizes = np.array(rates.SIZES[crossed])
    tasks = np.repeat(np.arange(sizes.size), sizes)
    centred = rates.noise(cell, study, 8, rng, spread=1)
    effects = {
        "gain": np.linspace(-2.0, 2.0, 8).reshape(8, 1, 1),
        "no_harm": np.linspace(2.0, -2.0, 8).reshape(8, 1, 1) - rates.MARGIN,
    }
    ours = rates.judged(cell, study, {name: table + effects[name] for name, table in centred.items()})
    seen = set()
    for row in range(8):
        rows = [
            (arm, seed, f"{task:03d}", f"{item:04d}", f"{item}", claim.metric, float(shift * score))
            for name, claim in study.claims.items()
            for shift, arm in enumerate(study.arms)
            for seed, units in zip(study.seeds, centred[name][row] + effects[name][row], strict=True)
            for item, (task, score) in enumerate(zip(tasks, np.repeat(units, sizes), strict=True))
        ]
        table = pd.DataFrame(rows, columns=list(ITEM_COLUMNS))
        read = {claim.metric: item_means(table, claim.metric) for claim in study.claims.values()}
        for place, finding in enumerate(judge_hypotheses(study, read, items=table)):
            assert OUTCOME[ours[row, place]] == finding.outcome, (finding.hypothesis, finding.sentence)
            seen.add((finding.hypothesis, finding.outcome))
    assert {("gain", "supported"), ("gain", "inconclusive"), ("no_harm", "supported"), ("no_harm", "refuted")} <= seen
