"""Claims about where a metric is read: at the end, at a step, at its best, over its area; each as registered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_factory import make_evidence, one_claim
from sentences import sentence_of

from ablate.capabilities import require_supported
from ablate.judge.decide import decide, final_values
from ablate.judge.readings import read_values, reading_of
from ablate.records.evidence import Evidence
from prereg.study.spec import Study

CELL = ("layernorm", 2)


def reading_study(read: object, claim: str = "layernorm lowers val/loss", **changes: object) -> Study:
    return one_claim(claim, hypothesis={"read": read}, **changes)  # type: ignore[arg-type]


def with_curve(evidence: Evidence, curve: dict[int, float]) -> Evidence:
    frame = evidence.metrics.copy()
    here = (frame["variant"] == CELL[0]) & (frame["seed"] == CELL[1]) & (frame["metric"] == "val/loss")
    for step, value in curve.items():
        frame.loc[here & (frame["step"] == step), "value"] = value
    return replace(evidence, metrics=frame)


@pytest.mark.parametrize(
    ("read", "expected", "words"),
    [
        ("final", 3.0, "val/loss"),
        ("best", 1.0, "lowest val/loss"),
        ({"step": 20}, 2.0, "val/loss at step 20"),
        # Trapezoids over steps 0, 20, 40, 60: (4 + 2)/2, (2 + 1)/2, (1 + 3)/2, their mean 13/6.
        ("area", 13 / 6, "mean val/loss over training"),
        ({"last": 2}, 2.0, "mean of the last 2 val/loss"),
        ({"last": 3}, 2.0, "mean of the last 3 val/loss"),  # the value at step 0 is never one of them
    ],
)
def test_the_value_is_read_where_the_claim_says(read: object, expected: float, words: str) -> None:
    study = reading_study(read)
    require_supported(study)
    evidence = with_curve(make_evidence(study)[1], {0: 4.0, 20: 2.0, 40: 1.0, 60: 3.0})
    assert reading_of(study, "h") == words
    assert read_values(study, "h", evidence)[CELL] == pytest.approx(expected)
    assert final_values(study, evidence)[words][CELL] == pytest.approx(expected)


def test_the_best_of_a_metric_that_should_rise_is_its_highest() -> None:
    study = reading_study("best", "layernorm raises val/accuracy")
    evidence = make_evidence(study)[1]
    curve = evidence.curve("val/accuracy")
    mine = curve[(curve["variant"] == CELL[0]) & (curve["seed"] == CELL[1])]["value"]
    assert read_values(study, "h", evidence)[CELL] == mine.max()


def test_a_finding_says_where_its_metric_was_read() -> None:
    for read, words in (("area", "averaged over the steps of training"), ({"step": 40}, "at step 40")):
        study = reading_study(read)
        found = decide(*make_evidence(study, effects={"val/loss": {"layernorm": -0.2}}))
        assert found.verdict == "yes"
        assert f"layernorm improves validation loss {words} by" in sentence_of(found.findings[0], study)
        assert (found.findings[0].metric, found.findings[0].unit) == ("val/loss", "nats/token")


def test_two_claims_may_read_one_metric_at_different_places() -> None:
    hypotheses = {
        "early": {"claim": "layernorm lowers val/loss", "smallest": 0.02, "read": {"step": 20}},
        "late": {"claim": "layernorm lowers val/loss", "smallest": 0.02},
    }
    decision = [{"verdict": "yes", "when": "supported(early) and supported(late)"}, {"verdict": "inconclusive"}]
    study = one_claim(hypotheses=hypotheses, decision=decision)
    found = decide(*make_evidence(study, effects={"val/loss": {"layernorm": -0.2}})).findings
    differences = [one.estimate.difference for one in found if one.estimate is not None]
    assert len(differences) == 2 and differences[0] != differences[1]


def test_a_run_without_the_value_makes_the_evidence_inadmissible() -> None:
    study = reading_study({"step": 20})
    registration, evidence = make_evidence(study)
    frame = evidence.metrics
    gone = (frame["variant"] == CELL[0]) & (frame["seed"] == CELL[1]) & (frame["step"] == 20)
    found = decide(registration, replace(evidence, metrics=frame[~gone]))
    assert found.status == "inadmissible"
    assert "val/loss at step 20 of layernorm seed 2" in found.because


def test_a_mean_over_the_last_evaluations_wants_them_all() -> None:
    study = reading_study({"last": 3})
    evidence = make_evidence(study)[1]
    frame = evidence.metrics
    gone = (frame["variant"] == CELL[0]) & (frame["seed"] == CELL[1]) & (frame["step"] == 20)
    found = read_values(study, "h", replace(evidence, metrics=frame[~gone]))
    assert CELL not in found and ("layernorm", 1) in found
