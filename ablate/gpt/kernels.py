"""Our own CPU kernels: compiled once a machine, kept in the user's cache, loaded by ctypes.

Why there are any: for the small heads of small models torch's fused attention takes longer than these loops in float32,
and its bfloat16 backward many times as long (`reports/bench`). They are candidates, no more: `ablate.gpt.paths`
measures them against torch's own and keeps the faster one.

The source is one C++ file without a dependency, so a compiler is all that is needed, and where there is none the reason
is said and torch's paths are used. A library is named by the hash of everything that could change its bits: source,
command, compiler, processor. A freshly loaded one must agree with float64 before it is used.
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

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from ablate.gpt.compiler import find_compiler, none_found
from prereg.canon import sha256_bytes, sha256_of
from prereg.disk import write_whole

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
COMPILE_TIMEOUT_S = 120
TOLERANCE = 1e-4
"""Largest error that a library may show against float64 on numbers about 1; float32 rounds to a hundredth of it."""


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
        """(batch, time, 3, heads, size) -> (batch, time, heads, size), and the log of each softmax' denominator."""
        batch, time, _, heads, size = qkv.shape
        y = torch.empty((batch, time, heads, size), dtype=qkv.dtype)
        levels = torch.empty((batch, heads, time), dtype=torch.float32)
        failed = self.library.attention_forward(
            _half(qkv), *_places(qkv, bias, y, levels), batch, time, heads, size, size**-0.5
        )
        if failed:
            raise MemoryError("attention found no memory for its scratch")
        return y, levels

    def attention_slope(
        self, qkv: Tensor, bias: Tensor | None, y: Tensor, levels: Tensor, dy: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The gradients of `attention` by its two inputs."""
        batch, time, _, heads, size = qkv.shape
        slope, slope_bias = torch.empty_like(qkv), None if bias is None else torch.zeros_like(bias)
        failed = self.library.attention_backward(
            _half(qkv), *_places(qkv, bias, y, levels, dy, slope, slope_bias), batch, time, heads, size, size**-0.5
        )
        if failed:
            raise MemoryError("attention found no memory for its scratch")
        return slope, slope_bias

    def gelu(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """GELU of x + bias by the tanh formula, entry by entry."""
        y = torch.empty_like(x)
        self.library.gelu_forward(_half(x), *_places(x, bias, y), *_table(x))
        return y

    def gelu_slope(self, x: Tensor, bias: Tensor | None, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradients of `gelu` by its two inputs."""
        slope, slope_bias = torch.empty_like(x), None if bias is None else torch.zeros_like(bias)
        if self.library.gelu_backward(_half(x), *_places(x, bias, dy, slope, slope_bias), *_table(x)):
            raise MemoryError("GELU found no memory for the sums of its bias")
        return slope, slope_bias


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
            "source": sha256_bytes(SOURCE.read_bytes()),
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


def worst_error(found: Kernels) -> float:
    """The largest error of attention, GELU and their gradients in float32 against torch's in float64."""
    drawn = torch.Generator().manual_seed(0)
    qkv, dy = torch.randn(1, 19, 3, 2, 9, generator=drawn), torch.randn(1, 19, 2, 9, generator=drawn)
    bias = torch.randn(54, generator=drawn)
    y, levels = found.attention(qkv, bias)
    flat = qkv.view(19, 54)
    with torch.enable_grad():
        wide, wide_bias = qkv.double().requires_grad_(), bias.double().requires_grad_()
        q, k, v = (wide + wide_bias.view(3, 2, 9)).permute(2, 0, 3, 1, 4)
        told = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        slopes = torch.autograd.grad(told, (wide, wide_bias), dy.double())
        x, x_bias = flat.double().requires_grad_(), bias.double().requires_grad_()
        curve = F.gelu(x + x_bias, approximate="tanh")
        rises = torch.autograd.grad(curve, (x, x_bias), flat.double())
    ours = (
        y,
        *found.attention_slope(qkv, bias, y, levels, dy),
        found.gelu(flat, bias),
        *found.gelu_slope(flat, bias, flat),
    )
    errors = []
    for one, other in zip(ours, (told, *slopes, curve, *rises), strict=True):
        assert one is not None
        errors.append((one - other.detach()).abs().max())
    return float(torch.stack(errors).max())


def _compiled(compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernels.so"
        subprocess.run(
            [compiler, *FLAGS, "-o", str(made), str(SOURCE)],
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
    shape = [number] * 4 + [ctypes.c_float]
    library.attention_forward.argtypes = [kind, *[place] * 4, *shape]
    library.attention_backward.argtypes = [kind, *[place] * 7, *shape]
    library.gelu_forward.argtypes = [kind, *[place] * 3, number, number]
    library.gelu_backward.argtypes = [kind, *[place] * 5, number, number]
    library.gelu_forward.restype = None
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
