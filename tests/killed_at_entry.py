"""The command line in a process of its own, killed next to an entry of the ledger.

    python killed_at_entry.py EVENT NUMBER WHEN WORD...

At the entry of that event and number, from 1, the process is killed by SIGKILL: `before` anything of it is written,
when half of its line is (`torn`), when all but the end of its line is (`unended`), or `after`. Without such an entry
the command ends as it does.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from ablate import cli
from prereg.registry import ledger
from prereg.registry.ledger import Ledger
from prereg.registry.ledger_entry import Entry

WHEN = ("before", "torn", "unended", "after")


def killed() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def main() -> None:
    event, number, when, *words = sys.argv[1:]
    assert when in WHEN, when
    append, write, seen = Ledger.append, ledger.write_from, 0  # type: ignore[attr-defined]

    def counted(self: Ledger, entry: Entry, *, durable: bool = True) -> Entry:
        nonlocal seen
        seen += entry.event == event
        due = entry.event == event and seen == int(number)
        if due and when == "before":
            killed()
        if due and when in ("torn", "unended"):
            ledger.write_from = partly  # type: ignore[assignment,attr-defined]
        placed = append(self, entry, durable=durable)
        if due:
            killed()
        return placed

    def partly(path: Path, position: int, data: bytes, *, durable: bool) -> None:
        write(path, position, data[: len(data) // 2] if when == "torn" else data[:-1], durable=durable)
        killed()

    Ledger.append = counted  # type: ignore[assignment,method-assign]
    sys.argv = ["ablate", *words]
    cli.main()


if __name__ == "__main__":
    main()
