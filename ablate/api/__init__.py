"""From study file to report as plain functions: what the command line calls, and what a notebook calls.

Each function imports what it needs when it is called, so that `ablate --help` stays fast. The clock enters
here as an argument with a default and reaches only the dates of the ledger and of records.
"""

from ablate.api.clusters import run_on_ray, submit
from ablate.api.context import (
    StudyContext,
    check,
    load,
    open_study,
    pin_code,
    published_beside,
    require_pinned,
    require_registered,
    utc_now,
)
from ablate.api.creating import new, templates
from ablate.api.deciding import decide, report, results
from ablate.api.exporting import export_model, report_index
from ablate.api.judging import judge_frame
from ablate.api.peeking import peek, record_look
from ablate.api.planning import find_vocabulary, plan_at_scale, plan_runs
from ablate.api.proof import bundle, check_bundle, report_bundle, reproduce
from ablate.api.registering import (
    amend,
    design,
    export,
    preview_amendment,
    register,
    registrations,
    save,
)
from ablate.api.running import Imported, import_runs, mapping_template, run, write_manifest
from ablate.api.trying import try_out
from ablate.runner.options import RunOptions

__all__ = [
    "Imported",
    "RunOptions",
    "StudyContext",
    "amend",
    "bundle",
    "check",
    "check_bundle",
    "decide",
    "design",
    "export",
    "export_model",
    "find_vocabulary",
    "import_runs",
    "judge_frame",
    "load",
    "mapping_template",
    "new",
    "open_study",
    "peek",
    "pin_code",
    "plan_at_scale",
    "plan_runs",
    "preview_amendment",
    "published_beside",
    "record_look",
    "register",
    "registrations",
    "report",
    "report_bundle",
    "report_index",
    "reproduce",
    "require_pinned",
    "require_registered",
    "results",
    "run",
    "run_on_ray",
    "save",
    "submit",
    "templates",
    "try_out",
    "utc_now",
    "write_manifest",
]
