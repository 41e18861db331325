"""Outcomes of two hypotheses that no data can bring about together: a claim and its converse.

Support of `lowers` and `raises`, and refutation of `does_not_worsen`, rest on a test against zero that counts in one
direction only, that of the test's own statistic. Two hypotheses about the same differences (the same weights but for
their sign and size, metric, scale and reading) see the same statistic, so outcomes that need it to point both ways
exclude each other. Nothing else is called a contradiction here: a difference can be real and smaller than what
matters, and the mean of logarithms may point another way than the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from prereg.claim import Claim
from prereg.condition import Outcome
from prereg.metrics import Better

if TYPE_CHECKING:
    from prereg.hypothesis import Hypothesis

Ending = tuple[str, Outcome]
"""A hypothesis and how it ends."""


@dataclass(frozen=True)
class Contradiction:
    """Two endings that exclude each other."""

    first: Ending
    second: Ending


def contradictions(
    hypotheses: Mapping[str, Hypothesis], claims: Mapping[str, Claim], better: Callable[[str], Better]
) -> tuple[Contradiction, ...]:
    """Every such pair of a study, in the order of its hypotheses."""
    found = []
    for one, other in combinations(hypotheses, 2):
        turned = _turned(claims[one], claims[other])
        apart = (hypotheses[one].scale, hypotheses[one].read) != (hypotheses[other].scale, hypotheses[other].read)
        if turned is None or apart:
            continue
        for first, towards in _directed(claims[one], better(one)):
            for second, its in _directed(claims[other], better(other)):
                if towards != its * turned:
                    found.append(Contradiction((one, first), (other, second)))
    return tuple(found)


def _directed(claim: Claim, better: Better) -> list[tuple[Outcome, int]]:
    """Endings that need the statistic to point one way, with that way."""
    if claim.verb == "lowers":
        return [("supported", -1)]
    if claim.verb == "raises":
        return [("supported", 1)]
    if claim.verb == "does_not_worsen" and better != "neither":
        return [("refuted", 1 if better == "lower" else -1)]
    return []


def _turned(one: Claim, other: Claim) -> int | None:
    """1 if two claims read the same differences, -1 if the one reads the other's with the sign turned, else None.

    Arms that cancel out count too: a seed that they lack is lacking in their claim only.
    """
    if one.metric != other.metric or set(one.named) != set(other.named):
        return None
    left, right = one.weights, other.weights
    if not left or set(left) != set(right):
        return None
    sizes = [left[arm] / right[arm] for arm in left]
    # Exactly proportional: what differs by rounding could point both ways.
    return (1 if sizes[0] > 0 else -1) if all(size == sizes[0] for size in sizes) else None
