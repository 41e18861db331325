"""What somebody wants to run, in words (`1.3B x 50B tokens x 5 seeds on 64 H100`), the devices, and what one must hold.

Peaks of devices are those that their makers state: dense matrix products, no sparsity. A share of a peak (MFU,
Chowdhery et al. 2022) means nothing without the peak it is taken of, so each names its source.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Literal

from prereg.errors import StudyError
from prereg.study.sizes import parameters
from prereg.study.training import Training

REQUIRED = "parts joined by ' x ': a size, N tokens, N seeds; then 'on N DEVICE'. What is left out is the study's own"
EXAMPLE = '--scale "1.3B x 50B tokens x 5 seeds on 64 H100"'
CONTEXT = 2048
VOCABULARY = 50257


@dataclass(frozen=True)
class Shape:
    """The shape of a model and its batch in sequences."""

    layers: int
    width: int
    heads: int
    batch: int


SHAPES: dict[str, Shape] = {
    "125M": Shape(12, 768, 12, 256),
    "350M": Shape(24, 1024, 16, 256),
    "760M": Shape(24, 1536, 16, 256),
    "1.3B": Shape(24, 2048, 16, 512),
    "2.7B": Shape(32, 2560, 32, 512),
    "6.7B": Shape(32, 4096, 32, 1024),
    "13B": Shape(40, 5120, 40, 1024),
}
"""Brown et al. 2020, table 2.1, with context 2,048 and GPT-2's vocabulary. Two rows there do not multiply out: 1.3B has
16 heads here, and 13B a width of 5,120, so that heads x their size is the width."""
REPLACED = ("model.layers", "model.width", "model.heads", "model.head_size", "model.feed_width", "model.context")
"""Fields that a shape sets; an arm that sets one of them is not of that shape."""


@dataclass(frozen=True)
class ScaleTarget:
    """As requested; what was left out is none."""

    devices: int
    device: str
    size: str | None = None
    tokens: int | None = None
    seeds: int | None = None

    @classmethod
    def of(cls, text: str) -> ScaleTarget:
        """Read the words."""
        found = re.fullmatch(r"\s*(?:(?P<what>.+?)\s+)?on\s+(?P<devices>[\d,]+)\s+(?P<device>\S.*?)\s*", text)
        if found is None:
            raise _refused(text, "it does not end in 'on N DEVICE'")
        size: str | None = None
        tokens: int | None = None
        seeds: int | None = None
        for part in re.split(r"\s+[x\u00d7]\s+", found["what"] or ""):
            if not part.strip():
                continue
            given = re.fullmatch(r"(?P<number>[\d.,]+)\s*(?P<unit>[KMBT]?)(?:\s+(?P<word>[a-z]+))?", part.strip())
            word = given["word"] if given is not None else ""
            if given is not None and word in (None, "parameters") and size is None:
                size = _size(text, given["number"] + given["unit"])
            elif given is not None and word == "tokens" and tokens is None:
                tokens = _count(text, given["number"], given["unit"])
            elif given is not None and word in ("seed", "seeds") and seeds is None:
                seeds = _count(text, given["number"], given["unit"])
            else:
                raise _refused(text, f"'{part.strip()}' is not understood, or said twice")
        return cls(_count(text, found["devices"], ""), found["device"], size, tokens, seeds)


def shaped(config: Training, size: str) -> Training:
    """A configuration with the shape of a size; everything else is the study's."""
    shape = SHAPES[size]
    model = {
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "head_size": None,
        "feed_width": None,
        "context": CONTEXT,
    }
    tree = config.model_dump(mode="json")
    tree["model"] |= model
    tree["budget"] = {"steps": config.budget.steps, "batch": shape.batch}
    return Training.model_validate_json(json.dumps(tree))


def _size(text: str, named: str) -> str:
    if named not in SHAPES:
        raise StudyError(
            f"no model of the size {named} is known, in --scale '{text}'",
            required=f"one of {', '.join(SHAPES)}, or no size, for the study's own model",
            fix=EXAMPLE,
        )
    return named


def _count(text: str, number: str, unit: str) -> int:
    try:
        value = Decimal(number.replace(",", "")) * 10 ** {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}[unit]
    except InvalidOperation:
        value = Decimal(0)
    if value < 1 or value != int(value):
        raise _refused(text, f"{number}{unit} is not a whole number above zero")
    return int(value)


