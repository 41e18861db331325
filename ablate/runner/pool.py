"""Pool of makers: processes that make run after run, forked from a small server that has loaded what runs need.

    scheduler ─▶ server   the other end of a connection: fork a maker for it
    scheduler ─▶ maker    {"run": ..., "folder": ..., "gpus": ...}, with the lock of the folder; {"do": "stop"}
    maker ─▶ scheduler    `Message`: that it is ready, and what becomes of each run
    server ─▶ scheduler   `Message` over the connection of a maker that has died: its exit status

One JSON object a line, no pickle. An import costs a run nothing: of a user's own trainer the server holds what reads
and seals, of the built-in one also torch and the texts. It has one thread and touches no accelerator, so that what it
forks is sound; a maker that sealed a run has neither, and so may fork the built-in trainer for the next. Server and
makers end with their scheduler: each hears its own connection close.

Why makers and no `multiprocessing`: a run must survive the death of any other process, hold the lock of its folder
itself, and get its own signals; and fork after torch or CUDA has started threads is unsound, which a library's pool
does not prevent.
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
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from ablate.gpt.device import CPU, ENVIRONMENT, device_name
from ablate.records.outcome import outcome_hash
from ablate.records.rows import Row
from ablate.records.run_record import RunRecord
from ablate.records.store import RunFolder, parquet_bytes
from ablate.runner.child import adopt_orphans, has_children
from ablate.runner.listening import Abandoned, Signals
from ablate.runner.messages import Message
from ablate.runner.pinned import Hashed
from ablate.runner.process import ALONE, ONE_THREAD, Place, Spec, make_run, name_holder
from prereg.registry.plan import CommandSpec, RunSpec

_PIECE = 64 * 2**10
_MOST_AT_ONCE = 8
"""Connections that one read from the scheduler may bring."""
_PATIENCE_S = 60.0
"""How long a server whose scheduler leaves may take to end."""
_MOMENT_S = 1.0
"""How long a server without a scheduler waits for its makers. One whose trainer saves its state may take longer."""
_ABANDONED = 3
"""Exit status of a maker whose scheduler is gone."""


@dataclass
class Maker:
    """A process that makes runs, as its scheduler sees it."""

    connection: socket.socket
    lane: int = 0
    """Which of the slots it has, and with it which GPUs."""

    is_ready: bool = False
    """Whether it has begun. Runs are put on record only for one that has."""

    spec: Spec | None = None
    """The run that it makes now."""

    stopping: bool = False
    """Whether it was sent a stop for that run."""

    exit_status: int | None = None
    """Of one that has died, where its server could still say."""

    _unread: bytes = b""

    def make(self, spec: Spec, folder: RunFolder, lock: IO[str], *, gpus: Sequence[str] = ()) -> None:
        """Have it make a run in a folder whose lock it takes over. Raises `OSError` where it is gone."""
        order = {
            "own": isinstance(spec, CommandSpec),
            "run": spec.model_dump(mode="json"),
            "folder": str(folder.path),
            "gpus": ",".join(gpus),
        }
        line = json.dumps(order).encode() + b"\n"
        # The lock travels with the order: the kernel holds it as long as any process has it open, so that the folder is
        # never free between scheduler and maker. send_fds may take a part of the line, and the descriptor with it.
        sent = socket.send_fds(self.connection, [line], [lock.fileno()])
        self.connection.sendall(line[sent:])
        self.spec, self.stopping = spec, False

    def stop(self) -> None:
        """Ask it to save the state of its run. A process that has just died is noticed by its connection."""
        self.stopping = True
        with suppress(OSError):
            self.connection.sendall(b'{"do": "stop"}\n')

    def receive(self) -> list[Message] | None:
        """What it has reported of its run since the last call; none when it is gone."""
        try:
            piece = self.connection.recv(_PIECE)
        except OSError:
            piece = b""
        if not piece:
            return None
        # A stream has no messages: what comes after the last newline waits for its rest.
        *lines, self._unread = (self._unread + piece).split(b"\n")
        messages = []
        for line in lines:
            with suppress(ValidationError):  # an empty one, or one that it was writing when it died
                message = Message.model_validate_json(line)
                if message.event == "ready":
                    self.is_ready = True
                elif message.event == "died":
                    self.exit_status = message.exit_status
                else:
                    messages.append(message)
        return messages


@dataclass
class Pool:
    """The server that forks makers. Used in a `with` block, whose end ends the server."""

    specs: Sequence[Spec]
    """Runs that will be made: what all of them need is loaded once."""

    place: Place
    log: IO[str]
    """Where the server and its makers write what they have to say."""

    def __enter__(self) -> Pool:
        # A pair of sockets, of which the server inherits one by its number; both ends close with their processes.
        here, there = socket.socketpair()
        own = all(isinstance(spec, CommandSpec) for spec in self.specs)
        # A user's own trainer keeps its threads to itself; the built-in one trains many runs side by side.
        needed = ONE_THREAD if own else ALONE if self.place.device == CPU else {**ALONE, **ENVIRONMENT}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ablate.runner.pool", str(there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,  # Ctrl-C is for the scheduler, which then stops its runs
                pass_fds=[there.fileno()],
                env={**os.environ, **needed},
            )
        except BaseException:
            here.close()
            raise
        finally:
            there.close()
        self.connection = here
        """Readable when the server is gone, and only then."""
        with suppress(OSError):
            here.sendall(json.dumps(self._to_load()).encode() + b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def fork(self, lane: int = 0) -> Maker:
        """One more maker, which is ready in a moment. Where the server dies before, so does the connection."""
        here, there = socket.socketpair()
        with there, suppress(OSError):
            socket.send_fds(self.connection, [b"\n"], [there.fileno()])
        return Maker(here, lane)

    def _to_load(self) -> dict[str, Any]:
        place = self.place
        # One run of each arm will do: seeds of an arm read the same texts, tokenizers and tasks.
        by_arm = {spec.variant: spec for spec in self.specs if isinstance(spec, RunSpec)}
        return {
            "place": {
                "root": str(place.root),
                "device": place.device,
                "checkpoint_every_s": place.checkpoint_every_s,
                "until": place.until,
                "device_name": place.device_name or device_name(place.device),
                "environment": dict(place.environment),
            },
            "runs": [spec.model_dump(mode="json") for spec in by_arm.values()],
            "data": sorted({pin.path for spec in self.specs for pin in getattr(spec, "data_files", ())}),
        }


_OF_NO_RUN: dict[str, Any] = {"study": "", "registration": "", "variant": "", "seed": 0}


class _Server:
    """Loads, then forks a maker for every connection, and says of each how it died."""

    def __init__(self, scheduler: socket.socket) -> None:
        self.scheduler = scheduler
        self.hashed = Hashed()
        self.connection_by_pid: dict[int, socket.socket] = {}
        self.wake, self.woken = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.woken, False)

    def serve(self) -> socket.socket | None:
        """Until the scheduler is gone. In a forked process: its connection."""
        # The first line says what to load. Requests for makers, a byte and a connection each, may come right behind it.
        first, connections = b"", list[int]()
        while b"\n" not in first:
            piece, descriptors, _, _ = socket.recv_fds(self.scheduler, _PIECE, _MOST_AT_ONCE)
            if not piece:
                return None
            first, connections = first + piece, [*connections, *descriptors]
        to_load, _, piece = first.partition(b"\n")
        self._load(json.loads(to_load))
        # What is loaded never becomes garbage.
        gc.collect()
        gc.freeze()  # else a collection in a fork would copy every page
        # The end of a maker wakes select by a byte in the pipe.
        signal.set_wakeup_fd(self.woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A cluster sends SIGTERM to every process of a job: makers hear it while they make a run, which they save.
        signal.signal(signal.SIGTERM, lambda *_: None)
        while True:
            assert len(connections) == len(piece), piece
            for descriptor in connections:
                connection = socket.socket(fileno=descriptor)
                # The fork leaves this loop for good, with its connection alone; the parent goes on to serve.
                if (pid := os.fork()) == 0:
                    self._forget_others()
                    return connection
                self.connection_by_pid[pid] = connection
            sources: list[Any] = [self.scheduler, self.wake]
            ready, _, _ = select.select(sources, [], [])
            if self.wake in ready:
                self._bury()
            piece, connections = b"", []
            if self.scheduler in ready:
                piece, connections, _, _ = socket.recv_fds(self.scheduler, _PIECE, _MOST_AT_ONCE)
                if not piece:
                    break
        ends_at = time.monotonic() + _MOMENT_S
        while self.connection_by_pid and (left := ends_at - time.monotonic()) > 0:  # they have heard it too
            select.select([self.wake], [], [], left)
            self._bury()
        return None

    def _load(self, to_load: Mapping[str, Any]) -> None:
        self.place = Place(**to_load["place"] | {"root": Path(to_load["place"]["root"])})
        for path in to_load["data"]:  # what is known here no maker hashes again
            with suppress(OSError):  # the run says what is wrong with it
                self.hashed.sha256(self.place.root / path)
        # What every run is sealed with sets itself up at its first table, which takes ten milliseconds.
        rows = [Row(1, "metric", 1.0)]
        outcome_hash(rows)
        parquet_bytes(RunRecord.model_construct(**_OF_NO_RUN), rows)
        if to_load["runs"]:
            from ablate.gpt.main import load_inputs
            from ablate.records.provenance import current_provenance

            current_provenance(threads=1)  # hashes the sources and asks git, once
            specs = [RunSpec.model_validate_json(json.dumps(spec)) for spec in to_load["runs"]]
            load_inputs(specs, self.place.corpora, self.place.root)

    def _bury(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)
        for pid in list(self.connection_by_pid):
            # Every maker is looked at: several ends may have left one byte in the pipe.
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self.connection_by_pid.pop(pid) as connection:
                    _say(connection, Message(event="died", exit_status=os.waitstatus_to_exitcode(status)))

    def _forget_others(self) -> None:
        """In a forked process: of the server's and of other makers' connections none may stay open, because each says
        by its end that a process is gone."""
        signal.set_wakeup_fd(-1)
        self.scheduler.close()
        os.close(self.wake)
        os.close(self.woken)
        for connection in self.connection_by_pid.values():
            connection.close()


def _say(connection: socket.socket, message: Message) -> None:
    line = message.model_dump_json(exclude_defaults=True).encode()
    with suppress(OSError):  # a scheduler that is gone is noticed where its orders are awaited
        connection.sendall(b"\n" + line + b"\n")  # one that died may have left half a line


def make_runs(scheduler: socket.socket, place: Place, hashed: Hashed) -> None:
    """Be a maker: one run after another, until the scheduler is gone."""
    adopt_orphans()  # before the first run, while it has no child that could be taken for one
    _say(scheduler, Message(event="ready"))
    for order, lock in _orders(scheduler):
        content, more = json.dumps(order["run"]), {}
        spec: Spec
        if order["own"]:
            spec = CommandSpec.model_validate_json(content)
        else:
            spec = RunSpec.model_validate_json(content)
            if sys.platform == "linux":
                from ablate.runner.forked import start_forked

                more = {"start": start_forked}
        environment = place.environment
        if order["gpus"]:  # of this run's trainer alone
            environment = {**environment, "CUDA_VISIBLE_DEVICES": order["gpus"]}
        here = replace(place, environment=environment)
        folder = RunFolder(Path(order["folder"]))
        with (
            os.fdopen(lock, "r+", encoding="utf-8") as stream,
            name_holder(stream),
            Signals(scheduler).heard() as control,
        ):
            ended = make_run(
                spec, folder, here, control, lambda message: _say(scheduler, message), hashed=hashed, **more
            )
        _say(scheduler, ended)  # when it is heard the folder is unlocked
        if has_children():  # what could not be ended would be taken for a child of the next run
            return


def _orders(scheduler: socket.socket) -> Iterator[tuple[dict[str, Any], int]]:
    """Each order with the lock of its folder."""
    unread, locks = b"", list[int]()
    while True:
        piece, received, _, _ = socket.recv_fds(scheduler, _PIECE, 1)
        if not piece:
            return
        *lines, unread = (unread + piece).split(b"\n")
        locks += received
        for order in map(json.loads, lines):
            # The lock arrives with the first byte of its order, so locks and orders are in the same sequence.
            if "run" in order:  # a stop may arrive when its run has just ended
                yield order, locks.pop(0)


def main() -> None:
    """Serve a scheduler at the other end of a socket, whose number is the only argument."""
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    connection = server.serve()
    if connection is None:
        # Nothing is left to do at exit, and taking down torch and its compiler would take a second of the processor.
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(0)
    status = 1
    try:
        make_runs(connection, server.place, server.hashed)
        status = 0
    except Abandoned:
        status = _ABANDONED
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        # Without exit handlers: they are the server's, copied by the fork.
        os._exit(status)


if __name__ == "__main__":
    main()
