"""How far a library of ours errs: every kernel and its gradients against torch's operators in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.training.kernels.parts import BlockPart, Norm

if TYPE_CHECKING:
    from ablate.training.kernels.library import Kernels


def worst_error(found: Kernels) -> float:
    """The largest error of every kernel and its gradients in float32 against torch's in float64."""
    drawn = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=drawn)

    qkv, dy, bias, flat = some(1, 19, 3, 2, 9), some(1, 19, 2, 9), some(54), some(19, 54)
    x, weight, shift = some(1, 101, 16), some(16), some(16)
    into, out, up, down = some(3 * 32, 16) / 4, some(16, 32) / 6, some(80, 16) / 4, some(16, 80) / 9
    first, high = some(96), some(80)
    norm = Norm("layernorm", weight, shift, 1e-5)
    feeding, attending = BlockPart(norm, (up, high), (down, shift)), BlockPart(norm, (into, first), (out, shift))
    y, levels = found.attention(qkv, bias)
    fed, inner = found.feed(x, feeding, keep=True)
    seen, kept = found.attend(x, attending, 2, keep=True)
    assert inner is not None
    slope = found.linear(x, up, high)
    errors = [
        _error((y, *found.attention_slope(qkv, bias, levels, dy)), _attention, (qkv, bias), dy),
        _error((found.gelu(flat, bias), *found.gelu_slope(flat, bias, flat)), _gelu, (flat, bias), flat),
        _error((slope, *found.linear_slope(x, up, high, slope)), F.linear, (x, up, high), slope),
        _error((fed, *found.feed_slope(x, feeding, inner, x)), _feed, (x, *feeding.tensors), x),
        _error((seen, *found.attend_slope(x, attending, 2, kept, x)), _attend, (x, *attending.tensors), x),
    ]
    return float(torch.tensor(errors).max())


def _attention(qkv: Tensor, bias: Tensor) -> Tensor:
    q, k, v = (qkv + bias.view(qkv.shape[2:])).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias, approximate="tanh")


def _feed(x: Tensor, weight: Tensor, shift: Tensor, *layers: Tensor) -> Tensor:
    up, high, down, low = layers
    normed = F.layer_norm(x, x.shape[-1:], weight, shift)
    return x + F.linear(F.gelu(F.linear(normed, up, high), approximate="tanh"), down, low)


def _attend(x: Tensor, weight: Tensor, shift: Tensor, *layers: Tensor) -> Tensor:
    into, first, out, last = layers
    normed = F.layer_norm(x, x.shape[-1:], weight, shift)
    mixed = _attention(F.linear(normed, into).view(*x.shape[:2], 3, 2, -1), first)
    return x + F.linear(mixed.flatten(2), out, last)


def _error(
    ours: tuple[Tensor | None, ...], curve: Callable[..., Tensor], given: tuple[Tensor | None, ...], slope: Tensor
) -> float:
    """The largest error of a value and its gradients, relative to their largest entry. A NaN stays one."""
    with torch.enable_grad():
        wide = [one.double().requires_grad_() for one in given if one is not None]
        value = curve(*wide)
        exact = (value, *torch.autograd.grad(value, wide, slope.double()))
    errors = []
    for one, other in zip(ours, exact, strict=True):
        assert one is not None
        errors.append((one - other.detach()).abs().max() / other.detach().abs().max().clamp(min=1.0))
    return float(torch.stack(errors).max())
