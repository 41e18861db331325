"""Run of the built-in trainer, the loop over its steps, by the protocol of every trainer (docs/trainer-protocol.md).

    in    ABLATE_CONFIG        the planned run as JSON: `Job`
          ABLATE_RUN_DIR       the directory that all of these go into:
    out   metrics.jsonl        step, metric, value; written as the run goes
          about.json           facts about the run (`About`)
          progress.json        what the run does besides its steps
          resumable            there is a checkpoint: the next attempt goes on from it, to the same bits
          must_match.json      hashes of initial weights, batches, dropout, corpus and tokenizer
          items.jsonl          scores of single items, where there are tasks
          weights.safetensors  the final weights, as they were evaluated

It knows no hypothesis, no registration's claims and no ledger. SIGTERM makes it save and leave. `main` is the process;
`prepare` loads what runs have in common, for a process that is forked once for each run.
"""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from ablate.evaluation.harness.adapter import Standing, Stopped
from ablate.evaluation.harness.evaluate import Answers, evaluate_tasks
from ablate.gpt.checkpoints import Checkpoints, LiveRows
from ablate.gpt.device import CPU, Peak, device_name
from ablate.gpt.inputs import Inputs
from ablate.gpt.observer import Observer
from ablate.gpt.trainer import StepResult, Trainer
from ablate.records.outputs import ABOUT, ITEMS, MUST_MATCH, PROGRESS, RESUMABLE, WEIGHTS
from ablate.records.provenance import code_hash, processor_name
from ablate.records.rows import Row
from ablate.records.run_record import About
from ablate.records.store import ItemScore, rows_at_step
from prereg.errors import EvidenceError, RunError, StudyError
from prereg.frozen import FrozenModel
from prereg.registry.canon import sha256_bytes
from prereg.registry.disk import NO_ROOM, write_passing
from prereg.registry.plan import RunSpec
from prereg.text import counted, listed

THREADS = 1
"""Threads of one run: a study's own parallelism is used before a run's."""
CHECKPOINT_EVERY_S = 20.0
REPORT_EVERY_S = 0.5
"""How often rows and progress reach the disk at least, for a display."""
STOPPED = 128 + signal.SIGTERM
"""Exit status of a run that was stopped and saved."""


class Paths(FrozenModel):
    """Where a run finds what it reads."""

    root: Path
    """The project."""

    corpora: Path
    """Its corpora."""


class RunJob(RunSpec):
    """The planned run, and what is no part of the promise."""

    paths: Paths
    device: str = CPU
    """cpu, or cuda:N."""

    checkpoint_every_s: float | None = None
    """Seconds between checkpoints; 20 by default. Moves no bit."""

    until: int | None = None
    """A step after which the run ends, unfinished: the beginning of a run, made again to be compared."""


class Stop:
    """Whether SIGTERM has arrived."""

    def __init__(self) -> None:
        self.arrived = False

    @contextmanager
    def heard(self) -> Iterator[Stop]:
        """The signal is noted for as long as the block lasts; only a process's main thread can hear it."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        # A handler may only note: torch may be in the middle of a step.
        earlier = signal.signal(signal.SIGTERM, self._note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGTERM, earlier)

    def _note(self, *_: object) -> None:
        self.arrived = True


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Make the run that an environment names. Returns the exit status: 0 when it has ended, 143 when it was stopped and
    saved, 1 when it failed, with the reason on stderr."""
    # Sums over several threads are added in an order that depends on their number: the last bits would.
    torch.set_num_threads(THREADS)
    stop = Stop()
    try:
        # An overflow or 0/0 in numpy ends the run; by default it is a warning, and a NaN in a metric. Underflow to zero
        # is harmless.
        with stop.heard(), np.errstate(all="raise", under="ignore"):
            job = RunJob.model_validate_json(Path(environment["ABLATE_CONFIG"]).read_bytes())
            attempt = int(environment.get("ABLATE_ATTEMPT", "1"))
            ended = Run(job, Path(environment["ABLATE_RUN_DIR"]), attempt, stop).finish()
    except StudyError as error:
        # What to do comes last, so that it is among the last lines that are kept of stderr.
        print(error.found, *([f"try: {error.fix}"] if error.fix else []), sep="\n", file=sys.stderr)
        return 1
    except Exception as error:
        with suppress(OSError):
            traceback.print_exception(error)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            print(f"{error.filename} cannot be written: {error.strerror}", file=sys.stderr)
            resumes = (Path(environment["ABLATE_RUN_DIR"]) / RESUMABLE).is_file()
            then = "resumes from its last checkpoint" if resumes else "begins at its first step"
            print(f"try: free space, and run again: the run {then}", file=sys.stderr)
        return 1
    return 0 if ended else STOPPED


