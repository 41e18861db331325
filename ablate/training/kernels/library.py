"""Our own CPU kernels: compiled once a machine, kept in the user's cache, loaded by ctypes.

Why there are any: for the small heads of small models torch's fused attention takes longer than these loops in float32,
and its bfloat16 backward many times as long; and a feed-forward part taken some rows at a time does not wait for memory
as one does that is taken operator by operator (`reports/bench`). They are candidates, no more:
`ablate.training.kernels.backends` measures them against torch's own and keeps the faster one.

The source is a folder of C++ files without a dependency, so a compiler is all that is needed, and where there is none
the reason is said and torch's paths are used. A library is named by the hash of everything that could change its bits:
source, command, compiler, processor. A freshly loaded one must agree with float64 before it is used.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.training.device import find_compiler, none_found
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.disk import write_whole

Linear = tuple[Tensor, Tensor | None]
"""The weight and the bias of a linear layer."""


@dataclass(frozen=True)
class Norm:
    """The norm before a part of a block."""

    kind: Literal["none", "layernorm", "rmsnorm"]
    weight: Tensor | None = None
    bias: Tensor | None = None
    eps: float = 0.0

    @property
    def arguments(self) -> tuple[int, float]:
        """As the library knows it."""
        return ("none", "layernorm", "rmsnorm").index(self.kind), self.eps


@dataclass(frozen=True)
class BlockPart:
    """A part of a block: a norm and two linear layers, with attention or a GELU between these."""

    norm: Norm
    first: Linear
    second: Linear

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All its weights and biases, those of the norm first."""
        return self.norm.weight, self.norm.bias, *self.first, *self.second

    @property
    def without_biases(self) -> tuple[Tensor | None, ...]:
        """What a backward pass reads: no bias of a linear layer."""
        return self.norm.weight, self.norm.bias, self.first[0], self.second[0]


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


SOURCE = Path(__file__).with_name("native")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
COMPILE_TIMEOUT_S = 300
"""An idle core without AVX-512 takes 73 s; a busy one took more than 120."""
TOLERANCE = 1e-4
"""Largest error a library may show against float64, relative to the largest entry; float32 rounds to a hundredth."""


WHOLE = 16
"""What the widths of our linear layers must be multiples of."""
ROWS, PANEL = 96, 64
"""How the kernels cut what lies inside a feed-forward part (`TOGETHER` and `PANEL` of `products.h`)."""


@dataclass(frozen=True)
class Absent:
    """Why this machine has no kernels of ours."""

    reason: str


