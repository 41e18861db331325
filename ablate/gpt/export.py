"""Export of a trained model to `transformers`: configuration and weights under the names of an equal architecture.

    GPT-2    pre-norm LayerNorm, learned or sinusoidal positions, GELU or squared ReLU
    Llama    pre-norm RMSNorm, rotary positions, SwiGLU
    Qwen3    the same with normalised queries and keys, and no biases

Only what computes the same function is exported. A factor on the residual branches is multiplied into their last
matrices, and a normalisation of embeddings into the embedding table where that is the same; everything else is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.model import LAYERNORM_EPS, RMSNORM_EPS, WAVE_BASE, angles
from prereg.errors import EvidenceError
from prereg.study.training import Model

Weights = dict[str, Tensor]
Config = dict[str, object]
_GPT2_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu2": "relu2"}


def architecture_of(model: Model) -> str:
    """gpt2, llama or qwen3. Raises `EvidenceError` for a model that none of them computes, naming the first field.

    >>> architecture_of(Model())
    'gpt2'
    >>> architecture_of(Model(positions="rope", block_norm="rmsnorm", activation="swiglu", qk_norm=True, bias=False))
    'qwen3'
    """
    final = model.block_norm if model.final_norm == "block" else model.final_norm
    rotary = model.positions == "rope"
    requirements: list[tuple[str, object, bool]] = [
        ("norm", model.norm, model.norm == "pre"),
        ("positions", model.positions, model.positions != "none"),
        ("block_norm", model.block_norm, model.block_norm == ("rmsnorm" if rotary else "layernorm")),
        ("final_norm", model.final_norm, final == model.block_norm),
        ("activation", model.activation, (model.activation == "swiglu") == rotary),
        ("qk_norm", model.qk_norm, rotary or not model.qk_norm),
        ("head_size", model.head_size, rotary or model.heads * model.size_of_head == model.width),
        # Its configuration is refused where the heads do not divide the width, though it has a size of heads.
        ("heads", model.heads, not rotary or model.qk_norm or model.width % model.heads == 0),
        ("bias", model.bias, not (model.qk_norm and model.bias)),
        # The mean of a sum is the sum of the means; of what divides by a spread this does not hold.
        ("embedding_norm", model.embedding_norm, rotary or model.embedding_norm in ("none", "center")),
    ]
    for field, value, fits in requirements:
        if not fits:
            raise EvidenceError(
                f"model.{field}: {value} with positions: {model.positions} is in no architecture that can be exported",
                required="GPT-2 (pre-norm LayerNorm, learned or sinusoidal positions), Llama or Qwen3 (pre-norm "
                "RMSNorm, rope, swiglu)",
                fix="load weights.safetensors of the run's folder with a model of your own",
            )
    return "gpt2" if not rotary else "qwen3" if model.qk_norm else "llama"


def transformers_model(model: Model, weights: Mapping[str, Tensor]) -> tuple[Config, Weights]:
    """The content of config.json, and weights by their names there. Raises `EvidenceError` as `architecture_of`.

    >>> from ablate.gpt.model import GPT
    >>> small = Model(layers=1, heads=2, width=8, context=4)
    >>> config, weights = transformers_model(small, dict(GPT(small, vocabulary=5).named_parameters()))
    >>> config["architectures"], tuple(weights["transformer.h.0.attn.c_attn.weight"].shape)
    (['GPT2LMHeadModel'], (8, 24))
    """
    architecture = architecture_of(model)
    # Read before the embedding norm is folded in: a head that shares the table multiplies by the table as it was
    # trained.
    tensors = dict(weights)
    head = tensors.get("head.weight", tensors["token.weight"])
    # A table with its norm folded in no longer is the head: then both are written.
    tied = model.tie_embeddings and model.embedding_norm == "none"
    tensors["token.weight"] = _normed(model, tensors, tensors["token.weight"])
    for layer in range(model.layers):
        _scale_residuals(model, tensors, f"blocks.{layer}")
    vocabulary = len(tensors["token.weight"])
    common: Config = {
        "model_type": architecture,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
        "dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
    }
    config, named = _gpt2(model, tensors) if architecture == "gpt2" else _llama(model, tensors)
    if not tied:
        named["lm_head.weight"] = head
    # Cloned: several of them are views of one matrix (queries, keys and values), which safetensors refuses.
    return common | config, {name: tensor.clone().contiguous() for name, tensor in named.items()}


def _normed(model: Model, tensors: Weights, table: Tensor) -> Tensor:
    """A table of embeddings after the embedding norm."""
    width = (model.width,)
    if model.embedding_norm == "center":
        return table - table.mean(dim=-1, keepdim=True)
    if model.embedding_norm == "layernorm":
        scale, shift = tensors["embedding_norm.weight"], tensors["embedding_norm.bias"]
        return F.layer_norm(table, width, scale, shift, LAYERNORM_EPS)
    if model.embedding_norm == "rmsnorm":
        return F.rms_norm(table, width, tensors["embedding_norm.weight"], RMSNORM_EPS)
    return table


def _scale_residuals(model: Model, tensors: Weights, block: str) -> None:
    """Multiply the factor on each residual branch into the branch's last layer."""
    for part, learned in (("attention", "scale_attention"), ("feed", "scale_feed")):
        # factor * (W y + b) = (factor * W) y + factor * b, so a bias is scaled with its matrix.
        factor: Tensor | float = 1.0
        if model.residual_scale == "depth":
            factor = 1.0 / math.sqrt(2 * model.layers)
        if model.residual_scale == "rezero":
            factor = tensors[f"{block}.{learned}"]
        for kind in ("weight", "bias"):
            name = f"{block}.{part}.out.{kind}"
            if name in tensors:
                tensors[name] = tensors[name] * factor


