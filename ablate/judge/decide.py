"""Verdict of a registered study (`decide`): audit first, then findings, then the registered rule.

The only module that gives one.

    runs missing, no other fault -> unfinished, and no contrast is computed: nothing is shown early
    runs missing, and a fault    -> inadmissible, and no contrast either
    the ledger is damaged        -> the same: a look that cannot be logged is not given
    complete, an audit failure   -> inadmissible, findings shown, no verdict
    another library's numbers    -> the same (`ablate.judge.recompute`)
      differ from ours
    another verdict is possible  -> the same (`ablate.judge.audit.sensitivity`)
      with lost pairs at worst,
      or runs begun again
    the verdict rests on what an -> the same (`ablate.judge.audit.sensitivity`)
      amendment made exploratory
    complete, a deviation        -> the rule's verdict, with a status that says so
    complete and clean           -> the rule's verdict

A sequential study is judged at its registered looks (`ablate.judge.interim`), and each sees its own seeds only. A look
that is not the last gives a verdict when the line that holds is not `inconclusive` and rests on something found: with
every outcome inconclusive, another line would hold. So neither futility nor the stability of a few runs ends a study. A
study that was registered so (`if_identical: stop`) also ends where all runs of each seed recorded the same values.
Otherwise the answer is "continue", and no contrast is shown: nobody can be tempted by what has not been decided.

The same evidence under the same registration gives the same bytes: no clock, no path, and random numbers that
derive from the registration.
"""

from __future__ import annotations

import numpy as np
from pydantic import JsonValue

from ablate.judge.audit.audit import admissible, audit
from ablate.judge.audit.checks import AuditContext
from ablate.judge.audit.headroom import check_headroom
from ablate.judge.audit.history import retried_runs
from ablate.judge.audit.retried import worst_cases
from ablate.judge.audit.sensitivity import arms_that_lost, doubts, mark, spread_to_claims
from ablate.judge.audit.stability import judge_stability
from ablate.judge.findings import arm_summaries, judge_study
from ablate.judge.interim import LookView, stops_as_identical, view
from ablate.judge.judge import UNDECIDED
from ablate.judge.readings import final_values
from ablate.judge.recompute import check_numbers, recompute
from ablate.judge.verdict import Check, Decision, Finding, Stability, Status
from ablate.records.evidence import Evidence
from prereg.registry.amendments import affected, amendments_of
from prereg.registry.looks import Look
from prereg.registry.registration import Registration
from prereg.rule.rule import Ruling
from prereg.study.spec import Study


def decide(registration: Registration, evidence: Evidence) -> Decision:
    """The decision of a registered study on its evidence.

    Parameters
    ----------
    registration : Registration
        What was promised. Nothing else says which test, level or rule holds.
    evidence : Evidence
        The runs, and the ledger that they are in (`ablate.records.gather`).

    Returns
    -------
    Decision, with a verdict or with the reason why there is none: see the table above. The same evidence gives the
    same bytes.
    """
    # Audit: what is due to be judged, and whether it is what was promised.
    study = registration.study
    look_view = view(registration, evidence)
    context = AuditContext(registration, look_view.evidence, look_view.look, whole=evidence)
    look, evidence = context.look, context.evidence
    checks = audit(context)
    if evidence.missing or evidence.ledger_faults:
        # What cannot be logged is not shown either: a look that leaves no trace would be a free one.
        assert not admissible(checks), checks
        because_not = _incomplete(evidence, look) if evidence.missing else _not_as_promised(checks)
        # A run that the ledger sealed and that is not here was made once: that is damage, and not a run still to make.
        to_make = bool(evidence.missing) and not any(cell in context.seals for cell in evidence.missing)
        waiting = to_make and admissible(check for check in checks if check.name not in WAITING)
        return _decision(context, checks, because_not, unfinished=waiting)
    early = look is not None and not look.last
    if early and not admissible(checks):
        return _decision(context, checks, _not_as_promised(checks))
    # Findings: from here on only the study and numbers.
    values, items = final_values(study, evidence), evidence.items
    stability = judge_stability(study, evidence)
    diverged = [run.cell for run in context.ended if run.status == "diverged"]
    stable = {arm.variant: arm.stable for arm in stability}
    judged = judge_study(
        study,
        values,
        arms_that_lost(study, diverged),
        np.array([[stable[arm] for arm in study.arms]]),
        look=look,
        items=items,
    )
    checks += check_numbers(recompute(study, judged.findings, look))
    amended = spread_to_claims(judged.judgement, affected(study, amendments_of(evidence.ledger)))
    findings = mark(judged.findings, amended)
    described = checks + check_headroom(context)
    if not admissible(checks):
        return _decision(context, described, _not_as_promised(checks), findings=findings, stability=stability)
    # The rule, and whether its verdict stands whatever became of what is in doubt.
    ruling = study.rule.decide({finding.hypothesis: finding.outcome for finding in findings}, stable)
    retried = retried_runs(context)
    worst = worst_cases(study, values, retried, look=look, items=items) if retried else None
    doubt = doubts(judged.judgement, ruling.verdict, affected=amended, diverged=diverged, retried=retried, worst=worst)
    # What an amendment touched, or lost pairs, cannot end a study early either; only the last look says that it would.
    identical = stops_as_identical(context)
    if early and not (doubt.hold and (judged.judgement.ends_the_study()[0] or identical)):
        return _decision(context, checks, _continues(look_view))
    checks = described + doubt.checks
    if not doubt.hold:
        because_not = doubt.because or _not_as_promised(checks)
        return _decision(context, checks, because_not, findings=findings, stability=stability)
    reason = because(study, ruling) + ("" if look is None else f" Decided at {look.words}.")
    if early and identical:
        reason += _IDENTICAL
    return _decision(context, checks, reason, findings=findings, stability=stability, ruling=ruling)


