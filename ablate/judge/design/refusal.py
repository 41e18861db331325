"""Refusal to register: a design in which some verdict can never happen, or a needed claim has too little power.

With a witness, and before anything is registered, unless the user's reason for going on goes on record.
"""

from __future__ import annotations

from ablate.judge.design.characteristics import Design
from ablate.judge.stats.kinds import class_of_test
from prereg.errors import UndecidableDesignError, Where
from prereg.text import significant


def obstacle(design: Design) -> UndecidableDesignError | None:
    """What makes a design undecidable, with its witness and the least change that fixes it; none when nothing does.

    That a "supported" which the decision needs, or a verdict, can never happen, or that power is below its floor.
    """
    # The gravest first: a needed support that no data can give, a verdict that no data can reach, low power.
    for hypothesis in design.hypotheses:
        if hypothesis.needed and not hypothesis.can_be_supported:
            corrected = f" after {design.correct} over {hypothesis.family}" if design.correct != "none" else ""
            stopped = [verdict for verdict in design.adopting if verdict in design.unreachable]
            costs = f", so that {_quoted(stopped)} can never be the verdict" if stopped else ""
            return UndecidableDesignError(
                f"'{hypothesis.hypothesis}' can never be supported: the smallest p that "
                f"{class_of_test(design.test).words} gives with {hypothesis.n} seeds is "
                f"{hypothesis.attainable_support:.4g}{corrected}{costs}",
                required=f"a p that can reach alpha = {design.alpha:g}; the decision asks "
                f"supported({hypothesis.hypothesis})",
                fix=design.remedy,
                where=Where(field=("hypotheses", hypothesis.hypothesis)),
            )
    if not design.unreachable:
        return _too_weak(design)
    stuck = [
        row.hypothesis + (" can never be refuted" if row.can_be_supported else " can never be supported")
        for row in design.hypotheses
        if not (row.can_be_supported and row.can_be_refuted)
    ]
    return UndecidableDesignError(
        f"the verdict '{design.unreachable[0]}' can never be reached with {design.n_seeds} seeds: " + ", ".join(stuck),
        required="data that could lead to every verdict",
        fix=design.remedy or "more seeds, or test: paired_t",
        where=Where(field=("decision",)),
    )


def _too_weak(design: Design) -> UndecidableDesignError | None:
    """The needed claim with the least power, where that is below the floor."""
    needed = [hypothesis for hypothesis in design.hypotheses if hypothesis.needed and hypothesis.power is not None]
    weakest = min(needed, key=lambda hypothesis: hypothesis.power or 0.0, default=None)
    # Only the weakest is named: seeds that bring it to its power mostly bring the others there too.
    floor = design.power_floor
    if weakest is None or weakest.power is None or weakest.power >= floor:
        return None
    where = (
        "if there is no difference" if not weakest.effect else f"at a true effect of {significant(weakest.effect, 4)}"
    )
    more = f"a less noisy measure, or {'another' if weakest.effect else 'a larger'} smallest difference"
    if weakest.seeds_80 is not None:
        more = f"give {weakest.seeds_80} seeds, for power 80%"
    return UndecidableDesignError(
        f"'{weakest.hypothesis}' would be supported with a chance of {100 * weakest.power:.3g}% {where}, "
        f"with {weakest.n} seeds",
        required=f"power of {100 * floor:g}% or more (assume: power_floor) for a claim that the decision needs",
        fix=more,
        where=Where(field=("hypotheses", weakest.hypothesis)),
    )


def _quoted(verdicts: list[str]) -> str:
    return " or ".join(f"'{verdict}'" for verdict in verdicts)
