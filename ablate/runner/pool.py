"""Processes that make one run each, forked from a small server that has loaded what runs need.

    scheduler ─▶ server    {"number": n, "run": ..., ...}, with the run's connection and the lock of its folder
    server ─▶ scheduler    {"ready": 1}, {"started": n}, {"ended": n, "status": s}
    scheduler ─▶ run       {"do": "stop"}
    run ─▶ scheduler       `Message`

One JSON object a line, no pickle. An import costs a run nothing: of a user's own trainer the server holds what reads
and seals, of the built-in one also torch and the texts. The server has one thread and touches no accelerator, so that
what it forks is sound. It ends with its scheduler, and so does every run: each hears its own connection close.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

from pydantic import ValidationError

from ablate.gpt.device import CPU, ENVIRONMENT, device_name
from ablate.records.outcome import outcome_hash
from ablate.records.rows import Row
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder, parquet_bytes
from ablate.runner.child import adopt_orphans
from ablate.runner.control import Abandoned, Signals
from ablate.runner.messages import Message
from ablate.runner.pinned import Hashed
from ablate.runner.process import ALONE, Place, Spec, make_run, sign
from prereg.errors import RunError
from prereg.registry.plan import CommandSpec, RunSpec

_PIECE = 64 * 2**10
_N_DESCRIPTORS = 2
_ABANDONED = 3
"""Exit status of a run whose scheduler is gone."""


@dataclass
class RunProcess:
    """The process of one run, as its scheduler sees it."""

    spec: Spec
    number: int
    connection: socket.socket
    lane: int = 0
    """Which of the slots it has, and with it which GPUs."""

    stopping: bool = False
    ended: bool = False
    """Whether it has reported its end. Its process may live a moment longer."""

    _unread: bytes = b""

    def stop(self) -> None:
        """Ask it to save its state and end. A process that has just died is noticed by its connection."""
        self.stopping = True
        with suppress(OSError):
            self.connection.sendall(b'{"do": "stop"}\n')

    def receive(self) -> list[Message] | None:
        """What it has reported since the last call; none when it is gone."""
        try:
            piece = self.connection.recv(_PIECE)
        except OSError:
            piece = b""
        if not piece:
            return None
        *lines, self._unread = (self._unread + piece).split(b"\n")
        with suppress(ValidationError):
            return [Message.model_validate_json(line) for line in lines]
        return None


@dataclass
class Pool:
    """A server, and the runs that it has forked. Used in a `with` block, whose end ends the server and all runs."""

    specs: Sequence[Spec]
    """Runs that will be asked for: what all of them need is loaded once."""

    place: Place
    log: IO[str]
    """Where the server and the processes of runs write what they have to say."""

    is_ready: bool = False
    """Whether the server has loaded what runs need."""

    _n_runs: int = 0
    _status_by_number: dict[int, int] = field(default_factory=dict)
    _unread: bytes = b""

    def __enter__(self) -> Pool:
        here, there = socket.socketpair()
        own = all(isinstance(spec, CommandSpec) for spec in self.specs)
        # A user's own trainer keeps its threads to itself; the built-in one trains many runs side by side.
        needed: Mapping[str, str] = {} if own else ALONE if self.place.device == CPU else {**ALONE, **ENVIRONMENT}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ablate.runner.pool", str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,
                pass_fds=[there.fileno()],
                env={**os.environ, **needed, **_ONE_THREAD},
            )
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        self.connection = here
        by_arm = {spec.variant: spec for spec in self.specs if isinstance(spec, RunSpec)}
        to_load = [spec.model_dump(mode="json") for spec in by_arm.values()]
        first = {"place": _place_as_json(self.place), "load": to_load}
        with suppress(OSError):
            here.sendall(json.dumps(first).encode() + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def start(
        self, spec: Spec, folder: RunFolder, lock: IO[str], *, gpus: Sequence[str] = (), lane: int = 0
    ) -> RunProcess:
        """A process that makes a run in a folder whose lock it takes over. Raises `PoolError` where the server died."""
        number = self._n_runs
        self._n_runs += 1
        order = {
            "number": number,
            "own": isinstance(spec, CommandSpec),
            "run": spec.model_dump(mode="json"),
            "folder": str(folder.path),
            "environment": self._environment(spec, gpus),
        }
        here, there = socket.socketpair()
        line = json.dumps(order).encode() + b"\n"
        with there:
            try:
                sent = socket.send_fds(self.connection, [line], [there.fileno(), lock.fileno()])
                self.connection.sendall(line[sent:])
                while not any("started" in reply for reply in self._replies()):
                    pass
            except OSError:
                here.close()
                raise PoolError("the server of runs is gone", required="a server that starts") from None
        return RunProcess(spec, number, here, lane)

    @staticmethod
    def _environment(spec: Spec, gpus: Sequence[str]) -> dict[str, str | None]:
        """What differs in the environment of a run from that of the server."""
        environment: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        if isinstance(spec, CommandSpec):  # how the server was kept to one thread is none of its business
            environment |= {name: os.environ.get(name) for name in _ONE_THREAD}
        return environment

    def status_of(self, run: RunProcess) -> int | None:
        """The exit status of a run that has closed its connection; none where the server has gone, and cannot say."""
        with suppress(OSError):
            while run.number not in self._status_by_number:
                self._replies()
        return self._status_by_number.pop(run.number, None)

    def hear(self) -> bool:
        """Take in what the server says next. False when it is gone."""
        try:
            self._replies()
        except OSError:
            return False
        return True

    def _replies(self) -> list[dict[str, int]]:
        """What the server says next, exit statuses noted. Raises `OSError` when it is gone."""
        piece = self.connection.recv(_PIECE)
        if not piece:
            raise ConnectionResetError
        *lines, self._unread = (self._unread + piece).split(b"\n")
        replies = [json.loads(line) for line in lines]
        self.is_ready = self.is_ready or any("ready" in reply for reply in replies)
        self._status_by_number |= {reply["ended"]: reply["status"] for reply in replies if "ended" in reply}
        return replies


class PoolError(RunError):
    """The server of runs has died."""


_PATIENCE_S = 60.0
_ONE_THREAD = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""numpy, pyarrow's allocator and tokenizers otherwise start threads, which no fork has."""


