"""Claims about beliefs: what `assume` says, what a pilot may tell, and when it may not."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from evidence_factory import make_evidence, make_registration, one_claim, small_study
from scipy import stats

import ablate as api
from ablate.judge.design.assumptions import assumed, learned
from ablate.judge.design.characteristics import simulate_design
from ablate.records.evidence import Evidence
from prereg.errors import EvidenceError, SpecError
from prereg.registry.registration import Registration
from prereg.study.spec import Study


def pilot(seeds: int = 30, **made: object) -> tuple[Registration, Evidence]:
    study = small_study(study="pilot", seeds=list(range(seeds)))
    return make_evidence(study, **made)  # type: ignore[arg-type]


def planned(**changes: object) -> Study:
    return small_study(assume={}, **changes)


def test_assumed_beliefs_are_those_of_the_block() -> None:
    found = assumed(small_study(assume={"metrics": {"val/loss": {"sd": 0.02, "correlation": 0.3}}, "divergence": 0.2}))
    belief = found.of("val/loss", "raw")
    assert belief is not None and (belief.sd, belief.correlation, belief.source) == (0.02, 0.3, "assumed")
    assert found.of("val/accuracy", "raw") is None and found.divergence == 0.2


def test_a_pilot_tells_sd_correlation_time_and_how_sure_it_is() -> None:
    found = learned(planned(), *pilot(sd=0.02, rho=0.6))
    belief = found.of("val/loss", "raw")
    assert belief is not None
    assert belief.sd == pytest.approx(0.02, rel=0.25) and belief.correlation == pytest.approx(0.6, abs=0.2)
    assert belief.source == "pilot 'pilot', 30 seeds x 3 arms, upper 80% limit of the SD"
    low, high = belief.sd_difference_low, belief.sd_difference_high
    assert low is not None and high is not None
    assert low < sqrt(2) * belief.sd_of_rest < high and low < 0.02 * sqrt(2 * 0.4) < high
    assert found.seconds_per_run is not None and "90 runs" in found.timed


@pytest.mark.simulation
def test_the_interval_of_a_pilots_sd_covers_as_often_as_it_says() -> None:
    covered, studies = 0, 60
    for seed in range(studies):
        belief = learned(one_claim(assume={}), *pilot(5, sd=0.02, rho=0.5, seed=seed)).of("val/loss", "raw")
        assert belief is not None and belief.sd_difference_low is not None and belief.sd_difference_high is not None
        covered += belief.sd_difference_low <= 0.02 <= belief.sd_difference_high  # sqrt(2 (1 - .5)) x .02
    assert covered / studies >= 0.95 - 4 * sqrt(0.05 * 0.95 / studies)


def test_a_plan_takes_the_upper_end_of_a_pilot_and_no_correlation_from_a_few_seeds() -> None:
    few, many = (learned(planned(), *pilot(n, sd=0.02, rho=0.6)).of("val/loss", "raw") for n in (3, 30))
    assert few is not None and few.correlation == 0.0 and few.sd > 0.02
    assert many is not None and 0.3 < many.correlation < 0.8
    # Both ends as chi-square has them: 80% and 97.5%, on 58 degrees of freedom, of the SD of a difference.
    high = many.sd_difference_high
    assert high is not None
    ratio = sqrt(float(stats.chi2.ppf(0.2, 58) / stats.chi2.ppf(0.025, 58)))
    assert high / (sqrt(2.0) * many.sd_of_rest) == pytest.approx(ratio)


def test_a_pilot_never_tells_who_is_better() -> None:
    apart = learned(planned(), *pilot(effects={"val/loss": {"layernorm": -0.3}})).of("val/loss", "raw")
    same = learned(planned(), *pilot()).of("val/loss", "raw")
    assert apart is not None and same is not None
    assert apart.sd == pytest.approx(same.sd) and apart.correlation == pytest.approx(same.correlation)


@pytest.mark.slow
def test_a_design_from_a_pilot_freezes_what_it_took_and_says_so() -> None:
    found = simulate_design(planned(), n_sims=50, beliefs=learned(planned(), *pilot()))
    assert len(found.scenarios) > 5 and len(found.beliefs) == 2 and found.seeds_80 is not None
    assert any("30 seeds x 3 arms" in note and "95% interval" in note for note in found.notes)
    assert found.seconds_per_run is not None and found.cost_80_s is not None and "pilot" in found.timed


def test_an_unfinished_pilot_is_not_looked_at() -> None:
    with pytest.raises(EvidenceError, match="early look"):
        learned(planned(), *pilot(5, left_out=(("layernorm", 3),)))


def test_a_study_is_not_its_own_pilot() -> None:
    registration, evidence = make_evidence(small_study())
    assert registration == make_registration(small_study())
    with pytest.raises(EvidenceError, match="its own pilot"):
        learned(small_study(), registration, evidence)


def test_two_seeds_are_no_pilot() -> None:
    with pytest.raises(EvidenceError, match="at least 3 seeds"):
        learned(planned(), *pilot(2))


@pytest.mark.parametrize(("level", "word"), [(0.998, "ceiling"), (0.001, "floor")])
def test_a_metric_at_the_end_of_its_range_cannot_decide(level: float, word: str) -> None:
    rng = np.random.default_rng(0)
    study = small_study(study="pilot")
    cells = {
        "val/accuracy": {
            (arm, seed): float(np.clip(level + 0.002 * rng.standard_normal(), 0, 1))
            for arm in study.arms
            for seed in study.seeds
        }
    }
    # The study has no beliefs of its own: it would take its SD from the pilot, and is refused all the same.
    with pytest.raises(SpecError, match=f"in the pilot 'pilot', val/accuracy lies at its {word}"):
        learned(planned(), *make_evidence(study, finals=cells))


def test_a_metric_that_never_moves_cannot_decide() -> None:
    study = small_study(study="pilot")
    stuck = {"val/accuracy": {(arm, seed): 0.25 for arm in study.arms for seed in study.seeds}}
    with pytest.raises(SpecError, match="the same for every seed"):
        learned(planned(), *make_evidence(study, finals=stuck))


@pytest.mark.slow
def test_the_verb_takes_a_pilot_of_the_same_house(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    registration, evidence = pilot()
    assert tmp_path
    monkeypatch.setattr("ablate.registering.require_registered", lambda _: registration)
    monkeypatch.setattr("ablate.records.gather.gather", lambda *_: evidence)
    found = api.design("studies/embnorm.yaml", pilot="quickstart")
    assert all(belief.source.startswith("pilot") for belief in found.beliefs)
