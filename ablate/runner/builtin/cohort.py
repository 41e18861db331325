"""The runs of a cohort: steps taken together, everything else of each run its own, down to the folder it is sealed in.

One checkpoint holds them all, so that no crash can leave two runs at different steps. A run that diverges, or fails, is
recorded and leaves its place vacant, and the others go on. A cohort resumes from its checkpoint when every run that
is still to end was left by the same code, libraries, machine and layout; otherwise all of them start over.

What a run costs: its share of the time, so that the times of runs add up to what they took; and the peak memory of the
process, which is that of the whole cohort, in the record of each of its runs. Limits of `budget` are compared with
these.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from ablate.records.checkpoints import Checkpoints
from ablate.records.provenance import differing
from ablate.records.run_record import layout_of
from ablate.records.store import RunFolder
from ablate.runner.builtin.run import Run, provenance_of
from ablate.runner.builtin.worker import Worker
from ablate.runner.messages import Message, restore_newest, rows_fault, save
from ablate.training.cohort.joint import Made
from ablate.training.cohort.trainer import CohortTrainer, Member, read_cohort
from ablate.training.device import EAGER, Peak
from ablate.training.trainer import Step
from prereg.errors import EvidenceError, RunError
from prereg.registry.plan import RunSpec
from prereg.text import listed

Assigned = Sequence[tuple[RunSpec, RunFolder]]


def carry_out_together(
    worker: Worker, assigned: Assigned, members: tuple[int, ...], checkpoint: Path, step: str = EAGER
) -> None:
    """Carry the runs of one variant from their state to their seals. What goes wrong becomes `failed` records."""
    try:
        cohort = CohortRun(worker, assigned, members, checkpoint, step)
    except Exception as error:
        for spec, folder in assigned:
            worker.fail(spec, folder, _plain(error, members))
        return
    cohort.finish()


@dataclass(frozen=True)
class Resumed:
    """How the runs of a cohort were begun, all alike."""

    peak: Peak
    """Of the process, since the cohort was built."""
    path: Path | None
    """The checkpoint they resumed from; none where all start from their first step."""
    faults: tuple[str, ...]
    """What was wrong with others."""
    was_left: bool
    """Whether an earlier attempt left what could have been resumed."""


class MemberRun(Run):
    """One run of a cohort. It observes, reports and seals as any run does; its steps are taken for it."""

    def __init__(
        self,
        worker: Worker,
        spec: RunSpec,
        folder: RunFolder,
        member: Member,
        *,
        initial: dict[str, str],
        resumed: Resumed,
    ) -> None:
        self.peak = resumed.peak
        self._hold(worker, spec, folder)
        self.trainer = self.member = member
        self._resumed = resumed
        self._size = len(member.cohort.live)
        self._start(initial)

    @property
    def layout(self) -> str:
        """The words for its provenance."""
        return layout_of(self.member.cohort.seeds, self.member.cohort.kind)

    def begin(self) -> None:
        """What is measured before the first step."""
        if self.trainer.progress.step == 0:
            self._evaluate()

    def took(self, step: Step, train_s: float) -> bool:
        """The same. True when the run has ended, and is sealed."""
        if super().took(step, train_s):
            return True
        if step.step < self.spec.config.budget.steps:
            return False
        self._seal("done")
        return True

    def note(self) -> None:
        """What the run has cost so far, for the attempt that resumes it."""
        self.folder.write_record(self.record.model_copy(update=self._cost()))

    def _restored(self, faults: list[str]) -> Path | None:
        faults += self._resumed.faults
        return self._resumed.path

    def _was_left(self) -> bool:
        return self._resumed.was_left

    def _begun(self, resumed_from: Path | None) -> None:
        """Nothing: the cohort saves one checkpoint for all."""

    def _wall(self) -> float:
        """Its share of the seconds of this attempt."""
        return (time.perf_counter() - self.taken) / self._size


class CohortRun:
    """Runs in step: begin or resume, train, let each be recorded, checkpoint all at once."""

    def __init__(
        self, worker: Worker, assigned: Assigned, members: tuple[int, ...], checkpoint: Path, step: str
    ) -> None:
        self.worker, self.checkpoints = worker, Checkpoints.at(checkpoint)
        peak, was_left = Peak.reset(), self.checkpoints.exist()
        first, _ = assigned[0]
        assert all((spec.variant, spec.config) == (first.variant, first.config) for spec, _ in assigned), first.run_id
        text = worker.text(first)
        self.trainer = CohortTrainer(first.config, text.split, text.tokenizer.size, members, worker.device, step=step)
        self._seeds = [spec.seed for spec, _ in assigned]
        initial = self.trainer.begin(self._seeds)
        if made := self._prepared(first.variant):
            worker.say(Message(event="note", text=compiled_words(first.variant, made)))
        path, faults = self._restored(assigned) if was_left else (None, [])
        if path is None:
            self.checkpoints.clear()
        resumed = Resumed(peak, path, tuple(faults), was_left)
        self.open: dict[int, MemberRun] = {}
        for spec, folder in assigned:
            member = self.trainer.member(spec.seed)
            with self._apart(spec, folder):
                self.open[spec.seed] = MemberRun(
                    worker, spec, folder, member, initial=initial[spec.seed], resumed=resumed
                )
        if path == self.checkpoints.previous:
            # Only now that the records say so. Left there, the damaged one would replace the sound one.
            self.checkpoints.fall_back()
        self._saved = time.perf_counter()
        self._saved_step = self.trainer.taken if path is not None and self.open else None

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
                if self.open and time.perf_counter() - self._saved > self.worker.checkpoint_every_s:
                    self._save()
            self.checkpoints.clear()
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

    def _prepared(self, variant: str) -> tuple[Made, ...]:
        """What was compiled. Nothing takes its place in silence where that fails: other steps are other bits."""
        try:
            return self.trainer.prepare()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            said = str(error).strip().splitlines() or [""]
            raise RunError(
                f"the steps of {variant} cannot be compiled: {type(error).__name__}: {said[0]}",
                required="a compiler that this torch can use; the worker's log has all that it said",
                fix="ablate run with --step eager",
            ) from error

    def _stop(self) -> None:
        self._save()
        for run in self.open.values():
            run.say_stopped()

    def _save(self) -> None:
        """The rows of every run first, then the one checkpoint that makes them count. None where it is there."""
        if self._saved_step == self.trainer.taken:
            return
        for run in self.open.values():
            run.keep(durable=True)
            run.count_rows()
        save(self.checkpoints, self.trainer.checkpoint(), self.trainer.taken)
        self._saved, self._saved_step = time.perf_counter(), self.trainer.taken
        for run in self.open.values():
            run.note()

    def _restored(self, assigned: Assigned) -> tuple[Path | None, list[str]]:
        """The checkpoint that holds every run that is to end, if each was left by an equal setup."""
        layout = layout_of(self.trainer.seeds, self.trainer.kind)
        mine = provenance_of(self.worker, self.trainer.compiler, layout)
        faults = []
        for spec, folder in assigned:
            record = folder.read_record()
            if record is None:
                faults.append(f"seed {spec.seed} has no record")
            elif others := differing(record.provenance, mine):
                faults.append(f"seed {spec.seed} was left with {listed(others)} not as now")
        if faults:
            return None, faults
        path = restore_newest(self.checkpoints, self._restore, self._begin_anew, faults)
        if path is None:
            return None, faults
        changed = [
            f"seed {spec.seed}: {fault}"
            for spec, folder in assigned
            if (fault := rows_fault(folder, self.trainer.progress[spec.seed])) is not None
        ]
        if changed:
            self._begin_anew()
            return None, [*faults, *changed]
        return path, faults

    def _restore(self, path: Path) -> None:
        lacking = [seed for seed in self._seeds if seed not in read_cohort(path)]
        if lacking:
            raise EvidenceError(f"{path.name} does not hold seed {listed([str(seed) for seed in lacking])}")
        self.trainer.restore(path)

    def _begin_anew(self) -> None:
        self.trainer.begin(self._seeds)

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


def compiled_words(variant: str, made: tuple[Made, ...]) -> str:
    """How a variant's steps came to be compiled, in a line."""
    seconds = sum(one.seconds for one in made)
    kept = "taken from the cache" if all(one.found for one in made) else "compiled, and kept for the next time"
    return f"{variant}: steps {kept} in {seconds:.1f} s"


def _plain(error: Exception, members: tuple[int, ...]) -> Exception:
    """A device without memory for a cohort, in words that say what to do."""
    if not isinstance(error, torch.OutOfMemoryError):
        return error
    traceback.print_exception(error)
    return RunError(
        f"the device has no memory for {len(members)} runs trained together",
        fix=f"ablate run with --cohort {max(1, len(members) // 2)}, or --cohort off",
    )
