"""`run.json` (`RunRecord`), what one run leaves behind: status, what its pair shares, budget, provenance, seals.

A run is done when its `run.json` says so and the hashes in it match; nothing else is believed.
Metrics themselves live next to it, in `metrics.jsonl` while the run lives and `metrics.parquet`
once sealed, and the scores of single items, where there are any, in `items.parquet` (see `ablate.records.store`).

To add a field: here, with a default, since sealed records lack it; in `About`, too, where the trainer states it, and
then in `_stated` of `ablate.runner.process`; docs/reference/files.md is generated from both (`make docs`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from prereg.frozen import FrozenModel
from prereg.registry.plan import Cell, Planned
from prereg.text import compact


class HarnessRecord(FrozenModel):
    """How the tasks of one run were evaluated. Equal over comparable runs but for time and truncation."""

    version: str
    """Version of the harness."""
    tasks: str
    """The tasks' name."""
    tasks_sha256: str
    """Their hash, as in the registration's pin."""
    prompts_sha256: str
    """Hash over prompts, numbers of shots, the examples drawn for every task, and the text for an empty context."""
    arguments_sha256: str
    """Hash over every (context, continuation) that the model was given, in order, with the right answers."""
    precision: str
    """Arithmetic of the answers."""
    n_tasks: int
    """Tasks."""
    n_items: int
    """Items that were scored, all tasks together."""
    n_requests: int
    """Log-likelihoods requested, over all shots, prompts and choices."""
    unencodable: int
    """Items left out because the tokenizer cannot write them."""
    truncated: int
    """Requests longer than the model's context."""
    wall_s: float
    """Seconds, of building requests and answering them."""


Status = Literal["queued", "running", "done", "diverged", "failed"]


def utc_timestamp() -> str:
    """Now, as records write it: in UTC, with its offset, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Provenance(FrozenModel):
    """The code, libraries and hardware of a run."""

    code: str
    """sha256 over the source of every module that a run executes; of a user's own trainer, over its pinned files."""
    commit: str | None
    """git commit of the tool's source tree, where there is one."""
    dirty: bool | None
    """Whether a module that a run executes had uncommitted changes in that tree."""
    python: str
    """Python version."""
    torch: str
    """torch version."""
    numpy: str
    """numpy version."""
    platform: str
    """Operating system and machine type."""
    processor: str
    """Model name of the processor."""
    device: str
    """Device class: cpu or the accelerator's name."""
    threads: int
    """Threads of one run."""
    compiler: str = ""
    """What compiled its steps, with its version; empty where torch took them operator by operator."""


class RepeatedUnits(FrozenModel):
    """A count of repeated lines or paragraphs."""

    repeated: int
    """Those that occur earlier, exactly alike."""
    units: int
    """All that were followed."""

    @property
    def share(self) -> float:
        """Their share; 0 of nothing.

        >>> RepeatedUnits(repeated=3, units=12).share, RepeatedUnits(repeated=0, units=0).share
        (0.25, 0.0)
        """
        return self.repeated / self.units if self.units else 0.0


class Repetition(FrozenModel):
    """How much of a corpus repeats itself, exactly alike; or why that was not measured."""

    lines: RepeatedUnits | None = None
    """Lines that occur earlier in it."""
    paragraphs: RepeatedUnits | None = None
    """Paragraphs that occur earlier in it."""
    held_out_lines: RepeatedUnits | None = None
    """Lines of its validation part that occur in the rest."""
    held_out_paragraphs: RepeatedUnits | None = None
    """Paragraphs of its validation part that occur in the rest."""
    one_in: int = 1
    """One in so many of the different units was followed, chosen by its hash; 1: every one."""
    not_measured: str | None = None
    """Why nothing was counted."""


class CountedBaselines(FrozenModel):
    """Losses of predictors that only count, in nats per token on the validation part; or why they were not computed."""

    uniform: float | None = None
    """Of guessing evenly."""
    unigram: float | None = None
    """Of the training part's token frequencies."""
    bigram: float | None = None
    """Of the training part's token pairs."""
    floor: float | None = None
    """Entropy rate of the source, where it is known."""
    tokens: int = 0
    """Validation tokens that were predicted."""
    not_computed: str | None = None
    """Why nothing was computed."""


