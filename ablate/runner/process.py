"""One run (`make_run`) of any trainer, to its seal: its environment (ABLATE_* variables), watching, reading back.

    run folder            run.json, the sealed tables and weights, config.json, stdout.txt, stderr.txt
    run folder / work     the trainer's own directory, and all of it that it may write in
    run folder / code     what a user's own trainer is started from: a copy of the registered code, gone at the end

A run is a process with files (docs/trainer-protocol.md; `ablate.records.outputs` names the files). Each attempt begins
in an empty directory, unless the one before left a file named `resumable` in it: by this the trainer says that it can
go on from what lies there. It is then started again (ABLATE_ATTEMPT counts) with its metrics file as it left it, a torn
last line cut off; a step that it repeats it must take out of that file first. What an attempt that was stopped or
failed left there is hashed: a file that was changed since is not resumed from.

The trainer gets its seed, its variant and its configuration, never a hypothesis. By the registered rule a run diverges
at the step whose recorded train/loss says so; it ends there, whatever its exit status. Any other status than 0 is a
failure. What the trainer is to record is checked at the end of each run, not when all of them have been paid for.

The ledger is none of this module's business. An attempt that is on record before it begins is a record that says
`queued` (`queue_attempt`); the attempts of every other start are found by the judge, which has the ledger's starts too.
Whether a queued attempt has begun all the same, the ledger says of runs that are made here, and `config.json` of
others: it is written right before the trainer's process, and removed when the next attempt is queued.

A failure before that process exists (a program that is missing, other data than registered) is reported as such
(`Message.before_start`): nothing was drawn, so the next start is the same attempt where the ledger says the same.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, TypeVar

from pydantic import JsonValue

from ablate.gpt.device import CPU, ENVIRONMENT, device_name
from ablate.records.outputs import (
    ABOUT,
    FINGERPRINTS,
    ITEMS,
    MUST_MATCH,
    PROGRESS,
    RESUMABLE,
    WEIGHTS,
    read_about,
    read_hashes,
    read_items,
    read_progress,
    readable_about,
)
from ablate.records.provenance import current_provenance, of_command
from ablate.records.rows import Row, divergence_of, lacking, read_rows, until
from ablate.records.run_record import About, Divergence, LiveValues, Provenance, RunRecord, utc_timestamp
from ablate.records.store import RunFolder
from ablate.runner.child import Child, Start, end_leftover, start_program
from ablate.runner.failures import claimed_values, left_values, place_of
from ablate.runner.glance import Glance
from ablate.runner.listening import Control, wait_for_stop
from ablate.runner.messages import Message, failed, said, show_trace
from ablate.runner.pinned import Hashed, private_copy, require_registered_files
from prereg.errors import EvidenceError, RunError, StudyError
from prereg.registry.canon import sha256_file
from prereg.registry.disk import NO_ROOM, open_locked, write_passing, write_whole
from prereg.registry.plan import CommandSpec, RunSpec
from prereg.study.command import code_sha256, filled

Spec = RunSpec | CommandSpec
Content = TypeVar("Content")

LOCK = ".lock"
"""What the process that makes a run holds, in the run's folder."""
LEFT_BEHIND = "the command left processes of its own session behind, which were ended"
SIGNAL_GAP_S = 0.3
"""By how much a signal to all processes of a job may reach the trainer earlier than this process."""
SAY_EVERY_S = 0.5
"""Between two reports of progress to the scheduler."""
NOTE_EVERY_S = 10.0
"""Between two notes of progress in run.json, which tell how long a run took that is killed."""

