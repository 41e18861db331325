"""ablate: pre-registered, paired, honestly judged ablation studies; the Python API, one function for each verb.

What a notebook needs: `Study` (`from_yaml`, `to_yaml`), `load`, `design`, `register`, `run` (with `RunOptions`),
`status`, `early_results` (a look, logged first), `decide`, `results` (the last decision again), `report`, `gate` (two
commits compared), `propose` (a change of a campaign's best), `confirm` (that best against the start), `StudyError`, and
`judge_frame` for a table of results, in memory or in a file.
A study is the path of its file, a `Study`, or a mapping. What a training script needs: `config`, `log`, `must_match`,
`seed`. Importing this package loads none of the heavy libraries; each function imports what it needs.

To add a function: in the module of `ablate/` whose subject it is, its name in three lists here (for type checkers, for
`__getattr__`, and `__all__`), an example in its docstring, which tests/docs/test_docstring_examples.py runs, and its
command in `ablate.cli`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ablate.client import config, fingerprint, log, must_match, seed
from prereg.errors import StudyError

if TYPE_CHECKING:
    from ablate.checking import check as check
    from ablate.confirming import confirm as confirm
    from ablate.creating import new as new
    from ablate.creating import templates as templates
    from ablate.deciding import decide as decide
    from ablate.deciding import report as report
    from ablate.deciding import results as results
    from ablate.early_looks import early_results as early_results
    from ablate.early_looks import record_look as record_look
    from ablate.exporting import export_model as export_model
    from ablate.exporting import report_index as report_index
    from ablate.frame import judge_frame as judge_frame
    from ablate.gating import gate as gate
    from ablate.planning import plan_runs as plan_runs
    from ablate.proposing import propose as propose
    from ablate.proving import bundle as bundle
    from ablate.proving import reproduce as reproduce
    from ablate.proving import verify as verify
    from ablate.registering import amend as amend
    from ablate.registering import design as design
    from ablate.registering import export as export
    from ablate.registering import register as register
    from ablate.runner.options import RunOptions as RunOptions
    from ablate.running import import_runs as import_runs
    from ablate.running import mapping_template as mapping_template
    from ablate.running import plan_commands as plan_commands
    from ablate.running import run as run
    from ablate.study_status import status as status
    from ablate.training import train as train
    from ablate.trying import try_out as try_out
    from ablate.workspace import Workspace as Workspace
    from ablate.workspace import load as load
    from prereg.study.spec import Study as Study

_NAMES = {
    "ablate.checking": "check",
    "ablate.confirming": "confirm",
    "ablate.creating": "new templates",
    "ablate.deciding": "decide report results",
    "ablate.early_looks": "early_results record_look",
    "ablate.exporting": "export_model report_index",
    "ablate.frame": "judge_frame",
    "ablate.gating": "gate",
    "ablate.study_status": "status",
    "ablate.planning": "plan_runs",
    "ablate.proposing": "propose",
    "ablate.proving": "bundle reproduce verify",
    "ablate.registering": "amend design export register",
    "ablate.runner.options": "RunOptions",
    "ablate.running": "import_runs mapping_template plan_commands run",
    "ablate.training": "train",
    "ablate.trying": "try_out",
    "ablate.workspace": "Workspace load",
    "prereg.study.spec": "Study",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
# No module of this folder may have the name of a function: importing it would put it in the function's place.
__all__ = [
    "RunOptions",
    "Study",
    "StudyError",
    "Workspace",
    "amend",
    "bundle",
    "check",
    "config",
    "confirm",
    "decide",
    "design",
    "early_results",
    "export_model",
    "fingerprint",
    "gate",
    "import_runs",
    "judge_frame",
    "load",
    "log",
    "must_match",
    "new",
    "plan_runs",
    "propose",
    "register",
    "report",
    "reproduce",
    "results",
    "run",
    "seed",
    "status",
    "train",
    "try_out",
]


if not TYPE_CHECKING:  # for a type checker every other name is a mistake

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'ablate' has no attribute '{name}'")
        return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
