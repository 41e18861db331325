"""Looks of a sequential study: what the due one may see, and their checks; which is due: `prereg/registry/looks.py`.

The ledger says which looks were taken; the seeds of later looks stay unseen.

The due look is the first that was not taken. Two exceptions: a look that ended the study stays the last word, and a
look is reported again while no run of a later seed exists. That both saw the same evidence is an audit check.

`early_look` is no such look: it describes the runs of an unfinished study, once the ledger holds that somebody looked
(`ablate.early_looks`). No test, no interval, no p: what a look without a registered level could say about chance
would be wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ablate.judge.audit.checks import AuditContext, Found, check_body, named
from ablate.judge.findings import Values, arm_summaries, contrast
from ablate.judge.readings import final_values
from ablate.judge.stats.significance_tests import sd_of
from ablate.judge.verdict import ArmSummary
from ablate.records.evidence import Evidence
from ablate.records.outcome import is_repeatable
from prereg.frozen import FrozenModel
from prereg.registry.ledger_entry import LookedEntry, SealEntry
from prereg.registry.looks import Look, due_look, looks_of, taken_looks
from prereg.registry.registration import Registration
from prereg.study.analysis import Looks
from prereg.study.presentation import NO_LABELS, Labels
from prereg.study.spec import Study


@dataclass(frozen=True)
class LookView:
    """The evidence of one look; of a fixed number of seeds, all of it and no look."""

    look: Look | None
    evidence: Evidence
    following: Look | None = None
    """The look after this one."""


def view(registration: Registration, evidence: Evidence) -> LookView:
    """The look that is due, and what it sees."""
    study = registration.study
    look = due_look(registration, evidence.ledger, {run.seed for run in evidence.runs})
    if look is None:
        return LookView(None, evidence)
    following = None if look.last else looks_of(study)[look.number]
    return LookView(look, restrict(evidence, study.seeds[: look.n_seeds]), following)


def restrict(evidence: Evidence, seeds: tuple[int, ...]) -> Evidence:
    """The evidence without the planned runs of other seeds. What no plan names stays, for the audit to find."""
    # By seed: the looks of a sequential study are numbers of seeds, and all arms of a seed are seen together.
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


def stops_as_identical(context: AuditContext) -> bool:
    """Return true at a look of a study that ends where all runs of each seed recorded the same values, if they did."""
    stopping = context.study.stopping
    if context.look is None or not isinstance(stopping, Looks) or stopping.if_identical != "stop":
        return False
    seeds = context.study.seeds[: context.look.n_seeds]
    return all_identical(context.study, context.seals.values(), seeds)


def all_identical(study: Study, seals: Iterable[SealEntry], seeds: Sequence[int]) -> bool:
    """Return true where the runs of all arms ended and recorded the same values to the bit, on each of these seeds.

    Never of a study that claims something of a timing, which the hash of an outcome leaves out.
    """
    if not all(is_repeatable(claim.metric) for claim in study.claims.values()):
        return False
    # By the hashes of the outcomes, which the audit has compared with the values themselves.
    outcomes: dict[int, dict[str, str]] = {seed: {} for seed in seeds}
    for seal in seals:
        if seal.seed in outcomes and seal.variant in study.arms and seal.status == "done":
            outcomes[seal.seed][seal.variant] = seal.outcome_sha256
    return all({*by_arm} == {*study.arms} and len({*by_arm.values()}) == 1 for by_arm in outcomes.values())


def _at_a_look(context: AuditContext) -> bool:
    return context.look is not None


def _taken(context: AuditContext) -> tuple[LookedEntry, ...]:
    return taken_looks(context.entries, context.registration.lineage)


@check_body("every look was taken in its turn", applies=_at_a_look)
def _in_turn(context: AuditContext) -> Found:
    assert context.look is not None
    # Three faults: a look that was skipped, looks out of order, and looks that nobody registered.
    numbers = [entry.look for entry in _taken(context)]
    faults = [f"look {number} was left out" for number in range(1, context.look.number) if number not in numbers]
    faults += [f"look {b} was taken after look {a}" for a, b in pairwise(numbers) if b < a]
    faults += [f"look {number} is not registered" for number in numbers if not 1 <= number <= context.look.of]
    return faults


@check_body("no look was taken twice on different evidence", applies=_at_a_look)
def _unchanged(context: AuditContext) -> Found:
    assert context.whole is not None
    evidence_by_look: dict[int, set[str]] = defaultdict(set)
    for entry in _taken(context):
        evidence_by_look[entry.look].add(entry.evidence)
    sizes = {look.number: look.n_seeds for look in looks_of(context.study)}
    return [
        f"look {number}"
        for number, hashes in evidence_by_look.items()
        # Every entry of the look against the evidence as it is now: a run that was made again would show as
        # another hash.
        if number in sizes and hashes != {restrict(context.whole, context.study.seeds[: sizes[number]]).sha256}
    ]


@check_body("no seed was added after the verdict", applies=_at_a_look)
def _added(context: AuditContext) -> Found:
    return _trained_between(context, after_end=True)


@check_body("no seed was trained before the look it follows", applies=_at_a_look)
def _early(context: AuditContext) -> Found:
    return _trained_between(context, after_end=False)


def _trained_between(context: AuditContext, *, after_end: bool) -> list[str]:
    """Runs sealed out of their place: after the end, or before a look that should have come first."""
    # The ledger's order against that of the registered looks, seed by seed.
    looks = {look.number: look for look in looks_of(context.study)}
    place = {seed: at for at, seed in enumerate(context.study.seeds, start=1)}
    last_look, ended, faults = 0, False, []
    for entry in context.entries:
        if isinstance(entry, LookedEntry):
            last_look, ended = max(last_look, entry.look), ended or entry.final
        elif isinstance(entry, SealEntry) and entry.seed in place:
            # A seed of a later look than the next one: its runs were made before the looks that decide whether they
            # are made.
            nth = place[entry.seed]
            ahead = last_look + 1 in looks and nth > looks[last_look + 1].n_seeds
            if (ended and nth > looks[last_look].n_seeds) if after_end else (ahead and not ended):
                faults.append(named(entry.cell))
    return faults


class ClaimSoFar(FrozenModel):
    """One claim's values among the runs that have ended."""

    hypothesis: str
    """Its name."""
    claim: str
    """The claim, as registered."""
    reading: str
    """What is read, and where on the curve."""
    unit: str
    """Unit of the difference."""
    arms: tuple[ArmSummary, ...]
    """The claim's arms, each over the seeds that have ended, on the metric's own scale."""
    n: int
    """Complete pairs that have a number on both sides; without pairs, runs of all arms."""
    difference: float | None
    """Mean of left minus right over them, or of arm means where there are no pairs; none without a pair."""
    sd: float | None
    """Their standard deviation; none below two pairs."""
    note: str = ""
    """Why there is no difference."""


