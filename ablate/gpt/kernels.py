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
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its customary name)

from prereg.canon import sha256_bytes, sha256_of
from prereg.disk import write_whole

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILERS = ("c++", "g++", "clang++")
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

    def attention(self, qkv: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, time, 3, heads, size) -> (batch, time, heads, size), and the log of each softmax' denominator."""
        batch, time, _, heads, size = qkv.shape
        y = torch.empty((batch, time, heads, size), dtype=qkv.dtype)
        levels = torch.empty((batch, heads, time), dtype=torch.float32)
        failed = self.library.attention_forward(
            _half(qkv), qkv.data_ptr(), y.data_ptr(), levels.data_ptr(), batch, time, heads, size, size**-0.5
        )
        if failed:
            raise MemoryError("attention found no memory for its scratch")
        return y, levels

    def attention_slope(self, qkv: Tensor, y: Tensor, levels: Tensor, dy: Tensor) -> Tensor:
        """The gradient of `attention`."""
        batch, time, _, heads, size = qkv.shape
        slope = torch.empty_like(qkv)
        failed = self.library.attention_backward(
            _half(qkv),
            *(one.data_ptr() for one in (qkv, y, levels, dy, slope)),
            *(batch, time, heads, size, size**-0.5),
        )
        if failed:
            raise MemoryError("attention found no memory for its scratch")
        return slope

    def gelu(self, x: Tensor) -> Tensor:
        """GELU by the tanh formula, entry by entry."""
        y = torch.empty_like(x)
        self.library.gelu_forward(_half(x), x.data_ptr(), y.data_ptr(), x.numel())
        return y

    def gelu_slope(self, x: Tensor, dy: Tensor) -> Tensor:
        """The gradient of `gelu`."""
        slope = torch.empty_like(x)
        self.library.gelu_backward(_half(x), x.data_ptr(), dy.data_ptr(), slope.data_ptr(), x.numel())
        return slope


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where this machine's libraries and measurements are kept."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ablate" / "kernels"


@cache
def kernels() -> Kernels | Absent:
    """The library of this machine, built if need be."""
    return load(cache_folder())


def load(folder: Path) -> Kernels | Absent:
    """The library in a folder, or one built into it; a reason where neither can be had."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        return Absent(f"no C++ compiler ({', '.join(COMPILERS)})")
    version = _said(compiler, "--version")
    meant = sha256_of(
        {
            "source": sha256_bytes(SOURCE.read_bytes()),
            "command": [Path(compiler).name, *FLAGS],
            "compiler": version,
            "target": _said(compiler, "-march=native", "-Q", "--help=target"),
            "processor": _processor_flags(),
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
    y, levels = found.attention(qkv)
    exact = qkv.double().requires_grad_()
    with torch.enable_grad():
        q, k, v = exact.permute(2, 0, 3, 1, 4)
        told = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        (slope,) = torch.autograd.grad(told, exact, dy.double())
        x = qkv.double().flatten().requires_grad_()
        curve = F.gelu(x, approximate="tanh")
        (rise,) = torch.autograd.grad(curve, x, exact.detach().flatten())
    pairs = (
        (y, told),
        (found.attention_slope(qkv, y, levels, dy), slope),
        (found.gelu(qkv.flatten()), curve),
        (found.gelu_slope(qkv.flatten(), qkv.flatten()), rise),
    )
    return float(torch.stack([(one - other).abs().max() for one, other in pairs]).max().detach())


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


def _processor_flags() -> str:
    """Instruction sets: a cache on a shared disk must not hand one machine's library to another."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return "unknown"
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "unknown")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    place, number, kind = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
    shape = [number] * 4 + [ctypes.c_float]
    library.attention_forward.argtypes = [kind, *[place] * 3, *shape]
    library.attention_backward.argtypes = [kind, *[place] * 5, *shape]
    library.gelu_forward.argtypes = [kind, *[place] * 2, number]
    library.gelu_backward.argtypes = [kind, *[place] * 3, number]
    library.gelu_forward.restype = library.gelu_backward.restype = None
    return library


def _half(x: Tensor) -> int:
    assert x.device.type == "cpu" and x.is_contiguous(), (x.device, x.stride())
    assert x.dtype in (torch.float32, torch.bfloat16), x.dtype
    return int(x.dtype == torch.bfloat16)
