"""The study: promises between fields, and what a study knows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from prereg_samples import COMMAND, EMBNORM, NORMPLACE, changed, load_text

from prereg.documents.published import json_schema
from prereg.errors import SpecError
from prereg.study.arms import resolve_arms
from prereg.study.spec import Study
from prereg.study.training import Bpe, Data, Training


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return load_text(tmp_path, EMBNORM).study


def test_a_study_knows_its_families_directions_and_configurations(study: Study) -> None:
    assert study.families["primary"] == ("gain_ln", "gain_rms")
    assert study.families["guardrail"] == ("harm_ln", "harm_rms")
    assert "exploratory" not in study.families
    assert (study.claims["gain_ln"].better, study.claims["harm_ln"].better) == ("lower", "higher")
    assert study.training("rmsnorm").model.embedding_norm == "rmsnorm"
    assert study.claims["gain_ln"].weights == {"layernorm": 1.0, "none": -1.0}
    assert len(study.rule.table()) == 6


def test_what_a_study_leaves_out_is_filled_in_and_stored(tmp_path: Path) -> None:
    stored = load_text(tmp_path, NORMPLACE, "normplace").study.model_dump(mode="json")
    assert stored["base"]["optim"]["betas"] == [0.9, 0.95]
    assert stored["analysis"]["correct"] == "holm"
    assert stored["hypotheses"]["depth_interacts"]["role"] == "primary"


def test_looking_at_a_study_does_not_change_what_it_equals(tmp_path: Path, study: Study) -> None:
    fresh = load_text(tmp_path, EMBNORM).study
    _ = study.arms, study.claims, study.rule
    assert study == fresh
    assert fresh.model_dump() == study.model_dump()


def test_a_copy_of_a_study_is_checked_and_carries_nothing_cached(study: Study) -> None:
    assert len(study.arms) == 3
    smaller = study.model_copy(update={"seeds": (1, 2, 3)})
    assert smaller.seeds == (1, 2, 3)
    with pytest.raises(SpecError, match="seed 1 is given twice"):
        study.model_copy(update={"seeds": (1, 1)})
    other = study.model_copy(update={"variants": dict(study.variants) | {"center": {"model.embedding_norm": "center"}}})
    assert "center" in other.arms


def test_a_study_is_frozen(study: Study) -> None:
    with pytest.raises(ValueError, match="frozen"):
        study.seeds = (1, 2)


def test_the_schema_describes_every_field() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    undescribed = []
    for name, part in {"Study": schema, **schema["$defs"]}.items():
        if not part.get("description"):
            undescribed.append(name)
        fields = part.get("properties", {})
        undescribed += [f"{name}.{field}" for field, inner in fields.items() if not inner.get("description")]
        assert not fields or part["additionalProperties"] is False, name
    assert undescribed == []
    assert not Study.model_config.get("use_attribute_docstrings"), "reads the source of every model at import"
    assert {"DecisionLine", "Hypothesis", "Model", "Bpe"} <= set(schema["$defs"])


def test_the_schema_takes_the_worked_examples_and_refuses_a_typo() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from prereg.yaml_reader import parse_yaml

    validator = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    for text in (EMBNORM, NORMPLACE, COMMAND):
        assert list(validator.iter_errors(parse_yaml(text.encode(), {}))) == []
    assert (
        list(validator.iter_errors(parse_yaml(changed(COMMAND, "seeds: [", "seeds: fresh 5 # [").encode(), {}))) == []
    )
    for old, new in (
        ("seeds: [", "seeds: fresh five # ["),
        ("seeds:", "seed:"),
        ("layers: 8", "layer: 8"),
        ("norm: pre", "norm: prae"),
    ):
        assert list(validator.iter_errors(parse_yaml(changed(EMBNORM, old, new).encode(), {}))), new


BASE = Training()


def test_an_override_moves_one_field_and_nothing_else() -> None:
    arms = resolve_arms(BASE, {"none": {}, "deep": {"model.layers": 20, "optim.warmup": 500}}, {})
    assert list(arms) == ["none", "deep"]
    assert arms["none"].config == BASE
    deep = arms["deep"].config
    assert isinstance(deep, Training)
    assert deep == BASE.model_copy(
        update={
            "model": BASE.model.model_copy(update={"layers": 20}),
            "optim": BASE.optim.model_copy(update={"warmup": 500}),
        }
    )


def test_factor_arms_are_all_combinations_named_in_the_order_of_the_factors() -> None:
    arms = resolve_arms(
        BASE,
        {},
        {
            "norm": {"pre": {"model.norm": "pre"}, "post": {"model.norm": "post"}},
            "depth": {"shallow": {"model.layers": 5}, "deep": {"model.layers": 20}},
        },
    )
    assert list(arms) == ["pre-shallow", "pre-deep", "post-shallow", "post-deep"]
    config = arms["post-deep"].config
    assert isinstance(config, Training)
    assert (config.model.norm, config.model.layers) == ("post", 20)


def test_the_tokenizer_can_be_overridden_both_ways() -> None:
    bpe = BASE.model_copy(update={"data": Data(tokenizer=Bpe(bpe=512))})
    arms = resolve_arms(bpe, {"bpe": {}, "char": {"data.tokenizer": "char"}, "big": {"data.tokenizer.bpe": 1024}}, {})
    tokenizers = [arm.config.data.tokenizer for arm in arms.values() if isinstance(arm.config, Training)]
    assert tokenizers == [Bpe(bpe=512), "char", Bpe(bpe=1024)]
    assert resolve_arms(BASE, {"char": {}, "bpe": {"data.tokenizer": {"bpe": 512}}}, {})
