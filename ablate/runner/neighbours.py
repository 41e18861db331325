"""A run may write in its own folder only: the folders of runs that are not at work stay as they are.

takes the folders of all planned runs; gives the files that were added or changed in those of runs that nobody was
making; raises nothing. Files that are gone are another matter: a run whose record was removed is made again, on record.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prereg.registry.plan import Cell

LOCK = ".lock"
"""What the process that makes a run holds, in the run's folder."""

Files = dict[str, tuple[int, int, int]]
"""Name -> inode, size and time of last change."""


@dataclass
class Neighbours:
    """The folders of all runs of a plan, as they were when somebody last looked."""

    folders: Mapping[Cell, Path]
    known: dict[Cell, Files] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for cell in self.folders:
            self.settle(cell)

    def settle(self, cell: Cell) -> None:
        """This run has ended: its folder is to stay as it is now."""
        self.known[cell] = _files(self.folders[cell])

    def changed(self, at_work: Collection[Cell]) -> list[str]:
        """What was added or changed in folders of other runs than those at work, as ARM/SEED/FILE."""
        return [
            f"{cell[0]}/{cell[1]}/{name}"
            for cell, folder in self.folders.items()
            if cell not in at_work
            for name, found in _files(folder).items()
            if self.known[cell].get(name) != found
        ]


def _files(folder: Path) -> Files:
    """The files of a run's folder, and of the trainer's directory in it."""
    found: Files = {}
    for place, prefix in ((folder, ""), (folder / "work", "work/")):
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    # The lock says who makes the run, which may end after its record is sealed.
                    if entry.is_dir(follow_symlinks=False) or (not prefix and entry.name == LOCK):
                        continue
                    stat = entry.stat(follow_symlinks=False)
                    found[prefix + entry.name] = stat.st_ino, stat.st_size, stat.st_mtime_ns
        except OSError:
            continue
    return dict(sorted(found.items()))
