"""One process, many runs. The only module that joins gpt, measure, harness and records.

The process reads commands on its standard input and stays alive across runs, so that imports, the corpus
and the model object are paid for once. When its scheduler dies, standard input ends and the process ends
at once: whatever was checkpointed is taken up by the next `ablate run`.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from ablate.gpt.batches import Split
from ablate.gpt.bpe import BpeTokenizer
from ablate.gpt.corpus import Library
from ablate.gpt.device import CPU, device_name
from ablate.gpt.distributed import ALONE, Ranks
from ablate.gpt.kernels import cache_folder
from ablate.gpt.mixture import Mixture
from ablate.gpt.model import GPT
from ablate.gpt.paths import Paths, choose_paths
from ablate.gpt.reading import Tokenizer, read
from ablate.gpt.tokenizer import CharTokenizer, StoredVocabulary
from ablate.gpt.train import Step, Trained, Trainer
from ablate.harness.adapter import Stopped
from ablate.harness.asking import Answers, ask, prepare
from ablate.harness.progress import Standing
from ablate.harness.tasks import Questions
from ablate.measure.classes import classes_of
from ablate.measure.cost import Meter, measure_cost
from ablate.measure.level import steps_to_level
from ablate.measure.movement import copy_of, second_moments, update_ratios
from ablate.measure.own import measure_own, registered_sources
from ablate.measure.suites import evaluate
from ablate.records.provenance import collect, differing
from ablate.records.run_record import Pairing, Provenance, RunRecord, Status
from ablate.records.store import Row, RunFolder, rows_of
from ablate.run.company import LOST_A_RANK, Company
from ablate.run.memory import Peak
from ablate.run.messages import Asking, Measuring, Message
from ablate.run.saving import save, take_up
from ablate.run.spread import Spread
from prereg.errors import EvidenceError, StudyError
from prereg.plan import RunSpec
from prereg.registration import reading_sha256
from prereg.root import Root
from prereg.words import listed

THREADS = 1
CHECKPOINT_EVERY_S = 20.0
SAY_EVERY_S = 0.5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Text:
    """What a run reads, tokenised and split."""

    split: Split
    tokenizer: Tokenizer
    corpus_sha256: str

    @property
    def written_with(self) -> CharTokenizer | BpeTokenizer:
        """The tokenizer, where texts are turned into ids: a study that asks tasks reads no stored ids."""
        assert not isinstance(self.tokenizer, StoredVocabulary), self.tokenizer.sha256
        return self.tokenizer

    @cached_property
    def classes(self) -> np.ndarray | None:
        """The class of every entry of the vocabulary; none where nobody said what its entries stand for."""
        pieces = self.tokenizer.pieces()
        return None if pieces is None else classes_of(pieces)


class Worker:
    """Carries out runs one after another. `deadly` ends its process where code of the study's own cannot be stopped."""

    def __init__(
        self,
        corpora: Path,
        say: Callable[[Message], None],
        stop: threading.Event,
        beside: Path = Path(),
        *,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
        spread: Spread | None = None,
        device: str = CPU,
        root: Path | None = None,
        deadly: bool = False,
    ) -> None:
        self.beside = beside
        self.deadly = deadly
        self.corpora = corpora
        self.library = Library.of(corpora)
        self.root = Root(root if root is not None else corpora.parent.parent)
        self.say = say
        self.stop = stop
        self.checkpoint_every_s = checkpoint_every_s
        self.spread = spread if spread is not None else Spread()
        self.company: Company | None = None
        self.device = device
        self.device_name = device_name(device)
        self._texts: dict[str, Text] = {}
        self._trainer: tuple[str, Trainer] | None = None
        self._questions: dict[tuple[str, str, str], Questions] = {}

    def carry_out(self, spec: RunSpec, folder: RunFolder, until: int | None = None) -> None:
        """One run from where it stands to its seal. Everything that goes wrong becomes a `failed` record.

        `until` ends it after that step, unsealed: the beginning of a run, made again to be compared.
        """
        try:
            Run(self, spec, folder).finish(until)
        except Exception as error:
            if self.company is not None and self.company.killed():
                traceback.print_exception(error)
                os._exit(LOST_A_RANK)  # no error of the run: it is taken up again
            self.end()
            self.fail(spec, folder, error)

    def fail(self, spec: RunSpec, folder: RunFolder, error: Exception) -> None:
        """Record a run as failed, and say so."""
        traceback.print_exception(error)
        line = _said(error, folder)
        record = _readable(folder)
        if record is not None:
            ended = {"status": "failed", "error": line, "ended_at": _now()}
            # On a full disk the old record stays; the scheduler is told all the same.
            with suppress(OSError):
                folder.write_record(record.model_copy(update=ended))
        self.say(Message(event="ended", run_id=spec.run_id, status="failed", error=line))

    def text(self, spec: RunSpec) -> Text:
        """The data of a run, read once a process and checked against the registration's pins."""
        data, pins = spec.config.data, {name: pin.sha256 for name, pin in spec.pins.items()}
        wanted = json.dumps([data.model_dump(mode="json"), pins, spec.tokenizer])
        if wanted not in self._texts:
            reading = read(self.library, data, registered=spec.tokenizer)
            for name, found in reading.corpora.items():
                if found.manifest.sha256 != pins.get(name):
                    raise StudyError(
                        f"corpus '{name}' is not the one registered (sha256 {found.manifest.sha256})",
                        required=f"sha256 {pins.get(name)}",
                    )
            if spec.tokenizer is not None and reading.tokenizer.sha256 != spec.tokenizer:
                raise StudyError(
                    f"the tokenizer of '{spec.variant}' is not the one registered (sha256 {reading.tokenizer.sha256})",
                    required=f"sha256 {spec.tokenizer}",
                    fix="the version of the library `tokenizers` under which the study was registered",
                )
            self._texts[wanted] = Text(reading.split, reading.tokenizer, reading_sha256(pins.items()))
        text = self._texts[wanted]
        text.split.require(spec.config.model.context)
        return text

    def questions(self, spec: RunSpec, text: Text) -> Questions | None:
        """The zero- and few-shot tasks of a run, read once a process; what is wrong is found before training."""
        harness = spec.measure.harness
        if harness is None:
            return None
        assert spec.tasks is not None, spec.run_id  # the registration pins whatever the study declares
        wanted = (harness.model_dump_json(), spec.tasks.sha256, text.tokenizer.sha256)
        if wanted not in self._questions:
            self._questions[wanted] = prepare(harness, spec.tasks, self.root, text.written_with)
        return self._questions[wanted]

    def trainer(self, spec: RunSpec, text: Text) -> Trainer:
        """The trainer of a configuration, kept while runs of that configuration follow one another."""
        wanted = spec.config.model_dump_json() + json.dumps([text.corpus_sha256, text.tokenizer.sha256])
        if self._trainer is None or self._trainer[0] != wanted:
            paths = choose_paths(spec.config, cache_folder(), device=self.device)
            ranks = self._ranks(spec, paths)
            trainer = Trainer(spec.config, text.split, text.tokenizer.size, paths, ranks, device=self.device)
            self._trainer = (wanted, trainer)
        return self._trainer[1]

    def end(self) -> None:
        """Leave the other ranks, where there are any. After an error nobody knows where they stand."""
        self._trainer = None
        if self.company is not None:
            self.company.end()
            self.company = None

    def _ranks(self, spec: RunSpec, paths: Paths) -> Ranks:
        if self.spread.devices == 1:
            return ALONE
        if self.company is None:
            self.company = Company(self.spread, self.corpora)
        self.company.tell("run", (spec.model_dump_json(), json.dumps(asdict(paths))))
        return self.company.ranks


