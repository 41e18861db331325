"""Reach of one hypothesis with the registered number of seeds: floors of p, power, seeds needed, unreachable verdicts.

The floors are those of the registered test after the first step of the correction: below them no data can go. Power,
the detectable difference and the seeds needed come from the registered rule itself, simulated with every other claim
true (`Planning`), so that they are the chances of what will run: with Holm's later steps, the registered test, its
looks, and with findings that are refuted because they are too small to matter. Without a scale nothing can be
simulated, and sizes in SDs of the differences are those of a paired t at the first step's level.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, hypot, sqrt

from ablate.judge.design.assumptions import Beliefs
from ablate.judge.design.effects import contrast_sd, distance
from ablate.judge.stats import t_power
from ablate.judge.stats.kinds import class_of_test
from ablate.judge.stats.multiplicity import adjusted
from ablate.judge.stats.null_hypotheses import NullHypothesis, is_gated, nulls_in, support_levels
from ablate.judge.stats.significance_tests import Side
from ablate.judge.stats.unpaired import proportional, welch_df
from prereg.frozen import FrozenModel
from prereg.rule.condition import Outcome
from prereg.study.spec import Study


class HypothesisDesign(FrozenModel):
    """What can become of one hypothesis with the registered number of seeds."""

    hypothesis: str
    """Its name."""
    claim: str
    """The claim."""
    role: str
    """Its role."""
    family: int
    """Hypotheses corrected together for support."""
    n: int
    """Pairs, one a seed; without pairs, runs of the arm that has most."""
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
    """Power .80 at the uncorrected level, paired t against zero (margin claims: a margin, or the distance beyond one):
    in SDs of the differences. Without pairs Welch's t, and SDs of the difference of independent runs."""
    detectable_sd_corrected: float
    """The same at the level of the first step of the correction."""
    sd_difference: float | None
    """SD of the per-seed differences that `assume` implies; none without it."""
    detectable: float | None
    """The true effect (for does_not claims: the margin) found with power .80 by the registered test, on the claim's
    scale and counted from no effect, of a claim by at least D too; by simulation; none without `assume` or beyond
    reach."""
    power: float | None
    """The chance of "supported" at `effect`, by simulation of the registered rule; none without `assume`, or at
    smallest 0 where no effect is expected."""
    seeds_80: int | None
    """Fewest seeds with power .80 there; none without `assume`, for planned looks, or beyond reach."""
    seeds_90: int | None
    """Seeds for power .90."""
    effect: float | None = None
    """The true effect at which power and seeds are stated (`effect_when_true`): 0 for does_not claims."""
    power_error: float | None = None
    """Monte Carlo standard error of the power."""


def hypothesis_design(study: Study, name: str, beliefs: Beliefs) -> HypothesisDesign:
    hypothesis, claim, analysis = study.hypotheses[name], study.claims[name], study.analysis
    n = study.n_seeds
    # The first step's level is the smallest at which the claim is tested: sizes at it are on the safe side.
    level, kind = level_of(study, name), claim.kind.power
    floors = floors_at(study, name, n)
    # Floors of p and textbook sizes: exact, whatever is believed.
    runs, df = (n, None) if study.paired else welch_df(claim.weights, planned_sizes(study, n))
    sd = sd_difference(study, name, beliefs)
    return HypothesisDesign(
        hypothesis=name,
        claim=hypothesis.claim,
        role=hypothesis.role,
        family=len(study.corrected_with(name)),
        n=n,
        attainable_support=floors[0],
        attainable_refute=floors[1],
        can_be_supported=floors[0] <= analysis.alpha,
        can_be_refuted=floors[1] is not None and floors[1] <= analysis.alpha,
        needed=any((question.state, question.name) == ("supported", name) for question in study.rule.questions),
        # Sizes in SDs of the differences, which need no belief; what needs one is filled in by `power.planned`.
        detectable_sd=t_power.detectable(kind, runs, analysis.alpha, df=df),
        detectable_sd_corrected=t_power.detectable(kind, runs, level, df=df),
        sd_difference=sd,
        detectable=None,
        power=None,
        seeds_80=None,
        seeds_90=None,
    )


def floors_at(study: Study, name: str, n: int) -> tuple[float, float | None]:
    """Smallest corrected p for support and for refutation that any n pairs can give; none where nothing refutes."""
    _, refuting = nulls_in(study, name)
    family = len(study.family_of(name))
    return (
        support_floor(study, name, n),
        None if refuting is None else floor_of(study, family, n, _side(refuting)),
    )


def first_guess(study: Study, name: str, sd: float, target: float) -> int | None:
    """About how many seeds reach the power: a paired t's at the first step's level, in closed form."""
    kind, size = study.claims[name].kind.power, distance(study, name) / sd
    # A start for the search by simulation and no answer: it knows neither Holm's later steps nor the registered
    # test.
    seeds = t_power.seeds_for(kind, size, level_of(study, name), target) if size > 0.0 else None
    if seeds is None or study.paired:
        return seeds
    runs, _ = welch_df(study.claims[name].weights, planned_sizes(study, study.n_seeds))
    # An unequal design is as precise as an equal one of `runs` an arm: scaled by that.
    return ceil(seeds * study.n_seeds / runs)


