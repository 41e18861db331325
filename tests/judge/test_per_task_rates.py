"""Error rates over tasks by simulation: the family of `per: task`, and the interval of a macro accuracy over new items.

Answers are drawn item by item: an item is answered rightly where a sum of normal parts is above 0 (its difficulty, the
luck of arm and seed that all tasks share, that of arm, seed and task, noise, and where items are a sample how well the
arm suits the item). Arms are exchangeable, so that the true difference of every task is 0; a border at the margin is
reached by moving the differences there. Tasks have unequal numbers of items.

    python tests/judge/test_per_task_rates.py 20000     # the table of docs/designs.md
"""

from __future__ import annotations

import sys
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from evidence_factory import small_study
from paired_tests import OneStudy, judge_families, prepare, two_way, weigh

from ablate.judge.judge import OUTCOME, judge_rows
from ablate.judge.stats.crossed_items import Crossed
from ablate.judge.stats.null_hypotheses import Nulls
from prereg.study.spec import Study

Floats = npt.NDArray[np.float64]
MARGIN = 0.05
SEEDS = 5


def sizes(n_tasks: int) -> list[int]:
    """Items of each task: from 20 to 200, evenly on a logarithm."""
    return [round(size) for size in np.geomspace(20, 200, n_tasks)]


def family(n_tasks: int, **analysis: Any) -> Study:
    """One claim of no harm for each task."""
    return small_study(
        variants={"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}},
        seeds=list(range(1, SEEDS + 1)),
        measure={"every": 20, "harness": {"tasks": "tasks/made-up"}},
        hypotheses={
            f"no_harm.t{at}": {
                "claim": f"layernorm does_not_worsen harness/accuracy/t{at}",
                "smallest": MARGIN,
                "family": "no_harm",
            }
            for at in range(n_tasks)
        },
        decision=[
            {"verdict": "adopt", "when": "all supported(no_harm)"},
            {"verdict": "keep", "when": "any refuted(no_harm)"},
            {"verdict": "inconclusive"},
        ],
        tie_breakers=[],
        assume={},
        analysis=analysis,
    )


def answers(rng: np.random.Generator, n: int, n_items: list[int], *, shared: float, suits: float) -> list[Floats]:
    """Differences of two equal arms, one array (studies x seeds x items) for each task."""
    luck = rng.standard_normal((n, 2, SEEDS, 1))
    found = []
    for size in n_items:
        own = rng.standard_normal((n, 2, SEEDS, 1))
        sure = 0.5 + rng.standard_normal((n, 1, 1, size)) + suits * rng.standard_normal((n, 2, 1, size))
        sure = sure + 0.3 * (sqrt(shared) * luck + sqrt(1.0 - shared) * own)
        right = (sure + rng.standard_normal((n, 2, SEEDS, size)) > 0.0).astype(np.float64)
        found.append(right[:, 0] - right[:, 1])
    return found


def over_seeds(n_tasks: int, shared: float, n: int, seed: int = 0) -> tuple[float, float]:
    """Chance of any false "supported" with every task at its margin, and of any false "refuted" with no difference."""
    study, rng = family(n_tasks), np.random.default_rng([seed, n_tasks, int(100 * shared)])
    wrong = np.zeros(2)
    for start in range(0, n, 500):
        many = min(500, n - start)
        drawn = answers(rng, many, sizes(n_tasks), shared=shared, suits=0.0)
        means = {name: one.mean(axis=2) for name, one in zip(study.hypotheses, drawn, strict=True)}
        at_margin = {name: one - MARGIN for name, one in means.items()}
        for place, (differences, outcome) in enumerate(((at_margin, "supported"), (means, "refuted"))):
            codes = judge_rows(study, differences).codes
            wrong[place] += (codes == OUTCOME.index(outcome)).any(axis=1).sum()  # type: ignore[call-overload]
    return float(wrong[0] / n), float(wrong[1] / n)


def over_items(n_tasks: int, shared: float, n: int, seed: int = 0) -> tuple[float, float, float]:
    """The same over new seeds and new items, and how often the interval of the macro difference misses 0."""
    study = family(n_tasks, test="items", estimand="new_seeds_and_items")
    rng = np.random.default_rng([seed, 1, n_tasks, int(100 * shared)])
    counts = np.zeros(3)
    for start in range(0, n, 200):
        many = min(200, n - start)
        drawn = answers(rng, many, sizes(n_tasks), shared=shared, suits=0.5)
        for at in range(many):
            tables = [one[at] for one in drawn]
            for place, (moved, outcome) in enumerate(((-MARGIN, "supported"), (0.0, "refuted"))):
                nulls: dict[str, Nulls | None] = {}
                for name, table in zip(study.hypotheses, tables, strict=True):
                    crossed = Crossed(table + moved, np.arange(table.shape[1], dtype=np.int64))
                    nulls[name] = weigh(two_way(crossed), "does_not_worsen", "higher", MARGIN)
                judged = judge_families(study, nulls)
                counts[place] += any(one.outcome == outcome for one in judged.values())
            counts[2] += not covers_zero(tables)
    return float(counts[0] / n), float(counts[1] / n), float(counts[2] / n)


def macro_of(tables: list[Floats]) -> OneStudy:
    """The test of the mean over tasks, which are strata."""
    tasks = np.repeat(np.arange(len(tables)), [table.shape[1] for table in tables])
    whole = np.concatenate(tables, axis=1)
    return two_way(Crossed(whole, np.arange(tasks.size, dtype=np.int64), strata=tasks))


def covers_zero(tables: list[Floats]) -> bool:
    bounds = macro_of(tables).bounds(0.05)
    assert bounds is not None
    return bounds[0] <= 0.0 <= bounds[1]


def misses_over_seeds(n_tasks: int, shared: float, n: int, *, suits: float) -> float:
    """How often the interval of a paired t over the seeds' macro differences misses 0."""
    rng = np.random.default_rng([2, n_tasks, int(100 * shared)])
    missed = 0
    for _ in range(0, n, 500):
        drawn = answers(rng, 500, sizes(n_tasks), shared=shared, suits=suits)
        macro = np.mean([one.mean(axis=2) for one in drawn], axis=0)
        for row in macro:
            bounds = prepare(row, "paired_t").bounds(0.05)
            assert bounds is not None
            missed += not bounds[0] <= 0.0 <= bounds[1]
    return missed / n


def error(rate: float, n: int) -> float:
    """Three standard errors of a rate at the nominal level, or at the rate where that is above."""
    return 3.0 * sqrt(max(rate, 0.05) * 0.95 / n)


@pytest.mark.simulation
@pytest.mark.parametrize("n_items", [[2, 200], [3, 50], [10, 200], [2, 2, 500]])
@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_tasks_of_very_unequal_size_do_not_raise_the_error_of_their_mean(n_items: list[int], alpha: float) -> None:
    """Most of the variance is that of the large tasks in half of the studies, and of the small one in the others."""
    rng, n, missed = np.random.default_rng([3, *n_items]), 3000, 0
    for at in range(n):
        spreads = [1.0, 5.0] if at % 2 else [5.0, 1.0]
        tables = [
            spreads[min(k, 1)] * (rng.standard_normal(size) + 0.5 * rng.standard_normal((SEEDS, size)))
            for k, size in enumerate(n_items)
        ]
        bounds = macro_of(tables).bounds(alpha)
        assert bounds is not None
        missed += not bounds[0] <= 0.0 <= bounds[1]
    assert missed / n <= alpha + 3.0 * sqrt(alpha / n), (n_items, alpha, missed / n)


@pytest.mark.simulation
@pytest.mark.parametrize(("n_tasks", "shared"), [(5, 0.0), (5, 0.9), (20, 0.0), (20, 0.9)])
def test_a_family_of_tasks_holds_both_its_error_rates_over_seeds(n_tasks: int, shared: float) -> None:
    supported, refuted = over_seeds(n_tasks, shared, 2_000)
    assert 0.0 < supported <= 0.05 + error(supported, 2_000)
    assert 0.0 < refuted <= 0.05 + error(refuted, 2_000)


@pytest.mark.simulation
@pytest.mark.parametrize(("n_tasks", "shared"), [(5, 0.5), (20, 0.5)])
def test_a_family_of_tasks_and_the_macro_interval_hold_their_levels_over_new_items(n_tasks: int, shared: float) -> None:
    supported, refuted, missed = over_items(n_tasks, shared, 400)
    assert max(supported, refuted, missed) <= 0.05 + error(0.05, 400)
    # A t over seeds alone speaks of these items only: of new ones it errs more than it says.
    assert misses_over_seeds(n_tasks, shared, 2_000, suits=2.0) > 0.08


def main(n: int) -> None:
    """Print the table of docs/designs.md."""
    print(f"over seeds, n = {n}: any false supported, any false refuted, macro interval misses")
    for n_tasks in (5, 20):
        for shared in (0.0, 0.5, 0.9):
            rates = (*over_seeds(n_tasks, shared, n), misses_over_seeds(n_tasks, shared, n, suits=0.0))
            print(n_tasks, shared, *(f"{rate:.4f} ± {sqrt(rate * (1 - rate) / n):.4f}" for rate in rates), flush=True)
    few = n // 5
    print(f"over new seeds and items, n = {few}: the same; then a macro interval over seeds alone")
    for n_tasks in (5, 20):
        for shared in (0.0, 0.5, 0.9):
            rates3 = (*over_items(n_tasks, shared, few), misses_over_seeds(n_tasks, shared, few, suits=0.5))
            shown = (f"{rate:.4f} ± {sqrt(rate * (1 - rate) / few):.4f}" for rate in rates3)
            print(n_tasks, shared, *shown, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
