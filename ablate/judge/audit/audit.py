"""Is the evidence what was promised? Asked before any inference, and answered with every check, passed ones too.

A failed check of severity `inadmissible` means that no verdict is given; a `deviation` is listed next to the verdict;
a `note` is a remark. Nothing here looks at a metric's value. Here is only the order; what is asked stands in
`ledger_checks`, `run_checks`, `provenance_checks`, and of pairs, limits, tasks and items in modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from ablate.judge.audit.checks import none_against
from ablate.judge.audit.history import check_after_decision, check_elsewhere, check_removed, check_times
from ablate.judge.audit.item_scores import check_items
from ablate.judge.audit.ledger import (
    check_amendments,
    check_bound_to_ledger,
    check_bound_to_promise,
    check_design,
    check_intact,
    check_looks,
    check_made_here,
    check_registered_first,
    check_reported,
    check_trained_once,
)
from ablate.judge.audit.runs import (
    check_built_in,
    check_ceiling,
    check_command,
    check_configuration,
    check_divergence,
    check_failed,
    check_measured,
    check_planned,
    check_present,
    check_provenance,
    check_starts,
)
from ablate.judge.audit.tasks import check_asked
from ablate.judge.verdict import Check
from ablate.records.evidence import Evidence
from prereg.registry.registration import Registration


def audit(registration: Registration, evidence: Evidence) -> tuple[Check, ...]:
    """Every check of the evidence, in the order in which a reader would ask."""
    study = registration.study
    ended = [run for run in evidence.runs if run.status in ("done", "diverged")]
    return (
        check_registered_first(registration, evidence.ledger),
        check_intact(evidence.ledger, evidence.ledger_faults),
        *check_amendments(study, evidence.ledger),
        *check_design(registration),
        check_looks(registration, evidence),
        *check_after_decision(registration, evidence.ledger),
        *check_elsewhere(registration, evidence),
        *check_times(registration, evidence),
        check_present(evidence),
        check_failed(evidence),
        none_against("every seal matches", evidence.broken, "files whose sha256 is the one in their run.json"),
        check_bound_to_ledger(registration, evidence, ended),
        check_planned(evidence),
        check_bound_to_promise(registration, evidence),
        *check_made_here(registration, evidence),
        check_configuration(study, evidence),
        *(check_built_in(registration, ended) if study.trainer == "gpt" else check_command(registration, ended)),
        *check_provenance(ended, stated=study.trainer == "gpt"),
        *check_starts(registration, evidence),
        *check_removed(registration, evidence.ledger),
        check_trained_once(registration, evidence.ledger),
        *check_reported(registration, evidence.ledger),
        *(() if evidence.withheld else check_measured(study, evidence)),
        *check_asked(registration, ended),
        *(() if evidence.withheld else check_items(study, evidence)),
        *check_divergence(study, ended),
        *check_ceiling(study, evidence),
    )


def admissible(checks: Iterable[Check]) -> bool:
    """Whether a verdict may be given."""
    return all(check.passed or check.severity != "inadmissible" for check in checks)
