"""One run in a folder of its own, by a worker process like any other. No ledger and no scheduler.

The worker is the same program, started with the same environment as by `ablate run`: what it does there, it does here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer

from pydantic import ValidationError

from ablate.records.provenance import NOT_STATED
from ablate.records.store import RunFolder
from ablate.runner.layout import WHOLE, Spread
from ablate.runner.messages import Message
from ablate.runner.processes import Spec, WorkerProcess, start_worker
from ablate.training.device import CPU, choose_device
from prereg.errors import RunError
from prereg.registry.paths import Root
from prereg.registry.plan import CommandSpec
from prereg.registry.registration import folder_of_study

PATIENCE_S = 10.0


def make_again(
    spec: Spec,
    folder: Path,
    root: Root,
    *,
    made_on: str = CPU,
    until: int | None = None,
    spread: Spread | None = None,
    onlooker: Callable[[Message], None] | None = None,
) -> RunFolder:
    """The folder of a registered run, sealed, or after step `until` as it is then. Raises `RunError` where it fails.

    By itself, on one device: a run that was made on an accelerator, on one where there is one.
    """
    study_folder = folder_of_study(root, spec.study)
    device = choose_device(CPU if made_on in (CPU, NOT_STATED) else "auto")
    alone = {"until": until}
    last = run_alone(
        spec, folder, root, study_folder, device=device, spread=spread or WHOLE, order=alone, onlooker=onlooker
    )
    if last.status == "failed":
        raise RunError(f"the run failed: {last.error}", required="a run that ends")
    return RunFolder(folder)


def run_alone(
    spec: Spec,
    folder: Path,
    root: Root,
    study_folder: Path,
    *,
    device: str = CPU,
    spread: Spread = WHOLE,
    order: Mapping[str, object] | None = None,
    limit_s: float | None = None,
    onlooker: Callable[[Message], None] | None = None,
) -> Message:
    """What a worker says at the end of a run: ended, or stopped, which it is `limit_s` seconds after it has begun.

    `order` adds to what the scheduler would send. Raises `RunError` where the worker dies.
    """
    with TemporaryFile("w+", encoding="utf-8") as log:
        own = isinstance(spec, CommandSpec)
        worker = WorkerProcess(start_worker(own=own, log=log, device=device, spread=spread), 0)
        limit = Timer(limit_s or 0.0, worker.send, ({"do": "stop"},))
        try:
            worker.send(
                {
                    "do": "run",
                    "spec": spec.model_dump(mode="json"),
                    "folder": str(folder),
                    "corpora": str(root.corpora),
                    "root": str(root.path),
                    "study_folder": str(study_folder),
                    "device": device,
                    "spread": asdict(spread),
                    **(order or {}),
                }
            )
            last, silent_s = _follow(worker, onlooker, limit if limit_s is not None else None)
        finally:
            limit.cancel()
            worker.end(PATIENCE_S)  # the end of its input ends a worker, whatever it is at, with its child
            assert worker.process.stdout is not None
            worker.process.stdout.close()
        if last is None or last.event not in ("ended", "stopped"):
            overdue = None if last is None else last.overdue(silent_s, worker.process.returncode)
            if overdue is not None:
                raise RunError(f"the run failed: {overdue}", required="a run that ends")
            log.seek(0)
            said = " / ".join(log.read().strip().splitlines()[-3:])
            raise RunError(
                f"the worker died (exit {worker.process.returncode})" + (f"; its last words: {said}" if said else ""),
                required="a run that ends",
            )
    return last


def _follow(
    worker: WorkerProcess, onlooker: Callable[[Message], None] | None, limit: Timer | None
) -> tuple[Message | None, float]:
    """Listen until the run has ended. The last words, of a worker that went away too, and the silence after them."""
    assert worker.process.stdout is not None
    last, heard = None, time.monotonic()
    for line in worker.process.stdout:
        try:
            message = Message.model_validate_json(line)
        except ValidationError:
            return None, 0.0
        if message.waits:
            worker.send({"do": "noted"})  # this run is in no ledger
        if message.event == "begun" and limit is not None:
            limit.start()
        if message.event in ("ready", "begun"):
            continue
        last, heard = message, time.monotonic()
        if message.event in ("ended", "stopped"):
            break
        if onlooker is not None and message.event == "progress":
            onlooker(message)
    return last, time.monotonic() - heard
