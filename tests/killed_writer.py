"""A process that makes one run and is struck while it writes a checkpoint: killed, or out of room on the disk.

Read from stdin, as one JSON list: ROOT, SPEC, FOLDER, MODE, NUMBER... One child process a number, each in
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
from collections.abc import Iterable
from pathlib import Path

from gpt_runs import carry_out

from ablate.gpt.checkpoints import LiveRows
from ablate.records.rows import Row
from prereg.registry.plan import RunSpec

STRUCK = 3


def main() -> None:
    root, given, folder, mode, *numbers = json.loads(sys.stdin.readline())
    spec = RunSpec.model_validate_json(Path(given).read_text())
    ends = []
    for number in map(int, numbers):
        child = os.fork()
        if not child:
            run(Path(root), spec, Path(folder) / str(number), mode, number)
            os._exit(0)
        ends.append(os.waitpid(child, 0)[1])
    print(json.dumps(ends), flush=True)


def run(root: Path, spec: RunSpec, folder: Path, mode: str, number: int) -> None:
    append, fsync, replace = LiveRows.append, os.fsync, Path.replace
    at = {"checkpoint": 0, "operation": 0}

    def counted(self: LiveRows, rows: Iterable[Row], *, durable: bool = False) -> None:
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

    LiveRows.append = counted  # type: ignore[method-assign]
    os.fsync = synced  # type: ignore[assignment]
    Path.replace = replaced  # type: ignore[assignment,method-assign]
    ended = carry_out(root, folder, spec, checkpoint_every_s=0.0)
    (folder / "said.json").write_text(ended.model_dump_json())


if __name__ == "__main__":
    main()
