"""The runs of a cohort: steps taken together, everything else of each run its own, down to the folder it is sealed in.

One checkpoint holds them all, so that no crash can leave two runs at different steps. A run that diverges, or fails, is
recorded and leaves its seat vacant, and the others go on. A cohort is taken up from its checkpoint when every run that
is still to end was left by the same code, libraries, machine and layout; otherwise all of them start over.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from ablate.gpt.cohort import CohortTrainer, Seat, read_cohort
from ablate.gpt.train import Step
from ablate.records.layout import layout_of
from ablate.records.store import Row, RunFolder, rows_of
from ablate.run.messages import Message
from ablate.run.worker import CHECKPOINT_EVERY_S, Run, Worker, moves_alike, provenance_of
from prereg.disk import write_whole
from prereg.errors import RunError
from prereg.plan import RunSpec

Assigned = Sequence[tuple[RunSpec, RunFolder]]


def carry_out_together(worker: Worker, assigned: Assigned, seats: tuple[int, ...], checkpoint: Path) -> None:
    """Runs of one variant from where they stand to their seals. What goes wrong becomes `failed` records."""
    try:
        cohort = CohortRun(worker, assigned, seats, checkpoint)
    except Exception as error:
        for spec, folder in assigned:
            worker.fail(spec, folder, _plain(error, seats))
        return
    cohort.finish()


class SeatRun(Run):
    """One run of a cohort. It observes, tells and seals as any run does; its steps are taken for it."""

    def __init__(
        self, worker: Worker, spec: RunSpec, folder: RunFolder, seat: Seat, initial: dict[str, str], *, resumed: bool
    ) -> None:
        self._hold(worker, spec, folder)
        self.trainer = seat
        self.layout = layout_of(seat.cohort.seeds)
        self.rows: list[Row] = []
        self._resumed = resumed
        self._company = len(seat.cohort.live)
        self._start(initial)

    def begin(self) -> None:
        """What is measured before the first step."""
        if self.trainer.progress.step == 0:
            self._evaluate()

    def took(self, step: Step, train_s: float) -> bool:
        """Record one step. True when the run has ended, and is sealed."""
        steps = self.spec.config.budget.steps
        self.trainer.progress.train_s += train_s
        self.rows += rows_of(step.step, {"train/loss": step.loss})
        if self.trainer.diverged(step, self.spec.diverged_above):
            self.keep()
            self._seal("diverged")
            return True
        if step.step % self.spec.measure.every == 0 or step.step == steps:
            self.keep()
            self._evaluate()
        self._tell(step)
        if step.step == steps:
            self._seal("done")
        return step.step == steps

    def keep(self, *, durable: bool = False) -> None:
        """Write the rows that wait."""
        self.folder.append(self.rows, durable=durable)
        self.rows = []

    def note(self) -> None:
        """How long the run has taken, for whoever takes it up again."""
        self.folder.write_record(self.record.model_copy(update={"wall_s": self._wall()}))

    def _restored(self) -> bool:
        return self._resumed

    def _wall(self) -> float:
        """Its share of the time, so that the times of runs add up to what they took."""
        return self.record.wall_s + (time.perf_counter() - self.taken) / self._company


class CohortRun:
    """Runs in step: begin or resume, train, let each be recorded, checkpoint all at once."""

    def __init__(self, worker: Worker, assigned: Assigned, seats: tuple[int, ...], checkpoint: Path) -> None:
        self.worker, self.checkpoint = worker, checkpoint
        first, _ = assigned[0]
        assert all((spec.variant, spec.config) == (first.variant, first.config) for spec, _ in assigned), first.run_id
        text = worker.text(first)
        self.trainer = CohortTrainer(first.config, text.split, text.tokenizer.size, seats, worker.device)
        initial = self.trainer.begin([spec.seed for spec, _ in assigned])
        resumed = self._resumable(assigned)
        if resumed:
            self.trainer.restore(checkpoint)
        else:
            checkpoint.unlink(missing_ok=True)
        self.open: dict[int, SeatRun] = {}
        for spec, folder in assigned:
            seat = self.trainer.seat(spec.seed)
            with self._apart(spec, folder):
                self.open[spec.seed] = SeatRun(worker, spec, folder, seat, initial[spec.seed], resumed=resumed)
        self._saved = time.perf_counter()

    def finish(self) -> None:
        """Train to the end of the budget, to the divergence of each, or to the scheduler's stop."""
        try:
            for run in list(self.open.values()):
                with self._apart(run.spec, run.folder):
                    run.begin()
            while self.open:
                if self.worker.stop.is_set():
                    self._stop()
                    return
                self._step()
                if self.open and time.perf_counter() - self._saved > CHECKPOINT_EVERY_S:
                    self._save()
            self.checkpoint.unlink(missing_ok=True)
        except Exception as error:
            for run in self.open.values():
                self.worker.fail(run.spec, run.folder, _plain(error, self.trainer.seeds))

    def _step(self) -> None:
        started = time.perf_counter()
        steps = self.trainer.step()
        share = (time.perf_counter() - started) / len(steps)
        for seed, step in steps.items():
            run = self.open[seed]
            with self._apart(run.spec, run.folder):
                if run.took(step, share):
                    self._leave(seed)

    def _stop(self) -> None:
        self._save()
        for run in self.open.values():
            steps = run.spec.config.budget.steps
            self.worker.say(
                Message(event="stopped", run_id=run.spec.run_id, step=run.trainer.progress.step, steps=steps)
            )

    def _save(self) -> None:
        """The rows of every run first, then the one checkpoint that makes them count."""
        for run in self.open.values():
            run.keep(durable=True)
        write_whole(self.checkpoint, self.trainer.checkpoint())
        self._saved = time.perf_counter()
        for run in self.open.values():
            run.note()

    def _resumable(self, assigned: Assigned) -> bool:
        """Whether the checkpoint holds every run that is to end, and each was left by what would take it up."""
        if not self.checkpoint.is_file():
            return False
        mine = provenance_of(self.worker, self.trainer.paths, layout_of(self.trainer.seeds))
        for _, folder in assigned:
            record = folder.read_record()
            if record is None or not moves_alike(record.provenance, mine):
                return False
        return {spec.seed for spec, _ in assigned} <= set(read_cohort(self.checkpoint))

    @contextmanager
    def _apart(self, spec: RunSpec, folder: RunFolder) -> Iterator[None]:
        """An error of one run is its own: it fails, and the others go on."""
        try:
            yield
        except Exception as error:
            self.worker.fail(spec, folder, error)
            self._leave(spec.seed)

    def _leave(self, seed: int) -> None:
        self.open.pop(seed, None)
        self.trainer.vacate(seed)


def _plain(error: Exception, seats: tuple[int, ...]) -> Exception:
    """A device without memory for a cohort, in words that say what to do."""
    if not isinstance(error, torch.OutOfMemoryError):
        return error
    traceback.print_exception(error)
    return RunError(
        f"the device has no memory for {len(seats)} runs trained together",
        fix=f"ablate run with --cohort {max(1, len(seats) // 2)}, or --cohort off",
    )
