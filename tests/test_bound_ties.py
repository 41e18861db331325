"""What is stated of a tie by one of several findings, and ties over a family of claims per task."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_factory import small_study
from prereg_samples import EMBNORM, changed, load_text

from prereg.documents.analysis_plan import families, tie_breakers
from prereg.errors import RuleError, SpecError
from prereg.rule.bound import absences_of_the_tie, tie_errors
from prereg.study.designs.per_task import with_tasks
from prereg.study.spec import Study, study_from_document

TWO_ARMS = {"none": {}, "layernorm": {"model.embedding_norm": "layernorm"}}
LINE = {"claim": "layernorm does_not_change harness/accuracy", "smallest": 0.1, "per": "task"}
SAME = {"claim": "layernorm does_not_change val/loss", "smallest": 0.02}
CLAIMS = {
    "same": SAME,
    "b": {"claim": "layernorm does_not_change val/accuracy", "smallest": 0.02},
    "gain": {"claim": "layernorm lowers val/loss", "smallest": 0.02, "role": "secondary"},
    "f": LINE,
}


def document(when: str, **changes: Any) -> dict[str, Any]:
    """Ties of single claims and of a family, in the role of each claim."""
    plain = small_study().model_dump(mode="json") | {
        "variants": TWO_ARMS,
        "measure": {"every": 20, "harness": {"tasks": "tasks/mine", "items_per_task": 12}},
        "hypotheses": CLAIMS,
        "decision": [{"verdict": "tie", "when": when}, {"verdict": "inconclusive"}],
        "tie_breakers": {
            "between": ["layernorm", "none"],
            "order": [{"metric": "speed/tokens_per_s", "smallest": "2%"}],
        },
        "assume": {},
    }
    return with_tasks(plain | changes, ("x", "y"))


def tied(when: str, **changes: Any) -> Study:
    return study_from_document(document(when, **changes))


GATE = {"gate": {"order": ["primary", "f", "secondary", "tie_breaker"]}}


@pytest.mark.parametrize(
    ("when", "at_most"),
    [
        # All findings are needed: one that is false, or after none that is, a false tie-breaking claim.
        ("supported(same)", 0.05),
        ("supported(same) and supported(b) and refuted(gain)", 0.05),
        ("not (not supported(same) or not refuted(b))", 0.05),
        ("not not supported(same)", 0.05),
        ("supported(same) and stable(none)", 0.05),
        ("all supported(f)", 0.05),
        # Either of two kinds: a false one of each, or of one, and after the other a false tie-breaking claim.
        ("supported(same) or refuted(gain)", 0.1),
        ("supported(same) or refuted(same)", 0.1),
        ("not inconclusive(same)", 0.1),
        ("not inconclusive(same) and stable(none)", 0.1),
        ("supported(same) or stable(none)", 0.1),
        ("supported(same) or all supported(f)", 0.1),
        # Several of one kind: while one is true, another can be false, and so can a tie-breaking claim.
        ("supported(same) or supported(b)", 0.1),
        ("any supported(f)", 0.1),
        ("supported(same) or any supported(f)", 0.15),
        ("not (inconclusive(same) and inconclusive(b))", 0.15),
        ("not (inconclusive(same) and inconclusive(gain))", 0.2),
        ("not all inconclusive(f)", 0.15),
    ],
)
def test_the_errors_of_a_tie_add_up_over_the_findings_by_which_it_can_hold(when: str, at_most: float) -> None:
    study = tied(when)
    assert absences_of_the_tie(study) == ()
    assert f"in at most {at_most:g}, where" in tie_errors(study)
    assert ("errors add up" in tie_errors(study)) is (at_most > 0.05)
    assert f"at most {at_most:g}, where" in families(study)


@pytest.mark.parametrize(
    ("when", "at_most"),
    [
        ("any supported(f)", 0.05),
        ("supported(same) or supported(gain)", 0.05),
        ("supported(same) or refuted(gain)", 0.1),
        ("not (inconclusive(same) and inconclusive(b))", 0.1),
        ("not (inconclusive(same) and inconclusive(gain))", 0.15),
    ],
)
def test_a_gate_holds_one_alpha_over_all_support_and_refutations_add_up(when: str, at_most: float) -> None:
    study = tied(when, analysis=GATE)
    assert f"in at most {at_most:g}, where" in tie_errors(study)


def test_a_sum_of_errors_is_at_most_one() -> None:
    made = tied("not (inconclusive(same) and inconclusive(b))")
    large = made.analysis.model_copy(update={"alpha": 0.4})  # more than a study may have, in place of many claims
    assert "in at most 1, where" in tie_errors(made.model_copy(update={"analysis": large}))


@pytest.mark.parametrize(
    ("when", "line"),
    [
        ("all supported(f)", "all supported(f) and supported({})"),
        ("any supported(f)", "any supported(f) and supported({})"),
        ("any supported(f) or refuted(gain)", "(any supported(f) or refuted(gain)) and supported({})"),
    ],
)
def test_a_tie_may_ask_about_a_family(when: str, line: str) -> None:
    study = tied(when)
    assert study.decision[0].when == line.format("layernorm_by_speed_tokens_per_s")
    assert [row.verdict for row in study.rule.table()][2:] == ["tie", "inconclusive"]
    assert study_from_document(study.model_dump(mode="json")) == study
    assert f"tie ({when})" in tie_breakers(study)
    # Without tie-breakers the same condition is one of the rule.
    assert tied(when, tie_breakers=[]).decision[0].when == when


def test_a_tie_over_a_family_is_checked_when_a_lock_is_read() -> None:
    held = tied("all supported(f)").model_dump(mode="json")
    held["decision"][2]["when"] = "any supported(f)"
    with pytest.raises(SpecError, match="tie_breakers write"):
        study_from_document(held)


def test_a_tie_that_asks_about_no_family_is_refused_at_its_line(tmp_path: Any) -> None:
    with pytest.raises(RuleError, match="'same' is no family"):
        tied("all supported(same)")
    text = changed(
        EMBNORM,
        "tie_breakers: [val/bits_per_byte, speed/tokens_per_s]\n",
        "tie_breakers:\n  between: [layernorm, none]\n  order:\n    - {metric: val/accuracy, smallest: 0.005}\n",
    )
    text = changed(
        text, "  harm_ln:", "  same: {claim: layernorm does_not_change val/loss, smallest: 0.02}\n  harm_ln:"
    )
    text = changed(
        text,
        "  - {verdict: inconclusive}",
        "  - {verdict: tie, when: all supported(same)}\n  - {verdict: inconclusive}",
    )
    with pytest.raises(RuleError, match="'same' is no family") as caught:
        load_text(tmp_path, text)
    assert caught.value.where.line is not None
    assert "verdict: tie" in text.splitlines()[caught.value.where.line - 1]
