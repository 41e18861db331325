"""Run in a folder of its own, without a ledger or a scheduler: a trial, or a registered run that is made again."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

from ablate.gpt.device import CPU, choose_device
from ablate.records.provenance import NOT_STATED
from ablate.records.store import RunFolder
from ablate.runner.messages import Message
from ablate.runner.pool import Maker, Pool
from ablate.runner.process import Place, Spec, held
from prereg.errors import RunError
from prereg.registry.paths import Root


def rerun(
    spec: Spec,
    folder: Path,
    root: Root,
    *,
    made_on: str = CPU,
    until: int | None = None,
    onlooker: Callable[[Message], None] | None = None,
) -> RunFolder:
    """Make a registered run again in `folder`. Returns that folder, sealed, or after step `until` as it is then.

    By itself, on one device: a run that was made on an accelerator, on one where there is one. No ledger hears of it.
    `onlooker` hears of its progress. Raises `RunError` where the run fails or its process dies.
    """
    # Which device is free does not matter, of what kind it is does: a comparison across kinds would find other bits.
    device = choose_device(CPU if made_on in (CPU, NOT_STATED) else "auto")
    place = Place(root.path, device, until=until)
    # A run that had diverged ends so again, and that is no failure.
    last = run_alone(spec, folder, place, onlooker=onlooker)
    if last.status == "failed":
        raise RunError(f"the run failed: {last.error}", required="a run that ends")
    return RunFolder(folder)


def run_alone(
    spec: Spec,
    folder: Path,
    place: Place,
    *,
    limit_s: float | None = None,
    onlooker: Callable[[Message], None] | None = None,
) -> Message:
    """How a run ended: ended, or stopped, which it is `limit_s` seconds after it has begun.

    Raises `RunError` where its process dies.
    """
    home = RunFolder(folder)
    # Not in the run's folder: what the maker says is none of the run's output.
    with TemporaryFile("w+", encoding="utf-8") as log:
        # Resolved, since a trainer starts in another folder than this process.
        with Pool((spec,), replace(place, root=place.root.resolve()), log) as pool:
            maker = pool.fork()
            try:
                with held(home) as lock, suppress(OSError):
                    maker.make(spec, home, lock)
                last = _follow(maker, limit_s, onlooker)
            finally:
                maker.connection.close()  # a run that is still at work ends with it
        if last is None:
            log.seek(0)
            # Where the server died before it forked a maker, the exit status is the server's, and so are the lines.
            lines = " / ".join(log.read().strip().splitlines()[-3:])
            status = pool.process.returncode if maker.exit_status is None else maker.exit_status
            raise RunError(
                f"the run's process died (exit {status})" + (f"; its log ends: {lines}" if lines else ""),
                required="a run that ends",
            )
    return last


def _follow(maker: Maker, limit_s: float | None, onlooker: Callable[[Message], None] | None) -> Message | None:
    """Listen until the run has ended: how. None where its process is gone without a word."""
    ends_at: float | None = None
    while (messages := _heard(maker, ends_at)) is not None:
        # From the moment when the maker is ready: the import of torch is no time of the run.
        if ends_at is None and limit_s is not None and maker.is_ready:
            ends_at = time.monotonic() + limit_s
        for message in messages:
            if message.event in ("ended", "stopped"):
                return message
            if onlooker is not None and message.event == "progress":
                onlooker(message)
    return None


def _heard(maker: Maker, ends_at: float | None) -> list[Message] | None:
    """What a maker says next. It is stopped where that takes until the run is to end."""
    if ends_at is not None and not maker.stopping:
        left = max(0.0, ends_at - time.monotonic())
        if not select.select([maker.connection], [], [], left)[0]:
            maker.stop()
    return maker.receive()
