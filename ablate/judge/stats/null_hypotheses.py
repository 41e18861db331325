"""Null hypotheses: the two of every claim, from which side and at which level each is rejected, and their p values.

With effect = left - right (a constant where the claim names one) and d = the registered `smallest`:

    claim            supported rejects                     refuted rejects
    lowers           effect = 0, towards lower, two-sided  effect <= -d, one-sided (improvement reaches d)
    raises           effect = 0, towards higher, two-sided effect >= +d, one-sided
    lowers by d      effect >= -d, one-sided               effect <= -d, one-sided
    raises by d      effect <= +d, one-sided               effect >= +d, one-sided
    lowers below c   effect >= 0, one-sided                effect <= -d, one-sided
    raises above c   effect <= 0, one-sided                effect >= +d, one-sided
    changes          effect = 0, two-sided                 |effect| >= d, two one-sided tests
    does_not_worsen  worsening >= d, one-sided             effect = 0, towards worse, two-sided
    does_not_change  |effect| >= d, two one-sided tests    effect = 0, two-sided

Why these levels. Against zero the test is two-sided at alpha and counts only in the claimed direction: a claim
that names its direction gets no discount for it. Against a margin it is one-sided at alpha, which is the
(1 - 2 alpha) interval beyond the margin (Schuirmann 1987). The side always comes from the claim, never from data.
A constant is a margin: the claim is about one side of it and nobody asks whether the mean equals it.

At d = 0 `lowers` is refuted by one-sided evidence that the effect is above zero: improvement of any size is ruled
out. So is `lowers below c`: at d = 0 its two nulls are the two sides of the constant, and of every mean one of them is
true, so that either error is at most alpha. `changes` cannot be refuted at d = 0, because no data show a difference to
be nothing.

What is promised, where the test's assumptions hold and no further. The p values for support of one role are corrected
together, and separately those for refutation; claims written from one line `per: task` are a family of their own, and
what is said of a role here holds of it and of the rest of its role, each by itself: of k families the errors add up to
at most k alpha (.143 of two families and a claim in one role: tests/prereg/test_per_task_families.py). Within a role
the chance of any false "supported" is therefore at most alpha, of any false "refuted" at most alpha, and of either at
most 2 alpha. (For a single `lowers` with d > 0 the two nulls exclude each other, so there either is at most alpha.) A
hypothesis that cannot be tested keeps its place in the family with p = 1: a family that shrank with the data would
correct too little.

When both hold: an improvement that is real but smaller than what matters refutes `lowers`, `raises` and `changes`;
a worsening that is real but smaller than what matters supports `does_not_worsen` and `does_not_change`.

Differences that are all exactly zero have no t. On a metric that is no count they reject every margin all the same:
arms that differed would differ in it (`why_zeros_are_open`). No error rate stands behind that rule; a change that acts
in few runs is what it misses, and the finding says in how many.

Under a `gate` one alpha holds over the supports of all roles, by the steps of `ablate.judge.stats.multiplicity`:
any false "supported" has at most alpha, where the test's assumptions hold. Refutations are corrected by role, as
without one. What opens a gate is the rejected null of support, also where the finding is then refuted for being too
small to matter.

To add a verb of claims: a row of `KINDS` in `prereg.study.verbs` names the two nulls; a new kind of null is a row of
`_rejected` here.

This module knows no records and makes no sentence; outcomes are given by `ablate.judge.judge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from ablate.judge.stats.significance_tests import Floats, Side, SignificanceTest
from ablate.judge.verdict import Estimate, Finding, Interval, MarginTest
from prereg.metrics.catalogue import Better
from prereg.rule.condition import Outcome
from prereg.study.spec import Study
from prereg.study.verbs import KINDS, Rejected, Verb

EDGE: Final = 1e-9
"""True effects this close to a null, relative to its margin, lie on it."""


@dataclass(frozen=True)
class NullHypothesis:
    """What must be rejected: every point, from its side, and the test's statistic must point `towards` if not 0."""

    points: tuple[tuple[float, Side], ...]
    towards: int = 0

    def p(self, test: SignificanceTest, by: float = 0.0) -> Floats:
        """p of the null, row by row: two points are an intersection-union test, and the larger p counts.

        With `by`, of the same studies with every difference moved by so much: they meet a point as the rows meet
        point - by.
        """
        p_of_points = [test.p(point - by, side) for point, side in self.points]
        # Intersection-union: all points must be rejected, each at the full level (Berger 1982).
        p = p_of_points[0] if len(p_of_points) == 1 else np.maximum(*p_of_points)
        # Two-sided and rejected the other way is no evidence for this claim: p is 1, not 1 - p / 2.
        return np.where(test.leaning_at(-by) == self.towards, p, 1.0) if self.towards else p

    def excludes(self, effect: float) -> bool:
        """Whether the null is false at a true effect. One within `EDGE` of a point, relative to it, lies on it."""
        # Against zero without a margin: false as soon as the effect has the claimed sign.
        if self.towards:
            return effect * self.towards > 0.0
        return all(
            effect != point
            if side == "two"
            else (effect - point) * (1.0 if side == "greater" else -1.0) > EDGE * abs(point)
            for point, side in self.points
        )


