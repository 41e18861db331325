"""A/A: two variants that are the same but in name, judged ten thousand times as a real study would be.

What the tool registers is an error rate; here it is counted over whole studies, verdict and all, and beside it what a
researcher gets who looks after every seed and stops at the first p below .05.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from evidence_factory import one_claim, small_study
from paired_tests import outcomes_of, p_against

from ablate.judge.design.simulate import adopting_verdicts
from ablate.judge.findings import judge_hypotheses
from prereg.study.spec import Study

pytestmark = pytest.mark.simulation
STUDIES = 10_000
ALPHA = 0.05
ALLOWED = ALPHA + 4 * sqrt(ALPHA * (1 - ALPHA) / STUDIES)


def adopted(study: Study, *, arms_differ_by: float = 0.0, studies: int = STUDIES, seed: int = 0) -> float:
    """Share of simulated studies that end in an adopting verdict, one by one through the scalar judge."""
    rng, adopting, found = np.random.default_rng(seed), adopting_verdicts(study), 0
    stable, arms, n = dict.fromkeys(study.arms, True), list(study.arms), len(study.seeds)
    for index in range(studies):
        values = {
            metric: 2.0
            + 0.01 * rng.standard_normal((len(arms), n))
            + np.where(np.arange(len(arms)), arms_differ_by, 0)[:, None]
            for metric in {claim.metric for claim in study.claims.values()}
        }
        differences = {
            name: sum(weight * values[claim.metric][arms.index(arm)] for arm, weight in claim.weights.items())
            for name, claim in study.claims.items()
        }
        outcomes = outcomes_of(study, differences, rng_seed=index)  # type: ignore[arg-type]
        found += study.rule.decide(outcomes, stable).verdict in adopting
    return found / studies


@pytest.mark.parametrize("test", ["paired_t", "sign_flip", "wilcoxon"])
def test_identical_variants_are_adopted_no_more_often_than_registered(test: str) -> None:
    # smallest 0 leaves nothing but the test against zero between chance and adoption: the worst case for the rule.
    gain = {"claim": "layernorm lowers val/loss", "smallest": 0.0}
    study = one_claim(
        seeds=8, hypotheses={"h": gain, "k": gain | {"claim": "rmsnorm lowers val/loss"}}, analysis={"test": test}
    )
    assert adopted(study) <= ALLOWED


def test_identical_variants_are_adopted_seldom_by_a_rule_with_guardrails() -> None:
    assert adopted(small_study()) <= ALLOWED


def test_the_harness_can_see_a_difference() -> None:
    assert adopted(small_study(), arms_differ_by=-0.05, studies=200) == 0.0  # accuracy falls with the loss here
    assert adopted(one_claim(), arms_differ_by=-0.05, studies=200) > 0.95


def test_the_scalar_judge_of_a_real_study_agrees_with_the_harness() -> None:
    study, rng, adopting = one_claim(smallest=0.0), np.random.default_rng(5), 0
    for index in range(1_500):
        values = {
            "val/loss": {(arm, seed): 2.0 + 0.01 * rng.standard_normal() for arm in study.arms for seed in study.seeds}
        }
        adopting += judge_hypotheses(study, values, rng_seed=index)[0].outcome == "supported"
    # Two-sided at .05 and counted in the claimed direction only: .025.
    assert adopting / 1_500 == pytest.approx(0.025, abs=4 * sqrt(0.025 * 0.975 / 1_500))


def test_looking_after_every_seed_misleads_and_a_fixed_number_does_not() -> None:
    # Statistics notes: at 3, 5 and 10 seeds and the first p below .05, type I .122; after every seed it is worse.
    rng, studies = np.random.default_rng(6), 4_000
    few = every = fixed = 0
    for _ in range(studies):
        x = rng.standard_normal(10)
        hits = {
            n: p_against(x[:n], "paired_t", null=0.0, side="two", rng=np.random.default_rng(0)) <= ALPHA
            for n in range(3, 11)
        }
        few += hits[3] or hits[5] or hits[10]
        every += any(hits.values())
        fixed += hits[10]
    assert few / studies == pytest.approx(0.122, abs=4 * sqrt(0.122 * 0.878 / studies) + 0.0005)
    assert every / studies > 0.14
    assert fixed / studies <= ALPHA + 4 * sqrt(ALPHA * (1 - ALPHA) / studies)
