"""Size of the whole sequential rule, and how far a user would be misled by looking after every seed.

A/A studies: two arms that do not differ, one claim each way of the rule, judged by the functions that judge real ones.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from evidence_factory import one_claim, small_study
from scipy import special

from ablate.judge.audit.sensitivity import settles
from ablate.judge.interim import rows_at
from ablate.judge.stats.estimate import NoTestError, prepare
from ablate.judge.stats.null_hypotheses import Nulls, judge_families, weigh
from ablate.judge.stats.sequential import EProcessT, e_from, prepare_at
from prereg.registry.looks import Look, looks_of
from prereg.rule.condition import Outcome
from prereg.study.spec import Study

pytestmark = pytest.mark.simulation

ALPHA = 0.05
E_PROCESS = {"evidence": "e_process", "max_seeds": 10}


def outcomes_at(study: Study, differences: dict[str, np.ndarray], look: Look) -> dict[str, Outcome]:
    """What a look makes of every hypothesis, as `judge_hypotheses` does it."""
    nulls: dict[str, Nulls | None] = {}
    for name, claim in study.claims.items():
        test = prepare_at(differences[name][: look.n_seeds], study.stopping, look)
        nulls[name] = weigh(test, claim.verb, claim.better, study.hypotheses[name].smallest)
    return {name: judged.outcome for name, judged in judge_families(study, nulls).items()}


def ended(study: Study, differences: dict[str, np.ndarray]) -> dict[str, Outcome]:
    """The outcomes at the look at which the registered rule stops."""
    stable = dict.fromkeys(study.arms, True)
    for look in looks_of(study):
        outcomes = outcomes_at(study, differences, look)
        if look.last or settles(study, outcomes, stable):
            return outcomes
    raise AssertionError(study.stopping)


def share_within(count: int, studies: int, most: float) -> None:
    assert count / studies <= most + 3 * sqrt(most * (1 - most) / studies), (count, studies)


def test_looks_at_the_full_level_err_more_than_twice_over() -> None:
    studies, looks = 400_000, (3, 5, 10)
    x = np.random.default_rng(1).standard_normal((studies, looks[-1]))
    found = np.zeros(studies, dtype=bool)
    for n in looks:
        t = sqrt(n) * x[:, :n].mean(axis=1) / x[:, :n].std(axis=1, ddof=1)
        found |= 2 * special.stdtr(n - 1, -np.abs(t)) <= ALPHA
    assert found.mean() == pytest.approx(0.122, abs=0.0025)  # the project's notes; ours spend alpha: test_levels.py


def test_levels_of_the_plan_hold_nearly_where_a_pair_is_lost() -> None:
    # Divergence takes one of the first five pairs: the t have 3, 4, 7 and 9 differences, the levels are the plan's.
    study = one_claim(seeds=10, stopping={"looks": [3, 5, 8, 10], "spending": "pocock"}, on_divergence="exclude_pair")
    x = np.random.default_rng(2).standard_normal((400_000, 10))
    kept = np.ones(x.shape, dtype=bool)
    kept[:, 3] = False
    wrong = np.zeros(len(x), dtype=bool)
    for look in looks_of(study):
        part = x[:, : look.n_seeds][:, kept[0, : look.n_seeds]]
        wrong |= rows_at(study, look, part).p(0.0, "two") <= ALPHA
    print(f"a pair lost: size {wrong.mean():.4f} of {len(x):,}")
    assert wrong.mean() == pytest.approx(0.05, abs=0.0025)


@pytest.mark.parametrize(
    ("stopping", "most"),
    [
        ({"looks": [3, 5, 8, 10], "spending": "obrien_fleming"}, 0.05),
        ({"looks": [3, 5, 8, 10], "spending": "pocock"}, 0.05),
        (E_PROCESS, 0.05),
    ],
)
def test_an_a_a_study_is_said_to_differ_no_more_often_than_registered(stopping: dict[str, Any], most: float) -> None:
    study = one_claim("layernorm changes val/loss", 0.0, seeds=10, stopping=stopping, decision=CHANGES)
    rng, studies, wrong = np.random.default_rng(3), 10_000, 0
    for _ in range(studies):
        wrong += ended(study, {"h": rng.standard_normal(10)})["h"] == "supported"
    print(f"{stopping}: {wrong} of {studies} A/A studies found a difference")
    share_within(wrong, studies, most)


CHANGES = [{"verdict": "yes", "when": "supported(h)"}, {"verdict": "inconclusive"}]


def test_looking_after_every_seed_misleads_three_times_as_often_as_promised() -> None:
    rng, studies, naive = np.random.default_rng(3), 10_000, 0
    for _ in range(studies):
        x = rng.standard_normal(10)
        naive += any(prepare(x[:n], "paired_t", rng).p(0.0, "two") <= ALPHA for n in range(3, 11))
    print(f"naive looks after each of 3 to 10 seeds: {naive} of {studies}")
    assert naive / studies > 0.15


def test_two_gains_and_two_guardrails_are_adopted_falsely_within_alpha() -> None:
    for stopping in ({"looks": [3, 5, 8, 10], "spending": "pocock"}, E_PROCESS):
        study = small_study(
            seeds=list(range(1, 11)),
            stopping=stopping,
            decision=[
                {"verdict": "adopt layernorm", "when": "supported(gain_ln)"},
                {"verdict": "adopt rmsnorm", "when": "supported(gain_rms)"},
                {"verdict": "keep none", "when": "refuted(gain_ln) and refuted(gain_rms)"},
                {"verdict": "inconclusive"},
            ],
        )
        rng, studies, wrong = np.random.default_rng(4), 1500, 0
        for _ in range(studies):
            arms = 0.01 * rng.standard_normal((3, 10))
            drawn = {"gain_ln": arms[1] - arms[0], "gain_rms": arms[2] - arms[0]}
            drawn |= {"harm_ln": drawn["gain_ln"], "harm_rms": drawn["gain_rms"]}
            outcomes = ended(study, drawn)
            wrong += "supported" in (outcomes["gain_ln"], outcomes["gain_rms"])
        print(f"{stopping}: {wrong} of {studies} A/A studies of two gains adopted")
        share_within(wrong, studies, 0.05)


def test_e_has_mean_at_most_one_and_rarely_reaches_twenty() -> None:
    # Bounded where n is small, so that the mean is not that of a tail which no simulation sees.
    studies = 400_000
    x = np.random.default_rng(5).standard_normal((studies, 10)) * 7.0
    ever = np.zeros(studies, dtype=bool)
    for n in range(2, 11):
        part = x[:, :n]
        t2_by_df = n * part.mean(axis=1) ** 2 / ((n - 1) * part.var(axis=1, ddof=1))
        values = e_from(t2_by_df, np.full(studies, float(n)))
        ever |= values >= 1 / ALPHA
        if n <= 5:
            assert values.mean() == pytest.approx(1.0, abs=4 * values.std() / sqrt(studies)), n
    # The notes give .03 for an e-process of theirs; this one is more careful: about .015 by ten seeds.
    print(f"e-process: reaches 20 within 10 seeds in {ever.mean():.4f} of {studies:,} null studies")
    assert 0.010 <= ever.mean() <= 0.018


def test_one_sided_evidence_at_the_margin_stays_within_alpha_under_continuous_looks() -> None:
    rng, studies, wrong = np.random.default_rng(6), 4000, 0
    for _ in range(studies):
        wrong += EProcessT(rng.standard_normal(12) + 0.7).p(0.7, "less") <= ALPHA
    share_within(wrong, studies, ALPHA)


@pytest.mark.parametrize("stopping", [{"looks": [3, 5, 8, 10], "spending": "pocock"}, E_PROCESS])
def test_the_interval_covers_at_every_look_together(stopping: dict[str, Any]) -> None:
    study = one_claim(seeds=10, stopping=stopping)
    rng, studies, missed = np.random.default_rng(7), 2000, 0
    for _ in range(studies):
        x = rng.standard_normal(10) + 1.3
        for look in looks_of(study):
            try:
                bounds = prepare_at(x[: look.n_seeds], study.stopping, look).bounds(0.1)
            except NoTestError:
                continue
            if bounds is not None and not bounds[0] <= 1.3 <= bounds[1]:
                missed += 1
                break
    share_within(missed, studies, 0.1)
