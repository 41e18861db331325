"""Size at the null of every deciding test, against the measured table of this project's statistics notes.

Rates are at nominal .05, two-sided. Differences are single draws of a normal, exponential or lognormal law, centred
at its mean: a difference of two skewed arms would be symmetric, and would hide what skewness does to few seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, sqrt
from pathlib import Path

import numpy as np
import pytest
from paired_tests import p_against, prepare

from ablate.judge.stats.kinds import over_seeds, undecided
from ablate.judge.stats.significance_tests import KINDS

FEWEST_BOOTSTRAPPED = KINDS["bootstrap_t"].fewest

pytestmark = pytest.mark.simulation

DRAW: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "exponential": lambda rng, n: rng.standard_exponential(n) - 1.0,
    "lognormal": lambda rng, n: np.exp(rng.standard_normal(n)) - exp(0.5),
}
# method -> n -> (normal, exponential, lognormal)
TABLE = {
    "paired_t": {3: (0.05, 0.12, 0.16), 5: (0.05, 0.12, 0.18), 8: (0.05, 0.10, 0.17), 10: (0.05, 0.09, 0.16)},
    "bootstrap_t": {3: (0.07, 0.11, 0.16), 5: (0.03, 0.06, 0.10), 8: (0.04, 0.07, 0.12), 10: (0.05, 0.06, 0.12)},
    "sign_flip": {3: (0, 0, 0), 5: (0, 0, 0), 8: (0.05, 0.09, 0.15), 10: (0.05, 0.09, 0.15)},
    "wilcoxon": {3: (0, 0, 0), 5: (0, 0, 0), 8: (0.04, 0.08, 0.14), 10: (0.05, 0.08, 0.15)},
}


@pytest.mark.parametrize("n", [3, 5, 8, 10])
@pytest.mark.parametrize("method", list(TABLE))
def test_size_at_the_null_is_that_of_the_table(method: str, n: int) -> None:
    studies = 600 if method == "bootstrap_t" and n > 6 else 3000
    for law, expected in zip(DRAW, TABLE[method][n], strict=True):
        rng = np.random.default_rng([n, len(method), len(law)])
        wrong = sum(
            p_against(DRAW[law](rng, n), method, null=0.0, side="two", rng_seed=index) <= 0.05
            for index in range(studies)
        )
        # Rounding of the table, and four standard errors of this simulation.
        allowed = 0.006 + 4 * sqrt(max(expected, 0.001) * (1 - expected) / studies)
        assert abs(wrong / studies - expected) <= allowed, (method, n, law, wrong / studies, expected)


@pytest.mark.parametrize("spread", [1.0, 1.5])
def test_a_one_sided_t_test_against_a_constant_errs_on_lognormal_values_as_the_readme_says(spread: float) -> None:
    """Six runs of one arm, the long tail away from the side of the claim: nothing cancels their skewness."""
    studies = 200_000
    logarithms = np.random.default_rng(6).normal(0.0, spread, size=(studies, 6))
    test = over_seeds("paired_t", np.exp(logarithms))
    wrong = float(np.mean(test.p(exp(spread**2 / 2), "less") <= 0.05))
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split())
    assert f"{100 * wrong:.1f} ± {100 * sqrt(wrong * (1 - wrong) / studies):.1f}%" in readme
    assert f"({studies:,} simulated tests)" in readme


@pytest.mark.parametrize("method", ["paired_t", "bootstrap_t", "sign_flip", "wilcoxon"])
def test_coverage_of_the_interval_is_at_least_nominal_for_normal_differences(method: str) -> None:
    rng, n, studies = np.random.default_rng(8), 6, 1500
    covered = 0
    for index in range(studies):
        bounds = prepare(rng.standard_normal(n) + 0.7, method, index).bounds(0.1)  # type: ignore[arg-type]
        assert bounds is not None
        covered += bounds[0] <= 0.7 <= bounds[1]
    assert covered / studies >= 0.9 - 4 * sqrt(0.09 / studies)


@pytest.mark.parametrize("side", ["greater", "less"])
@pytest.mark.parametrize("method", ["paired_t", "sign_flip", "wilcoxon"])
def test_a_one_sided_margin_test_keeps_its_level(method: str, side: str) -> None:
    rng, studies = np.random.default_rng(9), 3000
    wrong = 0
    for _ in range(studies):
        differences = rng.standard_normal(7) + 0.3
        wrong += p_against(differences, method, null=0.3, side=side, rng_seed=0) <= 0.05
    assert wrong / studies <= 0.05 + 4 * sqrt(0.05 * 0.95 / studies)


@pytest.mark.parametrize("n", [FEWEST_BOOTSTRAPPED, 5, 6])
def test_bootstrap_t_keeps_its_level_from_the_fewest_pairs_that_it_decides_from(n: int) -> None:
    studies, rng = 20_000, np.random.default_rng(n)
    rows = over_seeds("bootstrap_t", rng.standard_normal((studies, n)), simulated=True)
    for side, level in (("two", 0.05), ("two", 0.025), ("two", 0.0125), ("greater", 0.05)):
        wrong = np.mean(rows.p(0.0, side) <= level)  # type: ignore[arg-type]
        assert wrong <= level + 4 * sqrt(level * (1 - level) / studies), (n, side, level, wrong)
    # Two-sided .072 and one-sided .094 at three pairs are what refuses those.
    assert undecided("bootstrap_t", FEWEST_BOOTSTRAPPED - 1) is not None and undecided("bootstrap_t", n) is None
