"""A process that makes one run and is struck while it writes a checkpoint: killed, or out of room on the disk.

Read from stdin, as one JSON list: CORPORA, SPEC, FOLDER, MODE, NUMBER... One child process a number, each in
FOLDER/NUMBER; the parent says how each of them ended. The blow falls
in the third checkpoint, before the operation of that number that makes a write durable. MODE is `kill`, `torn` (half of
what was to be made durable is lost, then killed) or `full` (no file may grow past NUMBER KiB).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import torch

from ablate.records.store import Row, RunFolder
from ablate.runner.builtin.run import Worker
from ablate.runner.messages import Message
from prereg.registry.plan import RunSpec

STRUCK = 3


def main() -> None:
    corpora, given, folder, mode, *numbers = json.loads(sys.stdin.readline())
    spec = RunSpec.model_validate_json(Path(given).read_text())
    ends = []
    for number in map(int, numbers):
        child = os.fork()
        if not child:
            run(Path(corpora), spec, Path(folder) / str(number), mode, number)
            os._exit(0)
        ends.append(os.waitpid(child, 0)[1])
    print(json.dumps(ends), flush=True)


def run(corpora: Path, spec: RunSpec, folder: Path, mode: str, number: int) -> None:
    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    append, fsync, replace = RunFolder.append, os.fsync, Path.replace
    at = {"checkpoint": 0, "operation": 0}

    def counted(self: RunFolder, rows: Iterable[Row], *, durable: bool = False) -> None:
        if durable:  # with this every checkpoint begins
            at["checkpoint"] += 1
            at["operation"] = 0
            if mode == "full" and at["checkpoint"] == STRUCK:
                resource.setrlimit(resource.RLIMIT_FSIZE, (number * 1024, resource.RLIM_INFINITY))
        append(self, rows, durable=durable)

    def struck(descriptor: int | None = None) -> None:
        if mode != "full" and (at["checkpoint"], at["operation"]) == (STRUCK, number):
            if mode == "torn" and descriptor is not None:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        at["operation"] += 1

    def synced(descriptor: int) -> None:
        # What stood in a file before was made durable earlier; only what is new can be lost.
        struck(descriptor if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".tmp" else None)
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        struck()
        return replace(self, target)

    RunFolder.append = counted  # type: ignore[method-assign]
    os.fsync = synced  # type: ignore[assignment]
    Path.replace = replaced  # type: ignore[assignment,method-assign]
    said: list[Message] = []
    Worker(corpora, said.append, threading.Event(), checkpoint_every_s=0.0).carry_out(spec, RunFolder(folder))
    (folder / "said.json").write_text(said[-1].model_dump_json())


if __name__ == "__main__":
    main()
