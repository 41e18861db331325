"""The ranks of a run, as the first one sees them: started, given orders, watched, ended. No pickle, no launcher.

The worker is the first rank. The others are its children and read orders on their standard input, one JSON object a
line; when the worker is gone, however it went, that input ends and they end with it, as the worker ends with its
scheduler. When one of them is killed, the worker goes too, even out of a collective operation that would wait for
ever: its scheduler sees the worker die, and has the run resumed from its checkpoint, a bounded number of times. One
that ends by an error of its own leaves the worker the time to meet the same error and record it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ablate.runner.placement import Spread
from ablate.training.distributed import Ranks, join, meeting_at, part
from prereg.registry import disk

PATIENCE_S = 10.0
LOST_A_RANK = 4
"""Exit status of a worker that has lost one of its ranks."""


class RankGroup:
    """The other ranks of this process' runs, from one run to the next."""

    def __init__(self, spread: Spread, corpora: Path, lost: Callable[[str], None] | None = None) -> None:
        """Start them and meet them. `lost` is called, from a thread, with what became of one that was not to end."""
        self._lost = lost if lost is not None else _end_this_process
        self._ending = False
        self._meeting = disk.make("ranks")  # nobody else may write there
        place = self._meeting / "ranks"
        self.others = [self._start() for _ in range(1, spread.devices)]
        for rank, other in enumerate(self.others, start=1):
            threading.Thread(target=self._watch, args=(rank, other), daemon=True).start()
            self._say(
                other,
                {
                    "do": "join",
                    "rank": rank,
                    "size": spread.devices,
                    "shard": spread.shard,
                    "place": str(place),
                    "corpora": str(corpora),
                },
            )
        store = meeting_at(place, spread.devices)
        self.ranks: Ranks = join(spread.shard, 0, spread.devices, store=store, send=self.send)

    def send(self, order: str, words: tuple[str | int, ...] = ()) -> None:
        """One order to all of them. One that has just died is noticed by its watcher."""
        for other in self.others:
            self._say(other, {"do": order, "words": list(words)})

    def killed(self, within_s: float = 1.0) -> bool:
        """Whether one was killed; a collective operation may break a moment before that can be seen."""
        for other in self.others:
            with suppress(subprocess.TimeoutExpired):
                if other.wait(within_s / len(self.others)) < 0:
                    return True
        return False

    def end(self) -> None:
        """End them all and leave them."""
        self._ending = True
        for other in self.others:
            self._say(other, {"do": "end"})
            with suppress(OSError):
                assert other.stdin is not None
                other.stdin.close()
        for other in self.others:
            try:
                other.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                other.kill()
                other.wait()
        part()
        disk.remove(self._meeting)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ablate.runner.builtin.rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def _say(self, other: subprocess.Popen[str], order: dict[str, object]) -> None:
        assert other.stdin is not None
        with suppress(OSError):
            other.stdin.write(json.dumps(order) + "\n")
            other.stdin.flush()

    def _watch(self, rank: int, other: subprocess.Popen[str]) -> None:
        status = other.wait()
        if status >= 0:
            time.sleep(PATIENCE_S)
        if not self._ending:
            self._lost(f"rank {rank} of a run died (exit {status})")


def _end_this_process(why: str) -> None:
    """No record is touched: the run stays as its last checkpoint left it."""
    print(why, file=sys.stderr, flush=True)
    disk.remove_all()
    os._exit(LOST_A_RANK)
