"""Progress while runs are made: a live display, plain lines, or JSON lines. Progress only, by design.

Nothing here knows a variant's loss: while a study is unfinished, a display that let one arm look better
than another would be an unregistered look at the outcome.

To add a display: a class with the four methods of `Watcher`, its choice in `ablate.cli.runs`, and
tests/runner/test_watch.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import IO, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ablate.runner.messages import Message
from prereg.escape import visible

PLAIN_EVERY_S = 10.0
"""Between two lines of a log."""


@dataclass
class Tally:
    """Progress of a study.

    >>> tally = Tally(planned=4, steps_planned=400, sealed=1, steps_done=100)
    >>> tally.hear("width/1f/wide/0", Message(event="progress", step=50))
    >>> tally.steps
    150
    """

    planned: int
    """Runs of this call, sealed ones among them."""
    steps_planned: int
    """Steps of all of them; 0 where a trainer of the user's own decides."""
    sealed: int = 0
    failed: int = 0
    steps_done: int = 0
    """Steps of runs that have ended, in this call or before it."""
    steps_before: int = 0
    """Steps of runs that had ended when this call began: they say nothing of its speed."""
    ended_before: int = 0
    """Runs that had."""
    has_tasks: bool = False
    """Whether tasks are evaluated once runs are trained."""
    running: dict[str, Message] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def hear(self, run_id: str, message: Message) -> None:
        """What a run last said of itself."""
        self.running[run_id] = message

    @property
    def steps(self) -> int:
        """Steps taken, running ones included."""
        return self.steps_done + sum(message.step for message in self.running.values())

    @property
    def steps_per_s(self) -> float:
        """Steps of all runs together, evaluation included, since this call began."""
        seconds = time.monotonic() - self.started
        return (self.steps - self.steps_before) / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far; none before a fiftieth of this call's work has shown what the speed is.

        Where a run is more than its planned steps, because tasks follow or none are planned, by its runs that have
        ended; until one has, the time left is that of training alone.
        """
        # A plain mean: the speed of the last seconds would jump with each evaluation.
        taken, to_take = self.steps - self.steps_before, self.steps_planned - self.steps_before
        n_ended = self.sealed + self.failed
        if (not self.steps_planned or self.has_tasks) and n_ended > self.ended_before:
            each_s = (time.monotonic() - self.started) / (n_ended - self.ended_before)
            return (self.planned - n_ended) * each_s
        if not taken * 50 >= to_take > 0:
            return None
        return (self.steps_planned - self.steps) / self.steps_per_s

    def line(self) -> str:
        """The state in one line."""
        left = self.seconds_left
        no_run_ended = self.sealed + self.failed == self.ended_before
        still = " of training, then the evaluation tasks" if self.has_tasks and no_run_ended else ""
        when = "time left unknown" if left is None else f"{clock(left)} left{still}"
        return (
            f"{self.sealed}/{self.planned} runs done, {len(self.running)} running, {self.failed} failed, "
            f"{self.steps_per_s:.1f} steps/s, {when}"
        )

    def doing(self) -> list[str]:
        """What runs do besides training, one line each."""
        return [
            f"{short_run_id(run_id)}: {activity}"
            for run_id, m in sorted(self.running.items())
            if (activity := doing(m))
        ]


def short_run_id(run_id: str) -> str:
    """VARIANT/SEED, the end of a run's id.

    >>> short_run_id("width/1f2e/wide/3")
    'wide/3'
    """
    return "/".join(run_id.split("/")[-2:])


def doing(message: Message) -> str:
    """What a run does besides its steps; nothing while it trains.

    >>> doing(Message(event="progress", doing="asking blimp", seconds_left=75))
    'asking blimp, 1 min 15 s left'
    """
    if not message.doing or message.seconds_left is None:
        return message.doing
    return f"{message.doing}, {clock(message.seconds_left)} left"


class Watcher(Protocol):
    """What a scheduler reports to."""

    def watching(self, tally: Tally) -> AbstractContextManager[None]: ...
    def tick(self, tally: Tally) -> None: ...
    def ended(self, run_id: str, message: Message) -> None: ...
    def note(self, text: str) -> None: ...


def ending(run_id: str, message: Message) -> str:
    """How a run ended, and why where it failed or diverged.

    >>> why = "train/loss is not finite at step 7"
    >>> ending("own/1f/fast/3", Message(event="ended", status="diverged", divergence=why))
    'own/1f/fast/3: diverged: train/loss is not finite at step 7'
    """
    why = message.error or message.divergence
    return f"{run_id}: {message.status}" + (f": {why}" if why else "")


class PlainWatcher:
    """One line now and then: for logs and pipes."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._last = 0.0

    @contextmanager
    def watching(self, tally: Tally) -> Iterator[None]:
        self._print(tally.line())
        yield
        self._print(tally.line())

    def tick(self, tally: Tally) -> None:
        if time.monotonic() - self._last > PLAIN_EVERY_S:
            self._print(tally.line(), *tally.doing())

    def ended(self, run_id: str, message: Message) -> None:
        if message.status != "done":
            self._print(ending(run_id, message))

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, *lines: str) -> None:
        self._last = time.monotonic()
        print("\n  ".join(visible(line) for line in lines), file=self.stream, flush=True)


