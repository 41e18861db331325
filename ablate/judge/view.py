"""What the look that is due may see. The ledger says which looks were taken; the seeds of later looks stay unseen.

The due look is the first that was not taken. Two exceptions: a look that ended the study stays the last word, and a
look is reported again while no run of a later seed exists. That both saw the same evidence is an audit check.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ablate.judge.verdict import Check
from ablate.records.evidence import Evidence
from prereg.registry.ledger import SEALS, Entry
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
        runs=tuple(run for run in evidence.runs if (run.variant, run.seed) not in hidden),
        metrics=table[table["seed"].isin(seeds) | ~table["seed"].isin(elsewhere)],
        items=items,
    )


def check_looks(registration: Registration, evidence: Evidence, look: Look) -> tuple[Check, ...]:
    """Were the looks taken as registered: in order, none left out, each once, before later seeds were trained?

    `evidence` is all of it, not only what the look sees.
    """
    mine = [entry for entry in evidence.ledger if entry.registration == registration.sha256]
    taken = taken_looks(mine, registration.sha256)
    return (
        _check(
            "every look was taken in its turn",
            _out_of_turn(taken, look),
            "the registered looks one after another, none left out",
            severe=True,
        ),
        _check(
            "no look was taken twice on different evidence",
            _changed(registration, evidence, taken),
            "the evidence that each look saw, unchanged",
            severe=True,
        ),
        _check(
            "no seed was added after the verdict",
            _trained_between(registration, mine, after_end=True),
            "no run after the look that ended the study",
            severe=True,
        ),
        # Levels are spent as if the look had come in time, so the error rate holds; it is reported all the same.
        _check(
            "no seed was trained before the look it follows",
            _trained_between(registration, mine, after_end=False),
            "each look before the seeds that come after it",
            severe=False,
        ),
    )


def _out_of_turn(taken: tuple[Taken, ...], look: Look) -> list[str]:
    numbers = [one.number for one in taken]
    faults = [f"look {number} was left out" for number in range(1, look.number) if number not in numbers]
    faults += [f"look {b} was taken after look {a}" for a, b in pairwise(numbers) if b < a]
    faults += [f"look {number} is not registered" for number in numbers if not 1 <= number <= look.of]
    return faults


def _changed(registration: Registration, evidence: Evidence, taken: tuple[Taken, ...]) -> list[str]:
    study = registration.study
    looks = {look.number: look for look in looks_of(study)}
    return [
        f"look {number}"
        for number in dict.fromkeys(one.number for one in taken if one.number in looks)
        if {one.evidence for one in taken if one.number == number}
        != {restrict(evidence, study.seeds[: looks[number].n_seeds]).sha256}
    ]


def _trained_between(registration: Registration, mine: list[Entry], *, after_end: bool) -> list[str]:
    """Runs sealed out of their place: after the end, or before a look that should have come first."""
    study = registration.study
    looks = {look.number: look for look in looks_of(study)}
    place = {seed: at for at, seed in enumerate(study.seeds, start=1)}
    seen, ended, faults = 0, False, []
    for entry in mine:
        if entry.event == "looked":
            number = int(str(entry.body.get("look")))
            seen, ended = max(seen, number), ended or entry.body.get("final") is True
        elif entry.event in SEALS and (seed := cell_of(entry)[1]) in place:
            ahead = seen + 1 in looks and place[seed] > looks[seen + 1].n_seeds
            if (ended and place[seed] > looks[seen].n_seeds) if after_end else (ahead and not ended):
                faults.append(f"{entry.body.get('variant')} seed {seed}")
    return faults


def _check(name: str, faults: list[str], required: str, *, severe: bool) -> Check:
    shown = "; ".join(faults[:5]) + (f"; and {len(faults) - 5} more" if len(faults) > 5 else "")
    return Check(
        name=name,
        passed=not faults,
        severity="inadmissible" if severe else "deviation",
        found=f"{len(faults)}: {shown}" if faults else "none against it",
        required=required,
    )