class About(FrozenModel):
    """What a trainer states of its run in about.json, all of it optional: facts for the report, and no metric.

    Totals are those of the run, resumed attempts included; mishaps are those of the attempt that states them.
    """

    parameters: int | None = None
    """Trainable parameters, tied ones counted once."""

    tokens: int | None = None
    """Tokens consumed."""

    steps: int | None = None
    """Steps planned."""

    train_s: float | None = None
    """Seconds in training steps."""

    eval_s: float | None = None
    """Seconds in evaluation."""

    peak_memory_bytes: int | None = None
    """Most resident memory; measured from outside where the trainer does not say."""

    memory_since: Literal["run", "process"] | None = None
    """Whether that is the peak since the run began, or since its process did."""

    python: str | None = None
    """Python version."""

    torch: str | None = None
    """torch version."""

    numpy: str | None = None
    """numpy version."""

    device: str | None = None
    """Device class: cpu, or the accelerator's name."""

    threads: int | None = None
    """Threads of the run."""

    compiler: str | None = None
    """What compiled its steps, with its version."""

    mishaps: tuple[str, ...] = ()
    """Problems from which this attempt recovered, a sentence each."""

    resumed_from: int | None = None
    """Step from which this attempt went on. Null, where it is stated: it began at the first step although it could have
    been resumed."""

    diverged_at: int | None = None
    """Step at which the run diverged, where its loss is not finite and so is no row of the metrics."""

    repetition: dict[str, Repetition] | None = None
    """How much of the corpus that it read repeats itself, by its name."""

    baselines: CountedBaselines | None = None
    """Validation losses of predictors that only count, on this run's split."""

    harness: HarnessRecord | None = None
    """How zero- and few-shot tasks were evaluated."""

    @property
    def provenance(self) -> dict[str, str | int]:
        """The fields of a `Provenance` that the trainer states; its code is hashed, and never stated."""
        stated = {
            "python": self.python,
            "torch": self.torch,
            "numpy": self.numpy,
            "device": self.device,
            "threads": self.threads,
            "compiler": self.compiler,
        }
        return {name: value for name, value in stated.items() if value is not None}


class Divergence(FrozenModel):
    """The value by which a run diverged, and the limit that it exceeded."""

    metric: str = "train/loss"
    """The metric."""
    step: int
    """The step at which it has that value."""
    value: float | None = None
    """The value; none where it is not finite."""
    first: float | None = None
    """The first value of the metric, from which the limit follows; none where the limit does not apply."""
    limit: float | None = None
    """The limit in the metric's own unit; none where only a value that is not finite has diverged."""
    stated: bool = False
    """True where its trainer says that the run diverged, of a loss or gradient that is not finite and not recorded."""

    @property
    def words(self) -> str:
        """Metric, value, step and limit in a sentence.

        >>> Divergence(step=7, value=0.05, first=0.0073, limit=0.0146).words
        'train/loss is 0.05 at step 7, above the limit of 0.0146 (2 times the first, 0.0073)'
        >>> Divergence(step=7).words
        'train/loss is not finite at step 7'
        """
        if self.stated:
            return f"loss or gradient not finite at step {self.step:,}, as the trainer states"
        if self.limit is None or self.first is None:
            return f"{self.metric} is not finite at step {self.step:,}"
        limit = f"{compact(self.limit)} ({compact(self.limit / self.first)} times the first, {compact(self.first)})"
        if self.value is None:
            return f"{self.metric} is not finite at step {self.step:,}; the limit is {limit}"
        return f"{self.metric} is {compact(self.value)} at step {self.step:,}, above the limit of {limit}"


class LiveValues(FrozenModel):
    """What the file of metrics held when an attempt was stopped, failed or resumed."""

    sha256: str | None = None
    """sha256 of its bytes at the end of an attempt; none while one is at work, and where there was no file."""
    values: dict[str, float] = {}
    """METRIC at STEP -> value, of the claimed metrics."""