ONE_THREAD: Mapping[str, str] = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment of a process that forks: numpy, pyarrow's allocator and tokenizers otherwise start threads, which no fork
has."""

ALONE: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # Freed memory stays with the process, and comes in large pages: a step otherwise asks the kernel for the same
    # pages again and again, a tenth of its time. Other C libraries ignore it.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=8589934592"
    ":glibc.malloc.mmap_threshold=8589934592:glibc.malloc.top_pad=268435456",
    **ONE_THREAD,
}
"""Environment of the built-in trainer, of which many runs are made side by side."""


@dataclass(frozen=True)
class Place:
    """Where and on what a run is made. None of it is registered, and none of it moves a bit on one device."""

    root: Path
    """The project."""

    device: str = CPU
    """Of the built-in trainer: cpu, or cuda:N."""

    checkpoint_every_s: float | None = None
    """Of the built-in trainer: seconds between checkpoints."""

    until: int | None = None
    """Of the built-in trainer: the step after which it stops, unsealed; the beginning of a run, to be compared."""

    device_name: str | None = None
    """What a provenance calls the device; none before torch is queried. To query it about a GPU initialises CUDA,
    and no process forked afterwards can use one: a pool asks before it starts its server."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """What the environment of a trainer begins with."""

    @property
    def corpora(self) -> Path:
        """Where the corpora are."""
        return self.root / "data" / "corpora"


@dataclass(frozen=True)
class Begun:
    """An attempt that is on record, and has not begun: what a ledger says of it."""

    record: RunRecord
    """With the status `queued`."""

    resumed_from: int | None = None
    """The last step on record where the attempt goes on; none where it begins at the first step."""

    left_values: bool | None = None
    """Whether an attempt whose values are given up had recorded one of a claimed metric; none where there was none."""

    waited: bool = False
    """Whether it was on record before, and had not begun."""


def make_run(
    spec: Spec,
    folder: RunFolder,
    place: Place,
    control: Control,
    report: Callable[[Message], None],
    *,
    start: Start = start_program,
    hashed: Hashed | None = None,
) -> Message:
    """One planned run from its start, or its resume, to its seal. The caller holds the lock of the folder.

    Returns how it ended: `ended` with its status (done, diverged or failed), or `stopped`, when it can be resumed.
    Whatever goes wrong becomes a `failed` record and is not raised. `report` hears progress and notes meanwhile.

        with held(folder) as lock, name_holder(lock), Signals().heard() as control:
            ended = make_run(spec, folder, place, control, report=print)
        ended.status    # "done", "diverged" or "failed"
    """
    # An error of any kind becomes a record of this run, and the pool goes on to the next. `Abandoned`, a scheduler
    # that is gone, is no `Exception` and passes through.
    run: _Run | None = None
    try:
        run = _Run(spec, folder, place, control=control, report=report, start=start, hashed=hashed or Hashed())
        return run.finish()
    except Exception as error:
        return fail(spec, folder, place, error, before_start=run is not None and not run.has_begun)


def fail(spec: Spec, folder: RunFolder, place: Place, error: Exception, *, before_start: bool = False) -> Message:
    """Record a run as failed with an error, if it has a record; what there is to say of it.

    `before_start`: its attempt is on record, and the trainer's process never existed.
    """
    if not isinstance(error, StudyError):
        show_trace(error)
    line = error.found if isinstance(error, StudyError) else said(error, folder)
    line = line.replace(f"{place.root}/", "")  # no path of this machine in a record
    if before_start:
        with suppress(OSError):  # left there, the attempt counts as one that has begun
            _config_path(folder).unlink(missing_ok=True)
    folder.fail(line, utc_timestamp())
    return failed(spec, error, line, before_start=before_start)


def _config_path(folder: RunFolder) -> Path:
    """What the trainer finds at ABLATE_CONFIG. Outside `work/`: it reads the file and has no business to write it."""
    return folder.path / "config.json"


@contextmanager
def held(folder: RunFolder) -> Iterator[IO[str]]:
    """The folder of a run, created where there is none, and locked against every other process that would make it.

    Raises `BusyError` where another process holds it, `UnsupportedError` where the file system has no locks.
    """
    # A lock of the kernel and no file with a pid: it ends with its process, however that ends.
    path = folder.path / LOCK
    try:
        stream = open_locked(path)
    except BlockingIOError:
        raise BusyError(
            f"{folder.path} is being made by another process ({holder_of(path)})",
            required="one process a run",
            fix="wait for it, or end it there",
        ) from None
    with stream:
        yield stream


def holder_of(lock: Path) -> str:
    """Who holds a lock, as `name_holder` wrote it."""
    return lock.read_text(encoding="utf-8").strip() or "unknown"


@contextmanager
def name_holder(lock: IO[str]) -> Iterator[None]:
    """Say in a lock that is held who holds it, for as long as the block lasts.

    >>> folder = RunFolder(Path("run"))
    >>> with held(folder) as lock, name_holder(lock):
    ...     holder_of(folder.path / LOCK).startswith(f"pid {os.getpid()} on ")
    True
    """
    holder = f"pid {os.getpid()} on {socket.gethostname()}\n"
    os.ftruncate(lock.fileno(), 0)
    with suppress(OSError):  # on a full disk the lock holds all the same
        os.pwrite(lock.fileno(), holder.encode(), 0)
    try:
        yield
    finally:
        os.ftruncate(lock.fileno(), 0)


class BusyError(RunError):
    """Another process holds the folder of a run."""


def queue_attempt(
    spec: Spec, folder: RunFolder, place: Place, *, has_begun: bool = False, failed_before_start: bool = False
) -> Begun:
    """Put the next attempt at a run on record, before it begins. The caller holds the lock of the folder.

    A start that was put on record and never began is that attempt. By the ledger, a queued one may have begun all the
    same (`has_begun`), or the last one failed before its trainer's process existed (`failed_before_start`) and is
    queued again. Raises `EvidenceError` where what an attempt that could be resumed left was changed since.
    """
    # The folder is read once nothing writes in it any more: a trainer may have outlived the process that ran it.
    end_leftover(folder.path)
    earlier = folder.read_record()
    has_begun = has_begun or _config_path(folder).exists()
    home = folder.path / "work"
    if earlier is not None and earlier.status == "queued" and not has_begun:
        return Begun(earlier, waited=True)
    if earlier is not None and failed_before_start and not has_begun and (home.is_dir() or earlier.attempts == 1):
        return _queue_again(spec, folder, place, earlier)
    if earlier is not None:  # a killed attempt could not take in what its trainer had stated
        earlier = earlier.model_copy(update=_stated(earlier, readable_about(home / ABOUT)))
    resumed, redrawn = (earlier.resumed_from, earlier.redrawn) if earlier is not None else ((), 0)
    step: int | None = None
    left: bool | None = None
    live: LiveValues | None = None
    resumes = earlier is not None and (home / RESUMABLE).is_file()
    # Resumed: what lies here is the beginning of the run. The values of the attempt before are kept, to be compared
    # with those that are sealed (`redrawn`).
    if earlier is not None and resumes:
        _require_as_left(spec, folder, earlier)
        folder.clear()
        for name in (ABOUT, PROGRESS):
            (home / name).unlink(missing_ok=True)
        step = _cut_back(spec, folder)
        resumed = (*resumed, step)
        live = LiveValues(values=claimed_values(spec, folder))
        redrawn += _gave_up(earlier.live, live.values)
    elif earlier is not None:
        # From the first step: whether values are given up is found out before they are removed. Of an attempt whose
        # record says that it never began, and which may have begun, nothing here is evidence.
        left = _left_values(spec, folder, earlier) or (None if earlier.status == "queued" else False)
    carried_over = ("mishaps", "peak_memory_bytes", "memory_since")
    record = RunRecord.begin(
        spec,
        earlier,
        provenance_of(spec, place),
        config=spec.config if isinstance(spec, CommandSpec) else spec.config.model_dump(mode="json"),
        parameters=0,
        resumed_from=resumed,
        live=live,
        redrawn=redrawn,
        **({} if earlier is None else {name: getattr(earlier, name) for name in carried_over}),
    )

    def clear_work() -> None:
        _config_path(folder).unlink(missing_ok=True)
        if not resumes:
            folder.clear()
            if home.exists():
                shutil.rmtree(home)
            home.mkdir(parents=True)

    # As durable as the ledger's entry of this start: what a loss of power takes of a run, it takes of both. A full disk
    # is met before anything of the attempt before is removed.
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write_record(record, durable=False, before=clear_work)
    return Begun(record, step, left)


def _queue_again(spec: Spec, folder: RunFolder, place: Place, earlier: RunRecord) -> Begun:
    """The attempt that failed before its trainer's process existed, queued once more: nothing was drawn by it."""
    update = {"status": "queued", "error": None, "ended_at": None, "provenance": provenance_of(spec, place)}
    record = earlier.model_copy(update=update)
    folder.write_record(record, durable=False)
    # What lies in `work/` is what the attempt was queued with; of a first one that is nothing.
    home = folder.path / "work"
    home.mkdir(parents=True, exist_ok=True)
    resumes = (home / RESUMABLE).is_file() and record.resumed_from
    return Begun(record, record.resumed_from[-1] if resumes else None, None if record.attempts == 1 else False)


