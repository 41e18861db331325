"""Launchers of runs that are made elsewhere: jobs of Slurm, tasks of Ray, or a scheduler that nobody here knows.

All of them call `ablate train STUDY ARM/SEED`, which makes one planned run in its folder and writes no ledger. So the
start of each run is put on record here, before it is handed out, and its end by whichever call of `ablate run` finds it
(`Logbook.collect`). An attempt that nobody put on record, of a job that its cluster queued again by itself, is found
there too, and is a deviation by name.

To add a launcher: a subclass of `Scheduler` here with its own `serve`, which calls `hand_out` before it starts anything
and `end`, `end_sealed` or `retry` when a run is over; its name in `RunOptions.on` (`ablate.runner.options`); a branch
in `_scheduler` of `ablate.runner.local`; what it needs in `_require_launcher` of `ablate.running`; the option `--on` of
`ablate.cli.runs`; and a test like tests/runner/test_ray.py.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from ablate.runner.child import TERM_PATIENCE_S
from ablate.runner.logbook import Logbook, is_sealed
from ablate.runner.messages import Message
from ablate.runner.process import Spec
from ablate.runner.ray_cluster import RayCluster
from ablate.runner.scheduler import BUSY_PATIENCE_S, Scheduler, interrupts_heard
from ablate.runner.slurm import MOST_TASKS, SlurmSettings, newest_job, queue, submit

_LOOK_EVERY_S = 0.5


def train_words(book: Logbook, spec: Spec) -> list[str]:
    """The words of `ablate` that make a run, on any machine that sees the folder: train STUDY ARM/SEED --root ROOT."""
    # Absolute, as the job starts in a folder that the scheduler chooses.
    study = book.root.path.resolve() / book.study_folder.relative_to(book.root.path) / f"{spec.study}.yaml"
    return ["train", str(study), f"{spec.variant}/{spec.seed}", "--root", str(book.root.path.resolve())]


@dataclass(kw_only=True)
class SlurmScheduler(Scheduler):
    """Submits runs as one job array of Slurm, and does not wait for them."""

    settings: SlurmSettings

    def may_start(self) -> bool:
        """Not while a job that was submitted before is in the queue."""
        job = newest_job(self._runs)
        # A cluster that does not answer counts as an empty queue: a run at work holds the lock of its folder, so
        # nobody makes it twice.
        n_by_state = queue(job)
        if job is None or not n_by_state:
            return True
        counts = ", ".join(f"{count} {state.lower()}" for state, count in n_by_state.items())
        self.watcher.note(
            f"Slurm job {job.id}, submitted {job.at}, has not ended: {counts}; wait for it, or: scancel {job.id}"
        )
        return False

    def default_slots(self, on_this_machine: int) -> int:
        """Tasks that Slurm may run at a time."""
        return self.settings.at_once or min(self.settings.tasks or MOST_TASKS, self.tally.planned - self.tally.sealed)

    def serve(self, slots: int) -> bool:
        """Put all starts on record, and submit."""
        # Starts first: a job that begins at once must find its run queued on record.
        specs = self.hand_out(list(self.pending), self.machine.device, launcher="slurm")
        self.pending.clear()
        if specs:
            commands = [train_words(self, spec) for spec in specs]
            name = self.registration.study.study
            # In one task, one after the other, where order is kept.
            settings = self.settings.model_copy(update={"tasks": 1}) if self.keeps_order else self.settings
            self.job = submit(self.root, self._runs, name, commands, settings, at=self.now())
        return False

    @property
    def _runs(self) -> Path:
        return self.root.runs(self.registration.study.study, self.registration.runs_sha256)


@dataclass(kw_only=True)
class RayScheduler(Scheduler):
    """Makes runs by the tasks of a Ray cluster, in place of processes on this machine."""

    cluster: RayCluster

    def default_slots(self, on_this_machine: int) -> int:
        """Tasks that the cluster has room for."""
        return self.cluster.n_tasks

    @property
    def busy_patience_s(self) -> float:
        """A run may take that long to save its state when its worker is gone, and holds its folder meanwhile."""
        return TERM_PATIENCE_S + BUSY_PATIENCE_S

    def serve(self, slots: int) -> bool:
        """Until nothing is left to do, with so many tasks at a time. True when the user interrupted."""
        spec_by_name: dict[str, Spec] = {}
        with interrupts_heard(self):
            while (spec_by_name or self._left()) and not self.interrupts:
                self.take_up_busy()  # tried again each round, for as long as `_left` is patient
                while self.pending and len(spec_by_name) < slots and not (self.busy and self.keeps_order):
                    spec = self.pending.popleft()
                    if not self.hand_out([spec], self.machine.device, launcher="ray", name_busy=False):
                        self.busy.append(spec)  # the process of a lost worker saves its run, and ends
                    else:
                        self._busy_since = None
                        spec_by_name[spec.run_id] = spec
                        self.tally.hear(spec.run_id, Message(event="progress", run_id=spec.run_id, steps=spec.steps))
                        self.cluster.start(spec.run_id, train_words(self, spec))
                # What the task printed decides nothing: the run's folder says whether it is sealed.
                for name, status, last_line in self.cluster.wait(_LOOK_EVERY_S):
                    self._task_ended(spec_by_name.pop(name), status, last_line)
                self._look(spec_by_name)
                self.watcher.tick(self.tally)
        if self.interrupts:
            self.watcher.note("stopping: the tasks end, and each run saves its state where its trainer can")
            self.stopped = True
            self.pending = deque()
        return self.stopped

    def _task_ended(self, spec: Spec, status: int | None, last_line: str) -> None:
        """The task of a run is over, or its worker or node was lost."""
        # The order matters: a seal counts whatever its process did next; a failure is final; only then is a loss
        # retried.
        folder = self.folder(spec)
        record = folder.readable_record()
        self.tally.running.pop(spec.run_id, None)
        message = Message(event="ended", run_id=spec.run_id, status="failed")
        if record is not None and is_sealed(folder, record):
            self.end_sealed(spec, record)
        elif record is not None and record.status == "failed":
            self.end(spec, message.model_copy(update={"error": record.error or last_line}))
        elif status in (None, 130) or (status or 0) < 0:  # lost with its node, stopped and saved, or killed by a signal
            self.retry(spec, status)
        else:
            self.end(spec, message.model_copy(update={"error": f"its task ended with exit code {status}: {last_line}"}))

    def _look(self, spec_by_name: dict[str, Spec]) -> None:
        """How far the runs are, as their records say now and then."""
        # Each look reads a file of every run, often over a network.
        if time.monotonic() - self._looked < 10 * _LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        for name, spec in spec_by_name.items():
            record = self.folder(spec).readable_record()
            if record is not None:
                progress = Message(event="progress", run_id=name, step=record.steps, steps=spec.steps)
                self.tally.hear(name, progress)

    _looked: float = 0.0
