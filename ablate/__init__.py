"""ablate: pre-registered, paired, honestly judged ablation studies.

The few names a notebook needs: `load`, `design`, `register`, `run` (with `RunOptions`), `peek`, `decide`, `report`; and
those that a training script needs: `log`, `seed`, `config`.
Importing this package loads none of the heavy libraries; each function imports what it needs when it is called.
"""

from ablate.api import RunOptions, decide, design, load, peek, register, report, run
from ablate.client import config, log, seed

__all__ = ["RunOptions", "config", "decide", "design", "load", "log", "peek", "register", "report", "run", "seed"]
