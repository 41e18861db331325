"""Bytes that training holds on one device, part by part.

Weights, gradients and moments are exact for this trainer. Activations follow Korthikanti et al. (2022), who count
34 s b h bytes a layer in 16 bits, and 5 a s^2 b more where attention keeps its scores; `tests/test_scale.py` holds them
against the tensors that the trainer keeps for its backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prereg.study.sizes import parameters
from prereg.study.training import Training

Shard = Literal["ddp", "fsdp"]
FLOAT, HALF = 4, 2


@dataclass(frozen=True)
class Part:
    """One part of the memory of a device."""

    key: str
    name: str
    size_bytes: float
    how: str


def state_parts(config: Training, vocabulary: int, devices: int, shard: Shard) -> tuple[Part, ...]:
    """What stays from step to step, and what is gathered for one; cut as in ZeRO stage 3 (Rajbhandari et al. 2020)."""
    whole = parameters(config.model, vocabulary)
    block = parameters(config.model.model_copy(update={"layers": config.model.layers + 1}), vocabulary) - whole
    rest = whole - config.model.layers * block
    over = devices if shard == "fsdp" and devices > 1 else 1
    cut = f" / {over} devices" if over > 1 else ""
    moments, of = _moments(config, whole, block)
    parts = [
        Part("weights", "weights, float32", FLOAT * whole / over, f"4 P{cut}"),
        Part("gradients", "gradients, float32", FLOAT * whole / over, f"4 P{cut}"),
        Part("moments", f"moments of {config.optim.name}", moments / over, f"{of}{cut}"),
    ]
    if config.optim.ema > 0.0:
        parts.append(Part("average", "average of the weights", FLOAT * whole / over, f"4 P{cut}"))
    if config.numerics.dtype == "bfloat16":
        parts.append(Part("copy", "weights, bfloat16", HALF * whole, "2 P, not cut: autocast's copies"))
    if over > 1:
        gathered = 2 * FLOAT * (2 * block + rest)
        parts.append(Part("gathered", "gathered", gathered, "8 (2 blocks + all outside them): weights and gradients"))
    elif devices > 1:
        parts.append(Part("buffer", "buffer of the all-reduce", FLOAT * max(block, rest), "4 (largest piece)"))
    return tuple(parts)


def activations(config: Training, vocabulary: int, micro_batch: int, recompute: str) -> Part:
    """What one micro-batch keeps for the backward pass, and what stands outside the blocks.

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
        return Part(
            "activations_blocks", "activations, recompute: blocks", size, "4 s b h L + one layer + s b (8 h + 12 v)"
        )
    size = model.layers * layer + around
    return Part("activations_none", "activations, recompute: none", size, f"{said} s b h L{doubled} + s b (8 h + 12 v)")


def keeps_scores(config: Training) -> bool:
    """Whether attention is counted with its scores: only in float32 without dropout is a fused kernel certain.

    Where a measurement has chosen a fused one for bfloat16 too (`ablate.gpt.paths`), this counts too much.
    """
    return config.model.dropout > 0.0 or config.numerics.dtype == "bfloat16"


def _moments(config: Training, whole: int, block: int) -> tuple[float, str]:
    if config.optim.name == "sgd":
        return (FLOAT * whole, "4 P") if config.optim.betas[0] > 0 else (0.0, "none")
    if config.optim.name == "muon":
        # One moment for the matrices of the blocks, whose vectors are few.
        return FLOAT * (2 * whole - config.model.layers * block), "8 P - 4 (P of the blocks)"
    return 2 * FLOAT * whole, "8 P"