@dataclass(frozen=True)
class Nulls:
    """p values of the two nulls of one claim, before correction."""

    support: float
    refute: float | None


def levels_of(study: Study, name: str) -> tuple[float, ...]:
    """The levels at which the correction may test a hypothesis, descending; under a gate of support and refutation."""
    # Holm tests the k-th smallest of m at alpha / (m - k + 1): every alpha / step can occur.
    family = 1 if study.analysis.correct == "none" else len(study.family_of(name))
    steps = tuple(study.analysis.alpha / step for step in range(1, family + 1))
    return tuple(sorted({*steps, *support_levels(study, name)}, reverse=True)) if study.gate_steps else steps


def support_levels(study: Study, name: str) -> tuple[float, ...]:
    """The levels at which support of a hypothesis may be tested, descending."""
    for step in study.gate_steps:
        if name in step:
            return tuple(study.analysis.alpha / left for left in range(1, len(step) + 1))
    return levels_of(study, name)


def interval_level(study: Study, name: str) -> float:
    """The level of a Bonferroni interval; under a gate over the hypotheses of its first step, and 0 for all others."""
    together = study.corrected_with(name)
    if not is_gated(study, together):
        return study.analysis.alpha / len(together)
    # Only the first step's level is certain before data: a simultaneous interval needs a level fixed in advance.
    first = study.gate_steps[0]
    return study.analysis.alpha / len(first) if name in first else 0.0


@lru_cache(maxsize=1024)
def nulls_of(verb: Verb, better: Better, smallest: float) -> tuple[NullHypothesis, NullHypothesis | None]:
    """What a claim must reject to be supported, and to be refuted: a row of the table above.

    Returns
    -------
    Both nulls; none of refutation where no data could refute the claim.

    Examples
    --------
    "lowers by at least .1" is supported below -.1, and refuted above it.

    >>> support, refute = nulls_of("lowers_by", "lower", 0.1)
    >>> support.points, refute.points
    (((-0.1, 'less'),), ((-0.1, 'greater'),))
    """
    kind = KINDS[verb]
    assert kind.towards != "worse" or better != "neither", (verb, better)
    sign = kind.direction(better)
    # No data show a difference to be exactly nothing: `changes` at a margin of 0 is never refuted.
    refutable = kind.refuted != "margins" or smallest > 0.0
    support = _rejected(kind.supported, sign, smallest)
    return support, _rejected(kind.refuted, sign, smallest) if refutable else None


def _rejected(rejected: Rejected, sign: int, smallest: float) -> NullHypothesis:
    """The null of a row of `KINDS`."""
    return {
        "zero": lambda: towards_(sign),
        "short of margin": lambda: beyond(sign, smallest),
        "short of zero": lambda: beyond(sign, 0.0),
        "margin": lambda: short_of(sign, smallest),
        "margins": lambda: within(smallest),
    }[rejected]()


def nulls_in(study: Study, name: str) -> tuple[NullHypothesis, NullHypothesis | None]:
    """`nulls_of` a hypothesis of a study, at its registered margin."""
    return nulls_of(study.claims[name].verb, study.claims[name].better, study.hypotheses[name].smallest)


def why_zeros_are_open(study: Study, name: str) -> str:
    """Why differences that are all exactly zero would say nothing about the margin of a claim; empty where they would
    show that less than the margin is left. What only recorded values can say is `ablate.judge.readings`'s."""
    claim, declared = study.claims[name], study.declaration(study.claims[name].metric)
    if claim.constant is not None:
        return "equal to a constant is no comparison of arms"
    if study.hypotheses[name].smallest == 0.0:
        return "the claim has no margin"
    if declared is not None and declared.is_count:
        return f"{claim.metric} counts ({declared.unit or 'a number'}), and arms that differ can have equal counts"
    return ""


