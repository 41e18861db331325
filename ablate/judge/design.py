"""Operating characteristics before data: what the registered rule can find, how often it errs, what never happens.

The chances of every verdict come from `ablate.judge.simulate`; power in closed form is a paired t's and says so.
What no data could produce is found here by the floors of p, and refused before anything is registered.
"""

from __future__ import annotations

from itertools import product
from math import sqrt

from ablate.judge import power
from ablate.judge.estimate import p_floor, words
from ablate.judge.nulls import require_known_methods
from ablate.judge.procedure import Side
from ablate.judge.simulate import Scenario, affordable, arm_means, simulate, truths, verdicts_of
from prereg.claim import Verb
from prereg.condition import parse_condition, questions
from prereg.errors import HopelessDesignError, Where
from prereg.part import Part
from prereg.spec import Study, Test

_KIND: dict[Verb, power.Kind] = {
    "lowers": "towards",
    "raises": "towards",
    "changes": "either",
    "does_not_worsen": "margin",
    "does_not_change": "equivalence",
}
_MOST_CASES = 20_000
"""Up to so many combinations of outcomes are tried to see which verdicts remain."""


class HypothesisDesign(Part):
    """What can become of one hypothesis with the registered number of seeds."""

    hypothesis: str
    """Its name."""
    claim: str
    """The claim."""
    role: str
    """Its role."""
    family: int
    """Hypotheses corrected together."""
    n: int
    """Pairs, one a seed."""
    attainable_support: float
    """Smallest p for support that any data can give, at the first step of the correction."""
    attainable_refute: float | None
    """The same for refutation; none when the claim cannot be refuted at all."""
    can_be_supported: bool
    """Whether any data can support it."""
    can_be_refuted: bool
    """Whether any data can refute it."""
    needed: bool
    """Whether the decision asks supported() of it."""
    detectable_sd: float
    """Power .80 at the uncorrected level, paired t: the effect (for does_not claims: the margin) in SDs of the
    differences."""
    detectable_sd_corrected: float
    """The same at the level of the first step of the correction."""
    sd_difference: float | None
    """SD of the per-seed differences that `assume` implies; none without it."""
    detectable: float | None
    """`detectable_sd_corrected` on the claim's scale."""
    power_at_smallest: float | None
    """Power at the corrected level when the truth is `smallest` (does_not claims: no difference)."""
    seeds_80: int | None
    """Seeds for power .80 at `smallest`, corrected; none without `assume`, at smallest 0, or beyond reach."""
    seeds_90: int | None
    """Seeds for power .90."""


class Design(Part):
    """The operating characteristics of a study."""

    study: str
    """The study's id."""
    test: Test
    """The deciding test."""
    alpha: float
    """Level of each family."""
    correct: str
    """The correction."""
    n_seeds: int
    """Seeds."""
    n_runs: int
    """Runs."""
    cost_s: float | None
    """Seconds for all runs, one after another, when `assume` gives the time of one."""
    hypotheses: tuple[HypothesisDesign, ...]
    """In the order of the study."""
    scenarios: tuple[Scenario, ...]
    """Simulated truths."""
    unreachable: tuple[str, ...]
    """Verdicts that no data could produce."""
    remedy: str
    """The smallest change after which every needed "supported" can happen; empty when all can."""
    notes: tuple[str, ...]
    """What these numbers rest on."""


def design(study: Study, *, n_sims: int = 2_000, seed: int = 0) -> Design:
    """Plan a study with the functions that will judge it."""
    require_known_methods(study)
    n = len(study.seeds)
    hypotheses = tuple(_hypothesis(study, name) for name in study.hypotheses)
    lacking = sorted({claim.metric for claim in study.claims.values()} - set(study.assume.metrics))
    drawn = min(n_sims, affordable(study.analysis.test, n))
    scenarios, notes = [], _notes(study, lacking)
    for index, (name, wanted) in enumerate(truths(study, assumed=not lacking)):
        means = arm_means(study, wanted)
        if means is None:
            notes.append(f"'{name}' is not simulated: the claims cannot all be so at once")
            continue
        scenarios.append(simulate(study, name, wanted, means=means, n_sims=drawn, seed=[seed, index]))
    return Design(
        study=study.study,
        test=study.analysis.test,
        alpha=study.analysis.alpha,
        correct=study.analysis.correct,
        n_seeds=n,
        n_runs=n * len(study.arms),
        cost_s=None if (each := study.assume.seconds_per_run) is None else each * n * len(study.arms),
        hypotheses=hypotheses,
        scenarios=tuple(scenarios),
        unreachable=_unreachable(study, hypotheses),
        remedy=_remedy(study, hypotheses),
        notes=tuple(notes),
    )


def require_possible(design: Design) -> None:
    """Refuse a design in which a needed "supported", or a whole verdict, can never happen."""
    for hypothesis in design.hypotheses:
        if hypothesis.needed and not hypothesis.can_be_supported:
            corrected = f" after {design.correct} over {hypothesis.family}" if design.correct != "none" else ""
            raise HopelessDesignError(
                f"'{hypothesis.hypothesis}' can never be supported: the smallest p that {words(design.test)} gives "
                f"with {hypothesis.n} seeds is {hypothesis.attainable_support:.4g}{corrected}",
                required=f"a p that can reach alpha = {design.alpha:g}; the decision asks "
                f"supported({hypothesis.hypothesis})",
                fix=design.remedy,
                where=Where(field=("hypotheses", hypothesis.hypothesis)),
            )
    if design.unreachable:
        stuck = [
            one.hypothesis + (" can never be refuted" if one.can_be_supported else " can never be supported")
            for one in design.hypotheses
            if not (one.can_be_supported and one.can_be_refuted)
        ]
        raise HopelessDesignError(
            f"the verdict '{design.unreachable[0]}' can never be reached with {design.n_seeds} seeds: "
            + ", ".join(stuck),
            required="data that could lead to every verdict",
            fix=design.remedy or "more seeds, or test: paired_t",
            where=Where(field=("decision",)),
        )


