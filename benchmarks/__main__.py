"""`python -m benchmarks`: measure, print the tables, write reports/bench/."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import __doc__ as purpose
from benchmarks.answers import measure_design, measure_verbs
from benchmarks.growth import measure_growth
from benchmarks.scale import measure_commands, measure_overhead, measure_scale
from benchmarks.studies import HERE, compare_study, machine
from benchmarks.tables import page

ALL = ("P1", "P2", "P5", "P7", "commands", "overhead", "scale", "growth")


def main() -> None:
    """What was requested, one after another: nothing runs next to what is measured."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=purpose)
    options.add_argument("--study", type=Path, default=HERE / "studies" / "embnorm.yaml")
    options.add_argument("--seeds", type=int, default=5, help="seeds of the study to run (default: all five)")
    options.add_argument("--steps", type=int, help="steps a run, on both sides (default: as registered)")
    options.add_argument("--only", nargs="*", default=list(ALL), choices=ALL, help="which measurements")
    options.add_argument("--out", type=Path, default=HERE / "reports" / "bench")
    arguments = options.parse_args()
    results: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    earlier = arguments.out / "bench.json"
    if earlier.is_file():
        before = json.loads(earlier.read_text(encoding="utf-8"))
        # Figures of the same machine and day stand next to the new ones; others are another sitting's and go.
        if all(before.get(key) == results[key] for key in ("machine", "date")):
            results = before  # measurements that are not repeated now stay as they were
    # One after another: two studies side by side would be timed against each other.
    for name, dtype in (("P2", "float32"), ("P1", "bfloat16")):
        if name in arguments.only:
            results[name] = compare_study(arguments.study, dtype, arguments.seeds, arguments.steps)
            print(json.dumps({name: results[name]}, indent=2), flush=True)
    others: dict[str, Callable[[], Any]] = {
        "P5": lambda: measure_design(arguments.study),
        "P7": measure_verbs,
        "commands": measure_commands,
        "overhead": measure_overhead,
        "scale": measure_scale,
        "growth": measure_growth,
    }
    for name, measure in others.items():
        if name in arguments.only:
            results[name] = measure()
            print(json.dumps({name: results[name]}), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    # The page is made of it, so figures and page agree.
    (arguments.out / "bench.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (arguments.out / "bench.md").write_text(page(results), encoding="utf-8")
    print(page(results))


if __name__ == "__main__":
    main()
