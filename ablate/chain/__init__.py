"""The chain from study file to report, as plain functions: what the verbs call, and what a notebook calls.

Each function imports its room when it is called, so that `ablate --help` stays fast. The clock enters
here as an argument with a default and goes no further in than the ledger's and records' dates.
"""

from ablate.chain.bundling import bundle, check_bundle
from ablate.chain.case import (
    Case,
    check,
    find_vocabulary,
    load,
    open_case,
    pin,
    pin_code,
    pin_corpus,
    published_beside,
    require_pinned,
    require_registered,
    utc_now,
)
from ablate.chain.deciding import Decided, decide, report
from ablate.chain.importing import Imported, bring
from ablate.chain.peeking import Peeked, peek, record_look
from ablate.chain.planning import PlannedRuns, plan_at_scale, plan_runs
from ablate.chain.promising import accepted, amend, characterise, design, preflight, register, registrations
from ablate.chain.reproducing import reproduce
from ablate.chain.running import Ran, look_to_run_up_to, run
from ablate.chain.telling import Document, export, save

__all__ = [
    "Case",
    "Decided",
    "Document",
    "Imported",
    "Peeked",
    "PlannedRuns",
    "Ran",
    "accepted",
    "amend",
    "bring",
    "bundle",
    "characterise",
    "check",
    "check_bundle",
    "decide",
    "design",
    "export",
    "find_vocabulary",
    "load",
    "look_to_run_up_to",
    "open_case",
    "peek",
    "pin",
    "pin_code",
    "pin_corpus",
    "plan_at_scale",
    "plan_runs",
    "preflight",
    "published_beside",
    "record_look",
    "register",
    "registrations",
    "report",
    "reproduce",
    "require_pinned",
    "require_registered",
    "run",
    "save",
    "utc_now",
]
