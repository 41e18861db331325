"""`python -m benchmarks`: measure, print the tables, write reports/bench/."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import __doc__ as purpose
from benchmarks.answers import measure_design, measure_items, measure_verbs
from benchmarks.cohorts import measure_cohorts
from benchmarks.growth import measure_growth
from benchmarks.profiles import measure_profile
from benchmarks.studies import HERE, compare_study, machine
from benchmarks.tables import page
from benchmarks.zeroshot import Different, measure_zeroshot
from prereg.errors import StudyError

ALL = ("P1", "P2", "P4", "P5", "P6", "P7", "profile", "growth", "zeroshot")


def cuda() -> bool:
    """Whether there is a GPU to measure on."""
    import torch

    return torch.cuda.is_available()


def add_zeroshot(results: dict[str, Any], given: argparse.Namespace) -> str:
    """The tasks of a trained model, among the results; what went wrong instead, if anything did."""
    results.pop("zeroshot", None)
    try:
        results["zeroshot"] = measure_zeroshot(given.study, given.steps, given.project)
    except Different as error:
        return f"zeroshot: {error}"
    except StudyError as error:
        # Like the peer: who lacks the tasks or the harness measures the rest, unless it was these that were wanted.
        print(f"zeroshot is not measured: {error.found}", file=sys.stderr)
        return "" if given.only == list(ALL) else f"zeroshot: {error.found}"
    return ""


def main() -> None:
    """What was requested, one after another: nothing runs next to what is measured."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=purpose)
    options.add_argument("--study", type=Path, default=HERE / "studies" / "embnorm.yaml")
    options.add_argument("--seeds", type=int, default=5, help="seeds of the study to run (default: all five)")
    options.add_argument("--steps", type=int, help="steps a run, on both sides (default: as registered)")
    options.add_argument("--only", nargs="*", default=list(ALL), choices=ALL, help="which measurements")
    options.add_argument("--out", type=Path, default=HERE / "reports" / "bench")
    options.add_argument("--project", type=Path, help="folder for zeroshot, kept and resumed (default: a new one)")
    given = options.parse_args()
    results: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    earlier = given.out / "bench.json"
    if earlier.is_file():
        before = json.loads(earlier.read_text(encoding="utf-8"))
        # Figures of the same machine and day stand next to the new ones; others are another sitting's and go.
        if all(before.get(key) == results[key] for key in ("machine", "date")):
            results = before
    for name, dtype in (("P2", "float32"), ("P1", "bfloat16")):
        if name in given.only:
            results[name] = compare_study(given.study, dtype, given.seeds, given.steps)
            print(json.dumps({name: results[name]}, indent=2), flush=True)
    if "P4" in given.only and cuda():
        results["P4"] = measure_cohorts(given.study, given.seeds, given.steps)
    if "P5" in given.only:
        results["P5"] = measure_design(given.study)
    if "P6" in given.only:
        results["P6"] = measure_items()
    if "P7" in given.only:
        results["P7"] = measure_verbs()
    if "profile" in given.only:
        results["profile"] = [measure_profile(given.study, dtype) for dtype in ("bfloat16", "float32")]
    if "growth" in given.only:
        results["growth"] = measure_growth()
    failed = add_zeroshot(results, given) if "zeroshot" in given.only else ""
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bench.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (given.out / "bench.md").write_text(page(results), encoding="utf-8")
    print(page(results))
    if failed:
        sys.exit(failed)


if __name__ == "__main__":
    main()
