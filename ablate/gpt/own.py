"""Our kernels as functions that can be differentiated. Only called where `ablate.gpt.paths` has chosen them.

A bias goes in with them: torch adds the one of a linear layer in a pass of its own, and sums its gradient in another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ablate.gpt.kernels import Kernels, kernels


def own_attention(qkv: Tensor, bias: Tensor | None = None) -> Tensor:
    """Causal attention of qkv + bias: (batch, time, 3, heads, size) -> (batch, time, heads, size)."""
    return _OwnAttention.apply(qkv, bias)  # type: ignore[no-any-return,no-untyped-call]


def own_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """GELU of x + bias by the tanh formula."""
    return _OwnGelu.apply(x, bias)  # type: ignore[no-any-return,no-untyped-call]


class _OwnAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor | None) -> Tensor:
        qkv = qkv.contiguous()
        y, levels = _built().attention(qkv, bias)
        ctx.save_for_backward(qkv, bias, y, levels)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor | None]:
        qkv, bias, y, levels = ctx.saved_tensors
        return _built().attention_slope(qkv, bias, y, levels, slopes[0].contiguous())


class _OwnGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, bias)
        return _built().gelu(x, bias)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor | None]:
        x, bias = ctx.saved_tensors
        return _built().gelu_slope(x, bias, slopes[0].contiguous())


def _built() -> Kernels:
    built = kernels()
    assert isinstance(built, Kernels), built
    return built
