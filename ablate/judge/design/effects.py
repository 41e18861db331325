"""Effects and spreads at which a claim's power is stated. Loads little, because `ablate check` needs it."""

from __future__ import annotations

from math import hypot, sqrt

from prereg.study.claim import Claim
from prereg.study.spec import Study

FEWEST_FOR_CORRELATION = 10
"""Seeds. From 3, Pearson's r of two arms that share nothing is beyond .7 in half of all pilots (the arcsine law)."""


def effect_when_true(study: Study, name: str) -> float:
    """The effect at which a claim's power, and the seeds that give it, are stated, in design, documents and report: the
    one that `assume` expects; else `smallest`, or twice that for a claim by at least `smallest`, which is at its border
    there and found with a chance of alpha; 0 for a claim of no change. Wherever such a number is shown, the effect is
    shown with it."""
    # Power at `smallest` itself would be alpha for a claim by at least that: the effect lies on its null.
    kind, smallest = study.claims[name].kind, study.hypotheses[name].smallest
    if kind.is_absence:
        return 0.0
    sign = study.claims[name].direction or 1
    return sign * study.assume.effects.get(name, 2.0 * smallest if kind.has_margin else smallest)


def power_is_stated(study: Study, name: str) -> bool:
    """Whether there is such an effect: where no difference matters and none is expected, there is none."""
    return study.claims[name].kind.is_absence or effect_when_true(study, name) != 0.0


def distance(study: Study, name: str) -> float:
    """How far that effect lies from the null that is to be rejected; of a claim of no change its margin."""
    # From zero, or for a claim by at least D from D; a claim of no change has effect 0 and its margin to go.
    smallest, effect = study.hypotheses[name].smallest, abs(effect_when_true(study, name))
    beyond = smallest if study.claims[name].by is not None else 0.0
    return smallest if effect == 0.0 else effect - beyond


def contrast_sd(claim: Claim, of_rest: float, shared: float) -> float:
    """SD of a contrast: with equal SDs and correlations, Var = sd^2 (1 - r) sum(w^2), because the weights sum to 0; of
    a claim against a constant, whose weights sum to 1, it is sd^2 r more."""
    sd = of_rest * sqrt(sum(weight**2 for weight in claim.weights.values()))
    return sd if claim.constant is None else hypot(sd, shared)
