"""Check that a run writes in its own folder only: the folders of runs that are not at work stay as they are.

takes the folders of all planned runs; gives the files that were added or changed in those of runs that nobody was
making; raises nothing. Files that are gone are another matter: a run whose record was removed is made again, on record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prereg.registry.plan import Cell

LOCK = ".lock"
"""What the process that makes a run holds, in the run's folder."""
_SHARE = 1 / 50
"""Of the time that looks at all folders may take: a plan of 1,000 runs of a moment would spend half of it on them."""

Files = dict[str, tuple[int, int, int]]
"""Name -> inode, size and time of last change."""


@dataclass
class Neighbours:
    """The folders of all runs of a plan, as they were when somebody last looked."""

    folders: Mapping[Cell, Path]
    known: dict[Cell, Files] = field(default_factory=dict)
    """The files of each run's folder when it was last settled."""
    _looked_at: float = 0.0
    _cost_s: float = 0.0

    def __post_init__(self) -> None:
        for cell in self.folders:
            self.settle(cell)

    def settle(self, cell: Cell) -> None:
        """This run has ended: its folder is to stay as it is now."""
        self.known[cell] = _files(self.folders[cell])

    def is_due(self, coming: Cell | None) -> bool:
        """Whether to look at all folders again: where the last look was long ago, or that of the run that is made next
        has changed, or none is."""
        if coming is None or time.monotonic() - self._looked_at > self._cost_s / _SHARE:
            return True
        return bool(self._changed_in(coming))

    def changed(self, at_work: Collection[Cell]) -> list[str]:
        """What was added or changed in folders of other runs than those at work, as ARM/SEED/FILE."""
        # Time of this thread and not of the clock: while others compute, a look takes longer and costs no more.
        begun = time.thread_time()
        names = [name for cell in self.folders if cell not in at_work for name in self._changed_in(cell)]
        self._looked_at, self._cost_s = time.monotonic(), time.thread_time() - begun
        return names

    def _changed_in(self, cell: Cell) -> list[str]:
        files, earlier = _files(self.folders[cell]), self.known[cell]
        if files == earlier:
            return []
        return [f"{cell[0]}/{cell[1]}/{name}" for name in sorted(files) if earlier.get(name) != files[name]]


def _files(folder: Path) -> Files:
    """The files of a run's folder, and of the trainer's directory in it."""
    # By inode, size and time, and not by content: hashing a thousand folders after each run would be most of the work.
    files: Files = {}
    for place, prefix in ((str(folder), ""), (f"{folder}/work", "work/")):
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    # The lock says who makes the run, which may end after its record is sealed.
                    if entry.is_dir(follow_symlinks=False) or (not prefix and entry.name == LOCK):
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    files[prefix + entry.name] = stat.st_ino, stat.st_size, stat.st_mtime_ns
        except FileNotFoundError:
            break  # in a folder that is not there, there is no other
        except OSError:
            continue
    return files