def _refused(text: str, why: str) -> StudyError:
    return StudyError(f"--scale '{text}' cannot be read: {why}", required=REQUIRED, fix=EXAMPLE)


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


# float32 is the peak outside the tensor cores: torch takes no TF32 for matrix products by default.
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


Shard = Literal["ddp", "fsdp"]
FLOAT, HALF = 4, 2


@dataclass(frozen=True)
class MemoryPart:
    """One part of the memory of a device."""

    key: str
    name: str
    size_bytes: float
    how: str


def state_parts(config: Training, vocabulary: int, devices: int, shard: Shard) -> tuple[MemoryPart, ...]:
    """What stays from step to step, and what is gathered for one; cut as in ZeRO stage 3 (Rajbhandari et al. 2020)."""
    whole = parameters(config.model, vocabulary)
    block = parameters(config.model.model_copy(update={"layers": config.model.layers + 1}), vocabulary) - whole
    rest = whole - config.model.layers * block
    over = devices if shard == "fsdp" and devices > 1 else 1
    cut = f" / {over} devices" if over > 1 else ""
    moments, of = _moments(config, whole, block)
    parts = [
        MemoryPart("weights", "weights, float32", FLOAT * whole / over, f"4 P{cut}"),
        MemoryPart("gradients", "gradients, float32", FLOAT * whole / over, f"4 P{cut}"),
        MemoryPart("moments", f"moments of {config.optim.name}", moments / over, f"{of}{cut}"),
    ]
    if config.optim.ema > 0.0:
        parts.append(MemoryPart("average", "average of the weights", FLOAT * whole / over, f"4 P{cut}"))
    if config.numerics.dtype == "bfloat16":
        parts.append(MemoryPart("copy", "weights, bfloat16", HALF * whole, "2 P, not cut: autocast's copies"))
    if over > 1:
        gathered = 2 * FLOAT * (2 * block + rest)
        parts.append(
            MemoryPart("gathered", "gathered", gathered, "8 (2 blocks + all outside them): weights and gradients")
        )
    elif devices > 1:
        parts.append(MemoryPart("buffer", "buffer of the all-reduce", FLOAT * max(block, rest), "4 (largest piece)"))
    return tuple(parts)


def activations(config: Training, vocabulary: int, micro_batch: int, recompute: str) -> MemoryPart:
    """What one micro-batch keeps for the backward pass, and what lies outside the blocks.

    There, in float32: input and output of the last norm; logits, log-probabilities and their gradient.
    """
    model = config.model
    tokens, width = micro_batch * model.context, model.width
    element = HALF if config.numerics.dtype == "bfloat16" else FLOAT
    feed = 2 * HALF * (2 if model.activation == "swiglu" else 1) * model.inner_width / width
    factor = 18 + feed
    said = f"{factor:.4g}"
    if keeps_scores(config):
        factor += 5 * model.heads * model.context / width
        said = f"({said} + 5 a s / h)"
    layer = tokens * width * factor * element / HALF
    around = FLOAT * tokens * (2 * width + 3 * vocabulary)
    doubled = " x 2 (float32)" if element == FLOAT else ""
    if recompute == "blocks":
        size = model.layers * FLOAT * tokens * width + layer + around
        return MemoryPart(
            "activations_blocks", "activations, recompute: blocks", size, "4 s b h L + one layer + s b (8 h + 12 v)"
        )
    size = model.layers * layer + around
    return MemoryPart(
        "activations_none", "activations, recompute: none", size, f"{said} s b h L{doubled} + s b (8 h + 12 v)"
    )


def keeps_scores(config: Training) -> bool:
    """Whether attention keeps its scores: only in float32 and without dropout is it taken by torch's fused kernel."""
    return config.model.dropout > 0.0 or config.numerics.dtype == "bfloat16"


def _moments(config: Training, whole: int, block: int) -> tuple[float, str]:
    if config.optim.name == "sgd":
        return (FLOAT * whole, "4 P") if config.optim.betas[0] > 0 else (0.0, "none")
    if config.optim.name == "muon":
        # One moment for the matrices of the blocks, whose vectors are few.
        return FLOAT * (2 * whole - config.model.layers * block), "8 P - 4 (P of the blocks)"
    return 2 * FLOAT * whole, "8 P"