class RunRecord(FrozenModel):
    """One run: of one study, one registration, one variant, one seed."""

    format: Literal[1]
    """The version of the format."""
    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration the run was made under."""
    variant: str
    """The arm."""
    seed: int
    """The seed."""
    status: Status
    """queued (its next attempt is on record and has not begun), running, done, diverged (an outcome, with its curve
    kept), or failed (an error of the machine or the code)."""
    attempts: int
    """How often the run was started, including when it was resumed, and a start that is queued."""
    resumed_from: tuple[int, ...] = ()
    """Steps at which later attempts resumed the run."""
    config: dict[str, JsonValue]
    """The resolved configuration."""
    steps: int
    """Optimiser steps taken."""
    tokens: int
    """Tokens consumed."""
    parameters: int
    """Trainable parameters, tied ones counted once."""
    provenance: Provenance
    """The code, libraries and hardware it was made with."""
    started_at: str
    """Start of the first attempt, UTC, ISO 8601."""
    ended_at: str | None = None
    """End of the last attempt."""
    train_s: float = 0.0
    """Seconds in training steps."""
    eval_s: float = 0.0
    """Seconds in evaluation."""
    wall_s: float = 0.0
    """Seconds from the worker taking the run to its seal, over all attempts; of one that was killed, up to the last
    checkpoint."""
    peak_memory_bytes: int | None = None
    """Most resident memory of the process while it held the run, over all attempts; of one that was killed, up to the
    last checkpoint. Interpreter and libraries are in it. None where it was not measured."""
    memory_since: Literal["run", "process"] | None = None
    """Whether that is the peak since the run began, or since its process did, an upper bound where a process makes
    several runs."""
    mishaps: tuple[str, ...] = ()
    """Problems that the run recovered from, a sentence each: a damaged checkpoint, a start from scratch."""
    error: str | None = None
    """Last line of the error of a failed run."""
    divergence: Divergence | None = None
    """Of a diverged run: the value by which it diverged, and the limit. Absent from runs of earlier versions."""
    metrics_sha256: str | None = None
    """sha256 of the sealed metrics.parquet."""
    weights_sha256: str | None = None
    """sha256 of the final weights.safetensors."""
    outcome_sha256: str | None = None
    """sha256 over the repeatable metrics alone (no timings): equal for a run repeated to the last bit. Where items were
    scored, over their scores too."""
    items_sha256: str | None = None
    """sha256 of the sealed items.parquet; none where no item was scored."""
    harness: HarnessRecord | None = None
    """How the zero- and few-shot tasks were evaluated; none where there were none."""

    repetition: dict[str, Repetition] | None = None
    """How much of the corpus that it read repeats itself, by its name; none of a user's own trainer."""
    mixture: Annotated[None, Field(exclude=True)] = None
    """Null in the records of earlier versions, of a removed field; written no more."""
    baselines: CountedBaselines | None = None
    """Validation losses of predictors that only count, on this run's split; none of a user's own trainer."""
    must_match: dict[str, str] | None = None
    """Name -> sha256 of what the trainer says that the runs of a seed must have in common; none where it says nothing.
    The built-in trainer states `initial/PARAMETER` for the initial bytes of each parameter, `batches` and `dropout`
    (chained hashes of every batch of token ids, and of the keys of every mask, in order), `corpus` and `tokenizer`."""

    fingerprints: dict[str, str] | None = None
    """The same of what the runs of a seed may have in common or not, for the report; none where the trainer says
    nothing."""

    live: LiveValues | None = None
    """What had been recorded when an attempt ended without a seal, or was resumed; none otherwise."""
    redrawn: int = 0
    """Attempts whose values of a claimed metric a resumed one replaced by others."""

    @classmethod
    def begin(cls, spec: Planned, earlier: RunRecord | None, provenance: Provenance, **fields: Any) -> RunRecord:
        """The record of an attempt at a planned run; `earlier` is that of the attempt before it, if there was one.

        `fields` are other fields of the record, which take precedence over what is carried over.
        """
        # Carried over: when the run first started and the time that it has cost, which no restart gives back.
        if earlier is not None:
            fields = {"started_at": earlier.started_at, "wall_s": earlier.wall_s, **fields}
        # Not carried over: steps and tokens, which the attempt states when it ends.
        return cls(
            format=1,
            **{name: getattr(spec, name) for name in ("study", "registration", "variant", "seed")},
            attempts=1 + (0 if earlier is None else earlier.attempts),
            steps=0,
            tokens=0,
            provenance=provenance,
            **{"status": "queued", "started_at": utc_timestamp(), **fields},
        )

    @property
    def cell(self) -> Cell:
        """Its variant and seed."""
        return self.variant, self.seed

    def seal(self, run_sha256: str) -> dict[str, Any]:
        """The fields of the ledger's entry that seals the run: its end, and its hashes with that of its run.json."""
        return {
            "variant": self.variant,
            "seed": self.seed,
            "status": self.status,
            "attempts": self.attempts,
            "metrics_sha256": self.metrics_sha256,
            "outcome_sha256": self.outcome_sha256,
            # Left out where it does not apply, and not null: the entry has the bytes that it had before the
            # field existed.
            **({} if self.items_sha256 is None else {"items_sha256": self.items_sha256}),
            **({"redrawn": self.redrawn} if self.redrawn else {}),
            "run_sha256": run_sha256,
        }
