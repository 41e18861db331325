"""One process, many runs. The only module that joins gpt, measure, harness and records.

The process reads commands on its standard input and stays alive across runs, so that imports, the corpus
and the model object are paid for once. When its scheduler dies, standard input ends and the process ends
at once: whatever was checkpointed is taken up by the next `ablate run`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from ablate.gpt.batches import Split
from ablate.gpt.corpus import Library
from ablate.gpt.tokenizer import CharTokenizer
from ablate.gpt.train import Step, Trainer
from ablate.harness.adapter import Stopped
from ablate.harness.asking import Answers, ask, prepare
from ablate.harness.tasks import Questions
from ablate.measure.suites import evaluate
from ablate.records.provenance import collect
from ablate.records.run_record import Pairing, Provenance, RunRecord, Status
from ablate.records.store import Row, RunFolder, rows_of
from ablate.run.messages import Message
from prereg.disk import write_whole
from prereg.errors import EvidenceError, StudyError
from prereg.plan import RunSpec
from prereg.root import Root

THREADS = 1
CHECKPOINT_EVERY_S = 20.0
SAY_EVERY_S = 0.5


@dataclass(frozen=True)
class Text:
    """A corpus, tokenised and split."""

    split: Split
    tokenizer: CharTokenizer
    corpus_sha256: str


class Worker:
    """Carries out runs one after another."""

    def __init__(
        self, corpora: Path, say: Callable[[Message], None], stop: threading.Event, root: Path | None = None
    ) -> None:
        self.library = Library.of(corpora)
        self.root = Root(root if root is not None else corpora.parent.parent)
        self.say = say
        self.stop = stop
        self._texts: dict[tuple[str, str, float, int], Text] = {}
        self._trainer: tuple[str, Trainer] | None = None
        self._questions: dict[tuple[str, str, str], Questions] = {}

    def carry_out(self, spec: RunSpec, folder: RunFolder) -> None:
        """One run from where it stands to its seal. Everything that goes wrong becomes a `failed` record."""
        try:
            Run(self, spec, folder).finish()
        except Exception as error:
            traceback.print_exc()
            line = f"{type(error).__name__}: {error}"
            if isinstance(error, StudyError):
                line = f"{error.found}; try: {error.fix}" if error.fix else error.found
            record = _readable(folder)
            if record is not None:
                folder.write_record(record.model_copy(update={"status": "failed", "error": line, "ended_at": _now()}))
            self.say(Message(event="ended", run_id=spec.run_id, status="failed", error=line))

    def text(self, spec: RunSpec) -> Text:
        """The corpus of a run, read once a process and checked against the registration's pin."""
        data = spec.config.data
        assert data.tokenizer == "char", data.tokenizer  # ablate.support refuses others before registration
        wanted = (data.corpus, spec.corpus.sha256, data.validation, spec.config.model.context)
        if wanted not in self._texts:
            corpus = self.library.find(data.corpus)
            if corpus.manifest.sha256 != spec.corpus.sha256:
                raise StudyError(
                    f"corpus '{data.corpus}' is not the one registered (sha256 {corpus.manifest.sha256})",
                    required=f"sha256 {spec.corpus.sha256}",
                )
            tokenizer = CharTokenizer.of(corpus.text)
            split = Split.of(tokenizer.encode(corpus.text), data.validation, spec.config.model.context)
            self._texts[wanted] = Text(split, tokenizer, corpus.manifest.sha256)
        return self._texts[wanted]

    def questions(self, spec: RunSpec, text: Text) -> Questions | None:
        """The zero- and few-shot tasks of a run, read once a process; what is wrong is found before training."""
        harness = spec.measure.harness
        if harness is None:
            return None
        assert spec.tasks is not None, spec.run_id  # the registration pins whatever the study declares
        wanted = (harness.model_dump_json(), spec.tasks.sha256, text.tokenizer.sha256)
        if wanted not in self._questions:
            self._questions[wanted] = prepare(harness, spec.tasks, self.root, text.tokenizer)
        return self._questions[wanted]

    def trainer(self, spec: RunSpec, text: Text) -> Trainer:
        """The trainer of a configuration, kept while runs of that configuration follow one another."""
        wanted = spec.config.model_dump_json()
        if self._trainer is None or self._trainer[0] != wanted:
            self._trainer = (wanted, Trainer(spec.config, text.split, text.tokenizer.size))
        return self._trainer[1]


