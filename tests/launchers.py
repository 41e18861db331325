"""Studies for tests of launchers: a trainer that resumes, what a study's files say of it, and the ways to launch it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from own_trainer import OwnHouse
from slurm_loopback import Slurm

import ablate
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry, RunStartedEntry, SealedEntry

RESUMABLE = """
import json, os, sys, time
config = json.load(open(os.environ["ABLATE_CONFIG"]))
seed = int(os.environ["ABLATE_SEED"])
rows = [json.loads(line) for line in open("metrics.jsonl")] if os.path.exists("metrics.jsonl") else []
begun = max((row["step"] for row in rows), default=0)
open("resumable", "w").close()
with open("metrics.jsonl", "a") as out:
    for step in range(begun + 1, config["steps"] + 1):
        noise = (seed * 7919 * step % 13) / 1000
        print(json.dumps({"step": step, "train/loss": 3.0 - config["lr"] * step / 100 + noise,
                          "val/loss": 2.0 - config["lr"] + noise * config["lr"]}), file=out, flush=True)
        time.sleep(config["sleep"])
"""
N_RUNS = 6
PATIENCE_S = 150
"""Within which what must happen has happened, on a machine that does other work: no claim, so it may be long."""
ISOLATED = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
"""In a network namespace of its own: Ray listens on every address."""


def ready(house: OwnHouse, script: str = RESUMABLE, *, sleep: float = 0.05, steps: int = 12) -> Path:
    """A registered study of two arms and three seeds."""
    house.script(script)
    house.register(base={"lr": 0.1, "steps": steps, "sleep": sleep})
    return house.study


def command(*words: str) -> subprocess.Popen[str]:
    """A command of ablate in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], timeout: float = PATIENCE_S) -> tuple[int, str]:
    """The exit status of a command and all that it printed."""
    printed, _ = process.communicate(timeout=timeout)
    return process.returncode, printed


def entries(house: OwnHouse) -> tuple[Entry, ...]:
    return Ledger(house.path / "studies" / "ledger.jsonl").entries()


def starts(house: OwnHouse) -> Counter[str]:
    """How many starts of each run are on record."""
    begun = [entry for entry in entries(house) if isinstance(entry, RunStartedEntry)]
    return Counter(f"{entry.variant}/{entry.seed}" for entry in begun)


def outcomes(house: OwnHouse) -> dict[str, str]:
    """The outcome of every run that the ledger has sealed. Fails where a run was sealed twice."""
    seals = [entry for entry in entries(house) if isinstance(entry, SealedEntry)]
    outcome_by_run = {f"{entry.variant}/{entry.seed}": entry.outcome_sha256 for entry in seals}
    assert len(outcome_by_run) == len(seals)
    return outcome_by_run


def sealed_on_disk(house: OwnHouse) -> int:
    """Runs whose folder holds a sealed table, whether the ledger knows them or not."""
    return len([*house.path.glob("data/runs/*/*/*/*/metrics.parquet")])


def recording(house: OwnHouse) -> bool:
    """Whether a run at work has recorded two rows: a process alone may not have begun yet."""
    for file in house.path.glob("data/runs/*/*/*/*/work/metrics.jsonl"):
        with suppress(OSError):
            if file.read_bytes().count(b"\n") >= 2 and not (file.parents[1] / "metrics.parquet").exists():
                return True
    return False


INTERRUPTED = {
    "every run was made in one go",
    "every seal was reported by the run that made it",
    "every attempt at a run was put on record before it began",
    # Of a machine that is gone nobody knows what its run had recorded: one such start may be.
    "no start of a run was lost before its seal",
}
"""Deviations that an interruption may leave. They are named, and move nothing."""


def decision(path: Path) -> dict[str, object]:
    """The decision without what names moments and machines."""
    decided = ablate.decide(path).decision
    assert {check.name for check in decided.deviations} <= INTERRUPTED, decided.deviations
    facts: dict[str, object] = json.loads(decided.model_dump_json())
    return {"gives a verdict": decided.gives_verdict} | {key: facts[key] for key in ("verdict", "findings")}


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE_S, *, every_s: float = 0.05) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(every_s)


def wait_for_slurm(cluster: Slurm, *question: str, until: Callable[[str], object]) -> None:
    """Until what a command of Slurm prints is as wanted. Each question starts a process, so that few are asked."""
    wait_for(lambda: until(cluster.say(*question)), every_s=0.5)