def attainable(study: Study, name: str, n: int) -> bool:
    """Whether any n pairs can support the claim."""
    return support_floor(study, name, n) <= study.analysis.alpha


def support_floor(study: Study, name: str, n: int) -> float:
    """Smallest p for support that any n pairs can give, at the first step of the correction; under a gate with every p
    before it at its own smallest."""
    together = study.corrected_with(name)
    # The smallest floors of the whole gate: a step opens at best where every p before it is at its own.
    sides = {hypothesis: _side(nulls_in(study, hypothesis)[0]) for hypothesis in together}
    if not is_gated(study, together):
        return floor_of(study, len(together), n, sides[name])
    floors = [class_of_test(study.analysis.test).floor(n, sides[hypothesis]) for hypothesis in together]
    return adjusted(study.gate_steps, floors)[together.index(name)]


def floor_of(study: Study, family: int, n: int, side: Side) -> float:
    """Smallest p at the first step of the correction."""
    # Holm's first step is Bonferroni's: the smallest p of m counts m times.
    steps = family if study.analysis.correct == "holm" else 1
    return min(1.0, steps * class_of_test(study.analysis.test).floor(n, side))


def planned_sizes(study: Study, n: int) -> dict[str, int]:
    """Runs of every arm where the arm with most has n: as registered, or the others in the registered proportion."""
    return {arm: proportional(len(study.seeds_of(arm)), study.n_seeds, n) for arm in study.arms}


def _side(null: NullHypothesis) -> Side:
    """Which kind of test rejects a null, for the floors of p, which are those of either side."""
    return "two" if null.points[0][1] == "two" else "less"


def level_of(study: Study, name: str) -> float:
    """The level of the first step of the correction; under a gate the smallest at which support is ever tested."""
    return support_levels(study, name)[-1]


def sd_difference(study: Study, name: str, beliefs: Beliefs) -> float | None:
    """SD of a contrast; none where nothing is believed of its metric."""
    claim = study.claims[name]
    belief = beliefs.of(claim.metric, study.hypotheses[name].scale)
    return None if belief is None else contrast_sd(claim, belief.sd_of_rest, belief.sd_shared)


def standard_error(study: Study, name: str, beliefs: Beliefs, n: int) -> float | None:
    """Standard error of the estimate with n seeds; over new items with what they add."""
    sd = sd_difference(study, name, beliefs)
    if sd is None:
        return None
    belief = beliefs.of(study.claims[name].metric, study.hypotheses[name].scale)
    assert belief is not None, name
    weights = study.claims[name].weights
    squares = sum(weight**2 for weight in weights.values())
    if not study.paired:
        return sd / sqrt(welch_df(weights, planned_sizes(study, n))[0])
    # Var = sd^2 / n over seeds, plus what a new draw of items adds, which no number of seeds lowers.
    return hypot(sd / sqrt(n), sqrt(belief.variance_of_items * squares / 2.0))


def verdicts_of(study: Study) -> tuple[str, ...]:
    """Every verdict of the decision, once."""
    return tuple(dict.fromkeys(line.verdict for line in study.decision))


def unreachable_verdicts(study: Study, hypotheses: tuple[HypothesisDesign, ...]) -> tuple[str, ...]:
    """Verdicts that remain out of reach when impossible outcomes are left out: exact, by the rule's diagram."""
    possible: dict[str, list[Outcome]] = {}
    for hypothesis in hypotheses:
        # Inconclusive can always happen; the others only where a floor of p is at most alpha.
        possible[hypothesis.hypothesis] = ["inconclusive"]
        possible[hypothesis.hypothesis] += ["supported"] if hypothesis.can_be_supported else []
        possible[hypothesis.hypothesis] += ["refuted"] if hypothesis.can_be_refuted else []
    reached = {study.decision[line - 1].verdict for line in study.rule.reached(possible)}
    return tuple(verdict for verdict in verdicts_of(study) if verdict not in reached)


def way_out(study: Study, stuck: Sequence[tuple[str, Outcome]]) -> tuple[int | None, str]:
    """The fewest seeds, up to 30, with which data can show all of these outcomes; and a test without a floor of p."""
    instead = "test: paired_t" if study.paired else "test: welch"
    # 30 seeds of any test here have floors far below any alpha in use.
    for n in range(study.n_seeds + 1, 31):
        # floors_at gives (support, refutation): False is 0 and True is 1.
        floors = [floors_at(study, name, n)[outcome == "refuted"] for name, outcome in stuck]
        if all(floor is not None and floor <= study.analysis.alpha for floor in floors):
            return n, instead
    return None, instead


def remedy_of(study: Study, hypotheses: tuple[HypothesisDesign, ...]) -> str:
    """The fewest seeds with which every needed claim can be supported, or another test."""
    stuck: list[tuple[str, Outcome]] = [
        (planned.hypothesis, "supported") for planned in hypotheses if planned.needed and not planned.can_be_supported
    ]
    if not stuck:
        return ""
    n, instead = way_out(study, stuck)
    return instead if n is None else f"give {n} seeds, or {instead}"
