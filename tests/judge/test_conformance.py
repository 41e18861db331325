"""What holds of every registered test, whatever it computes: a new row of `KINDS` is run through all of this."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from paired_tests import single

from ablate import judge
from ablate.judge.stats.kinds import over_seeds, undecided
from ablate.judge.stats.sequential import RepeatedT
from ablate.judge.stats.significance_tests import (
    COUNTED_PAIRS,
    EQUAL,
    KINDS,
    BootstrapT,
    Floats,
    NoTestError,
    Side,
    SignificanceTest,
    Welch,
    studentized_draws,
)
from ablate.judge.stats.two_way import Spread, TwoWay, spread_of, tail_of
from prereg.study.words_of_tests import TESTS, Test

N = 6
SIDES: tuple[Side, ...] = ("two", "greater", "less")
NULLS = (0.0, 0.25, -0.5, 9.0)
WEIGHTS = np.full(5, 0.2)
TAIL = tail_of(WEIGHTS)


def paired(method: Test) -> Callable[[Floats], SignificanceTest]:
    return lambda x: over_seeds(method, x[:, :, 0], rng_seed=3)


def welch(x: Floats) -> SignificanceTest:
    return Welch([x[:, :3, 0], x[:, 3:, 0]])


def two_way(x: Floats) -> SignificanceTest:
    spread = spread_of(x, WEIGHTS)
    return TwoWay(x @ WEIGHTS, Spread(*(np.asarray(one) for one in (spread.seeds, spread.units, spread.both))), TAIL)


MADE: dict[str, Callable[[Floats], SignificanceTest]] = {
    **{method: paired(method) for method, kind in KINDS.items() if kind.of_pairs},  # type: ignore[arg-type]
    "items": two_way,
    "welch": welch,
    "looks": lambda x: RepeatedT(x[:, :, 0], looks=(3, N), look=2, spending="pocock"),
}
EVERY = pytest.mark.parametrize("method", MADE)


def drawn(studies: int = 24, *, seed: int = 2) -> Floats:
    """Studies x seeds x items, with an effect of .7 SD."""
    return np.random.default_rng(seed).standard_normal((studies, N, WEIGHTS.size)) + 0.7


def test_every_test_that_a_study_can_name_is_a_kind_and_is_run_through_this_suite() -> None:
    assert set(KINDS) == set(get_args(Test)) == set(TESTS) == set(MADE) - {"looks"}
    for field in ("name", "short", "about"):
        assert len({getattr(row, field) for row in TESTS.values()}) == len(TESTS)
    assert len({kind.words for kind in KINDS.values()}) == len(KINDS)


def test_an_unknown_kind_fails() -> None:
    with pytest.raises(KeyError):
        over_seeds("median", drawn()[:, :, 0])  # type: ignore[arg-type]
    for method in ("items", "welch"):
        with pytest.raises(AssertionError):
            over_seeds(method, drawn()[:, :, 0])  # type: ignore[arg-type]


@EVERY
def test_a_row_among_many_is_the_row_alone(method: str) -> None:
    x = drawn()
    many, alone = MADE[method](x), [MADE[method](row[None]) for row in x]
    for null in NULLS:
        for side in SIDES:
            # A mean over items is one product of matrices, whose last bits depend on how many rows it has.
            expected = np.array([one.p(null, side)[0] for one in alone])
            assert many.p(null, side) == pytest.approx(expected, rel=1e-9 if method == "items" else 0.0, abs=0.0)
        assert many.leaning_at(null).tolist() == [one.leaning_at(null)[0] for one in alone]
    for ends, each in zip(many.bounds(0.1), zip(*(one.bounds(0.1) for one in alone), strict=True), strict=True):
        assert ends == pytest.approx(np.concatenate(each), rel=1e-9 if method == "items" else 0.0, nan_ok=True)


@EVERY
def test_p_and_interval_say_the_same(method: str) -> None:
    test = MADE[method](drawn())
    low, high = test.bounds(0.2)
    assert np.isfinite(low).all()
    for at, outwards in ((low, -1.0), (high, 1.0)):
        for row, end in enumerate(at):
            alone = MADE[method](drawn()[row : row + 1])
            assert alone.p(end - outwards * 1e-7, "two")[0] >= 0.2 - 1e-9
            assert alone.p(end + outwards * 1e-7, "two")[0] <= 0.2 + 1e-9


@pytest.mark.parametrize("method", [method for method, kind in KINDS.items() if kind.of_pairs])
def test_the_difference_shown_is_the_mean_unless_the_row_of_words_names_another(method: str) -> None:
    x = drawn()
    assert np.allclose(MADE[method](x).difference, x[:, :, 0].mean(axis=1)) != bool(TESTS[method].centre)


@EVERY
def test_a_test_leans_to_the_side_that_it_has_more_evidence_for(method: str) -> None:
    test = MADE[method](drawn())
    for null in NULLS:
        leaning = test.leaning_at(null)
        assert set(leaning.tolist()) <= {-1.0, 0.0, 1.0}
        assert (leaning * (test.p(null, "less") - test.p(null, "greater")) >= 0.0).all()


@EVERY
def test_a_p_is_a_chance_never_zero_and_sides_mirror(method: str) -> None:
    x = drawn()
    test, mirrored = MADE[method](x), MADE[method](-x)
    for null in (*NULLS, 1e200):
        for side, other in (("two", "two"), ("greater", "less"), ("less", "greater")):
            p = test.p(null, side)  # type: ignore[arg-type]
            assert ((p > 0.0) & (p <= 1.0)).all()
            assert mirrored.p(-null, other) == pytest.approx(p, rel=1e-9)  # type: ignore[arg-type]
        assert (test.p(null, "greater") + test.p(null, "less") >= 1.0 - 1e-9).all()


@EVERY
@pytest.mark.parametrize("power", [-1000, -300, 300, 1010])
def test_a_p_does_not_move_with_the_unit(method: str, power: int) -> None:
    if method == "items" and abs(power) > 300:
        pytest.skip("mean squares are made in the unit of the items")
    x = drawn()
    plain, scaled = MADE[method](x), MADE[method](np.ldexp(x, power))
    for side in SIDES:
        assert plain.p(0.25, side).tolist() == scaled.p(0.25 * 2.0**power, side).tolist()


@EVERY
def test_no_p_lies_below_its_floor(method: str) -> None:
    far = 1e6 + np.arange(float(N))[None, :, None] * np.linspace(1.0, 1.1, WEIGHTS.size)
    test = MADE[method](far)
    floor = type(test).floor(test.n)
    assert floor * (1.0 - 1e-9) <= test.p(0.0, "two")[0] <= max(1e-4, floor * 1.01)


@EVERY
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_values_without_spread_have_a_test_or_a_reason(method: str, value: float) -> None:
    test = MADE[method](np.full((1, N, WEIGHTS.size), value) * (-1.0 if method == "welch" else 1.0))
    for null in (0.0, 0.25):
        if refused := test.refusal(null):
            assert "standard error" in refused
            assert test.p(null, "two")[0] == 1.0
        else:
            assert 0.0 < test.p(null, "two")[0] <= 1.0


def test_fewer_than_two_pairs_are_no_sample() -> None:
    for method in (method for method in get_args(Test) if KINDS[method].of_pairs):
        with pytest.raises(NoTestError, match="at least two"):
            over_seeds(method, np.ones((1, 1)))


def test_floors_and_costs_are_declared_for_every_number_of_seeds() -> None:
    for method in get_args(Test):
        kind = KINDS[method]
        for n in (2, 3, 5, 8, 12, 20, 50):
            assert 0.0 < kind.floor(n, "less") <= kind.floor(n) <= 1.0
            assert kind.affordable_studies(n) >= 500 and kind.numbers(n) >= n
        assert undecided(method, kind.fewest) is None
    assert undecided("bootstrap_t", 3) is not None


def counted(x: Floats, null: float, side: Side) -> float:
    """The p of a bootstrap-t from the t* of its resamples, one by one."""
    t_star, weights = studentized_draws(x, 3, simulated=True)
    kept = ~np.isnan(t_star)
    t_star, weights = t_star[kept], weights[kept]
    t = (x.mean() - np.clip(null, -(2.0**500), 2.0**500)) / (x.std(ddof=1) / np.sqrt(x.size))
    slack = EQUAL * max(1.0, abs(t))
    if side == "two":
        extreme = np.abs(t_star) >= abs(t) - slack
    else:
        extreme = t_star >= t - slack if side == "greater" else t_star <= t + slack
    return float((1.0 + weights[extreme].sum()) / (1.0 + weights.sum()))


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 8, 9])
def test_products_of_matrices_count_the_resamples_that_reach_t(n: int) -> None:
    rng = np.random.default_rng(n)
    # One value far from a tight cluster: resamples without it have a t of any size.
    steep = rng.standard_normal((24, n)) * 10.0 ** rng.uniform(-5, 0, (24, 1))
    steep[::2, 0] += 1.0
    for x in (rng.standard_normal((24, n)) + 0.7, steep, np.round(rng.standard_normal((24, n)), 1)):
        test = BootstrapT(x, rng_seed=3, simulated=True)
        for null, side in ((0.0, "two"), (2.0, "two"), (-2.0, "greater"), (0.3, "less"), (1e200, "greater")):
            expected = [counted(row, null, side) for row in x]  # type: ignore[arg-type]
            assert test.p(null, side).tolist() == pytest.approx(expected, rel=1e-12)  # type: ignore[arg-type]
    assert (np.abs(BootstrapT(steep, simulated=True).statistic(2.0)) > 1e3).any()


def test_random_sign_vectors_are_the_same_for_every_study() -> None:
    x = np.random.default_rng(1).standard_normal((6, COUNTED_PAIRS + 1)) + 0.2
    assert over_seeds("sign_flip", x, rng_seed=3).p(0.1, "two").tolist() == [
        single(over_seeds("sign_flip", row[None], rng_seed=3)).p(0.1, "two") for row in x
    ]


@pytest.mark.parametrize("module", [module.name for module in pkgutil.walk_packages(judge.__path__, "ablate.judge.")])
def test_the_examples_of_the_judge_give_what_they_say(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.failed == 0 and found.attempted >= module.startswith("ablate.judge.stats.")


def test_every_test_and_correction_has_an_example_and_says_where_it_fails() -> None:
    for kind in [*KINDS.values(), RepeatedT]:
        assert kind.__doc__ is not None and ">>>" in kind.__doc__
        assert all(f"    {label}  " in kind.__doc__ for label in ("Statistic", "Null", "Interval", "Fails")), kind
