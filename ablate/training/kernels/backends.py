"""Which of several equal computations a model takes: attention, GELU, linear layers, chosen by a recorded measurement.

The formulas are the same, the last bits and the time are not: on one machine torch's fused attention is fastest, on
another its bfloat16 backward takes two thirds of a step. So every candidate is timed on the shapes of the run, on this
machine, once; the times and the choice are kept in the user's cache, every later run of that shape takes the same path,
and its provenance names it. Where the work is too small for the choice to be felt, nothing is measured.

Our own kernels are functions that can be differentiated. A bias goes in with them: torch adds the one of a linear layer
in a pass of its own, and sums its gradient in another.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.training.kernels.library import WHOLE, Absent, BlockPart, Kernels, Norm, kernels
from prereg.registry.disk import flock, write_whole
from prereg.study.training import Training

AttentionPath = Literal["fused", "plain", "own"]
GeluPath = Literal["torch", "own"]
ProductsPath = Literal["torch", "own"]
PARTS = ("attention", "gelu", "products")

FELT_FROM = 2**19
"""Attention weights of one layer below which nothing is measured: there a step takes a millisecond or so."""
REPEATS = 5
WINS_BY = 0.9
"""A path takes the place of an earlier one in the list when it needs less than this share of its time."""


@dataclass(frozen=True)
class Paths:
    """How attention, GELU and linear layers are computed. Dropout on attention weights is always `plain`."""

    attention: AttentionPath = "fused"
    """`fused`: torch's scaled_dot_product_attention; `plain`: two products around a softmax; `own`: our kernel."""
    gelu: GeluPath = "torch"
    """torch's own, or our kernel; GELU by the tanh formula only."""
    products: ProductsPath = "torch"
    """The linear layers of the blocks: torch's, or ours where all widths are multiples of 16; these take a part of a
    block as one, with the norm before it and the sum after it, where nothing else lies between."""
    kernels: str = ""
    """Hash of our kernels, where one of them is taken."""
    compiled: str = ""
    """What compiled the whole step, where it is compiled (`ablate.training.cohort.joint`)."""
    lacking: str = ""
    """Why kernels of our own were no candidates where they could have been felt; it moves no bit of what was taken."""

    def __str__(self) -> str:
        text = f"attention {self.attention}, gelu {self.gelu}"
        text += f", products {self.products}" if self.products != "torch" else ""
        text += f", kernels {self.kernels[:12]}" if self.kernels else ""
        return f"{text}, compiled by {self.compiled}" if self.compiled else text


def default_paths(config: Training) -> Paths:
    """What is taken without a measurement: torch's fused kernel where it is not known to be slow."""
    return Paths(attention="fused" if config.numerics.dtype == "float32" else "plain")