@dataclass(frozen=True)
class Kernels:
    """A loaded library."""

    sha256: str
    """Hash of what it was built from."""
    library: ctypes.CDLL

    def attention(self, qkv: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """(batch, time, 3, heads, size) -> (batch, time, heads, size), and what `attention_slope` needs."""
        batch, time, _, heads, size = qkv.shape
        y = torch.empty((batch, time, heads, size), dtype=qkv.dtype)
        levels = torch.empty((batch, heads, time), dtype=torch.float32)
        self._call("attention_forward", _half(qkv), *_places(qkv, bias, y, levels), *_sizes(qkv))
        return y, levels

    def attention_slope(
        self, qkv: Tensor, bias: Tensor | None, levels: Tensor, dy: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of `attention` by its two inputs."""
        slope, slope_bias = torch.empty_like(qkv), _zeros(bias)
        places = _places(qkv, bias, levels, dy, slope, slope_bias)
        self._call("attention_backward", _half(qkv), *places, *_sizes(qkv))
        return slope, slope_bias

    def gelu(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """GELU of x + bias by the tanh formula, entry by entry."""
        y = torch.empty_like(x)
        self._call("gelu_forward", _half(x), *_places(x, bias, y), *_table(x))
        return y

    def gelu_slope(self, x: Tensor, bias: Tensor | None, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients of `gelu` by its two inputs."""
        slope, slope_bias = torch.empty_like(x), _zeros(bias)
        self._call("gelu_backward", _half(x), *_places(x, bias, dy, slope, slope_bias), *_table(x))
        return slope, slope_bias

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + bias, of float32 and widths that are multiples of 16."""
        assert x.dtype == torch.float32, x.dtype
        y = torch.empty((*x.shape[:-1], len(weight)))
        self._call("linear_forward", *_places(x, weight, bias, y), *_table(x), len(weight))
        return y

    def linear_slope(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, dy: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gradients of `linear` by its three inputs."""
        dx, dweight, dbias = torch.empty_like(x), torch.zeros_like(weight), _zeros(bias)
        self._call("linear_backward", *_places(x, weight, dy, dx, dweight, dbias), *_table(x), len(weight))
        return dx, dweight, dbias

    def feed(self, x: Tensor, part: BlockPart, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """x + GELU(norm(x) U^T + a) W^T + b; and what `feed_slope` needs, where it is to be kept."""
        assert x.dtype == torch.float32, x.dtype
        height, width, wide = *_table(x), len(part.first[0])
        y = torch.empty_like(x)
        inner = torch.empty((-(-height // ROWS), -(-wide // PANEL), ROWS, PANEL)) if keep else None
        self._call("feed_forward", *_places(x, *part.tensors, y, inner), height, width, wide, *part.norm.arguments)
        return y, inner

    def feed_slope(self, x: Tensor, part: BlockPart, inner: Tensor, dy: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `feed` by its input and by each tensor of the part."""
        dx, slopes = torch.empty_like(x), [_zeros(one) for one in part.tensors]
        places = _places(x, *part.without_biases, inner, dy, dx, *slopes)
        self._call("feed_backward", *places, *_table(x), len(part.first[0]), *part.norm.arguments)
        return dx, *slopes

    def attend(self, x: Tensor, part: BlockPart, heads: int, *, keep: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x + attention(norm(x) A^T + a) B^T + b of (batch, time, width); and what `attend_slope` needs."""
        assert x.dtype == torch.float32, x.dtype
        batch, time, _ = x.shape
        y, inner = torch.empty_like(x), part.second[0].shape[1]
        kept: tuple[Tensor, ...] = ()
        if keep:
            # Queries, keys and values; of each query the highest score; what attention gives.
            shapes = ((batch, time, 3 * inner), (batch, heads, time), (batch, time, inner))
            kept = tuple(torch.empty(shape) for shape in shapes)
        places = _places(x, *part.tensors, y, *(kept or (None, None, None)))
        self._call("attend_forward", *places, *x.shape, *_heads(inner, heads), *part.norm.arguments)
        return y, kept

    def attend_slope(
        self, x: Tensor, part: BlockPart, heads: int, kept: tuple[Tensor, ...], dy: Tensor
    ) -> tuple[Tensor | None, ...]:
        """The gradients of `attend` by its input and by each tensor of the part."""
        dx, slopes = torch.empty_like(x), [_zeros(one) for one in part.tensors]
        places = _places(x, *part.without_biases, *kept, dy, dx, *slopes)
        self._call("attend_backward", *places, *x.shape, *_heads(part.second[0].shape[1], heads), *part.norm.arguments)
        return dx, *slopes

    def _call(self, name: str, *words: int | float | None) -> None:
        if getattr(self.library, name)(*words):
            raise MemoryError(f"{name} found no memory for its scratch")


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this machine's libraries and measurements are kept."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ablate" / "kernels"


@cache
def kernels() -> Kernels | Absent:
    """The library of this machine, built if need be."""
    return load(cache_folder())


def load(folder: Path) -> Kernels | Absent:
    """The library in a folder, or one built into it; a reason where neither can be had."""
    compiler = find_compiler()
    if compiler is None:
        return Absent(none_found())
    version = _said(compiler, "--version")
    meant = sha256_of(
        {
            "source": {file.name: sha256_bytes(file.read_bytes()) for file in sorted(SOURCE.iterdir())},
            "command": [Path(compiler).name, *FLAGS],
            "compiler": version,
            "target": _said(compiler, "-march=native", "-Q", "--help=target"),
            "processor": processor_flags(),
        }
    )
    path = folder / f"{meant[:16]}.so"
    try:
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # not there yet, or cut short
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, _compiled(compiler))
            library = ctypes.CDLL(str(path))
        made = Kernels(meant, _declared(library))
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return Absent(f"{Path(compiler).name} made no library that loads: {str(said).strip()[:300]}")
    worst = worst_error(made)
    # Written so that a NaN is refused too.
    if not worst <= TOLERANCE:
        return Absent(f"{path} errs by {worst:.2g} against float64 (at most {TOLERANCE:g} is allowed); rm {path}")
    return made


def _compiled(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernels.so"
        subprocess.run(
            [compiler, *FLAGS, "-o", str(made), *map(str, sorted(SOURCE.glob("*.cpp")))],
            capture_output=True,
            text=True,
            check=True,
            timeout=COMPILE_TIMEOUT_S,
        )
        return made.read_bytes()


def _said(compiler: str, *words: str) -> str:
    """What a compiler says of itself; some know fewer words than others, and their silence is as good a name."""
    done = subprocess.run([compiler, *words], capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S)
    return done.stdout


def processor_flags() -> str:
    """Instruction sets: a cache on a shared disk must not hand one machine's library to another."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return "unknown"
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "unknown")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    place, number, kind = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
    shape: list[Any] = [*[number] * 4, ctypes.c_float]
    norm: list[Any] = [kind, ctypes.c_float]
    library.attention_forward.argtypes = [kind, *[place] * 4, *shape]
    library.attention_backward.argtypes = [kind, *[place] * 6, *shape]
    library.gelu_forward.argtypes = [kind, *[place] * 3, *[number] * 2]
    library.gelu_backward.argtypes = [kind, *[place] * 5, *[number] * 2]
    library.linear_forward.argtypes = [*[place] * 4, *[number] * 3]
    library.linear_backward.argtypes = [*[place] * 6, *[number] * 3]
    library.feed_forward.argtypes = [*[place] * 9, *[number] * 3, *norm]
    library.feed_backward.argtypes = [*[place] * 14, *[number] * 3, *norm]
    library.attend_forward.argtypes = [*[place] * 11, *[number] * 5, ctypes.c_float, *norm]
    library.attend_backward.argtypes = [*[place] * 16, *[number] * 5, ctypes.c_float, *norm]
    return library


def _half(x: Tensor) -> int:
    assert x.dtype in (torch.float32, torch.bfloat16), x.dtype
    return int(x.dtype == torch.bfloat16)


def _places(*tensors: Tensor | None) -> list[int | None]:
    """Addresses. The library knows no strides and no device."""
    for one in tensors:
        assert one is None or (one.device.type == "cpu" and one.is_contiguous()), one
    return [None if one is None else one.data_ptr() for one in tensors]


def _table(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[-1], x.shape[-1]


def _sizes(qkv: Tensor) -> tuple[int, int, int, int, float]:
    batch, time, _, heads, size = qkv.shape
    return batch, time, heads, size, size**-0.5


def _heads(inner: int, heads: int) -> tuple[int, int, float]:
    size = inner // heads
    return heads, size, size**-0.5


def _zeros(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else torch.zeros_like(bias)
