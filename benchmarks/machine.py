"""Where the repository is, and what was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]


def machine() -> dict[str, str | int]:
    """What it was measured on."""
    from ablate.records.provenance import collect

    made = collect(threads=1)
    return {
        "processor": made.processor,
        "cores": os.cpu_count() or 0,
        "torch": made.torch,
        "python": made.python,
        "system": platform.system(),
    }
