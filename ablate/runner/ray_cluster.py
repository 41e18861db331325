"""Ray: a study on its cluster, each run a task that calls `ablate train`. Every node must see the study's folder.

Ray does not repeat a task by itself here: the scheduler puts each attempt on record before it begins, and asks for
another task where the worker or the node of one was lost.

    task's worker ─▶ this module as a process ─▶ `ablate train`, by exec

A worker that is killed would leave its child at work, in a folder that the next attempt wants. So the process between
asks the kernel for SIGTERM when its parent ends (Linux), and then becomes the command itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from prereg.errors import RunError

_PR_SET_PDEATHSIG = 1
"""Of linux/prctl.h; Python has no name for it."""


class RayCluster:
    """A cluster that is connected: how many runs it can make side by side, and the tasks that make them."""

    def __init__(self, ray: Any, tasks: int | None) -> None:
        self._ray = ray
        resources = ray.cluster_resources()
        self.n_gpus = 1 if resources.get("GPU") else 0
        self.n_tasks = tasks or int(resources.get("GPU" if self.n_gpus else "CPU", 1))
        # max_retries=0: Ray would start a lost run again without a word, and that start would not be on record.
        self._task = ray.remote(num_cpus=1, num_gpus=self.n_gpus, max_retries=0)(train_in_task)
        self._name_by_task: dict[Any, str] = {}

    def start(self, name: str, words: Sequence[str]) -> None:
        """Ask for a task that makes a run; `words` are those of `ablate`."""
        self._name_by_task[self._task.remote(list(words))] = name

    def wait(self, seconds: float) -> list[tuple[str, int | None, str]]:
        """The runs whose tasks have ended within some seconds: name, exit status (none where the task was lost), and
        the last line of what was printed."""
        if not self._name_by_task:  # Ray refuses to wait for nothing
            time.sleep(seconds)
            return []
        ended, _ = self._ray.wait(list(self._name_by_task), num_returns=1, timeout=seconds)
        results = []
        for task in ended:
            name = self._name_by_task.pop(task)
            try:
                status, last_line = self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                # Worker or node lost: no exit status exists.
                status, last_line = None, str(error).strip().splitlines()[0]
            results.append((name, status, last_line))
        return results


def require_ray() -> Any:
    """The module. Raises `RunError` where it is not installed."""
    try:
        import ray
    except ModuleNotFoundError:
        fix = "pip install 'ablate-prereg[ray]'"
        raise RunError("--on ray, and ray is not installed", required="the extra ray", fix=fix) from None
    return ray


@contextmanager
def connected(address: str | None, tasks: int | None) -> Iterator[RayCluster]:
    """A cluster by its address, or one on this machine. Tasks that have not ended are ended with the block.

    Raises `RunError` where Ray is not installed or no cluster answers.
    """
    ray = require_ray()
    try:
        # Else what tasks print would break up the live table.
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        first_line = str(error).splitlines()[0]
        fix = "--address HOST:PORT of a head node, or leave it out for one on this machine"
        raise RunError(f"no Ray cluster: {first_line}", required="a cluster that answers", fix=fix) from None
    try:
        yield RayCluster(ray, tasks)
    finally:
        ray.shutdown()


def train_in_task(words: list[str]) -> tuple[int, str]:
    """One task: one run. The exit code of `ablate train`, and its last line."""
    command = [sys.executable, "-m", __name__, str(os.getpid()), *words]
    child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return child.returncode, (child.stdout.strip().splitlines() or [""])[-1]


def main() -> None:
    """Be the command that a task runs, sent SIGTERM when the task's worker is gone, so that its run saves and ends."""
    parent, words = int(sys.argv[1]), sys.argv[2:]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # A parent that died before the call above sends nothing any more; the check after it leaves no gap.
    if os.getppid() == parent:
        os.execv(sys.executable, [sys.executable, "-m", "ablate", *words])  # noqa: S606


if __name__ == "__main__":
    main()
