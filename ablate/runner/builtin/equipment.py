"""What a process keeps from one run to the next: texts, tasks, the trainer, the other ranks of a spread run.

Imports, corpora and the model object are paid for once a process. What is kept is keyed by all that it depends on,
so that no run finds anything that another configuration has left.

The worker is the first rank of a spread run. The others are its children and read orders on their standard input, one
JSON object a line; when the worker is gone, however it went, that input ends and they end with it, as the worker ends
with its scheduler. When one of them is killed, the worker goes too, even out of a collective operation that would wait
for ever: its scheduler sees the worker die, and has the run resumed from its checkpoint, a bounded number of times. One
that ends by an error of its own leaves the worker the time to meet the same error and record it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ablate.data.batches import Split
from ablate.data.corpora import Library
from ablate.data.reading import Tokenizer, read
from ablate.data.repetition import repetition_in
from ablate.data.tokenizers import BpeTokenizer, CharTokenizer, StoredVocabulary
from ablate.evaluation.harness.evaluate import prepare
from ablate.evaluation.harness.tasks import Questions
from ablate.evaluation.loss import classes_of
from ablate.records.run_record import Repetition
from ablate.runner.messages import Message
from ablate.runner.placement import Spread
from ablate.training.device import CPU, device_name
from ablate.training.distributed import ALONE, Ranks, join, meeting_at, part
from ablate.training.kernels.backends import Paths, choose_paths
from ablate.training.kernels.library import cache_folder
from ablate.training.trainer import Trainer
from prereg.errors import StudyError
from prereg.registry import disk
from prereg.registry.paths import Root
from prereg.registry.plan import RunSpec
from prereg.registry.registration import reading_sha256

PATIENCE_S = 10.0
LOST_A_RANK = 4
"""Exit status of a worker that has lost one of its ranks."""


class RankGroup:
    """The other ranks of this process' runs, from one run to the next."""

    def __init__(self, spread: Spread, corpora: Path, lost: Callable[[str], None] | None = None) -> None:
        """Start them and meet them. `lost` is called, from a thread, with what became of one that was not to end."""
        self._lost = lost if lost is not None else _end_this_process
        self._ending = False
        self._meeting = disk.make("ranks")  # nobody else may write there
        place = self._meeting / "ranks"
        self.others = [self._start() for _ in range(1, spread.devices)]
        for rank, other in enumerate(self.others, start=1):
            threading.Thread(target=self._watch, args=(rank, other), daemon=True).start()
            self._say(
                other,
                {
                    "do": "join",
                    "rank": rank,
                    "size": spread.devices,
                    "shard": spread.shard,
                    "place": str(place),
                    "corpora": str(corpora),
                },
            )
        store = meeting_at(place, spread.devices)
        self.ranks: Ranks = join(spread.shard, 0, spread.devices, store=store, send=self.send)

    def send(self, order: str, words: tuple[str | int, ...] = ()) -> None:
        """One order to all of them. One that has just died is noticed by its watcher."""
        for other in self.others:
            self._say(other, {"do": order, "words": list(words)})

    def killed(self, within_s: float = 1.0) -> bool:
        """Whether one was killed; a collective operation may break a moment before that can be seen."""
        for other in self.others:
            with suppress(subprocess.TimeoutExpired):
                if other.wait(within_s / len(self.others)) < 0:
                    return True
        return False

    def end(self) -> None:
        """End them all and leave them."""
        self._ending = True
        for other in self.others:
            self._say(other, {"do": "end"})
            with suppress(OSError):
                assert other.stdin is not None
                other.stdin.close()
        for other in self.others:
            try:
                other.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                other.kill()
                other.wait()
        part()
        disk.remove(self._meeting)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ablate.runner.builtin.rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def _say(self, other: subprocess.Popen[str], order: dict[str, object]) -> None:
        assert other.stdin is not None
        with suppress(OSError):
            other.stdin.write(json.dumps(order) + "\n")
            other.stdin.flush()

    def _watch(self, rank: int, other: subprocess.Popen[str]) -> None:
        status = other.wait()
        if status >= 0:
            time.sleep(PATIENCE_S)
        if not self._ending:
            self._lost(f"rank {rank} of a run died (exit {status})")


def _end_this_process(why: str) -> None:
    """No record is touched: the run stays as its last checkpoint left it."""
    print(why, file=sys.stderr, flush=True)
    disk.remove_all()
    os._exit(LOST_A_RANK)


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


THREADS = 1
"""Threads of one run: a study's own parallelism is used before a run's."""
CHECKPOINT_EVERY_S = 20.0


class Equipment:
    """Everything that a run is given by its process, and everything that stops it.

    `deadly` ends the process where code of the study's own cannot be stopped.
    """

    def __init__(
        self,
        corpora: Path,
        say: Callable[[Message], None],
        stop: threading.Event,
        study_folder: Path = Path(),
        *,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
        spread: Spread | None = None,
        device: str = CPU,
        root: Path | None = None,
        deadly: bool = False,
    ) -> None:
        self.deadly = deadly
        self.study_folder = study_folder
        self.corpora = corpora
        self.library = Library.of(corpora)
        self.root = Root(root if root is not None else corpora.parent.parent)
        self.say = say
        self.stop = stop
        self.checkpoint_every_s = checkpoint_every_s
        self.spread = spread if spread is not None else Spread()
        self.rank_group: RankGroup | None = None
        self.device = device
        self.device_name = device_name(device)
        self._texts: dict[str, Text] = {}
        self._trainer: tuple[str, Trainer] | None = None
        self._questions: dict[tuple[str, str, str], Questions] = {}

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
            if paths.lacking:
                self.say(Message(event="note", text=f"{paths.lacking}; torch's operators are used"))
            ranks = self._ranks(spec, paths)
            trainer = Trainer(spec.config, text.split, text.tokenizer.size, paths, ranks, device=self.device)
            self._trainer = (wanted, trainer)
        return self._trainer[1]

    def end(self) -> None:
        """Leave the other ranks, where there are any. After an error nobody knows where they stand."""
        self._trainer = None
        if self.rank_group is not None:
            self.rank_group.end()
            self.rank_group = None

    def _ranks(self, spec: RunSpec, paths: Paths) -> Ranks:
        if self.spread.devices == 1:
            return ALONE
        if self.rank_group is None:
            self.rank_group = RankGroup(self.spread, self.corpora)
        self.rank_group.send("run", (spec.model_dump_json(), json.dumps(asdict(paths))))
        return self.rank_group.ranks
