"""Arms made as large as the baseline: the width that was found is registered, told, and is what is trained."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from conftest import House, tiny_document
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from ablate import api
from ablate.reporting.summaries.study import sizes_sections
from ablate.reporting.terminal import show
from ablate.runner.progress import PlainWatcher
from prereg.documents.configuration import arm_sentences, arms_sentence
from prereg.errors import SpecError, StudyError
from prereg.registry.history import differing_fields, plain
from prereg.study.sizes import Match, fit, mismatch, parameters, with_width
from prereg.study.spec import Study, study_from_document
from prereg.study.training import Model, Training

VOCABULARY = 20
LARGE = {"layers": 4, "width": 64, "heads": 4, "context": 16}


def document(match: Any = None, **changes: Any) -> dict[str, Any]:
    made = tiny_document(**{"variants": {"none": {}, "layernorm": {"model.activation": "swiglu"}}, **changes})
    made["base"] = {**made["base"], "model": LARGE}
    return made if match is None else made | {"match": match}


def study(match: Any = None, **changes: Any) -> Study:
    return study_from_document(document(match, **changes))


def matched(made: Study) -> dict[str, int]:
    assert isinstance(made.match, Match)
    return made.match.feed_width


@pytest.mark.parametrize("by", ["parameters", "flops"])
def test_an_arm_gets_the_nearest_width_and_no_neighbour_is_nearer(by: Any) -> None:
    made = study(by)
    base, arm = made.training("none"), made.training("layernorm")
    width = matched(made)["layernorm"]
    assert arm.model.feed_width == width
    left = abs(mismatch(arm, base, by) or 0.0)
    assert left <= 0.01
    for other in (width - 1, width + 1):
        assert abs(mismatch(with_width(arm, other), base, by) or 0.0) >= left


@settings(max_examples=25, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "layers": st.integers(1, 6),
            "activation": st.sampled_from(("gelu", "swiglu")),
            "norm": st.sampled_from(("pre", "sandwich", "none")),
            "bias": st.booleans(),
            "qk_norm": st.booleans(),
            "width": st.sampled_from((32, 48, 64)),
            "tie_embeddings": st.booleans(),
        }
    ),
    st.sampled_from(("parameters", "flops")),
)
def test_the_width_that_is_offered_is_the_best_there_is(changes: dict[str, Any], by: Any) -> None:
    base = Training(model=Model.model_validate(LARGE))
    arm = Training(model=Model.model_validate(LARGE | changes))
    found = fit(arm, base, by, vocabulary=VOCABULARY)
    assert found is not None
    tried = {*range(1, 3000, 7), *range(max(1, found.feed_width - 3), found.feed_width + 4)}
    every = [abs(mismatch(with_width(arm, width), base, by, vocabulary=VOCABULARY) or 0.0) for width in tried]
    assert abs(found.remaining) == min(every)


def test_what_is_registered_is_the_width_and_it_is_read_back_as_it_is() -> None:
    made = study("parameters")
    kept = plain(made)
    assert kept["match"]["feed_width"] == matched(made)
    assert study_from_document(kept).arms == made.arms
    assert plain(study_from_document(kept)) == kept
    # A promise is a number and no formula: a width that this version would not have found is kept, if it fits.
    kept["match"]["feed_width"]["layernorm"] += 1
    again = study_from_document(kept)
    assert again.training("layernorm").model.feed_width == matched(made)["layernorm"] + 1
    assert [one.field for one in differing_fields(again, made)] == ["match.feed_width.layernorm"]
    kept["match"]["feed_width"]["layernorm"] += 50
    with pytest.raises(SpecError, match="differs from 'none' by"):
        study_from_document(kept)


def test_a_study_without_match_is_written_as_before() -> None:
    assert "match" not in plain(study())
    assert study().arms["layernorm"].overrides == {"model.activation": "swiglu"}


def test_an_arm_that_needs_no_width_gets_none() -> None:
    made = study("parameters", variants={"none": {}, "layernorm": {"model.positions": "learned", "optim.lr": 0.1}})
    assert matched(made) == {}
    assert made.training("layernorm").model.feed_width is None


def test_an_arm_with_a_width_of_its_own_keeps_it_if_it_fits_and_is_refused_where_it_does_not() -> None:
    def own(width: int) -> Study:
        arm = {"model.activation": "swiglu", "model.feed_width": width}
        return study("parameters", variants={"none": {}, "layernorm": arm})

    assert own(171).training("layernorm").model.feed_width == 171
    assert matched(own(171)) == {}
    with pytest.raises(SpecError) as error:
        own(256)
    assert error.value.where.field == ("variants", "layernorm", "model.feed_width")
    assert "model.feed_width: 170 leaves" in error.value.fix


def test_an_arm_that_no_width_makes_as_large_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'layernorm' with model.feed_width 1 differs from 'none' by \+"):
        study("parameters", variants={"none": {}, "layernorm": {"model.layers": 40}})


def test_only_the_named_arms_are_matched() -> None:
    arms = {"none": {}, "layernorm": {"model.activation": "swiglu"}, "deep": {"model.layers": 5}}
    assert set(matched(study("parameters", variants=arms))) == {"layernorm", "deep"}
    one = study({"by": "parameters", "arms": ["deep"]}, variants=arms)
    assert set(matched(one)) == {"deep"}
    assert one.training("layernorm").model.feed_width is None
    for wrong, found in (("none", "is the baseline"), ("deeep", "is not a variant")):
        with pytest.raises(SpecError, match=found):
            study({"by": "parameters", "arms": [wrong]}, variants=arms)


def test_untied_embeddings_need_the_number_of_tokens_which_is_held_against_the_corpus(house: House) -> None:
    arms = {"none": {}, "layernorm": {"model.tie_embeddings": False}}
    with pytest.raises(SpecError, match="depend on the number of tokens"):
        study("parameters", variants=arms)
    assert matched(study("flops", variants=arms)) == {}
    path = house.write(document({"by": "parameters", "vocabulary": 7}, variants=arms))
    with pytest.raises(StudyError) as error:
        api.register(path)
    assert "match.vocabulary is 7, and the corpus has" in error.value.found
    size = api.find_vocabulary(api.open_study(path))
    assert size is not None
    assert error.value.fix == f"vocabulary: {size}"
    registration, _ = api.register(house.write(document({"by": "parameters", "vocabulary": size}, variants=arms)))
    models = [registration.study.training(arm).model for arm in registration.study.arms]
    sizes = [parameters(model, size) for model in models]
    assert abs(sizes[1] - sizes[0]) <= 0.01 * sizes[0]


def test_a_users_own_trainer_has_no_sizes_to_match() -> None:
    made = document(
        "parameters", trainer="command", command=["{python}", "t.py"], variants={"none": {}, "layernorm": {"x": 2}}
    )
    with pytest.raises(SpecError, match="match: with a trainer whose configuration is not known"):
        study_from_document(made | {"base": {"x": 1}})


def test_factors_are_matched_cell_by_cell() -> None:
    made = document(
        "parameters",
        factors={
            "act": {"plain": {}, "glu": {"model.activation": "swiglu"}},
            "depth": {"four": {}, "five": {"model.layers": 5}},
        },
        baseline="plain-four",
        hypotheses={"gain": {"claim": "glu-four lowers val/loss", "smallest": 0.05}},
        decision=[{"verdict": "adopt", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
    )
    del made["variants"]
    assert set(matched(study_from_document(made))) == {"plain-five", "glu-four", "glu-five"}


def test_the_promise_tells_of_it_in_words() -> None:
    told = " ".join(arm_sentences(study("parameters")))
    assert "SwiGLU and feed-forward width 170" in told
    assert "Every other arm has as many trainable parameters as the baseline, within 1%" in told
    assert "FLOPs of training on a token" in arms_sentence(study("flops"))
    assert "as many" not in " ".join(arm_sentences(study()))


@pytest.mark.slow
def test_what_is_trained_has_the_registered_width_and_matches(house: House) -> None:
    made = document("parameters", seeds=[1, 2])
    made["base"] |= {"budget": {"steps": 2, "batch": 2}, "model": {**LARGE, "layers": 1, "width": 32}}
    made["measure"] = {"every": 2}
    ran = api.run(house.write(made), watcher=PlainWatcher(StringIO()))
    assert ran.summary.complete
    records = [json.loads(path.read_text()) for path in house.path.glob("data/runs/*/*/*/*/run.json")]
    sizes = {record["variant"]: record["parameters"] for record in records}
    assert abs(sizes["layernorm"] - sizes["none"]) <= 0.01 * sizes["none"]
    widths = {record["variant"]: record["config"]["model"]["feed_width"] for record in records}
    assert widths == {"none": None} | matched(ran.registration.study)


def told(made: Study, vocabulary: int | None) -> str:
    stream = StringIO()
    show(Console(file=stream, width=140), *sizes_sections(made, vocabulary))
    return stream.getvalue()


def test_check_shows_sizes_against_the_baseline_and_offers_the_width_that_matches() -> None:
    shown = told(study(), VOCABULARY)
    assert "With 20 tokens in the vocabulary" in shown
    assert f"{parameters(study().training('none').model, VOCABULARY):,}" in shown
    assert "To match, layernorm would take model.feed_width: 170 for the baseline's parameters" in shown
    unknown = told(study(variants={"none": {}, "layernorm": {"model.tie_embeddings": False}}), None)
    assert "comes with the corpus" in unknown
    assert "?" in unknown


def test_sizes_that_do_not_differ_are_not_shown() -> None:
    assert sizes_sections(study(variants={"none": {}, "layernorm": {"optim.lr": 0.1}}), VOCABULARY) == []
