"""Do two versions of the tool give the same bits, and does the later one take longer?

    python -m benchmarks.equality record OLD.json --python OTHER_CHECKOUT/.venv/bin/python
    python -m benchmarks.equality record NEW.json
    python -m benchmarks.equality time TIMES.json --python OTHER_CHECKOUT/.venv/bin/python
    python -m benchmarks.equality compare OLD.json NEW.json --times TIMES.json --page reports/bench/equality.md

Everything goes through the command line of the version that `--python` imports, so any two commits can be compared:
studies are written, run by `ablate run`, one of them killed and run again, and what was sealed is read. Compared are
all repeatable metrics to the last bit, the scores of items, the final weights and the hashes of what a pair shares.
Both recordings must come from one machine: another processor gives other last bits. Times are taken in turn, in one
sitting, with the machine's load next to each: CPU time says more than wall time where others work there too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from ablate.records.outcome import is_repeatable
from benchmarks.studies import HERE, machine

SUITES = {"suites": ["loss", "calibration", "activations", "gradients", "speed", "length"], "at_end": ["cost"]}
METRIC = "def largest(view):\n    return view.losses().max()\n"
PATIENCE_S = 300.0


def document(study: str, arms: dict[str, Any], claim: str, **changes: Any) -> dict[str, Any]:
    """A small study of these arms."""
    # As small as a study can be that still has two blocks, warmup, and an evaluation in its middle.
    base: dict[str, Any] = {
        "model": {"layers": 2, "width": 32, "heads": 2, "context": 32},
        "data": {"corpus": "toy"},
        "optim": {"lr": 3.0e-3, "warmup": 2},
        "budget": {"steps": 24, "batch": 8},
    }
    return {
        "study": study,
        "title": study,
        "base": base,
        "baseline": "plain",
        "variants": {"plain": {}, **arms},
        "seeds": [1, 2],
        "measure": {"every": 8, **SUITES},
        "hypotheses": {"gain": {"claim": claim, "smallest": 0.02}},
        "decision": [{"verdict": "adopt", "when": "supported(gain)"}, {"verdict": "inconclusive"}],
        "assume": {"metrics": {claim.rsplit(maxsplit=1)[-1]: {"sd": 0.01, "correlation": 0.5}}},
        **changes,
    }


def quickstart() -> dict[str, Any]:
    """The study of the tutorial, as it is."""
    return dict(yaml.safe_load((HERE / "studies" / "quickstart.yaml").read_text(encoding="utf-8")))


def embnorm() -> dict[str, Any]:
    """The model of studies/embnorm.yaml, on a text that costs little to evaluate, cut short."""
    study = yaml.safe_load((HERE / "studies" / "embnorm.yaml").read_text(encoding="utf-8"))
    study["base"]["data"] = {"corpus": "verses"}
    study["base"]["budget"] = {"steps": 8, "batch": 4}
    return {**study, "seeds": [1, 2], "measure": study["measure"] | {"every": 4}}


def numerics() -> dict[str, Any]:
    """One arm for each path through the trainer."""
    arms: dict[str, Any] = {
        "bf16": {"numerics.dtype": "bfloat16"},
        "dropout": {"model.dropout": 0.1},
        "accumulation": {"budget.micro_batch": 2},
        "accumulation_dropout": {"budget.micro_batch": 2, "model.dropout": 0.1},
        "recompute": {"numerics.recompute": "blocks", "model.dropout": 0.1},
        "muon": {"optim.name": "muon"},
        "ema": {"optim.ema": 0.9},
        # Without clipping, and at such a rate, within its few steps.
        "diverges": {"optim.name": "sgd", "optim.lr": 1.0e3, "optim.clip": 0.0, "optim.warmup": 0},
    }
    own = {"name": "own/largest", "entry_point": "mine:largest", "better": "lower", "unit": "nats"}
    own |= {"definition": "largest cross-entropy of a validation token."}
    return document("numerics", arms, "muon lowers val/loss", measure={"every": 8, **SUITES, "own": [own]})


def tasks() -> dict[str, Any]:
    """A pack of zero- and few-shot tasks, judged over its items."""
    study = document("tasks", {"muon": {"optim.name": "muon"}}, "muon raises harness/accuracy")
    study["base"]["data"] = {"corpus": "verses"}
    harness = {"tasks": "tasks/made-up", "items_per_task": 6, "shots": [0, 2]}
    study["measure"] = {"every": 8, "suites": ["loss"], "harness": harness}
    study["analysis"] = {"test": "items", "estimand": "new_seeds_and_items"}
    return study


def resumed() -> dict[str, Any]:
    """Long enough to be killed between two checkpoints, with everything that a checkpoint holds."""
    study = document("resumed", {"muon": {"optim.name": "muon"}}, "muon lowers val/loss", seeds=[1, 2])
    study["base"]["model"] |= {"dropout": 0.1}
    study["base"]["optim"] |= {"ema": 0.9}
    study["base"]["budget"] = {"steps": 600, "batch": 8}
    study["measure"] = {"every": 100, "suites": ["loss", "gradients"]}
    return study


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "quickstart": quickstart,
    "embnorm": embnorm,
    "numerics": numerics,
    "tasks": tasks,
    "resumed": resumed,
}


@dataclass
class House:
    """A folder of studies, and the version of the tool that works in it."""

    path: Path
    python: str
    said: list[str] = field(default_factory=list)

    def furnish(self) -> None:
        """Corpora, a task pack and the code of a metric."""
        # A text of three lines in a fixed order that no library draws.
        verses = ["the cat sat on the mat.\n", "a dog ran to the barn.\n", "no rain fell on the plain.\n"]
        text = self.path / "verses.txt"
        text.write_text("".join(verses[(7 * i * i + i) % 3] for i in range(900)), encoding="utf-8")
        (self.path / "studies").mkdir()
        (self.path / "studies" / "mine.py").write_text(METRIC, encoding="utf-8")
        self.ablate("corpus", "add", "verses", str(text))
        pack = self.path / "tasks" / "made-up"
        pack.mkdir(parents=True)
        nouns = ("cat", "mat", "rain", "plain", "hat")
        for task, (good, bad) in {"order": ("sat on the", "on the sat"), "end": ("fell on a", "fell a on")}.items():
            pairs = [(f"the {a} {good} {b}.", f"the {a} {bad} {b}.") for a in nouns for b in nouns if a != b][:14]
            lines = [json.dumps({"sentence_good": right, "sentence_bad": wrong}) + "\n" for right, wrong in pairs]
            (pack / f"{task}.jsonl").write_text("".join(lines), encoding="utf-8")

    def command(self, *words: str) -> list[str]:
        return [self.python, "-m", "ablate", *words, "--root", str(self.path)]

    def run(self, study: Path) -> None:
        """All runs of a study. Few seeds have little power, which a version accepts only where it would refuse."""
        # An older version may not refuse low power, and then does not take the option.
        if subprocess.run(self.command("run", str(study)), cwd=self.path, capture_output=True, check=False).returncode:
            self.ablate("run", str(study), *UNDERPOWERED)

    def ablate(self, *words: str) -> None:
        """A command that must end well."""
        done = subprocess.run(self.command(*words), cwd=self.path, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"ablate {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def kill_midway(self, study: Path) -> None:
        """Begin to run, and kill everything once a run has written its second checkpoint."""
        words = self.command("run", str(study), "--jobs", "1", "--checkpoint-every", "0.3", *UNDERPOWERED)
        process = subprocess.Popen(words, cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends_at = time.monotonic() + PATIENCE_S
        while not any((self.path / "data" / "runs").rglob("checkpoint.previous.safetensors")):
            if process.poll() is not None or time.monotonic() > ends_at:
                raise SystemExit(f"no run of {study.stem} wrote two checkpoints")
            time.sleep(0.02)
        # Newest first: a parent that saw its child die would start another.
        for pid in [*descendants(process.pid)[::-1], process.pid]:
            os.kill(pid, signal.SIGSTOP)  # all stand still before the first is killed
        for pid in [*descendants(process.pid)[::-1], process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def outcomes(self, study: str) -> dict[str, Any]:
        """Everything of the sealed runs of a study that must not move, by run."""
        sealed_by_run = {}
        for place in sorted((self.path / "data" / "runs" / study).rglob("run.json")):
            record = json.loads(place.read_bytes())
            name = f"{study}/{record['variant']}/{record['seed']}"
            # Floats in hexadecimal: two values that print alike may differ in their last bit.
            rows = pq.read_table(place.parent / "metrics.parquet").to_pylist()
            items = place.parent / "items.parquet"
            sealed_by_run[name] = {
                "status": record["status"],
                "steps": record["steps"],
                "tokens": record["tokens"],
                "parameters": record["parameters"],
                "resumed": bool(record["resumed_from"]),
                "metrics": {
                    f"{row['metric']} at {row['step']}": row["value"].hex()
                    for row in rows
                    if is_repeatable(row["metric"])
                },
                # Names alone: seconds never repeat.
                "timings": sorted({row["metric"] for row in rows if not is_repeatable(row["metric"])}),
                "items": {
                    f"{row['metric']} of {row['task']}/{row['item']} ({row['item_sha256']})": row["value"].hex()
                    for row in (pq.read_table(items).to_pylist() if items.is_file() else ())
                },
                "weights": record["weights_sha256"],
                "shared": shared_of(record),
                "stated": {name: record.get(name) for name in ("repetition", "baselines")},
            }
        return sealed_by_run


UNDERPOWERED = ("--accept-underpowered", "only bits are compared")


def shared_of(record: dict[str, Any]) -> dict[str, str]:
    """Hashes of what the runs of a seed share, by today's names. Commits up to 5415e43a called them `pairing`.

    >>> shared_of({"must_match": {"batches": "0f"}})
    {'batches': '0f'}
    >>> shared_of({"pairing": {"initial": {"head": "1e"}, "batches": "0f"}})
    {'initial/head': '1e', 'batches': '0f'}
    """
    pairing = record.get("pairing")
    if not pairing:
        return dict(record["must_match"])
    initial = {f"initial/{name}": sha256 for name, sha256 in pairing.pop("initial").items()}
    return {**initial, **pairing}


def descendants(pid: int) -> list[int]:
    """Processes that a process started, and what these started."""
    pids: list[int] = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(place.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            child = int(place.parent.name)  # its own children too, before it is gone
            pids += [child, *descendants(child)]
    return pids


def version(python: str) -> dict[str, str]:
    """Which commit of the tool an interpreter imports."""
    where = [python, "-c", "import ablate; print(ablate.__file__)"]  # from /, where no checkout is on the path
    module = Path(subprocess.run(where, cwd="/", capture_output=True, text=True, check=True).stdout.strip())

    def git(*words: str) -> str:
        command = ["git", "-C", str(module.parents[1]), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = " (with changes)" if git("status", "--porcelain", "--untracked-files=no") else ""
    return {"commit": git("rev-parse", "--short=8", "HEAD") + changed, "date": git("show", "-s", "--format=%cs")}


def record(python: str, cases: list[str], out: Path) -> None:
    """Write the version, and case -> run -> what was sealed; a recording that is there is added to."""
    # A recording may be made in several calls, of one version on one machine.
    earlier: dict[str, Any] = json.loads(out.read_bytes()) if out.is_file() else {}
    sealed_by_case: dict[str, Any] = earlier.get("cases", {})
    about = {"version": version(python), "machine": machine()}
    assert all(earlier.get(name, value) == value for name, value in about.items()), (
        "another version, or another machine"
    )
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder), python)
        house.furnish()
        for case in cases:
            study = house.path / "studies" / f"{case}.yaml"
            study.write_text(yaml.safe_dump(CASES[case](), sort_keys=False), encoding="utf-8")
            if case == "resumed":
                house.kill_midway(study)
            house.run(study)
            sealed_by_case[case] = house.outcomes(case)
            assert sealed_by_case[case], case
            assert case != "resumed" or any(run["resumed"] for run in sealed_by_case[case].values()), (
                "nothing was resumed"
            )
            # After each case: an hour of runs is not lost to the last.
            out.write_text(json.dumps({**about, "cases": sealed_by_case}, indent=1) + "\n", encoding="utf-8")
            print(f"{case}: {len(sealed_by_case[case])} runs", file=sys.stderr, flush=True)


TRIVIAL = """printf '{"step": 1, "train/loss": 3.0, "val/loss": 2.%s}\\n' "$ABLATE_SEED" > metrics.jsonl
"""
N_FEW, N_MANY = 10, 210


def trivial(n_runs: int) -> dict[str, Any]:
    """A study whose trainer does nothing but write one row, by a shell."""
    study = document("trivial", {"other": {"lr": 0.2}}, "other lowers val/loss", base={"lr": 0.1})
    study["seeds"] = list(range(1, n_runs // 2 + 1))
    return {**study, "trainer": "command", "command": ["/bin/sh", "trivial.sh"], "measure": None}


def seconds(python: str, study: dict[str, Any], *options: str) -> tuple[float, float]:
    """Wall and CPU seconds of `ablate run` of a study that is registered, in a folder of its own."""
    # `measure` of an own trainer is left out.
    study = {name: value for name, value in study.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        house = House(Path(folder), python)
        (house.path / "studies").mkdir()
        (house.path / "trivial.sh").write_text(TRIVIAL, encoding="utf-8")
        path = house.path / "studies" / f"{study['study']}.yaml"
        path.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
        words = house.command("register", str(path), *UNDERPOWERED)
        if subprocess.run(words, cwd=house.path, capture_output=True, check=False).returncode:
            house.ablate("register", str(path))
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        house.ablate("run", str(path), *options)
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def per_trivial_run(python: str) -> tuple[float, float]:
    """Wall and CPU milliseconds that one more trivial run costs, its shell included."""
    # By a difference, so that the start of the command and of its processes drops out.
    few, many = (seconds(python, trivial(n_runs), "--jobs", "1") for n_runs in (N_FEW, N_MANY))
    wall, cpu = (1000 * (late - early) / (N_MANY - N_FEW) for early, late in zip(few, many, strict=True))
    return wall, cpu


def bare_shell_ms(n_times: int = 300) -> float:
    """CPU milliseconds of the shell of a trivial run, started by nothing but `subprocess`."""

    def cpu() -> float:
        each = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in each)

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "trivial.sh")
        script.write_text(TRIVIAL, encoding="utf-8")
        before = cpu()
        for _ in range(n_times):
            subprocess.run(["/bin/sh", str(script)], cwd=folder, capture_output=True, check=True)
        return 1000 * (cpu() - before) / n_times


TIMED: dict[str, tuple[str, Callable[[str], tuple[float, float]]]] = {
    "quickstart": ("s of `ablate run` of the quickstart", lambda python: seconds(python, quickstart())),
    "trivial": (f"ms a trivial run of an own trainer, by {N_MANY} runs less {N_FEW}", per_trivial_run),
}


def take_times(earlier: str, repeats: int, out: Path) -> None:
    """Time another version and this one in turn, each first every second time."""
    pythons = {"before": earlier, "now": sys.executable}
    versions = {name: version(python) for name, python in pythons.items()}
    timing: dict[str, Any] = {"versions": versions, "machine": machine(), "bare_shell_ms": bare_shell_ms(), "times": {}}
    for what, (_, measure) in TIMED.items():
        samples = timing["times"][what] = []
        for turn in range(repeats):
            # Each first every second time: a machine that gets slower in one sitting would favour the first.
            for name in ("before", "now") if turn % 2 == 0 else ("now", "before"):
                wall, cpu = measure(pythons[name])
                samples.append({"version": name, "wall": wall, "cpu": cpu, "load": os.getloadavg()[0]})
                print(what, samples[-1], file=sys.stderr, flush=True)
                out.write_text(json.dumps(timing, indent=1) + "\n", encoding="utf-8")


def table_of_times(timing: dict[str, Any]) -> str:
    """A Markdown table: median and range of both versions, and the ratio of the medians."""
    lines = ["| measured | n each | before | now | ratio |", "|---|---|---|---|---|"]
    for what, samples in timing["times"].items():
        for kind in ("wall", "cpu"):
            values = {name: [take[kind] for take in samples if take["version"] == name] for name in ("before", "now")}
            middle = {name: statistics.median(each) for name, each in values.items()}
            cells = [f"{middle[name]:.2f} ({min(each):.2f} to {max(each):.2f})" for name, each in values.items()]
            counts = " / ".join(dict.fromkeys(str(len(each)) for each in values.values()))
            ratio = f"{middle['now'] / middle['before']:.3f}"
            lines.append(f"| {kind}, {TIMED[what][0]} | {counts} | {' | '.join(cells)} | {ratio} |")
    loads = [take["load"] for samples in timing["times"].values() for take in samples]
    text = f"In turn, in one sitting; median (range). The load of the machine was {min(loads):.1f} to {max(loads):.1f}."
    commits = " and ".join(f"{about['commit']} ({name})" for name, about in timing["versions"].items())
    shell_ms = timing["bare_shell_ms"]
    shell = f"Of a trivial run {shell_ms:.2f} ms of CPU are the shell itself, started by a bare `subprocess`."
    return "\n".join(lines) + f"\n\n{text} Of {commits}. {shell}\n"


def comparison_page(old: dict[str, Any], new: dict[str, Any], table: str, times: dict[str, Any] | None) -> str:
    """What reports/bench/equality.md says."""
    here = new["machine"]
    commits = [f"{recording['version']['commit']} of {recording['version']['date']}" for recording in (old, new)]
    lines = [
        "# The same bits as before",
        "",
        f"Commit {commits[0]} and commit {commits[1]}, on {here['processor']}, {here['cores']} cores, "
        f"torch {here['torch']}, Python {here['python']}. Written by `python -m benchmarks.equality`, "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}.",
        "",
        "`numerics` has an arm each for bfloat16, dropout, accumulation (alone and with dropout), recomputation, muon,",
        "an average of weights and a divergence; the runs of `resumed` were killed after their second checkpoint.",
        "",
        table,
    ]
    if times is not None:
        lines += ["", "## Time", "", table_of_times(times).rstrip()]
    return "\n".join(lines) + "\n"


def compare(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, bool]:
    """A Markdown table with a line per case, and whether everything is equal."""
    lines = ["| case | runs | metric rows | item scores | equal to the bit | weights equal | shared hashes equal |"]
    lines += ["|---|---|---|---|---|---|---|"]
    equal = True
    for case, mine in old.items():
        theirs = new.get(case, {})
        runs = sorted({*mine, *theirs})
        # What is summed up in one column of the table each.
        parts = {
            "values": ("metrics", "items", "status", "steps", "tokens", "parameters", "timings", "stated"),
            "weights": ("weights",),
            "shared": ("shared",),
        }
        same = {
            part: all(mine.get(run, {}).get(name) == theirs.get(run, {}).get(name) for run in runs for name in names)
            for part, names in parts.items()
        }
        equal = equal and all(same.values())
        count = {name: sum(len(run[name]) for run in mine.values()) for name in ("metrics", "items")}
        answers = ["yes" if same[part] else "NO" for part in parts]
        lines.append(f"| {case} | {len(runs)} | {count['metrics']} | {count['items']} | {' | '.join(answers)} |")
        for run in sorted(mine.keys() ^ theirs.keys()):
            print(f"{run} is in one recording alone", file=sys.stderr)
        for run in sorted(mine.keys() & theirs.keys()):
            for name in [name for names in parts.values() for name in names]:
                left, right = mine[run][name], theirs[run][name]
                if left != right:
                    print(f"{run}: {name} differs: {differences(left, right)}", file=sys.stderr)
    return "\n".join(lines), equal


def differences(left: Any, right: Any) -> str:
    """The first few entries in which two values differ.

    >>> differences({"a": 1, "b": 2}, {"a": 1, "b": 3})
    '1: b: 2 / 3'
    """
    if not isinstance(left, dict) or not isinstance(right, dict):
        return f"{left} / {right}"[:300]
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return f"{len(names)}: " + "; ".join(f"{name}: {left.get(name)} / {right.get(name)}" for name in names[:3])


def main() -> None:
    """Record one version, compare two recordings (exit status 1 where they differ), or take times of two."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.equality", description=__doc__)
    options.add_argument("do", choices=("record", "compare", "time"))
    options.add_argument("files", nargs="+", type=Path)
    options.add_argument("--python", default=sys.executable, help="whose `ablate` is recorded (default: this one)")
    options.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    options.add_argument("--repeats", type=int, default=5, help="of each version, when times are taken")
    options.add_argument("--times", type=Path, help="what `time` wrote, for the page")
    options.add_argument("--page", type=Path, help="where to write the comparison")
    arguments = options.parse_args()
    if arguments.do == "record":
        record(arguments.python, arguments.cases, arguments.files[0])
        return
    if arguments.do == "time":
        take_times(arguments.python, arguments.repeats, arguments.files[0])
        return
    old, new = (json.loads(path.read_bytes()) for path in arguments.files[:2])  # as typed: the earlier version first
    assert old["machine"] == new["machine"], "two machines give other last bits"
    table, equal = compare(old["cases"], new["cases"])
    print(table)
    if arguments.page is not None:
        times = None if arguments.times is None else json.loads(arguments.times.read_bytes())
        arguments.page.write_text(comparison_page(old, new, table, times), encoding="utf-8")
    raise SystemExit(not equal)


if __name__ == "__main__":
    main()