def descendants(pid: int) -> list[int]:
    """The children of a process, theirs, and so on."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    children = [int(word) for word in listed.stdout.split()]
    return [*children, *(below for child in children for below in descendants(child))]


def commands_of(house: OwnHouse, word: str) -> list[int]:
    """Processes whose command line names this house and has a word, such as `train`."""
    listed = subprocess.run(["pgrep", "-f", f"{word}.*{house.path}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@dataclass
class Launcher:
    """One way to have a study made. `launch` starts what is left, `wait` waits for all that it started."""

    house: OwnHouse
    path: Path
    at_once: int = 1
    """Runs at a time."""

    n_runs: int = N_RUNS
    """Of the study, or of `only`."""

    only: tuple[str, ...] = ()
    """The runs to launch, by arm and seed, where not all."""

    patience_s: float = PATIENCE_S
    """Within which the first run must be at work, and then all that was started must have ended."""

    process: subprocess.Popen[str] | None = None

    @property
    def words(self) -> list[str]:
        """`run`, the study and the choice of runs."""
        return ["run", str(self.path), *(f"--only={run}" for run in self.only)]

    def launch(self) -> None:
        self.process = command(*self.words, "--jobs", str(self.at_once))

    @property
    def maker(self) -> int:
        """The process that makes a run: the parent of the trainer."""
        return parent_of(self.trainer)

    @property
    def trainer(self) -> int:
        """The process of the user's script, as its run's folder names it."""
        (mark,) = self.house.path.glob("data/runs/*/*/*/*/child.json")
        return int(json.loads(mark.read_bytes())["pid"])

    @property
    def scheduler(self) -> int:
        """The process that was started here."""
        assert self.process is not None
        return self.process.pid

    def begin(self) -> None:
        """Start what is left, and wait until a run has been at work for a moment."""
        self.launch()
        wait_for(lambda: recording(self.house), self.patience_s)

    def wait(self) -> tuple[int, str]:
        """Until nothing is at work; exit status and output of what was started here."""
        assert self.process is not None
        return end(self.process, self.patience_s)

    def finish(self) -> None:
        """Start again what is left, as a user would, until the ledger has every run."""
        for _ in range(4):
            if len(outcomes(self.house)) < self.n_runs:
                self.launch()
                self.wait()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


class LocalLauncher(Launcher):
    """`ablate run` on this machine."""


class SlurmLauncher(Launcher):
    """`ablate run --on slurm`: a job array of two tasks, and another call that collects."""

    cluster: Slurm

    def launch(self) -> None:
        settings = ("--slurm", "tasks=2", "--slurm", f"at_once={self.at_once}")
        self.process = command(*self.words, "--on", "slurm", *settings)

    def wait(self) -> tuple[int, str]:
        status, printed = super().wait()
        wait_for_slurm(self.cluster, "squeue", "--noheader", until=lambda jobs: not jobs.strip())
        return status, printed


QUIET_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Ray gives its workers niceness 15, and the runs inherit it. With other tests on both cores they got next to no time:
the first run was at work after 160 s, and after 28 s with niceness 0."""
RAY_ADDRESS = "127.0.0.1:6379"


@contextmanager
def ray_head() -> Iterator[int]:
    """A head node of Ray that outlives its drivers, as on a cluster; the process whose network it is in.

    Raises `AssertionError` where no driver could connect within five minutes.
    """
    # Its sockets lie below: their paths may have 107 characters, which the folder of a test would use up.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        words = ["start", "--head", "--block", "--port=6379", "--num-cpus=2", "--include-dashboard=false"]
        log = Path(folder) / "head.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                [*ISOLATED, sys.executable, "-m", "ray.scripts.scripts", *words, f"--temp-dir={folder}"],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                # In a network of its own nobody needs to show a token, which `ray start` asks for by default.
                env={**os.environ, **QUIET_RAY, "RAY_AUTH_MODE": "disabled"},
                start_new_session=True,
            )
        try:
            wait_for(lambda: "Ray runtime started" in log.read_text() or process.poll() is not None, 300)
            assert process.poll() is None, log.read_text()
            yield process.pid
        finally:
            # What it has started ends with it: `--block` asks the kernel for that.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


@dataclass
class RayLauncher(Launcher):
    """`ablate run --on ray`, on a cluster that is up, or else on one that the command starts and ends."""

    patience_s: float = 300
    """A cluster of five processes that starts for a command: 12 s on an idle machine."""

    head: int | None = None
    """A process in the network of the cluster that is up (`ray_head`)."""

    def launch(self) -> None:
        words = [*self.words, "--on", "ray", "--tasks", str(self.at_once)]
        network = ISOLATED
        if self.head is not None:
            words += ["--address", RAY_ADDRESS]
            network = ["nsenter", f"--net=/proc/{self.head}/ns/net"]
        self.process = subprocess.Popen(
            [*network, sys.executable, "-m", "ablate", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **QUIET_RAY},
            start_new_session=True,
        )

    @property
    def scheduler(self) -> int:
        """The command itself, below the processes that isolate it."""
        return commands_of(self.house, "ablate run")[-1]


@dataclass
class CommandsLauncher(Launcher):
    """`ablate plan --commands`, its lines dealt to loops that run side by side on one folder."""

    loops: list[threading.Thread] = field(default_factory=list)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    stopped: bool = False

    def launch(self) -> None:
        status, printed = end(command("plan", str(self.path), "--commands"))
        assert status == 0, printed
        lines = [shlex.split(line) for line in printed.splitlines() if line.startswith("ablate train ")]
        lines = [line for line in lines if not self.only or set(self.only) & set(line)]
        self.stopped = False
        shares = [lines[first :: self.at_once] for first in range(self.at_once)]
        self.loops = [threading.Thread(target=self._loop, args=(share,)) for share in shares]
        for loop in self.loops:
            loop.start()

    def _loop(self, lines: list[list[str]]) -> None:
        """What a shell would do: one command after another, whatever became of the one before."""
        for words in lines:
            if self.stopped:
                return
            process = command(*words[1:])
            self.running.append(process)
            process.communicate()
            self.running.remove(process)

    @property
    def scheduler(self) -> int:
        """There is none: the process that makes a run stands in for it."""
        return self.running[0].pid

    def wait(self) -> tuple[int, str]:
        for loop in self.loops:
            loop.join(self.patience_s)
        return end(command("run", str(self.path), "--jobs", "0"))

    def close(self) -> None:
        self.stopped = True
        for process in list(self.running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for loop in self.loops:
            loop.join(30)


BY_NAME: dict[str, type[Launcher]] = {
    "local": LocalLauncher,
    "slurm": SlurmLauncher,
    "ray": RayLauncher,
    "commands": CommandsLauncher,
}


def require_ray() -> None:
    """Skip where Ray is not installed, or would listen on every address."""
    pytest.importorskip("ray")
    if subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here, and Ray would listen on every address")
