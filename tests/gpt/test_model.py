"""The GPT: what it computes, how it starts, and that variants of one seed start alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.model import GPT, Center, count_parameters, initialise
from ablate.gpt.streams import DropoutStream
from prereg.study.training import Model

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
    config, time = model.config, len(ids)

    def linear(x: np.ndarray, at: str) -> np.ndarray:
        return x @ p[f"{at}.weight"].T + p.get(f"{at}.bias", 0.0)

    def norm(x: np.ndarray, at: str, kind: str) -> np.ndarray:
        if kind == "none":
            return x
        if kind == "rmsnorm":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p[f"{at}.weight"]
        centred = x - x.mean(-1, keepdims=True)
        if kind == "center":
            return centred
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p[f"{at}.weight"] + p[f"{at}.bias"]

    def turned(x: np.ndarray) -> np.ndarray:
        """Su et al. 2021, eq. 34, as complex numbers: feature i of the first half with feature i of the second."""
        half = x.shape[-1] // 2
        angle = np.arange(time)[:, None] * 10_000.0 ** (-2 * np.arange(half) / x.shape[-1])
        z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
        return np.concatenate([z.real, z.imag], axis=-1)

    def attend(x: np.ndarray, at: str) -> np.ndarray:
        head = config.size_of_head
        q, k, v = np.split(linear(x, f"{at}.qkv"), 3, axis=-1)
        out = np.zeros((time, config.heads * head))
        for n in range(config.heads):
            part = slice(n * head, (n + 1) * head)
            kind = "rmsnorm" if config.qk_norm else "none"
            mine = [norm(q[:, part], f"{at}.q_norm", kind), norm(k[:, part], f"{at}.k_norm", kind)]
            if config.positions == "rope":
                mine = [turned(one) for one in mine]
            scores = mine[0] @ mine[1].T / math.sqrt(head)
            scores[np.triu_indices(time, 1)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, part] = weights / weights.sum(-1, keepdims=True) @ v[:, part]
        return linear(out, f"{at}.out")

    def feed(x: np.ndarray, at: str) -> np.ndarray:
        up = linear(x, f"{at}.up")
        if config.activation == "gelu_tanh":
            up = 0.5 * up * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        elif config.activation == "gelu":
            up = 0.5 * up * (1 + np.vectorize(math.erf)(up / math.sqrt(2)))
        elif config.activation == "relu2":
            up = np.maximum(up, 0.0) ** 2
        else:
            gate = linear(x, f"{at}.gate")
            up = gate / (1 + np.exp(-gate)) * up
        return linear(up, f"{at}.out")

    x = p["token.weight"][ids]
    if config.positions == "learned":
        x = x + p["position.weight"][:time]
    if config.positions == "sinusoidal":
        for t in range(time):  # Vaswani et al. 2017, section 3.5
            for i in range(0, config.width, 2):
                angle = t / 10_000.0 ** (i / config.width)
                x[t, i : i + 2] += math.sin(angle), math.cos(angle)
    x = norm(x, "embedding_norm", config.embedding_norm)
    kind = config.block_norm if config.norm != "none" else "none"
    for i in range(config.layers):
        for name, sublayer in (("attention", attend), ("feed", feed)):
            at = f"blocks.{i}"
            before = x if config.norm == "post" else norm(x, f"{at}.norm_{name}", kind)
            y = sublayer(before, f"{at}.{name}")
            if config.norm == "sandwich":
                y = norm(y, f"{at}.norm_{name}_out", kind)
            if config.residual_scale == "depth":
                y = y / math.sqrt(2 * config.layers)
            if config.residual_scale == "rezero":
                y = y * p[f"{at}.scale_{name}"]
            x = x + y
            if config.norm == "post":
                x = norm(x, f"{at}.norm_{name}", kind)
    last = config.final_norm
    if last == "block":
        last = config.block_norm if config.norm in ("pre", "sandwich") else "none"
    return norm(x, "final_norm", last) @ p.get("head.weight", p["token.weight"]).T


PARTS: list[dict[str, object]] = [
    {},
    *({"embedding_norm": kind} for kind in ("layernorm", "rmsnorm", "center")),
    *({"norm": place} for place in ("post", "sandwich", "none")),
    *({"block_norm": kind} for kind in ("rmsnorm", "none")),
    *({"final_norm": kind} for kind in ("rmsnorm", "none")),
    {"norm": "post", "final_norm": "layernorm"},
    *({"positions": kind} for kind in ("sinusoidal", "rope", "none")),
    {"qk_norm": True},
    {"qk_norm": True, "positions": "rope", "head_size": 6},
    *({"activation": kind} for kind in ("gelu", "relu2", "swiglu")),
    {"feed_width": 24, "activation": "swiglu"},
    {"head_size": 4},
    {"bias": False},
    {"bias": False, "activation": "swiglu"},
    {"tie_embeddings": False},
    *({"residual_scale": kind} for kind in ("depth", "rezero")),
    {"norm": "sandwich", "block_norm": "rmsnorm", "positions": "rope", "activation": "swiglu", "bias": False},
]


@pytest.mark.parametrize(
    "part", PARTS, ids=[" ".join(f"{k}={v}" for k, v in part.items()) or "plain" for part in PARTS]
)
def test_logits_are_those_of_the_formulas_in_float64(part: dict[str, object]) -> None:
    model = built(**part)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):  # biases and scales away from their trivial start
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
        ids = tokens(batch=1)
        ours = model(ids)[0].double().numpy()
    assert np.abs(ours - reference_logits(model, ids[0].numpy())).max() < 2e-5
    assert np.abs(ours).max() > 0.05  # not all zero


@pytest.mark.parametrize("part", PARTS[1:], ids=[" ".join(f"{k}={v}" for k, v in part.items()) for part in PARTS[1:]])
def test_every_part_changes_what_is_computed(part: dict[str, object]) -> None:
    def logits(**changes: object) -> Tensor:
        model = built(**changes)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                seed = sum(map(ord, name)) + parameter.numel()
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
            return model(tokens())  # type: ignore[no-any-return]

    # Between LayerNorms, which centre by themselves, centring the embeddings changes nothing: see the test below.
    beside = {"block_norm": "rmsnorm"} if part == {"embedding_norm": "center"} else {}
    plain, changed = logits(**beside), logits(**part, **beside)
    assert (plain - changed).abs().max() > 1e-4


def with_means(embedding_norm: str, **changes: object) -> GPT:
    """A model in float64 with learned gains and biases, whose embeddings have means far from zero."""
    model = built(embedding_norm=embedding_norm, **changes).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(sum(map(ord, name)))).double()
            parameter.add_(0.1 * noise)
        model.token.weight.add_(torch.linspace(-1.0, 1.0, 11).double()[:, None])
    return model


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({}, False),
        ({"norm": "sandwich"}, False),
        ({"tie_embeddings": False, "positions": "rope"}, False),
        ({"block_norm": "rmsnorm"}, True),
        ({"block_norm": "rmsnorm", "final_norm": "layernorm"}, True),
        ({"final_norm": "rmsnorm"}, True),
        ({"final_norm": "none"}, True),
        ({"norm": "post"}, True),
    ],
    ids=str,
)
def test_centred_embeddings_are_the_same_model_where_every_reader_is_a_layernorm(
    changes: dict[str, object], seen: bool
) -> None:
    # LN(x - m 1) = LN(x) for any m of a position, and a block adds to the residual stream what it computes
    # from LN(x). So the stream stays shifted by m up to the final norm, which subtracts it: the same logits
    # and the same gradient of every parameter, hence the same training (without dropout, which would hide
    # other features of the shift). An RMSNorm sees the shift, and so do the first sub-layer of a post-norm
    # block and an output projection without a norm before it.
    plain, centred = with_means("none", **changes), with_means("center", **changes)
    ids = tokens(time=9)
    for model in (plain, centred):
        model.loss(ids[:, :-1], ids[:, 1:]).backward()
    differences = [(plain(ids[:, :-1]) - centred(ids[:, :-1])).abs().max()]
    for (name, one), (_, other) in zip(plain.named_parameters(), centred.named_parameters(), strict=True):
        assert one.grad is not None and other.grad is not None, name
        differences.append((one.grad - other.grad).abs().max())
    assert bool(torch.stack(differences).max() > 1e-4) is seen
    assert seen or bool(torch.stack(differences).max() < 1e-12)


def test_layernorm_of_an_embedding_is_rmsnorm_centred_and_longer() -> None:
    # With gain 1, bias 0 and no eps LN(x) = sqrt(1 + mean^2 / variance) x (RMS(x) - its mean): between LayerNorm
    # blocks, which centre anyway, the two embedding norms differ by that factor, then by what gain and bias learn.
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(1)).double() + 0.7
    factor = (1 + x.mean(-1, keepdim=True) ** 2 / x.var(-1, correction=0, keepdim=True)).sqrt()
    layer, rms = F.layer_norm(x, (16,), eps=0.0), F.rms_norm(x, (16,), eps=0.0)
    assert torch.allclose(layer, factor * Center()(rms), atol=1e-12)
    assert factor.min() > 1.01


def test_parts_that_do_not_fit_are_refused() -> None:
    for changes, found in (
        ({"heads": 3}, "does not divide"),
        ({"positions": "rope", "head_size": 3}, "turns pairs"),
        ({"positions": "sinusoidal", "width": 15, "heads": 5}, "even width"),
    ):
        with pytest.raises(ValueError, match=found):
            Model.model_validate(SMALL | changes)
    assert Model.model_validate(SMALL | {"heads": 3, "head_size": 5}).size_of_head == 5


@pytest.mark.parametrize(
    ("positions", "shifts"), [("rope", True), ("none", True), ("learned", False), ("sinusoidal", False)]
)
def test_rotary_attention_knows_distances_and_not_places(positions: str, shifts: bool) -> None:
    # With rope or no positions, a pair of tokens attends alike wherever it stands: repeat one token and every
    # position sees the same thing.
    model = built(positions=positions)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
        logits = model(torch.full((1, 8), 3))[0]
    assert bool((logits - logits[0]).abs().max() < 1e-4) is shifts


def test_rezero_starts_as_the_identity_and_learns_to_leave_it() -> None:
    model, ids = built(residual_scale="rezero"), tokens()
    with torch.no_grad():
        assert torch.equal(model(ids), model.head(model.final_norm(model.first_input(ids))))
    model.loss(ids[:, :-1], ids[:, 1:]).backward()
    assert all(block.scale_feed.grad.abs() > 0 for block in model.blocks)


@pytest.mark.parametrize(
    ("init", "name", "std"),
    [
        ("small_embedding", "token.weight", 1e-4),
        ("small_embedding", "position.weight", 1e-4),
        ("small_embedding", "blocks.0.feed.up.weight", 0.02),
        ({"normal": 0.05}, "token.weight", 0.05),
        ({"normal": 0.05}, "blocks.1.feed.out.weight", 0.05),
    ],
)
def test_other_initialisations_are_as_declared(init: object, name: str, std: float) -> None:
    model = built(width=64, heads=4, vocabulary=97, init=init)
    assert float(dict(model.named_parameters())[name].detach().std()) == pytest.approx(std, rel=0.05)


def test_torch_initialisation_is_the_one_that_torch_gives_its_layers() -> None:
    model = built(width=64, heads=4, vocabulary=97, init="torch", tie_embeddings=False)
    ours = {name: value.detach().clone() for name, value in model.named_parameters()}
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a bias of 64 values misses a tenth of its reach once in a thousand draws
        for module in model.modules():
            if isinstance(module, nn.Embedding | nn.Linear):
                module.reset_parameters()
    moved = 0
    for name, value in model.named_parameters():
        theirs, mine = value.detach(), ours[name]
        if "norm" in name:
            assert torch.equal(mine, theirs)
            continue
        moved += 1
        assert not torch.equal(mine, theirs)
        assert float(mine.std()) == pytest.approx(float(theirs.std()), rel=0.35 if mine.dim() == 1 else 0.15)
        if name not in ("token.weight", "position.weight"):
            reach = 1.0 / math.sqrt(256 if "feed.out" in name else 64)
            assert 0.9 * reach < float(mine.abs().max()) <= reach
            assert 0.9 * reach < float(theirs.abs().max()) <= reach
    assert moved == 3 + 2 * 8


def test_tied_embeddings_start_from_the_embedding_under_torch_initialisation() -> None:
    model = built(width=64, heads=4, vocabulary=97, init="torch")
    assert float(model.head.weight.detach().std()) == pytest.approx(1.0, rel=0.05)


def test_a_swiglu_layer_has_about_the_parameters_of_the_plain_one() -> None:
    plain, gated = (count_parameters(GPT(Model(activation=kind), 65)) for kind in ("gelu_tanh", "swiglu"))  # type: ignore[arg-type]
    assert abs(gated / plain - 1.0) < 0.01


@pytest.mark.parametrize("changes", [{"norm": "post"}, {"qk_norm": True}, {"positions": "rope"}, {"bias": False}])
def test_whatever_else_a_variant_has_it_starts_from_the_shared_values(changes: dict[str, object]) -> None:
    one, two = (GPT(Model.model_validate(SMALL | extra), 11) for extra in ({}, changes))
    first, second = initialise(one, 7), initialise(two, 7)
    shared = set(first) & set(second)
    assert len(shared) >= 14
    assert all(first[name] == second[name] for name in shared)


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
