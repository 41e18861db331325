"""How seconds and memory of a step grow with layers, width, context and batch.

Every size is measured in a process of its own, so that memory is that of the size alone, with the arithmetic, the paths
and the environment of a run. CPU time is taken, which a busy neighbour moves less than it moves wall time.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.studies import in_own_process

BASE = {"layers": 4, "width": 128, "heads": 4, "context": 128, "batch": 8}
AXES: dict[str, tuple[int, ...]] = {
    "layers": (2, 4, 8, 16),
    "width": (64, 128, 256, 512),
    "context": (64, 128, 256, 512),
    "batch": (4, 8, 16, 32),
}
STEPS = 7
WARM = 3


def measure_growth() -> dict[str, Any]:
    """Median CPU milliseconds of a step and peak MiB of its process, one size changed at a time."""
    rows: list[dict[str, Any]] = []
    for axis, sizes in AXES.items():
        for size in sizes:
            sizes_of_row = BASE | {axis: size}
            measured = in_own_process("benchmarks.growth", json.dumps(sizes_of_row))
            rows.append({"axis": axis, "size": size, **measured})
    return {"base": BASE, "steps": STEPS, "rows": rows}


def measure_one(sizes: dict[str, int]) -> dict[str, float]:
    """One size, in this process."""
    import time

    import numpy as np
    import torch

    from ablate.data.batches import Split
    from ablate.gpt.trainer import Trainer
    from prereg.study.training import Training

    torch.set_num_threads(1)  # as a run has
    config = Training.model_validate(
        {
            "model": {name: sizes[name] for name in ("layers", "width", "heads", "context")},
            "budget": {"batch": sizes["batch"], "steps": 1000},
        }
    )
    ids = np.random.default_rng(0).integers(0, 65, 100_000)  # what is read does not matter to the time of a step
    trainer = Trainer(config, Split(train=ids[:90_000], validation=ids[90_000:]), 65)
    trainer.begin(1)
    times = []
    for _ in range(STEPS + WARM):
        started = time.process_time()  # CPU time of this process alone
        trainer.step()
        times.append(time.process_time() - started)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    return {
        # The first steps allocate moments and warm caches.
        "step_ms": round(statistics.median(times[WARM:]) * 1e3, 2),
        "peak_mib": round(peak_mib(), 1),
        "parameters": parameters,
    }


def peak_mib() -> float:
    """Largest resident memory that this process has had. (getrusage gives that of the process that started it.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def as_markdown(growth: dict[str, Any]) -> str:
    """The table, with how much more a doubling costs."""
    base = ", ".join(f"{name} {size}" for name, size in growth["base"].items())
    lines = [
        f"One size changed at a time from {base}; float32, one thread; median CPU time of {growth['steps']} steps,"
        " peak memory of a process of its own libraries included; `x`: ratio to the size before.",
        "",
        "| axis | size | ms per step | x | peak MiB | x |",
        "|---|---|---|---|---|---|",
    ]
    before: dict[str, Any] | None = None
    for row in growth["rows"]:
        again = before is not None and before["axis"] == row["axis"]
        # Sizes double, so 2 is linear and 4 quadratic.
        time_x = f"{row['step_ms'] / before['step_ms']:.2f}" if again and before else ""
        space_x = f"{row['peak_mib'] / before['peak_mib']:.2f}" if again and before else ""
        lines.append(
            f"| {row['axis']} | {row['size']} | {row['step_ms']:.1f} | {time_x} | {row['peak_mib']:.0f} | {space_x} |"
        )
        before = row
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(json.dumps(measure_one(json.loads(sys.argv[1]))))
