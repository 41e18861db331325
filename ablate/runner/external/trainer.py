"""Runs of a user's own trainer: one child process per run, its metrics read strictly, its record sealed like any other.

    run folder            run.json, the sealed metrics, config.json, stdout.txt, stderr.txt
    run folder / work     the child's own directory, and all of it that it may write in
    run folder / code     what it is started from: a copy of the registered code, gone once the run has ended

Each attempt begins in an empty directory, unless the one before left a file named `resumable` in it: by this the
command says that it can go on from what lies there. It is then started again (ABLATE_ATTEMPT counts) with its metrics
file as it left it, a torn last line cut off; a step that it repeats it must take out of that file first. What an
attempt that was stopped or failed left there is hashed: a file that was changed since is not resumed from.

The child gets its seed, its variant and its configuration, never a hypothesis. By the registered rule a run diverges
at the step whose recorded train/loss says so; it ends there, whatever its exit status. Any other status than 0 is a
failure. What the child is to record is checked at the end of each run, not when all of them have been paid for.
"""

from __future__ import annotations

import csv
import json
import math
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ablate.records.provenance import of_command
from ablate.records.rows import CURVE, diverged_at, lacking, read_must_match, read_rows, rows_of, typed_wide, until
from ablate.records.run_record import LiveValues, RunRecord, utc_now
from ablate.records.store import Row, RunFolder
from ablate.runner.external.child import Child, adopt_orphans, end_leftover
from ablate.runner.external.failures import claimed_values, left_values, place
from ablate.runner.external.pinned import Hashed, PrivateCopy, require_registered
from ablate.runner.messages import Message, Pipes, begun, failed, said, show_trace
from prereg.errors import EvidenceError, RunError, StudyError
from prereg.registry.canon import sha256_file
from prereg.registry.disk import NO_ROOM, write_passing, write_whole
from prereg.registry.plan import CommandSpec
from prereg.study.command import MetricsFile, code_sha256, filled

RESUMABLE = "resumable"
"""The file by which a command says that it can go on from what its directory holds."""
MUST_MATCH = "must_match.json"
"""The file in which a command says what the runs of a seed must have in common, by hashes."""
LEFT_BEHIND = "the command left processes of its own session behind, which were ended"
FIRST_POLL_S = 0.0005
POLL_S = 0.05
"""How long the end of a child may go unnoticed: as long as the child has taken, and no longer than this."""
SIGNAL_GAP_S = 0.3
SAY_EVERY_S = 0.5
NOTE_EVERY_S = 10.0
_GLANCE_BYTES = 64 * 2**10


@dataclass
class Server:
    """What runs one after another share: whom to report to, whether to stop, and the child that is at work."""

    say: Callable[[Message], None]
    stop: threading.Event = field(default_factory=threading.Event)
    wait_until_noted: Callable[[], None] = lambda: None
    """Until the ledger holds the start of the run that has begun."""
    child: Child | None = None
    starting: threading.Lock = field(default_factory=threading.Lock)
    hashed: Hashed = field(default_factory=Hashed)

    def carry_out(self, spec: CommandSpec, folder: RunFolder, root: Path) -> None:
        """One run from its start to its seal. Everything that goes wrong becomes a `failed` record."""
        try:
            CommandRun(self, spec, folder, root).finish()
        except Exception as error:
            if not isinstance(error, StudyError):
                show_trace(error)
            line = error.found if isinstance(error, StudyError) else said(error, folder)
            line = line.replace(f"{root}/", "")
            folder.fail(line, utc_now())
            self.say(failed(spec, error, line))

    def abandon(self) -> None:
        """The scheduler is gone: nothing may go on, and nothing more may be written on its behalf."""
        with self.starting:
            if self.child is not None:
                self.child.kill()
            os._exit(3)


def tracker_names(spec: CommandSpec, given: Mapping[str, str]) -> dict[str, str]:
    """How W&B and MLflow name a run whose script names none, in the variables that their libraries read."""
    name = f"{spec.variant}/seed{spec.seed}"
    tags = {
        "mlflow.runName": name,
        "variant": spec.variant,
        "seed": str(spec.seed),
        "ablate.registration": spec.registration,
    }
    found = {
        "WANDB_RUN_GROUP": f"{spec.study}-{spec.registration[:8]}",
        "WANDB_NAME": name,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
    }
    # MLflow refuses a name and an id that lead to two experiments.
    if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & given.keys():
        found["MLFLOW_EXPERIMENT_NAME"] = spec.study
    return found