def rejected_null(verb: Verb, better: Better, smallest: float, outcome: Outcome) -> NullHypothesis | None:
    """The null whose rejection is the outcome; none of an inconclusive one.

    Examples
    --------
    >>> rejected_null("changes", "lower", 0.1, "refuted").points  # two one-sided tests
    ((0.1, 'less'), (-0.1, 'greater'))
    """
    support, refute = nulls_of(verb, better, smallest)
    return {"supported": support, "refuted": refute}.get(outcome)


def excludes(bounds: Interval, null: NullHypothesis) -> bool:
    """Whether no value of a null lies in an interval; an open end holds every value beyond.

    Examples
    --------
    >>> bounds = Interval(low=0.2, high=None, level=0.95)
    >>> excludes(bounds, towards_(1)), excludes(bounds, beyond(1, 0.3))
    (True, False)
    """
    low = float("-inf") if bounds.low is None else bounds.low
    high = float("inf") if bounds.high is None else bounds.high
    # Rejected from below: every value of the interval lies below the null's point. Ends are compared strictly, so a
    # point on an end is not excluded.
    outside = {"less": lambda value: high < value, "greater": lambda value: low > value}
    return all(
        outside[side_](value) if side_ in outside else high < value or low > value for value, side_ in null.points
    )


def deciding_interval(
    claim: tuple[Verb, Better, float],
    outcome: Outcome,
    estimate: Estimate | None,
    *,
    simultaneous: Interval | None,
    margin: MarginTest | None,
    step: Interval | None = None,
) -> Interval | None:
    """The interval of a finding that sentences, tables, figures and the terminal show: that of its kind of claim
    (`VerbKind.has_bounds`), whatever the outcome. Where that does not show an outcome that was found, the first that
    does: the one of the test against the margin, then that of the step of the correction which decided. Else none:
    only p.

    `claim` is its verb, the better direction and the smallest difference that matters.
    """
    if estimate is None:
        return None
    # A claim with bounds is judged against its margin; any other against zero, in its family's interval.
    against_zero, against_margin = simultaneous or estimate.interval, None if margin is None else margin.interval
    first = against_margin if margin is not None and KINDS[claim[0]].has_bounds else against_zero
    # An inconclusive finding rejects nothing that an interval could fail to show.
    null = rejected_null(*claim, outcome)
    if null is None:
        return first
    candidates = (first, against_margin, step)
    return next((bounds for bounds in candidates if bounds is not None and excludes(bounds, null)), None)


def found_nulls(findings: Iterable[Finding]) -> dict[str, Nulls | None]:
    """The p values of findings, by hypothesis; none of one that could not be tested."""
    return {
        finding.hypothesis: None if finding.p_support is None else Nulls(finding.p_support, finding.p_refute)
        for finding in findings
    }


def is_gated(study: Study, names: Sequence[str]) -> bool:
    """Whether hypotheses that are corrected together are those of the gate."""
    return bool(study.gate_steps) and study.hypotheses[names[0]].role != "exploratory"


def towards_(sign: int) -> NullHypothesis:
    """No effect, two-sided, worth nothing unless the test's own statistic points the claimed way (0: either way).

    Examples
    --------
    >>> towards_(-1).excludes(-0.2), towards_(-1).excludes(0.2), towards_(0).excludes(0.2)
    (True, False, True)
    """
    return NullHypothesis(((0.0, "two"),), sign)


def short_of(sign: int, margin: float) -> NullHypothesis:
    """An effect that reaches the margin in the given direction, one-sided.

    Examples
    --------
    >>> short_of(-1, 0.1).excludes(-0.05), short_of(-1, 0.1).excludes(-0.1)
    (True, False)
    """
    return NullHypothesis(((sign * margin, "less" if sign > 0 else "greater"),))


def beyond(sign: int, margin: float) -> NullHypothesis:
    """An effect that falls short of the margin in the given direction, one-sided.

    Examples
    --------
    >>> beyond(-1, 0.1).excludes(-0.2), beyond(-1, 0.1).excludes(-0.05)
    (True, False)
    """
    return NullHypothesis(((sign * margin, "greater" if sign > 0 else "less"),))


def within(margin: float) -> NullHypothesis:
    """TOST: an effect that reaches the margin in either direction; the larger of the two one-sided p
    values counts (Schuirmann 1987).

    Examples
    --------
    >>> within(0.1).excludes(0.05), within(0.1).excludes(-0.2)
    (True, False)
    """
    assert margin > 0, margin
    return NullHypothesis((*short_of(1, margin).points, *short_of(-1, margin).points))
