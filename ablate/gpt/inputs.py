"""Inputs of a run: its texts, tokenised and split, and its tasks.

Keyed by all that it depends on, so that a process that prepares several runs, and forks one after another, reads
nothing twice and no run finds what another configuration has left.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from ablate.data.baselines import kept_baselines
from ablate.data.batches import Split
from ablate.data.corpora import Library
from ablate.data.reading import Tokenizer, read_corpus
from ablate.data.repetition import repetition_in
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, FileTokenizer, StoredVocabulary
from ablate.evaluation.harness.evaluate import prepare_questions
from ablate.evaluation.harness.tasks import Questions
from ablate.evaluation.loss import classes_of
from ablate.records.run_record import CountedBaselines, Repetition
from prereg.errors import StudyError
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec


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


@dataclass(frozen=True)
class Inputs:
    """Texts and tasks of the runs of one project."""

    corpora: Path
    root: Path
    _texts: dict[str, Text] = field(default_factory=dict)
    _questions: dict[tuple[str, str, str], Questions] = field(default_factory=dict)

    @cached_property
    def library(self) -> Library:
        """The corpora."""
        return Library.of(self.corpora)

    def prepare(self, spec: RunSpec) -> None:
        """Read all that a run will ask for."""
        text = self.text(spec)
        self.questions(spec, text)
        self.repetition(spec)
        self.baselines(spec, text)

    def text(self, spec: RunSpec) -> Text:
        """The data of a run, checked against the registration's pins. Raises `StudyError` where it is another."""
        data, pinned = spec.config.data, spec.corpus.sha256
        # By content and pins: two variants that differ in the model alone read one text, and one that is pinned
        # otherwise never gets it.
        identity = json.dumps([data.model_dump(mode="json"), pinned, spec.tokenizer])
        if identity not in self._texts:
            reading = read_corpus(self.library, data, registered=spec.tokenizer)
            # The name must still mean the registered bytes. A corpus that was replaced after the registration ends
            # the run here, before its first step.
            if reading.manifest.sha256 != pinned:
                raise StudyError(
                    f"corpus '{data.corpus}' is not the one registered (sha256 {reading.manifest.sha256})",
                    required=f"sha256 {pinned}",
                )
            if spec.tokenizer is not None and reading.tokenizer.sha256 != spec.tokenizer:
                raise StudyError(
                    f"the tokenizer of '{spec.variant}' is not the one registered (sha256 {reading.tokenizer.sha256})",
                    required=f"sha256 {spec.tokenizer}",
                    fix="the version of the library `tokenizers` under which the study was registered; or the file",
                )
            self._texts[identity] = Text(reading.split, reading.tokenizer, pinned)
        text = self._texts[identity]
        # Outside the cache: two variants may read one text with different contexts.
        text.split.require(spec.config.model.context)
        return text

    def questions(self, spec: RunSpec, text: Text) -> Questions | None:
        """The zero- and few-shot tasks of a run; what is wrong with them is found before training."""
        harness = spec.measure.harness
        if harness is None:
            return None
        assert spec.tasks is not None, spec.run_id  # the registration pins whatever the study declares
        identity = (harness.model_dump_json(), spec.tasks.sha256, text.tokenizer.sha256)
        if identity not in self._questions:
            self._questions[identity] = prepare_questions(harness, spec.tasks, Root(self.root), text.written_with)
        return self._questions[identity]

    def repetition(self, spec: RunSpec) -> dict[str, Repetition]:
        """How much of the corpus of a run repeats itself, counted once a machine."""
        # A repetition that could not be counted is stated with its reason. It is a remark on the corpus, and stops no
        # run.
        data = spec.config.data
        counted = repetition_in(self.library, data.corpus, data.validation)
        if isinstance(counted, str):
            return {data.corpus: Repetition(not_measured=counted)}
        return {data.corpus: Repetition.model_validate(asdict(counted))}

    def baselines(self, spec: RunSpec, text: Text) -> CountedBaselines:
        """What a validation loss of a run is read next to, computed once a machine."""
        # Keyed by the bytes that were read, not by names; kept in the user's cache across studies.
        computed = kept_baselines(
            self.library.cache,
            {
                "corpora": text.corpus_sha256,
                "tokenizer": text.tokenizer.sha256,
                "validation": str(spec.config.data.validation),
            },
            text.split,
            text.tokenizer.size,
            corpus=spec.config.data.corpus,
            characters=isinstance(text.tokenizer, CharTokenizer),
        )
        return (
            CountedBaselines(not_computed=computed)
            if isinstance(computed, str)
            else CountedBaselines(**asdict(computed))
        )
