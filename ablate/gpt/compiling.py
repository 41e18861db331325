"""torch.compile (`numerics.compile`): the compiler that it needs, its settings, the user's cache of what it makes.

A C++ compiler on a CPU, or Triton; settings under which every process makes the same code, which is found again in a
folder of the user's cache. Nothing here loads torch before it is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prereg.registry.canon import sha256_of

COMPILERS = ("g++", "clang++")
"""torch's compiler tells dialects by the name of the command."""
VERSION_TIMEOUT_S = 120
_TORCHS_OWN_WARNING = "`torch.jit.script"


def find_compiler() -> str | None:
    """The first C++ compiler that torch can use."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), None)


def cannot_compile(device: str) -> str:
    """What torch's compiler lacks here to compile a step for a device; empty where it lacks nothing."""
    # On CUDA, torch writes Triton; on a CPU, C++ that includes Python's header.
    if device != "cpu":
        return "" if find_spec("triton") is not None else "no package triton, which torch compiles with for CUDA"
    if find_compiler() is None:
        return f"no C++ compiler ({', '.join(COMPILERS)})"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if header.is_file() else f"no {header}, the header of Python that torch compiles against"


def compiler_name(device: str) -> str:
    """What compiles steps for a device, with its version: it moves the last bits of a step."""
    if device != "cpu":
        try:
            return f"triton {version('triton')}"
        except PackageNotFoundError:
            return "triton"
    compiler = find_compiler()
    assert compiler is not None, COMPILERS
    command = [compiler, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VERSION_TIMEOUT_S)
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else Path(compiler).name


def load_compiler() -> None:
    """Load torch's compiler. It takes seconds, and most runs need none."""
    with warnings.catch_warnings():
        # One of torch's own modules uses what torch has deprecated, and says so when it is loaded.
        warnings.filterwarnings("ignore", message=_TORCHS_OWN_WARNING, category=DeprecationWarning)
        import torch._inductor.compile_fx  # noqa: F401


def compile_settings(device: str, *, deterministic: bool) -> dict[str, Any]:
    """Settings of torch's compiler under which every process makes the same code."""
    # Whatever is chosen by timing on the device may differ from process to process, and with it the last
    # bits.
    settings: dict[str, Any] = {"deterministic": deterministic, "fx_graph_cache": True}
    if device == "cpu":
        settings["cpp.cxx"] = (None, find_compiler())
    return settings


def compiled_folder(device: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Where this machine's compiled steps for a kind of device are kept, in torch's own format.

    It is named by processor and compiler, so that a cache on a shared disk hands no machine's code to another.
    """
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Code for AVX-512 on a machine without it ends the process with SIGILL, and no message.
    made_for = sha256_of([processor_flags(), compiler_name(device)])
    return cache / "ablate" / "compiled" / f"{device}-{made_for[:16]}"


def processor_flags() -> str:
    """The instruction sets of this machine's processor."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return "unknown"
    # Named flags on x86, Features on ARM.
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "unknown")
