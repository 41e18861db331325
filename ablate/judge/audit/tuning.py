"""Checks of tuned settings: chosen by the registered rule, and frozen before any run that is judged."""

from __future__ import annotations

from functools import partial

from ablate.judge.audit.checks import AuditContext, CheckResult, Found, check_body, named
from prereg.registry.ledger_entry import FailedEntry, RunStartedEntry, SealEntry, TunedEntry
from prereg.study.designs.tune import Choice, choose


def _is_tuned(context: AuditContext) -> bool:
    return context.study.tune is not None


_check = partial(check_body, applies=_is_tuned)


def choices_of(context: AuditContext) -> tuple[Choice, ...]:
    """What the pilot's sealed values choose, derived again; nothing while they are not to be read."""
    tune = context.study.tune
    if tune is None or context.evidence.withheld:
        return ()
    return choose(context.study, context.evidence.final(tune.choose_by))


_NOT_YET = "the pilot has not ended, and its choice is not made yet"


@_check("the settings are those that the pilot chose")
def _chosen(context: AuditContext) -> Found:
    logged = [entry.chosen for entry in context.of(TunedEntry)]
    if not logged:
        return CheckResult(found=_NOT_YET) if context.evidence.missing else ["no entry holds a choice"]
    if context.evidence.withheld:
        return CheckResult(passed=True, found="not derived while planned runs are missing")
    # From the sealed values, by the registered rule: the entry is a claim, and this is its proof.
    derived = {choice.arm: choice.setting for choice in choices_of(context)}
    wrong = [f"the ledger has {frozen}, the pilot's values give {derived}" for frozen in logged if frozen != derived]
    return CheckResult(wrong, f"{len(derived)} arms tuned by {len(context.study.pilots)} pilot arms")


@_check("the settings were frozen before the runs that are judged")
def _frozen_before(context: AuditContext) -> Found:
    """Pilot runs sealed after the choice that rests on them, and judged runs begun before the last choice."""
    study = context.study
    made: dict[str, int] = {}
    for entry in context.of(TunedEntry):
        for arm in entry.chosen:
            made.setdefault(arm, entry.index)
    if not made:
        begun = any(entry.variant in study.arms for entry in context.of(RunStartedEntry, SealEntry, FailedEntry))
        return CheckResult(found=_NOT_YET) if context.evidence.missing and not begun else ["no entry holds a choice"]
    sealed = {entry.cell: entry.index for entry in reversed(context.of(SealEntry))}
    late = [
        f"{named(cell)} was sealed after it"
        for cell, at in sealed.items()
        if cell[0] in study.pilots and at > made.get(study.pilots[cell[0]].of, at)
    ]
    # Any judged run that began before the last choice could have moved it.
    last = max(made.values())
    early = {entry.cell for entry in context.of(RunStartedEntry, SealEntry, FailedEntry) if entry.index < last}
    return [*late, *(f"{named(cell)} was begun before it" for cell in sorted(early) if cell[0] in study.arms)]


@_check("no chosen setting lies at the edge of those tried")
def _inside(context: AuditContext) -> Found:
    return [
        f"{choice.arm} at {field} = {choice.setting[field]}"
        for choice in choices_of(context)
        for field in choice.at_edge
    ]
