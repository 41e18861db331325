"""One call of `ablate run` (`run_study`): how many runs at once, and when all are done; runs left: `logbook.py`.

Two runs with one thread each finish sooner than one run with two threads twice, so a study's own parallelism is used
before a run's. How runs are made is the scheduler's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.gpt.device import CPU
from ablate.records.provenance import code_hash
from ablate.records.run_record import RunRecord
from ablate.runner.launch import RayScheduler, SlurmScheduler, train_words
from ablate.runner.logbook import Logbook
from ablate.runner.machine import Machine, records_of
from ablate.runner.options import RunOptions
from ablate.runner.process import Spec, holder_of, name_holder
from ablate.runner.progress import Tally, Watcher
from ablate.runner.scheduler import Scheduler
from ablate.runner.slurm import Job, SlurmSettings, read_settings
from prereg.errors import RunError
from prereg.registry.disk import open_locked
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import CallStartedEntry, FinishedEntry, SealEntry
from prereg.registry.looks import Look
from prereg.registry.paths import Root
from prereg.registry.plan import plan, planned_runs
from prereg.registry.registration import Registration
from prereg.study.spec import Study
from prereg.study.timed import timed_promises


@dataclass(frozen=True)
class Summary:
    """How a call of `ablate run` ended."""

    planned: int
    """Runs of the plan, or of those that were chosen."""
    sealed: int
    """Runs that are sealed now, those of earlier calls among them."""
    failed: tuple[str, ...]
    """RUN: ERROR of each run that failed in this call."""
    interrupted: bool
    """Whether the user stopped it; every run at work has saved its state then."""
    head: str
    """The ledger's head after the call."""
    gave_up: str = ""
    """The error after which nothing more was started: two runs had failed in the same way, and none had ended well."""
    disk_full: bool = False
    """Whether that was because the disk has no room."""
    stderr: tuple[str, ...] = ()
    """What failed runs of a user's own trainer said, by path."""

    whole: bool = True
    """Whether no run of the plan was left out by choice."""

    elsewhere: tuple[str, ...] = ()
    """Runs that another process was making, ARM/SEED: left out."""

    job: Job | None = None
    """What was submitted to Slurm."""

    @property
    def complete(self) -> bool:
        """Whether every run of the call is sealed."""
        return self.sealed == self.planned


def run_study(
    root: Root,
    registration: Registration,
    options: RunOptions,
    machine: Machine,
    *,
    now: Callable[[], str],
    watcher: Watcher,
    look: Look | None = None,
) -> Summary:
    """Carry out what is left of a registration's plan, up to a look if there is one. The caller holds the lock.

    `now` gives the time of ledger entries, and `watcher` hears of progress. Returns a `Summary`, also where runs failed
    or the user interrupted; raises `EvidenceError` for a seal that does not hold, `RunError` where nothing can start.

        with study_lock(root, study):
            summary = run_study(root, registration, RunOptions(slots=2), Machine(), now=utc_now, watcher=watcher)
        summary.sealed, summary.failed
    """
    # What is left: the runs of the choice, and of these the seeds up to the next look.
    ledger = Ledger(root.ledger)
    chosen_runs = planned_runs(registration.study, options.only, registration=registration)
    specs = [spec for spec in plan(registration) if f"{spec.variant}/{spec.seed}" in chosen_runs]
    if look is not None:
        specs = [spec for spec in specs if spec.seed in registration.study.seeds[: look.n_seeds]]
    # Steps of a user's own trainer may be unknown (0): then the time left is counted in runs.
    tally = Tally(
        planned=len(specs),
        steps_planned=sum(spec.steps for spec in specs),
        has_tasks=registration.study.measure.harness is not None,
    )
    # The scheduler lives in a block: a Ray cluster that was started here ends with it.
    with _scheduler(
        options,
        root=root,
        registration=registration,
        ledger=ledger,
        now=now,
        watcher=watcher,
        tally=tally,
        machine=machine,
        checkpoint_every_s=options.checkpoint_every_s,
    ) as scheduler:
        return _carry_out(scheduler, specs, options)


def hand_out(
    root: Root,
    registration: Registration,
    machine: Machine,
    *,
    now: Callable[[], str],
    watcher: Watcher,
    look: Look | None = None,
) -> list[list[str]]:
    """The words of `ablate` that make each run that is left, for a scheduler that is not known here. Every start is on
    record afterwards; what others have sealed or failed is taken in before. The caller holds the lock."""
    # A start is on record before its words are printed. A run that is then never started waits as `queued`, and the
    # next call enters no second start for it.
    specs = plan(registration)
    if look is not None:
        specs = tuple(spec for spec in specs if spec.seed in registration.study.seeds[: look.n_seeds])
    book = Logbook(
        root=root,
        registration=registration,
        ledger=Ledger(root.ledger),
        now=now,
        watcher=watcher,
        tally=Tally(planned=len(specs), steps_planned=0),
    )
    handed_out = book.hand_out(book.collect(specs), machine.device, launcher="commands")
    if registration.timed and len(handed_out) > 1:
        watcher.note(f"one at a time and in this order, since {registration.timed[0]}: another is refused or found")
    return [train_words(book, spec) for spec in handed_out]


