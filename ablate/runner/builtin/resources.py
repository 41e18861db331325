"""What a process keeps from one run to the next: texts, tasks, the trainer.

Imports, corpora and the model object are paid for once a process. What is kept is keyed by all that it depends on,
so that no run finds anything that another configuration has left.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from ablate.data.baselines import kept_baselines
from ablate.data.batches import Split
from ablate.data.corpora import Library
from ablate.data.reading import Tokenizer, read
from ablate.data.repetition import repetition_in
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, FileTokenizer, StoredVocabulary
from ablate.evaluation.harness.evaluate import prepare
from ablate.evaluation.harness.tasks import Questions
from ablate.evaluation.loss import classes_of
from ablate.gpt.device import CPU, device_name
from ablate.gpt.trainer import Trainer
from ablate.records.run_record import CountedBaselines, Repetition
from ablate.runner.messages import Message
from prereg.errors import StudyError
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec
from prereg.registry.registration import reading_sha256


@dataclass(frozen=True)
class Text:
    """What a run reads, tokenised and split."""

    split: Split
    tokenizer: Tokenizer
    corpus_sha256: str

    @property
    def written_with(self) -> CharTokenizer | BpeTokenizer | FileTokenizer:
        """The tokenizer, where texts are turned into ids: a study that asks tasks reads no stored ids."""
        assert not isinstance(self.tokenizer, StoredVocabulary), self.tokenizer.sha256
        return self.tokenizer

    @cached_property
    def classes(self) -> np.ndarray | None:
        """The class of every entry of the vocabulary; none where nobody said what its entries mean."""
        pieces = self.tokenizer.pieces()
        return None if pieces is None else classes_of(pieces)


THREADS = 1
"""Threads of one run: a study's own parallelism is used before a run's."""
CHECKPOINT_EVERY_S = 20.0


@dataclass
class Resources:
    """Everything that a run is given by its process, and everything that stops it."""

    corpora: Path
    say: Callable[[Message], None]
    stop: threading.Event
    study_folder: Path = Path()
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    device: str = CPU
    root: Path | None = None
    """The project; by default the folder that holds `data/corpora`."""
    _texts: dict[str, Text] = field(default_factory=dict)
    _trainer: tuple[str, Trainer] | None = None
    _questions: dict[tuple[str, str, str], Questions] = field(default_factory=dict)

    @cached_property
    def library(self) -> Library:
        """The corpora."""
        return Library.of(self.corpora)

    @cached_property
    def device_name(self) -> str:
        """The device as a provenance names it."""
        return device_name(self.device)

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
                    fix="the version of the library `tokenizers` under which the study was registered; or the file",
                )
            self._texts[wanted] = Text(reading.split, reading.tokenizer, reading_sha256(pins.items()))
        text = self._texts[wanted]
        text.split.require(spec.config.model.context)
        return text

    def repetition(self, spec: RunSpec) -> dict[str, Repetition]:
        """How much of each corpus of a run repeats itself, counted once a machine."""
        found = {}
        for name in spec.config.data.sources:
            counted = repetition_in(self.library, name, spec.config.data.validation)
            found[name] = (
                Repetition(not_measured=counted)
                if isinstance(counted, str)
                else Repetition.model_validate(asdict(counted))
            )
        return found

    def baselines(self, spec: RunSpec, text: Text) -> CountedBaselines:
        """What a validation loss of a run is read next to, computed once a machine."""
        found = kept_baselines(
            self.library.cache,
            {
                "corpora": text.corpus_sha256,
                "tokenizer": text.tokenizer.sha256,
                "validation": str(spec.config.data.validation),
            },
            text.split,
            text.tokenizer.size,
            corpora=spec.config.data.sources,
            characters=isinstance(text.tokenizer, CharTokenizer),
        )
        return CountedBaselines(not_computed=found) if isinstance(found, str) else CountedBaselines(**asdict(found))

    def questions(self, spec: RunSpec, text: Text) -> Questions | None:
        """The zero- and few-shot tasks of a run, read once a process; what is wrong is found before training."""
        harness = spec.measure.harness
        if harness is None:
            return None
        assert spec.tasks is not None, spec.run_id  # the registration pins whatever the study declares
        wanted = (harness.model_dump_json(), spec.tasks.sha256, text.tokenizer.sha256)
        if wanted not in self._questions:
            root = Root(self.root if self.root is not None else self.corpora.parent.parent)
            self._questions[wanted] = prepare(harness, spec.tasks, root, text.written_with)
        return self._questions[wanted]

    def trainer(self, spec: RunSpec, text: Text) -> Trainer:
        """The trainer of a configuration, kept while runs of that configuration follow one another."""
        wanted = spec.config.model_dump_json() + json.dumps([text.corpus_sha256, text.tokenizer.sha256])
        if self._trainer is None or self._trainer[0] != wanted:
            trainer = Trainer(spec.config, text.split, text.tokenizer.size, device=self.device)
            self._trainer = (wanted, trainer)
        return self._trainer[1]
