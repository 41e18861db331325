"""How the steps of a cohort are computed: operator by operator, or compiled.

Both compute the same thing, but `compiled` has torch fuse operators, which rounds in another order. The kind is layout,
not state: it is chosen when a study is run, and kept in each run's provenance. Loads no torch.

`auto` is eager everywhere. On the CPU that was measured (reports/LOG.md: compiling gains nothing there). On a GPU the
other has never been run, and what has never been run is no default.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from prereg.errors import RunError

COMPILERS = ("c++", "g++", "clang++")
KNOWN_TO_INDUCTOR = ("g++", "clang++")
"""torch's compiler tells dialects by the name of the command."""
SAYS_WITHIN_S = 120


def find_compiler(names: tuple[str, ...] = COMPILERS) -> str | None:
    """The first C++ compiler of these names."""
    return next((found for name in names if (found := shutil.which(name))), None)


def none_found(names: tuple[str, ...] = COMPILERS) -> str:
    """Why there is nothing compiled, in words."""
    return f"no C++ compiler ({', '.join(names)})"


def cannot_compile(device: str) -> str:
    """What torch's compiler lacks here to compile a step for a device; nothing where it lacks nothing."""
    if device != "cpu":
        return "" if find_spec("triton") is not None else "no package triton, which torch compiles with for CUDA"
    if find_compiler(KNOWN_TO_INDUCTOR) is None:
        return none_found(KNOWN_TO_INDUCTOR)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if header.is_file() else f"no {header}, the header of Python that torch compiles against"


def compiler_name(device: str) -> str:
    """What compiles steps for a device, with its version: it moves the last bits of a step."""
    if device != "cpu":
        try:
            return f"triton {version('triton')}"
        except PackageNotFoundError:
            return "triton"
    found = find_compiler(KNOWN_TO_INDUCTOR)
    assert found is not None, KNOWN_TO_INDUCTOR
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False, timeout=SAYS_WITHIN_S)
    lines = said.stdout.splitlines()
    return lines[0].strip() if lines else Path(found).name


AUTO = "auto"
EAGER = "eager"
COMPILED = "compiled"
KINDS = (EAGER, COMPILED)


def cannot_take(kind: str, device: str) -> str:
    """Why steps of a kind cannot be taken on a device of this machine; nothing where they can."""
    if kind not in KINDS:
        return f"this version knows {', '.join(KINDS)}"
    return cannot_compile(device) if kind == COMPILED else ""


def choose_step(wanted: str, device: str) -> str:
    """The requested kind, or a refusal; `auto` is left to the caller, who knows the earlier runs."""
    if wanted == AUTO:
        return wanted
    if wanted not in KINDS:
        raise RunError(f"--step {wanted}", required=f"{AUTO}, {', '.join(KINDS)}", fix=f"--step {AUTO}")
    if why := cannot_take(wanted, device):
        raise RunError(f"--step {wanted} on {device}: {why}", required="a compiler", fix=f"--step {EAGER}")
    return wanted
