"""The study: promises between fields, and what a study knows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from prereg_samples import COMMAND, EMBNORM, NORMPLACE, changed, load_text

from prereg.documents.published import json_schema
from prereg.errors import ClaimError, SpecError
from prereg.study.spec import Study, study_from_document
from prereg.study.training import Training


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


def test_a_study_survives_its_own_json(study: Study, tmp_path: Path) -> None:
    for text, name in ((EMBNORM, "embnorm"), (NORMPLACE, "normplace"), (COMMAND, "own")):
        loaded = load_text(tmp_path, text, name).study
        assert study_from_document(loaded.model_dump(mode="json")) == loaded


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


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("baseline: none", "baseline: nne", "baseline 'nne' is not a variant"),
        ("variants:\n  none: {}", "factors: {a: {b: {}}}\nvariants:\n  none: {}", "both variants and factors"),
        (
            "  rmsnorm:   {model.embedding_norm: rmsnorm}",
            "  LayerNorm: {model.embedding_norm: rmsnorm}",
            "but for capital",
        ),
        ("[1, 2, 3, 4, 5]", "[1]", "1 seed"),
        ("[1, 2, 3, 4, 5]", "[1, 2, 1]", "seed 1 is given twice"),
        ("stopping: fixed", "stopping: {looks: [3, 4]}", r"looks \[3, 4\] with 5 seeds"),
        ("stopping: fixed", "stopping: {looks: [5, 3, 5]}", r"looks \[5, 3, 5\] with 5 seeds"),
        ("layernorm lowers val/loss", "layernorm lowers val/los", "'val/los' is not a metric"),
        ("layernorm lowers val/loss", "layernorm lowers grad/layer_8", "'layernorm' has 8 layers, counted from 0"),
        ("layernorm lowers val/loss", "layernrm lowers val/loss", "'layernrm' in claim"),
        ("layernorm lowers val/loss", "(layernorm + zz) lowers val/loss than (none + zz)", "'zz' in claim"),
        ("layernorm lowers val/loss", "layernorm lowers val/perplexity", "raw differences of val/perplexity"),
        ("layernorm lowers val/loss", "layernorm lowers harness/accuracy", "no harness is declared"),
        ("suites: [loss, activations", "suites: [activations", "gain_ln needs val/loss, of the suite 'loss'"),
        ("val/accuracy\n    smallest: 0.005", "val/accuracy\n    smallest: 0", "smallest is 0"),
        ("layernorm does_not_worsen val/accuracy", "layernorm does_not_worsen grad/norm", "nothing says which way"),
        (
            "layernorm does_not_worsen val/accuracy",
            "(layernorm - none) does_not_worsen val/loss than (rmsnorm - none)",
            "whether a difference worsens",
        ),
        ("also: [bootstrap_t", "also: [paired_t", "'paired_t' decides and is under 'also'"),
        ("test: paired_t", "test: items", "no item is measured"),
        ("tie_breakers: [val", "tie_breakers: [vla", "'vla/bits_per_byte' is not a metric"),
        ("stopping: fixed", "assume: {metrics: {grad/norm: {sd: 1.0}}}", "'grad/norm' is in no claim"),
        ("trainer: gpt", "trainer: gpt\ncommand: [ls]", "a command is given and trainer is 'gpt'"),
        ("trainer: gpt", "trainer: command", "no command is given"),
    ],
)
def test_a_broken_promise_is_refused(tmp_path: Path, old: str, new: str, found: str) -> None:
    with pytest.raises(SpecError, match=found):
        load_text(tmp_path, changed(EMBNORM, old, new))


def test_neither_variants_nor_factors_is_refused(tmp_path: Path) -> None:
    text = EMBNORM[: EMBNORM.index("variants:")] + EMBNORM[EMBNORM.index("seeds:") :]
    with pytest.raises(SpecError, match="neither variants nor factors"):
        load_text(tmp_path, text)


def test_the_direction_of_an_unknown_metric_is_stated_by_the_study(tmp_path: Path) -> None:
    unstated = changed(COMMAND, "fast lowers dev/loss", "fast does_not_worsen dev/loss")
    with pytest.raises(SpecError, match="nothing says which way dev/loss improves"):
        load_text(tmp_path, unstated, "own")
    stated = load_text(tmp_path, changed(unstated, "smallest: 0.1", "smallest: 0.1, better: lower"), "own").study
    assert stated.claims["gain"].better == "lower"


def test_a_harness_accuracy_is_better_when_higher(tmp_path: Path) -> None:
    text = changed(
        changed(EMBNORM, "layernorm does_not_worsen val/accuracy", "layernorm does_not_worsen harness/macro_accuracy"),
        "measure:\n",
        "measure:\n  harness: {tasks: blimp}\n",
    )
    assert load_text(tmp_path, text).study.claims["harm_ln"].better == "higher"


def test_a_claim_error_is_placed_at_its_claim() -> None:
    document = {
        "study": "x",
        "title": "t",
        "baseline": "none",
        "seeds": [1, 2],
        "variants": {"none": {}, "ln": {"model.layers": 2}},
        "hypotheses": {"a": {"claim": "ln lowrs val/loss", "smallest": 0.1}},
        "decision": [{"verdict": "v"}],
    }
    with pytest.raises(ClaimError) as caught:
        study_from_document(document)
    assert caught.value.where.field == ("hypotheses", "a", "claim")


def test_a_base_given_as_a_value_is_kept(study: Study) -> None:
    assert isinstance(study.base, Training)
    assert (
        Study.model_validate(
            study.model_dump()
            | {
                "base": study.base,
                "analysis": study.analysis,
                "measure": study.measure,
                "stable": study.stable,
                "metrics": study.metrics,
                "assume": study.assume,
                "hypotheses": study.hypotheses,
                "decision": study.decision,
            }
        )
        == study
    )


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
