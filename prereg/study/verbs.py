"""Verbs of claims, one row each: which null is rejected to support a claim and to refute it, and which way it points.

With effect = left - right (a constant where the claim names one) and d = the smallest difference that matters, what is
rejected is

    zero             effect = 0, two-sided, towards the verb's direction where it has one
    short of margin  the effect falls short of d in that direction, one-sided: what is left is d or more
    short of zero    the same of 0, for a claim about a constant
    margin           the effect reaches d in that direction, one-sided: what is left is less than d
    margins          the effect reaches d in either direction, two one-sided tests: what is left is less than d

`ablate.judge.stats.null_hypotheses` tests them, `prereg.documents.claims` writes them down, `ablate.judge.design` plans
by them.

To add a verb: a row of `KINDS`, its word in `PlainVerb` and in the grammar of `prereg.study.claim` (`CLAIMS`, next to
the verbs that the same words may follow), what it claims in `MEANS_OF_VERBS`, and its designs in tests/designs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from prereg.metrics.catalogue import Better

PlainVerb = Literal["lowers", "raises", "changes", "does_not_worsen", "does_not_change"]
Verb = Literal[
    "lowers",
    "raises",
    "changes",
    "does_not_worsen",
    "does_not_change",
    "lowers_by",
    "raises_by",
    "lowers_below",
    "raises_above",
]
VERBS: tuple[PlainVerb, ...] = get_args(PlainVerb)
"""What a study can write."""

Rejected = Literal["zero", "short of margin", "short of zero", "margin", "margins"]
Towards = Literal["lower", "higher", "worse", "either"]


@dataclass(frozen=True)
class VerbKind:
    """What one verb claims."""

    plain: PlainVerb
    """As a study writes it."""
    bare: str
    """As a sentence says it: `does not worsen`."""
    towards: Towards
    """The effects that the verb speaks of."""
    supported: Rejected
    """What is rejected where it is supported."""
    refuted: Rejected
    """What is rejected where it is refuted; `margins` only at a margin above zero."""
    power: Literal["towards", "either", "margin", "equivalence"]
    """How its power is computed (`ablate.judge.stats.t_power.Kind`)."""

    @property
    def is_absence(self) -> bool:
        """Whether it claims that an effect is less than the margin."""
        return self.supported in ("margin", "margins")

    @property
    def has_margin(self) -> bool:
        """Whether it claims an effect of at least the margin."""
        return self.supported == "short of margin"

    @property
    def has_bounds(self) -> bool:
        """Whether it is about a margin or a constant, so that its interval is at 1 - 2 alpha and each end a one-sided
        bound at 1 - alpha; that of a claim about zero is two-sided at 1 - alpha."""
        return self.supported != "zero"

    def direction(self, better: Better) -> int:
        """The sign of an effect that goes the way the verb speaks of; 0 for either.

        >>> [KINDS[verb].direction("lower") for verb in ("lowers", "does_not_worsen", "changes")]
        [-1, 1, 0]
        """
        # Without a better side worse would have none either; such claims are refused before this is asked.
        if self.towards == "worse":
            return 1 if better == "lower" else -1
        return {"lower": -1, "higher": 1, "either": 0}[self.towards]

    def against_margin(self, outcome: str) -> bool:
        """Whether an outcome is a test against the margin or a constant; else it is one against zero."""
        rejected = self.refuted if outcome == "refuted" else self.supported
        return rejected not in ("zero", "short of zero")


# A claim of presence is refuted by showing that less than the margin is left, a claim of absence by showing an effect
# at all. So the two columns of nulls change places between them; `margins` is `margin` for a claim without direction.
KINDS: Final[Mapping[Verb, VerbKind]] = {
    "lowers": VerbKind("lowers", "lower", "lower", "zero", "margin", "towards"),
    "raises": VerbKind("raises", "raise", "higher", "zero", "margin", "towards"),
    "lowers_by": VerbKind("lowers", "lower", "lower", "short of margin", "margin", "margin"),
    "raises_by": VerbKind("raises", "raise", "higher", "short of margin", "margin", "margin"),
    "lowers_below": VerbKind("lowers", "lower", "lower", "short of zero", "margin", "margin"),
    "raises_above": VerbKind("raises", "raise", "higher", "short of zero", "margin", "margin"),
    "changes": VerbKind("changes", "change", "either", "zero", "margins", "either"),
    "does_not_worsen": VerbKind("does_not_worsen", "worsen", "worse", "margin", "zero", "margin"),
    "does_not_change": VerbKind("does_not_change", "change", "either", "margins", "zero", "equivalence"),
}

MEANS_OF_VERBS: Mapping[str, str] = {
    "lowers, raises": "the metric is lower, or higher: any effect that way supports it, and ruling out an effect of "
    "`smallest` that way refutes it",
    "lowers, raises ... by at least D": "the effect that way is D or more (superiority by a margin)",
    "lowers ... below C, raises ... above C": "the mean of the arm lies beyond the constant C; one-sided",
    "changes": "there is an effect, either way",
    "does_not_worsen": "any harm is smaller than `smallest` (non-inferiority); the metric needs a direction",
    "does_not_change": "any effect, either way, is smaller than `smallest` (equivalence)",
}
"""What each verb claims, for the documentation."""

BEYOND: dict[PlainVerb, str] = {"lowers": "below", "raises": "above"}
"""The word before a constant, by verb."""