class EarlyLook(FrozenModel):
    """What an unfinished study holds so far."""

    study: str
    """The study's id."""
    registration: str
    """sha256 of the registration."""
    ended: int
    """Planned runs that have ended."""
    planned: int
    """Planned runs."""
    diverged: tuple[str, ...]
    """Runs that diverged."""
    claims: tuple[ClaimSoFar, ...]
    """Every hypothesis, in the order of the study."""
    paired: bool = True
    """Whether differences are of runs of one seed."""
    labels: Labels = NO_LABELS
    """What people call arms and metrics."""


def early_look(registration: Registration, evidence: Evidence) -> EarlyLook:
    """Describe the runs that have ended."""
    study = registration.study
    values = final_values(study, evidence)
    return EarlyLook(
        study=study.study,
        registration=registration.sha256,
        ended=len(evidence.planned) - len(evidence.missing),
        planned=len(evidence.planned),
        diverged=tuple(f"{run.variant}, seed {run.seed}" for run in evidence.runs if run.status == "diverged"),
        claims=tuple(_so_far(study, name, values) for name in study.hypotheses),
        paired=study.paired,
        labels=study.labels,
    )


def _so_far(study: Study, name: str, values: Values) -> ClaimSoFar:
    claim = study.claims[name]
    # One pair is too few to test and enough to be seen.
    pairs = contrast(study, name, values, fewest=1)
    differences = pairs.differences
    n, difference = int(differences.size), float(differences.mean()) if differences.size else None
    if pairs.samples:
        n = sum(sample.values.size for sample in pairs.samples)
        difference = float(sum(sample.weight * sample.values.mean() for sample in pairs.samples))
    return ClaimSoFar(
        hypothesis=name,
        claim=study.hypotheses[name].claim,
        reading=pairs.reading,
        unit=study.unit(name),
        arms=arm_summaries(claim.named, pairs.values, study.seeds),
        n=n,
        difference=difference,
        sd=sd_of(differences) if differences.size > 1 else None,
        note=pairs.refused or "",
    )