_prepared: dict[tuple[Path, Path], Inputs] = {}
"""Inputs that this process, or the one that it was forked from, has read: by corpora and root."""


def load_inputs(specs: Iterable[RunSpec], corpora: Path, root: Path) -> None:
    """Load what runs need, for a process that will be forked: libraries, texts, tokenizers, tasks.

    Starts no thread and touches no accelerator, neither of which a fork would have. What is wrong with a run's inputs
    is left for the run to say.
    """
    _load_libraries()
    inputs = _inputs(corpora, root)
    for spec in specs:
        with suppress(StudyError, OSError):
            inputs.prepare(spec)


def _inputs(corpora: Path, root: Path) -> Inputs:
    return _prepared.setdefault((corpora, root), Inputs(corpora, root))


def _load_libraries() -> None:
    """What is loaded when a run first uses it: a second or two, once for all forks.

    No step is made to warm up. A backward pass starts threads, which no fork has; Adam's first step asks whether CUDA
    captures a graph, which initialises CUDA, and no fork could use it any more.
    """
    torch.use_deterministic_algorithms(True)  # loads the settings of torch's compiler
    code_hash()
    processor_name()


class Run:
    """One run: begin or resume, train, evaluate, checkpoint, hand over."""

    def __init__(self, job: RunJob, home: Path, attempt: int, stop: Stop) -> None:
        # First, so that the peak of memory is this run's and not that of one before it in this process.
        self.peak = Peak.reset()
        self.job, self.home, self.attempt, self.stop = job, home, attempt, stop
        self.live, self.checkpoints = LiveRows(home / job.metrics.file), Checkpoints(home)
        self.rows: list[Row] = []
        inputs = _inputs(job.paths.corpora, job.paths.root)
        self.text = inputs.text(job)
        self.questions = inputs.questions(job, self.text)
        # Weights are drawn before anything is restored: hashes of the initial weights are stated by a resumed run
        # too.
        self.trainer = Trainer(job.config, self.text.split, self.text.tokenizer.size, device=job.device)
        self.initial = self.trainer.begin(job.seed)
        # Stated in the run's record, and part of `made_with`.
        libraries: dict[str, str | int] = {
            "python": platform.python_version(),
            "torch": version("torch"),
            "numpy": version("numpy"),
            "device": device_name(job.device),
            "threads": THREADS,
            "compiler": self.trainer.compiler,
        }
        self.facts: dict[str, object] = {
            "parameters": self.trainer.parameters,
            "steps": job.config.budget.steps,
            **libraries,
            "repetition": inputs.repetition(job),
            "baselines": inputs.baselines(job, self.text),
        }
        # A checkpoint made with any other of these is not resumed: the run starts again from its first step.
        self.made_with: dict[str, str | int] = {
            "code": code_hash(),
            "platform": f"{platform.system()} {platform.machine()}",
            "processor": processor_name(),
            **libraries,
        }
        # Only now are the run's own files read or removed: whatever is wrong with the job has been raised above.
        self._begin()
        self.observer = Observer(self.job, self.text, self.trainer, self.peak)
        self._saved = self._reported = time.perf_counter()

    def finish(self) -> bool:
        """Train to the end of the budget, to divergence, or until a step. False where it was stopped, and saved."""
        trainer, steps = self.trainer, self.job.config.budget.steps
        every_s = CHECKPOINT_EVERY_S if self.job.checkpoint_every_s is None else self.job.checkpoint_every_s
        # The model before its first step is measured too: a curve begins where both arms are what they were
        # drawn as.
        if trainer.progress.step == 0:
            self._evaluate()
        while trainer.progress.step < steps:
            if self.stop.arrived:
                self._checkpoint()
                return False
            started = time.perf_counter()
            step = trainer.step()
            trainer.progress.train_s += time.perf_counter() - started
            if self._record(step):
                self._hand_over(diverged_at=step.step)
                return True
            # Made again to be compared: its rows are all that is wanted, and nothing is handed over.
            if step.step == self.job.until and step.step < steps:
                self._write_rows()
                return True
            if time.perf_counter() - self._saved > every_s and step.step < steps:
                self._checkpoint()
        try:
            answers = self._evaluate_tasks()
        except Stopped:
            return False

        # The promise was a number of steps and of tokens; a loop that miscounts must not be sealed.
        progress, config = trainer.progress, self.job.config
        assert (progress.step, progress.tokens) == (config.budget.steps, config.tokens), progress
        if answers is not None:
            self.live.append(rows_at_step(progress.step, answers.metrics))
        self._hand_over(answers)
        return True

    def _begin(self) -> None:
        """Resume where the same code, libraries and machine left a checkpoint; otherwise start over.

        Starting over, or from the checkpoint before the newest, costs time and no bit; the run states that it was so.
        """
        faults: list[str] = []
        restored_from = self._restored(faults)
        step = None if restored_from is None else self.trainer.progress.step
        if restored_from is None:
            self._clear()
        else:
            self.live.cut_back(self.trainer.progress.live_bytes)
        self.facts["resumed_from"] = step
        if faults:
            where = "started over" if step is None else f"resumed at step {step}"
            mishap = f"attempt {self.attempt} {where}: {'; '.join(faults)}"
            self.facts["mishaps"] = (mishap,)
            print(mishap, file=sys.stderr)
        self._state()
        if restored_from == self.checkpoints.previous:
            # Only now that the mishap is on file. Left there, the damaged one would replace the sound one.
            self.checkpoints.fall_back()
        self._saved_step = step
        self.trainer.progress.made_with = self.made_with

    def _restored(self, faults: list[str]) -> Path | None:
        """The generation of the checkpoint that gave the trainer its state back; what is wrong with those before it."""
        for generation in self.checkpoints.generations():
            if generation.fault is not None:
                faults.append(f"{generation.path.name} {generation.fault}")
                continue
            try:
                self.trainer.restore(generation.path)
            except EvidenceError as error:
                faults.append(error.found)
                self.initial = self.trainer.begin(self.job.seed)  # half a state may have been restored
                continue
            changed = self._strange()
            if changed is None:
                return generation.path
            # No earlier generation: what was changed was changed for both, and nothing says from where on.
            faults.append(changed)
            self.initial = self.trainer.begin(self.job.seed)
            return None
        return None

    def _strange(self) -> str | None:
        """Why the restored checkpoint is not gone on from here; none where nothing has changed since."""
        progress = self.trainer.progress
        changed_parts = [name for name, value in self.made_with.items() if progress.made_with.get(name) != value]
        if changed_parts:
            return f"{listed(changed_parts)} not as in the attempt before"
        return self.live.fault(progress.live_bytes, progress.live_sha256)

    def _clear(self) -> None:
        """Back to before the first step. `resumable` goes first: it vouches for all the others."""
        (self.home / RESUMABLE).unlink(missing_ok=True)
        self.checkpoints.clear()
        self.live.clear()
        for name in (MUST_MATCH, ITEMS, WEIGHTS, PROGRESS):
            (self.home / name).unlink(missing_ok=True)

    def _record(self, step: StepResult) -> bool:
        """Record one step, and evaluate where that is due. True when the run has diverged."""
        # Rows wait in memory for an evaluation, a checkpoint, or until REPORT_EVERY_S have passed.
        values = {"train/loss": step.loss}
        # Of all metrics the loss alone may be infinite. A gradient without a norm has ended the run all the same.
        if "gradients" in self.job.measure.recorded and math.isfinite(step.grad_norm):
            values["train/grad_norm"] = step.grad_norm
        self.rows += rows_at_step(step.step, values)
        if self.trainer.diverged(step, self.job.diverged_above):
            return True
        # The last step is measured at any interval.
        if step.step % self.job.measure.every == 0 or step.step == self.job.config.budget.steps:
            self._write_rows()
            self._evaluate()
        elif time.perf_counter() - self._reported > REPORT_EVERY_S:
            self._write_rows()
        return False

    def _write_rows(self, *, durable: bool = False) -> None:
        """Write the rows that wait."""
        self.live.append(self.rows, durable=durable)
        self.rows = []
        self._reported = time.perf_counter()

    def _checkpoint(self) -> None:
        """Metrics first, then the checkpoint that makes them count. None where one of this very step is there."""
        progress = self.trainer.progress
        if self._saved_step == progress.step:  # the state is on disk already, from this attempt or the one before
            return
        self._write_rows(durable=True)
        # The first evaluation comes before the first step, and is made again by a run that never took one.
        first = (0, sha256_bytes(b""))
        progress.live_bytes, progress.live_sha256 = (self.live.n_bytes, self.live.sha256) if progress.step else first
        data = self.trainer.checkpoint()
        try:
            self.checkpoints.write(data)
        except OSError as error:
            raise RunError(
                f"the checkpoint of step {progress.step} ({len(data) / 2**20:.1f} MiB) cannot be written "
                f"({error.strerror}); the one before it is still there",
                required="space for three checkpoints: two are kept while the next is written",
                fix="free some space, and run again: the run resumes from the checkpoint that is there",
            ) from error
        # After the checkpoint: what starts the next attempt looks only for this file.
        (self.home / RESUMABLE).touch()
        self._saved, self._saved_step = time.perf_counter(), progress.step
        self._state()

    def _evaluate(self) -> None:
        values = self.observer.evaluate(self.live.curve)
        self.live.append(rows_at_step(self.trainer.progress.step, values))
        self._reported = time.perf_counter()

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
                self.job.config.model.context,
                self.text.written_with,
                stop=lambda: self.stop.arrived,
                report=self._report_tasks,
            )
        self.trainer.progress.eval_s += time.perf_counter() - started
        return answers

    def _report_tasks(self, standing: Standing | None) -> None:
        """How far the tasks have been evaluated, as counts and seconds, never an answer; none when that begins."""
        assert self.questions is not None
        ended = standing is not None and standing.requests == standing.of
        # Not once a request, of which there are thousands.
        if standing is not None and not ended and time.perf_counter() - self._reported < REPORT_EVERY_S:
            return
        text, left = f"asking {self.questions.name}", None
        if standing is not None:
            text += f": {standing.requests:,} of {standing.of:,} requests, {counted(standing.shots, 'shot')}"
            left = standing.seconds_left
        self._report(text, left)

    def _report(self, text: str, seconds_left: float | None = None) -> None:
        progress = {"steps": self.job.config.budget.steps, "text": text, "seconds_left": seconds_left}
        write_passing(self.home / PROGRESS, json.dumps(progress).encode() + b"\n")
        self._reported = time.perf_counter()

    def _hand_over(self, answers: Answers | None = None, *, diverged_at: int | None = None) -> None:
        """Everything that is left of a run that has ended."""
        self._write_rows()
        changed = self.live.fault(self.live.n_bytes, self.live.sha256)
        if changed is not None:
            raise EvidenceError(changed, required="the rows that this run wrote", fix="run again")
        progress = self.trainer.progress

        # What the runs of one seed must have in common; the judge compares it between arms.
        shared = {f"initial/{name}": sha256 for name, sha256 in self.initial.items()}
        shared |= {
            "batches": progress.batches,
            "dropout": progress.dropout,
            "corpus": self.text.corpus_sha256,
            "tokenizer": self.text.tokenizer.sha256,
        }
        write_passing(self.home / MUST_MATCH, json.dumps(shared, indent=1).encode() + b"\n")
        if answers is not None:
            write_passing(self.home / ITEMS, b"".join(map(_line_of, answers.items)))
            self.facts["harness"] = answers.record
        if diverged_at is not None:
            self.facts["diverged_at"] = diverged_at
        write_passing(self.home / WEIGHTS, self.trainer.weights())
        self._state()  # last: a run that states how it ended has left everything else

    def _state(self) -> None:
        """Write down the facts as they are now."""
        progress = self.trainer.progress
        about = About(
            **self.facts,  # type: ignore[arg-type]
            tokens=progress.tokens,
            train_s=progress.train_s,
            eval_s=progress.eval_s,
            peak_memory_bytes=self.peak.read_bytes(),
            memory_since=self.peak.since,
        )
        write_passing(self.home / ABOUT, about.model_dump_json(indent=1, exclude_unset=True).encode() + b"\n")


def _line_of(item: ItemScore) -> bytes:
    names = ("task", "item", "item_sha256", "metric", "value")
    return json.dumps({name: getattr(item, name) for name in names}, ensure_ascii=False).encode() + b"\n"