def provenance_of(spec: Spec, place: Place) -> Provenance:
    """With what a run is about to be made here, as far as that is known without its trainer."""
    if isinstance(spec, CommandSpec):
        return of_command(code_sha256(spec.files))
    return current_provenance(threads=1, device=place.device_name or device_name(place.device))


def tracker_names(spec: Spec, environment: Mapping[str, str]) -> dict[str, str]:
    """How W&B and MLflow name a run whose script names none, in the variables that their libraries read."""
    name = f"{spec.variant}/seed{spec.seed}"
    tags = {
        "mlflow.runName": name,
        "variant": spec.variant,
        "seed": str(spec.seed),
        "ablate.registration": spec.registration,
    }
    names = {
        "WANDB_RUN_GROUP": f"{spec.study}-{spec.registration[:8]}",
        "WANDB_NAME": name,
        "MLFLOW_RUN_CONTEXT": json.dumps(tags),
    }
    # MLflow refuses a name and an id that lead to two experiments.
    if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & environment.keys():
        names["MLFLOW_EXPERIMENT_NAME"] = spec.study
    return names


class _Run:
    """One attempt: start the trainer, watch it, read what it left, seal."""

    def __init__(
        self,
        spec: Spec,
        folder: RunFolder,
        place: Place,
        *,
        control: Control,
        report: Callable[[Message], None],
        start: Start,
        hashed: Hashed,
    ) -> None:
        self.taken = time.perf_counter()
        self.spec, self.folder, self.place = spec, folder, place
        self.control, self.report, self.start, self.hashed = control, report, start, hashed
        self.peak_memory_bytes = 0
        self.has_begun = False
        """Whether the trainer's process exists, or has existed."""
        self.home = folder.path / "work"
        self.metrics = self.home / spec.metrics.file
        self.code = private_copy(place.root, spec, folder.path / "code") if isinstance(spec, CommandSpec) else None
        self.glance = Glance(self.metrics, spec.metrics)
        queued = queue_attempt(spec, folder, place).record
        update: dict[str, object] = {"status": "running"}
        if queued.provenance != (here := provenance_of(spec, place)):
            update["provenance"] = here  # it was put on record by another machine
        if queued.attempts == 1:
            update["started_at"] = utc_timestamp()
        # Whatever goes wrong from here on goes wrong with an attempt that is on record.
        self.record = queued.model_copy(update=update)

    def finish(self) -> Message:
        """Until the trainer ends, has diverged, or is stopped. Raises whatever makes the run fail."""
        try:
            return self._finish()
        except Exception:
            if self.has_begun:
                with suppress(OSError):  # the error says more than that it could not be written down
                    self._note(ended=True)
            raise

    def _finish(self) -> Message:
        # Before the trainer begins: an attempt that may have recorded something is never taken for one that waits.
        self.folder.write_record(self.record, durable=False)
        # Data is read where it lies, so its hash is compared before the run and after it; code runs from a copy.
        if isinstance(self.spec, CommandSpec):
            require_registered_files(self.place.root, self.spec.data_files, self.hashed.sha256)
        try:
            if self.code is not None:
                self.code.lay_out()
            child = self._start()
            try:
                stopped = self._watch(child)
            finally:
                status = child.finish()
                self.peak_memory_bytes = child.peak_memory_bytes
            # A signal to all processes of a job may reach the trainer first.
            stopped = stopped or self.control.stopped or (status != 0 and wait_for_stop(self.control, SIGNAL_GAP_S))
            if not stopped and self.code is not None:
                self.code.require_unchanged()
        finally:
            if self.code is not None:
                self.code.remove()
        if stopped:
            return self._stopped()
        if self.code is not None:
            self.code.require_source_unchanged()
        if isinstance(self.spec, CommandSpec):
            require_registered_files(self.place.root, self.spec.data_files, self.hashed.sha256)
        # What it left, read strictly: from here on the run is sealed or has failed.
        rows = self._rows(child, status)
        about = self._output(ABOUT, read_about)
        divergence = self._divergence(rows, about if status == 0 else None)
        if divergence is None:
            if self.place.until is not None and max((row.step for row in rows), default=0) < self.spec.steps:
                return self._stopped()
            self._require_needed(rows)
        return self._seal(rows, divergence, about, child.left)

    def _start(self) -> Child:
        config = _config_path(self.folder)
        content = json.dumps(self._configuration(), indent=2, ensure_ascii=False, allow_nan=False)
        write_passing(config, content.encode() + b"\n")
        words, home, inherited = self._program()
        environment = {
            **inherited,
            **tracker_names(self.spec, self.place.environment),
            # Last, so that a variable of that name in the user's own environment cannot stand in for them.
            "ABLATE_SEED": str(self.spec.seed),
            "ABLATE_VARIANT": self.spec.variant,
            "ABLATE_CONFIG": str(config),
            "ABLATE_ROOT": str(self.place.root),
            "ABLATE_RUN_DIR": str(self.home),
            "ABLATE_METRICS": str(self.metrics),
            "ABLATE_REGISTRATION": self.spec.registration,
            "ABLATE_ATTEMPT": str(self.record.attempts),
        }
        try:
            process = self.start(words, home, environment)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise
            raise RunError(_not_started(words[0], home, error), required="a program that starts") from error
        self.has_begun = True
        return Child(process, self.folder.path)

    def _configuration(self) -> dict[str, JsonValue]:
        """What the trainer finds at ABLATE_CONFIG."""
        spec, place = self.spec, self.place
        if isinstance(spec, CommandSpec):
            return spec.config
        # No name of a claimed metric is among it.
        run: dict[str, JsonValue] = spec.model_dump(mode="json", exclude={"claimed", "needed", "needs_curve"})
        paths = {"root": place.root, "corpora": place.corpora}
        return {
            **run,
            "paths": {name: str(path) for name, path in paths.items()},
            "device": place.device,
            "checkpoint_every_s": place.checkpoint_every_s,
            "until": place.until,
        }

    def _program(self) -> tuple[tuple[str, ...], Path, dict[str, str]]:
        """The words of the trainer, the folder it starts in, and the environment it is given."""
        spec = self.spec
        if not isinstance(spec, CommandSpec):
            needed = ALONE if self.place.device == CPU else {**ALONE, **ENVIRONMENT}
            return (sys.executable, "-m", "ablate.gpt"), self.home, {**self.place.environment, **needed}
        assert self.code is not None
        own = {"variant": spec.variant, "seed": str(spec.seed), "python": sys.executable}
        own |= {"root": str(self.place.root), "run_dir": str(self.home)}
        words = tuple(self.code.word(word) for word in filled(spec.command, own, spec.config) if word is not None)
        home = self.home if spec.working_directory == "run" else self.code.place
        return words, home, self.code.environment(self.place.environment)

    def _watch(self, child: Child) -> bool:
        """Wait for the end. True when the run is to stop."""
        reported = noted = time.perf_counter()
        step = 0
        while child.ended() is None:
            if self.control.stopped:
                child.stop()
                return True
            # Its pipes are drained here: a trainer that prints into a full one waits, and so would the run.
            self.control.wait(SAY_EVERY_S - (time.perf_counter() - reported), child.output)
            child.read_output()
            now = time.perf_counter()
            if now - reported < SAY_EVERY_S:
                continue
            self.glance.look()
            speed = max(0.0, (self.glance.step - step) / (now - reported))
            self._report_progress(speed)
            reported, step = now, self.glance.step
            if self.glance.looks_diverged(self.spec.diverged_above) and self._has_diverged():
                child.stop()  # it may be writing down its end
                return False
            if now - noted > NOTE_EVERY_S:
                noted = now
                self._note()
        return False

    def _report_progress(self, steps_per_s: float) -> None:
        progress = read_progress(self.home / PROGRESS)
        self.report(
            Message(
                event="progress",
                run_id=self.spec.run_id,
                step=self.glance.step,
                steps=(progress.steps if progress is not None else None) or self.spec.steps,
                steps_per_s=steps_per_s,
                falling=self.glance.falling,
                doing="" if progress is None else progress.text,
                seconds_left=None if progress is None else progress.seconds_left,
            )
        )

    def _has_diverged(self) -> bool:
        """Checks what a glance suspects on the whole file."""
        try:
            rows = read_rows(self.metrics, self.spec.metrics, torn=True)
        except EvidenceError:
            return False  # the end of the run will show
        return divergence_of(rows, self.spec.diverged_above) is not None

    def _rows(self, child: Child, status: int) -> list[Row]:
        """What the trainer recorded. Raises where it failed, unless it had diverged by then."""
        # A divergence is an outcome, also of a trainer that crashes on its NaN; any other end but 0 is a failure.
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
        ends = "; stderr ends: " + " / ".join(last) if last else "; nothing on stderr"
        raise RunError(how + ends, required="exit status 0")

    def _divergence(self, rows: list[Row], about: About | None) -> Divergence | None:
        """Where the run diverged by the registered rule, or by what its trainer states of a loss that is no number.
        Raises `EvidenceError` for a claimed value that was recorded afterwards."""
        observed = divergence_of(rows, self.spec.diverged_above)
        stated = None if about is None else about.diverged_at
        if stated is None or (observed is not None and observed.step <= stated):
            return observed
        late = next((row for row in rows if row.step > stated and row.metric in self.spec.claimed), None)
        if late is not None:
            raise EvidenceError(
                f"{ABOUT}: diverged at step {stated}, and {self.spec.metrics.file} has {place_of(late)}",
                required="no value of a claimed metric after the divergence",
            )
        return Divergence(step=stated, stated=True)

    def _require_needed(self, rows: list[Row]) -> None:
        """A finished run has what the claims and the rule of stability will ask of it."""
        # Found now, while the trainer can be corrected, and not by the verdict, after all runs.
        absent = lacking(rows, self.spec.needed, whole_curve=self.spec.needs_curve)
        if absent:
            (self.home / RESUMABLE).unlink(missing_ok=True)
            raise EvidenceError(f"{self.spec.metrics.file}: {'; '.join(absent)}", required="what the claims read")

    def _output(self, name: str, read: Callable[[Path], Content]) -> Content:
        """One of the trainer's files. An error names it."""
        try:
            return read(self.home / name)
        except EvidenceError as error:
            raise EvidenceError(f"{name}: {error.found}", required=error.required) from error

    def _seal(
        self, rows: list[Row], divergence: Divergence | None, about: About | None, left: tuple[str, ...]
    ) -> Message:
        # Everything is read before anything is moved: a fault in the last file leaves the run unsealed, and its
        # folder as it was.
        matching, had = (self._output(name, read_hashes) for name in (MUST_MATCH, FINGERPRINTS))
        items = []
        if divergence is None:  # scores by the weights of a run that diverged are read by no claim
            items = self._output(ITEMS, lambda path: read_items(path, self.spec.metrics))
        counted, last = until(rows, None if divergence is None else divergence.step)
        status: Literal["done", "diverged"] = "done" if divergence is None else "diverged"
        values = {place_of(row): row.value for row in counted if row.metric in self.spec.claimed}
        update = self._cost(about) | {
            "status": status,
            "divergence": divergence,
            "steps": last,
            "ended_at": utc_timestamp(),
            "must_match": matching,
            "fingerprints": had,
            "live": None,
            "redrawn": self.record.redrawn + _gave_up(self.record.live, values),
            "weights_sha256": self._take_weights(),
        }
        record = self.record.model_copy(update=update)
        if left:
            mishap = f"{LEFT_BEHIND}: {', '.join(left)}"
            record = record.model_copy(update={"mishaps": (*record.mishaps, mishap)})
            self.report(Message(event="note", text=f"{self.spec.run_id}: {mishap}"))
        self.folder.seal(record, counted, items)
        if isinstance(self.spec, CommandSpec):
            (self.home / ITEMS).unlink(missing_ok=True)  # items.parquet holds all of it
        else:  # of the built-in trainer nothing is left that is not sealed
            shutil.rmtree(self.home)
        return self._ended("ended", last, status, divergence)

    def _take_weights(self) -> str | None:
        """Move the final weights to the run's folder; their hash, none where there are none."""
        # A link could lead to a file that another run goes on to change.
        source = self.home / WEIGHTS
        if source.is_symlink() or not source.is_file():
            return None
        # Synced before the rename: after a loss of power the name could otherwise be there, and the bytes not.
        with source.open("rb+") as stream:
            os.fsync(stream.fileno())
        sha256 = sha256_file(source)
        source.replace(self.folder.weights_path)
        return sha256

    def _stopped(self) -> Message:
        self._note(ended=True)
        self.glance.look()
        return self._ended("stopped", self.glance.step)

    def _ended(
        self,
        event: Literal["ended", "stopped"],
        step: int,
        status: Literal["done", "diverged"] | None = None,
        divergence: Divergence | None = None,
    ) -> Message:
        return Message(
            event=event,
            run_id=self.spec.run_id,
            step=step,
            steps=self.spec.steps,
            status=status,
            divergence="" if divergence is None else divergence.words,
            peak_memory_bytes=self.peak_memory_bytes,
        )

    def _note(self, *, ended: bool = False) -> None:
        """How far the run has come, for `ablate status` and for the time it has taken; at an end without a seal also
        what the trainer states, and what the file of metrics holds."""
        update: dict[str, object] = {"wall_s": self._wall(), "steps": self.glance.step}
        if ended:
            update |= self._cost(readable_about(self.home / ABOUT))
            (self.home / ABOUT).unlink(missing_ok=True)  # taken in: the next attempt states its own
            values = claimed_values(self.spec, self.folder)
            update["live"] = LiveValues(sha256=_sha256_of(self.metrics), values=values)
            update["redrawn"] = self.record.redrawn + _gave_up(self.record.live, values)
        self.folder.write_record(self.record.model_copy(update=update))

    def _cost(self, about: About | None) -> dict[str, object]:
        """Time and memory so far, earlier attempts included, and whatever else the trainer states."""
        # A trainer that states its own peak knows it better than the kernel, which counts the interpreter and its
        # libraries.
        facts = _stated(self.record, about)
        if about is None or about.peak_memory_bytes is None:
            # Interpreter and libraries are in it, and whatever process of the trainer was the largest.
            measured = max(self.peak_memory_bytes, self.record.peak_memory_bytes or 0)
            facts |= {"peak_memory_bytes": measured, "memory_since": "process"}
        return facts | {"wall_s": self._wall()}

    def _wall(self) -> float:
        return self.record.wall_s + time.perf_counter() - self.taken


