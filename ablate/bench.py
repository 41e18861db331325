"""Ratios against a peer, in one sitting, on one machine: `make bench`. Never asserted in a timed test.

The peer's side runs the user's own clone of nanoGPT (`NANOGPT=path`), its own `train.py`, as whole processes,
one after another with two threads: what a researcher would do instead. Nothing of it is copied here; only its
documented command-line settings are used, with the same model, batch, steps, text, and as many tokens evaluated.
Peer runs are taken before and after ours, so that a machine that drifts shows.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
HELP_REPEATS = 7
STATUS_RUNS = 1000
DESIGN_SCENARIOS, DESIGN_STUDIES, DESIGN_REPEATS = 12, 20_000, 5


def main() -> None:
    """Measure, print the table, write reports/bench/."""
    options = argparse.ArgumentParser(prog="python -m ablate.bench", description=__doc__)
    options.add_argument("--study", type=Path, default=HERE / "studies" / "embnorm.yaml")
    options.add_argument("--seeds", type=int, default=5, help="seeds of the study to run (default: all five)")
    options.add_argument("--steps", type=int, help="steps a run, on both sides (default: as registered)")
    options.add_argument("--only", nargs="*", default=["P1", "P2", "P5", "P6", "P7"], help="which promises")
    options.add_argument("--out", type=Path, default=HERE / "reports" / "bench")
    given = options.parse_args()
    results: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    earlier = given.out / "bench.json"
    if earlier.is_file():
        before = json.loads(earlier.read_text(encoding="utf-8"))
        # Figures of the same machine and day stand beside the new ones; others are another sitting's and go.
        if all(before.get(key) == results[key] for key in ("machine", "date")):
            results = before
    for name, dtype in (("P2", "float32"), ("P1", "bfloat16")):
        if name in given.only:
            results[name] = compare_study(given.study, dtype, given.seeds, given.steps)
            print(json.dumps({name: results[name]}, indent=2), flush=True)
    if "P5" in given.only:
        results["P5"] = measure_design(given.study)
    if "P6" in given.only:
        results["P6"] = measure_items()
    if "P7" in given.only:
        results["P7"] = measure_verbs()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bench.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (given.out / "bench.md").write_text(table(results), encoding="utf-8")
    print(table(results))


def machine() -> dict[str, str | int]:
    """What it was measured on."""
    from ablate.records.provenance import collect

    made = collect(threads=1)
    return {
        "processor": made.processor,
        "cores": os.cpu_count() or 0,
        "torch": made.torch,
        "python": made.python,
        "system": platform.system(),
    }


def compare_study(study: Path, dtype: str, seeds: int, steps: int | None) -> dict[str, Any]:
    """Wall seconds of the whole study, ours against the peer's runs one after another."""
    import yaml

    document = yaml.safe_load(study.read_text(encoding="utf-8"))
    document["base"]["numerics"]["dtype"] = dtype
    document["seeds"] = document["seeds"][:seeds]
    document["base"]["budget"]["steps"] = steps or document["base"]["budget"]["steps"]
    document.pop("assume", None)
    runs = len(document["variants"]) * seeds
    with tempfile.TemporaryDirectory() as folder:
        house = Path(folder) / "house"
        (house / "studies").mkdir(parents=True)
        path = house / "studies" / study.name
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        peer = Peer.of(Path(folder) / "peer", document, dtype)
        before = peer.seconds() if peer else None
        ours, records = run_ours(path, house)
        after = peer.seconds() if peer else None
    slots = min(len(os.sched_getaffinity(0)), runs)
    needed = makespan([r["train_s"] + r["eval_s"] for r in sorted(records, key=lambda r: r["started_at"])], slots)
    found: dict[str, Any] = {
        "dtype": dtype,
        "runs": runs,
        "steps": document["base"]["budget"]["steps"],
        "ours_wall_s": round(ours, 1),
        "ours_train_s_per_run": round(statistics.mean(r["train_s"] for r in records), 1),
        "ours_eval_s_per_run": round(statistics.mean(r["eval_s"] for r in records), 1),
        "P3_share_beyond_training_and_evaluating": round(1.0 - needed / ours, 4),
        "slots": slots,
        "outcomes": {f"{r['variant']}/{r['seed']}": r["outcome_sha256"] for r in records},
    }
    if before is not None and after is not None:
        found |= {
            "peer_s_per_run": [round(before, 1), round(after, 1)],
            "peer_wall_s": round(runs * (before + after) / 2, 1),
            "peer_wall_is": f"mean of 2 measured runs x {runs}",
            "ratio": round(runs * (before + after) / 2 / ours, 2),
        }
    return found


