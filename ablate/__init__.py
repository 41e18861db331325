"""ablate: pre-registered, paired, honestly judged ablation studies.

The few names a notebook needs: `load`, `design`, `register`, `run` (with `RunOptions`), `peek`, `decide`, `report`, and
`judge_frame` for a table of results; and those that a training script needs: `config`, `log`, `must_match`, `seed`.
Importing this package loads none of the heavy libraries; each function imports what it needs when it is called.
"""

from ablate.api import RunOptions, decide, design, judge_frame, load, peek, register, report, run
from ablate.client import config, log, must_match, seed

__all__ = [
    "RunOptions",
    "config",
    "decide",
    "design",
    "judge_frame",
    "load",
    "log",
    "must_match",
    "peek",
    "register",
    "report",
    "run",
    "seed",
]
