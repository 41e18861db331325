"""ablate: pre-registered, paired, honestly judged ablation studies.

What a notebook needs: `Study` (`from_yaml`, `to_yaml`), `load`, `design`, `register`, `run` (with `RunOptions`),
`status`, `early_results` (a look, logged first), `decide`, `results` (the last decision again), `report`, `StudyError`,
and `judge_frame` for a table of results. A study is the path of its file, a `Study`, or a mapping. What a training
script needs: `config`, `log`, `must_match`, `seed`. Importing this package loads none of the heavy libraries; each
function imports what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ablate.client import config, log, must_match, seed
from prereg.errors import StudyError

if TYPE_CHECKING:
    from ablate.api import RunOptions, decide, design, early_results, judge_frame, load, register, report, results, run
    from ablate.api.status import status
    from prereg.study.spec import Study

__all__ = [
    "RunOptions",
    "Study",
    "StudyError",
    "config",
    "decide",
    "design",
    "early_results",
    "judge_frame",
    "load",
    "log",
    "must_match",
    "register",
    "report",
    "results",
    "run",
    "seed",
    "status",
]


if not TYPE_CHECKING:  # for a type checker every other name is a mistake

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'ablate' has no attribute '{name}'")
        home = {"Study": "prereg.study.spec", "status": "ablate.api.status"}.get(name, "ablate.api")
        return globals().setdefault(name, getattr(import_module(home), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