def makespan(seconds: list[float], slots: int) -> float:
    """When the last of these runs ends, each taken by the first free slot: the wall time with no overhead at all."""
    free = [0.0] * slots
    for duration in seconds:
        free[free.index(min(free))] += duration
    return max(free)


def run_ours(path: Path, house: Path) -> tuple[float, list[dict[str, Any]]]:
    """The whole command, from outside."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ablate", "run", str(path)], check=True, stdout=sys.stderr, cwd=house)
    wall = time.perf_counter() - started
    return wall, [json.loads(p.read_text(encoding="utf-8")) for p in sorted(house.glob("data/runs/*/*/*/*/run.json"))]


class Peer:
    """nanoGPT's own training script on the same text, from the user's own clone."""

    def __init__(self, clone: Path, folder: Path, settings: list[str]) -> None:
        self.clone, self.folder, self.settings = clone, folder, settings

    @classmethod
    def of(cls, folder: Path, document: dict[str, Any], dtype: str) -> Peer | None:
        """The peer, or none when no clone is named."""
        clone = os.environ.get("NANOGPT")
        if not clone or not (Path(clone) / "train.py").is_file():
            print("NANOGPT names no clone of nanoGPT: the peer is not measured", file=sys.stderr)
            return None
        import numpy as np

        from ablate.gpt.corpus import Library
        from ablate.gpt.tokenizer import CharTokenizer

        base = document["base"]
        text = Library.of(HERE / "data" / "corpora").find(base["data"]["corpus"]).text
        ids = CharTokenizer.of(text).encode(text).astype(np.uint16)
        boundary = int(len(ids) * 0.9)
        data = folder / "data" / "text"
        data.mkdir(parents=True)
        ids[:boundary].tofile(data / "train.bin")
        ids[boundary:].tofile(data / "val.bin")
        # Without this file the peer takes a vocabulary of 50,304 and trains five times as many parameters. Its format
        # is the peer's; we write this one and read none.
        (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(set(text))}))
        # Its settings reader is opened relative to the working folder, and its data lie below it.
        (folder / "configurator.py").symlink_to(Path(clone).resolve() / "configurator.py")
        model, budget = base["model"], base["budget"]
        batches = (len(ids) - boundary) // (budget["batch"] * model["context"])
        settings = {
            "dataset": "text",
            "device": "cpu",
            "compile": False,
            "dtype": dtype,
            "out_dir": "out",
            "n_layer": model["layers"],
            "n_head": model["heads"],
            "n_embd": model["width"],
            "dropout": 0.0,
            "bias": True,
            "block_size": model["context"],
            "batch_size": budget["batch"],
            "gradient_accumulation_steps": 1,
            "max_iters": budget["steps"],
            "learning_rate": base["optim"]["lr"],
            "decay_lr": False,
            "warmup_iters": 0,
            "eval_interval": document["measure"]["every"],
            "eval_iters": batches // 2,
            "log_interval": 100,
            "always_save_checkpoint": False,
        }
        return cls(Path(clone).resolve(), folder, [f"--{key}={value}" for key, value in settings.items()])

    def seconds(self) -> float:
        """One whole run with as many threads as there are cores."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        threads = str(len(os.sched_getaffinity(0)))
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, str(self.clone / "train.py"), *self.settings],
            cwd=self.folder,
            check=True,
            stdout=sys.stderr,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
        return time.perf_counter() - started


