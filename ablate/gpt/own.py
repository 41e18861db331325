"""Our kernels as functions that can be differentiated. Only called where `ablate.gpt.paths` has chosen them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ablate.gpt.kernels import Kernels, kernels


def _built() -> Kernels:
    built = kernels()
    assert isinstance(built, Kernels), built
    return built


class _OwnAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> Tensor:
        built = _built()
        qkv = qkv.contiguous()
        y, levels = built.attention(qkv)
        ctx.save_for_backward(qkv, y, levels)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        built = _built()
        qkv, y, levels = ctx.saved_tensors
        return built.attention_slope(qkv, y, levels, slopes[0].contiguous())


class _OwnGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        built = _built()
        x = x.contiguous()
        ctx.save_for_backward(x)
        return built.gelu(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        built = _built()
        (x,) = ctx.saved_tensors
        return built.gelu_slope(x, slopes[0].contiguous())


def own_attention(qkv: Tensor) -> Tensor:
    """Causal attention by our kernel: (batch, time, 3, heads, size) -> (batch, time, heads, size)."""
    return _OwnAttention.apply(qkv)  # type: ignore[no-any-return,no-untyped-call]


def own_gelu(x: Tensor) -> Tensor:
    """GELU by the tanh formula, by our kernel."""
    return _OwnGelu.apply(x)  # type: ignore[no-any-return,no-untyped-call]
