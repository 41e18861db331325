"""One run after another: each begun or resumed, trained, observed, reported and sealed.

What goes wrong in a run becomes its record, not the process'. The only module that joins training, evaluation, the
harness and records.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from ablate.data.batches import Mixture
from ablate.evaluation.harness.adapter import Standing, Stopped
from ablate.evaluation.harness.evaluate import Answers, evaluate_tasks
from ablate.evaluation.user_metrics import registered_sources
from ablate.gpt.device import Peak
from ablate.gpt.trainer import Step
from ablate.records.provenance import collect, differing
from ablate.records.run_record import Pairing, RunRecord, Status, utc_now
from ablate.records.store import Row, RunFolder, rows_of
from ablate.runner.builtin.observer import Observer
from ablate.runner.builtin.resources import THREADS, Resources
from ablate.runner.failures import left_values
from ablate.runner.messages import Message, TaskProgress, begun, failed, said, show_trace
from prereg.errors import EvidenceError, RunError
from prereg.registry.canon import sha256_bytes
from prereg.registry.plan import RunSpec
from prereg.text import listed

SAY_EVERY_S = 0.5


class Run:
    """One run: begin or resume, train, evaluate, checkpoint, seal."""

    def __init__(self, worker: Resources, spec: RunSpec, folder: RunFolder) -> None:
        self.peak = Peak.reset()
        self.taken = time.perf_counter()
        self.worker, self.spec, self.folder = worker, spec, folder
        self.rows: list[Row] = []
        self.own = registered_sources(spec.measure.own, spec.own, worker.study_folder)
        self.text = worker.text(spec)
        self.questions = worker.questions(spec, self.text)
        counting = time.perf_counter()
        self.repetition = worker.repetition(spec)
        self.baselines = worker.baselines(spec, self.text)
        self.taken += time.perf_counter() - counting  # the time of the corpus, and of no run
        self.trainer = worker.trainer(spec, self.text)
        self.initial = self.trainer.begin(spec.seed)
        self.record = self._begin()
        self._said = time.perf_counter()
        self._said_step = self.trainer.progress.step
        self._reported = Message(event="progress", run_id=self.spec.run_id, steps=self.spec.config.budget.steps)
        self.observer = Observer(
            self.spec,
            self.text,
            self.own,
            self.trainer,
            self.peak,
            report=lambda measuring: self.worker.say(self._at_rest(measuring=measuring)),
        )
        self._saved = time.perf_counter()

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
        for generation in self.folder.checkpoints.generations():
            if generation.fault is not None:
                faults.append(f"{generation.path.name} {generation.fault}")
                continue
            try:
                self.trainer.restore(generation.path)
            except EvidenceError as error:
                faults.append(error.found)
                self._begin_anew()  # half a state may have been restored
                continue
            changed = self._rows_fault()
            if changed is None:
                return generation.path
            # No earlier generation: what was changed lies there for both, and nothing says from where on.
            faults.append(changed)
            self._begin_anew()
            return None
        return None

    def _rows_fault(self) -> str | None:
        """Why the live rows are not those that the restored checkpoint counts; none where they are."""
        progress = self.trainer.progress
        if not progress.live_sha256:
            return "the checkpoint does not say which rows it goes with"
        return self.folder.live_fault(progress.live_bytes, progress.live_sha256)

    def _begin_anew(self) -> None:
        self.initial = self.trainer.begin(self.spec.seed)

    def _begin(self) -> RunRecord:
        """Take a live run up again when the same code, libraries and machine left it; otherwise start over.

        Starting over, or from the checkpoint before the newest, costs time and no bit; the record says that it was so.
        """
        earlier = self.folder.read_record()
        provenance = collect(threads=THREADS, device=self.worker.device_name, compiler=self.trainer.compiler)
        resumed = earlier.resumed_from if earlier is not None else ()
        mishaps = list(earlier.mishaps) if earlier is not None else []
        attempts = (earlier.attempts if earlier is not None else 0) + 1
        others = differing(earlier.provenance, provenance) if earlier is not None else ()
        new: list[str] = []
        left: bool | None = None
        resumed_from = self._restored(new) if earlier is not None and not others else None
        if resumed_from is not None:
            self.folder.cut_back(self.trainer.progress.live_bytes)
            resumed = (*resumed, self.trainer.progress.step)
        else:
            if others and self.folder.checkpoints.exist():
                new.append(f"{listed(others)} not as in the attempt before")
            self.folder.path.mkdir(parents=True, exist_ok=True)
            left = None if earlier is None else left_values(self.spec, self.folder)
            self.folder.clear()
        if new:
            where = "started over" if resumed_from is None else f"resumed at step {self.trainer.progress.step}"
            mishaps.append(f"attempt {attempts} {where}: {'; '.join(new)}")
            print(f"{self.spec.run_id}: {mishaps[-1]}", file=sys.stderr)
        cost = {} if earlier is None else {n: getattr(earlier, n) for n in ("peak_memory_bytes", "memory_since")}
        record = RunRecord.begin(
            self.spec,
            earlier,
            provenance,
            status="running",
            resumed_from=resumed,
            mishaps=tuple(mishaps),
            config=self.spec.config.model_dump(mode="json"),
            parameters=self.trainer.parameters,
            repetition=self.repetition,
            baselines=self.baselines,
            **cost,
        )
        self.folder.write_record(record)
        if resumed_from == self.folder.checkpoints.previous:
            # Only now that the record says so. Left there, the damaged one would replace the sound one.
            self.folder.checkpoints.fall_back()
        self._saved_step = None if resumed_from is None else self.trainer.progress.step
        # The record first: a kill in between leaves a start that the ledger lacks, and never one that the folder lacks.
        step = None if resumed_from is None else self.trainer.progress.step
        self.worker.say(begun(self.spec, record, step, left_values=left))
        return record

    def took(self, step: Step, train_s: float) -> bool:
        """Record one step, and evaluate where that is due. True when the run has diverged, and is sealed."""
        self.trainer.progress.train_s += train_s
        self.rows += rows_of(step.step, {"train/loss": step.loss})
        if self.trainer.diverged(step, self.spec.diverged_above):
            self.keep()
            self._seal("diverged")
            return True
        if step.step % self.spec.measure.every == 0 or step.step == self.spec.config.budget.steps:
            self.keep()
            self._evaluate()
        self._report(step)
        return False

    def keep(self, *, durable: bool = False) -> None:
        """Write the rows that wait."""
        self.folder.append(self.rows, durable=durable)
        self.rows = []

    def _checkpoint(self) -> None:
        """Metrics first, then the checkpoint that makes them count. None where one of this very step is there."""
        progress = self.trainer.progress
        if self._saved_step == progress.step:
            return
        self.keep(durable=True)
        self.count_rows()
        data, place = self.trainer.checkpoint(), self.folder.checkpoints
        try:
            place.write(data)
        except OSError as error:
            raise RunError(
                f"the checkpoint of step {progress.step} ({len(data) / 2**20:.1f} MiB) cannot be written "
                f"to {place.folder}: {error.strerror}; the one before it is still there",
                required="space for three checkpoints: two are kept while the next is written",
                fix="free some space, and run again: the run resumes from the checkpoint that is there",
            ) from error
        self._saved, self._saved_step = time.perf_counter(), progress.step
        self.folder.write_record(self.record.model_copy(update=self._cost()))

    def count_rows(self) -> None:
        """Let the next checkpoint say which live rows it goes with. They are durable by now."""
        progress = self.trainer.progress
        # The first evaluation comes before the first step, and is made again by a run that never took one.
        progress.live_bytes, progress.live_sha256 = self.folder.written() if progress.step else (0, sha256_bytes(b""))

    def _evaluate(self) -> None:
        self.folder.append(rows_of(self.trainer.progress.step, self.observer.evaluate(self._recorded)))

    def _recorded(self, metric: str) -> list[tuple[int, float]]:
        return [(row.step, row.value) for row in self.folder.rows() if row.metric == metric]

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

    def _seal(self, status: Status, answers: Answers | None = None) -> None:
        progress, config = self.trainer.progress, self.spec.config
        if status == "done":
            assert (progress.step, progress.tokens) == (config.budget.steps, config.tokens), progress
        if answers is not None:
            self.folder.append(rows_of(progress.step, answers.metrics))
        changed = self.folder.live_fault(*self.folder.written())
        if changed is not None:
            raise EvidenceError(changed, required="the rows that this run wrote", fix="run again")
        pairing = Pairing(
            initial=self.initial,
            batches=progress.batches,
            dropout=progress.dropout,
            corpus=self.text.corpus_sha256,
            tokenizer=self.text.tokenizer.sha256,
        )
        record = self.record.model_copy(
            update={
                "status": status,
                "steps": progress.step,
                "tokens": progress.tokens,
                "pairing": pairing,
                "train_s": progress.train_s,
                "eval_s": progress.eval_s,
                "mixture": self._drawn(),
                "ended_at": utc_now(),
                **self._cost(),
                "harness": None if answers is None else answers.record,
            }
        )
        self.folder.seal(record, self.trainer.weights(), () if answers is None else answers.items)
        assert status in ("done", "diverged"), status
        self._say("ended", status)

    def say_stopped(self) -> None:
        """It goes no further for now, and may be resumed."""
        self._say("stopped")

    def _say(self, event: Literal["ended", "stopped"], status: Literal["done", "diverged"] | None = None) -> None:
        step, steps = self.trainer.progress.step, self.spec.config.budget.steps
        self.worker.say(Message(event=event, run_id=self.spec.run_id, status=status, step=step, steps=steps))

    def _drawn(self) -> dict[str, int] | None:
        """Windows of each source that were trained on; none where there is one source."""
        train = self.text.split.train
        if not isinstance(train, Mixture):
            return None
        return train.drawn(self.spec.seed, self.trainer.progress.step, self.spec.config.budget.batch)

    def _report(self, step: Step) -> None:
        now = time.perf_counter()
        if now - self._said < SAY_EVERY_S:
            return
        first = self.trainer.progress.first_loss
        assert first is not None
        speed = (step.step - self._said_step) / (now - self._said)
        self._reported = self._reported.model_copy(
            update={"step": step.step, "steps_per_s": speed, "falling": step.loss < first}
        )
        self.worker.say(self._reported)
        self._said, self._said_step = now, step.step

    def _at_rest(self, *, asking: TaskProgress | None = None, measuring: str | None = None) -> Message:
        """What a run does between its steps, with its speed and the like as last reported."""
        step = self.trainer.progress.step
        return self._reported.model_copy(update={"step": step, "asking": asking, "measuring": measuring})

    def _cost(self) -> dict[str, object]:
        """Time and memory so far, earlier attempts included."""
        earlier, now = self.record, self.peak.read_bytes()
        return {
            "wall_s": earlier.wall_s + self._wall(),
            "peak_memory_bytes": max(now, earlier.peak_memory_bytes or 0),
            "memory_since": "process" if "process" in (self.peak.since, earlier.memory_since) else "run",
        }

    def _wall(self) -> float:
        """Seconds of this attempt."""
        return time.perf_counter() - self.taken


class Worker(Resources):
    """Carries out runs one after another."""

    def carry_out(self, spec: RunSpec, folder: RunFolder, until: int | None = None) -> None:
        """One run from its current state to its seal. Everything that goes wrong becomes a `failed` record.

        `until` ends it after that step, unsealed: the beginning of a run, made again to be compared.
        """
        try:
            Run(self, spec, folder).finish(until)
        except Exception as error:
            self._trainer = None  # nobody knows in what state this one is
            self.fail(spec, folder, error)

    def fail(self, spec: RunSpec, folder: RunFolder, error: Exception) -> None:
        """Record a run as failed, and say so."""
        show_trace(error)
        line = said(error, folder)
        folder.fail(line, utc_now())
        self.say(failed(spec, error, line))
