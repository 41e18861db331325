"""Our kernels as functions that can be differentiated. Only called where `ablate.training.kernels.backends` has chosen
them.

A bias goes in with them: torch adds the one of a linear layer in a pass of its own, and sums its gradient in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ablate.training.kernels.library import BlockPart, Kernels, Norm, kernels


def own_attention(qkv: Tensor, bias: Tensor | None = None) -> Tensor:
    """Causal attention of qkv + bias: (batch, time, 3, heads, size) -> (batch, time, heads, size)."""
    return _OwnAttention.apply(qkv, bias)  # type: ignore[no-any-return,no-untyped-call]


def own_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """GELU of x + bias by the tanh formula."""
    return _OwnGelu.apply(x, bias)  # type: ignore[no-any-return,no-untyped-call]


def own_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear layer in float32, of widths that are multiples of 16."""
    return _OwnLinear.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]


def own_attend(x: Tensor, part: BlockPart, heads: int) -> Tensor:
    """What a block's attention makes of the residual stream, the norm before it and the sum after it included."""
    return _OwnAttend.apply(torch.is_grad_enabled(), part.norm, heads, x, *part.tensors)  # type: ignore[no-any-return,no-untyped-call]


def own_feed(x: Tensor, part: BlockPart) -> Tensor:
    """The same of two linear layers around a GELU by the tanh formula."""
    return _OwnFeed.apply(torch.is_grad_enabled(), part.norm, x, *part.tensors)  # type: ignore[no-any-return,no-untyped-call]


class _OwnAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, bias: Tensor | None) -> Tensor:
        qkv = qkv.contiguous()
        y, levels = _built().attention(qkv, bias)
        ctx.save_for_backward(qkv, bias, levels)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor | None]:
        qkv, bias, levels = ctx.saved_tensors
        return _built().attention_slope(qkv, bias, levels, slopes[0].contiguous())


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


class _OwnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight, bias)
        return _built().linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        return _built().linear_slope(x, weight, bias, slopes[0].contiguous())


class _OwnAttend(torch.autograd.Function):
    # Inside of a function torch no longer says whether anything will be differentiated: `keep` does.
    @staticmethod
    def forward(ctx: Any, keep: bool, norm: Norm, heads: int, x: Tensor, *tensors: Tensor | None) -> Tensor:
        x = x.contiguous()
        y, kept = _built().attend(x, _part(norm, tensors), heads, keep=keep)
        ctx.norm, ctx.heads = replace(norm, weight=None, bias=None), heads
        ctx.save_for_backward(x, *tensors, *kept)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, *rest = ctx.saved_tensors
        part, kept = _part(ctx.norm, rest[:6]), tuple(rest[6:])
        return None, None, None, *_built().attend_slope(x, part, ctx.heads, kept, slopes[0].contiguous())


class _OwnFeed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keep: bool, norm: Norm, x: Tensor, *tensors: Tensor | None) -> Tensor:
        x = x.contiguous()
        y, inner = _built().feed(x, _part(norm, tensors), keep=keep)
        ctx.norm = replace(norm, weight=None, bias=None)
        ctx.save_for_backward(x, *tensors, inner)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, *tensors, inner = ctx.saved_tensors
        return None, None, *_built().feed_slope(x, _part(ctx.norm, tensors), inner, slopes[0].contiguous())


def _part(norm: Norm, tensors: Sequence[Tensor | None]) -> BlockPart:
    """The part whose tensors these are; a function of torch's is given them one by one."""
    weight, bias, first, first_bias, second, second_bias = tensors
    assert first is not None and second is not None
    return BlockPart(replace(norm, weight=weight, bias=bias), (first, first_bias), (second, second_bias))


def _built() -> Kernels:
    built = kernels()
    assert isinstance(built, Kernels), built
    return built
