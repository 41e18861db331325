"""Runs carried out one after another in one process; what goes wrong in a run becomes its record, not the process'."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path

from ablate.evaluation.harness.adapter import Standing, Stopped
from ablate.evaluation.harness.evaluate import Answers, evaluate_tasks
from ablate.records.run_record import utc_now
from ablate.records.store import RunFolder
from ablate.runner.builtin.resources import LOST_A_RANK, Resources
from ablate.runner.builtin.run import SAY_EVERY_S, Run
from ablate.runner.messages import TaskProgress, failed, restore_newest, rows_fault, said, save, show_trace
from ablate.training.device import Peak
from ablate.training.distributed import Replicated, is_lost_connection
from ablate.training.trainer import Trainer
from prereg.errors import RunError
from prereg.registry import disk
from prereg.registry.plan import RunSpec


class SingleRun(Run):
    """One run: begin or resume, train, evaluate, checkpoint, seal."""

    trainer: Trainer

    def __init__(self, worker: Resources, spec: RunSpec, folder: RunFolder) -> None:
        self.peak = Peak.reset()
        self._hold(worker, spec, folder)
        self.trainer = worker.trainer(spec, self.text)
        self._start(self.trainer.begin(spec.seed))
        self._saved = time.perf_counter()

    @property
    def layout(self) -> str:
        """The words for its provenance."""
        return self.worker.spread.layout

    def finish(self, until: int | None = None) -> None:
        """Train to the end of the budget, to divergence, to the scheduler's stop, or until a step."""
        trainer, steps = self.trainer, self.spec.config.budget.steps
        if trainer.progress.step == 0:
            self._evaluate()
        while trainer.progress.step < steps:
            if self.worker.stop.is_set():
                self._checkpoint()
                self.say_stopped()
                return
            self.observer.watch(trainer.progress.step + 1)
            started = time.perf_counter()
            step = trainer.step()
            if self.took(step, time.perf_counter() - started):
                return
            if step.step == until and until < steps:
                self.keep()
                self.say_stopped()
                return
            if time.perf_counter() - self._saved > self.worker.checkpoint_every_s and step.step < steps:
                self._checkpoint()
        try:
            answers = self._evaluate_tasks()
        except Stopped:
            self.say_stopped()
            return
        self._seal("done", answers)

    def _restored(self, faults: list[str]) -> Path | None:
        """The generation of the checkpoint that gave the trainer its state back; what is wrong with those before it."""
        found = restore_newest(self.folder.checkpoints, self.trainer.restore, self._begin_anew, faults)
        changed = None if found is None else rows_fault(self.folder, self.trainer.progress)
        if changed is None:
            return found
        # No earlier generation: what was changed lies there for both, and nothing says from where on.
        faults.append(changed)
        self._begin_anew()
        return None

    def _begin_anew(self) -> None:
        self.initial = self.trainer.begin(self.spec.seed)

    def _was_left(self) -> bool:
        """Whether an earlier attempt left what could have been resumed."""
        return self.folder.checkpoints.exist()

    def _begun(self, resumed_from: Path | None) -> None:
        """Called once its record is written."""
        if resumed_from == self.folder.checkpoints.previous:
            # Only now that the record says so. Left there, the damaged one would replace the sound one.
            self.folder.checkpoints.fall_back()
        self._saved_step = None if resumed_from is None else self.trainer.progress.step

    def _evaluate_tasks(self) -> Answers | None:
        """Evaluate the tasks once training has ended. A run killed meanwhile repeats this, not its training."""
        if self.questions is None:
            return None
        self._checkpoint()
        started = time.perf_counter()
        self._report_tasks(None)
        with self.trainer.evaluated() as model:
            answers = evaluate_tasks(
                self.questions,
                model,
                self.spec.config.model.context,
                self.text.written_with,
                stop=self.worker.stop.is_set,
                report=self._report_tasks,
            )
        self.trainer.progress.eval_s += time.perf_counter() - started
        return answers

    def _report_tasks(self, progress: Standing | None) -> None:
        """Report how far the tasks have been evaluated; none when that begins."""
        now = time.perf_counter()
        ended = progress is not None and progress.requests == progress.of
        if progress is not None and not ended and now - self._said < SAY_EVERY_S:
            return
        assert self.questions is not None
        asking = TaskProgress(tasks=self.questions.name, **({} if progress is None else asdict(progress)))
        self.worker.say(self._at_rest(asking=asking))
        self._said = now

    def _checkpoint(self) -> None:
        """Metrics first, then the checkpoint that makes them count. None where one of this very step is there."""
        if self._saved_step == self.trainer.progress.step:
            return
        self.keep(durable=True)
        self.count_rows()
        save(self.folder.checkpoints, self.trainer.checkpoint(), self.trainer.progress.step)
        self._saved, self._saved_step = time.perf_counter(), self.trainer.progress.step
        self.folder.write_record(self.record.model_copy(update=self._cost()))


class Worker(Resources):
    """Carries out runs one after another."""

    def carry_out(self, spec: RunSpec, folder: RunFolder, until: int | None = None) -> None:
        """One run from its current state to its seal. Everything that goes wrong becomes a `failed` record.

        `until` ends it after that step, unsealed: the beginning of a run, made again to be compared.
        """
        try:
            SingleRun(self, spec, folder).finish(until)
        except Exception as error:
            if self.ranks.busy and is_lost_connection(error):
                error = self._error_of_rank(error)
            self._trainer = None  # nobody knows in what state this one is
            self.fail(spec, folder, error)

    def fail(self, spec: RunSpec, folder: RunFolder, error: Exception) -> None:
        """Record a run as failed, and say so."""
        show_trace(error)
        line = said(error, folder)
        folder.fail(line, utc_now())
        self.say(failed(spec, error, line).model_copy(update={"leaves": self.ranks.busy}))

    def _error_of_rank(self, error: Exception) -> Exception:
        """The error that another rank met. One that was killed met none, and the run is resumed by another worker."""
        assert isinstance(self.ranks, Replicated)
        reported = self.ranks.reported_error()
        if reported is not None:
            return RunError(reported, required="ranks that all carry out a step")
        show_trace(error)
        disk.remove_all()
        os._exit(LOST_A_RANK)