class Run:
    """One run: begin or resume, train, evaluate, checkpoint, seal."""

    def __init__(self, worker: Worker, spec: RunSpec, folder: RunFolder) -> None:
        self.taken = time.perf_counter()
        self.worker, self.spec, self.folder = worker, spec, folder
        self.text = worker.text(spec)
        self.questions = worker.questions(spec, self.text)
        self.trainer = worker.trainer(spec, self.text)
        self.initial = self.trainer.begin(spec.seed)
        self.record = self._begin()
        self._said = self._saved = time.perf_counter()
        self._said_step = self.trainer.progress.step

    def finish(self) -> None:
        """Train to the end of the budget, to divergence, or to the scheduler's stop."""
        trainer, steps = self.trainer, self.spec.config.budget.steps
        if trainer.progress.step == 0:
            self._evaluate()
        rows: list[Row] = []
        while trainer.progress.step < steps:
            if self.worker.stop.is_set():
                self._checkpoint(rows)
                self.worker.say(
                    Message(event="stopped", run_id=self.spec.run_id, step=trainer.progress.step, steps=steps)
                )
                return
            started = time.perf_counter()
            step = trainer.step()
            trainer.progress.train_s += time.perf_counter() - started
            rows += rows_of(step.step, {"train/loss": step.loss})
            if trainer.diverged(step, self.spec.diverged_above):
                self.folder.append(rows)
                self._seal("diverged")
                return
            if step.step % self.spec.measure.every == 0 or step.step == steps:
                self.folder.append(rows)
                rows = []
                self._evaluate()
            self._tell(step)
            if time.perf_counter() - self._saved > CHECKPOINT_EVERY_S and step.step < steps:
                self._checkpoint(rows)
                rows = []
        try:
            answers = self._ask()
        except Stopped:
            self.worker.say(Message(event="stopped", run_id=self.spec.run_id, step=steps, steps=steps))
            return
        self._seal("done", answers)

    def _begin(self) -> RunRecord:
        """Take a live run up again when the same code, libraries and machine left it; otherwise start over."""
        earlier = self.folder.read_record()
        provenance = collect(threads=THREADS)
        resumed = earlier.resumed_from if earlier is not None else ()
        same = earlier is not None and _moves_alike(earlier.provenance, provenance)
        if same and self.folder.checkpoint_path.is_file():
            self.trainer.restore(self.folder.checkpoint_path)
            self._take_up()
            resumed = (*resumed, self.trainer.progress.step)
        else:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            self.folder.clear()
        record = RunRecord(
            study=self.spec.study,
            registration=self.spec.registration,
            variant=self.spec.variant,
            seed=self.spec.seed,
            status="running",
            attempts=(earlier.attempts if earlier is not None else 0) + 1,
            resumed_from=resumed,
            config=self.spec.config.model_dump(mode="json"),
            steps=0,
            tokens=0,
            parameters=self.trainer.parameters,
            pairing=None,
            provenance=provenance,
            started_at=earlier.started_at if earlier is not None else _now(),
            wall_s=earlier.wall_s if earlier is not None else 0.0,
        )
        self.folder.write_record(record)
        return record

    def _take_up(self) -> None:
        """Bring the live rows to where the checkpoint stands; a curve with a hole must not be sealed as whole."""
        step = self.trainer.progress.step
        # The first evaluation comes before the first step, and is made again by a run that never took one.
        self.folder.cut_back(step if step else -1)
        curve = [row.step for row in self.folder.rows() if row.metric == "train/loss"]
        if curve != list(range(1, step + 1)):
            raise EvidenceError(
                f"{self.folder.live_path} lacks rows that its checkpoint at step {step} vouches for",
                required="every step's training loss up to the checkpoint",
                fix=f"rm -r {self.folder.path}   (the run is then made again)",
            )

    def _evaluate(self) -> None:
        progress, measure = self.trainer.progress, self.spec.measure
        started = time.perf_counter()
        with self.trainer.arithmetic(), self.trainer.evaluated() as model:
            found = evaluate(model, self.text.split.validation, self.text.tokenizer.byte_lengths(), measure.suites)
        progress.eval_s += time.perf_counter() - started
        norms = self.trainer.mean_grad_norms()
        if "gradients" in measure.suites:
            found |= norms
        if "speed" in measure.suites and progress.step:
            found["speed/tokens_per_s"] = progress.tokens / progress.train_s
            found["speed/eval_s"] = progress.eval_s
        self.folder.append(rows_of(progress.step, found))

    def _ask(self) -> Answers | None:
        """The zero- and few-shot tasks, once training has ended. A run killed meanwhile is asked again, not trained."""
        if self.questions is None:
            return None
        self._checkpoint([])
        started = time.perf_counter()
        with self.trainer.evaluated() as model:
            answers = ask(
                self.questions,
                model,
                self.spec.config.model.context,
                self.text.tokenizer,
                stop=self.worker.stop.is_set,
            )
        self.trainer.progress.eval_s += time.perf_counter() - started
        return answers

    def _checkpoint(self, rows: list[Row]) -> None:
        """Metrics first, then the checkpoint that makes them count."""
        self.folder.append(rows, durable=True)
        write_whole(self.folder.checkpoint_path, self.trainer.checkpoint())
        self._saved = time.perf_counter()
        self.folder.write_record(self.record.model_copy(update={"wall_s": self._wall()}))

    def _seal(self, status: Status, answers: Answers | None = None) -> None:
        progress = self.trainer.progress
        if answers is not None:
            # Of a run killed between these rows and its seal, the same rows are there already.
            self.folder.forget("harness/")
            self.folder.append(rows_of(progress.step, answers.metrics))
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
                "wall_s": self._wall(),
                "ended_at": _now(),
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

    def _tell(self, step: Step) -> None:
        now = time.perf_counter()
        if now - self._said < SAY_EVERY_S:
            return
        first = self.trainer.progress.first_loss
        assert first is not None
        speed = (step.step - self._said_step) / (now - self._said)
        self.worker.say(
            Message(
                event="progress",
                run_id=self.spec.run_id,
                step=step.step,
                steps=self.spec.config.budget.steps,
                steps_per_s=speed,
                falling=step.loss < first,
            )
        )
        self._said, self._said_step = now, step.step

    def _wall(self) -> float:
        return self.record.wall_s + time.perf_counter() - self.taken


