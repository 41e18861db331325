"""What a trained model costs to use, and what training it cost in arithmetic, memory and energy.

The one suite that reads clocks and the machine. It runs at a run's last step, on the model at rest. Nothing is made up
where the machine does not say: such a metric is not recorded.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ablate.data.batches import Pooled, Tokens, windows_at
from ablate.training.model import GPT
from prereg.study.measure import Inference
from prereg.study.sizes import flops_per_token

_PEAK_SIZE = 1024
_POWER = Path("/sys/class/powercap")

Clock = Callable[[], float]


def inference_speed(model: GPT, tokens: Tokens | Pooled, inference: Inference, clock: Clock) -> float:
    """Tokens a second of plain forward passes: the registered batch and length, the median of warm repeats."""
    length = inference.length or model.config.context
    part = next(iter(tokens.parts.values())) if isinstance(tokens, Pooled) else tokens
    starts = np.arange(inference.batch) * length % max(1, len(part) - length)
    inputs = torch.from_numpy(windows_at(part, starts, length)).to(model.token.weight.device)

    def seconds() -> float:
        started = clock()
        model(inputs)
        if inputs.is_cuda:
            torch.cuda.synchronize()
        return clock() - started

    seconds()
    return inputs.numel() / statistics.median(seconds() for _ in range(inference.repeats))


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
        """Joules so far. To be read more often than a counter fills (about every quarter of an hour at 250 W)."""
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
    peak_bytes: int | None,
    clock: Clock,
) -> dict[str, float]:
    """The `cost` suite, at the end of a run."""
    joules = None if energy is None else energy.read()
    arithmetic = float(flops_per_token(model.config, model.token.num_embeddings))
    reached = arithmetic * trained_tokens_per_s
    found = {
        "cost/inference_tokens_per_s": inference_speed(model, tokens, inference, clock),
        "cost/flops_per_token": arithmetic,
        "cost/flops_per_s": reached,
        "cost/mfu": reached / matmul_speed(model.token.weight.device, clock),
    }
    read = {"cost/peak_memory": peak_bytes, "cost/energy": joules}
    return found | {name: float(value) for name, value in read.items() if value is not None}
