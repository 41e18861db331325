"""P1, P2, P3: a whole study by `ablate run`, against the peer's runs one after another."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def compare_study(
    study: Path,
    dtype: str,
    seeds: int,
    steps: int | None,
    *,
    device: str = "cpu",
) -> dict[str, Any]:
    """Wall seconds of the whole study, ours against the peer's runs one after another; on a GPU the peer compiles."""
    import yaml

    # The registered study with another arithmetic, fewer seeds or fewer steps; beliefs about noise are of no use to a
    # timing.
    document = yaml.safe_load(study.read_text(encoding="utf-8"))
    document["base"]["numerics"]["dtype"] = dtype
    document["seeds"] = document["seeds"][:seeds]
    document["base"]["budget"]["steps"] = steps or document["base"]["budget"]["steps"]
    document.pop("assume", None)
    runs = len(document["variants"]) * seeds
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        (project / "studies").mkdir(parents=True)
        path = project / "studies" / study.name
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        # Before and after ours, so that a machine that drifts shows as two different times of the peer.
        peer = Peer.of(Path(folder) / "peer", document, dtype, device)
        before = peer.seconds() if peer else None
        ours, records = run_ours(path, project, device)
        verdict = decided(path, project)
        after = peer.seconds() if peer else None
    slots = min(len(os.sched_getaffinity(0)), runs) if device == "cpu" else 1
    # P3: what training and evaluating alone would have taken with these slots. The rest of the wall time is the
    # tool's.
    needed = makespan([r["train_s"] + r["eval_s"] for r in sorted(records, key=lambda r: r["started_at"])], slots)
    figures: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "runs": runs,
        "steps": document["base"]["budget"]["steps"],
        "ours_wall_s": round(ours, 1),
        "ours_train_s_per_run": round(statistics.mean(r["train_s"] for r in records), 1),
        "ours_eval_s_per_run": round(statistics.mean(r["eval_s"] for r in records), 1),
        "P3_share_beyond_training_and_evaluating": round(1.0 - needed / ours, 4),
        "slots": slots,
        "outcomes": {f"{r['variant']}/{r['seed']}": r["outcome_sha256"] for r in records},
    }
    figures |= verdict
    if before is not None and after is not None:
        figures |= {
            "peer_s_per_run": [round(before, 1), round(after, 1)],
            "peer_wall_s": round(runs * (before + after) / 2, 1),
            "peer_wall_is": f"mean of 2 measured runs x {runs}",
            "ratio": round(runs * (before + after) / 2 / ours, 2),
        }
    return figures


def makespan(seconds: list[float], slots: int) -> float:
    """When the last of these runs ends, each taken by the first free slot: the wall time with no overhead at all.

    >>> makespan([3.0, 1.0, 1.0, 1.0], slots=2)  # one slot takes the long run, the other the three short ones
    3.0
    """
    free = [0.0] * slots
    for duration in seconds:
        free[free.index(min(free))] += duration  # as the scheduler does: the first free slot takes the next run
    return max(free)


def run_ours(path: Path, project: Path, device: str) -> tuple[float, list[dict[str, Any]]]:
    """The whole command, from outside."""
    started = time.perf_counter()
    words = [sys.executable, "-m", "ablate", "run", str(path), "--device", device]
    subprocess.run(words, check=True, stdout=sys.stderr, cwd=project)
    wall = time.perf_counter() - started
    return wall, [json.loads(p.read_text(encoding="utf-8")) for p in sorted(project.glob("data/runs/*/*/*/*/run.json"))]


def decided(path: Path, project: Path) -> dict[str, Any]:
    """The verdict of the study just run, and how each hypothesis ended: both kinds of arithmetic should agree."""
    done = subprocess.run(
        [sys.executable, "-m", "ablate", "decide", str(path)], check=False, stdout=sys.stderr, cwd=project
    )
    # Exit code 3 is an answer too, so the file says whether it ended well.
    (written,) = project.glob("reports/*/verdict.json")
    text = json.loads(written.read_text(encoding="utf-8"))
    return {
        "decide_exit": done.returncode,
        "verdict": text["verdict"],
        "outcomes_of_hypotheses": {finding["hypothesis"]: finding["outcome"] for finding in text["findings"]},
    }


class Peer:
    """nanoGPT's own training script on the same text, from the user's own clone."""

    def __init__(self, clone: Path, folder: Path, settings: list[str]) -> None:
        self.clone, self.folder, self.settings = clone, folder, settings

    @classmethod
    def of(cls, folder: Path, document: dict[str, Any], dtype: str, device: str) -> Peer | None:
        """The peer, or none when no clone is named."""
        clone = os.environ.get("NANOGPT")
        if not clone or not (Path(clone) / "train.py").is_file():
            print("NANOGPT names no clone of nanoGPT: the peer is not measured", file=sys.stderr)
            return None
        import numpy as np

        from ablate.data.corpora import Library
        from ablate.data.tokenizers import CharTokenizer

        base = document["base"]
        text = Library.of(HERE / "data" / "corpora").find(base["data"]["corpus"]).text
        ids = CharTokenizer.of(text).encode(text).astype(np.uint16)
        boundary = int(len(ids) * 0.9)  # the last tenth, as ours holds out
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
        # As many tokens evaluated as ours: `eval_iters` batches each of train and validation text, so half of them.
        batches = (len(ids) - boundary) // (budget["batch"] * model["context"])
        settings = {
            "dataset": "text",
            "device": device,
            "compile": device != "cpu",
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
        threads = str(len(os.sched_getaffinity(0)))  # the peer may have all cores, as it runs alone
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, str(self.clone / "train.py"), *self.settings],
            cwd=self.folder,
            check=True,
            stdout=sys.stderr,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
        return time.perf_counter() - started


def machine() -> dict[str, str | int]:
    """What it was measured on."""
    from ablate.records.provenance import current_provenance

    made = current_provenance(threads=1)
    return {
        "processor": made.processor,
        "cores": os.cpu_count() or 0,
        "torch": made.torch,
        "python": made.python,
        "system": platform.system(),
    }


def in_own_process(module: str, *words: str) -> Any:
    """What a module says in the last line of its output, run in the environment of a worker."""
    from ablate.runner.process import ALONE

    text = subprocess.run(
        [sys.executable, "-m", module, *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **ALONE},
    )
    return json.loads(text.stdout.splitlines()[-1])
