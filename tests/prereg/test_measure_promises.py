"""What is measured and when: refused when no claim could read it, told in words; old promises keep their hash."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from conftest import House, tiny_document

import ablate as api
from ablate.checking import require_supported
from ablate.records.gather import gather
from ablate.runner.progress import PlainWatcher
from ablate.workspace import Workspace, require_registered
from prereg.documents.measures import recorded
from prereg.errors import ClaimError, SpecError
from prereg.metrics.catalogue import METRICS, TOKEN_CLASSES
from prereg.study.measure import Calibration, Inference, Measure
from prereg.study.spec import Study, study_from_document


def study(claim: str = "layernorm lowers val/loss", *, read: Any = "final", **changes: Any) -> Study:
    hypothesis = {"claim": claim, "smallest": 0.05, "read": read}
    return study_from_document(tiny_document(**{"hypotheses": {"gain": hypothesis}, **changes}))


ALL = {
    "every": 10,
    "suites": ["loss", "activations", "gradients", "speed", "length"],
    "at_end": ["calibration", "cost"],
    "loss_level": 2.0,
}


def test_a_measure_is_written_with_the_settings_of_its_suites() -> None:
    assert set(Measure().model_dump(mode="json")) == {*Measure.model_fields} - {"calibration", "inference"}
    whole = study(measure=ALL).model_dump(mode="json")["measure"]
    assert whole["at_end"] == ["calibration", "cost"] and whole["loss_level"] == 2.0
    # What its suites go by is written out whole, so that a later default changes no old study.
    assert whole["calibration"] == {"bins": 15}
    assert whole["inference"] == {"batch": 16, "length": None, "repeats": 5}
    assert study_from_document(study(measure=ALL).model_dump(mode="json")) == study(measure=ALL)


def test_the_defaults_that_old_registrations_do_not_hold_never_change() -> None:
    assert (Calibration().bins, Inference().batch, Inference().length, Inference().repeats) == (15, 16, None, 5)
    assert (Measure().at_end, Measure().loss_level) == ((), None)


@pytest.mark.parametrize(
    ("claim", "measure", "words"),
    [
        ("layernorm lowers calibration/ece", {"every": 10}, "of the suite 'calibration'"),
        ("layernorm lowers cost/mfu", {"every": 10}, "of the suite 'cost'"),
        ("layernorm lowers val/steps_to_level", {"every": 10}, "no level is declared"),
        ("layernorm lowers calibration/bin_accuracy_15", ALL, "there are 15 bins"),
        ("layernorm lowers residual/norm_1", ALL, "has 1 layers"),
        ("layernorm lowers residual/cosine_7", ALL, "at most residual/cosine_0"),
        ("layernorm lowers length/loss_beyond", ALL, "learned positions"),
    ],
)
def test_a_claim_about_what_no_run_will_have_is_refused(claim: str, measure: Any, words: str) -> None:
    with pytest.raises((SpecError, ClaimError)) as caught:
        study(claim, measure=measure)
    assert words in f"{caught.value.found}; {caught.value.required}"


def test_second_moments_are_not_asked_of_sgd() -> None:
    document = tiny_document(
        variants={"none": {}, "layernorm": {"optim.name": "sgd"}},
        hypotheses={"gain": {"claim": "layernorm lowers adam/second_moment", "smallest": 0.1}},
    )
    with pytest.raises(ClaimError, match="trains with sgd"):
        study_from_document(document)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ({"suites": ["loss", "cost"]}, "the suite 'cost' at every evaluation"),
        ({"suites": ["loss", "calibration"], "at_end": ["calibration"]}, "'calibration' is named twice"),
        ({"at_end": ["cost", "cost"]}, "'cost' is named twice"),
        ({"suites": ["speed"], "at_end": ["loss"], "loss_level": 2.0}, "a level of the loss"),
        ({"at_end": ["cost"], "inference": {"length": 17}}, "17 tokens"),
    ],
)
def test_a_measure_that_contradicts_itself_is_refused(measure: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        study(measure=measure, hypotheses={"gain": {"claim": "layernorm lowers train/loss", "smallest": 0.1}})


@pytest.mark.parametrize(
    ("claim", "read", "words"),
    [
        ("layernorm lowers calibration/ece", "area", "measured at the end"),
        ("layernorm lowers calibration/ece", {"last": 2}, "measured at the end"),
        ("layernorm lowers val/loss", {"last": 4}, "has 3 after step 0"),
        ("layernorm lowers cost/peak_memory", "best", "has no curve"),
    ],
)
def test_a_curve_is_read_only_where_there_is_one(claim: str, read: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        study(claim, read=read, measure=ALL)
    assert study("layernorm lowers val/loss", read={"last": 3}, measure=ALL)


def test_a_window_of_one_evaluation_is_no_window() -> None:
    with pytest.raises(SpecError):
        study(read={"last": 1})


def test_a_registration_says_what_is_measured_and_when() -> None:
    said = recorded(study(measure=ALL))
    assert "At the last step alone: calibration and cost." in said
    assert "15 bins of confidence" in said and "16 sequences of the context length, the median of 5 passes" in said
    assert "The level of the validation loss is 2 nats per token." in said
    assert recorded(study()) == (
        "Metrics are evaluated every 10 steps, at the start and at the last step; the recorded families are loss, "
        "activations, gradients and speed."
    )


@pytest.mark.slow
def test_every_suite_is_recorded_when_it_was_promised(house: House) -> None:
    """Each declared metric comes, at its own steps, and claims about new ones find their values."""
    claims = {
        "ece": {"claim": "layernorm lowers calibration/ece", "smallest": 0.01},
        "steps": {"claim": "layernorm lowers val/steps_to_level", "smallest": 1.0},
        "late": {"claim": "layernorm lowers val/loss", "smallest": 0.05, "read": {"last": 2}},
        "move": {"claim": "layernorm raises adam/second_moment_0", "smallest": 0.0},
    }
    rope = {"layers": 1, "width": 16, "heads": 2, "context": 16, "positions": "rope"}
    document = tiny_document(
        hypotheses=claims,
        seeds=[1, 2],
        measure=ALL,
        decision=[{"verdict": "adopt layernorm", "when": "supported(ece)"}, {"verdict": "inconclusive"}],
    )
    document["base"]["model"] = rope
    path = house.write(document)
    require_supported(study_from_document(document))
    api.run(path, workspace=api.Workspace(console=PlainWatcher(StringIO())))
    case = Workspace().open(path)
    frame = gather(case.root, require_registered(case)).metrics
    steps = {str(name): sorted(rows["step"].unique()) for name, rows in frame.groupby("metric")}
    absent = {name for name in METRICS if name not in steps}
    assert (
        absent
        <= {
            "cost/peak_memory",  # where the machine does not tell
            "speed/measure_own_s",
            # A text of letters, spaces and full stops.
            *(f"{stem}_{kind}" for stem in ("val/accuracy", "embedding/norm") for kind in TOKEN_CLASSES[1:]),
        }
    )
    assert "val/accuracy_alphabetic" in steps and "val/accuracy_punctuation" in steps
    for name, found in steps.items():
        suite = METRICS[name].suite
        if suite in ("calibration", "cost") or name.startswith(("speed/measure_calibration", "speed/measure_cost")):
            assert found == [30], name
        elif suite in ("gradients", "speed") and not name.startswith("speed/measure_"):
            assert found == [10, 20, 30], name
        elif name.startswith("val/"):
            assert found == [0, 10, 20, 30], name
    decided = api.decide(path).decision
    assert decided.status in ("decided", "inconclusive"), decided.because  # admissible: every claim found its values
    assert {one.hypothesis for one in decided.findings} == set(claims)


def test_every_declared_metric_has_a_plain_unit_or_none() -> None:
    assert {m.unit for m in METRICS.values()} <= {
        "", "nats/token", "bits/byte", "share", "steps", "tokens/s", "s", "bytes", "FLOP/token", "FLOP/s", "J", "nats",
    }  # fmt: skip
