"""What this version cannot carry out is refused by name, before anything is registered."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import tiny_document

from ablate.support import require_supported
from prereg.errors import SpecError, UnsupportedError
from prereg.spec import study_from_document


def test_the_tiny_study_can_be_carried_out() -> None:
    require_supported(study_from_document(tiny_document()))


def test_a_trainer_of_ones_own_can_be_carried_out() -> None:
    own: dict[str, Any] = {
        "trainer": "command",
        "command": ["python", "train.py"],
        "base": {"lr": 0.1},
        "variants": {"none": {}, "layernorm": {"lr": 0.2}},
    }
    require_supported(study_from_document(tiny_document(**own)))
    with pytest.raises(UnsupportedError, match="harness") as caught:
        require_supported(study_from_document(tiny_document(**own, measure={"harness": {"tasks": "blimp"}})))
    assert caught.value.fix
    assert str(caught.value.where) == "measure.harness"


def test_tasks_and_items_of_the_built_in_trainer_can_be_carried_out() -> None:
    items: dict[str, Any] = {
        "analysis": {"test": "items", "estimand": "new_seeds_and_items"},
        "measure": {"harness": {"tasks": "blimp"}},
        "hypotheses": {"gain": {"claim": "layernorm raises harness/accuracy", "smallest": 0.01}},
    }
    require_supported(study_from_document(tiny_document(**items)))


def test_one_ceiling_for_two_metrics_is_refused() -> None:
    two = {
        "gain": {"claim": "layernorm lowers val/loss", "smallest": 0.05},
        "harm": {"claim": "layernorm does_not_worsen val/accuracy", "smallest": 0.05, "role": "guardrail"},
    }
    decision = [{"verdict": "adopt", "when": "supported(gain) and supported(harm)"}, {"verdict": "inconclusive"}]
    require_supported(study_from_document(tiny_document(on_divergence={"ceiling": 9.0})))
    with pytest.raises(UnsupportedError, match="one ceiling"):
        document = tiny_document(on_divergence={"ceiling": 9.0}, hypotheses=two, decision=decision)
        require_supported(study_from_document(document))


def test_a_ceiling_on_a_metric_without_a_worse_side_is_refused_where_a_lock_with_it_is_read() -> None:
    def ceiling(**better: str) -> Any:
        claim = {"claim": "layernorm lowers grad/norm", "smallest": 0.05} | better
        return study_from_document(tiny_document(on_divergence={"ceiling": 9.0}, hypotheses={"gain": claim}))

    require_supported(ceiling(better="lower"))
    with pytest.raises(SpecError, match="nothing says on which side of grad/norm") as caught:
        require_supported(ceiling())
    assert str(caught.value.where) == "on_divergence" and "better: lower" in caught.value.fix
