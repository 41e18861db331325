"""Claims about verdicts over seeds x items: from a hand-made table of items through `decide` and `judge_hypotheses`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from evidence_factory import Cell, make_evidence, one_claim, with_items
from scipy import stats
from sentences import sentence_of

from ablate.judge import decide as judge
from ablate.judge.decide import decide
from ablate.judge.findings import judge_hypotheses
from ablate.judge.interim import restrict
from ablate.judge.readings import final_values, item_means
from ablate.judge.verdict import Decision, Finding
from ablate.records.evidence import Evidence
from prereg.registry.registration import Registration
from prereg.study.spec import Study

Scores = dict[Cell, npt.NDArray[np.float64]]
CLAIM = "layernorm raises harness/accuracy"
ARMS = ("none", "layernorm", "rmsnorm")


def items_study(
    estimand: str = "new_seeds_and_items",
    *,
    claim: str = CLAIM,
    clusters: str = "none",
    seeds: int = 5,
    analysis: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Study:
    """One claim over items, smallest difference half a point."""
    settings = {"test": "items", "estimand": estimand} | dict(analysis or {})
    measure = {"every": 20, "harness": {"tasks": "blimp", "clusters": clusters}}
    return one_claim(claim, 0.005, seeds=seeds, analysis=settings, measure=measure, **changes)


def drawn(
    study: Study,
    *,
    gain: float = 0.0,
    n_items: int = 60,
    by_seed: float = 0.01,
    by_item: float = 0.1,
    both: float = 0.1,
    seed: int = 0,
) -> Scores:
    """Scores that share a hard-or-easy part of every item over all arms, and differ by seed, item and both."""
    rng = np.random.default_rng(seed)
    hardness = 0.7 + 0.3 * rng.standard_normal(n_items)
    own = {arm: by_item * rng.standard_normal(n_items) for arm in study.arms if arm != study.baseline}
    found = {}
    for one in study.seeds:
        luck = 0.05 * rng.standard_normal()
        for arm in study.arms:
            score = hardness + luck + both / sqrt(2) * rng.standard_normal(n_items)
            if arm != study.baseline:
                score = score + gain + own[arm] + by_seed * rng.standard_normal()
            found[arm, one] = score
    return found


def case(study: Study, scores: Scores, *, tasks: Sequence[str] | None = None) -> tuple[Registration, Evidence]:
    registration, evidence = make_evidence(study)
    return registration, with_items(registration, evidence, scores, tasks=tasks)


def only(decision: Decision) -> Finding:
    assert len(decision.findings) == 1, decision.because
    return decision.findings[0]


def failed(decision: Decision) -> dict[str, str]:
    return {check.name: check.found for check in decision.checks if not check.passed}


def matrix(scores: Scores, study: Study) -> npt.NDArray[np.float64]:
    return np.array([scores["layernorm", seed] - scores["none", seed] for seed in study.seeds])


def test_a_gain_over_seeds_and_items_is_decided_and_told_with_everything_it_rests_on() -> None:
    study = items_study()
    decision = decide(*case(study, drawn(study, gain=0.2)))
    assert (decision.status, decision.verdict) == ("decided", "yes"), decision.because
    found = only(decision)
    assert found.estimate is not None and found.estimate.items is not None
    assert (found.estimate.method, found.n, found.estimate.items.n_items) == ("items", 5, 60)
    assert found.estimate.items.estimand == "new_seeds_and_items"
    assert "two-way t over 5 seeds x 60 items" in sentence_of(found, study)
    assert "df 4 over seeds and 59 over items, for new seeds and new items" in sentence_of(found, study)
    assert found.estimate.df is None
    said = sentence_of(found, study)
    assert said.startswith(
        "layernorm improves harness/accuracy by 0.2224, 95% CI 0.1952 to 0.2496, n = 5 pairs x 60 items"
    )


def test_the_two_way_error_is_the_anova_of_statsmodels() -> None:
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    study = items_study()
    scores = drawn(study, gain=0.05, by_seed=0.1)
    found = only(decide(*case(study, scores)))
    values = matrix(scores, study)
    long = pd.DataFrame([(s, i, values[s, i]) for s in range(5) for i in range(60)], columns=["s", "i", "y"])
    table = anova_lm(smf.ols("y ~ C(s) + C(i)", long).fit())
    squares = table["sum_sq"] / table["df"]
    ms_s, ms_i, ms_r = squares["C(s)"], squares["C(i)"], squares["Residual"]
    assert found.estimate is not None
    assert found.estimate.se == pytest.approx(sqrt((ms_s + ms_i - ms_r) / 300), rel=1e-9)
    # Each mean square with the t of its own df: the interval at 1 - alpha, and at 1 - p it ends at zero.
    interval = found.estimate.interval
    assert interval is not None and interval.low is not None and interval.high is not None
    for alpha, half in ((0.05, (interval.high - interval.low) / 2), (found.estimate.p, abs(values.mean()))):
        seeds, items = stats.t.isf(alpha / 2, 4), stats.t.isf(alpha / 2, 59)
        assert half == pytest.approx(sqrt((seeds**2 * ms_s + items**2 * (ms_i - ms_r)) / 300), rel=1e-9)


def test_with_these_items_it_is_the_paired_t_on_seed_means_to_the_last_digit() -> None:
    study = items_study("new_seeds", analysis={"also": ["paired_t"]})
    scores = drawn(study, gain=0.1)
    registration, evidence = case(study, scores)
    found = only(decide(registration, evidence))
    same = found.also[0]
    assert found.estimate is not None and same.interval is not None and found.estimate.interval is not None
    for field in ("difference", "p", "se", "df", "p_floor", "n"):
        assert getattr(found.estimate, field) == getattr(same, field), field
    assert (found.estimate.interval.low, found.estimate.interval.high) == (same.interval.low, same.interval.high)
    # And scipy's, on means that nothing of ours has taken.
    t = stats.ttest_1samp(matrix(scores, study).mean(axis=1), 0.0)
    assert found.estimate.p == pytest.approx(t.pvalue, rel=1e-9)
    # The same study judged by a paired t on the recorded means has the same outcome, p and interval.
    plain = one_claim(CLAIM, 0.005, measure={"every": 20, "harness": {"tasks": "blimp"}})
    assert evidence.items is not None
    theirs = judge_hypotheses(plain, {"harness/accuracy": item_means(evidence.items, "harness/accuracy")})[0]
    assert theirs.estimate is not None and theirs.estimate.p == found.estimate.p
    assert (theirs.outcome, theirs.p_refute) == (found.outcome, found.p_refute)
    assert "paired t over 5 seeds on their means of 60 items, df 4, for new seeds on these items" in sentence_of(
        found, study
    )


def test_paired_items_are_not_compared_as_if_unpaired() -> None:
    # lm-eval (issue 3831) takes the z of two independent samples: sqrt(SE1^2 + SE2^2). Items that are hard for both
    # arms then hide what they agree on. Here that z is below 1 and the paired test sees the gain.
    study = items_study()
    scores = drawn(study, gain=0.03, by_seed=0.002, by_item=0.02, both=0.02)
    found = only(decide(*case(study, scores)))
    left, right = (np.mean([scores[arm, seed] for seed in study.seeds], axis=0) for arm in ("layernorm", "none"))
    unpaired = sqrt(left.var(ddof=1) / left.size + right.var(ddof=1) / right.size)
    assert found.estimate is not None and found.estimate.se is not None
    assert abs(left.mean() - right.mean()) / unpaired < 1.0
    assert found.estimate.se < unpaired / 5 and found.outcome == "supported"


def test_rows_in_any_order_give_the_same_bytes() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.05))
    assert evidence.items is not None
    mixed = replace(evidence, items=evidence.items.sample(frac=1.0, random_state=3))
    assert decide(registration, mixed).model_dump_json() == decide(registration, evidence).model_dump_json()


def test_a_pair_is_made_by_the_items_names_and_never_by_their_places() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.05))
    assert evidence.items is not None
    # The scores of two items of one run change places: their names went with them, so the mean stays and the SE moves.
    swapped = evidence.items.copy()
    rows = swapped.index[(swapped["variant"] == "none") & (swapped["seed"] == 1)][[0, 2]]
    swapped.loc[rows, "value"] = swapped.loc[rows[::-1], "value"].to_numpy()
    one, other = (only(decide(registration, e)) for e in (evidence, replace(evidence, items=swapped)))
    assert one.estimate is not None and other.estimate is not None
    assert one.estimate.difference == pytest.approx(other.estimate.difference, abs=1e-15)
    assert one.estimate.se != pytest.approx(other.estimate.se, rel=1e-6)


def test_a_swapped_item_text_is_refused_and_named() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.2))
    assert evidence.items is not None
    table = evidence.items.copy()
    rows = table.index[(table["variant"] == "layernorm") & (table["seed"] == 2)][:2]
    table.loc[rows, "item_sha256"] = table.loc[rows[::-1], "item_sha256"].to_numpy()
    decision = decide(registration, replace(evidence, items=table))
    assert (decision.status, decision.verdict) == ("inadmissible", None)
    assert failed(decision) == {"every finished run scored the same items": "1: layernorm seed 2: other items"}
    found = only(decision)
    assert found.outcome == "inconclusive" and found.estimate is None
    assert "2 item(s) differ in content between runs, first even/00000" in sentence_of(found, study)


def test_items_that_are_missing_under_one_seed_are_refused() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.2))
    assert evidence.items is not None
    table = evidence.items
    some = table.drop(table.index[(table["variant"] == "none") & (table["seed"] == 3)][:1])
    decision = decide(registration, replace(evidence, items=some))
    assert failed(decision) == {"every finished run scored the same items": "1: none seed 3: other items"}
    assert "1 of 600 values of harness/accuracy are missing" in sentence_of(only(decision), study)
    gone = table[~((table["variant"] == "none") & (table["seed"] == 3))]
    decision = decide(registration, replace(evidence, items=gone))
    assert decision.status == "inadmissible"
    assert failed(decision) == {
        "every finished run has every claimed metric": "1: harness/accuracy of none seed 3",
        "every finished run scored the same items": "1: none seed 3: no items",
    }


def test_without_any_item_there_is_no_verdict_and_the_reason_is_told() -> None:
    study = items_study()
    registration, evidence = make_evidence(study)
    decision = decide(registration, evidence)
    assert decision.status == "inadmissible" and "every finished run has every claimed metric" in failed(decision)
    found = judge_hypotheses(study, {"harness/accuracy": {(a, s): 0.5 for a in ARMS for s in study.seeds}})[0]
    assert (found.outcome, found.estimate, found.p_support) == ("inconclusive", None, None)
    assert "cannot be tested: no item was recorded" in sentence_of(found, study)


def test_an_item_scored_twice_or_without_a_number_is_refused() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.2))
    assert evidence.items is not None
    twice = pd.concat([evidence.items, evidence.items.iloc[:1]])
    decision = decide(registration, replace(evidence, items=twice))
    assert "none seed 1: 1 twice" in failed(decision)["every finished run scored the same items"]
    holed = evidence.items.copy()
    holed.loc[0, "value"] = np.nan
    found = only(decide(registration, replace(evidence, items=holed)))
    assert found.outcome == "inconclusive" and "harness/accuracy of none, seed 1, is not finite" in sentence_of(
        found, study
    )


def test_items_that_no_run_sealed_give_no_verdict() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.2))
    bare = tuple(run.model_copy(update={"items_sha256": None}) for run in evidence.runs)
    decision = decide(registration, replace(evidence, runs=bare))
    assert decision.status == "inadmissible"
    assert "every item is sealed with its run" in failed(decision)
    assert "every sealed run is in the ledger" in failed(decision)


def test_a_recorded_mean_that_its_items_do_not_have_gives_no_verdict() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study, gain=0.2))
    assert evidence.items is not None
    mean = item_means(evidence.items, "harness/accuracy")["none", 1]
    for value, stands in ((mean, True), (mean + 1e-6, False)):
        row = pd.DataFrame([("none", 1, 60, "harness/accuracy", value)], columns=evidence.metrics.columns)
        decision = decide(registration, replace(evidence, metrics=pd.concat([evidence.metrics, row])))
        assert ("every recorded mean is that of its items" not in failed(decision)) is stands
        assert (decision.status == "decided") is stands


def test_the_hash_of_the_evidence_covers_items_and_only_where_there_are_some() -> None:
    study = items_study()
    registration, evidence = case(study, drawn(study))
    plain = make_evidence(study)[1]
    assert evidence.sha256 != plain.sha256
    other = with_items(registration, plain, drawn(study, seed=1))
    assert other.sha256 != evidence.sha256
    # As it was before runs could have items, computed here by hand.
    from prereg.registry.canon import sha256_of

    seals = [[r.variant, r.seed, [r.status, r.metrics_sha256, r.outcome_sha256]] for r in plain.runs]
    assert plain.sha256 == sha256_of(seals)


def test_clusters_change_the_test_as_they_should() -> None:
    # Four tasks whose items move together: as single items they look like 80 observations, and they are 4.
    tasks = [f"task{place % 4}" for place in range(80)]
    single, clustered = items_study(), items_study(clusters="tasks")
    scores = drawn(single, n_items=80, by_seed=0.002, by_item=0.02, both=0.02)
    shift = np.array([0.3, -0.2, 0.1, -0.1])[np.arange(80) % 4]
    scores = {cell: value + (shift if cell[0] == "layernorm" else 0.0) for cell, value in scores.items()}
    alone, together = (only(decide(*case(study, scores, tasks=tasks))) for study in (single, clustered))
    assert alone.estimate is not None and together.estimate is not None
    assert alone.estimate.difference == pytest.approx(together.estimate.difference, abs=1e-12)
    assert "df 4 over seeds and 79 over items" in sentence_of(alone, single)
    assert "df 4 over seeds and 3 over tasks" in sentence_of(together, clustered)
    assert alone.estimate.se is not None and together.estimate.se is not None
    assert together.estimate.se > 3 * alone.estimate.se
    assert "two-way t over 5 seeds x 4 tasks (80 items)" in sentence_of(
        together, clustered
    ) and "new tasks" in sentence_of(together, clustered)


def test_unequal_tasks_are_counted_by_what_they_weigh() -> None:
    study = items_study(clusters="tasks")
    decision = decide(*case(study, drawn(study, gain=0.2), tasks=["a"] * 40 + ["b"] * 15 + ["c"] * 5))
    found = only(decision)
    assert found.estimate is not None and found.estimate.items is not None
    effective = 60**2 / (40**2 + 15**2 + 5**2)
    assert found.estimate.items.effective == pytest.approx(effective)
    assert f"df 4 over seeds and exact over {effective:.3g} effective tasks" in sentence_of(found, study)
    assert found.estimate.notes == ("3 tasks of 5 to 40 items weigh like 1.95 of equal size",)
    # Three tasks of which one is two thirds: all that is seen of tasks is seen from two small ones.
    assert found.estimate.p > 2 * stats.t.sf(found.estimate.difference / found.estimate.se, 2)
    equal = only(decide(*case(study, drawn(study, gain=0.2), tasks=["a", "b", "c"] * 20)))
    assert equal.estimate is not None and equal.estimate.items is not None and equal.estimate.items.effective is None


def test_one_cluster_has_no_standard_error_and_no_verdict() -> None:
    # inspect_ai gives a clustered standard error of 0.0 there, and every difference is then certain.
    study = items_study(clusters="tasks")
    decision = decide(*case(study, drawn(study, gain=0.2), tasks=["one"] * 60))
    found = only(decision)
    assert (decision.status, found.outcome, found.p_support) == ("inconclusive", "inconclusive", None)
    assert "1 task: the variance over tasks is unknown, not zero" in sentence_of(found, study)


def test_macro_accuracy_counts_every_task_the_same_and_its_unit_is_the_task() -> None:
    study = items_study(claim="layernorm raises harness/macro_accuracy", clusters="tasks")
    tasks = ["a"] * 40 + ["b"] * 15 + ["c"] * 5
    scores = drawn(study, gain=0.1)
    registration, evidence = case(study, scores, tasks=tasks)
    found = only(decide(registration, evidence))
    values = matrix(scores, study)
    by_task = np.stack(
        [values[:, :40].mean(axis=1), values[:, 40:55].mean(axis=1), values[:, 55:].mean(axis=1)], axis=1
    )
    assert found.estimate is not None and found.estimate.items is not None
    assert found.estimate.difference == pytest.approx(by_task.mean())
    assert [pair.difference for pair in found.pairs] == pytest.approx(by_task.mean(axis=1))
    assert (found.estimate.items.n_items, found.estimate.items.n_units, found.estimate.items.unit) == (60, 3, "tasks")
    # Not the mean over items, which the first task would rule.
    assert found.estimate.difference != pytest.approx(values.mean(), abs=1e-4)


def test_a_diverged_run_leaves_its_seed_out_and_the_rest_is_paired() -> None:
    study = items_study(
        decision=[
            {"verdict": "yes", "when": "supported(h) and stable(layernorm) and stable(none)"},
            {"verdict": "inconclusive"},
        ]
    )
    registration, evidence = make_evidence(study, diverged=(("none", 3),))
    scores = {cell: value for cell, value in drawn(study, gain=0.2).items() if cell != ("none", 3)}
    decision = decide(registration, with_items(registration, evidence, scores))
    found = only(decision)
    assert decision.status == "inconclusive" and found.n == 4
    assert any("seed 3 is left out: no harness/accuracy from none" in note for note in found.notes)


def test_holm_corrects_claims_over_items_as_any_others() -> None:
    two = {
        "a": {"claim": CLAIM, "smallest": 0.005},
        "b": {"claim": "rmsnorm raises harness/accuracy", "smallest": 0.005},
    }
    rule = [{"verdict": "yes", "when": "supported(a) or supported(b)"}, {"verdict": "inconclusive"}]
    study = items_study(hypotheses=two, decision=rule)
    found = decide(*case(study, drawn(study, gain=0.08))).findings
    raw = [one.p_support for one in found]
    assert None not in raw
    small, large = sorted(raw)  # type: ignore[type-var]
    adjusted = sorted(one.p_support_adjusted or 9.0 for one in found)
    assert adjusted == pytest.approx([2 * small, max(2 * small, large)])  # type: ignore[operator]
    assert found[0].simultaneous is not None and found[0].simultaneous.level == pytest.approx(0.975)


def test_beside_a_paired_t_items_describe_new_seeds_and_new_items() -> None:
    study = one_claim(CLAIM, 0.005, analysis={"also": ["items"]}, measure={"every": 20, "harness": {"tasks": "blimp"}})
    registration, evidence = make_evidence(study)
    evidence = with_items(registration, evidence, drawn(study, gain=0.05))
    assert evidence.items is not None
    means = item_means(evidence.items, "harness/accuracy")
    rows = pd.DataFrame(
        [(arm, seed, 60, "harness/accuracy", value) for (arm, seed), value in means.items()],
        columns=evidence.metrics.columns,
    )
    found = only(decide(registration, replace(evidence, metrics=pd.concat([evidence.metrics, rows]))))
    assert found.estimate is not None and found.estimate.method == "paired_t" and found.estimate.items is None
    beside = found.also[0]
    assert beside.method == "items" and beside.items is not None and beside.items.estimand == "new_seeds_and_items"
    assert beside.difference == pytest.approx(found.estimate.difference)
    assert beside.se is not None and found.estimate.se is not None and beside.se > found.estimate.se
    unscored = only(decide(registration, replace(evidence, metrics=pd.concat([evidence.metrics, rows]), items=None)))
    assert unscored.also == () and any("no item was recorded" in note for note in unscored.notes)


def test_a_look_sees_only_the_items_of_its_seeds() -> None:
    study = one_claim(
        CLAIM,
        0.005,
        seeds=8,
        stopping={"looks": [3, 8]},
        analysis={"also": ["items"]},
        measure={"every": 20, "harness": {"tasks": "blimp"}},
    )
    registration, evidence = make_evidence(study)
    evidence = with_items(registration, evidence, drawn(study))
    seen = restrict(evidence, study.seeds[:3])
    assert seen.items is not None and set(seen.items["seed"]) == {1, 2, 3}
    assert judge.view(registration, evidence).evidence.items is not None


def test_values_of_a_claim_are_the_means_of_its_runs_items() -> None:
    study = items_study()
    scores = drawn(study)
    _, evidence = case(study, scores)
    values = final_values(study, evidence)["harness/accuracy"]
    assert values == pytest.approx({cell: float(np.mean(score)) for cell, score in scores.items()})
    pair = only(decide(*case(study, scores))).pairs[0]
    assert (pair.left, pair.right) == (values["layernorm", 1], values["none", 1])


def test_the_items_of_a_run_that_did_not_finish_are_not_read() -> None:
    study = items_study()
    registration, evidence = make_evidence(study, diverged=(("none", 3),))
    evidence = with_items(registration, evidence, drawn(study))
    assert ("none", 3) not in final_values(study, evidence)["harness/accuracy"]
