"""What a step waits for, operator by operator: the wall that stands before the next factor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

STEPS = 5
WARM = 3
SHOWN = 12
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def measure_profile(path: Path, dtype: str) -> dict[str, Any]:
    """Self CPU milliseconds a step of every operator of the study's baseline, one thread."""
    import numpy as np
    import torch
    from torch.profiler import ProfilerActivity, profile

    from ablate.gpt.batches import Split
    from ablate.gpt.kernels import cache_folder
    from ablate.gpt.paths import choose_paths
    from ablate.gpt.train import Trainer
    from prereg.load import load_study

    study = load_study(path).study
    told = study.training(study.baseline)
    config = told.model_copy(update={"numerics": told.numerics.model_copy(update={"dtype": dtype})})
    torch.set_num_threads(1)
    ids = np.random.default_rng(0).integers(0, 65, 200_000)
    paths = choose_paths(config, cache_folder())
    trainer = Trainer(config, Split.of(ids, 0.1, config.model.context), 65, paths)
    trainer.begin(1)
    for _ in range(WARM):
        trainer.step()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(STEPS):
            trainer.step()
    each = {event.key: event.self_cpu_time_total / 1e3 / STEPS for event in seen.key_averages()}
    whole = sum(each.values())
    shown = sorted(each.items(), key=lambda pair: -pair[1])[:SHOWN]
    flops = 6 * trainer.parameters * config.budget.batch * config.model.context
    products = sum(ms for name, ms in each.items() if name in PRODUCTS)
    return {
        "dtype": dtype,
        "paths": str(paths),
        "steps": STEPS,
        "whole_ms": round(whole, 1),
        "products_ms": round(products, 1),
        "gflops_in_products": round(flops / products / 1e6, 1),
        "operators": [{"name": name, "ms": round(ms, 2), "share": round(ms / whole, 4)} for name, ms in shown],
    }


def as_markdown(found: list[dict[str, Any]]) -> str:
    """One table a kind of arithmetic."""
    lines: list[str] = []
    for one in found:
        lines += [
            f"{one['dtype']}: {one['whole_ms']} ms a step by the profiler (which itself costs), {one['steps']} steps,"
            f" one thread; {one['paths']}. Matrix products outside attention: {one['products_ms']} ms,"
            f" {one['gflops_in_products']} GFLOP/s by 6 x parameters x tokens.",
            "",
            "| operator | ms | share |",
            "|---|---|---|",
            *(f"| `{row['name']}` | {row['ms']} | {100 * row['share']:.1f}% |" for row in one["operators"]),
            "",
        ]
    return "\n".join(lines)
