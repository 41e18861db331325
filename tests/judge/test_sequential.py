"""Claims about looks: valid p values, intervals that agree with them, no fixed rule."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from evidence_factory import one_claim, small_study
from paired_tests import judge_families, single, weigh
from scipy import special
from sentences import sentence_of

from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.scenarios import Drawn
from ablate.judge.design.simulate import judge_drawn
from ablate.judge.findings import judge_hypotheses
from ablate.judge.judge import OUTCOME, at_look, settles
from ablate.judge.stats.null_hypotheses import Nulls
from ablate.judge.stats.sequential import (
    RepeatedT,
    look_level,
    repeated_ps,
)
from ablate.judge.stats.significance_tests import NoTestError
from ablate.judge.stats.spending import Spending, nominal_levels
from prereg.errors import EvidenceError
from prereg.registry.looks import looks_of
from prereg.study.spec import Study

LOOKS = {"looks": [3, 5, 10], "spending": "obrien_fleming"}
SLEEP = -np.array([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])  # R `sleep`: drug 1 minus drug 2, 10 patients


def planned(stopping: object = LOOKS, *, seeds: int = 10, **changes: object) -> Study:
    return one_claim(seeds=seeds, stopping=stopping, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("spending", ["obrien_fleming", "pocock"])
def test_a_repeated_p_is_the_alpha_at_which_its_look_rejects(spending: str, two_sided: bool) -> None:
    for look in (1, 2, 3):
        for alpha in (1e-6, 0.0125, 0.05, 0.3):
            exact = nominal_levels(np.array([alpha]), (3, 5, 10), spending, two_sided=two_sided)  # type: ignore[arg-type]
            level = float(exact[look - 1, 0])
            found = repeated(level, look, spending, two_sided=two_sided)  # type: ignore[arg-type]
            assert found == pytest.approx(alpha, rel=2e-4), "interpolation"
            assert found >= level
            if two_sided:
                level = look_level(alpha, (3, 5, 10), look, spending)  # type: ignore[arg-type]
                assert level == pytest.approx(float(exact[look - 1, 0]), rel=2e-4), "interpolation"
                assert repeated(level, look, spending) == pytest.approx(alpha, rel=2e-6)  # type: ignore[arg-type]


def repeated(p: float, look: int, spending: Spending, *, two_sided: bool = True) -> float:
    return float(repeated_ps(np.array([p]), (3, 5, 10), look, spending, two_sided=two_sided)[0])


def test_a_repeated_p_is_never_zero_nor_above_one_and_grows_with_p() -> None:
    found = [repeated(p, 2, "obrien_fleming") for p in (5e-324, 1e-200, 1e-9, 1e-3, 0.2, 0.9, 1.0)]
    assert found == sorted(found) and found[0] > 0 and found[-1] == 1.0


def test_one_look_at_all_the_seeds_is_the_fixed_test() -> None:
    test = single(RepeatedT(SLEEP[None, :], looks=(10,), look=1, spending="pocock"))
    assert test.p(0.0, "two") == pytest.approx(0.002833, abs=5e-7)  # R t.test(paired)
    assert test.bounds(0.05) == pytest.approx((-2.4598858, -0.7001142), abs=1e-6)


def test_the_interval_holds_exactly_the_nulls_that_are_not_rejected() -> None:
    test = single(RepeatedT(SLEEP[None, :], looks=(5, 10), look=1, spending="pocock"))
    bounds = test.bounds(0.05)
    assert bounds is not None
    for edge, outside in zip(bounds, (-1, 1), strict=True):
        assert test.p(edge + 1e-5 * outside, "two") < 0.05 < test.p(edge - 1e-5 * outside, "two")


def test_a_sequential_study_judged_by_a_fixed_rule_is_refused_and_the_reverse() -> None:
    values = {"val/loss": {(arm, seed): 2.0 + 0.01 * seed for arm in ("none", "layernorm") for seed in range(1, 11)}}
    with pytest.raises(EvidenceError, match=r"3 registered looks .* as if its seeds were fixed"):
        judge_hypotheses(planned(), values)
    two, three = looks_of(planned({"looks": [5, 10]})), looks_of(planned())
    with pytest.raises(EvidenceError, match="not registered"):
        judge_hypotheses(one_claim(seeds=10), values, look=three[0])
    with pytest.raises(EvidenceError, match="not registered"):
        judge_hypotheses(planned(), values, look=two[0])


@pytest.mark.slow
def test_a_look_sees_its_own_seeds_only() -> None:
    study = planned()
    look = looks_of(study)[1]
    rng = np.random.default_rng(4)
    values = {"val/loss": {("none", seed): 2.0 + 0.01 * rng.standard_normal() for seed in study.seeds}}
    values["val/loss"] |= {("layernorm", seed): 1.9 + 0.01 * rng.standard_normal() for seed in study.seeds}
    finding = judge_hypotheses(study, values, look=look)[0]
    assert finding.n == 5 and not any("left out" in note for note in finding.notes)
    assert "95% repeated CI" in sentence_of(finding, study) and finding.estimate is not None
    assert finding.estimate.interval is not None and "look 2 of 3" in finding.estimate.interval.method
    assert any("nominal level 0.00297" in note for note in finding.notes)


@pytest.mark.slow
@pytest.mark.parametrize("stopping", [LOOKS, {"looks": [3, 5, 10], "spending": "pocock"}])
def test_simulated_studies_stop_where_the_judge_of_real_ones_stops(stopping: object) -> None:
    lines = [
        {"verdict": "adopt layernorm", "when": "supported(gain_ln) and not refuted(harm_ln)"},
        {"verdict": "keep none", "when": "refuted(gain_ln) and refuted(gain_rms)"},
        {"verdict": "inconclusive"},
    ]
    study = small_study(seeds=list(range(1, 11)), stopping=stopping, decision=lines)
    rng, n_studies = np.random.default_rng(8), 60
    drawn = {name: 0.01 * rng.standard_normal((n_studies, 10)) for name in study.hypotheses}
    drawn["gain_ln"] -= 0.08 * rng.random((n_studies, 1))
    drawn["gain_rms"][:5, :4] = 0.25  # no spread, and so no test, at the first look
    stable = np.ones((n_studies, 3), dtype=bool)
    ended = judge_drawn(study, Drawn(drawn, None, stable))
    codes, stopped = ended.codes, ended.look
    assert ended.ruled.all()  # no pair was lost
    assert len(set(stopped)) > 1, "the draws should reach several looks"
    for row in range(n_studies):
        for look in looks_of(study):
            nulls: dict[str, Nulls | None] = {}
            for name, claim in study.claims.items():
                try:
                    test = single(at_look(drawn[name][row : row + 1, : look.n_seeds], study.stopping, look))
                    nulls[name] = weigh(test, claim.verb, claim.better, study.hypotheses[name].smallest)
                except NoTestError:
                    nulls[name] = None
            outcomes = {name: judged.outcome for name, judged in judge_families(study, nulls).items()}
            if look.last or settles(study, outcomes, dict.fromkeys(study.arms, True)):
                break
        assert stopped[row] == look.number
        assert [OUTCOME[code] for code in codes[row]] == list(outcomes.values())


def test_a_design_says_where_the_study_would_end() -> None:
    belief = {"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}}
    found = simulate_design(planned(assume=belief), n_sims=400)
    null = found.scenarios[0]
    assert null.mean_seeds is not None and 5 < null.mean_seeds < 9 and len(null.stops) == 3
    assert sum(chance.share for chance in null.stops) == pytest.approx(1.0)
    assert any("the study ends" in note and "at 3 seeds" in note for note in found.notes)
    assert simulate_design(one_claim(assume=belief), n_sims=400).scenarios[0].stops == ()


def test_a_registered_look_prepares_its_own_test() -> None:
    study = planned({"looks": [2, 10], "spending": "pocock"})
    test = at_look(SLEEP[None, :2], study.stopping, looks_of(study)[0])
    assert isinstance(test, RepeatedT) and test.looks == (2, 10) and test.spending == "pocock"


def test_looks_are_those_of_the_study() -> None:
    assert looks_of(one_claim()) == ()
    assert [(one.number, one.of, one.n_seeds, one.last) for one in looks_of(planned())] == [
        (1, 3, 3, False),
        (2, 3, 5, False),
        (3, 3, 10, True),
    ]


ALPHA = 0.05


@pytest.mark.simulation
def test_looks_at_the_full_level_err_more_than_twice_over() -> None:
    studies, looks = 400_000, (3, 5, 10)
    x = np.random.default_rng(1).standard_normal((studies, looks[-1]))
    found = np.zeros(studies, dtype=bool)
    for n in looks:
        t = sqrt(n) * x[:, :n].mean(axis=1) / x[:, :n].std(axis=1, ddof=1)
        found |= 2 * special.stdtr(n - 1, -np.abs(t)) <= ALPHA
    assert found.mean() == pytest.approx(0.122, abs=0.0025)  # the project's notes; ours spend alpha: test_levels.py


@pytest.mark.simulation
def test_levels_of_the_plan_hold_nearly_where_a_pair_is_lost() -> None:
    # Divergence takes one of the first five pairs: the t have 3, 4, 7 and 9 differences, the levels are the plan's.
    study = one_claim(seeds=10, stopping={"looks": [3, 5, 8, 10], "spending": "pocock"})
    x = np.random.default_rng(2).standard_normal((400_000, 10))
    kept = np.ones(x.shape, dtype=bool)
    kept[:, 3] = False
    wrong = np.zeros(len(x), dtype=bool)
    for look in looks_of(study):
        part = x[:, : look.n_seeds][:, kept[0, : look.n_seeds]]
        wrong |= at_look(part, study.stopping, look).p(0.0, "two") <= ALPHA
    print(f"a pair lost: size {wrong.mean():.4f} of {len(x):,}")
    assert wrong.mean() == pytest.approx(0.05, abs=0.0025)
