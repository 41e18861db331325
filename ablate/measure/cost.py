"""What a trained model costs to use, and what training it cost in arithmetic, memory and energy.

The one suite that reads clocks and the machine. It runs at a run's last step, on the model at rest. Nothing is made up
where the machine does not tell: such a metric is not recorded.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ablate.gpt.model import GPT
from ablate.gpt.tokens import Pooled, Tokens, windows_at
from prereg.spec import Inference

_PEAK_SIZE = 1024
_POWER = Path("/sys/class/powercap")
_PROCESS = Path("/proc/self")

Clock = Callable[[], float]


def inference_speed(model: GPT, tokens: Tokens | Pooled, inference: Inference, clock: Clock) -> float:
    """Tokens a second of plain forward passes: the registered batch and length, the median of warm repeats."""
    length = inference.length or model.config.context
    if isinstance(tokens, Pooled):
        tokens = next(iter(tokens.parts.values()))
    starts = np.arange(inference.batch) * length % max(1, len(tokens) - length)
    inputs = torch.from_numpy(windows_at(tokens, starts, length)).to(model.token.weight.device)

    def seconds() -> float:
        started = clock()
        model(inputs)
        if inputs.is_cuda:
            torch.cuda.synchronize()
        return clock() - started

    seconds()
    return inputs.numel() / statistics.median(seconds() for _ in range(inference.repeats))


def flops_per_token(model: GPT) -> float:
    """Arithmetic of a training step a token: 6 N + 12 L H Q T (Chowdhery et al. 2022, appendix B).

    N leaves out tables that are only looked up: positions, and token embeddings that are not also the output layer.
    """
    config = model.config
    looked_up = sum(p.numel() for name, p in model.named_parameters() if name == "position.weight")
    if not config.tie_embeddings:
        looked_up += model.token.weight.numel()
    multiplied = sum(p.numel() for p in model.parameters()) - looked_up
    return 6.0 * multiplied + 12.0 * config.layers * config.heads * config.size_of_head * config.context


def matmul_speed(device: torch.device, clock: Clock) -> float:
    """FLOP a second of the fastest of three large matrix products, in the arithmetic that is in force here."""
    left = torch.ones(_PEAK_SIZE, _PEAK_SIZE, device=device)
    times = []
    for _ in range(4):
        started = clock()
        left @ left
        if left.is_cuda:
            torch.cuda.synchronize()
        times.append(clock() - started)
    return 2.0 * _PEAK_SIZE**3 / min(times[1:])  # the first one is warming up


def forget_peak() -> bool:
    """Start the count of this process' peak memory anew; whether the system lets it."""
    try:
        (_PROCESS / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_memory() -> float | None:
    """Largest resident bytes since `forget_peak`; none where the system does not tell."""
    try:
        lines = (_PROCESS / "status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), None)
    return None if found is None else float(found) * 1024.0


@dataclass
class Meter:
    """Energy of all processor packages since it was made, by counters that start over when they are full."""

    folders: tuple[Path, ...]
    last: list[int]
    joules: float = 0.0

    @classmethod
    def started(cls, power: Path = _POWER) -> Meter | None:
        """A meter at zero; none where there are no counters, or they may not be read."""
        # A package's own parts (intel-rapl:0:0) are counted in it already.
        folders = tuple(sorted(p for p in power.glob("*-rapl:*") if p.name.count(":") == 1))
        try:
            return cls(folders, [_microjoules(folder) for folder in folders]) if folders else None
        except (OSError, ValueError):
            return None

    def read(self) -> float:
        """Joules so far. To be asked more often than a counter fills (about every quarter of an hour at 250 W)."""
        for index, folder in enumerate(self.folders):
            now = _microjoules(folder)
            step = now - self.last[index]
            if step < 0:
                step += int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
            self.last[index] = now
            self.joules += step * 1e-6
        return self.joules


def _microjoules(folder: Path) -> int:
    return int((folder / "energy_uj").read_text(encoding="ascii"))


def measure_cost(
    model: GPT,
    tokens: Tokens | Pooled,
    inference: Inference,
    *,
    trained_tokens_per_s: float,
    energy: Meter | None,
    peak_known: bool,
    clock: Clock,
) -> dict[str, float]:
    """The `cost` suite, at the end of a run."""
    # Before anything here takes memory of its own.
    peak = peak_memory() if peak_known else None
    joules = None if energy is None else energy.read()
    arithmetic = flops_per_token(model)
    reached = arithmetic * trained_tokens_per_s
    found = {
        "cost/inference_tokens_per_s": inference_speed(model, tokens, inference, clock),
        "cost/flops_per_token": arithmetic,
        "cost/flops_per_s": reached,
        "cost/mfu": reached / matmul_speed(model.token.weight.device, clock),
    }
    told = {"cost/peak_memory": peak, "cost/energy": joules}
    return found | {name: value for name, value in told.items() if value is not None}