def _bias(tensors: Weights, name: str) -> Tensor:
    """A bias; zeros of a layer without one."""
    return tensors.get(f"{name}.bias", torch.zeros(len(tensors[f"{name}.weight"])))


def _gpt2(model: Model, tensors: Weights) -> tuple[Config, Weights]:
    positions = tensors.get("position.weight")
    if positions is None:
        turns = angles(model.context, model.width)
        positions = torch.stack((turns.sin(), turns.cos()), dim=-1).flatten(1).float()
    named = {
        "transformer.wte.weight": tensors["token.weight"],
        # The embedding norm is of the sum. Here it is folded into both summands, which `architecture_of` allows for
        # centring alone.
        "transformer.wpe.weight": _normed(model, tensors, positions),
    }
    # The queries, keys and values of GPT-2 lie in one matrix too, in this order.
    layers = {"attention.qkv": "attn.c_attn", "attention.out": "attn.c_proj", "feed.up": "mlp.c_fc"}
    layers |= {"feed.out": "mlp.c_proj"}
    for layer in range(model.layers):
        block, theirs = f"blocks.{layer}", f"transformer.h.{layer}"
        for norm, name in (("norm_attention", "ln_1"), ("norm_feed", "ln_2")):
            named |= {f"{theirs}.{name}.{kind}": tensors[f"{block}.{norm}.{kind}"] for kind in ("weight", "bias")}
        for ours, name in layers.items():
            # Its layers are stored as inputs x outputs.
            named[f"{theirs}.{name}.weight"] = tensors[f"{block}.{ours}.weight"].T
            named[f"{theirs}.{name}.bias"] = _bias(tensors, f"{block}.{ours}")
    named |= {f"transformer.ln_f.{kind}": tensors[f"final_norm.{kind}"] for kind in ("weight", "bias")}
    config: Config = {
        "architectures": ["GPT2LMHeadModel"],
        "n_positions": model.context,
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.inner_width,
        "activation_function": _GPT2_ACTIVATIONS[model.activation],
        "layer_norm_epsilon": LAYERNORM_EPS,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), model.dropout),
    }
    return config, named


def _llama(model: Model, tensors: Weights) -> tuple[Config, Weights]:
    named = {"model.embed_tokens.weight": tensors["token.weight"], "model.norm.weight": tensors["final_norm.weight"]}
    for layer in range(model.layers):
        block, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        named[f"{theirs}.input_layernorm.weight"] = tensors[f"{block}.norm_attention.weight"]
        named[f"{theirs}.post_attention_layernorm.weight"] = tensors[f"{block}.norm_feed.weight"]
        if model.qk_norm:
            named |= {
                f"{theirs}.self_attn.{x}_norm.weight": tensors[f"{block}.attention.{x}_norm.weight"] for x in "qk"
            }
        for kind in ("weight", "bias") if model.bias else ("weight",):
            # (3 * heads * size, width) -> three of (heads * size, width).
            for name, part in zip("qkv", tensors[f"{block}.attention.qkv.{kind}"].chunk(3), strict=True):
                named[f"{theirs}.self_attn.{name}_proj.{kind}"] = part
            named[f"{theirs}.self_attn.o_proj.{kind}"] = tensors[f"{block}.attention.out.{kind}"]
            for ours, name in (("gate", "gate_proj"), ("up", "up_proj"), ("out", "down_proj")):
                named[f"{theirs}.mlp.{name}.{kind}"] = tensors[f"{block}.feed.{ours}.{kind}"]
    config: Config = {
        "architectures": ["Qwen3ForCausalLM" if model.qk_norm else "LlamaForCausalLM"],
        "hidden_size": model.width,
        "intermediate_size": model.inner_width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        # As many as heads of queries: this model has no grouped queries.
        "num_key_value_heads": model.heads,
        "head_dim": model.size_of_head,
        "max_position_embeddings": model.context,
        "hidden_act": "silu",
        "rms_norm_eps": RMSNORM_EPS,
        # The same base twice: releases 4 of transformers read the first, release 5 the second.
        "rope_theta": WAVE_BASE,
        "rope_parameters": {"rope_type": "default", "rope_theta": WAVE_BASE},
        "attention_bias": model.bias,
        "attention_dropout": model.dropout,
        **({} if model.qk_norm else {"mlp_bias": model.bias}),  # no field of Qwen3
    }
    return config, named