def _hypothesis(study: Study, name: str) -> HypothesisDesign:
    hypothesis, claim, analysis = study.hypotheses[name], study.claims[name], study.analysis
    n, family = len(study.seeds), len(study.family(hypothesis.role))
    steps = family if analysis.correct == "holm" else 1
    level, kind = analysis.alpha / steps, _KIND[claim.verb]
    support, refute = _sides(claim.verb, hypothesis.smallest)
    floors = [None if side is None else min(1.0, steps * p_floor(analysis.test, n, side)) for side in (support, refute)]
    assert floors[0] is not None, name
    size = power.detectable(kind, n, level)
    sd = _sd_difference(study, name)
    relative = hypothesis.smallest / sd if sd is not None and hypothesis.smallest > 0 else None
    return HypothesisDesign(
        hypothesis=name,
        claim=hypothesis.claim,
        role=hypothesis.role,
        family=family,
        n=n,
        attainable_support=floors[0],
        attainable_refute=floors[1],
        can_be_supported=floors[0] <= analysis.alpha,
        can_be_refuted=floors[1] is not None and floors[1] <= analysis.alpha,
        needed=name in _asked_to_be_supported(study),
        detectable_sd=power.detectable(kind, n, analysis.alpha),
        detectable_sd_corrected=size,
        sd_difference=sd,
        detectable=None if sd is None else size * sd,
        power_at_smallest=None if relative is None else min(1.0, power.power(kind, relative, n, level)),
        seeds_80=None if relative is None else power.seeds_for(kind, relative, level, 0.8),
        seeds_90=None if relative is None else power.seeds_for(kind, relative, level, 0.9),
    )


def _sides(verb: Verb, smallest: float) -> tuple[Side, Side | None]:
    """Which kind of test supports and which refutes, for the floors of p."""
    if verb in ("lowers", "raises"):
        return "two", "less"
    if verb == "changes":
        return "two", "less" if smallest > 0 else None
    return "less", "two"


def _sd_difference(study: Study, name: str) -> float | None:
    """SD of a contrast: with equal SDs and correlations, Var = sd^2 (1 - r) sum(w^2), because the weights sum to 0."""
    claim = study.claims[name]
    belief = study.assume.metrics.get(claim.metric)
    if belief is None:
        return None
    return belief.sd * sqrt((1.0 - belief.correlation) * sum(weight**2 for weight in claim.weights.values()))


def _asked_to_be_supported(study: Study) -> set[str]:
    return {
        question.name
        for line in study.decision
        if line.when is not None
        for question in questions(parse_condition(line.when))
        if question.asked == "supported"
    }


def _unreachable(study: Study, hypotheses: tuple[HypothesisDesign, ...]) -> tuple[str, ...]:
    """Verdicts that remain out of reach when impossible outcomes are left out."""
    possible = [[True, False]] * len(study.arms)
    names = [one.hypothesis for one in hypotheses]
    outcomes = [
        [
            outcome
            for outcome, can in (
                ("supported", one.can_be_supported),
                ("refuted", one.can_be_refuted),
                ("inconclusive", True),
            )
            if can
        ]
        for one in hypotheses
    ]
    cases = 2.0 ** len(study.arms)
    for choices in outcomes:
        cases *= len(choices)
    if cases > _MOST_CASES or all(one.can_be_supported and one.can_be_refuted for one in hypotheses):
        return ()  # nothing is ruled out that the rule's own proof allowed, or too much to try
    reached = {
        study.rule.decide(
            dict(zip(names, case, strict=True)),  # type: ignore[arg-type]
            dict(zip(study.arms, stable, strict=True)),
        ).verdict
        for case in product(*outcomes)
        for stable in product(*possible)
    }
    return tuple(verdict for verdict in verdicts_of(study) if verdict not in reached)


def _remedy(study: Study, hypotheses: tuple[HypothesisDesign, ...]) -> str:
    """The fewest seeds with which every needed claim can be supported, or another test."""
    stuck = [one for one in hypotheses if one.needed and not one.can_be_supported]
    if not stuck:
        return ""
    analysis = study.analysis
    for n in range(len(study.seeds) + 1, 31):
        floors = [
            p_floor(analysis.test, n, _sides(study.claims[one.hypothesis].verb, 1.0)[0])
            * (one.family if analysis.correct == "holm" else 1)
            for one in stuck
        ]
        if max(floors) <= analysis.alpha:
            return f"give {n} seeds, or test: paired_t"
    return "test: paired_t"


def _notes(study: Study, lacking: list[str]) -> list[str]:
    notes = [
        "normal differences, metrics independent of each other, every run stable",
        "detectable sizes, power and seeds are those of a paired t"
        + ("" if study.analysis.test == "paired_t" else f"; the chances are those of {study.analysis.test}"),
    ]
    if lacking:
        notes.append(
            "without assumed SDs no power can be given in the metric's unit, and only 'no effect anywhere' is "
            "simulated, with SDs of 1, where margins mean nothing; write assume: {metrics: {"
            + ", ".join(f"{metric}: {{sd: SD, correlation: R}}" for metric in lacking)
            + "}}"
        )
    return notes
