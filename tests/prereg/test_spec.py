"""The study: promises between fields, and what a study knows of itself."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import export_samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prereg_samples import COMMAND, EMBNORM, NORMPLACE, changed, load_text

import ablate as api
from prereg.errors import SpecError, StudyError
from prereg.registry.registration import promise_sha256
from prereg.study.arms import resolve_arms
from prereg.study.schema import json_schema
from prereg.study.spec import Study, study_from_document
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


@pytest.mark.parametrize(
    ("model", "field", "branches"),
    [
        ("Study", "stopping", {"Looks", "fixed"}),
        ("Hypothesis", "read", {"AtStep", "OverLast", "final, best, area"}),
        ("Data", "tokenizer", {"Bpe", "TokenizerFile", "char, own"}),
        ("Model", "init", {"NormalInit", "gpt2, small_embedding, torch"}),
    ],
)
def test_the_schema_has_every_branch_of_a_union(model: str, field: str, branches: set[str]) -> None:
    schema = json_schema()
    value = (schema if model == "Study" else schema["$defs"][model])["properties"][field]
    names = set()
    for branch in value["oneOf"]:
        words = branch.get("enum") or [branch.get("const") or branch["$ref"].removeprefix("#/$defs/")]
        names.add(", ".join(words))
    assert names == branches and value["description"]


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


ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "studies").glob("*.yaml"))


def same(study: Study) -> None:
    again = Study.from_yaml(study.to_yaml())
    assert again == study and again.model_dump_json() == study.model_dump_json()
    hashes = [promise_sha256({"study": one.model_dump(mode="json"), "corpus": None}) for one in (study, again)]
    assert hashes[0] == hashes[1]


def test_every_committed_study_reads_back_as_it_is() -> None:
    assert len(FILES) >= 4
    for path in FILES:
        same(Study.from_yaml(path))


@pytest.mark.slow
def test_every_template_and_option_reads_back_as_it_is(tmp_path: Path) -> None:
    # The template of a campaign is no study.
    for name in api.templates().keys() - {"campaign"}:
        same(Study.from_yaml(api.new(f"mine_{name}", name, workspace=api.Workspace(tmp_path)).study))
    for option in export_samples.OPTIONS:
        same(export_samples.study(option))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    # What YAML 1.1, YAML 1.2 and people take for something else.
    | st.sampled_from(["no", "1e5", "0o17", "0x1f", "1_000", "12:30", "~", "", " a", "a: b", "# x", "2026-01-01", ".5"])
    | st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=25)
@given(value=PLAIN, title=st.text(max_size=30))
def test_any_value_is_read_back_or_the_text_that_no_file_may_hold_is_named(value: Any, title: str) -> None:
    command = export_samples.OPTIONS["command"]
    document = command | {"title": f"T{title}", "base": command["base"] | {"extra": value}}
    study = study_from_document(document)
    try:
        same(study)
    except StudyError as error:
        assert not title.isprintable() or unicodedata.normalize("NFC", f"{title}{value}") != f"{title}{value}", error


def test_a_file_is_written_once_left_where_it_says_the_same_and_never_overwritten(tmp_path: Path) -> None:
    study = export_samples.study("plain")
    path = tmp_path / "studies" / "plain.yaml"
    text = study.to_yaml(path)
    assert path.read_text() == text and Study.from_yaml(path) == Study.from_yaml(str(path)) == study
    path.write_text(f"# mine\n{text}")
    study.to_yaml(path)
    assert path.read_text().startswith("# mine")
    other = study.model_copy(update={"title": "Another <b>"})
    assert "title: Another &lt;b&gt;" in other._repr_html_()
    with pytest.raises(StudyError, match="says something else") as refused:
        other.to_yaml(path)
    assert "replace=True" in refused.value.fix and path.read_text().startswith("# mine")
    other.to_yaml(path, replace=True)
    assert Study.from_yaml(path) == other
    with pytest.raises(StudyError, match=r"'plain' as 'x\.yaml'"):
        study.to_yaml(tmp_path / "x.yaml")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["plain.yaml", "studies"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": "fresh 5"}, "lies in no file"),
        ({"seeds": range(3)}, "YAML cannot hold"),
        ({"base": {"optim": {"lr": float("nan")}}}, "YAML cannot hold"),
        ({"sedes": [1]}, "did you mean 'seeds'|sedes"),
    ],
)
def test_a_mapping_that_is_no_study_is_refused_in_words(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        api.load(export_samples.document(**change))


def test_a_mistake_in_a_text_is_placed_at_its_line() -> None:
    text = export_samples.study("plain").to_yaml().replace("title: A", "titel: A")
    with pytest.raises(StudyError, match="titel") as refused:
        Study.from_yaml(text)
    assert refused.value.where.line == 2


def test_a_text_that_no_utf_8_holds_is_refused_and_a_place_without_a_file_is_a_line() -> None:
    with pytest.raises(StudyError, match="not UTF-8"):
        Study.from_yaml("study: a\ntitle: \ud800\n")
    with pytest.raises(StudyError, match=r"\Aline 2: a second document"):
        Study.from_yaml("study: a\n---\nstudy: b\n")
