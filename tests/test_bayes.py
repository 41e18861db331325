"""Bayes factors and posteriors: published values, agreement with each other, and no word of them in any verdict."""

from __future__ import annotations

from io import StringIO
from math import pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from evidence_factory import make_evidence, one_claim
from own_trainer import OwnHouse

from ablate import api
from ablate.judge.decide import decide
from ablate.judge.description import describe, posterior, quantiles
from ablate.judge.verdict import verdict_bytes
from ablate.runner.options import RunOptions
from ablate.runner.progress import PlainWatcher
from prereg.documents.procedures import bayes
from prereg.errors import SpecError

SLEEP = np.array([-1.2, -2.4, -1.3, -1.3, 0.0, -1.0, -1.8, -0.8, -4.6, -1.4])
"""Differences of R's data set `sleep`."""
USUAL = sqrt(2) / 2


def test_the_bayes_factor_of_the_sleep_data_is_that_of_the_r_package() -> None:
    # Vignette of the R package BayesFactor (Morey and Rouder): ttestBF of sleep, paired, r = .707: 17.25888.
    study = one_claim(seeds=10)
    finals = {("none", seed): 5.0 for seed in study.seeds}
    finals |= {("layernorm", seed): 5.0 + SLEEP[seed - 1] for seed in study.seeds}
    decision = decide(*make_evidence(study, finals={"val/loss": finals}))
    (found,) = describe(decision.findings, USUAL)
    assert found.bayes_factor == pytest.approx(17.25888, abs=1e-5) and found.n == 10
    # Shrunk towards 0 from d_z = -1.2846, and within its classical interval -2.118 to -.415.
    assert -1.2846 < found.effect < -1.0
    assert -2.118 < found.low < found.effect < found.high < 0.0


@pytest.mark.parametrize(("t", "n"), [(-4.0621277, 10), (0.3, 5), (2.1, 3), (12.0, 5), (-40.0, 4)])
@pytest.mark.parametrize("scale", [USUAL, 0.2, 1.5])
@pytest.mark.slow
def test_prior_and_posterior_at_zero_give_the_bayes_factor(t: float, n: int, scale: float) -> None:
    """Savage and Dickey: the Bayes factor is the ratio of the two densities at no effect, by pingouin and by a grid."""
    import pingouin

    effects, density = posterior(t, n, scale)
    at_zero = float(np.exp(np.interp(0.0, effects, np.log(density))))
    factor = float(pingouin.bayesfactor_ttest(t, n, r=scale))
    if factor < 1e4:
        assert 1.0 / (pi * scale) / at_zero == pytest.approx(factor, rel=2e-3)
    assert np.trapezoid(density, effects) == pytest.approx(1.0)
    low, middle, high = quantiles(t, n, scale, (0.025, 0.5, 0.975))
    assert low < middle < high and np.sign(middle) == np.sign(t)
    # Never farther out than the data: the prior pulls towards 0.
    assert abs(middle) < abs(t) / sqrt(n)


def test_pairs_that_are_all_alike_or_diverged_have_none() -> None:
    study = one_claim()
    same = {(arm, seed): 5.0 + (arm == "layernorm") for arm in study.arms for seed in study.seeds}
    decision = decide(*make_evidence(study, finals={"val/loss": same}))
    assert describe(decision.findings, USUAL) == ()


def test_a_prior_changes_no_verdict_and_no_lock_without_one() -> None:
    plain, described = one_claim(), one_claim(analysis={"bayes": {}})
    assert "bayes" not in plain.model_dump_json() and "0.7071" in bayes(described) and bayes(plain) == ""
    first, second = (decide(*make_evidence(study)) for study in (plain, described))
    same = second.model_copy(update={"registration": first.registration, "evidence": first.evidence})
    assert first.findings == same.findings and first.verdict == same.verdict
    assert b"bayes" not in verdict_bytes(second).lower()
    with pytest.raises(SpecError, match="Bayes factors, and test is 'welch'"):
        one_claim(analysis={"bayes": {}, "test": "welch"})


@pytest.mark.slow
def test_the_report_shows_it_with_its_prior(tmp_path: Path) -> None:
    house = OwnHouse(tmp_path / "house")
    house.register(analysis={"bayes": {"scale": 0.5}})
    path = house.path / "studies" / "own.yaml"
    api.run(path, RunOptions(), watcher=PlainWatcher(StringIO()))
    api.decide(path)
    page = (house.path / "reports" / "own" / "report.md").read_text(encoding="utf-8")
    assert "Bayes factors and posteriors. They decide nothing." in page and "Cauchy prior of scale 0.5" in page
