"""The GPT: what it computes, how it starts, and that variants of one seed start alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.model import GPT, Center, count_parameters, initialise
from ablate.gpt.streams import DropoutStream
from prereg.training import Model

SMALL = {"layers": 2, "width": 16, "heads": 2, "context": 8}


def built(seed: int = 1, vocabulary: int = 11, **changes: object) -> GPT:
    model = GPT(Model.model_validate(SMALL | changes), vocabulary)
    initialise(model, seed)
    return model


def tokens(batch: int = 3, time: int = 8, vocabulary: int = 11) -> Tensor:
    return torch.randint(0, vocabulary, (batch, time), generator=torch.Generator().manual_seed(0))


def reference_logits(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The same model in float64 numpy, one sequence, written from the formulas alone."""
    p = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    config = model.config

    def layernorm(x: np.ndarray, at: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[f"{at}.weight"] + p[f"{at}.bias"]

    def gelu_tanh(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = p["token.weight"][ids] + p["position.weight"][: len(ids)]
    if config.embedding_norm == "layernorm":
        x = layernorm(x, "embedding_norm")
    elif config.embedding_norm == "rmsnorm":
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p["embedding_norm.weight"]
    elif config.embedding_norm == "center":
        x = x - x.mean(-1, keepdims=True)
    head = config.width // config.heads
    for i in range(config.layers):
        block = f"blocks.{i}"
        h = layernorm(x, f"{block}.norm_attention")
        qkv = h @ p[f"{block}.attention.qkv.weight"].T + p[f"{block}.attention.qkv.bias"]
        q, k, v = np.split(qkv, 3, axis=-1)
        out = np.zeros_like(x)
        for n in range(config.heads):
            part = slice(n * head, (n + 1) * head)
            scores = q[:, part] @ k[:, part].T / math.sqrt(head)
            scores[np.triu_indices(len(ids), 1)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, part] = weights / weights.sum(-1, keepdims=True) @ v[:, part]
        x = x + out @ p[f"{block}.attention.out.weight"].T + p[f"{block}.attention.out.bias"]
        h = layernorm(x, f"{block}.norm_feed")
        h = gelu_tanh(h @ p[f"{block}.feed.up.weight"].T + p[f"{block}.feed.up.bias"])
        x = x + h @ p[f"{block}.feed.out.weight"].T + p[f"{block}.feed.out.bias"]
    return layernorm(x, "final_norm") @ p["token.weight"].T


@pytest.mark.parametrize("embedding_norm", ["none", "layernorm", "rmsnorm", "center"])
def test_logits_are_those_of_the_formulas_in_float64(embedding_norm: str) -> None:
    model = built(embedding_norm=embedding_norm)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and scales away from their trivial start
            parameter.add_(
                0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
        ids = tokens(batch=1)
        ours = model(ids)[0].double().numpy()
    assert np.abs(ours - reference_logits(model, ids[0].numpy())).max() < 1e-5


def test_the_plain_attention_path_agrees_with_the_fused_one() -> None:
    model, ids = built(dropout=0.0), tokens()
    with torch.no_grad():
        fused = model(ids)
        for block in model.blocks:
            block.attention.rate = 1e-12  # a dropout stream with a vanishing rate takes the plain path
        plain = model(ids, DropoutStream(1))
    assert torch.allclose(fused, plain, atol=1e-6)


def test_the_future_cannot_be_seen() -> None:
    model, ids = built(), tokens()
    changed = ids.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 11
    with torch.no_grad():
        assert torch.equal(model(ids)[:, :5], model(changed)[:, :5])
        assert not torch.equal(model(ids)[:, 5:], model(changed)[:, 5:])


def test_the_embnorm_model_has_one_point_six_million_parameters_and_variants_differ_by_256_and_128() -> None:
    counts = {
        norm: count_parameters(GPT(Model(embedding_norm=norm), 65))  # type: ignore[arg-type]
        for norm in ("none", "layernorm", "rmsnorm", "center")
    }
    assert counts["none"] == 1_611_136
    assert counts["layernorm"] - counts["none"] == 256
    assert counts["rmsnorm"] - counts["none"] == 128
    assert counts["center"] == counts["none"]


def test_variants_of_one_seed_share_every_common_parameter_to_the_bit() -> None:
    none, layer = (
        GPT(Model.model_validate(SMALL), 11),
        GPT(Model.model_validate(SMALL | {"embedding_norm": "layernorm"}), 11),
    )
    first, second = initialise(none, 7), initialise(layer, 7)
    shared = set(first) & set(second)
    assert shared == set(first)
    assert set(second) - set(first) == {"embedding_norm.weight", "embedding_norm.bias"}
    assert all(first[name] == second[name] for name in shared)


def test_another_seed_gives_other_weights() -> None:
    one, two = initialise(built(), 1), initialise(built(), 2)
    assert one["token.weight"] != two["token.weight"]


def test_initialisation_follows_gpt2() -> None:
    model = built(width=64, heads=4, layers=4)
    assert float(model.blocks[0].feed.up.weight.detach().std()) == pytest.approx(0.02, rel=0.03)
    assert float(model.blocks[0].feed.out.weight.detach().std()) == pytest.approx(0.02 / math.sqrt(8), rel=0.03)
    assert float(model.blocks[0].attention.out.weight.detach().std()) == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
    assert not model.blocks[0].attention.qkv.bias.any()
    assert (model.final_norm.weight == 1).all()


def test_tied_embeddings_are_one_tensor_and_untied_ones_are_two() -> None:
    tied, untied = built(), built(tie_embeddings=False)
    assert tied.head.weight is tied.token.weight
    assert count_parameters(untied) - count_parameters(tied) == 11 * 16


def test_a_fresh_model_is_about_as_surprised_as_chance() -> None:
    ids = tokens(batch=8)
    loss = built(width=64, heads=4).loss(ids[:, :-1], ids[:, 1:])
    assert float(loss.detach()) == pytest.approx(math.log(11), abs=0.1)


def test_center_subtracts_the_mean_and_nothing_else() -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(Center()(x), x - x.mean(-1, keepdim=True))
    assert torch.allclose(F.layer_norm(x, (16,)), F.layer_norm(Center()(x), (16,)), atol=1e-5)


def test_post_norm_normalises_after_the_sum() -> None:
    model = built(norm="post")
    with torch.no_grad():
        seen = model.blocks[1](torch.randn(2, 8, 16), None)
    assert torch.allclose(seen.mean(-1), torch.zeros(2, 8), atol=1e-5)


def test_dropout_changes_training_and_only_training() -> None:
    model, ids = built(dropout=0.5), tokens()
    stream = DropoutStream(1)
    stream.at(1)
    with torch.no_grad():
        assert torch.equal(model(ids), model(ids))
        assert not torch.equal(model(ids), model(ids, stream))