_OF_NO_RUN: dict[str, Any] = {"study": "", "registration": "", "variant": "", "seed": 0}


def _place_as_json(place: Place) -> dict[str, Any]:
    return {
        "root": str(place.root),
        "study_folder": str(place.study_folder),
        "device": place.device,
        "checkpoint_every_s": place.checkpoint_every_s,
        "until": place.until,
        "device_name": place.device_name or device_name(place.device),
    }


class _Server:
    """Forks a process for every order, and says how each ended."""

    def __init__(self, scheduler: socket.socket) -> None:
        self.scheduler = scheduler
        self.hashed = Hashed()
        self.number_by_pid: dict[int, int] = {}
        self.wake, self.woken = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.woken, False)

    def serve(self) -> tuple[dict[str, Any], list[int]] | None:
        """Until the scheduler is gone. In a forked process: its order, and its descriptors."""
        lines = self._lines()
        first, _ = next(lines, ({}, []))
        if not first:
            return None
        paths = {name: Path(first["place"][name]) for name in ("root", "study_folder")}
        self.place = Place(**first["place"] | paths)
        self._load([RunSpec.model_validate_json(json.dumps(spec)) for spec in first["load"]])
        gc.collect()
        gc.freeze()  # else a collection in a fork would copy every page
        self._say({"ready": 1})
        signal.set_wakeup_fd(self.woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A cluster sends SIGTERM to every process of a job: runs hear it themselves, and save.
        signal.signal(signal.SIGTERM, lambda *_: None)
        for order, descriptors in lines:
            self._hash_data(order)
            pid = os.fork()
            if pid == 0:
                return order, descriptors
            self.number_by_pid[pid] = order["number"]
            for descriptor in descriptors:
                os.close(descriptor)
            self._say({"started": order["number"]})
        return None

    def _load(self, specs: Sequence[RunSpec]) -> None:
        # What every run is sealed with sets itself up at its first table, which takes ten milliseconds.
        rows = [Row(1, "metric", 1.0)]
        outcome_hash(rows)
        parquet_bytes(RunRecord.model_construct(**_OF_NO_RUN), rows)
        if specs:
            from ablate.gpt.main import prepare
            from ablate.records.provenance import collect

            collect(threads=1)  # hashes the sources and asks git, once
            prepare(specs, self.place.corpora, self.place.root)

    def _hash_data(self, order: Mapping[str, Any]) -> None:
        """Hash the files that a run reads before it is forked: here it is done once, and what is known stays."""
        for pin in order["run"].get("data_files", ()) if order["own"] else ():
            with suppress(OSError):  # the run says what is wrong with it
                self.hashed.sha256(self.place.root / pin["path"])

    def _lines(self) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Orders with their descriptors, until there are no more."""
        unread, descriptors = b"", list[int]()
        while True:
            sources: list[Any] = [self.scheduler, self.wake]
            ready, _, _ = select.select(sources, [], [])
            if self.wake in ready:
                self._bury()
            if self.scheduler not in ready:
                continue
            piece, received, _, _ = socket.recv_fds(self.scheduler, _PIECE, _N_DESCRIPTORS)
            if not piece:
                return
            *lines, unread = (unread + piece).split(b"\n")
            descriptors += received
            for line in lines:
                # The first order may arrive in one piece with what it follows, which has no descriptors.
                order = json.loads(line)
                n_given = _N_DESCRIPTORS if "run" in order else 0
                given, descriptors = descriptors[:n_given], descriptors[n_given:]
                yield order, given

    def _bury(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        for pid in list(self.number_by_pid):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._say({"ended": self.number_by_pid.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _say(self, reply: Mapping[str, int]) -> None:
        with suppress(OSError):
            self.scheduler.sendall(json.dumps(reply).encode() + b"\n")

    def make(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> NoReturn:
        """In a forked process: the run, then the end."""
        status = 1
        try:
            status = self._make(order, descriptors)
        except Abandoned:
            status = _ABANDONED
        except BaseException:
            with suppress(OSError):
                traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stderr.flush()
            os._exit(status)

    def _make(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        signal.set_wakeup_fd(-1)
        # Of the server's and of other runs' connections none may stay open here: each says by its end that one is gone.
        self.scheduler.close()
        os.close(self.wake)
        os.close(self.woken)
        adopt_orphans()
        for name, value in order["environment"].items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        connection, lock = socket.socket(fileno=descriptors[0]), descriptors[1]
        folder = RunFolder(Path(order["folder"]))
        content = json.dumps(order["run"])
        given: dict[str, Any] = {}
        spec: Spec
        if order["own"]:
            spec = CommandSpec.model_validate_json(content)
        else:
            spec = RunSpec.model_validate_json(content)
            if sys.platform == "linux":
                from ablate.runner.forked import start_forked

                given = {"start": start_forked}

        def report(message: Message) -> None:
            with suppress(OSError):  # a scheduler that is gone is noticed where the run waits
                connection.sendall(message.model_dump_json(exclude_defaults=True).encode() + b"\n")

        with os.fdopen(lock, "r+", encoding="utf-8") as stream, Signals(connection).heard() as control:
            with sign(stream):
                ended = make_run(spec, folder, self.place, control, report, hashed=self.hashed, **given)
            report(ended)
        return 0


def main() -> None:
    """Serve a scheduler at the other end of a socket, whose number is the only argument."""
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    forked = server.serve()
    if forked is not None:
        server.make(*forked)


if __name__ == "__main__":
    main()