@dataclass(frozen=True)
class Watched:
    """The weights before a step, and the seconds that keeping them took."""

    weights: dict[str, torch.Tensor]
    seconds: float


class Run:
    """One run: begin or resume, train, evaluate, checkpoint, seal."""

    trainer: Trained

    def __init__(self, worker: Worker, spec: RunSpec, folder: RunFolder) -> None:
        self.peak = Peak.reset()
        self._hold(worker, spec, folder)
        self.trainer = worker.trainer(spec, self.text)
        self._start(self.alone.begin(spec.seed))

    def _hold(self, worker: Worker, spec: RunSpec, folder: RunFolder) -> None:
        self.taken = time.perf_counter()
        self.worker, self.spec, self.folder = worker, spec, folder
        self.own = registered_sources(spec.measure.own, spec.own, worker.beside)
        self.text = worker.text(spec)
        self.questions = worker.questions(spec, self.text)

    def _start(self, initial: dict[str, str]) -> None:
        self.initial = initial
        self.record = self._begin()
        self._said = self._saved = time.perf_counter()
        self._said_step = self.trainer.progress.step
        self._told = Message(event="progress", run_id=self.spec.run_id, steps=self.spec.config.budget.steps)
        self._watched: Watched | None = None
        asked = "cost" in self.spec.measure.recorded
        # Energy of a part of a run is not that of the run: one taken up from a checkpoint has no meter.
        self._energy = Meter.started() if asked and self.trainer.progress.step == 0 else None

    @property
    def alone(self) -> Trainer:
        """The trainer of a run that takes its own steps; those of a cohort are taken together."""
        assert isinstance(self.trainer, Trainer), self.trainer
        return self.trainer

    @property
    def _whole(self) -> bool:
        """Whether weights and moments lie whole and alone in this process: not cut over devices, in no cohort.

        Elsewhere updates and moments are not measured, and `ablate run` refuses layouts under which a claim lacks them.
        """
        return self.worker.spread.shard != "fsdp" and isinstance(self.trainer, Trainer)

    @property
    def layout(self) -> str:
        """The words for its provenance."""
        return self.worker.spread.layout

    def finish(self, until: int | None = None) -> None:
        """Train to the end of the budget, to divergence, to the scheduler's stop, or until a step."""
        trainer, steps = self.alone, self.spec.config.budget.steps
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
            self._watch(trainer.progress.step + 1)
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
            if step.step == until and until < steps:
                self.folder.append(rows)
                self.worker.say(Message(event="stopped", run_id=self.spec.run_id, step=until, steps=steps))
                return
            if time.perf_counter() - self._saved > self.worker.checkpoint_every_s and step.step < steps:
                self._checkpoint(rows)
                rows = []
        try:
            answers = self._ask()
        except Stopped:
            self.worker.say(Message(event="stopped", run_id=self.spec.run_id, step=steps, steps=steps))
            return
        self._seal("done", answers)

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
        taken_up = self._restored(new) if earlier is not None and not others else None
        if taken_up is not None:
            self._take_up()
            resumed = (*resumed, self.trainer.progress.step)
        else:
            if others and self._was_left():
                new.append(f"{listed(others)} not as in the attempt before")
            self.folder.path.mkdir(parents=True, exist_ok=True)
            self.folder.clear()
        if new:
            where = "started over" if taken_up is None else f"taken up at step {self.trainer.progress.step}"
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
            started_at=earlier.started_at if earlier is not None else _now(),
            wall_s=earlier.wall_s if earlier is not None else 0.0,
            peak_memory_bytes=earlier.peak_memory_bytes if earlier is not None else None,
            memory_since=earlier.memory_since if earlier is not None else None,
        )
        self.folder.write_record(record)
        self._begun(taken_up)
        return record

    def _restored(self, faults: list[str]) -> Path | None:
        """The generation of the checkpoint that gave the trainer its state back; what is wrong with those before it."""
        return take_up(self.folder.checkpoints, self.alone.restore, self._begin_anew, faults)

    def _begin_anew(self) -> None:
        self.initial = self.alone.begin(self.spec.seed)

    def _was_left(self) -> bool:
        """Whether an earlier attempt left what could have been taken up."""
        return self.folder.checkpoints.exist()

    def _begun(self, taken_up: Path | None) -> None:
        """Its record stands."""
        if taken_up == self.folder.checkpoints.previous:
            # Only now that the record tells of it. Left there, the damaged one would replace the sound one.
            self.folder.checkpoints.fall_back()
        self._saved_step = None if taken_up is None else self.trainer.progress.step

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

    def _watch(self, step: int) -> None:
        """Keep the weights before a step whose update is measured."""
        measure, last = self.spec.measure, step == self.spec.config.budget.steps
        self._watched = None
        if self._whole and "gradients" in measure.due(last=last) and (last or step % measure.every == 0):
            started = time.perf_counter()
            self._watched = Watched(copy_of(self.alone.model), time.perf_counter() - started)

    def _evaluate(self) -> None:
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
            curve = [(row.step, row.value) for row in self.folder.rows() if row.metric == "val/loss"]
            found["val/steps_to_level"] = steps_to_level(
                [*curve, (progress.step, found["val/loss"])], measure.loss_level
            )
        progress.eval_s += time.perf_counter() - started
        norms = self.trainer.mean_grad_norms()
        if "gradients" in suites:
            found |= norms
        if "speed" not in suites:
            found = {name: value for name, value in found.items() if not name.startswith("speed/")}
        elif progress.step:
            found["speed/tokens_per_s"] = progress.tokens / progress.train_s
            found["speed/eval_s"] = progress.eval_s
        self.folder.append(rows_of(progress.step, found))

    def _moved(self) -> dict[str, float]:
        """What the step before this evaluation did to the weights, and the optimiser's second moments."""
        if not self._whole:
            return {}
        started = time.perf_counter()
        found = second_moments(self.alone.model, self.alone.optimizers)
        if self._watched is None:  # before the first step
            return found
        found |= update_ratios(self.alone.model, self._watched.weights)
        found["speed/measure_gradients_s"] = self._watched.seconds + time.perf_counter() - started
        return found

    def _own_metrics(self, model: GPT, *, last: bool) -> dict[str, float]:
        """What the study's own code makes of the model."""
        due = tuple(source for source in self.own if last or not source.metric.at_end)
        if not due:
            return {}
        started = time.perf_counter()
        text, step = self.text, self.trainer.progress.step
        found: dict[str, float] = {}
        for source in due:
            # Said first: of code that never ends, nothing can be said afterwards.
            measuring = Measuring(metric=source.metric.name, limit_s=source.metric.limit_s)
            self.worker.say(self._at_rest(measuring=measuring))
            pieces = text.tokenizer.pieces()
            found |= measure_own((source,), model, text.split.validation, pieces, step, deadly=self.worker.deadly)
        self.worker.say(self._at_rest())
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

    def _ask(self) -> Answers | None:
        """The zero- and few-shot tasks, once training has ended. A run killed meanwhile is asked again, not trained."""
        if self.questions is None:
            return None
        self._checkpoint([])
        started = time.perf_counter()
        self._tell_asked(None)
        with self.trainer.evaluated() as model:
            answers = ask(
                self.questions,
                model,
                self.spec.config.model.context,
                self.text.written_with,
                stop=self.worker.stop.is_set,
                tell=self._tell_asked,
            )
        self.trainer.progress.eval_s += time.perf_counter() - started
        return answers

    def _checkpoint(self, rows: list[Row]) -> None:
        """Metrics first, then the checkpoint that makes them count. None where one of this very step is there."""
        if self._saved_step == self.trainer.progress.step:
            return
        self.folder.append(rows, durable=True)
        save(self.folder.checkpoints, self.alone.checkpoint(), self.trainer.progress.step)
        self._saved, self._saved_step = time.perf_counter(), self.trainer.progress.step
        self.folder.write_record(self.record.model_copy(update=self._cost()))

    def _seal(self, status: Status, answers: Answers | None = None) -> None:
        progress, config = self.trainer.progress, self.spec.config
        if status == "done":
            assert (progress.step, progress.tokens) == (config.budget.steps, config.tokens), progress
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
                "mixture": self._drawn(),
                "ended_at": _now(),
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

    def _drawn(self) -> dict[str, int] | None:
        """Windows of each source that were trained on; none where there is one source."""
        train = self.text.split.train
        if not isinstance(train, Mixture):
            return None
        return train.drawn(self.spec.seed, self.trainer.progress.step, self.spec.config.budget.batch)

    def _tell(self, step: Step) -> None:
        now = time.perf_counter()
        if now - self._said < SAY_EVERY_S:
            return
        first = self.trainer.progress.first_loss
        assert first is not None
        speed = (step.step - self._said_step) / (now - self._said)
        self._told = self._told.model_copy(
            update={"step": step.step, "steps_per_s": speed, "falling": step.loss < first}
        )
        self.worker.say(self._told)
        self._said, self._said_step = now, step.step

    def _tell_asked(self, standing: Standing | None) -> None:
        """How far the run has been asked its tasks; none when that begins."""
        now = time.perf_counter()
        ended = standing is not None and standing.requests == standing.of
        if standing is not None and not ended and now - self._said < SAY_EVERY_S:
            return
        assert self.questions is not None
        asking = Asking(tasks=self.questions.name, **({} if standing is None else asdict(standing)))
        self.worker.say(self._at_rest(asking=asking))
        self._said = now

    def _at_rest(self, *, asking: Asking | None = None, measuring: Measuring | None = None) -> Message:
        """What a run is at beside its steps, with its speed and the like as last told."""
        step = self.trainer.progress.step
        return self._told.model_copy(update={"step": step, "asking": asking, "measuring": measuring})

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


