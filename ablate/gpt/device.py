"""Device that computes a run (CPU, GPU): chosen by name, refused by name, the CPU without loading torch.

`auto` takes the first CUDA device where there is one. Where no NVIDIA driver is installed, or torch was built without
CUDA, that is known without importing torch, which would cost `ablate run` a second or two before its first worker
starts.
"""

from __future__ import annotations

import os
import re
import resource
import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Literal

from prereg.errors import RunError

CPU = "cpu"
_GPUS = Path("/proc/driver/nvidia/gpus")
DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""What a process must be started with, so that cuBLAS takes the same path every time (NVIDIA's cuBLAS manual, "Results
reproducibility"); torch refuses deterministic matrix products on CUDA without it."""


def choose_device(request: str) -> str:
    """`cpu` or `cuda:N` for a request: auto, cpu, cuda or cuda:N. Refuses a device that is not here.

    >>> choose_device("cpu")
    'cpu'
    """
    if request == CPU:
        return CPU
    # `cuda` alone is cuda:0. Devices of torch's other kinds (mps, xpu) are refused by name.
    named = re.fullmatch(r"auto|cuda(?::(\d+))?", request)
    if named is None:
        raise RunError(f"--device {request}", required="auto, cpu, cuda, or cuda:N", fix="--device auto")
    n_devices = cuda_devices()
    if request == "auto":
        return "cuda:0" if n_devices else CPU
    number = int(named.group(1) or 0)
    if number >= n_devices:
        here = f"{n_devices} CUDA device{'' if n_devices == 1 else 's'}" if n_devices else "no CUDA device"
        whose = f"torch {version('torch')}" if find_spec("torch") else "this machine without torch"
        raise RunError(
            f"--device {request}, and {whose} sees {here}",
            required="a device that is here",
            fix=f"--device {f'cuda:{n_devices - 1}' if n_devices else CPU}",
        )
    return f"cuda:{number}"


def cuda_devices() -> int:
    """How many CUDA devices torch can use."""
    # Cheap signs first: where one says no, torch need not be imported.
    if not any(path.exists() for path in DRIVER) or find_spec("torch") is None or "+cpu" in version("torch"):
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; without it those of NVIDIA's driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(str(number) for number in range(sum(1 for _ in _GPUS.glob("*"))))
    # What follows a name that is none is not visible either (NVIDIA's CUDA programming guide).
    return tuple(takewhile(lambda name: name not in ("", "-1"), (part.strip() for part in named.split(","))))


def device_name(device: str) -> str:
    """What a run's provenance says: `cpu`, or the accelerator's model name."""
    if device == CPU:
        return CPU
    import torch

    return torch.cuda.get_device_name(device)


Since = Literal["run", "process"]

RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peak:
    """The high-water mark of this process' resident memory."""

    since: Since
    """Whether it is that of the run, or of the process since it began: then an upper bound for the run."""

    @classmethod
    def reset(cls) -> Peak:
        """Start over, where the system can."""
        try:
            # 5 sets VmHWM, the peak of the resident set, back to what is resident now (proc(5),
            # /proc/pid/clear_refs). It needs Linux, and the right to write there.
            RESET.write_text("5")
        except OSError:
            return cls("process")
        return cls("run")

    def read_bytes(self) -> int:
        """Its value now."""
        if self.since == "run":
            line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
            return int(line.split()[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB
