"""Claims about looking back: plan against outcome, seeds still needed, exaggeration and wrong signs."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from evidence_factory import make_evidence, one_claim, small_study
from scipy import stats

from ablate.judge.decide import decide
from ablate.judge.design.characteristics import simulate_design
from ablate.judge.design.retrospective import Retrospective, look_back, selection
from ablate.judge.findings import judge_hypotheses
from ablate.judge.stats import t_power
from ablate.reporting.context import ReportContext
from ablate.reporting.sections.findings import findings_section
from prereg.registry.looks import looks_of
from prereg.study.spec import Study


def hindsight(study: Study, **made: object) -> tuple[dict[str, Retrospective], ReportContext]:
    registration, evidence = make_evidence(study, **made)  # type: ignore[arg-type]
    registration = registration.model_copy(update={"design": simulate_design(study, n_sims=20).model_dump(mode="json")})
    decision = decide(registration, evidence)
    told = ReportContext(
        decision, registration, evidence, ledger_head="0" * 64, generated_at="2026-05-04T14:00:00+00:00"
    )
    return {one.hypothesis: one for one in look_back(registration, decision.findings)}, told


def test_selection_agrees_with_a_simulation_of_two_hundred_thousand_tests() -> None:
    rng, n, size, alpha = np.random.default_rng(1), 5, 0.5, 0.05
    x = rng.standard_normal((200_000, n)) + size
    mean, se = x.mean(axis=1), x.std(axis=1, ddof=1) / sqrt(n)
    hit = np.abs(mean / se) > stats.t.ppf(1 - alpha / 2, n - 1)
    found = selection(size, n, alpha)
    assert found.power == pytest.approx(hit.mean(), abs=0.003)
    assert found.exaggeration == pytest.approx(np.abs(mean[hit]).mean() / size, rel=0.01)
    assert found.wrong_sign == pytest.approx((mean[hit] < 0).mean(), abs=0.004)


def test_selection_gives_gelman_and_carlins_example_where_n_is_large() -> None:
    # Gelman and Carlin (2014), "Beyond power calculations", p. 643-644: true effect 2, SE 8.1: power .06, type S .24,
    # exaggeration 9.7 ("a factor of 9.7" by 10,000 simulations). Closed form for a normal: Lu, Qiu and Deng (2019).
    n = 100_000
    found = selection(2 / 8.1 / sqrt(n), n, 0.05)
    assert found.power == pytest.approx(0.057, abs=1e-3)
    assert found.wrong_sign == pytest.approx(0.24, abs=0.005)
    assert found.exaggeration == pytest.approx(9.6, abs=0.15)


@pytest.mark.parametrize("size_sd", [1e3, 1e6, 1e12])
def test_selection_of_an_enormous_effect_is_none_and_there_at_once(size_sd: float) -> None:
    luck = selection(size_sd, 4, 0.05)
    assert (luck.power, luck.exaggeration) == (pytest.approx(1.0), pytest.approx(1.0)) and luck.wrong_sign == 0.0


def test_selection_vanishes_where_power_is_high() -> None:
    found = selection(4.0, 8, 0.05)
    assert found.power > 0.999 and found.exaggeration == pytest.approx(1.0, abs=1e-3) and found.wrong_sign < 1e-12
    assert selection(1.0, 6, 0.05).power == pytest.approx(t_power.t_test_power("either", 1.0, 6, 0.05))


@pytest.mark.slow
def test_what_came_stands_beside_what_was_assumed() -> None:
    found, told = hindsight(small_study(), sd=0.02, rho=0.0)
    gain = found["gain_ln"]
    finding = next(one for one in told.decision.findings if one.hypothesis == "gain_ln")
    assert finding.estimate is not None and finding.estimate.se is not None
    assert gain.sd == pytest.approx(finding.estimate.se * sqrt(5)) and gain.sd_assumed == pytest.approx(0.01)
    assert gain.correlation == finding.correlation and gain.correlation_assumed == 0.5
    assert gain.detectable == pytest.approx(t_power.detectable("towards", 5, 0.025) * gain.sd)
    assert gain.detectable_assumed == pytest.approx(t_power.detectable("towards", 5, 0.025) * 0.01)


def test_an_inconclusive_hypothesis_says_how_many_more_seeds_at_the_registered_smallest() -> None:
    study = one_claim(smallest=0.02)
    found, told = hindsight(study, sd=0.05, rho=0.0, seed=3)
    assert told.decision.findings[0].outcome == "inconclusive"
    one = found["h"]
    assert one.more_seeds == t_power.seeds_for("towards", 0.02 / one.sd, 0.05, 0.8) - 5  # type: ignore[operator]
    # At another observed effect with the same differences about it, the number is the same: it is not observed power.
    moved, _ = hindsight(study, sd=0.05, rho=0.0, seed=3, effects={"val/loss": {"layernorm": 0.005}})
    assert moved["h"].more_seeds == one.more_seeds
    text = str(findings_section(told))
    assert "Post hoc" in text and f"{one.more_seeds} more seeds" in text


def test_power_and_seeds_are_stated_at_the_effect_of_the_design() -> None:
    claim = "layernorm lowers val/loss by at least 0.01"
    expected = {"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}, "effects": {"h": 0.015}}
    study = one_claim(claim, hypothesis={"claim": claim, "smallest": 0.01}, assume=expected)
    found, _ = hindsight(study, sd=0.03, rho=0.0, seed=3)
    one = found["h"]
    assert one.effect == 0.015
    assert one.power == pytest.approx(t_power.t_test_power("margin", 0.005 / one.sd, 5, 0.05))
    assert one.detectable == pytest.approx(0.01 + t_power.detectable("margin", 5, 0.05) * one.sd)


def test_a_finding_at_low_power_carries_its_exaggeration() -> None:
    study = one_claim(smallest=0.005)
    found, told = hindsight(study, effects={"val/loss": {"layernorm": -0.05}}, sd=0.01)
    assert told.decision.findings[0].outcome == "supported"
    one = found["h"]
    expected = selection(0.005 / one.sd, 5, 0.05)
    assert one.exaggeration == pytest.approx(expected.exaggeration) and one.exaggeration > 1.3
    assert one.wrong_sign == pytest.approx(expected.wrong_sign) and one.more_seeds is None
    assert "winner's curse" in str(findings_section(told))


def test_a_finding_at_high_power_carries_none() -> None:
    found, told = hindsight(one_claim(smallest=0.05), effects={"val/loss": {"layernorm": -0.2}}, sd=0.005)
    assert found["h"].exaggeration is None and "winner's curse" not in str(findings_section(told))


def test_nothing_is_looked_back_at_while_runs_are_missing() -> None:
    found, told = hindsight(one_claim(), left_out=(("layernorm", 3),))
    assert found == {} and "Post hoc" not in str(findings_section(told))


def test_differences_that_are_equal_but_for_rounding_are_not_looked_back_at() -> None:
    found, told = hindsight(one_claim(), effects={"val/loss": {"layernorm": 0.1}}, sd=0.0)
    assert told.decision.findings[0].estimate is None and found == {}


def test_a_registration_without_a_design_is_looked_back_at_all_the_same() -> None:
    registration, evidence = make_evidence(small_study())
    found = look_back(registration, decide(registration, evidence).findings)
    assert len(found) == 4 and found[0].sd_assumed is None and found[0].correlation_assumed == 0.5


def test_a_sequential_study_is_looked_back_at_from_its_look_and_planned_by_its_most_seeds() -> None:
    study = one_claim(
        seeds=10,
        stopping={"looks": [5, 10], "spending": "pocock"},
        assume={"metrics": {"val/loss": {"sd": 0.01, "correlation": 0.5}}},
    )
    registration, evidence = make_evidence(study, effects={"layernorm": -0.2})
    registration = registration.model_copy(update={"design": simulate_design(study, n_sims=20).model_dump(mode="json")})
    findings = judge_hypotheses(study, {"val/loss": evidence.final("val/loss")}, look=looks_of(study)[0])
    one = look_back(registration, findings)[0]
    # What is open at the end says the seeds of one test without looks; what was found says none.
    _, open_evidence = make_evidence(study, sd=0.05, rho=0.0, seed=3)
    still_open = judge_hypotheses(study, {"val/loss": open_evidence.final("val/loss")}, look=looks_of(study)[1])
    [undecided] = look_back(registration, still_open)
    assert still_open[0].outcome == "inconclusive" and one.seeds_80 is None
    assert undecided.seeds_80 == t_power.seeds_for(
        "towards", undecided.effect / undecided.sd, 0.05, 0.8, refuted_below=still_open[0].smallest / undecided.sd
    )
    assert (one.n, one.planned) == (5, 10) and one.more_seeds is None and one.exaggeration is None
    assert one.detectable == pytest.approx(t_power.detectable("towards", 10, 0.05) * one.sd)
    assert one.detectable_assumed == pytest.approx(t_power.detectable("towards", 10, 0.05) * 0.01)
