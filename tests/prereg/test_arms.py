"""Arms: what an override may be, and what each arm resolves to."""

from __future__ import annotations

import pytest

from prereg.errors import SpecError
from prereg.study.arms import resolve_arms
from prereg.study.training import Bpe, Data, Training

BASE = Training()


def refused(
    variants: dict[str, dict[str, object]] | None = None,
    *,
    base: object = BASE,
    factors: dict[str, dict[str, dict[str, object]]] | None = None,
) -> SpecError:
    with pytest.raises(SpecError) as caught:
        resolve_arms(base, variants or {}, factors or {})  # type: ignore[arg-type]
    return caught.value


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


def test_an_unknown_field_gets_the_nearest_one() -> None:
    error = refused({"none": {}, "ln": {"model.embeding_norm": "layernorm"}})
    assert error.fix == "did you mean 'model.embedding_norm'?"
    assert error.where.field == ("variants", "ln", "model.embeding_norm")


@pytest.mark.parametrize("key", ["", ".", "model.", ".layers", "model.layers.deep", "modle.layers", "layers"])
def test_a_path_that_leads_nowhere_is_refused(key: str) -> None:
    assert "is not a field of the base" in refused({"none": {}, "x": {key: 1}}).found


def test_a_whole_section_is_not_overridden() -> None:
    # It would reset every field of the section that it does not name to the default.
    error = refused({"none": {}, "x": {"model": {"layers": 3}}})
    assert "'model' is a section of the base" in error.found
    assert "model.layers" in error.fix


def test_a_value_that_does_not_fit_is_blamed_on_its_override() -> None:
    error = refused({"none": {}, "x": {"optim.lr": 0.1, "model.layers": "many"}})
    assert error.where.field == ("variants", "x", "model.layers")
    assert error.found == 'found "many"'
    error = refused({"none": {}, "x": {"optim.lr": 0.1, "model.heads": 7}})
    assert error.where.field == ("variants", "x", "model.heads")


def test_the_tokenizer_can_be_overridden_both_ways() -> None:
    bpe = BASE.model_copy(update={"data": Data(tokenizer=Bpe(bpe=512))})
    arms = resolve_arms(bpe, {"bpe": {}, "char": {"data.tokenizer": "char"}, "big": {"data.tokenizer.bpe": 1024}}, {})
    tokenizers = [arm.config.data.tokenizer for arm in arms.values() if isinstance(arm.config, Training)]
    assert tokenizers == [Bpe(bpe=512), "char", Bpe(bpe=1024)]
    assert resolve_arms(BASE, {"char": {}, "bpe": {"data.tokenizer": {"bpe": 512}}}, {})


def test_arms_that_resolve_to_the_same_configuration_are_refused() -> None:
    assert "resolve to the same" in refused({"none": {}, "same": {"model.layers": BASE.model.layers}}).found


def test_true_and_one_are_different_configurations() -> None:
    # To Python they are equal, to a program that reads its configuration they are not.
    arms = resolve_arms({"flag": 0}, {"one": {"flag": 1}, "true": {"flag": True}}, {})
    assert len(arms) == 2


def test_two_overrides_of_one_field_are_refused() -> None:
    twice = {"data.tokenizer": {"bpe": 512}, "data.tokenizer.bpe": 1024}
    assert "override the same field" in refused({"none": {}, "x": twice}).found  # type: ignore[dict-item]
    factors = {"a": {"x": {"optim.lr": 0.1}, "y": {}}, "b": {"z": {"optim.lr": 0.2}}}
    assert "two factors override 'optim.lr'" in refused(factors=factors).found


def test_factor_levels_whose_names_run_together_are_refused() -> None:
    factors = {
        "f": {"a": {"optim.lr": 0.1}, "a-b": {"optim.lr": 0.2}},
        "g": {"b-c": {"model.layers": 2}, "c": {"model.layers": 3}},
    }
    assert "both named 'a-b-c'" in refused(factors=factors).found


def test_a_factor_needs_levels_and_a_design_an_end() -> None:
    assert "factor 'f' has no level" in refused(factors={"f": {}}).found
    many = {f"f{i}": {f"l{j}": {} for j in range(8)} for i in range(12)}
    assert "at most 512" in refused(factors=many).required


def test_a_command_overrides_any_field_that_its_base_has() -> None:
    arms = resolve_arms({"optim": {"lr": 1, "name": "sgd"}}, {"slow": {}, "fast": {"optim.lr": "2"}}, {})
    assert arms["fast"].config == {"optim": {"lr": "2", "name": "sgd"}}
    assert "not a field" in refused({"slow": {}, "x": {"optim.momentum": 0.9}}, base={"optim": {"lr": 1}}).found
