"""Live metrics of a run that is being made, read forgivingly: for display and for divergence, never for judging."""

from __future__ import annotations

import csv
import json
import math
import os
from pathlib import Path

from ablate.records.rows import CURVE, csv_records, own_layout, own_rows_of
from prereg.study.command import MetricsFile

_GLANCE_BYTES = 64 * 2**10
"""Of the beginning and of the end of a file: a look every half second must not cost more as the file grows."""


class Glance:
    """The end of a metrics file that is being written: its last step, and how its training loss goes."""

    def __init__(self, path: Path, layout: MetricsFile) -> None:
        self.path, self.layout = path, own_layout(layout)
        self.header: list[str] = []
        self.step = 0
        self.first: float | None = None
        self.last: float | None = None
        self.worst: float | None = None

    def look(self) -> None:
        """Read the last whole lines; of a file that is not there yet, or cannot be read, nothing."""
        try:
            with self.path.open("rb") as stream:
                if self.first is None:
                    self._take(stream.read(_GLANCE_BYTES))
                # The first line may begin in the middle, and the last one end there: `_take` skips what is no record.
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - _GLANCE_BYTES))
                self._take(stream.read(_GLANCE_BYTES))
        except OSError:
            return

    def _take(self, data: bytes) -> None:
        for line in data.split(b"\n")[:-1]:  # the last piece is empty, or a line still being written
            try:
                rows = own_rows_of(self._object(line), self.layout)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            for row in rows:
                self.step = row.step
            for value in (row.value for row in rows if row.metric == CURVE):
                self.first = value if self.first is None else self.first
                self.last = value
                # A loss that is not finite stays the worst: no comparison with it holds.
                self.worst = value if self.worst is None or value > self.worst or math.isnan(value) else self.worst

    def _object(self, line: bytes) -> dict[str, object]:
        if self.path.suffix != ".csv":
            return dict(json.loads(line))
        cells = next(csv.reader([line.decode()]))
        self.header = self.header or cells  # the first line of a file of CSV names its columns
        ((_, record),) = csv_records(self.header, [(1, cells)], self.layout, own=True)
        return record

    @property
    def falling(self) -> bool | None:
        """Whether the training loss is below where it began; none before that is known."""
        return None if self.first is None or self.last is None else self.last < self.first

    def looks_diverged(self, above: float | None) -> bool:
        """Whether some training loss calls for a closer look."""
        if self.first is None or self.worst is None:
            return False
        # A suspicion alone: `process._has_diverged` applies the registered rule to the whole file.
        if not math.isfinite(self.worst):
            return True
        return above is not None and self.first > 0 and self.worst > above * self.first
