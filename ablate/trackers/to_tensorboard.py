"""A mirror in TensorBoard: event files, written by TensorBoard's own writer, numbers in full precision.

DIR/STUDY-REGISTRATION/blind/MASK     health while the study is blind
DIR/STUDY-REGISTRATION/ARM/seedN      everything, after the decision; ablate.json names the outcome
DIR/STUDY-REGISTRATION/verdict        the verdict and the findings as text
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.trackers.target import Conclusion, Group, SealedRun, Target

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

MARKER = "ablate.json"


class TensorboardTracker:
    """A folder of event files for each run."""

    def __init__(self, target: Target, group: Group) -> None:
        self._base = Path(target.place).expanduser().resolve() / group.name
        self._open: dict[str, EventFileWriter] = {}

    def health(self, mask: str, step: int, values: Mapping[str, float]) -> None:
        if mask not in self._open:
            self._open[mask] = _writer(self._base / "blind" / mask)
        _numbers(self._open[mask], step, values, time.time())
        self._open[mask].flush()

    def ended(self, mask: str, state: str) -> None:
        if mask in self._open:
            self._open.pop(mask).close()

    def send(self, run: SealedRun) -> bool:
        place = self._base / run.variant / f"seed{run.seed}"
        marker = place / MARKER
        if marker.is_file() and json.loads(marker.read_bytes()).get("outcome_sha256") == run.outcome_sha256:
            return False
        with _replaced(place) as folder:
            writer = _writer(folder)
            for name, word in run.facts.items():
                _text(writer, name, word)
            for step, values in run.curves.items():
                _numbers(writer, step, values, run.ended_ms / 1000)
            writer.close()
            facts = {**run.facts, "status": run.status, "outcome_sha256": run.outcome_sha256}
            (folder / MARKER).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        return True

    def conclude(self, conclusion: Conclusion) -> None:
        with _replaced(self._base / "verdict") as folder:
            writer = _writer(folder)
            for name, word in {**conclusion.facts, "words": conclusion.words}.items():
                _text(writer, name, word)
            writer.close()
            (folder / MARKER).write_text(json.dumps(conclusion.facts, indent=2) + "\n", encoding="utf-8")

    def close(self) -> None:
        for mask in list(self._open):
            self._open.pop(mask).close()


@contextmanager
def _replaced(place: Path) -> Iterator[Path]:
    """A folder to be filled, which then takes the place of an earlier one. One that is not ours stays as it is."""
    if place.exists() and not (place / MARKER).is_file():
        raise FileExistsError(17, "a folder of this name is there that no mirror wrote", str(place))
    half = place.with_name(f".{place.name}.half")
    if half.exists():
        shutil.rmtree(half)
    half.mkdir(parents=True)
    yield half
    if place.exists():
        shutil.rmtree(place)
    half.rename(place)


def _writer(folder: Path) -> EventFileWriter:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return EventFileWriter(str(folder))


def _numbers(writer: EventFileWriter, step: int, values: Mapping[str, float], at: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_DOUBLE
    from tensorboard.plugins.scalar.metadata import create_summary_metadata

    kind = create_summary_metadata("", "")
    found = [
        Summary.Value(tag=name, metadata=kind, tensor=TensorProto(dtype=DT_DOUBLE, double_val=[value]))
        for name, value in values.items()
    ]
    writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=found)))


def _text(writer: EventFileWriter, name: str, word: str) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    text = TensorProto(dtype=DT_STRING, string_val=[word.encode()])
    value = Summary.Value(tag=name, metadata=create_summary_metadata("", ""), tensor=text)
    writer.add_event(Event(wall_time=0.0, step=0, summary=Summary(value=[value])))