def main() -> None:
    """Serve a scheduler over standard input and output."""
    torch.set_num_threads(THREADS)
    np.seterr(all="raise", under="ignore")
    # Libraries may print; the protocol keeps the real standard output to itself.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stop = threading.Event()
    arrived = threading.Condition()
    waiting: list[dict[str, Any]] = []

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
            if worker is not None:
                worker.end()
            return
        if worker is None:
            corpora, beside, root = (Path(str(command[place])) for place in ("corpora", "beside", "root"))
            spread, device = _spread(command), str(command.get("device") or CPU)
            worker = Worker(corpora, say, stop, beside, spread=spread, device=device, root=root, deadly=True)
        every_s = command.get("checkpoint_every_s")
        worker.checkpoint_every_s = float(every_s) if isinstance(every_s, int | float) else CHECKPOINT_EVERY_S
        _obey(worker, command)


def _obey(worker: Worker, command: dict[str, Any]) -> None:
    """One run by itself, or several together."""
    if command["do"] == "run":
        spec = RunSpec.model_validate_json(json.dumps(command["spec"]))
        until = command.get("until")
        worker.carry_out(spec, RunFolder(Path(command["folder"])), until if isinstance(until, int) else None)
        return
    from ablate.run.cohort import carry_out_together

    specs = [RunSpec.model_validate_json(json.dumps(spec)) for spec in command["specs"]]
    folders = [RunFolder(Path(folder)) for folder in command["folders"]]
    assigned = list(zip(specs, folders, strict=True))
    carry_out_together(worker, assigned, tuple(command["seats"]), Path(command["checkpoint"]))


def provenance_of(worker: Worker, paths: Paths, layout: str) -> Provenance:
    """With what this process makes a run."""
    return collect(threads=THREADS, device=worker.device_name, paths=str(paths), layout=layout)


def _said(error: Exception, folder: RunFolder) -> str:
    """An error in one line, with the way out where there is one."""
    if isinstance(error, StudyError):
        return f"{error.found}; try: {error.fix}" if error.fix else error.found
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return (
            f"{folder.path} has no room for the records of the run ({error.strerror}); try: make room, and run again: "
            "the run goes on from its last checkpoint"
        )
    return f"{type(error).__name__}: {error}"


def _spread(command: dict[str, Any]) -> Spread:
    given = command.get("spread")
    return Spread(**given) if isinstance(given, dict) else Spread()


def _readable(folder: RunFolder) -> RunRecord | None:
    try:
        return folder.read_record()
    except StudyError:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    # Under its own name, so that a cohort's runs are of the same classes as this module's.
    from ablate.run import worker as served  # noqa: PLW0406 (it is not itself yet, but __main__)

    served.main()
