"""The registered order finds no drift: the committed table holds it, and a smaller simulation gives it again."""

from __future__ import annotations

from math import hypot

import numpy as np
import order_rates as rates
import pytest

from prereg.registry.run_order import cells_in_order

TABLE = rates.committed()
ALPHA, SIGMAS, LEAST = 0.05, 4.0, 0.0016


def rows(**wanted: object) -> list[rates.Rate]:
    return [row for row in TABLE if all(getattr(row, name) == value for name, value in wanted.items())]


def test_the_page_is_written_from_the_numbers() -> None:
    assert rates.OUT.with_suffix(".md").read_text(encoding="utf-8") == rates.page(TABLE)


def test_the_explanation_quotes_the_table() -> None:
    page = (rates.OUT.parents[2] / "docs" / "explanation" / "pairing.md").read_text(encoding="utf-8")
    of_file, registered = rows(arms=2, seeds=6, drift="linear", per_run=3.0)
    assert f"differ in {100 * of_file.found:.1f}% of {of_file.studies:,} studies" in " ".join(page.split())
    # Of none in n, by the rule of three.
    assert registered.found == 0.0 and f"bound {300 / registered.studies:.3f}%".replace("0.", ".") in page


def test_no_drift_is_found_in_the_registered_order_and_most_are_in_that_of_the_file() -> None:
    for row in rows(order="registered"):
        assert row.found <= ALPHA + SIGMAS * LEAST, row
    assert min(row.found for row in rows(order="file", drift="linear")) > ALPHA + 10 * LEAST
    assert min(row.found for row in rows(order="file", drift="linear", per_run=3.0)) > 0.9


@pytest.mark.parametrize(("n_arms", "n_seeds"), [(2, 4), (2, 12), (3, 6), (3, 12), (4, 8), (5, 10), (5, 30)])
def test_a_linear_drift_cancels_over_two_seeds_and_a_quadratic_one_over_twice_the_arms(
    n_arms: int, n_seeds: int
) -> None:
    arms = {f"arm{at}": {"optim.lr": 0.001 * (1 + at)} for at in range(n_arms)}
    study = rates.one_claim("arm1 changes val/loss", 0.0, seeds=n_seeds, variants=arms, baseline="arm0")
    cells = cells_in_order(study)
    assert sorted(cells) == sorted(study.cells)
    places = {arm: np.array([at for at, cell in enumerate(cells) if cell[0] == arm]) for arm in arms}
    for n in range(2, n_seeds + 1, 2):
        means = {arm: at[:n].mean() for arm, at in places.items()}
        assert len(set(means.values())) == 1, (n, means)
    for n in range(2 * n_arms, n_seeds + 1, 2 * n_arms):
        squares = {arm: (at[:n] ** 2).sum() for arm, at in places.items()}
        assert len(set(squares.values())) == 1, (n, squares)
        # Each place of a seed twice in every 2k seeds.
        for at in places.values():
            assert set(np.bincount(at[:n] % n_arms)) == {n // n_arms}


@pytest.mark.parametrize("drift", ["linear", "quadratic"])
def test_a_smaller_simulation_agrees_with_the_table(drift: str) -> None:
    for order in ("file", "registered"):
        (row,) = rows(arms=2, seeds=8, drift=drift, per_run=0.5, order=order)
        again = rates.measured(2, 8, drift, 0.5, order, studies=2_000)
        assert again.bias == pytest.approx(row.bias)
        assert abs(again.found - row.found) < SIGMAS * hypot(again.error, row.error)
