"""What all runs share, alone or in a cohort: they are begun, observed, reported and sealed.

The only module that joins training, evaluation, the harness and records. `Observer` measures the model while it is
trained: suites, the study's own metrics, and what measuring took.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ablate.data.batches import Mixture
from ablate.evaluation.harness.evaluate import Answers
from ablate.evaluation.suites import (
    Meter,
    copy_of,
    evaluate,
    measure_cost,
    second_moments,
    steps_to_level,
    update_ratios,
)
from ablate.evaluation.user_metrics import Source, measure_own, registered_sources
from ablate.records.provenance import collect, differing
from ablate.records.run_record import Pairing, Provenance, RunRecord, Status, utc_now
from ablate.records.store import Row, RunFolder, rows_of
from ablate.runner.builtin.resources import THREADS, Resources, Text
from ablate.runner.external.failures import left_values
from ablate.runner.messages import Measuring, Message, TaskProgress, begun
from ablate.training.device import Peak
from ablate.training.model import GPT
from ablate.training.trainer import Step, Trained, Trainer
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.plan import RunSpec
from prereg.text import listed

Curve = list[tuple[int, float]]


@dataclass(frozen=True)
class Watched:
    """The weights before a step, and the seconds that keeping them took."""

    weights: dict[str, torch.Tensor]
    seconds: float


class Observer:
    """Evaluates the model of one run. Weights and moments stay as they are.

    `deadly` ends the process where code of the study's own cannot be stopped; `report` gets the name of such code
    before it is called, and of none when it has ended.
    """

    def __init__(
        self,
        spec: RunSpec,
        text: Text,
        own: tuple[Source, ...],
        trainer: Trained,
        peak: Peak,
        *,
        whole: Trainer | None,
        deadly: bool,
        report: Callable[[Measuring | None], None],
    ) -> None:
        self.spec, self.text, self.own, self.trainer, self.peak = spec, text, own, trainer, peak
        self.whole = whole
        """The trainer, where weights and moments lie whole and alone in this process; elsewhere neither is measured."""
        self._deadly, self._report = deadly, report
        self._watched: Watched | None = None
        wanted = "cost" in spec.measure.recorded
        # Energy of a part of a run is not that of the run: one resumed from a checkpoint has no meter.
        self._energy = Meter.started() if wanted and trainer.progress.step == 0 else None

    def watch(self, step: int) -> None:
        """Keep the weights before a step whose update is measured."""
        measure, last = self.spec.measure, step == self.spec.config.budget.steps
        self._watched = None
        if self.whole is not None and "gradients" in measure.due(last=last) and (last or step % measure.every == 0):
            started = time.perf_counter()
            self._watched = Watched(copy_of(self.whole.model), time.perf_counter() - started)

    def evaluate(self, recorded: Callable[[str], Curve]) -> dict[str, float]:
        """Every metric that is due at this step. `recorded` gives the values that a metric has had so far, by step."""
        progress, measure = self.trainer.progress, self.spec.measure
        last = progress.step == self.spec.config.budget.steps
        suites = measure.due(last=last)
        if self._energy is not None:
            self._energy.read()  # its counters start over when they are full
        started = time.perf_counter()
        found = self._moved() if "gradients" in suites else {}
        with self.trainer.arithmetic(), self.trainer.evaluated() as model:
            found |= evaluate(
                model,
                self.text.split.validation,
                self.text.tokenizer.byte_lengths(),
                suites,
                classes=self.text.classes,
                calibration=measure.calibration,
                clock=time.perf_counter,
            )
            found |= self._own_metrics(model, last=last)
            if "cost" in suites:
                found |= self._measured_cost(model)
        if measure.loss_level is not None:
            curve = [*recorded("val/loss"), (progress.step, found["val/loss"])]
            found["val/steps_to_level"] = steps_to_level(curve, measure.loss_level)
        progress.eval_s += time.perf_counter() - started
        norms = self.trainer.mean_grad_norms()
        if "gradients" in suites:
            found |= norms
        if "speed" not in suites:
            found = {name: value for name, value in found.items() if not name.startswith("speed/")}
        elif progress.step:
            found["speed/tokens_per_s"] = progress.tokens / progress.train_s
            found["speed/eval_s"] = progress.eval_s
        return found

    def _moved(self) -> dict[str, float]:
        """What the step before this evaluation did to the weights, and the optimiser's second moments."""
        if self.whole is None:
            return {}
        started = time.perf_counter()
        found = second_moments(self.whole.model, self.whole.optimizers)
        if self._watched is None:  # before the first step
            return found
        found |= update_ratios(self.whole.model, self._watched.weights)
        found["speed/measure_gradients_s"] = self._watched.seconds + time.perf_counter() - started
        return found

    def _own_metrics(self, model: GPT, *, last: bool) -> dict[str, float]:
        """What the study's own code makes of the model."""
        due = tuple(source for source in self.own if last or not source.metric.at_end)
        if not due:
            return {}
        started = time.perf_counter()
        text, step = self.text, self.trainer.progress.step
        pieces = text.tokenizer.pieces()
        found: dict[str, float] = {}
        for source in due:
            # Said first: of code that never ends, nothing can be said afterwards.
            self._report(Measuring(metric=source.metric.name, limit_s=source.metric.limit_s))
            found |= measure_own((source,), model, text.split.validation, pieces, step, deadly=self._deadly)
        self._report(None)
        return found | {"speed/measure_own_s": time.perf_counter() - started}

    def _measured_cost(self, model: GPT) -> dict[str, float]:
        """The suite of the whole run, at its end."""
        started = time.perf_counter()
        progress = self.trainer.progress
        model.eval()
        with torch.inference_mode():
            found = measure_cost(
                model,
                self.text.split.validation,
                self.spec.measure.inference,
                trained_tokens_per_s=progress.tokens / progress.train_s,
                energy=self._energy,
                peak_bytes=self.peak.read_bytes() if self.peak.since == "run" else None,
                clock=time.perf_counter,
            )
        model.train()
        found["speed/measure_cost_s"] = time.perf_counter() - started
        return found