def measure_design(path: Path) -> dict[str, Any]:
    """Twelve states of the world x 20,000 simulated studies through the registered rule, in this process."""
    from ablate.judge.beliefs import assumed
    from ablate.judge.simulate import simulate
    from ablate.judge.truths import truths
    from prereg.load import load_study

    study = load_study(path).study
    beliefs = assumed(study)
    states = truths(study, assumed=True, divergence=beliefs.divergence)
    states = (states * DESIGN_SCENARIOS)[:DESIGN_SCENARIOS]
    simulate(study, states[0], beliefs, n_sims=100, seed=[0])  # imports and caches
    walls = []
    for _ in range(DESIGN_REPEATS):
        started = time.perf_counter()
        for index, state in enumerate(states):
            simulate(study, state, beliefs, n_sims=DESIGN_STUDIES, seed=[0, index])
        walls.append(time.perf_counter() - started)
    return {
        "design_s": round(statistics.median(walls), 2),
        "design_s_each": [round(wall, 2) for wall in walls],
        "scenarios": DESIGN_SCENARIOS,
        "studies": DESIGN_STUDIES,
        "hypotheses": len(study.hypotheses),
        "seeds": len(study.seeds),
    }


def measure_items() -> dict[str, Any]:
    """Seeds x items by the judge, and scipy's BCa bootstrap of the same differences with as many resamples."""
    import numpy as np
    from scipy import stats

    from ablate.judge.items import Crossed, TwoWay, pigeonhole, pigeonhole_interval
    from ablate.judge.resample import RESAMPLES

    values = np.random.default_rng(0).integers(-1, 2, size=(5, 10_000)).astype(float)
    table = Crossed(values, seeds=(1, 2, 3, 4, 5), clusters=np.arange(10_000))

    def timed(work: Callable[[], object], repeats: int) -> float:
        each = []
        for _ in range(repeats):
            started = time.perf_counter()
            work()
            each.append(time.perf_counter() - started)
        return statistics.median(each)

    def bca(data: Any) -> object:  # in batches: with batch=None it takes gigabytes
        options = {"n_resamples": RESAMPLES, "batch": 50, "method": "BCa", "rng": np.random.default_rng(0)}
        return stats.bootstrap((data,), np.mean, **options)

    found = {
        "two_way_s": timed(lambda: TwoWay(table).bounds(0.05), 7),
        "pigeonhole_s": timed(lambda: pigeonhole_interval(pigeonhole(table, np.random.default_rng(0)), 0.05), 7),
        "bca_item_means_s": timed(lambda: bca(values.mean(axis=0)), 3),
        "bca_all_s": timed(lambda: bca(values.ravel()), 1),
    }
    ratio = found["bca_all_s"] / found["pigeonhole_s"]
    return {name: round(value, 4) for name, value in found.items()} | {
        "ratio": round(ratio, 1),
        "resamples": RESAMPLES,
        "items": "5 seeds x 10,000 items, differences of accuracy (-1, 0, 1)",
    }


def measure_verbs() -> dict[str, Any]:
    """`ablate --help`, and `ablate status` on a thousand runs."""
    import yaml

    help_s = [timed([sys.executable, "-m", "ablate", "--help"]) for _ in range(HELP_REPEATS)]
    with tempfile.TemporaryDirectory() as folder:
        house = Path(folder)
        (house / "studies").mkdir()
        document = {
            "study": "many",
            "title": "A thousand runs",
            "baseline": "a",
            "base": {
                "model": {"layers": 1, "width": 16, "heads": 2, "context": 16},
                "budget": {"steps": 2, "batch": 1},
            },
            "variants": {"a": {}, "b": {"model.embedding_norm": "layernorm"}},
            "seeds": list(range(STATUS_RUNS // 2)),
            "hypotheses": {"h": {"claim": "b lowers val/loss", "smallest": 0.1}},
            "decision": [{"verdict": "adopt", "when": "supported(h)"}, {"verdict": "inconclusive"}],
        }
        path = house / "studies" / "many.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ablate", "register", str(path)], check=True, stdout=sys.stderr)
        fill_with_records(path)
        status_s = [timed([sys.executable, "-m", "ablate", "status", str(path)]) for _ in range(3)]
    return {
        "help_s": round(statistics.median(help_s), 3),
        "help_n": HELP_REPEATS,
        "status_s": round(statistics.median(status_s), 3),
        "status_runs": STATUS_RUNS,
        "status_n": 3,
    }


