"""Devices by name, with the peaks that their makers state: dense matrix products, no sparsity.

A share of a peak (MFU, Chowdhery et al. 2022) means nothing without the peak it is taken of, so each names its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from prereg.errors import StudyError


@dataclass(frozen=True)
class Device:
    """One device."""

    name: str
    tflops: dict[str, float]
    """Arithmetic of the matrix products -> peak in 10^12 FLOP/s; empty where it is not known."""
    memory_bytes: float | None
    source: str
    marks: tuple[str, ...] = ()
    """Words of which a driver's name for it holds all."""


def _device(name: str, bfloat16: float, float32: float, gigabytes: float, source: str, *marks: str) -> Device:
    return Device(name, {"bfloat16": bfloat16, "float32": float32}, gigabytes * 1e9, source, marks)


# float32 is the peak outside the tensor cores: torch takes no TF32 for matrix products unless it is told to.
KNOWN: tuple[Device, ...] = (
    _device("A100 40GB", 312.0, 19.5, 40, "NVIDIA A100 datasheet", "a100", "40gb"),
    _device("A100 80GB", 312.0, 19.5, 80, "NVIDIA A100 datasheet", "a100", "80gb"),
    _device("H100 PCIe", 756.5, 51.0, 80, "NVIDIA H100 datasheet, half of the figure with sparsity", "h100", "pcie"),
    _device("H100 SXM", 989.4, 67.0, 80, "NVIDIA H100 datasheet, half of the figure with sparsity", "h100", "hbm3"),
    _device("H200 SXM", 989.4, 67.0, 141, "NVIDIA H200 datasheet, half of the figure with sparsity", "h200"),
    _device("L4", 121.0, 30.3, 24, "NVIDIA L4 datasheet, half of the figure with sparsity", "l4"),
    _device("L40S", 362.05, 91.6, 48, "NVIDIA L40S datasheet", "l40s"),
    _device("MI300X", 1307.4, 163.4, 192, "AMD Instinct MI300X data sheet", "mi300x"),
)
ALIASES = {"h100": "H100 SXM", "h200": "H200 SXM", "a100": "A100 80GB"}
"""What is meant by a family's name alone; the plan names the member."""
CPU = Device("cpu", {}, None, "no peak is stated for a processor; what was measured is used")


def device_named(text: str, *, peak_tflops: float | None = None, memory_gb: float | None = None) -> Device:
    """A device by the name a person gives it. One that is not known needs its peak."""
    wanted = _plain(text)
    by_name = {_plain(device.name): device for device in (*KNOWN, CPU)}
    by_name |= {alias: by_name[_plain(name)] for alias, name in ALIASES.items()}
    found = by_name.get(wanted) or by_name.get(wanted.removesuffix("s"))
    if found is None:
        if peak_tflops is None:
            raise StudyError(
                f"the device '{text}' is not known",
                required=f"one of {', '.join(device.name for device in (*KNOWN, CPU))}, or its peak",
                fix="--peak-tflops N   (dense, in the arithmetic of the study)",
            )
        found = Device(text, {}, None, "")
    if peak_tflops is not None:
        found = replace(found, tflops=dict.fromkeys(("bfloat16", "float32"), peak_tflops), source="--peak-tflops")
    return replace(found, memory_bytes=memory_gb * 1e9) if memory_gb is not None else found


def is_of(device: Device, recorded: str) -> bool:
    """Whether a run's provenance names this device: `cpu`, or what the driver calls it."""
    words = re.split(r"[^a-z0-9]+", recorded.lower())
    if device.name == CPU.name:
        return recorded == CPU.name
    return bool(device.marks) and all(mark in words for mark in device.marks)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
