"""Our model is nanoGPT's: same weights in, same logits and gradients out. Needs a clone, named by NANOGPT."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ablate.gpt.model import GPT, initialise
from prereg.study.training import Model

CLONE = os.environ.get("NANOGPT", "")
VOCABULARY = 65
pytestmark = pytest.mark.skipif(
    not (Path(CLONE or "/nowhere") / "model.py").is_file(),
    reason="NANOGPT names no clone of nanoGPT (git clone https://github.com/karpathy/nanoGPT, then NANOGPT=path)",
)
OUTSIDE_BLOCKS: dict[str, str] = {
    "token.weight": "transformer.wte.weight",
    "position.weight": "transformer.wpe.weight",
    "final_norm.weight": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
}
PARTS = {
    "norm_attention": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm_feed": "ln_2",
    "feed.up": "mlp.c_fc",
    "feed.out": "mlp.c_proj",
}


def theirs_named(ours: str) -> str:
    """Their name of one of our parameters."""
    if ours in OUTSIDE_BLOCKS:
        return OUTSIDE_BLOCKS[ours]
    _, block, rest = ours.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"transformer.h.{block}.{PARTS[part]}.{kind}"


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nanogpt_model", Path(CLONE) / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("shape", [(2, 32, 4, 16), (8, 128, 8, 128)], ids=["small", "embnorm"])
def test_logits_and_gradients_are_nanogpts(
    theirs: ModuleType, fused: bool, shape: tuple[int, int, int, int], record_property: Any
) -> None:
    layers, width, heads, context = shape
    # nanoGPT's non-linearity is the exact GELU; everything else of it is our default.
    config = Model(layers=layers, width=width, heads=heads, context=context, activation="gelu")
    ours = GPT(config, VOCABULARY, fused=fused)
    initialise(ours, 7)
    peer = theirs.GPT(
        theirs.GPTConfig(
            block_size=context,
            vocab_size=VOCABULARY,
            n_layer=layers,
            n_head=heads,
            n_embd=width,
            dropout=0.0,
            bias=True,
        )
    )
    named = dict(peer.named_parameters())
    mine = {theirs_named(name): parameter for name, parameter in ours.named_parameters()}
    assert set(mine) == set(named)
    with torch.no_grad():
        for index, (name, parameter) in enumerate(mine.items()):
            # Biases start at zero and scales at one, which would hide them: every number is moved.
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
            named[name].copy_(parameter)
    tokens = torch.randint(0, VOCABULARY, (4, context + 1), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    logits, loss = peer(inputs, targets)
    loss.backward()
    our_logits = ours(inputs)
    our_loss = ours.loss(inputs, targets)
    our_loss.backward()
    worst = 0.0
    for name, parameter in mine.items():
        slope, other = parameter.grad, named[name].grad
        assert slope is not None and other is not None, name
        worst = max(worst, float((slope - other).abs().max()))
    apart = float((our_logits - logits).abs().max().detach())
    record_property("largest difference of logits", apart)
    record_property("largest difference of gradients", worst)
    print(f"{layers} layers, width {width}, fused {fused}: logits {apart:.1e}, gradients {worst:.1e}")
    assert apart <= 1e-5 and worst <= 1e-5
    assert abs(float((our_loss - loss).detach())) <= 1e-5