WAITING = ("every planned run is present", "no run failed")
"""Checks that fail only because runs are still to be made, or made again: such a study is unfinished."""


_IDENTICAL = (
    " All runs of each seed recorded the same values to the bit, timings aside, and the study was registered to end at "
    "the first look at which that is so: no run is missing."
)


def because(study: Study, ruling: Ruling) -> str:
    """Why this verdict, in a sentence."""
    when = study.decision[ruling.line - 1].when
    if when is None:
        reason = f"No earlier line of the decision rule holds; line {ruling.line} holds in every other case."
    else:
        reason = f"Line {ruling.line} of the decision rule is the first that holds: {' '.join(when.split())}."
    if ruling.also:
        lines = ", ".join(f"{line} ({study.decision[line - 1].verdict})" for line in ruling.also)
        reason += f" Later lines that hold too: {lines}."
    return reason


def _continues(look_view: LookView) -> str:
    assert look_view.look is not None and look_view.following is not None, look_view.look
    return (
        f"{look_view.look.words.capitalize()}, has settled nothing at its level. This is not final, and no contrast is "
        f"shown. Next look at {look_view.following.n_seeds} seeds."
    )


def _incomplete(evidence: Evidence, look: Look | None) -> str:
    total, ended = len(evidence.planned), len(evidence.planned) - len(evidence.missing)
    text = f"{ended} of {total} planned runs have ended"
    if look is not None:
        text = f"{look.words.capitalize()}, needs {total} runs, and {ended} have ended"
    return f"{text}; nothing is judged, and nothing is shown, before all have."


def _not_as_promised(checks: tuple[Check, ...]) -> str:
    failed = [check for check in checks if not check.passed and check.severity == "inadmissible"]
    listed = "; ".join(f"{check.name} ({check.found})" for check in failed)
    return f"The evidence is not what was promised. Failed: {listed}."


def _decision(
    context: AuditContext,
    checks: tuple[Check, ...],
    because: str,
    *,
    findings: tuple[Finding, ...] = (),
    stability: tuple[Stability, ...] = (),
    ruling: Ruling | None = None,
    unfinished: bool = False,
) -> Decision:
    study = context.study
    # The rule's verdict keeps its words; what deviated is said by the status. "inconclusive" has no such second form.
    deviates = any(not check.passed and check.severity == "deviation" for check in checks)
    status: Status = "decided_with_deviations" if deviates else "decided"
    if ruling is None:
        status = "unfinished" if unfinished else "continue" if admissible(checks) else "inadmissible"
    elif ruling.verdict == UNDECIDED:
        status = UNDECIDED
    return Decision(
        format=1,
        study=study.study,
        title=context.registration.worded.title,
        registration=context.registration.sha256,
        status=status,
        verdict=None if ruling is None else ruling.verdict,
        line=None if ruling is None else ruling.line,
        because=because,
        findings=findings,
        stability=stability,
        checks=checks,
        tie_breakers=_tie_breakers(study, context.evidence, ruling),
        evidence=context.evidence.sha256,
        look=context.look,
    )


def _tie_breakers(study: Study, evidence: Evidence, ruling: Ruling | None) -> dict[str, JsonValue]:
    """Means of the registered tie-breaking metrics by arm, where a later line that holds would have given another
    verdict: shown, never decisive. What decides between two arms is a claim."""
    if ruling is None or all(study.decision[line - 1].verdict == ruling.verdict for line in ruling.also):
        return {}
    means: dict[str, JsonValue] = {}
    for metric in study.tie_breakers:
        mean_by_arm: dict[str, JsonValue] = dict.fromkeys(study.arms)
        mean_by_arm |= {arm.arm: arm.mean for arm in arm_summaries(study.arms, evidence.final(metric), study.seeds)}
        means[metric] = mean_by_arm
    return means