SAY_EVERY_S = 0.5


def provenance_of(worker: Resources, compiler: str, layout: str) -> Provenance:
    """With what this process makes a run."""
    return collect(threads=THREADS, device=worker.device_name, compiler=compiler, layout=layout)


class Run(ABC):
    """One run, from its beginning to its seal. Who takes its steps, and where it resumes from, its children say."""

    trainer: Trained
    peak: Peak

    def _hold(self, worker: Resources, spec: RunSpec, folder: RunFolder) -> None:
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

    def _start(self, initial: dict[str, str]) -> None:
        self.initial = initial
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
            whole=self._whole(),
            deadly=self.worker.deadly,
            report=lambda measuring: self.worker.say(self._at_rest(measuring=measuring)),
        )

    def _whole(self) -> Trainer | None:
        """The trainer, where weights and moments lie whole in this process: not cut over devices, in no cohort.

        Elsewhere updates and moments are not measured, and `ablate run` refuses layouts under which a claim lacks them.
        """
        trainer, cut = self.trainer, self.worker.spread.shard == "fsdp"
        return trainer if isinstance(trainer, Trainer) and not cut else None

    @property
    @abstractmethod
    def layout(self) -> str:
        """The words for its provenance."""

    @abstractmethod
    def _restored(self, faults: list[str]) -> Path | None:
        """The generation of the checkpoint that gave the trainer its state back; what is wrong with those before it."""

    @abstractmethod
    def _was_left(self) -> bool:
        """Whether an earlier attempt left what could have been resumed."""

    @abstractmethod
    def _begun(self, resumed_from: Path | None) -> None:
        """Called once its record is written."""

    def _begin(self) -> RunRecord:
        """Take a live run up again when the same code, libraries and machine left it; otherwise start over.

        Starting over, or from the checkpoint before the newest, costs time and no bit; the record says that it was so.
        """
        earlier = self.folder.read_record()
        provenance = provenance_of(self.worker, self.trainer.compiler, self.layout)
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
            if others and self._was_left():
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
            resumed_from=resumed,
            mishaps=tuple(mishaps),
            config=self.spec.config.model_dump(mode="json"),
            parameters=self.trainer.parameters,
            repetition=self.repetition,
            baselines=self.baselines,
            **cost,
        )
        self.folder.write_record(record)
        self._begun(resumed_from)
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

    def count_rows(self) -> None:
        """Let the next checkpoint say which live rows it goes with. They are durable by now."""
        progress = self.trainer.progress
        # The first evaluation comes before the first step, and is made again by a run that never took one.
        progress.live_bytes, progress.live_sha256 = self.folder.written() if progress.step else (0, sha256_bytes(b""))

    def _evaluate(self) -> None:
        self.folder.append(rows_of(self.trainer.progress.step, self.observer.evaluate(self._recorded)))

    def _recorded(self, metric: str) -> list[tuple[int, float]]:
        return [(row.step, row.value) for row in self.folder.rows() if row.metric == metric]

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

    def _at_rest(self, *, asking: TaskProgress | None = None, measuring: Measuring | None = None) -> Message:
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
