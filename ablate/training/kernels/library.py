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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ablate.training.cohort.steps import find_compiler, none_found
from ablate.training.kernels.errors import worst_error
from ablate.training.kernels.parts import BlockPart
from prereg.registry.canon import sha256_bytes, sha256_of
from prereg.registry.disk import write_whole

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