def main() -> None:
    """Serve a scheduler over standard input and output."""
    torch.set_num_threads(THREADS)
    np.seterr(all="raise", under="ignore")
    # Libraries may print; the protocol keeps the real standard output to itself.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stop = threading.Event()
    arrived = threading.Condition()
    waiting: list[dict[str, object]] = []

    def listen(commands: TextIO) -> None:
        for line in commands:
            command = json.loads(line)
            with arrived:
                if command["do"] == "stop":
                    stop.set()
                waiting.append(command)
                arrived.notify()
        os._exit(3)  # the scheduler is gone: nothing more may be written on its behalf

    def say(message: Message) -> None:
        channel.write(message.model_dump_json() + "\n")
        channel.flush()

    threading.Thread(target=listen, args=(sys.stdin,), daemon=True).start()
    worker: Worker | None = None
    say(Message(event="ready"))
    while True:
        with arrived:
            arrived.wait_for(lambda: bool(waiting))
            command = waiting.pop(0)
        if command["do"] == "stop":
            return
        worker = worker or Worker(Path(str(command["corpora"])), say, stop, Path(str(command["root"])))
        spec = RunSpec.model_validate_json(json.dumps(command["spec"]))
        worker.carry_out(spec, RunFolder(Path(str(command["folder"]))))


def _moves_alike(one: Provenance, other: Provenance) -> bool:
    """Whether both would take the same step to the same bits, as far as provenance can tell."""
    parts = ("code", "python", "torch", "numpy", "platform", "processor", "device", "threads")
    return all(getattr(one, part) == getattr(other, part) for part in parts)


def _readable(folder: RunFolder) -> RunRecord | None:
    try:
        return folder.read_record()
    except StudyError:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    main()
