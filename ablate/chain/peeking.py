"""A look at an unfinished study, on record: the ledger takes the entry before anything is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.chain.case import Clock, open_case, require_registered, utc_now

if TYPE_CHECKING:
    from ablate.judge.glimpse import Glimpse
    from prereg.ledger import Entry


@dataclass(frozen=True)
class Peeked:
    """What was seen, and the entry that says so."""

    glimpse: Glimpse
    entry: Entry


def peek(path: str | Path, *, reason: str, root: Path | None = None, now: Clock = utc_now) -> Peeked:
    """Log a look at the runs that have ended, then describe them. Refused where a registered way to look is open."""
    from ablate.judge.glimpse import glimpse
    from ablate.judge.view import view
    from ablate.records.gather import gather
    from prereg.errors import EvidenceError
    from prereg.ledger import Ledger

    case = open_case(Path(path), root)
    registration = require_registered(case)
    if not reason.strip():
        raise EvidenceError(
            "a look without a reason",
            required="why the numbers are needed before the last run has ended, in words",
            fix=f'ablate peek {case.path} --reason "..."',
        )
    evidence = gather(case.root, registration)
    due = view(registration, evidence)
    if not due.evidence.missing:
        what = (
            "every planned run has ended" if due.look is None else f"{due.look.words} is due, and its runs have ended"
        )
        raise EvidenceError(
            f"there is nothing to peek at: {what}",
            required="a study whose runs have not all ended",
            fix=f"ablate decide {case.path}",
        )
    if evidence.broken or evidence.ledger_faults:
        raise EvidenceError(
            f"what lies on disk is not what was sealed: {[*evidence.broken, *evidence.ledger_faults][0]}",
            required="sealed records as they were written",
            fix=f"ablate verify {case.path}",
        )
    ended = len(evidence.planned) - len(evidence.missing)
    if not ended:
        raise EvidenceError(
            f"none of the {len(evidence.planned)} planned runs of '{case.study.study}' has ended",
            required="at least one run that has ended",
            fix=f"ablate status {case.path}",
        )
    # First the entry, then the numbers: a look that a crash kept from being logged would be a free one.
    entry = Ledger(case.root.ledger).append(
        "peeked",
        study=case.study.study,
        registration=registration.sha256,
        body={
            "reason": reason.strip(),
            "ended": ended,
            "planned": len(evidence.planned),
            "evidence": evidence.sha256,
        },
        at=now(),
    )
    return Peeked(glimpse(registration, evidence), entry)