def fill_with_records(path: Path) -> None:
    """A plausible run.json for every planned run, to be read and not believed."""
    from ablate.chain import open_case, require_registered
    from ablate.records.provenance import collect
    from ablate.records.run_record import RunRecord
    from prereg.plan import RunSpec, plan

    case = open_case(path)
    made = collect(threads=1)
    for spec in plan(require_registered(case)):
        assert isinstance(spec, RunSpec), spec.run_id
        record = RunRecord(
            study=spec.study,
            registration=spec.registration,
            variant=spec.variant,
            seed=spec.seed,
            status="done",
            attempts=1,
            config=spec.config.model_dump(mode="json"),
            steps=2,
            tokens=32,
            parameters=1,
            pairing=None,
            provenance=made,
            started_at="2026-01-01T00:00:00+00:00",
        )
        folder = case.root.run(spec.study, spec.registration, spec.variant, spec.seed)
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(record.model_dump_json(), encoding="utf-8")


def timed(words: list[str]) -> float:
    """Wall seconds of a command."""
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    made = results["machine"]
    lines = [
        "# Benchmarks",
        "",
        f"{results['date']}, {made['processor']}, {made['cores']} cores, torch {made['torch']}, "
        f"Python {made['python']}. Ratios from one sitting; absolute times mean little on a shared machine.",
        "",
        "| promise | measured | how |",
        "|---|---|---|",
    ]
    for name in ("P1", "P2"):
        if name in results:
            found = results[name]
            ratio = f"{found['ratio']}x" if "ratio" in found else "peer not measured"
            lines.append(
                f"| {name}: the study's runs, {found['dtype']} | {ratio} | ours {found['ours_wall_s']} s for "
                f"{found['runs']} runs x {found['steps']} steps, {found['slots']} side by side; nanoGPT's train.py "
                f"{found.get('peer_s_per_run', '-')} s a run (before, after), one after another, 2 threads |"
            )
            lines.append(
                f"| P3 with {found['dtype']} | {100 * found['P3_share_beyond_training_and_evaluating']:.1f}% | "
                f"share of wall time beyond what training and evaluating the same runs in the same order takes |"
            )
    if "P5" in results:
        found = results["P5"]
        lines.append(
            f"| P5: the design's simulation | {found['design_s']} s | {found['scenarios']} scenarios x "
            f"{found['studies']:,} studies of {found['hypotheses']} hypotheses and {found['seeds']} seeds; median of "
            f"{len(found['design_s_each'])} |"
        )
    if "P6" in results:
        found = results["P6"]
        lines.append(
            f"| P6: seeds x items | {found['ratio']}x | {found['items']}, {found['resamples']:,} resamples: pigeonhole "
            f"bootstrap {found['pigeonhole_s']} s (median of 7), scipy BCa over all differences {found['bca_all_s']} s "
            f"(once), over the items' means alone {found['bca_item_means_s']} s (median of 3), which leaves the seeds "
            f"out; two-way t, which needs no resample, {found['two_way_s']} s (median of 7) |"
        )
    if "P7" in results:
        found = results["P7"]
        lines += [
            f"| P7: `ablate --help` | {found['help_s']} s | median of {found['help_n']} |",
            f"| P7: `ablate status` on {found['status_runs']} runs | {found['status_s']} s "
            f"| median of {found['status_n']} |",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
