"""ablate: pre-registered, paired, honestly judged ablation studies.

The few names a notebook needs: `load`, `design`, `register`, `run` (with `RunOptions`), `peek`, `decide`, `report`.
Importing this package loads none of the heavy libraries; each function imports what it needs when it is called.
"""

from ablate.api import RunOptions, decide, design, load, peek, register, report, run

__all__ = ["RunOptions", "decide", "design", "load", "peek", "register", "report", "run"]
