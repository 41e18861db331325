"""What the look that is due may see. The ledger says which looks were taken; the seeds of later looks stay unseen.

The due look is the first that was not taken. Two exceptions: a look that ended the study stays the last word, and a
look is reported again while no run of a later seed exists. That both saw the same evidence is an audit check.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

from ablate.judge.audit.checks import AuditContext, Found, Result, check, named
from ablate.records.evidence import Evidence
from prereg.registry.ledger import SEALS
from prereg.registry.looks import Look, Taken, due_look, looks_of, taken_looks
from prereg.registry.plan import cell_of
from prereg.registry.registration import Registration


@dataclass(frozen=True)
class View:
    """The evidence of one look; of a fixed number of seeds, all of it and no look."""

    look: Look | None
    evidence: Evidence
    following: Look | None = None
    """The look after this one."""


def view(registration: Registration, evidence: Evidence) -> View:
    """The look that is due, and what it sees."""
    study = registration.study
    looks = looks_of(study)
    if not looks:
        return View(None, evidence)
    taken = taken_looks(evidence.ledger, registration.sha256)
    look = due_look(study, taken, {run.seed for run in evidence.runs})
    following = None if look.last else looks[look.number]
    return View(look, restrict(evidence, study.seeds[: look.n_seeds]), following)


def restrict(evidence: Evidence, seeds: tuple[int, ...]) -> Evidence:
    """The evidence without the planned runs of other seeds. What no plan names stays, for the audit to find."""
    hidden = {cell for cell in evidence.planned if cell[1] not in seeds}
    table, items = evidence.metrics, evidence.items
    elsewhere = {seed for _, seed in hidden}
    if items is not None:
        items = items[items["seed"].isin(seeds) | ~items["seed"].isin(elsewhere)]
    return replace(
        evidence,
        planned=tuple(cell for cell in evidence.planned if cell not in hidden),
        runs=tuple(run for run in evidence.runs if run.cell not in hidden),
        metrics=table[table["seed"].isin(seeds) | ~table["seed"].isin(elsewhere)],
        items=items,
    )


def _at_a_look(context: AuditContext) -> bool:
    return context.look is not None


def _taken(context: AuditContext) -> tuple[Taken, ...]:
    return taken_looks(context.entries, context.registration.sha256)


def _result(faults: list[str]) -> Result:
    more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
    return Result(passed=False, found=f"{len(faults)}: {'; '.join(faults[:5])}{more}") if faults else Result()


@check(
    "every look was taken in its turn",
    "inadmissible",
    looks_at="`looked` entries of a sequential study",
    why="levels are spent look by look",
    required="the registered looks one after another, none left out",
    applies=_at_a_look,
)
def _in_turn(context: AuditContext) -> Found:
    assert context.look is not None
    numbers = [one.number for one in _taken(context)]
    faults = [f"look {number} was left out" for number in range(1, context.look.number) if number not in numbers]
    faults += [f"look {b} was taken after look {a}" for a, b in pairwise(numbers) if b < a]
    faults += [f"look {number} is not registered" for number in numbers if not 1 <= number <= context.look.of]
    return _result(faults)


@check(
    "no look was taken twice on different evidence",
    "inadmissible",
    looks_at="the evidence that each look saw",
    why="a second look at other data is a look more",
    required="the evidence that each look saw, unchanged",
    applies=_at_a_look,
)
def _unchanged(context: AuditContext) -> Found:
    assert context.whole is not None
    seen: dict[int, set[str]] = defaultdict(set)
    for one in _taken(context):
        seen[one.number].add(one.evidence)
    sizes = {look.number: look.n_seeds for look in looks_of(context.study)}
    return _result(
        [
            f"look {number}"
            for number, found in seen.items()
            if number in sizes and found != {restrict(context.whole, context.study.seeds[: sizes[number]]).sha256}
        ]
    )


@check(
    "no seed was added after the verdict",
    "inadmissible",
    looks_at="runs sealed after the look that ended the study",
    why="seeds added after a verdict undo its error rate",
    required="no run after the look that ended the study",
    applies=_at_a_look,
)
def _added(context: AuditContext) -> Found:
    return _trained_between(context, after_end=True)


@check(
    "no seed was trained before the look it follows",
    "deviation",
    looks_at="runs sealed before their look",
    why="levels are spent as if the look had come in time",
    required="each look before the seeds that come after it",
    applies=_at_a_look,
)
def _early(context: AuditContext) -> Found:
    return _trained_between(context, after_end=False)


def _trained_between(context: AuditContext, *, after_end: bool) -> Result:
    """Runs sealed out of their place: after the end, or before a look that should have come first."""
    looks = {look.number: look for look in looks_of(context.study)}
    place = {seed: at for at, seed in enumerate(context.study.seeds, start=1)}
    seen, ended, faults = 0, False, []
    for entry in context.entries:
        if entry.event == "looked":
            number = int(str(entry.body.get("look")))
            seen, ended = max(seen, number), ended or entry.body.get("final") is True
        elif entry.event in SEALS and (seed := cell_of(entry)[1]) in place:
            ahead = seen + 1 in looks and place[seed] > looks[seen + 1].n_seeds
            if (ended and place[seed] > looks[seen].n_seeds) if after_end else (ahead and not ended):
                faults.append(named(cell_of(entry)))
    return _result(faults)