class CommandRun:
    """One run: start the command, watch it, read what it left, seal."""

    def __init__(self, server: Server, spec: CommandSpec, folder: RunFolder, root: Path) -> None:
        self.taken = time.perf_counter()
        self.server, self.spec, self.folder, self.root = server, spec, folder, root
        self.home = folder.path / "work"
        self.code = PrivateCopy(root, spec, folder.path / "code")
        self.metrics = self.home / spec.metrics.file
        self.glance = Glance(self.metrics, spec.metrics)
        self.record = self._begin()

    def finish(self) -> None:
        """Until the command ends, has diverged, or is stopped."""
        try:
            self._finish()
        except Exception:
            with suppress(OSError):  # the error says more than that it could not be written down
                self._note(ended=True)
            raise

    def _finish(self) -> None:
        try:
            try:
                self.code.lay_out()  # while the ledger is written
            finally:
                self.server.wait_until_noted()
            child = self._start()
            try:
                stopped = self._watch(child)
            finally:
                status = child.finish()
                self.server.child = None
            # A signal to all processes of a job may reach the child first.
            stopped = stopped or self.server.stop.wait(SIGNAL_GAP_S if status else 0.0)
            if not stopped:
                self.code.require_unchanged()
        finally:
            self.code.remove()
        if stopped:
            self._note(ended=True)
            self.glance.look()
            self._say("stopped", self.glance.step)
            return
        require_registered(self.root, self.spec.scripts)
        require_registered(self.root, self.spec.data_files, self.server.hashed.sha256)
        rows = self._rows(child, status)
        diverged = diverged_at(rows, self.spec.diverged_above)
        if diverged is None:
            self._require_needed(rows)
        self._seal(rows, diverged, child.left)

    def _begin(self) -> RunRecord:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        end_leftover(self.folder.path)
        earlier = self.folder.read_record()
        resumed, redrawn = (earlier.resumed_from, earlier.redrawn) if earlier is not None else ((), 0)
        step: int | None = None
        left: bool | None = None
        live: LiveValues | None = None
        if earlier is not None and (self.home / RESUMABLE).is_file():
            self._require_as_left(earlier)
            self.folder.clear()
            step = self._resume()
            resumed = (*resumed, step)
            live = LiveValues(values=claimed_values(self.spec, self.folder))
            redrawn += _gave_up(earlier.live, live.values)
        else:
            left = None if earlier is None else self._left_values(earlier)
            self.folder.clear()
            if self.home.exists():
                shutil.rmtree(self.home)
            self.home.mkdir()
        provenance = of_command(code_sha256(self.spec.files))
        config = {"config": self.spec.config, "parameters": 0, "live": live, "redrawn": redrawn}
        record = RunRecord.begin(self.spec, earlier, provenance, resumed_from=resumed, **config)
        # As durable as the ledger's entry of this start: what a loss of power takes of a run, it takes of both.
        self.folder.write_record(record, durable=False)
        require_registered(self.root, self.spec.data_files, self.server.hashed.sha256)
        self.server.say(begun(self.spec, record, step, left_values=left))
        return record

    def _require_as_left(self, earlier: RunRecord) -> None:
        """The file of metrics is the one that the attempt before left, where that could still say which."""
        known = earlier.live
        if known is None or known.sha256 is None or known.sha256 == self._metrics_sha256():
            return
        # Of a run's error only what was found is kept.
        way_out = f"restore it, or rm -r {self.folder.path} and run again, which counts as a lost start"
        raise EvidenceError(
            f"{self.metrics} was changed after the run had stopped; {way_out}",
            required=f"the file as it was left (sha256 {known.sha256})",
        )

    def _metrics_sha256(self) -> str | None:
        return sha256_file(self.metrics) if self.metrics.is_file() else None

    def _left_values(self, earlier: RunRecord) -> bool:
        """Whether the attempt before had recorded a claimed value, or may have: what it left is not what it was."""
        known = earlier.live
        if known is not None and (known.values or known.sha256 not in (None, self._metrics_sha256())):
            return True
        if not self.home.is_dir() or (earlier.steps > 0 and not self.metrics.is_file()):
            return True
        return left_values(self.spec, self.folder)

    def _resume(self) -> int:
        """Cut off what a killed writer left of a line; returns the last step on record."""
        if not self.metrics.is_file():
            return 0
        data = self.metrics.read_bytes()
        write_whole(self.metrics, data[: data.rfind(b"\n") + 1])
        try:
            return max((row.step for row in read_rows(self.metrics, self.spec.metrics)), default=0)
        except EvidenceError:
            (self.home / RESUMABLE).unlink()
            raise

    def _start(self) -> Child:
        spec, config = self.spec, self.folder.path / "config.json"
        write_passing(config, json.dumps(spec.config, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        own = {"variant": spec.variant, "seed": str(spec.seed), "python": sys.executable}
        own |= {"root": str(self.root), "run_dir": str(self.home)}
        words = tuple(self.code.word(word) for word in filled(spec.command, own, spec.config) if word is not None)
        environment = {
            **self.code.environment(os.environ),
            **tracker_names(spec, os.environ),
            "ABLATE_SEED": str(spec.seed),
            "ABLATE_VARIANT": spec.variant,
            "ABLATE_CONFIG": str(config),
            "ABLATE_ROOT": str(self.root),
            "ABLATE_RUN_DIR": str(self.home),
            "ABLATE_METRICS": str(self.metrics),
            "ABLATE_REGISTRATION": spec.registration,
            "ABLATE_ATTEMPT": str(self.record.attempts),
        }
        with self.server.starting:
            try:
                start = self.home if spec.working_directory == "run" else self.code.place
                child = Child(words, folder=self.folder.path, home=start, environment=environment)
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in NO_ROOM:
                    raise
                reason = error.strerror if isinstance(error, OSError) else error
                raise RunError(f"'{words[0]}' cannot be started: {reason}", required="a program") from error
            self.server.child = child
        return child

    def _watch(self, child: Child) -> bool:
        """Wait for the end. True when the scheduler sent a stop."""
        said = noted = time.perf_counter()
        step, pause = 0, FIRST_POLL_S
        while child.ended() is None:
            stopped, pause = self.server.stop.wait(pause), min(2 * pause, POLL_S)
            if stopped:
                child.stop()
                return True
            now = time.perf_counter()
            if now - said < SAY_EVERY_S:
                continue
            self.glance.look()
            speed = (self.glance.step - step) / (now - said)
            self.server.say(
                Message(
                    event="progress",
                    run_id=self.spec.run_id,
                    step=self.glance.step,
                    steps_per_s=max(0.0, speed),
                    falling=self.glance.falling,
                )
            )
            said, step = now, self.glance.step
            if self.glance.looks_diverged(self.spec.diverged_above) and self._has_diverged():
                return False
            if now - noted > NOTE_EVERY_S:
                noted = now
                self._note()
        return False

    def _has_diverged(self) -> bool:
        """Checks what a glance suspects on the whole file."""
        try:
            return (
                diverged_at(read_rows(self.metrics, self.spec.metrics, torn=True), self.spec.diverged_above) is not None
            )
        except EvidenceError:
            return False  # the end of the run will show

    def _rows(self, child: Child, status: int) -> list[Row]:
        """What the command recorded. Raises where it failed, unless it had diverged by then."""
        if status == 0:
            try:
                return read_rows(self.metrics, self.spec.metrics)
            except EvidenceError as error:
                (self.home / RESUMABLE).unlink(missing_ok=True)
                raise EvidenceError(f"{self.spec.metrics.file}: {error.found}", required=error.required) from error
        if self._has_diverged():
            return read_rows(self.metrics, self.spec.metrics, torn=True)
        how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
        last = child.stderr.last_lines()
        said = "; stderr ends: " + " / ".join(last) if last else "; nothing on stderr"
        raise RunError(how + said, required="exit status 0")

    def _require_needed(self, rows: list[Row]) -> None:
        """A finished run has what the claims and the rule of stability will ask of it."""
        absent = lacking(rows, self.spec.needed, whole_curve=self.spec.needs_curve)
        if absent:
            (self.home / RESUMABLE).unlink(missing_ok=True)
            raise EvidenceError(f"{self.spec.metrics.file}: {'; '.join(absent)}", required="what the claims read")

    def _seal(self, rows: list[Row], diverged: int | None, left: tuple[str, ...]) -> None:
        mishaps = self.record.mishaps
        if left:
            mishaps = (*mishaps, f"{LEFT_BEHIND}: {', '.join(left)}")
            self.server.say(Message(event="note", text=f"{self.spec.run_id}: {mishaps[-1]}"))
        try:
            matching = read_must_match(self.home / MUST_MATCH)
        except EvidenceError as error:
            raise EvidenceError(f"{MUST_MATCH}: {error.found}", required=error.required) from error
        kept, last = until(rows, diverged)
        status: Literal["done", "diverged"] = "done" if diverged is None else "diverged"
        ended: dict[str, object] = {"status": status, "steps": last, "wall_s": self._wall(), "ended_at": utc_now()}
        redrawn = self.record.redrawn + _gave_up(self.record.live, {place(row): row.value for row in kept})
        ended |= {"mishaps": mishaps, "must_match": matching, "live": None, "redrawn": redrawn}
        self.folder.seal(self.record.model_copy(update=ended), None, rows=kept)
        self._say("ended", last, status)

    def _say(
        self, event: Literal["ended", "stopped"], step: int, status: Literal["done", "diverged"] | None = None
    ) -> None:
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        self.server.say(Message(event=event, run_id=self.spec.run_id, step=step, status=status, peak_memory_bytes=peak))

    def _note(self, *, ended: bool = False) -> None:
        """How far the run has come, for `ablate status` and for the time it has taken; at an end without a seal also
        what the file of metrics holds."""
        update: dict[str, object] = {"wall_s": self._wall(), "steps": self.glance.step}
        if ended:
            values = claimed_values(self.spec, self.folder)
            update["live"] = LiveValues(sha256=self._metrics_sha256(), values=values)
            update["redrawn"] = self.record.redrawn + _gave_up(self.record.live, values)
        self.folder.write_record(self.record.model_copy(update=update))

    def _wall(self) -> float:
        return self.record.wall_s + time.perf_counter() - self.taken


def _gave_up(before: LiveValues | None, now: Mapping[str, float]) -> bool:
    """Whether a claimed value that an attempt had recorded is gone, or is another one."""
    return before is not None and any(now.get(at) != value for at, value in before.values.items())


class Glance:
    """A forgiving look at the end of a metrics file that is being written: for display, never for judging."""

    def __init__(self, path: Path, layout: MetricsFile) -> None:
        self.path, self.layout = path, layout
        self.header: list[str] = []
        self.step = 0
        self.first: float | None = None
        self.last: float | None = None
        self.worst: float | None = None

    def look(self) -> None:
        """Read the last whole lines."""
        try:
            with self.path.open("rb") as stream:
                if self.first is None:
                    self._take(stream.read(_GLANCE_BYTES))
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - _GLANCE_BYTES))
                self._take(stream.read(_GLANCE_BYTES))
        except OSError:
            return

    def _take(self, data: bytes) -> None:
        for line in data.split(b"\n")[:-1]:
            try:
                rows = rows_of(self._object(line), self.layout)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            for row in rows:
                self.step = row.step
            for value in (row.value for row in rows if row.metric == CURVE):
                self.first = value if self.first is None else self.first
                self.last = value
                # A loss that is not finite stays the worst: no comparison with it holds.
                self.worst = value if self.worst is None or value > self.worst or math.isnan(value) else self.worst

    def _object(self, line: bytes) -> dict[str, object]:
        if self.path.suffix != ".csv":
            return dict(json.loads(line))
        cells = next(csv.reader([line.decode()]))
        self.header = self.header or cells
        return typed_wide(dict(zip(self.header, cells, strict=True)), self.layout)

    @property
    def falling(self) -> bool | None:
        """Whether the training loss is below where it began; none before that is known."""
        return None if self.first is None or self.last is None else self.last < self.first

    def looks_diverged(self, above: float) -> bool:
        """Whether some training loss calls for a closer look."""
        if self.first is None or self.worst is None:
            return False
        return not math.isfinite(self.worst) or (self.first > 0 and self.worst > above * self.first)


def main() -> None:
    """Serve a scheduler over standard input and output, as `ablate.runner.builtin.process` does."""
    adopt_orphans()
    pipes = Pipes()
    server = Server(pipes.send, pipes.stop, pipes.wait_until_noted)
    for order in pipes.orders(server.abandon):
        spec = CommandSpec.model_validate_json(json.dumps(order["spec"]))
        server.carry_out(spec, RunFolder(Path(str(order["folder"]))), Path(str(order["root"])))


if __name__ == "__main__":
    main()
