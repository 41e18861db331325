"""Claims about max-T: what Westfall and Young promise, by joint sign-flips and the joint bootstrap-t."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest
from evidence_factory import make_evidence, one_claim, small_study

from ablate.judge.decide import decide
from ablate.judge.findings import judge_hypotheses
from ablate.judge.stats.estimate import prepare
from ablate.judge.stats.multiplicity import Null, adjust, intervals, p_floor_of, step_down
from ablate.judge.stats.null_hypotheses import nulls_of, require_known_methods
from ablate.judge.stats.paired_t import Floats, Procedure
from prereg.errors import UnsupportedError
from prereg.study.analysis import Analysis, Test
from prereg.study.spec import Study

ZERO = Null(((0.0, "two"),))
LOWER = Null(((0.0, "two"),), -1)


def prepared(columns: Floats, method: Test = "sign_flip") -> list[Procedure]:
    return [prepare(column, method, np.random.default_rng(3)) for column in columns]


def corrected(columns: Floats, method: Test = "sign_flip", null: Null = ZERO, rng_seed: int = 3) -> tuple[float, ...]:
    return adjust([(test, null) for test in prepared(columns, method)], rng_seed=rng_seed)[0]


def correlated(n: int, m: int = 3, *, rho: float = 0.6, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return sqrt(rho) * rng.standard_normal(n) + sqrt(1 - rho) * rng.standard_normal((m, n))


def test_a_joint_sign_flip_does_not_multiply_its_floor_by_the_family() -> None:
    # Six seeds: the floor of one test is 2/2^6 = .03125; Holm over two starts at .0625 and can reject nothing at .05.
    all_lower = np.array([[-3.0, -2.9, -3.1, -3.0, -2.8, -3.2], [-1.0, -1.1, -0.9, -1.05, -0.95, -1.0]])
    assert corrected(all_lower) == pytest.approx((2 / 2**6, 2 / 2**6))
    assert corrected(np.vstack([all_lower] * 3)) == pytest.approx((2 / 2**6,) * 6)


def test_the_joint_sign_flip_is_the_enumeration_by_hand() -> None:
    columns = correlated(5, 2)
    scores = columns / np.sqrt((columns**2).sum(axis=1, keepdims=True))
    flips = np.array(list(product((1.0, -1.0), repeat=5)))
    drawn, observed = np.abs(flips @ scores.T), np.abs(scores.sum(axis=1))
    first, second = np.argsort(-observed)
    p_first = np.mean(drawn.max(axis=1) >= observed[first] - 1e-12)
    p_second = max(p_first, np.mean(drawn[:, second] >= observed[second] - 1e-12))
    found = corrected(columns)
    assert (found[first], found[second]) == pytest.approx((p_first, p_second))


def test_the_joint_bootstrap_is_the_enumeration_of_index_vectors_by_hand() -> None:
    columns = correlated(4, 2)
    observed = np.array([column.mean() / (column.std(ddof=1) / 2.0) for column in columns])
    drawn = []
    for index in product(range(4), repeat=4):
        if len(set(index)) > 1:
            again = columns[:, list(index)]
            drawn.append((again.mean(axis=1) - columns.mean(axis=1)) / (again.std(axis=1, ddof=1) / 2.0))
    sizes = np.abs(np.array(drawn))
    first, second = np.argsort(-np.abs(observed))
    p_first = (1 + np.sum(sizes.max(axis=1) >= abs(observed[first]))) / (1 + len(sizes))
    p_second = max(p_first, (1 + np.sum(sizes[:, second] >= abs(observed[second]))) / (1 + len(sizes)))
    found = corrected(columns, "bootstrap_t")
    assert (found[first], found[second]) == pytest.approx((p_first, p_second))


@pytest.mark.parametrize("method", ["sign_flip", "wilcoxon", "bootstrap_t"])
@pytest.mark.parametrize("n", [5, 8])
def test_max_t_of_copies_costs_nothing_and_of_one_is_the_test_itself(method: Test, n: int) -> None:
    one = correlated(n, 1) + 0.8
    own = prepared(one, method)[0].p(0.0, "two")
    assert corrected(one, method) == pytest.approx((own,))
    # Holm would multiply by three; perfectly dependent tests need no correction, and units do not matter.
    assert corrected(np.vstack([one, 1000 * one, 0.001 * one]), method) == pytest.approx((own, own, own))


@pytest.mark.parametrize("method", ["sign_flip", "wilcoxon", "bootstrap_t", "paired_t"])
def test_adjusted_p_is_monotone_never_below_its_own_and_does_not_depend_on_the_order(method: Test) -> None:
    columns = correlated(6, 4, seed=5) + np.array([0.0, 0.4, 0.9, 2.0])[:, None]
    own = [test.p(0.0, "two") for test in prepared(columns, method)]
    found = corrected(columns, method)
    assert all(0 < raw <= after <= 1 for raw, after in zip(own, found, strict=True))
    statistic = np.abs(columns.mean(axis=1)) / columns.std(axis=1)
    if method in ("sign_flip", "bootstrap_t"):
        assert list(np.argsort(found, kind="stable")) == list(np.argsort(-statistic)) or len(set(found)) < 4
    assert corrected(columns[::-1], method) == pytest.approx(found[::-1])


def test_step_down_gives_a_later_hypothesis_a_smaller_family() -> None:
    drawn = np.array([[1.0, 5.0], [1.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
    # The first is compared with the maximum of both (1 of 4 reaches 4); the second only with itself (1 of 4 reaches 2),
    # where a single step would count two of four.
    assert step_down(np.array([2.0, 4.0]), drawn, np.ones(4), extra=0.0) == pytest.approx([0.25, 0.25])
    # Monotone: the smaller statistic never gets the smaller p, although alone it would have one.
    alone = np.array([[0.0, 9.0], [0.0, 9.0], [1.0, 0.0], [0.0, 0.0]])
    assert step_down(np.array([1.0, 4.0]), alone, np.ones(4), extra=0.0) == pytest.approx([0.5, 0.5])


def test_a_monte_carlo_p_is_never_zero_and_honours_its_seed() -> None:
    columns = correlated(24, 3, seed=2)
    assert min(corrected(columns + 9.0)) == 1 / 10_000
    assert min(corrected(columns + 9.0, "bootstrap_t")) == 1 / 200_000
    for method in ("sign_flip", "bootstrap_t"):
        assert corrected(columns, method, rng_seed=1) == corrected(columns, method, rng_seed=1)
        assert corrected(columns, method, rng_seed=1) != corrected(columns, method, rng_seed=2)


def test_a_gain_in_the_wrong_direction_is_not_supported_and_does_not_block_the_others() -> None:
    wrong, right = np.full(8, 5.0) + correlated(8, 1)[0] * 0.1, -2.0 + correlated(8, 1, seed=1)[0] * 0.1
    found = corrected(np.vstack([wrong, right]), null=LOWER)
    assert found[0] == 1.0
    assert found[1] == pytest.approx(2 / 2**8)


def test_two_one_sided_tests_in_a_family_of_copies_are_the_plain_tost() -> None:
    column = correlated(7, 1, seed=4)[0] * 0.3
    null = nulls_of("does_not_change", "lower", 0.4)[0]
    own = null.p(prepared(column[None])[0])
    assert len(null.points) == 2
    assert own < 0.2
    assert corrected(np.vstack([column, 7.0 * column])[:1], null=null) == pytest.approx((own,))
    seven = nulls_of("does_not_change", "lower", 2.8)[0]
    tests = prepared(np.vstack([column, 7.0 * column]))
    assert adjust([(tests[0], null), (tests[1], seven)], rng_seed=0)[0][0] >= own


def test_sign_flips_serve_hypotheses_with_different_seeds_and_the_bootstrap_falls_back_to_holm() -> None:
    columns = correlated(7, 2, seed=6) + 1.0
    short = prepare(columns[1][:6], "sign_flip", np.random.default_rng(0))
    whole = prepare(columns[0], "sign_flip", np.random.default_rng(0))
    whole.seeds, short.seeds = tuple(range(7)), tuple(range(6))
    found, note = adjust([(whole, ZERO), (short, ZERO)], rng_seed=0)
    assert not note
    assert whole.p(0.0, "two") <= found[0]
    tests = [prepare(columns[0], "bootstrap_t", np.random.default_rng(0))]
    tests.append(prepare(columns[1][:6], "bootstrap_t", np.random.default_rng(0)))
    own = [test.p(0.0, "two") for test in tests]
    found, note = adjust([(test, ZERO) for test in tests], rng_seed=0)
    assert "Holm" in note
    assert found[int(np.argmin(own))] == pytest.approx(min(1.0, 2 * min(own)))


def test_max_t_intervals_are_narrower_than_bonferronis_and_agree_with_the_single_step() -> None:
    columns = correlated(6, 4, rho=0.9, seed=8) + np.array([0.2, 0.6, 1.0, 1.6])[:, None]
    tests = prepared(columns, "bootstrap_t")
    found = intervals(tests, 0.1, family=4, rng_seed=3)
    assert found is not None
    p = corrected(columns, "bootstrap_t")
    for test, interval, adjusted in zip(tests, found, p, strict=True):
        assert interval.method == "joint bootstrap-t, max-T over 4"
        bonferroni, plain = test.bounds(0.1 / 4), test.bounds(0.1)
        assert bonferroni is not None and plain is not None
        assert interval.low is not None and interval.high is not None
        assert plain[1] - plain[0] <= interval.high - interval.low < bonferroni[1] - bonferroni[0]
        if interval.low > 0 or interval.high < 0:
            assert adjusted <= 0.1  # step-down rejects whatever the single step rejects
    assert intervals(prepared(columns), 0.1, family=4, rng_seed=3) is None


def max_t_study(**changes: object) -> Study:
    return small_study(
        **({"analysis": {"test": "sign_flip", "correct": "max_t"}, "seeds": list(range(1, 7))} | changes)
    )


def test_six_seeds_of_sign_flips_decide_two_primaries_under_max_t_and_never_under_holm() -> None:
    effects = {"val/loss": {"layernorm": -0.2, "rmsnorm": -0.2}}
    found = {}
    for correct in ("max_t", "holm"):
        study = max_t_study(analysis={"test": "sign_flip", "correct": correct})
        registration, evidence = make_evidence(study, effects=effects, sd=0.004)
        found[correct] = decide(registration, evidence)
    assert (found["max_t"].verdict, found["holm"].verdict) == ("adopt layernorm", "inconclusive")
    gain = found["max_t"].findings[0]
    assert gain.p_support_adjusted == pytest.approx(2 / 2**6)
    assert "max-T p = .031 over 2" in gain.sentence
    assert (
        found["max_t"].model_dump_json()
        == decide(*make_evidence(max_t_study(), effects=effects, sd=0.004)).model_dump_json()
    )


def test_a_finding_names_its_simultaneous_interval_for_what_it_is() -> None:
    study = max_t_study(analysis={"test": "paired_t", "correct": "max_t"})
    registration, evidence = make_evidence(study, effects={"val/loss": {"layernorm": -0.2}}, sd=0.004)
    methods = {f.hypothesis: f.simultaneous.method for f in decide(registration, evidence).findings if f.simultaneous}
    assert set(methods.values()) == {"joint bootstrap-t, max-T over 2"}
    study = max_t_study()
    registration, evidence = make_evidence(study, effects={"val/loss": {"layernorm": -0.2}}, sd=0.004)
    for finding in decide(registration, evidence).findings:
        if finding.simultaneous is not None:
            assert "Bonferroni" in finding.simultaneous.method


def test_a_missing_pair_under_a_joint_bootstrap_is_told_in_the_findings() -> None:
    study = max_t_study(analysis={"test": "paired_t", "correct": "max_t"})
    _, evidence = make_evidence(study, sd=0.004, diverged=(("rmsnorm", 3),))
    findings = judge_hypotheses(study, {metric: evidence.final(metric) for metric in ("val/loss", "val/accuracy")})
    assert [finding.n for finding in findings] == [6, 5, 6, 5]
    assert all(any("Holm" in note for note in finding.notes) for finding in findings)


def test_too_many_nulls_on_either_side_are_refused() -> None:
    claims = {f"same_{k}": {"claim": "layernorm does_not_change val/loss", "smallest": 0.1 + k} for k in range(7)}
    decision = [{"verdict": "same", "when": "supported(same_0)"}, {"verdict": "inconclusive"}]
    study = one_claim(hypotheses=claims, decision=decision, analysis={"correct": "max_t"})
    with pytest.raises(UnsupportedError, match="7 primary claims"):
        require_known_methods(study)


def test_the_floor_that_planning_uses_is_the_one_the_correction_reaches() -> None:
    same = np.vstack([[3.0, 2.9, 3.1, 3.03, 2.8], [1.0, 1.1, 0.9, 1.06, 0.95]]) + 1e4
    for method in ("sign_flip", "bootstrap_t", "paired_t"):
        analysis = Analysis(test=method, correct="max_t")
        assert max(corrected(same, method)) == pytest.approx(p_floor_of(analysis, 2, 5, "two"), rel=1e-9)
    assert p_floor_of(Analysis(test="sign_flip"), 2, 5, "two") == 2 * p_floor_of(
        Analysis(test="sign_flip", correct="max_t"), 2, 5, "two"
    )


@pytest.mark.simulation
@pytest.mark.parametrize(("method", "n"), [("sign_flip", 7), ("wilcoxon", 7), ("bootstrap_t", 5), ("paired_t", 6)])
@pytest.mark.parametrize("false", [0, 1])
def test_the_family_wise_error_rate_is_at_most_alpha(method: Test, n: int, false: int) -> None:
    studies, wrong = 1500, 0
    rng = np.random.default_rng([n, false])
    for _ in range(studies):
        shared = rng.standard_normal(n)
        columns = sqrt(0.5) * shared + sqrt(0.5) * rng.standard_normal((4, n))
        columns[:false] += 3.0  # a null that is false must not help to reject the true ones
        wrong += min(corrected(columns, method)[false:]) <= 0.05
    assert wrong / studies <= 0.05 + 4 * sqrt(0.05 * 0.95 / studies), wrong / studies