class JsonWatcher:
    """One JSON object a line: for machines."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._last = 0.0

    @contextmanager
    def watching(self, tally: Tally) -> Iterator[None]:
        self._state(tally)
        yield
        self._state(tally)

    def tick(self, tally: Tally) -> None:
        if time.monotonic() - self._last > 1.0:
            self._state(tally)

    def ended(self, run_id: str, message: Message) -> None:
        ended: dict[str, object] = {"event": "ended", "run": run_id, "status": message.status, "error": message.error}
        self._say(ended | ({"divergence": message.divergence} if message.divergence else {}))

    def note(self, text: str) -> None:
        self._say({"event": "note", "text": text})

    def _state(self, tally: Tally) -> None:
        self._last = time.monotonic()
        self._say(
            {
                "event": "state",
                "planned": tally.planned,
                "done": tally.sealed,
                "running": sorted(tally.running),
                "doing": {run_id: m.doing for run_id, m in sorted(tally.running.items()) if m.doing},
                "failed": tally.failed,
                "steps": tally.steps,
                "steps_planned": tally.steps_planned,
                "steps_per_s": round(tally.steps_per_s, 3),
                "seconds_left": tally.seconds_left,
            }
        )

    def _say(self, value: dict[str, object]) -> None:
        print(json.dumps(value), file=self.stream, flush=True)


class LiveWatcher:
    """A live table for a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None

    @contextmanager
    def watching(self, tally: Tally) -> Iterator[None]:
        with Live(self._screen(tally), console=self.console, refresh_per_second=4, transient=True) as live:
            self._live = live
            yield
        self._live = None
        self.console.print(tally.line(), highlight=False)

    def tick(self, tally: Tally) -> None:
        if self._live is not None:
            self._live.update(self._screen(tally))

    def ended(self, run_id: str, message: Message) -> None:
        if message.status != "done":
            self.note(ending(run_id, message))

    def note(self, text: str) -> None:
        self.console.print(Text(visible(text)), highlight=False)

    def _screen(self, tally: Tally) -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("run", "step", "steps/s", "loss falls", ""):
            table.add_column(column, justify="left" if column in ("run", "") else "right")
        for run_id, message in sorted(tally.running.items()):
            falls = {None: "…", True: "yes", False: "not yet"}[message.falling]
            table.add_row(
                Text(short_run_id(run_id)),
                f"{message.step}/{message.steps}" if message.steps else str(message.step),
                f"{message.steps_per_s:.1f}",
                falls,
                Text(visible(doing(message))),
            )
        return Group(Text(tally.line()), *([table] if tally.running else ()))


def clock(seconds: float) -> str:
    """Seconds as one would say them.

    >>> clock(75), clock(3600)
    ('1 min 15 s', '1 h 00 min')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
