"""From study file to report as plain functions: what the command line calls, and what a notebook calls.

A function's module is imported when the function is first used, and imports what it needs when it is called, so that
`ablate --help` stays fast. The clock enters here as an argument with a default and reaches only the dates of the ledger
and of records.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.api.clusters import run_on_ray as run_on_ray
    from ablate.api.clusters import submit as submit
    from ablate.api.context import StudyContext as StudyContext
    from ablate.api.context import check as check
    from ablate.api.context import load as load
    from ablate.api.context import open_study as open_study
    from ablate.api.context import pin_code as pin_code
    from ablate.api.context import published_beside as published_beside
    from ablate.api.context import require_pinned as require_pinned
    from ablate.api.context import require_registered as require_registered
    from ablate.api.context import utc_now as utc_now
    from ablate.api.creating import new as new
    from ablate.api.creating import templates as templates
    from ablate.api.deciding import decide as decide
    from ablate.api.deciding import report as report
    from ablate.api.deciding import results as results
    from ablate.api.early_looks import early_results as early_results
    from ablate.api.early_looks import record_look as record_look
    from ablate.api.exporting import export_model as export_model
    from ablate.api.exporting import report_index as report_index
    from ablate.api.judging import judge_frame as judge_frame
    from ablate.api.planning import plan_runs as plan_runs
    from ablate.api.planning import planned as planned
    from ablate.api.proof import bundle as bundle
    from ablate.api.proof import check_bundle as check_bundle
    from ablate.api.proof import report_bundle as report_bundle
    from ablate.api.proof import reproduce as reproduce
    from ablate.api.registering import amend as amend
    from ablate.api.registering import design as design
    from ablate.api.registering import export as export
    from ablate.api.registering import preview_amendment as preview_amendment
    from ablate.api.registering import register as register
    from ablate.api.registering import registrations as registrations
    from ablate.api.registering import save as save
    from ablate.api.running import Imported as Imported
    from ablate.api.running import import_runs as import_runs
    from ablate.api.running import mapping_template as mapping_template
    from ablate.api.running import run as run
    from ablate.api.running import write_manifest as write_manifest
    from ablate.api.training import train as train
    from ablate.api.trying import try_out as try_out
    from ablate.runner.options import RunOptions as RunOptions

_NAMES = {
    "ablate.api.clusters": "run_on_ray submit",
    "ablate.api.context": "StudyContext check load open_study "
    "pin_code published_beside require_pinned require_registered utc_now",
    "ablate.api.creating": "new templates",
    "ablate.api.deciding": "decide report results",
    "ablate.api.early_looks": "early_results record_look",
    "ablate.api.exporting": "export_model report_index",
    "ablate.api.judging": "judge_frame",
    "ablate.api.planning": "plan_runs planned",
    "ablate.api.proof": "bundle check_bundle report_bundle reproduce",
    "ablate.api.registering": "amend design export preview_amendment register registrations save",
    "ablate.api.running": "Imported import_runs mapping_template run write_manifest",
    "ablate.api.training": "train",
    "ablate.api.trying": "try_out",
    "ablate.runner.options": "RunOptions",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # for a type checker every other name is a mistake

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'ablate.api' has no attribute '{name}'")
        return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
