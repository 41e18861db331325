"""Whole commands at scale: what a run costs beyond its training, and what a verdict over ten million rows costs.

Studies here are run by `ablate run`, with a trainer of a few lines of Python that writes numbers, so that what is
judged are sealed records like any others.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.equality import N_FEW, N_MANY, bare_shell_ms, document, per_trivial_run
from benchmarks.studies import HERE

COMMANDS = {"check": (0,), "status": (0,), "decide": (0, 3), "verify": (0,)}
"""Command on the quickstart -> exit codes that are answers (3: the verdict is inconclusive)."""
COMMAND_REPEATS = 5

N_ROWS = 10_000_000
ROWS_BY_RUN = {n_runs: N_ROWS // n_runs for n_runs in (100, 10_000)}
"""Runs -> rows of each."""
N_METRICS = 10

TRAINER = """
import os, random
seed, arm = int(os.environ["ABLATE_SEED"]), os.environ["ABLATE_VARIANT"]
noise = random.Random(f"{seed} {arm}")
level = random.Random(seed).gauss(2.5, 0.05) - 0.02 * (arm == "other")
names = ["val/loss", *(f"own/column{k}" for k in range(1, N_METRICS))]
with open("metrics.csv", "w") as out:
    print("step", *names, sep=",", file=out)
    for step in range(1, N_STEPS + 1):
        print(step, *(f"{level + noise.gauss(0.0, 0.01):.6f}" for _ in names), sep=",", file=out)
"""


def cost(words: list[str], cwd: Path, answers: tuple[int, ...] = (0,)) -> dict[str, float]:
    """Wall and CPU seconds of a command with everything that it starts, and the peak memory of the largest process."""
    begun = time.perf_counter()
    process = subprocess.Popen(words, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    complaint = process.stderr.read()  # until the command ends, so that a full pipe cannot stop it
    # wait4 gives the CPU time and the peak of this command and of what it waited for, and of nothing else.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in answers:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{complaint.decode()}")
    return {
        "wall_s": time.perf_counter() - begun,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_MiB": usage.ru_maxrss / 1024,
    }


def measure_commands() -> dict[str, Any]:
    """CPU seconds of everyday commands on the quickstart, once it is run and decided."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        study = place(project, "quickstart", (HERE / "studies" / "quickstart.yaml").read_text(encoding="utf-8"))
        cost(ablate("run", study), project)  # once: the commands below read what it made
        taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(COMMAND_REPEATS):
            for name, answers in COMMANDS.items():
                taken[name].append(cost(ablate(name, study), project, answers)["cpu_s"])
    return {"n": COMMAND_REPEATS, "cpu_s": {name: round(statistics.median(each), 2) for name, each in taken.items()}}


def measure_overhead() -> dict[str, Any]:
    """Milliseconds of one more run whose trainer is a shell that prints a line."""
    wall, cpu = per_trivial_run(sys.executable)
    return {
        "wall_ms": round(wall, 1),
        "cpu_ms": round(cpu, 1),
        "bare_shell_cpu_ms": round(bare_shell_ms(), 2),
        "runs": N_MANY - N_FEW,
    }


def measure_scale() -> list[dict[str, Any]]:
    """`decide` on ten million rows, in few long runs and in many short ones; each once, and what running them cost."""
    return [decide_rows(n_runs, n_rows) for n_runs, n_rows in ROWS_BY_RUN.items()]


def decide_rows(n_runs: int, n_rows: int) -> dict[str, Any]:
    """One size."""
    study = document("rows", {"other": {"lr": 0.2}}, "other lowers val/loss", base={"lr": 0.1})
    del study["measure"]  # a trainer of one's own measures itself
    study |= {
        "seeds": list(range(1, n_runs // 2 + 1)),
        "trainer": "command",
        "command": ["{python}", "{root}/rows.py"],
        "metrics": {
            "file": "metrics.csv",
            # Columns that no claim reads: they are judged for range and kept.
            "declare": {f"own/column{k}": {"unit": "nats", "better": "lower"} for k in range(1, N_METRICS)},
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        # In the script, which is pinned, and in no argument.
        constants = f"N_METRICS, N_STEPS = {N_METRICS}, {n_rows // N_METRICS}\n"
        (project / "rows.py").write_text(constants + TRAINER, encoding="utf-8")
        path = place(project, "rows", yaml.safe_dump(study, sort_keys=False))
        ran = cost(ablate("run", path), project)
        decided = cost(ablate("decide", path), project, (0, 3))
    return {
        "runs": n_runs,
        "rows": n_runs * n_rows,
        "run_wall_s": round(ran["wall_s"], 1),
        "wall_s": round(decided["wall_s"], 1),
        "cpu_s": round(decided["cpu_s"], 1),
        "peak_MiB": round(decided["peak_MiB"]),
    }


def place(project: Path, name: str, text: str) -> Path:
    """A study's file in a project of its own."""
    (project / "studies").mkdir()
    path = project / "studies" / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def ablate(verb: str, study: Path) -> list[str]:
    """The words of a command."""
    return [sys.executable, "-m", "ablate", verb, str(study)]
