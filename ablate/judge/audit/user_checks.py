"""Checks that a study brings, executed: registered code only, over records, never over outcomes.

A check is a function of one argument, a copy of `Records`, that returns whether it held, or that and a text.

    returns True, or (True, text)      held
    returns False, or (False, text)    failed, with the consequence that was registered
    raises, or returns anything else   failed likewise; what happened is what was found
    takes longer than its `limit_s`    interrupted, and nothing is decided: a faster machine might pass it
    its source is not the registered   not executed, and no verdict, whatever its consequence

The very bytes that were hashed are executed, not a compiled copy. A check that cannot be interrupted (a loop inside a
library) counts as late when it ends: it runs in the user's own process. A text that changes from one call to the next
makes `ablate report` say that the evidence does not give the decision. What a check prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from ablate.judge.audit.checks import CheckResult, Found, check_body
from ablate.judge.verdict import OWN, Check
from ablate.records.evidence import Evidence
from ablate.records.run_record import RunRecord
from prereg.errors import EvidenceError, StudyError
from prereg.metrics.user_code import Overdue, at_most, loading, read_registered
from prereg.registry.registration import Registration
from prereg.study.measure import OwnCheck

_LONGEST: Final = 300


@dataclass(frozen=True)
class Records:
    """What a study's own check may look at."""

    metrics: pd.DataFrame
    """One row a number: variant, seed, step, metric, value. Sealed runs only."""
    runs: tuple[RunRecord, ...]
    """Every run's record: status, configuration, pairing, provenance, times."""
    planned: tuple[tuple[str, int], ...]
    """(variant, seed) of every planned run."""


def run_own_checks(registration: Registration, evidence: Evidence, folder: Path) -> tuple[Check, ...]:
    """Every check that the study brings; `folder` is the one that the study's file lies in.

    Raises `EvidenceError` when a check takes longer than its limit.
    """
    results = (_found(registration, own, evidence, folder) for own in registration.study.checks)
    return tuple(check for result in results for check in _own(result))


def not_run(checks: Iterable[OwnCheck]) -> tuple[Check, ...]:
    """The checks of a study that nobody could run: a promise that was not kept."""
    results = (CheckResult(name=OWN + own.name, passed=False, found="it was not run") for own in checks)
    return tuple(check for result in results for check in _own(result))


def quiet(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """The same without what own checks say: a look that settles nothing must show nothing of the arms."""
    return tuple(
        check.model_copy(update={"found": "held" if check.passed else "failed"})
        if check.name.startswith(OWN)
        else check
        for check in checks
    )


@check_body(OWN)
def _own(result: CheckResult) -> Found:
    return result


def _found(registration: Registration, own: OwnCheck, evidence: Evidence, folder: Path) -> CheckResult:
    try:
        path, source = read_registered(own, folder, registration.own_checks)
    except StudyError as error:
        return CheckResult(name=OWN + own.name, passed=False, found=f"it is not the registered code: {error.found}")
    texts = dict.fromkeys(("variant", "metric"), str)  # the table holds them as categories, and this code is not ours
    records = Records(metrics=evidence.metrics.astype(texts), runs=evidence.runs, planned=evidence.planned)
    passed, text = _call(own, path, source, records)
    required = f"what {own.entry_point} asks"
    return CheckResult((), text, passed=passed, severity=own.consequence, required=required, name=OWN + own.name)


def _call(own: OwnCheck, path: Path, source: bytes, records: Records) -> tuple[bool, str]:
    module, function = own.entry_point.split(":")
    try:
        # stdout is what a command prints for a machine to read.
        with contextlib.redirect_stdout(sys.stderr), loading(module, path, source) as load:
            # To load it may take as long as to call it.
            answer = at_most(own.limit_s, lambda: getattr(load(), function)(records))
    except Overdue:
        raise EvidenceError(
            f"the check {own.name} took longer than its limit of {own.limit_s:g} s, and was ended",
            required=f"an answer from {own.entry_point} within its limit_s; nothing is decided without it",
            fix=f"decide on a faster machine, or register a larger limit_s of {own.name}",
        ) from None
    except (Exception, SystemExit) as error:
        # Not swallowed: whatever a user's code raises is reported as the reason why its check failed.
        return False, _line(f"raised {type(error).__name__}: {error}")
    text = ""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], str):
        answer, text = answer
    if not isinstance(answer, bool | np.bool_):
        return False, f"returned {type(answer).__name__}, and a check returns a bool, or a bool and a text"
    return bool(answer), _line(text) or ("held" if answer else "failed")


def _line(text: str) -> str:
    """One line of plain text of bearable length."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
