"""Claims about studies over items: what the format refuses before anything is registered, and what it takes."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_factory import one_claim

from prereg.errors import SpecError
from prereg.metrics.catalogue import ITEM_METRICS, METRICS
from prereg.registry.history import differing_fields
from prereg.study.spec import Study

BLIMP = {"every": 20, "harness": {"tasks": "blimp"}}
PARADIGMS = {"every": 20, "harness": {"tasks": "blimp", "clusters": "tasks"}}
CROSSED = {"test": "items", "estimand": "new_seeds_and_items"}
THESE = {"test": "items", "estimand": "new_seeds"}


def study(claim: str = "layernorm raises harness/accuracy", **changes: Any) -> Study:
    return one_claim(claim, 0.01, **({"measure": BLIMP, "analysis": CROSSED} | changes))


def test_a_study_over_items_says_so_in_one_line_and_is_taken() -> None:
    for analysis in (CROSSED, THESE, {"also": ["items"]}, CROSSED | {"also": ["paired_t", "sign_flip"]}):
        assert study(analysis=analysis).claims["h"].better == "higher"
    macro = "layernorm does_not_worsen harness/macro_accuracy"
    assert study(macro, measure=PARADIGMS).measure.harness is not None
    assert study(macro, analysis=THESE).analysis.estimand == "new_seeds"
    assert study("(layernorm - none) raises harness/accuracy than (rmsnorm - none)").claims


@pytest.mark.parametrize(
    ("field", "found", "changes"),
    [
        ("analysis.estimand", "test is 'paired_t'", {"analysis": {"estimand": "new_seeds_and_items"}}),
        ("analysis.estimand", "nothing says what the verdict speaks of", {"analysis": {"test": "items"}}),
        ("on_divergence", "a ceiling", {"on_divergence": {"ceiling": 0.5}}),
        ("analysis.test", "'items' with on_divergence: rank", {"on_divergence": "rank"}),
        ("analysis.test", "'items' in a sequential study", {"stopping": {"looks": [3, 5]}}),
        ("analysis.test", "sequential", {"stopping": {"evidence": "e_process", "max_seeds": 5}}),
        ("hypotheses.h.read", "has no curve", {"hypothesis": {"read": "best"}}),
        ("hypotheses.h.read", "has no curve", {"hypothesis": {"read": {"step": 20}}}),
        ("hypotheses.h.scale", "scale is 'log'", {"hypothesis": {"scale": "log"}}),
        ("hypotheses.h.claim", "val/loss has no items", {"claim": "layernorm lowers val/loss"}),
        ("hypotheses.h.claim", "harness/ece has no items", {"claim": "layernorm lowers harness/ece"}),
        (
            "analysis.test",
            "no item is measured",
            {"measure": {"every": 20}, "claim": "layernorm lowers val/loss"},
        ),
        (
            "analysis.also",
            "no claim is about a metric with items",
            {"analysis": {"also": ["items"]}, "claim": "layernorm lowers val/loss"},
        ),
        (
            "analysis.test",
            "trainer is 'command'",
            {
                "trainer": "command",
                "command": ["python", "t.py"],
                "base": {"lr": 0.1},
                "variants": {"none": {}, "layernorm": {"lr": 0.2}},
                "hypothesis": {"better": "higher"},
            },
        ),
    ],
)
def test_what_has_no_meaning_over_items_is_refused_by_its_field(
    field: str, found: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(SpecError, match=found) as caught:
        study(**changes)
    assert str(caught.value.where) == field
    assert caught.value.required and caught.value.fix


def test_a_metric_over_items_is_defined_once() -> None:
    assert not set(ITEM_METRICS) & set(METRICS)
    assert {one.scores for one in ITEM_METRICS.values()} <= set(ITEM_METRICS)
    for name, one in ITEM_METRICS.items():
        assert name == one.name and name.startswith("harness/") and one.better == "higher"
        assert one.unit == "share" and one.definition


def test_a_field_that_came_later_leaves_a_registered_study_as_it_was() -> None:
    # A lock written before `clusters` lacks it: read with the default, it is the same study.
    from prereg.study.spec import study_from_document

    document = study(analysis=THESE).model_dump(mode="json")
    without = {**document, "measure": {**document["measure"], "harness": {"tasks": "blimp"}}}
    assert differing_fields(study_from_document(without), study_from_document(document)) == []
    # What the verdict speaks of is in every lock, and is read as said there.
    assert study_from_document(document).analysis.estimand == "new_seeds"
