"""Child process, the user's own trainer: its own process group, its output kept in bounds, ended with all it started.

A child must not outlive the process that started it, or two processes might train in one folder. The run's process ends
it when the scheduler is gone. A run's process that is killed itself cannot: so it has left the child's number and time
of birth in the run's folder, and what resumes the run ends that process first, if it still is the same one.

A process that leaves its group (setsid, a daemon) becomes a child of the run's process on Linux when its parent ends
(`adopt_orphans`): it is found there when the run ends, ended too, and named in the run's record. Elsewhere, and in a
container, it is beyond reach.

A pid alone names no process: the kernel gives it to another one sooner or later. So `end_leftover` compares the time of
birth first. A child of this process is safe: the kernel keeps its pid until somebody has waited for it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import IO, Protocol

from prereg.escape import visible
from prereg.registry.disk import write_passing

HEAD_BYTES = 256 * 2**10
TAIL_BYTES = 768 * 2**10
"""What is kept of a stream: its first and its last bytes, so that a trainer that prints without end fills no disk."""
TERM_PATIENCE_S = 30.0
"""What a child that is sent SIGTERM has, to save its state."""
_PIECE = 64 * 2**10
"""Bytes of one read: what a pipe of Linux holds."""
_DRAIN_S = 5.0
_GLIMPSE_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36
"""Of linux/prctl.h; Python has no name for it."""


class Started(Protocol):
    """A trainer's process, as it is handled here: `Process`, or what a test has in its place."""

    pid: int
    stdout: IO[bytes]
    stderr: IO[bytes]
    peak_memory_bytes: int
    """Most resident memory of it and of the processes that it waited for, once it has ended; 0 before."""

    def poll(self) -> int | None:
        """Its exit status, or none while it runs; minus the number of a signal that ended it."""


Start = Callable[[Sequence[str], Path, Mapping[str, str]], Started]
"""Starts words in a folder with an environment, in a session of their own."""


class Process:
    """A child process and the ends of its pipes. Waited for by `wait4`, which tells the memory of this child alone:
    what `getrusage` says of children is the most of all that a process ever had."""

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.peak_memory_bytes = 0
        self._status: int | None = None

    def poll(self) -> int | None:
        """Its exit status, or none while it runs; minus the number of a signal that ended it."""
        if self._status is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
                self.peak_memory_bytes = _peak_bytes(usage)
        return self._status


def start_program(words: Sequence[str], home: Path, environment: Mapping[str, str]) -> Process:
    """Start a program in a session of its own. Raises `OSError` where it cannot be started.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     process = start_program([sys.executable, "-c", "print('trained')"], Path(folder), os.environ)
    ...     process.stdout.read()
    ...     while process.poll() is None:
    ...         time.sleep(0.01)
    b'trained\\n'
    >>> process.poll()
    0
    >>> process.stdout.close(), process.stderr.close()
    (None, None)
    """
    # Its own session and group: Ctrl-C in a terminal reaches the scheduler alone, and one killpg all that it started.
    started = subprocess.Popen(
        words,
        cwd=home,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # raw pipes: select says nothing of what a buffer of ours holds
        start_new_session=True,
    )
    assert started.stdout is not None and started.stderr is not None
    started.returncode = 0  # it is waited for by `Process`, and Popen warns of one that is not
    return Process(started.pid, started.stdout, started.stderr)


class Child:
    """A trainer's process at work: its output, its end, and what it leaves behind."""

    left: tuple[str, ...] = ()
    """What it left behind outside its group, as `name (pid)`: known, and ended, after `finish`."""

    peak_memory_bytes: int = 0
    """Most resident memory of it, or of a process that it started: known after `finish`."""

    def __init__(self, process: Started, folder: Path) -> None:
        """What is known of the process goes into `folder`, a run's."""
        self.folder = folder
        self.process = process
        identity = {"pid": self.process.pid, "born": born(self.process.pid)}
        try:
            # Not synced: after a loss of power there is no process to find, and `_boot` tells one start from another.
            write_passing(_mark(folder), json.dumps(identity).encode())
            self.stdout = CappedLog(self.process.stdout, folder / "stdout.txt")
            self.stderr = CappedLog(self.process.stderr, folder / "stderr.txt")
        except OSError:  # on a full disk: what nobody knows of must not go on
            self.kill()
            while self.ended() is None:
                time.sleep(_GLIMPSE_S)
            raise

    @property
    def output(self) -> list[IO[bytes]]:
        """The pipes that are still open, to wait for; `read_output` takes what arrives."""
        return [capped.stream for capped in (self.stdout, self.stderr) if not capped.ended]

    def read_output(self) -> None:
        """Keep what has been printed by now. A child whose pipe is full waits for this."""
        for stream in select.select(self.output, [], [], 0.0)[0]:
            (self.stdout if stream is self.stdout.stream else self.stderr).read()

    def ended(self) -> int | None:
        """The exit status, or none while it runs."""
        return self.process.poll()

    def stop(self) -> None:
        """Ask it to end, and wait as long as it may take to save its state."""
        _signal(self.process.pid, signal.SIGTERM)
        self._wait(TERM_PATIENCE_S)

    def kill(self) -> None:
        """End it and all of its group at once."""
        _signal(self.process.pid, signal.SIGKILL)

    def finish(self) -> int:
        """End what is left of its group, and close its books. Returns the exit status."""
        # First the group, then what left it: a child of the group could start another one in the meantime.
        self.kill()
        while (status := self._wait(_DRAIN_S)) is None:
            pass
        self.left, peak = _end_orphans() if _adopting else ((), 0)
        self.peak_memory_bytes = max(self.process.peak_memory_bytes, peak)
        # What it printed last. A process that nobody here can end may hold the pipes open.
        deadline = time.monotonic() + _DRAIN_S
        while self.output and (left := deadline - time.monotonic()) > 0:
            select.select(self.output, [], [], left)
            self.read_output()
        _mark(self.folder).unlink(missing_ok=True)
        with closing(self.stdout), closing(self.stderr):
            return status

    def _wait(self, seconds: float) -> int | None:
        """Its exit status where it ends within some seconds."""
        deadline = time.monotonic() + seconds
        while (status := self.ended()) is None and time.monotonic() < deadline:
            select.select(self.output, [], [], _GLIMPSE_S)  # its end closes them, unless it leaves a process behind
            self.read_output()
        return status


