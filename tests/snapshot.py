"""Texts kept under tests/snapshots/: compared with what is printed now, and rewritten with UPDATE_SNAPSHOTS=1."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"


def assert_snapshot(name: str, text: str) -> None:
    """Compare a text with its file, trailing spaces left out."""
    path = FOLDER / name
    now = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == now, f"{path.name}: read it, then UPDATE_SNAPSHOTS=1"