def _not_started(program: str, home: Path, error: OSError | ValueError) -> str:
    """Why a program could not be started in a folder. Of a run's error only this line is kept."""
    if isinstance(error, ValueError):
        return f"'{program}' cannot be started: {error}"
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return f"no process can be started ({error.strerror}): end others, or raise the limit, and run again"
    # The system has the same error for a folder that is missing as for a program that is.
    if error.filename == str(home) or not home.is_dir():
        return f"the folder in which '{program}' is to be started cannot be entered: {home} ({error.strerror})"
    # Nor has it another error for a script whose interpreter is missing.
    if error.errno == errno.ENOENT and shutil.which(program) is not None:
        return f"'{program}' cannot be started: the interpreter in its first line is missing"
    return f"'{program}' cannot be started: {error.strerror}"


def _stated(record: RunRecord, about: About | None) -> dict[str, object]:
    """The fields of a record that its trainer states, as they are after the attempt that states them."""
    if about is None:
        return {}
    # Field by field, so that nothing a trainer states can replace what was observed here (status, times, hashes).
    names = (
        "parameters",
        "tokens",
        "train_s",
        "eval_s",
        "memory_since",
        "repetition",
        "baselines",
        "harness",
    )
    facts: dict[str, object] = {name: value for name in names if (value := getattr(about, name)) is not None}
    facts["provenance"] = record.provenance.model_copy(update=about.provenance)
    facts["mishaps"] = (*record.mishaps, *about.mishaps)
    if about.peak_memory_bytes is not None:
        facts["peak_memory_bytes"] = max(about.peak_memory_bytes, record.peak_memory_bytes or 0)
        if "process" in (record.memory_since, about.memory_since):
            facts["memory_since"] = "process"
    if "resumed_from" in about.model_fields_set and record.resumed_from and record.attempts > 1:
        # What the record has of this attempt is where its metrics file ended, which is a guess.
        stated = () if about.resumed_from is None else (about.resumed_from,)
        facts["resumed_from"] = (*record.resumed_from[:-1], *stated)
    return facts


