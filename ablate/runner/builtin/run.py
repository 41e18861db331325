"""What all runs share, alone or in a cohort: they are begun, observed, reported and sealed.

The only module that joins gpt, measure, harness and records.
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from ablate.data.batches import Mixture
from ablate.evaluation.harness.evaluate import Answers
from ablate.evaluation.user_metrics import registered_sources
from ablate.records.provenance import collect, differing, made_with
from ablate.records.run_record import Pairing, Provenance, RunRecord, Status, utc_now
from ablate.records.store import RunFolder, rows_of
from ablate.runner.builtin.equipment import THREADS, Equipment
from ablate.runner.builtin.measuring import Observer
from ablate.runner.messages import Asking, Measuring, Message
from ablate.training.device import Peak
from ablate.training.kernels.backends import Paths
from ablate.training.trainer import Step, Trained, Trainer
from prereg.errors import EvidenceError
from prereg.registry.canon import sha256_bytes
from prereg.registry.plan import RunSpec
from prereg.text import listed

SAY_EVERY_S = 0.5


def provenance_of(worker: Equipment, paths: Paths, layout: str) -> Provenance:
    """With what this process makes a run."""
    return collect(threads=THREADS, device=worker.device_name, paths=str(paths), layout=layout, lacking=paths.lacking)


class Run(ABC):
    """One run, from its beginning to its seal. Who takes its steps, and where it resumes from, its children say."""

    trainer: Trained
    peak: Peak

    def _hold(self, worker: Equipment, spec: RunSpec, folder: RunFolder) -> None:
        self.taken = time.perf_counter()
        self.worker, self.spec, self.folder = worker, spec, folder
        self.own = registered_sources(spec.measure.own, spec.own, worker.study_folder)
        self.text = worker.text(spec)
        self.questions = worker.questions(spec, self.text)
        counting = time.perf_counter()
        self.repetition = worker.repetition(spec)
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
        provenance = provenance_of(self.worker, self.trainer.paths, self.layout)
        resumed = earlier.resumed_from if earlier is not None else ()
        mishaps = list(earlier.mishaps) if earlier is not None else []
        attempts = (earlier.attempts if earlier is not None else 0) + 1
        others = differing(earlier.provenance, provenance) if earlier is not None else ()
        new: list[str] = []
        resumed_from = self._restored(new) if earlier is not None and not others else None
        if resumed_from is not None:
            self._rewind()
            resumed = (*resumed, self.trainer.progress.step)
        else:
            if others and self._was_left():
                new.append(f"{listed(others)} not as in the attempt before")
            self.folder.path.mkdir(parents=True, exist_ok=True)
            self.folder.clear()
        if new:
            where = "started over" if resumed_from is None else f"resumed at step {self.trainer.progress.step}"
            mishaps.append(f"attempt {attempts} {where}: {'; '.join(new)}")
            print(f"{self.spec.run_id}: {mishaps[-1]}", file=sys.stderr)
        record = RunRecord(
            study=self.spec.study,
            registration=self.spec.registration,
            variant=self.spec.variant,
            seed=self.spec.seed,
            status="running",
            attempts=attempts,
            resumed_from=resumed,
            mishaps=tuple(mishaps),
            config=self.spec.config.model_dump(mode="json"),
            steps=0,
            tokens=0,
            parameters=self.trainer.parameters,
            pairing=None,
            provenance=provenance,
            started_at=earlier.started_at if earlier is not None else utc_now(),
            wall_s=earlier.wall_s if earlier is not None else 0.0,
            peak_memory_bytes=earlier.peak_memory_bytes if earlier is not None else None,
            memory_since=earlier.memory_since if earlier is not None else None,
            repetition=self.repetition,
        )
        self.folder.write_record(record)
        self._begun(resumed_from)
        # The record first: a kill in between leaves a start that the ledger lacks, and never one that the folder lacks.
        self.worker.say(
            Message(
                event="begun",
                run_id=self.spec.run_id,
                attempt=attempts,
                step=self.trainer.progress.step,
                resumed=resumed_from is not None,
                made_with=made_with(provenance),
            )
        )
        return record

    def _rewind(self) -> None:
        """Bring the live rows, found to be those that were written, to where the checkpoint left them."""
        self.folder.cut_back(self.trainer.progress.live_bytes)

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
        self.worker.say(
            Message(
                event="ended",
                run_id=self.spec.run_id,
                status=status,
                step=progress.step,
                steps=self.spec.config.budget.steps,
            )
        )

    def say_stopped(self) -> None:
        """It goes no further for now, and may be resumed."""
        step, steps = self.trainer.progress.step, self.spec.config.budget.steps
        self.worker.say(Message(event="stopped", run_id=self.spec.run_id, step=step, steps=steps))

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

    def _at_rest(self, *, asking: Asking | None = None, measuring: Measuring | None = None) -> Message:
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
