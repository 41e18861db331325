"""A study on a Ray cluster: its parts as Ray tasks. Every node must see the study's folder.

Ray repeats a task whose worker or node was lost. The part of a repeated task resumes what it finds, as any part does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from prereg.errors import RunError

RETRIES = 20
"""How often Ray repeats a task whose node was lost."""
_PR_SET_PDEATHSIG = 1


def run_parts(
    words: Sequence[str], *, tasks: int | None, left: int, address: str | None, note: Callable[[str], None]
) -> None:
    """Make what is left by parts that run as tasks of a cluster, and wait for them. Raises `RunError` without one.

    `words` are those of `ablate run`, without the part. A task takes one CPU, and one GPU where the cluster has any.
    """
    try:
        import ray
    except ModuleNotFoundError:
        fix = "pip install 'ablate-prereg[ray]'"
        raise RunError("--on ray, and ray is not installed", required="the extra ray", fix=fix) from None
    try:
        ray.init(address=address, include_dashboard=False if address is None else None, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = str(error).splitlines()[0]
        fix = "--address HOST:PORT of a head node, or leave it out for one on this machine"
        raise RunError(f"no Ray cluster: {said}", required="a cluster that answers", fix=fix) from None
    try:
        there = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = 1 if there.get("GPU") else 0
        room = int(there.get("GPU" if gpus else "CPU", 1))
        n = min(tasks or room, left)
        note(f"{n} parts as Ray tasks, each with {'a GPU' if gpus else 'a CPU'}")
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(make_part)
        waiting: list[Any] = [task.remote(list(words), number, n) for number in range(1, n + 1)]
        while waiting:
            ended, waiting = ray.wait(waiting, num_returns=1)
            for one in ended:
                status, said = ray.get(one)
                if status:
                    note(f"a part ended with exit code {status}: {said}")
    finally:
        ray.shutdown()


def make_part(words: list[str], number: int, of: int) -> tuple[int, str]:
    """One task: a part, which ends with the worker of the task. Its exit code, and its last line."""
    command = [sys.executable, "-m", __name__, str(os.getpid()), *words, "--part", f"{number}/{of}"]
    child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return child.returncode, (child.stdout.strip().splitlines() or [""])[-1]


def main() -> None:
    """Be the part that a task makes, sent SIGTERM when the task's worker is gone, so that its runs are free at once."""
    parent, words = int(sys.argv[1]), sys.argv[2:]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:
        os.execv(sys.executable, [sys.executable, "-m", "ablate", *words])  # noqa: S606


if __name__ == "__main__":
    main()
