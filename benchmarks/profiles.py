"""What a step and an evaluation wait for, operator by operator: what limits the next factor.

Every operator is timed where torch dispatches it, in a process with the environment of a worker. torch's own profiler
is not used: with it this step takes twice as long, because what it keeps alive makes every operator write to fresh
memory, and the operators are not slowed alike (`reports/LOG.md`).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.studies import in_own_process

STEPS = 8
WARM = 5
SHOWN = 12
PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm")
OWN = ("attention", "gelu", "linear", "attend", "feed")
OWN_SLOPES = tuple(f"{name}_slope" for name in OWN)
WITH_PRODUCTS = tuple(f"our {name}" for one in ("linear", "attend", "feed") for name in (one, f"{one}_slope"))
"""Our kernels with products in them, and whatever else they take as one with these."""


def measure_profile(path: Path, dtype: str) -> dict[str, Any]:
    """CPU milliseconds of a step and of an evaluation of the study's baseline on one thread, by operator."""
    found: dict[str, Any] = in_own_process("benchmarks.profiles", str(path), dtype)
    return found


def measure_here(path: Path, dtype: str) -> dict[str, Any]:
    """The same in this process."""
    import numpy as np
    import torch

    from ablate.data.batches import Split
    from ablate.evaluation.loss import WINDOWS_AT_ONCE, measure_loss
    from ablate.training.kernels.backends import choose_paths
    from ablate.training.kernels.library import cache_folder
    from ablate.training.trainer import Trainer
    from prereg.study.load import load_study

    study = load_study(path).study
    text = study.training(study.baseline)
    config = text.model_copy(update={"numerics": text.numerics.model_copy(update={"dtype": dtype})})
    torch.set_num_threads(1)
    context = config.model.context
    ids = np.random.default_rng(0).integers(0, 65, 200_000)
    split = Split.of(ids, 0.1, context)
    paths = choose_paths(config, cache_folder())
    trainer = Trainer(config, split, 65, paths)
    trainer.begin(1)
    held = ids[: 2 * WINDOWS_AT_ONCE * context + 1]

    def evaluate() -> None:
        with (
            torch.no_grad(),
            trainer.arithmetic(),
        ):  # in inference mode products are not told apart from what is around them
            measure_loss(trainer.model, held, None)

    tokens = config.budget.batch * context
    return {
        "dtype": dtype,
        "paths": str(paths),
        "times": STEPS,
        "step": _summary(_timed(trainer.step), 6 * trainer.parameters * tokens),
        "evaluation_of_tokens": len(held) - 1,
        "evaluation": _summary(_timed(evaluate), 2 * trainer.parameters * (len(held) - 1)),
    }


def _timed(act: Callable[[], object]) -> tuple[float, float, Counter[str]]:
    """Median CPU ms untouched, mean CPU ms with every operator timed, and the ms of each operator."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from ablate.training.kernels.library import Kernels

    for _ in range(WARM):
        act()
    untouched = []
    for _ in range(STEPS):
        started = time.process_time()
        act()
        untouched.append(time.process_time() - started)
    spent: Counter[str] = Counter()

    class Timer(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            started = time.process_time()
            given = func(*args, **(kwargs or {}))
            spent[str(func.overloadpacket)] += time.process_time() - started  # type: ignore[assignment]
            return given

    def clocked(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **words: Any) -> Any:
            started = time.process_time()
            with torch.utils._python_dispatch._disable_current_modes():  # its buffers are part of its time
                given = kernel(*args, **words)
            spent[f"our {name}"] += time.process_time() - started  # type: ignore[assignment]
            return given

        return run

    kernels = {name: getattr(Kernels, name) for name in (*OWN, *OWN_SLOPES)}
    try:
        for name, kernel in kernels.items():
            setattr(Kernels, name, clocked(name, kernel))
        with Timer():  # type: ignore[no-untyped-call]
            started = time.process_time()
            for _ in range(STEPS):
                act()
            whole = time.process_time() - started
    finally:
        for name, kernel in kernels.items():
            setattr(Kernels, name, kernel)
    each = Counter({name: seconds * 1e3 / STEPS for name, seconds in spent.items()})
    return statistics.median(untouched) * 1e3, whole * 1e3 / STEPS, each


def _summary(timed: tuple[float, float, Counter[str]], flops: int) -> dict[str, Any]:
    untouched, whole, each = timed
    products = sum(ms for name, ms in each.items() if name in (*PRODUCTS, *WITH_PRODUCTS))
    shown = [*each.most_common(SHOWN), ("between operators", whole - sum(each.values()))]
    return {
        "ms": round(untouched, 1),
        "ms_timed": round(whole, 1),
        "products_ms": round(products, 1),
        "with_other_work": any(name in WITH_PRODUCTS for name in each),
        "gflops_in_products": round(flops / products / 1e6, 1),
        "operators": [{"name": name, "ms": round(ms, 2), "share": round(ms / whole, 4)} for name, ms in shown],
    }


def as_markdown(found: list[dict[str, Any]]) -> str:
    """One table a kind of arithmetic and part of a run."""
    lines: list[str] = []
    for one in found:
        for part, what, formula in (
            ("step", "a step", "6 x parameters x tokens"),
            ("evaluation", f"an evaluation of {one['evaluation_of_tokens']:,} tokens", "2 x parameters x tokens"),
        ):
            text = one[part]
            lines += [
                f"{one['dtype']}, {what}: {text['ms']} ms of CPU time (median of {one['times']}), {text['ms_timed']}"
                f" with every operator timed (mean of {one['times']}), one thread; {one['paths']}. {_products(text)}:"
                f" {text['products_ms']} ms, {text['gflops_in_products']} GFLOP/s by {formula}.",
                "",
                "| operator | ms | share |",
                "|---|---|---|",
                *(f"| `{row['name']}` | {row['ms']} | {100 * row['share']:.1f}% |" for row in text["operators"]),
                "",
            ]
    return "\n".join(lines)


def _products(summary: dict[str, Any]) -> str:
    if summary.get("with_other_work"):
        return "Matrix products, with the norms, attention, GELU and sums that our kernels take as one with them"
    return "Matrix products outside attention"


if __name__ == "__main__":
    print(json.dumps(measure_here(Path(sys.argv[1]), sys.argv[2])))