def choose_paths(config: Training, folder: Path, *, device: str = "cpu") -> Paths:
    """The paths of a configuration on this machine: as recorded in the folder, or measured now and recorded."""
    model, batch = config.model, _at_once(config)
    if device != "cpu" or batch * model.heads * model.context**2 < FELT_FROM:
        return default_paths(config)
    built = kernels()
    request = {
        "machine": platform.machine(),
        "processor": _processor(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "kernels": built.sha256 if isinstance(built, Kernels) else built.reason,
        "dtype": config.numerics.dtype,
        "batch": batch,
        "context": model.context,
        "heads": model.heads,
        "head_size": model.size_of_head,
        "inner_width": model.inner_width,
        "width": model.width,
        "activation": model.activation,
    }
    with _held(folder) as path:
        kept = _kept(path)
        found = next((entry for entry in kept if entry["asked"] == request), None)
        if found is None:
            found = {"asked": request, "made": time.strftime("%Y-%m-%d", time.gmtime()), **_measure(config, built)}
            write_whole(path, (json.dumps([*kept, found], indent=2) + "\n").encode())
    attention, gelu, products = (found[part]["taken"] for part in PARTS)
    assert attention in get_args(AttentionPath) and {gelu, products} <= set(get_args(GeluPath)), found
    own = "own" in (attention, gelu, products) and isinstance(built, Kernels)
    lacking = f"no kernels of our own: {built.reason}" if isinstance(built, Absent) else ""
    sha256 = built.sha256 if own and isinstance(built, Kernels) else ""
    return Paths(attention, gelu, products, kernels=sha256, lacking=lacking)


def _measure(config: Training, built: Kernels | Absent) -> dict[str, Any]:
    """Median milliseconds of forward and backward of each candidate on the run's own shapes, and which is taken."""
    model, batch = config.model, _at_once(config)
    dtype = torch.bfloat16 if config.numerics.dtype == "bfloat16" else torch.float32
    drawn = torch.Generator().manual_seed(0)
    qkv = torch.randn(batch, model.context, 3, model.heads, model.size_of_head, generator=drawn).to(dtype)
    inner = torch.randn(batch * model.context, model.inner_width, generator=drawn).to(dtype)
    mask = torch.full((model.context, model.context), float("-inf")).triu(1)
    attentions: dict[str, Callable[[Tensor], Tensor]] = {
        "fused": _fused,
        "plain": partial(plain_attention, mask=mask),
    }
    gelus: dict[str, Callable[[Tensor], Tensor]] = {"torch": partial(F.gelu, approximate="tanh")}
    if isinstance(built, Kernels):
        attentions["own"], gelus["own"] = own_attention, own_gelu
    order = ("fused", "plain", "own") if dtype == torch.float32 else ("plain", "fused", "own")
    found = {
        "attention": _fastest({name: attentions[name] for name in order if name in attentions}, (qkv,)),
        "gelu": _fastest(gelus, (inner,)),
    }
    feed: dict[str, Callable[..., Tensor]] = {"torch": partial(_feed, gelus[found["gelu"]["taken"]])}
    # Kernels for products know float32 and whole vectors; torch's bfloat16 has a unit of the processor to itself.
    if (
        isinstance(built, Kernels)
        and dtype == torch.float32
        and not model.width % WHOLE
        and not model.inner_width % WHOLE
    ):
        feed["own"] = _own_feed if model.activation == "gelu_tanh" else partial(_own_layers, gelus["torch"])
    sizes = ((batch, model.context, model.width), (model.inner_width, model.width), (model.width, model.inner_width))
    drawn_feed = tuple(torch.randn(*size, generator=drawn).to(dtype) / size[-1] ** 0.5 for size in sizes)
    return {**found, "products": _fastest(feed, drawn_feed)}


def _feed(gelu: Callable[[Tensor], Tensor], x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    normed = F.layer_norm(x, x.shape[-1:], x.new_ones(x.shape[-1]))
    return x + F.linear(gelu(F.linear(normed, up)), down)


def _own_feed(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return own_feed(x, BlockPart(Norm("layernorm", x.new_ones(x.shape[-1]), None, 1e-5), (up, None), (down, None)))


def _own_layers(gelu: Callable[[Tensor], Tensor], x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    normed = F.layer_norm(x, x.shape[-1:], x.new_ones(x.shape[-1]))
    return x + own_linear(gelu(own_linear(normed, up)), down)


def _at_once(config: Training) -> int:
    """Sequences of one computation: a whole batch might not even fit."""
    return config.budget.micro_batch or config.budget.batch


def _fused(qkv: Tensor) -> Tensor:
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def plain_attention(qkv: Tensor, mask: Tensor) -> Tensor:
    """(batch, time, 3, heads, size) -> (batch, time, heads, size) by products and a softmax of their own."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5 + mask.to(q.dtype)
    y: Tensor = scores.softmax(dim=-1).to(v.dtype) @ v
    return y.transpose(1, 2)


def _fastest(candidates: Mapping[str, Callable[..., Tensor]], given: tuple[Tensor, ...]) -> dict[str, Any]:
    times = {name: round(_milliseconds(candidate, given), 4) for name, candidate in candidates.items()}
    taken, best = "", float("inf")
    for name, taking in times.items():
        if taking < best * (WINS_BY if taken else 1.0):
            taken, best = name, taking
    return {"taken": taken, "ms": times, "method": f"forward and backward, CPU time, median of {REPEATS}"}


def _milliseconds(candidate: Callable[..., Tensor], given: tuple[Tensor, ...]) -> float:
    """CPU time rather than wall time: another run is usually at work next to this one."""
    given = tuple(one.clone().requires_grad_() for one in given)
    slope: Tensor | None = None
    times = []
    for _ in range(REPEATS + 1):
        started = time.process_time()
        y = candidate(*given)
        slope = torch.ones_like(y) if slope is None else slope
        torch.autograd.grad(y, given, slope)
        times.append(time.process_time() - started)
    return statistics.median(times[1:]) * 1e3


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """The record of measurements, one process at a time: two workers must not choose differently."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as stream:
        flock(stream)
        yield folder / "paths.json"


def _kept(path: Path) -> list[dict[str, Any]]:
    """Earlier measurements. What cannot be read is measured again: it is a cache, and records name their path."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [entry for entry in entries if {"asked", *PARTS} <= set(entry)]
    except (OSError, ValueError, TypeError):
        return []


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or "unknown"
    return next((line for line in info.read_text().splitlines() if line.startswith("model name")), "unknown")


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
