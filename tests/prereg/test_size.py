"""Sizes from the configuration alone, held against the real model: its parameters, and the FLOPs torch counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from ablate.gpt.model import GPT, count_parameters
from prereg.study.training import Model, flops_per_token, parameters

CHOICES: dict[str, tuple[Any, ...]] = {
    "layers": (1, 2, 3),
    "width": (8, 12, 16),
    "heads": (1, 2, 4),
    "head_size": (None, 2, 6),
    "context": (4, 7),
    "norm": ("pre", "post", "sandwich", "none"),
    "block_norm": ("layernorm", "rmsnorm", "none"),
    "embedding_norm": ("none", "layernorm", "rmsnorm", "center"),
    "final_norm": ("block", "layernorm", "rmsnorm", "none"),
    "positions": ("learned", "sinusoidal", "rope", "none"),
    "qk_norm": (False, True),
    "activation": ("gelu", "gelu_tanh", "relu2", "swiglu"),
    "feed_width": (None, 1, 13),
    "bias": (True, False),
    "tie_embeddings": (True, False),
    "residual_scale": ("none", "depth", "rezero"),
}
SMALL: dict[str, Any] = {"layers": 2, "width": 8, "heads": 2, "context": 4}
ALONE = [{name: value} for name, values in CHOICES.items() for value in values]


def test_every_field_that_could_move_a_size_is_tried() -> None:
    moves_none = {"init", "dropout"}
    assert set(Model.model_fields) == set(CHOICES) | moves_none, "a new field: say here whether it moves a size"


@pytest.mark.parametrize("changes", ALONE, ids=str)
def test_each_choice_alone_counts_as_the_model_does(changes: dict[str, Any]) -> None:
    model = Model.model_validate(SMALL | changes)
    assert parameters(model, 11) == count_parameters(GPT(model, 11))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
    st.integers(2, 40),
)
def test_all_choices_together_count_as_the_model_does(changes: dict[str, Any], vocabulary: int) -> None:
    if changes["head_size"] is None and changes["positions"] == "rope" and changes["width"] // changes["heads"] % 2:
        changes["positions"] = "learned"
    model = Model.model_validate(changes)
    assert parameters(model, vocabulary) == count_parameters(GPT(model, vocabulary))


@given(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}),
    st.integers(2, 40),
)
@pytest.mark.slow
def test_flops_are_those_of_the_matrix_products_that_torch_makes(changes: dict[str, Any], vocabulary: int) -> None:
    if changes["head_size"] is None and changes["positions"] == "rope" and changes["width"] // changes["heads"] % 2:
        changes["positions"] = "learned"
    config = Model.model_validate(changes)
    model = GPT(config, vocabulary)
    tokens = torch.randint(vocabulary, (3, config.context + 1))
    # The mathematical kernel makes the products of the whole context, as the formula counts them.
    counter = FlopCounterMode(display=False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), counter:
        model.loss(tokens[:, :-1], tokens[:, 1:]).backward()  # type: ignore[no-untyped-call]
    assert counter.get_total_flops() == 3 * config.context * flops_per_token(config, vocabulary)


def test_gpt_2_is_as_large_as_its_paper_says_and_the_appendix_counts() -> None:
    # Radford et al. 2019 name it 117M; with 50,257 tokens the released weights hold 124,439,808.
    model = Model(layers=12, width=768, heads=12, context=1024)
    assert parameters(model, 50257) == 124_439_808
    # Chowdhery et al. 2022, appendix B: 6 N + 12 L H Q T. N here leaves out what multiplies nothing: positions,
    # biases and norms.
    matrices = 12 * 12 * 768 * 768 + 50257 * 768
    assert flops_per_token(model, 50257) == 6 * matrices + 12 * 12 * 12 * 64 * 1024
