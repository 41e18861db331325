"""What one hypothesis can come to with the registered number of seeds: floors of p, power, seeds needed.

Power in closed form is a paired t's, and whoever shows it says so. The floors are those of the registered test after
the first step of the correction: below them no data can go.
"""

from __future__ import annotations

from math import sqrt

from ablate.judge import power
from ablate.judge.beliefs import Beliefs
from ablate.judge.max_t import p_floor_of
from ablate.judge.procedure import Side
from ablate.judge.sequential import EProcessT
from prereg.analysis import EProcess
from prereg.claim import Verb
from prereg.condition import parse_condition, questions
from prereg.part import Part
from prereg.spec import Study

KIND: dict[Verb, power.Kind] = {
    "lowers": "towards",
    "raises": "towards",
    "lowers_by": "margin",
    "raises_by": "margin",
    "changes": "either",
    "does_not_worsen": "margin",
    "does_not_change": "equivalence",
}
_MOST_FLOOR = 60
"""No exact test needs more seeds than this for its smallest p: 2 / 2^60."""


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


def hypothesis_design(study: Study, name: str, beliefs: Beliefs) -> HypothesisDesign:
    hypothesis, claim, analysis = study.hypotheses[name], study.claims[name], study.analysis
    n, family = len(study.seeds), len(study.family(hypothesis.role))
    level, kind = _level(study, name), KIND[claim.verb]
    support, refute = sides_of(claim.verb, hypothesis.smallest)
    floors = [None if side is None else floor_of(study, family, n, side) for side in (support, refute)]
    assert floors[0] is not None, name
    size = power.detectable(kind, n, level)
    sd = sd_difference(study, name, beliefs)
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
        needed=name in asked_to_be_supported(study),
        detectable_sd=power.detectable(kind, n, analysis.alpha),
        detectable_sd_corrected=size,
        sd_difference=sd,
        detectable=None if sd is None else size * sd,
        power_at_smallest=None if sd is None or not relative else power_of(study, name, sd, n),
        seeds_80=None if sd is None or not relative else _seeds(study, name, sd, 0.8),
        seeds_90=None if sd is None or not relative else _seeds(study, name, sd, 0.9),
    )


def power_of(study: Study, name: str, sd: float, n: int) -> float:
    """Power of a paired t at `smallest`, corrected; 0 where the registered test could not support the claim at all."""
    if not attainable(study, name, n):
        return 0.0
    size = study.hypotheses[name].smallest / sd
    return min(1.0, power.power(KIND[study.claims[name].verb], size, n, _level(study, name)))


def _seeds(study: Study, name: str, sd: float, target: float) -> int | None:
    """Fewest seeds that reach the power and that let the registered test support the claim at all."""
    size = study.hypotheses[name].smallest / sd
    n = power.seeds_for(KIND[study.claims[name].verb], size, _level(study, name), target)
    while n is not None and n < _MOST_FLOOR and not attainable(study, name, n):
        n += 1
    return n


def attainable(study: Study, name: str, n: int) -> bool:
    family = len(study.family(study.hypotheses[name].role))
    side = sides_of(study.claims[name].verb, study.hypotheses[name].smallest)[0]
    return floor_of(study, family, n, side) <= study.analysis.alpha


def floor_of(study: Study, family: int, n: int, side: Side) -> float:
    """Smallest p at the first step of the correction; of an e-process, with the most seeds."""
    if isinstance(study.stopping, EProcess):
        return min(1.0, EProcessT.floor(n) * (family if study.analysis.correct == "holm" else 1))
    return p_floor_of(study.analysis, family, n, side)


def sides_of(verb: Verb, smallest: float) -> tuple[Side, Side | None]:
    """Which kind of test supports and which refutes, for the floors of p."""
    if verb in ("lowers", "raises"):
        return "two", "less"
    if verb == "changes":
        return "two", "less" if smallest > 0 else None
    if verb in ("lowers_by", "raises_by"):
        return "less", "less"
    return "less", "two"


def _level(study: Study, name: str) -> float:
    """The level of the first step of the correction. Max-T is less strict; Holm's first step bounds it."""
    family = len(study.family(study.hypotheses[name].role))
    return study.analysis.alpha / (1 if study.analysis.correct == "none" else family)


def effect_when_true(study: Study, name: str) -> float:
    """The effect at which a claim's power is stated: `smallest`; twice that for a claim of at least `smallest`, which is
    at its border there; none for a claim of no change."""
    verb, smallest = study.claims[name].verb, study.hypotheses[name].smallest
    return {
        "lowers": -smallest,
        "raises": smallest,
        "changes": smallest,
        "lowers_by": -2.0 * smallest,
        "raises_by": 2.0 * smallest,
    }.get(verb, 0.0)


def sd_difference(study: Study, name: str, beliefs: Beliefs) -> float | None:
    """SD of a contrast: with equal SDs and correlations, Var = sd^2 (1 - r) sum(w^2), because the weights sum to 0."""
    claim = study.claims[name]
    belief = beliefs.of(claim.metric, study.hypotheses[name].scale)
    if belief is None:
        return None
    return belief.sd_of_rest * sqrt(sum(weight**2 for weight in claim.weights.values()))


def asked_to_be_supported(study: Study) -> set[str]:
    return {
        question.name
        for line in study.decision
        if line.when is not None
        for question in questions(parse_condition(line.when))
        if question.asked == "supported"
    }
