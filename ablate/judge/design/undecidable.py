"""Designs in which some verdict can never happen, or a needed claim has too little power, each with a witness.

What can never happen is found by floors of p and the rule's diagram; power comes from the simulated rule.

Such a design is refused before anything is registered, unless the user's reason for going on goes on record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.judge.design.reach import HypothesisDesign, floor_of, sides_of
from ablate.judge.design.simulate import verdicts_of
from ablate.judge.stats.estimate import words
from prereg.errors import HopelessDesignError, Where
from prereg.rule.condition import Outcome
from prereg.study.spec import Study

if TYPE_CHECKING:
    from ablate.judge.design.characteristics import Design


def require_possible(design: Design) -> None:
    """Refuse a design in which a needed "supported" or any verdict can never happen, or power is below its floor."""
    found = obstacle(design)
    if found is not None:
        raise found


def obstacle(design: Design) -> HopelessDesignError | None:
    """What makes a design hopeless, with its witness and the least change that fixes it; none when nothing does."""
    for hypothesis in design.hypotheses:
        if hypothesis.needed and not hypothesis.can_be_supported:
            corrected = f" after {design.correct} over {hypothesis.family}" if design.correct != "none" else ""
            stopped = [verdict for verdict in design.adopting if verdict in design.unreachable]
            costs = f", so that {_quoted(stopped)} can never be the verdict" if stopped else ""
            return HopelessDesignError(
                f"'{hypothesis.hypothesis}' can never be supported: the smallest p that {words(design.test)} gives "
                f"with {hypothesis.n} seeds is {hypothesis.attainable_support:.4g}{corrected}{costs}",
                required=f"a p that can reach alpha = {design.alpha:g}; the decision asks "
                f"supported({hypothesis.hypothesis})",
                fix=design.remedy,
                where=Where(field=("hypotheses", hypothesis.hypothesis)),
            )
    if not design.unreachable:
        return _too_weak(design)
    stuck = [
        one.hypothesis + (" can never be refuted" if one.can_be_supported else " can never be supported")
        for one in design.hypotheses
        if not (one.can_be_supported and one.can_be_refuted)
    ]
    return HopelessDesignError(
        f"the verdict '{design.unreachable[0]}' can never be reached with {design.n_seeds} seeds: " + ", ".join(stuck),
        required="data that could lead to every verdict",
        fix=design.remedy or "more seeds, or test: paired_t",
        where=Where(field=("decision",)),
    )


def _too_weak(design: Design) -> HopelessDesignError | None:
    """The needed claim with the least power, where that is below the floor."""
    known = [one for one in design.hypotheses if one.needed and one.power_at_smallest is not None]
    weakest = min(known, key=lambda one: one.power_at_smallest or 0.0, default=None)
    floor = design.power_floor
    if weakest is None or floor is None or weakest.power_at_smallest is None or weakest.power_at_smallest >= floor:
        return None
    where = "if there is no difference" if not weakest.effect else f"at a true effect of {weakest.effect:.4g}"
    more = "a less noisy measure, or a larger smallest difference"
    if weakest.seeds_80 is not None:
        more = f"give {weakest.seeds_80} seeds, for power 80%"
    return HopelessDesignError(
        f"'{weakest.hypothesis}' would be supported with a chance of {100 * weakest.power_at_smallest:.3g}% {where}, "
        f"with {weakest.n} seeds",
        required=f"power of {100 * floor:g}% or more (assume: power_floor) for a claim that the decision needs",
        fix=more,
        where=Where(field=("hypotheses", weakest.hypothesis)),
    )


def _quoted(verdicts: list[str]) -> str:
    return " or ".join(f"'{verdict}'" for verdict in verdicts)


def unreachable_verdicts(study: Study, hypotheses: tuple[HypothesisDesign, ...]) -> tuple[str, ...]:
    """Verdicts that remain out of reach when impossible outcomes are left out: exact, by the rule's diagram."""
    possible: dict[str, list[Outcome]] = {}
    for one in hypotheses:
        possible[one.hypothesis] = ["inconclusive"]
        possible[one.hypothesis] += ["supported"] if one.can_be_supported else []
        possible[one.hypothesis] += ["refuted"] if one.can_be_refuted else []
    reached = {study.decision[line - 1].verdict for line in study.rule.reached(possible)}
    return tuple(verdict for verdict in verdicts_of(study) if verdict not in reached)


def remedy_of(study: Study, hypotheses: tuple[HypothesisDesign, ...]) -> str:
    """The fewest seeds with which every needed claim can be supported, or another test."""
    stuck = [one for one in hypotheses if one.needed and not one.can_be_supported]
    if not stuck:
        return ""
    analysis = study.analysis
    for n in range(len(study.seeds) + 1, 31):
        floors = [floor_of(study, one.family, n, sides_of(study.claims[one.hypothesis].verb, 1.0)[0]) for one in stuck]
        if max(floors) <= analysis.alpha:
            return f"give {n} seeds, or test: paired_t"
    return "test: paired_t"