class CappedLog:
    """The beginning and the end of a stream, in a file; what lies between is counted and dropped."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream, self.path = stream, path
        self.ended = False
        """Whether nothing more can come."""
        self._written = self._dropped = self._held = 0
        self._tail: deque[bytes] = deque()
        self._file = path.open("wb")
        self._error: OSError | None = None

    def read(self) -> None:
        """Take in the next piece of a stream that has one."""
        piece = os.read(self.stream.fileno(), _PIECE)
        self.ended = not piece
        left = HEAD_BYTES - self._written
        if left > 0 and piece:
            self._written += len(piece[:left])
            self._write(piece[:left])
            piece = piece[left:]
        if piece:
            self._tail.append(piece)
            self._held += len(piece)
        while self._held > TAIL_BYTES:
            self._held -= len(self._tail[0])
            self._dropped += len(self._tail.popleft())

    def close(self) -> None:
        """Everything that was read is in the file afterwards. Raises `OSError` where that could not be written."""
        if self._dropped:
            self._write(f"\n[{self._dropped:,} bytes left out]\n".encode())  # a reader must see that bytes are missing
        if self._tail:
            self._write(b"".join(self._tail))
        self.stream.close()
        with suppress(OSError):  # what could not be flushed is tried again
            self._file.close()
        if self._error is not None:
            raise self._error

    def _write(self, data: bytes) -> None:
        """On a full disk the process is first brought to its end."""
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self._error = self._error or OSError(error.errno, error.strerror, str(self.path))

    def last_lines(self) -> list[str]:
        """The last three lines that are not blank, printable, each cut to a length that can be read. After `close`."""
        # The cut may fall inside a character of UTF-8, and a progress bar writes bytes of any kind.
        text = self.path.read_bytes()[-_PIECE:].decode("utf-8", errors="replace")
        lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
        return [line if len(line) <= 200 else line[:197] + "..." for line in lines if line][-3:]


def end_leftover(folder: Path) -> bool:
    """End a child that a killed process left behind in a run's folder. Returns whether there was one.

    The caller holds the folder's lock, and a trainer writes in the folder as long as it lives. So this comes before
    anything there is read.
    """
    try:
        identity = json.loads(_mark(folder).read_bytes())
        pid, birth = int(identity["pid"]), identity["born"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    # A machine that was started anew since has another boot id in every time of birth.
    # SIGKILL and not SIGTERM: its folder is wanted now, and what it saved last is on disk.
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
    as a notebook, becomes none: they could not be distinguished."""
    global _adopting  # noqa: PLW0603 - the kernel keeps this for the process
    # From then on every orphan below is a child of this process, and `_end_orphans` ends all children.
    if has_children():
        return
    with suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _end_orphans() -> tuple[tuple[str, ...], int]:
    """End every living child of this process, and what these leave behind in turn; their names, and the most resident
    memory of one of them."""
    # Again until none is left: the children of what is ended here become children of this process in turn.
    name_by_pid: dict[int, str] = {}
    peak = 0
    deadline = time.monotonic() + _DRAIN_S
    while has_children() and (children := _children()) and time.monotonic() < deadline:
        for pid, name in children.items():
            if born(pid) is not None:
                name_by_pid[pid] = name
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                ended, _, usage = os.wait4(pid, os.WNOHANG)
                peak = max(peak, _peak_bytes(usage) if ended else 0)
        time.sleep(0.01)
    return tuple(f"{name} ({pid})" for pid, name in name_by_pid.items()), peak


def _peak_bytes(usage: resource.struct_rusage) -> int:
    """Most resident memory of a child. Linux counts KiB, macOS bytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def has_children() -> bool:
    """Whether this process has children, alive or not: checked first, because naming them takes a look at all processes
    of the machine."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> dict[int, str]:
    """The children of this process by number, with their names."""
    name_by_pid: dict[int, str] = {}
    for stat_file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # PID (NAME) STATE PPID ...: a name may hold blanks and brackets, so the last bracket ends it.
            head, _, rest = stat_file.read_text(errors="replace").rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                name_by_pid[int(stat_file.parent.name)] = visible(head.partition("(")[2])
    return name_by_pid


def born(pid: int) -> str | None:
    """When a living process was started, such that no other process of this machine has the same pid and time.

    >>> born(os.getpid()) is not None
    True
    """
    place = Path("/proc") / str(pid) / "stat"
    if Path("/proc/self/stat").exists():
        try:
            fields = place.read_text().rpartition(")")[2].split()
            # Zombies and dead ones have ended. Field 22 of /proc/PID/stat is the start in ticks since boot (proc(5)).
            return None if fields[0] in ("Z", "X") else f"{_boot()} {fields[19]}"
        except OSError:
            return None
    # macOS has no /proc; `ps` gives the start to the second, and no boot id.
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