def _require_as_left(spec: Spec, folder: RunFolder, earlier: RunRecord) -> None:
    """The file of metrics is the one that the attempt before left, where that could still say which."""
    left = earlier.live
    metrics = folder.path / "work" / spec.metrics.file
    if left is None or left.sha256 is None or left.sha256 == _sha256_of(metrics):
        return
    # Of a run's error only what was found is kept.
    way_out = f"restore it, or rm -r {folder.path} and run again, which counts as a lost start"
    raise EvidenceError(
        f"{metrics} was changed after the run had stopped; {way_out}",
        required=f"the file as it was left (sha256 {left.sha256})",
    )


def _left_values(spec: Spec, folder: RunFolder, earlier: RunRecord) -> bool:
    """Whether the attempt before had recorded a claimed value, or may have: what it left is not what it was."""
    left, home = earlier.live, folder.path / "work"
    metrics = home / spec.metrics.file
    if left is not None and (left.values or left.sha256 not in (None, _sha256_of(metrics))):
        return True
    if not home.is_dir() or (earlier.steps > 0 and not metrics.is_file()):
        return True
    return left_values(spec, folder)


def _cut_back(spec: Spec, folder: RunFolder) -> int:
    """Cut off what a killed writer left of a line; returns the last step on record."""
    home = folder.path / "work"
    metrics = home / spec.metrics.file
    if not metrics.is_file():
        return 0
    # After the last newline is what its writer was at when it was killed.
    data = metrics.read_bytes()
    write_whole(metrics, data[: data.rfind(b"\n") + 1])
    try:
        return max((row.step for row in read_rows(metrics, spec.metrics)), default=0)
    except EvidenceError:
        (home / RESUMABLE).unlink()
        raise


def _gave_up(before: LiveValues | None, now: Mapping[str, float]) -> bool:
    """Whether a claimed value that an attempt had recorded is gone, or is another one."""
    # Exactly: a value that moved in its last digit was drawn again.
    return before is not None and any(now.get(at) != value for at, value in before.values.items())


def _sha256_of(path: Path) -> str | None:
    return sha256_file(path) if path.is_file() else None