@contextmanager
def _scheduler(options: RunOptions, **fields: Any) -> Iterator[Scheduler]:
    """What makes the runs where the options say."""
    if options.on == "ray":
        from ablate.runner.ray_cluster import connected

        with connected(options.address, options.tasks) as cluster:
            yield RayScheduler(cluster=cluster, **fields)
    elif options.on == "slurm":
        yield SlurmScheduler(settings=slurm_settings(fields["root"], options), **fields)
    else:
        yield Scheduler(**fields)


def slurm_settings(root: Root, options: RunOptions) -> SlurmSettings:
    """How a study is submitted, by `cluster.yaml` and the options. Raises `RunError`."""
    tasks = () if options.tasks is None else (f"tasks={options.tasks}",)
    return read_settings(root, (*options.slurm, *tasks))


def _carry_out(scheduler: Scheduler, specs: Sequence[Spec], options: RunOptions) -> Summary:
    """Take in what is sealed, make what is left, and say how it ended."""
    registration, ledger, tally = scheduler.registration, scheduler.ledger, scheduler.tally
    # First what earlier calls and other processes left: only then is it known what there is to make.
    n_planned = len(registration.study.cells)
    waiting = scheduler.collect(specs)
    tally.steps_before, tally.ended_before = tally.steps_done, tally.sealed
    entries = [entry for entry in ledger.entries() if entry.registration in registration.lineage]
    interrupted = False
    # With slots=0 nothing is made: what others have made is entered, and may complete the plan below.
    if waiting and options.slots != 0 and scheduler.may_start():
        if decided := [entry for entry in entries if entry.event == "decided"]:
            scheduler.watcher.note(
                f"decided on {decided[0].at}: a run that is trained now gives no verdict, unless to the outcome it had "
                "then"
            )
        # One entry for the call: how many runs, with which code, and how many of them had been sealed once before.
        records = records_of(scheduler.root, registration).values()
        slots = options.slots or scheduler.default_slots(slots_of(registration.study, scheduler.machine, records))
        slots = 1 if registration.timed else slots
        sealed_before = {entry.cell for entry in entries if isinstance(entry, SealEntry)}
        n_again = sum(spec.cell in sealed_before for spec in waiting)
        call = CallStartedEntry(
            **scheduler.about(),
            runs=len(waiting),
            of=len(specs),
            slots=slots,
            code=code_hash() if registration.scripts is None else registration.codes_sha256,
            trained_again=n_again,
        )
        scheduler.log(call)
        scheduler.pending.extend(waiting)
        with scheduler.watcher.watching(tally):
            interrupted = scheduler.serve(slots)
    # Where nothing was left to do, this entry repairs what a crash left in the ledger, and says so.
    unsaid = all(entry.event != "finished" for entry in entries) or ledger.unfinished()
    if tally.sealed == n_planned and unsaid and scheduler.all_bound(specs):
        scheduler.log(FinishedEntry(**scheduler.about(), runs=n_planned))
    return Summary(
        len(specs),
        tally.sealed,
        tuple(scheduler.failed),
        interrupted,
        ledger.head(),
        scheduler.gave_up,
        scheduler.disk_full,
        tuple(scheduler.stderr),
        whole=not options.only,
        elsewhere=tuple(scheduler.elsewhere),
        job=scheduler.job,
    )


def default_slots() -> int:
    """As many runs side by side as this process may use cores; a container or `taskset` may leave it fewer than all."""
    # macOS has no affinity.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Slurm need not bind a job to the cores that it was given.
    slurm_cores = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE") or ""
    return min(cores, int(slurm_cores)) if slurm_cores.isdecimal() and int(slurm_cores) else cores


def slots_of(study: Study, machine: Machine, records: Iterable[RunRecord] = ()) -> int:
    """Runs side by side by default: one per core, or per GPU where runs see them; fewer where the largest of the runs
    that are on record leaves no room for so many in memory; one where a claim is about a time."""
    if timed_promises(study):
        return 1
    on_gpus = machine.gpus if study.trainer != "gpt" else machine.device != CPU
    slots = machine.gpu_slots if on_gpus else default_slots()
    # By what runs of this study took so far: none is known before the first, which is no reason to start fewer.
    peaks = [record.peak_memory_bytes for record in records if record.peak_memory_bytes]
    if not peaks or not (available := available_memory()):
        return slots
    return max(1, min(slots, available // max(peaks)))


def available_memory() -> int | None:
    """Bytes that new processes may take without swapping; none where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    with suppress(OSError, ValueError):  # a container, or a job of a cluster, may use less than the machine has
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        free = min(free, limit - int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")))
    return max(0, free)


@contextmanager
def study_lock(root: Root, study: str) -> Iterator[None]:
    """Hold a study for one `ablate run`. The kernel lets go of it however that ends.

    Raises `RunError` where another process holds it or the folder cannot be written, `UnsupportedError` where its file
    system has no locks.
    """
    # A lock of the study, apart from those of its runs: of two calls for one study the second would enter runs that
    # the first is about to seal.
    folder = root.path / "data" / "runs" / study
    path = folder / ".lock"
    try:
        stream = open_locked(path)
    except BlockingIOError as error:
        raise RunError(
            f"'{study}' is being run by another process ({holder_of(path)})",
            required="one `ablate run` of a study at a time, which alone writes its ledger",
            fix=f"wait for it, or: ablate status {root.study(study)}",
        ) from error
    except OSError as error:
        raise RunError(
            f"{folder} cannot be written: {error.strerror}",
            required="a writable data/runs folder",
            fix=f"ls -ld {root.path / 'data'}   (or use --root)",
        ) from error
    with stream, name_holder(stream):
        yield
