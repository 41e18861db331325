"""The two nulls of every claim, their p values, and what becomes of the claim after correction.

With effect = left - right and d = the registered `smallest`:

    claim            supported rejects                     refuted rejects
    lowers           effect = 0, towards lower, two-sided  effect <= -d, one-sided (improvement reaches d)
    raises           effect = 0, towards higher, two-sided effect >= +d, one-sided
    changes          effect = 0, two-sided                 |effect| >= d, two one-sided tests
    does_not_worsen  worsening >= d, one-sided             effect = 0, towards worse, two-sided
    does_not_change  |effect| >= d, two one-sided tests    effect = 0, two-sided

Why these levels. Against zero the test is two-sided at alpha and counts only in the claimed direction: a claim
that names its direction gets no discount for it. Against a margin it is one-sided at alpha, which is the
(1 - 2 alpha) interval beyond the margin (Schuirmann 1987). The side always comes from the claim, never from data.

At d = 0 `lowers` is refuted by one-sided evidence that the effect is above zero: improvement of any size is ruled
out. `changes` cannot be refuted at d = 0, because no data show a difference to be nothing.

What is promised. The p values for support of one role are corrected together, and separately those for
refutation. Within a role the chance of any false "supported" is therefore at most alpha, of any false "refuted" at
most alpha, and of either at most 2 alpha. (For a single `lowers` with d > 0 the two nulls exclude each other, so
there either is at most alpha.) A hypothesis that cannot be tested keeps its place in the family with p = 1: a
family that shrank with the data would correct too little.

When both hold: an improvement that is real but smaller than what matters refutes `lowers`, `raises` and `changes`;
a worsening that is real but smaller than what matters supports `does_not_worsen` and `does_not_change`.

This module knows no records and makes no sentence; `design` uses exactly these functions on simulated data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.judge.multiplicity import holm
from ablate.judge.procedure import Procedure
from ablate.judge.verdict import Outcome
from prereg.claim import Verb
from prereg.errors import UnsupportedError
from prereg.metrics import Better
from prereg.spec import Ceiling, Role, Study


@dataclass(frozen=True)
class Nulls:
    """p values of the two nulls of one claim, before correction."""

    support: float
    refute: float | None


@dataclass(frozen=True)
class Judged:
    """The same after correction, and the outcome."""

    support: float | None
    refute: float | None
    outcome: Outcome


def weigh(test: Procedure, verb: Verb, better: Better, smallest: float) -> Nulls:
    """Both p values of a claim."""
    if verb in ("lowers", "raises"):
        sign = -1 if verb == "lowers" else 1
        return Nulls(_towards(test, sign), _short_of(test, sign, smallest))
    if verb == "does_not_worsen":
        assert better != "neither", (verb, better)
        worse = 1 if better == "lower" else -1
        return Nulls(_short_of(test, worse, smallest), _towards(test, worse))
    two_sided = test.p(0.0, "two")
    if verb == "changes":
        return Nulls(two_sided, _within(test, smallest) if smallest > 0 else None)
    return Nulls(_within(test, smallest), two_sided)


def judge_families(study: Study, nulls: Mapping[str, Nulls | None]) -> dict[str, Judged]:
    """Correct within each role and give every hypothesis its outcome."""
    judged: dict[str, Judged] = {}
    for role in dict.fromkeys(hypothesis.role for hypothesis in study.hypotheses.values()):
        judged |= _judge_family(study, role, nulls)
    return {name: judged[name] for name in study.hypotheses}


def require_known_methods(study: Study) -> None:
    """Refuse what the study format can say and this judge cannot yet do, before any number is made."""
    unsupported = {
        "test: items": study.analysis.test == "items" or "items" in study.analysis.also,
        "correct: max_t": study.analysis.correct == "max_t",
        "estimand: new_seeds_and_items": study.analysis.estimand != "new_seeds",
        "a sequential stopping rule": study.stopping != "fixed",
        "on_divergence: rank": study.on_divergence == "rank",
    }
    for what, asked in unsupported.items():
        if asked:
            raise UnsupportedError(
                f"this version cannot judge {what}",
                required="a fixed number of seeds, a test over seeds, and holm or none",
            )
    metrics = sorted({claim.metric for claim in study.claims.values()})
    if isinstance(study.on_divergence, Ceiling) and len(metrics) > 1:
        raise UnsupportedError(
            f"one ceiling ({study.on_divergence.ceiling:g}) for {len(metrics)} metrics "
            f"({', '.join(metrics)}): the worst value of one may be the best of another",
            required="claims about one metric where a ceiling is registered",
            fix="on_divergence: exclude_pair",
        )


def _judge_family(study: Study, role: Role, nulls: Mapping[str, Nulls | None]) -> dict[str, Judged]:
    names = study.family(role)
    found = [nulls[name] for name in names]
    support = _corrected(study, [1.0 if one is None else one.support for one in found])
    refute = _corrected(study, [1.0 if one is None or one.refute is None else one.refute for one in found])
    judged = {}
    for name, one, adjusted_support, adjusted_refute in zip(names, found, support, refute, strict=True):
        if one is None:
            judged[name] = Judged(None, None, "inconclusive")
            continue
        supported = adjusted_support <= study.analysis.alpha
        refuted = one.refute is not None and adjusted_refute <= study.analysis.alpha
        if supported and refuted:
            supported = study.claims[name].verb.startswith("does_not")
        outcome: Outcome = "supported" if supported else "refuted" if refuted else "inconclusive"
        judged[name] = Judged(adjusted_support, adjusted_refute if one.refute is not None else None, outcome)
    return judged


def _corrected(study: Study, p: list[float]) -> tuple[float, ...]:
    return holm(p) if study.analysis.correct == "holm" else tuple(p)


def _towards(test: Procedure, sign: int) -> float:
    """Two-sided p against zero, worth nothing unless the test's own statistic points the claimed way."""
    return test.p(0.0, "two") if test.leaning == sign else 1.0


def _short_of(test: Procedure, sign: int, margin: float) -> float:
    """One-sided p of an effect that reaches the margin in the given direction."""
    return test.p(sign * margin, "less" if sign > 0 else "greater")


def _within(test: Procedure, margin: float) -> float:
    """TOST: the larger of the two one-sided p values."""
    assert margin > 0, margin
    return max(_short_of(test, 1, margin), _short_of(test, -1, margin))
