"""Claims for each task of the harness: written from one line, corrected as a family, asked about by all and any."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from conftest import House
from evidence_factory import Cell, make_evidence, with_items
from harness_samples import TASKS, items_document, items_house
from paired_tests import two_way
from scipy import stats
from sentences import sentence_of
from study_samples import LINE, SIZES, per_task_document

import ablate as api
from ablate.judge.decide import decide
from ablate.judge.recompute import recompute
from ablate.judge.stats.crossed_items import Crossed
from ablate.judge.stats.multiplicity import holm
from ablate.judge.stats.significance_tests import NoTestError
from ablate.judge.stats.two_way import spread_of, spread_within
from ablate.judge.verdict import Decision, Finding
from ablate.records.evidence import Evidence
from ablate.reporting.context import ReportContext
from ablate.reporting.markdown import render_markdown
from ablate.runner.options import RunOptions
from ablate.verification.verify import verify_target
from prereg.documents.facts import StudyFacts
from prereg.documents.sentences import say
from prereg.errors import RuleError, SpecError, StudyFileError
from prereg.metrics.catalogue import ITEM_METRICS, TASK_METRICS, task_of
from prereg.registry.paths import Root
from prereg.registry.registration import Registration
from prereg.rule.condition import holds, parse_condition
from prereg.study.designs.per_task import said_once, task_names
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document


def study(**changes: Any) -> Study:
    return study_from_document(per_task_document(**changes))


NEW_ITEMS = {"test": "items", "estimand": "new_seeds_and_items"}


def scores(
    study: Study, gains: Mapping[str, float], *, seed: int = 0, sd: float = 0.02
) -> tuple[dict[Cell, Any], list[str]]:
    """Scores of every item of three tasks of unequal size, and the task of each item."""
    rng = np.random.default_rng(seed)
    tasks = [task for task, size in SIZES.items() for _ in range(size)]
    hard = 0.6 + 0.1 * rng.standard_normal(len(tasks))
    suits = 0.05 * rng.standard_normal(len(tasks))
    found: dict[Cell, Any] = {}
    for one in study.seeds:
        for arm in study.arms:
            luck = {task: sd * rng.standard_normal() for task in SIZES}
            here = hard + np.array([luck[task] for task in tasks]) + 0.05 * rng.standard_normal(len(tasks))
            if arm == "layernorm":
                here = here + suits + np.array([gains.get(task, 0.0) for task in tasks])
            found[arm, one] = here
    return found, tasks


def case(study: Study, gains: Mapping[str, float], **how: Any) -> tuple[Registration, Evidence]:
    registration, evidence = make_evidence(study)
    values, tasks = scores(study, gains, **how)
    of = np.array(tasks)
    macro = {cell: float(np.mean([v[of == task].mean() for task in SIZES])) for cell, v in values.items()}
    rows = evidence.metrics[evidence.metrics["metric"] == "val/loss"].copy()
    rows["metric"] = "harness/macro_accuracy"
    rows["value"] = [macro[arm, seed] for arm, seed in zip(rows["variant"], rows["seed"], strict=True)]
    evidence = replace(evidence, metrics=pd.concat([evidence.metrics, rows], ignore_index=True))
    return registration, with_items(registration, evidence, values, tasks=tasks)


GAIN = dict.fromkeys(SIZES, 0.15)


def by_name(decision: Decision) -> dict[str, Finding]:
    return {one.hypothesis: one for one in decision.findings}


def test_a_line_per_task_is_one_hypothesis_for_each_task_and_a_family_of_its_own() -> None:
    made = study()
    assert list(made.hypotheses) == ["macro", "no_harm.a-easy", "no_harm.b", "no_harm.c"]
    assert made.hypotheses["no_harm.b"].claim == "layernorm does_not_worsen harness/accuracy/b"
    assert made.families == {"primary": ("macro",), "no_harm": tuple(f"no_harm.{task}" for task in SIZES)}
    assert made.family_of("no_harm.c") == made.families["no_harm"]
    assert {made.claims[name].better for name in made.families["no_harm"]} == {"higher"}
    assert said_once(made) == {"macro": "macro", "no_harm": "no_harm.a-easy"}
    assert study_from_document(made.model_dump(mode="json")) == made
    # Others of the same role are corrected apart from it.
    other = {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.01, "role": "guardrail"}
    both = study(hypotheses={"harm": other, "no_harm": LINE}, decision=[{"verdict": "inconclusive"}])
    assert both.families["guardrail"] == ("harm",)


def test_a_metric_of_one_task_is_the_mean_of_its_items() -> None:
    metric = ITEM_METRICS["harness/accuracy_shots_2/some-task"]
    assert (metric.scores, metric.counts_alike, metric.better) == ("harness/accuracy_shots_2", "items", "higher")
    assert "with 2 examples" in metric.definition and "the task some-task" in metric.definition
    assert TASK_METRICS.number(metric.name, "shots") == 2
    assert task_of("harness/macro_accuracy/x") is None and task_of("harness/accuracy") is None
    assert "harness/macro_accuracy/x" not in TASK_METRICS


def test_names_that_clash_or_are_too_long_are_refused() -> None:
    other = {"claim": "layernorm lowers val/loss", "smallest": 0.1}
    with pytest.raises(SpecError, match="there is another one of that name"):
        per_task_document(hypotheses={"no_harm": LINE, "no_harm.b": other})
    with pytest.raises(SpecError, match="would be named"):
        per_task_document(tasks=("x" * 80,))
    with pytest.raises(SpecError, match="is a role"):
        per_task_document(hypotheses={"guardrail": LINE})
    with pytest.raises(SpecError, match="not known here"):
        study_from_document(
            per_task_document() | {"hypotheses": {"no_harm": LINE}, "decision": [{"verdict": "inconclusive"}]}
        )
    changed = study().model_dump(mode="json")
    changed["hypotheses"]["no_harm.b"]["smallest"] = 0.2
    with pytest.raises(SpecError, match="other claims than one for each task"):
        study_from_document(changed)


def test_all_and_any_are_the_conjunction_and_the_disjunction_over_the_family() -> None:
    groups = {"g": ("g.a", "g.b")}
    every, some = (parse_condition(f"{word} refuted(g)", groups) for word in ("all", "any"))
    for a in ("supported", "refuted", "inconclusive"):
        for b in ("supported", "refuted", "inconclusive"):
            outcomes: dict[str, Any] = {"g.a": a, "g.b": b}
            assert holds(every, outcomes, {}) == ((a, b) == ("refuted", "refuted"))
            assert holds(some, outcomes, {}) == ("refuted" in (a, b))
    mixed = parse_condition("not any refuted(g) and not (all supported(g))", groups)
    assert holds(mixed, {"g.a": "inconclusive", "g.b": "supported"}, {})


def test_a_rule_over_families_is_proved_like_any_other() -> None:
    assert [row.settles for row in study().rule.table()] == [1, 27 + 2 * (27 - 8), 81 - 1 - 27 - 2 * 19]
    with pytest.raises(RuleError, match="can never decide"):
        study(
            decision=[
                {"verdict": "keep", "when": "any refuted(no_harm)"},
                {"verdict": "drop", "when": "all refuted(no_harm)"},
                {"verdict": "inconclusive"},
            ]
        )


def test_tasks_are_decided_each_by_its_own_pairs_and_corrected_over_the_family() -> None:
    made = study()
    decision = decide(*case(made, GAIN))
    assert (decision.status, decision.verdict) == ("decided", "adopt"), decision.because
    found = by_name(decision)
    values, tasks = scores(made, GAIN)
    of = np.array(tasks)
    p = {}
    for task in SIZES:
        pairs = [float((values["layernorm", s] - values["none", s])[of == task].mean()) for s in made.seeds]
        one = found[f"no_harm.{task}"]
        assert [pair.difference for pair in one.pairs] == pytest.approx(pairs)
        assert (one.n, one.family) == (5, 3)
        # One-sided against the margin of no harm, by scipy.
        p[one.hypothesis] = float(stats.ttest_1samp(pairs, -0.1, alternative="greater").pvalue)
        assert one.p_support == pytest.approx(p[one.hypothesis], rel=1e-9)
        assert one.simultaneous is not None and one.simultaneous.level == pytest.approx(1 - 0.05 / 3)
    assert [found[name].p_support_adjusted for name in p] == pytest.approx(list(holm(list(p.values()))))
    assert found["macro"].p_support_adjusted == found["macro"].p_support


def test_harm_on_one_task_is_found_although_the_mean_gains() -> None:
    decision = decide(*case(study(), GAIN | {"b": -0.2}))
    assert decision.verdict == "keep"
    found = by_name(decision)
    assert found["no_harm.b"].outcome == "refuted" and found["no_harm.c"].outcome == "supported"


def test_the_numbers_of_a_family_are_recomputed_with_its_own_correction() -> None:
    made = study()
    decision = decide(*case(made, GAIN))
    again = recompute(made, decision.findings)
    assert again.not_covered == () and all(one.equal for one in again.numbers)
    adjusted = [one for one in again.numbers if one.name == "p_support, adjusted"]
    assert {one.hypothesis for one in adjusted} == set(made.hypotheses)
    wrong = [
        one.model_copy(update={"p_support_adjusted": one.p_support}) if one.family > 1 else one
        for one in decision.findings
    ]
    assert not all(one.equal for one in recompute(made, wrong).numbers)


def test_no_task_is_judged_where_no_item_was_sealed() -> None:
    registration, evidence = case(study(), GAIN)
    decision = decide(registration, replace(evidence, items=None))
    assert decision.status == "inadmissible"


def test_a_gate_takes_a_family_as_a_step() -> None:
    made = study(analysis={"gate": {"order": ["no_harm", "macro"]}})
    assert made.gate_steps == (made.families["no_harm"], ("macro",))
    decision = decide(*case(made, GAIN))
    assert decision.verdict == "adopt"
    assert all(one.equal for one in recompute(made, decision.findings).numbers)


def strata(values: npt.NDArray[np.float64], tasks: list[int]) -> Crossed:
    codes = np.array(tasks, dtype=np.int64)
    return Crossed(values, np.arange(codes.size, dtype=np.int64), strata=codes)


def test_a_mean_over_tasks_weighs_them_alike_whatever_their_sizes() -> None:
    rng = np.random.default_rng(3)
    values, tasks = rng.standard_normal((4, 9)), [0, 0, 1, 1, 1, 1, 2, 2, 2]
    by_task = np.stack([values[:, np.array(tasks) == at].mean(axis=1) for at in range(3)], axis=1)
    test = two_way(strata(values, tasks))
    assert test.mean == pytest.approx(by_task.mean())
    items = test.estimate(0.05).items
    assert items is not None and items.strata == 3 and items.n_items == 9


def test_the_variance_within_tasks_is_the_sum_of_the_two_way_variances_of_each() -> None:
    """Of one task alone it is the two-way analysis of `spread_of`; of several the parts of items add by 1/K^2."""
    rng = np.random.default_rng(4)
    values, tasks = rng.standard_normal((5, 14)), [0] * 5 + [1] * 9
    whole, df = spread_within(values, np.array(tasks))
    tables = [Crossed(values[:, np.array(tasks) == at], np.arange(n)) for at, n in ((0, 5), (1, 9))]
    parts = [spread_of(table.means, table.weights) for table in tables]
    assert whole.units == pytest.approx(sum(float(one.units) for one in parts) / 4)
    assert whole.both == pytest.approx(sum(float(one.both) for one in parts) / 4)
    assert df == 4.0, "of the smallest task: Satterthwaite's err at tasks of very unequal size"
    alone, _ = spread_within(values[:, 5:], np.zeros(9, dtype=np.int64))
    assert float(alone.half(1.0, 1.0)) == pytest.approx(two_way(tables[1]).estimate(0.05).se)
    with pytest.raises(NoTestError, match="one item"):
        spread_within(values, np.array([0] * 13 + [1]))


def test_a_macro_claim_over_new_items_has_its_own_interval_within_the_tasks() -> None:
    made = study(analysis=NEW_ITEMS)
    decision = decide(*case(made, GAIN))
    assert decision.verdict == "adopt", decision.because
    macro = by_name(decision)["macro"]
    assert macro.estimate is not None and macro.estimate.items is not None and macro.estimate.interval is not None
    assert (macro.estimate.items.strata, macro.estimate.items.n_items) == (3, sum(SIZES.values()))
    assert "132 items within 3 tasks" in sentence_of(macro, made) and "new items of these tasks" in sentence_of(
        macro, made
    )
    one = by_name(decision)["no_harm.b"]
    assert one.estimate is not None and one.estimate.items is not None
    assert (one.estimate.items.n_items, one.estimate.items.strata) == (40, None)
    # Over these tasks and items alone the interval is that of the seeds, and narrower.
    same = by_name(decide(*case(study(), GAIN)))["macro"]
    assert same.estimate is not None and same.estimate.se is not None and macro.estimate.se is not None
    assert same.estimate.se < macro.estimate.se


def page_of(made: Study, gains: Mapping[str, float]) -> str:
    registration, evidence = case(made, gains)
    decision = decide(registration, evidence)
    return render_markdown(ReportContext(decision, registration, evidence, "0" * 64, "2026-05-04T15:20:11+00:00"))


def test_forms_and_pages_say_a_family_once_with_its_tasks_and_its_correction() -> None:
    made = study(analysis=NEW_ITEMS)
    said = [f"{one.label} {say('claims.full', made, one)}" for one in StudyFacts(made).claims]
    assert len(said) == 2 and said[1].startswith("no_harm (guardrail): The harness/accuracy is not lower")
    assert said[1].endswith("Claimed of each of 3 tasks, and corrected over them: a-easy, b and c.")
    assert "no_harm (one for each of 3 tasks; guardrail)" in say("families", made)
    assert "of the same tasks, which are strata" in say("estimand", made)
    rows = {line.when: line.verdict for line in StudyFacts(made).decision}
    assert rows["macro is supported and every claim of no_harm is supported"] == "adopt"
    assert rows["macro is refuted or some claim of no_harm is refuted"] == "keep"


def test_the_tasks_of_a_macro_claim_alone_are_description() -> None:
    one = {"macro": {"claim": "layernorm raises harness/macro_accuracy", "smallest": 0.01}}
    rule = [{"verdict": "adopt", "when": "supported(macro)"}, {"verdict": "inconclusive"}]
    page = page_of(study(hypotheses=one, decision=rule, analysis=NEW_ITEMS), GAIN)
    assert "macro, by task." in page and "description, which decides nothing" in page and "not claimed" in page


def chain_document() -> dict[str, Any]:
    """The tiny study of the made-up pack, with a macro claim and one claim for each task."""
    return items_document(
        hypotheses={
            "macro": {"claim": "layernorm raises harness/macro_accuracy", "smallest": 0.02},
            "no_harm": {
                "claim": "layernorm does_not_worsen harness/accuracy_shots_2",
                "smallest": 0.5,
                "per": "task",
                "role": "guardrail",
            },
        },
        decision=[
            {"verdict": "adopt", "when": "supported(macro) and all supported(no_harm)"},
            {"verdict": "keep", "when": "refuted(macro) or any refuted(no_harm)"},
            {"verdict": "inconclusive"},
        ],
        assume={"metrics": {"harness/macro_accuracy": {"sd": 0.05}, "harness/accuracy_shots_2/*": {"sd": 0.1}}},
    )


NO_HARM = ["no_harm.article", "no_harm.end", "no_harm.order"]


def test_a_file_is_written_out_over_the_tasks_of_the_pack_that_lies_here(house: House) -> None:
    path = items_house(house, **chain_document())
    loaded = load_study(path)
    assert [*loaded.study.hypotheses][1:] == NO_HARM
    assert loaded.study.claims["no_harm.end"].metric == "harness/accuracy_shots_2/end"
    # An error of a written claim is on the line that it is written from.
    at = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if line.strip().startswith("no_harm:"))
    assert loaded.line(("hypotheses", "no_harm.end")) == at
    assert task_names(TASKS, Root(house.path)) == ("article", "end", "order")
    assert task_names("lm_eval:piqa,arc_easy", Root(house.path)) == ("arc_easy", "piqa")
    (house.path / TASKS / "more.yaml").write_text("task: more\n")
    assert task_names(TASKS, Root(house.path)) == ()


def test_without_its_pack_a_study_is_written_out_over_the_tasks_of_its_lock(house: House) -> None:
    path = items_house(house, **chain_document())
    api.register(path)
    shutil.rmtree(house.path / TASKS)
    assert [*load_study(path).study.hypotheses][1:] == NO_HARM
    path.with_suffix(".lock.json").unlink()
    with pytest.raises(StudyFileError, match="not known here") as caught:
        load_study(path)
    assert caught.value.fix


@pytest.mark.slow
def test_a_study_per_task_is_designed_registered_run_decided_verified_and_bundled(house: House) -> None:
    path = items_house(house, **chain_document())
    api.run(path, RunOptions(slots=1))
    lock = json.loads(path.with_suffix(".lock.json").read_text())
    assert [*lock["study"]["hypotheses"]][1:] == NO_HARM
    assert lock["study"]["hypotheses"]["no_harm.end"]["family"] == "no_harm"
    decided = api.decide(path)
    assert decided.decision.status != "inadmissible", decided.decision.because
    assert [one.hypothesis for one in decided.decision.findings][1:] == NO_HARM
    page = decided.markdown_path.read_text()
    assert "no_harm, by task." in page and "| 0.50 |" in page  # chance among two choices
    assert [item.faults for item in verify_target(path).items if item.faults] == []
    # The bundle is checked as a stranger would, and judged again, before it is left behind.
    assert api.bundle(path, out=house.path / "tiny.ablate.zip").path.is_file()
