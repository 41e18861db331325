"""Servers of runs that begin with torch loaded: forked from one process that has loaded it, once for all tests.

A server spends three seconds of processor time on loading torch, its compiler and pandas, and a moment on a tiny run.
Here one process loads them, and every server that a test's own process starts is a fork of it: a process of its own,
with its own number, session, environment, folder and descriptors, that executes the same module as `__main__`. What is
shared is what was loaded, and the order of sets (PYTHONHASHSEED). Tests marked `cold`, and whatever is started by a
command line, load all of it anew, as users do.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

MODULES = ("ablate.runner.pool", "killed_writer")
"""What can be started so."""
LOADED = ("ablate.gpt.main", "pandas", "pyarrow.parquet", "torch._inductor.config")
"""What they load once they are at work; torch its compiler, as soon as its algorithms are to be deterministic."""
ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""pyarrow's allocator otherwise starts a thread when it is loaded, and what forks should have no other."""
_N_DESCRIPTORS = 8


class WarmProcess:
    """A forked process as whoever started it sees it: the part of `subprocess.Popen` that workers are handled by."""

    def __init__(self, pid: int, stdin: IO[str] | None, stdout: IO[str] | None, ended: int) -> None:
        self.pid, self.stdin, self.stdout, self.returncode = pid, stdin, stdout, None
        self._ended = ended
        self._waiting = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, as `Popen.wait` gives it."""
        with self._waiting:
            if self.returncode is None:
                if not select.select([self._ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired("a warm process", timeout or 0.0)
                told = os.read(self._ended, 64)
                assert told, "the process that forks workers has gone"
                os.close(self._ended)
                self.returncode = int(told)
            return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """The process that has loaded everything, and the way to ask it for a fork. It ends with this process."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._here, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._asking = threading.Lock()

    def start(
        self,
        words: Sequence[str],
        *,
        stdin: int,
        stdout: int | IO[str],
        stderr: IO[str] | None,
        new_session: bool,
        env: dict[str, str] | None,
        pass_fds: Sequence[int] = (),
    ) -> WarmProcess:
        """A fork that executes the module that comes first among the words."""
        stdin_there, stdin_here = os.pipe() if stdin == subprocess.PIPE else (os.open(os.devnull, os.O_RDONLY), None)
        out_here: int | None = None
        if stdout == subprocess.PIPE:
            out_here, out_there = os.pipe()
        else:
            out_there = os.dup(stdout if isinstance(stdout, int) else stdout.fileno())
        ended_here, ended_there = os.pipe()
        given = [stdin_there, out_there, 2 if stderr is None else stderr.fileno(), *pass_fds, ended_there]
        order = {
            "words": list(words),
            "pass_fds": list(pass_fds),
            "env": dict(os.environ if env is None else env),
            "folder": str(Path.cwd()),
            "new_session": new_session,
        }
        with self._asking:
            line = json.dumps(order).encode() + b"\n"
            sent = socket.send_fds(self._here, [line], given)
            self._here.sendall(line[sent:])
            pid = int(self._here.recv(64))
        for descriptor in (stdin_there, out_there, ended_there):
            os.close(descriptor)
        return WarmProcess(
            pid,
            None if stdin_here is None else os.fdopen(stdin_here, "w", encoding="utf-8"),
            None if out_here is None else os.fdopen(out_here, encoding="utf-8"),
            ended_here,
        )

    def end(self) -> None:
        self._here.close()
        self._process.wait(60)


class WarmSubprocess:
    """Stands where a module of ours looks for `subprocess`: what can be forked is, everything else is as ever."""

    PIPE, DEVNULL, TimeoutExpired = subprocess.PIPE, subprocess.DEVNULL, subprocess.TimeoutExpired

    def __init__(self) -> None:
        self._nursery: Nursery | None = None

    def Popen(self, words: list[str], **given: Any) -> Any:
        """A server of runs, forked; another process as it is."""
        if words[:2] != [sys.executable, "-m"] or words[2] not in MODULES:
            return subprocess.Popen(words, **given)
        if self._nursery is None:
            from ablate.runner.process import ALONE

            self._nursery = Nursery({**ALONE, **ONE_THREAD})
        given.pop("text", None)
        return self._nursery.start(
            words[2:],
            stdin=given.pop("stdin"),
            stdout=given.pop("stdout"),
            stderr=given.pop("stderr", None),
            new_session=given.pop("start_new_session", False),
            env=given.pop("env", None),
            **given,
        )

    def end(self) -> None:
        """The process that forks ends."""
        if self._nursery is not None:
            self._nursery.end()


def _serve(asked: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork when asked, tell how forks ended. Returns in the fork, with what it is to be, and when nobody asks more."""
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    to_tell: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            for pid in list(to_tell):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    place = to_tell.pop(pid)
                    with suppress(BrokenPipeError):
                        os.write(place, str(os.waitstatus_to_exitcode(status)).encode())
                    os.close(place)
        if asked in ready:
            words, given, _, _ = socket.recv_fds(asked, 65536, _N_DESCRIPTORS)
            if not words:
                return None
            while not words.endswith(b"\n"):
                words += asked.recv(65536)
            pid = os.fork()
            if pid == 0:
                return json.loads(words), given
            to_tell[pid] = given.pop()
            for descriptor in given:
                os.close(descriptor)


def _become(order: dict[str, Any], given: list[int], asked: socket.socket) -> None:
    """What a process is when it begins; then the module."""
    if order["new_session"]:
        os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The descriptors that it is to have under their own numbers first get others, out of each other's way.
    wanted = [0, 1, 2, *order["pass_fds"]]
    kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in given[: len(wanted)]]
    asked_at = fcntl.fcntl(asked.fileno(), fcntl.F_DUPFD, 100)
    for descriptor, number in zip(kept, wanted, strict=True):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["folder"])
    tempfile.tempdir = None
    os.write(asked_at, str(os.getpid()).encode())
    asked.detach()
    first = 3
    for number in sorted(order["pass_fds"]):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (as long as the process)
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    module, *words = order["words"]
    sys.argv = [module, *words]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    for needed in (*LOADED, *MODULES):
        importlib.import_module(needed)
    # A collection in a fork would copy every page.
    gc.collect()
    gc.freeze()
    forked = _serve(asked)
    if forked is not None:
        _become(*forked, asked)
    # Taking down torch takes a second of the processor, and nothing is left to do at exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    _main()
