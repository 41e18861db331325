"""The most memory that this process held at once, since a moment of our choosing.

On Linux the kernel keeps the highest resident size of a process (VmHWM) and forgets it when `5` is written to
/proc/self/clear_refs (proc(5)): the peak is then that of one run, and no moment between two samples is missed. It is
the size of the whole process: interpreter, libraries and whatever an earlier run left behind are in it, because a
machine must hold them too. Elsewhere only the peak since the process began can be had (getrusage(2)), which is an upper
bound for every run but the first; the record says which of the two it holds. Memory of an accelerator is not in it.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Since = Literal["run", "process"]

_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peak:
    """The high-water mark of this process' resident memory."""

    since: Since
    """Whether it is that of the run, or of the process since it began: then an upper bound for the run."""

    @classmethod
    def reset(cls) -> Peak:
        """Begin anew, where the system can."""
        try:
            _RESET.write_text("5")
        except OSError:
            return cls("process")
        return cls("run")

    def read_bytes(self) -> int:
        """Its value now."""
        if self.since == "run":
            line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
            return int(line.split()[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB
