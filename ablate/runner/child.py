"""One process of the user's own: started in a group of its own, its output kept in bounds, ended with all it started.

A child must not outlive the process that started it, or two processes might train in one folder. The run's process ends
it when the scheduler is gone. A run's process that is killed itself cannot: so it has left the child's number and time
of birth in the run's folder, and whoever resumes the run ends that process first, if it still is the same one.

A process that leaves its group (setsid, a daemon) becomes a child of the run's process on Linux when its parent ends
(`adopt_orphans`): it is found there when the run ends, ended too, and named in the run's record. Elsewhere, and in a
container, it is beyond reach.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Protocol

from prereg.escape import visible
from prereg.registry.disk import write_passing

HEAD_BYTES = 256 * 2**10
TAIL_BYTES = 768 * 2**10
TERM_PATIENCE_S = 30.0
"""What a child that is sent SIGTERM has, to save its state."""
_PIECE = 64 * 2**10
_DRAIN_S = 5.0
_PR_SET_CHILD_SUBREAPER = 36


class Started(Protocol):
    """The part of `subprocess.Popen` by which a trainer's process is handled."""

    pid: int
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """Its exit status, or none while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status once it has ended. Raises `subprocess.TimeoutExpired`."""


Start = Callable[[Sequence[str], Path, Mapping[str, str]], Started]
"""Starts words in a folder with an environment, in a session of their own."""


def start_program(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Started:
    """A program in a session of its own."""
    return subprocess.Popen(
        words,
        cwd=home,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


class Child:
    """A started process."""

    left: tuple[str, ...] = ()
    """What it left behind outside its group, as `name (pid)`: known, and ended, after `finish`."""

    def __init__(self, process: Started, folder: Path) -> None:
        """What is known of the process goes into `folder`, a run's."""
        self.folder = folder
        self.process = process
        known = {"pid": self.process.pid, "born": born(self.process.pid)}
        write_passing(_mark(folder), json.dumps(known).encode())
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout = Kept(self.process.stdout, folder / "stdout.txt")
        self.stderr = Kept(self.process.stderr, folder / "stderr.txt")

    def ended(self) -> int | None:
        """The exit status, or none while it runs."""
        return self.process.poll()

    def stop(self) -> None:
        """Ask it to end, and do not take no for an answer."""
        _signal(self.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(TERM_PATIENCE_S)

    def kill(self) -> None:
        """End it and all of its group at once."""
        _signal(self.process.pid, signal.SIGKILL)

    def finish(self) -> int:
        """End what is left of its group, and close its books. Returns the exit status."""
        self.kill()
        status = self.process.wait()
        self.left = _end_orphans() if _adopting else ()
        self.stdout.close()
        self.stderr.close()
        _mark(self.folder).unlink(missing_ok=True)
        return status


class Kept:
    """The beginning and the end of a stream, in a file; what lies between is counted and dropped."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.path = path
        self._stream = stream
        self._written = self._dropped = self._held = 0
        self._tail: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._file = path.open("wb")
        self._ended = threading.Event()
        _thread.start_new_thread(self._read, ())  # a Thread would wait until it runs: a millisecond for each run

    def close(self) -> None:
        """Everything that was said is in the file afterwards."""
        self._ended.wait(_DRAIN_S)
        with self._lock:
            if self._dropped:
                self._file.write(f"\n[{self._dropped:,} bytes left out]\n".encode())
            self._file.write(b"".join(self._tail))
            self._tail.clear()
            self._file.close()

    def last_lines(self) -> list[str]:
        """The last three lines that are not blank, printable, each cut to a length that can be read. After `close`."""
        text = self.path.read_bytes()[-_PIECE:].decode("utf-8", errors="replace")
        lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
        return [line if len(line) <= 200 else line[:197] + "..." for line in lines if line][-3:]

    def _read(self) -> None:
        try:
            with self._stream:
                while piece := os.read(self._stream.fileno(), _PIECE):
                    with self._lock:
                        if self._file.closed:
                            return
                        self._take(piece)
        finally:
            self._ended.set()

    def _take(self, piece: bytes) -> None:
        left = HEAD_BYTES - self._written
        if left > 0:
            self._file.write(piece[:left])
            self._file.flush()
            self._written += len(piece[:left])
            piece = piece[left:]
        if piece:
            self._tail.append(piece)
            self._held += len(piece)
        while self._held > TAIL_BYTES:
            self._held -= len(self._tail[0])
            self._dropped += len(self._tail.popleft())


def end_leftover(folder: Path) -> bool:
    """End a child that a killed process left behind in a run's folder. Whether there was one."""
    try:
        known = json.loads(_mark(folder).read_bytes())
        pid, birth = int(known["pid"]), known["born"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    alive = birth is not None and born(pid) == birth
    if alive:
        _signal(pid, signal.SIGKILL)
        deadline = time.monotonic() + _DRAIN_S
        while born(pid) == birth and time.monotonic() < deadline:
            time.sleep(0.02)
    _mark(folder).unlink(missing_ok=True)
    return alive


_adopting = False


def adopt_orphans() -> None:
    """Become the parent of whatever the children of this process leave behind. A process that has other children, such
    as a notebook, becomes none: they could not be told apart."""
    global _adopting  # noqa: PLW0603 - the kernel keeps this for the process
    if _has_children():
        return
    with suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _end_orphans() -> tuple[str, ...]:
    """End every living child of this process, and what these leave behind in turn; their names."""
    found: dict[int, str] = {}
    deadline = time.monotonic() + _DRAIN_S
    while _has_children() and (children := _children()) and time.monotonic() < deadline:
        for pid, name in children.items():
            if born(pid) is not None:
                found[pid] = name
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    return tuple(f"{name} ({pid})" for pid, name in found.items())


def _has_children() -> bool:
    """Whether this process has children, alive or not: checked first, because naming them takes a look at all processes
    of the machine."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> dict[int, str]:
    """The children of this process by number, with their names."""
    found: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            head, _, rest = place.read_text(errors="replace").rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found[int(place.parent.name)] = visible(head.partition("(")[2])
    return found


def born(pid: int) -> str | None:
    """When a living process was started, such that no other process of this machine has the same pid and time."""
    place = Path("/proc") / str(pid) / "stat"
    if Path("/proc/self/stat").exists():
        try:
            fields = place.read_text().rpartition(")")[2].split()
            return None if fields[0] in ("Z", "X") else f"{_boot()} {fields[19]}"
        except OSError:
            return None
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return None if not output or output.startswith("Z") else output.partition(" ")[2].strip()


@cache
def _boot() -> str:
    """Which start of this machine it is."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _mark(folder: Path) -> Path:
    return folder / "child.json"
