"""A family is written from a line `per: task` and by nothing else: what would switch the correction off is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conftest import House
from evidence_factory import Change, make_evidence, with_amendments
from harness_samples import items_document, items_house
from paired_tests import judge_families
from study_samples import LINE, of_task, over_tasks

from ablate.judge.design.warnings import design_warnings
from ablate.judge.stats.null_hypotheses import Nulls
from prereg.errors import SpecError, StudyError
from prereg.registry.amendments import affected, amendments_of
from prereg.registry.history import differing_fields
from prereg.study.designs.per_task import of_any_task, with_tasks
from prereg.study.load import load_study
from prereg.study.spec import Study, study_from_document

TASKS = ("article", "end", "order")
GAIN = {"claim": "layernorm lowers val/loss", "smallest": 0.02}


def expanded(tasks: tuple[str, ...] = TASKS, **lines: Any) -> dict[str, Any]:
    """The plain data that a file with lines `per: task` becomes."""
    return with_tasks(over_tasks(lines or {"gain": GAIN, "no_harm": LINE}), tasks)


def refused(hypotheses: dict[str, Any], **changes: Any) -> SpecError:
    """The error of plain data with these hypotheses; a study is made of it by no other way either."""
    plain = over_tasks(hypotheses, **changes)
    with pytest.raises(SpecError) as caught:
        study_from_document(plain)
    with pytest.raises(SpecError):
        Study.model_validate_json(json.dumps(plain))
    assert caught.value.required and caught.value.fix
    return caught.value


@pytest.mark.parametrize("family", ["family: h0", "family: primary", "family: ''", "family:"])
def test_a_file_that_says_family_is_refused_at_its_line(house: House, family: str) -> None:
    one = {"claim": "layernorm raises harness/accuracy/article", "smallest": 0.02}
    decision = [{"verdict": "adopt", "when": "supported(h0.article)"}, {"verdict": "inconclusive"}]
    path = items_house(house, **items_document(hypotheses={"h0.article": one}, decision=decision, assume={}))
    assert load_study(path).study.families == {"primary": ("h0.article",)}
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("  h0.article:\n", f"  h0.article:\n    {family}\n"), encoding="utf-8")
    with pytest.raises(StudyError, match="family") as caught:
        load_study(path)
    error = caught.value
    assert error.where.field == ("hypotheses", "h0.article", "family") and error.where.file == path
    assert error.where.line is not None
    assert path.read_text(encoding="utf-8").splitlines()[error.where.line - 1].strip() == family
    assert "per: task" in error.required and "delete" in error.fix


def test_families_over_different_tasks_are_no_lines_per_task() -> None:
    four = {f"h{at}.{task}": of_task(task, family=f"h{at}") for at, task in enumerate(("a", "b", "c", "d"))}
    error = refused(four)
    assert "'h0'" in error.found and "'b'" in error.found
    # Two lines over the same tasks are.
    two = expanded(gains={**LINE, "claim": "layernorm raises harness/accuracy"}, no_harm=LINE)
    assert [len(names) for names in study_from_document(two).task_families.values()] == [3, 3]


def test_a_family_lacks_no_task_that_another_claim_is_about() -> None:
    error = refused({"h0.a": of_task("a", family="h0"), "b": of_task("b"), "c": of_task("c")})
    assert "no claim about the task 'b'" in error.found
    whole = expanded(no_harm=LINE, apart=of_task("end"))
    assert study_from_document(whole).families["primary"] == ("apart",)


def test_the_names_of_a_list_are_the_tasks_of_every_family() -> None:
    one = {"h0.piqa": of_task("piqa", family="h0")}
    assert "no claim about the task 'arc_easy'" in refused(one, pack="lm_eval:piqa,arc_easy").found
    assert study_from_document(over_tasks(one, pack="lm_eval:piqa")).families == {"h0": ("h0.piqa",)}
    other = {"h0.piqa": of_task("piqa", family="h0"), "h0.boolq": of_task("boolq", family="h0")}
    assert "'boolq'" in refused(other, pack="lm_eval:piqa").found


def test_what_a_lock_holds_of_a_family_is_read_back() -> None:
    study = study_from_document(expanded())
    held = study.model_dump(mode="json")
    assert held["hypotheses"]["no_harm.end"]["family"] == "no_harm"
    assert study_from_document(held) == study == Study.model_validate_json(study.model_dump_json())
    assert study.model_copy(update={"title": study.title}) == study


def test_tasks_whose_names_begin_other_words_are_left_out_alone() -> None:
    study = study_from_document(expanded(tasks=("a", "acc", "accuracy")))
    assert len(study.task_families["no_harm"]) == 3
    assert of_any_task(study, "no_harm", study.claims["no_harm.a"].metric) == "harness/accuracy"


def exploratory(study: Study, *changes: Change) -> set[str]:
    _, evidence = with_amendments(*make_evidence(study), ("outcomes read", list(changes)))
    return set(affected(study, amendments_of(evidence.ledger)).hypotheses)


def by_hand(*tasks: str) -> dict[str, Any]:
    """The claims about these tasks as the line writes them, but for the family."""
    made = expanded()["hypotheses"]
    return {f"no_harm.{task}": {**made[f"no_harm.{task}"], "family": None} for task in tasks}


OTHERS = {
    "harm": {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.01, "role": "guardrail"},
    "gain": GAIN,
}


def test_leaving_or_joining_a_family_reaches_the_hypothesis_and_both_corrections() -> None:
    line = study_from_document(expanded(**OTHERS, no_harm=LINE))
    hands = study_from_document(over_tasks({**OTHERS, **by_hand(*TASKS)}))
    changes = [(one.field, one.registered, one.now) for one in differing_fields(line, hands)]
    assert changes[0] == ("hypotheses.no_harm.article.family", "no_harm", None)
    # Out of the family: the three, and the guardrail that they are corrected with now.
    assert exploratory(hands, *changes) == {"harm", *by_hand(*TASKS)}
    assert exploratory(hands, changes[0]) == {"harm", *by_hand(*TASKS)}
    # Into it: the guardrail that they were corrected with was one of four, and is alone now.
    joined = ("hypotheses.no_harm.article.family", None, "no_harm")
    assert exploratory(line, joined) == {"harm", *by_hand(*TASKS)}


def test_what_stays_in_a_family_that_one_left_is_exploratory() -> None:
    """The one is about something else now, and the line was written over fewer tasks."""
    line = expanded(tasks=TASKS[1:], no_harm=LINE)["hypotheses"]
    made = over_tasks({**OTHERS, "no_harm.article": OTHERS["harm"], **line})
    study, rest = study_from_document(made), {"no_harm.end", "no_harm.order"}
    left: Change = ("hypotheses.no_harm.article.family", "no_harm", None)
    assert exploratory(study, left) == {"no_harm.article", "harm"} | rest
    moved: Change = ("hypotheses.no_harm.end.family", "other", "no_harm")
    assert exploratory(study, moved) == rest
    assert exploratory(study_from_document(made | {"analysis": {"correct": "none"}}), moved) == {"no_harm.end"}
    # Of one that was removed since, nothing says which role it left.
    gone: Change = ("hypotheses.no_harm.gone.family", None, "no_harm")
    assert exploratory(study, gone) == set(study.hypotheses)


def test_one_of_a_lock_s_family_cannot_be_corrected_by_itself() -> None:
    plain = study_from_document(expanded()).model_dump(mode="json")
    plain["hypotheses"]["no_harm.end"]["family"] = None
    with pytest.raises(SpecError, match="'no_harm' has no claim about the task 'end'"):
        study_from_document(plain)


@pytest.mark.slow
def test_a_role_of_several_families_is_said_to_hold_their_sum() -> None:
    """Two families of three tasks and a claim, one role, all nulls true: each is held and the role errs in about 3
    alpha (.143 of independent claims), as the warning says."""
    both = {"no_harm": LINE | {"role": "primary"}, "other": LINE | {"role": "primary", "smallest": 0.05}}
    study = study_from_document(expanded(gain=GAIN, **both))
    (found,) = [one for one in design_warnings(study) if one.kind == "families"]
    assert "the primary role is 3 families, the rest of the role, no_harm and other, corrected apart" in found.found
    assert "in at most 3 alpha, 0.15" in found.found and "gate" in found.fix
    rng, draws, role = np.random.default_rng(0), 3_000, 0
    by_family = dict.fromkeys(study.families, 0)
    for _ in range(draws):
        nulls = {name: Nulls(float(p), 1.0) for name, p in zip(study.hypotheses, rng.random(7), strict=True)}
        wrong = {name for name, one in judge_families(study, nulls).items() if one.outcome == "supported"}
        role += bool(wrong)
        for family, names in study.families.items():
            by_family[family] += bool(wrong & set(names))
    assert role / draws == pytest.approx(0.143, abs=0.02)
    assert all(wrong / draws < 0.05 + 3 * (0.05 * 0.95 / draws) ** 0.5 for wrong in by_family.values())


def test_one_family_in_a_role_and_families_behind_a_gate_are_no_warning() -> None:
    alone = study_from_document(expanded())
    gated = study_from_document(
        expanded(gain=GAIN, no_harm=LINE | {"role": "primary"}) | {"analysis": {"gate": {"order": ["gain", "no_harm"]}}}
    )
    assert not [one for study in (alone, gated) for one in design_warnings(study) if one.kind == "families"]
