"""Diverged runs, whose pairs are left out: what that can do to outcomes and verdict.

Diverged runs are the worst seeds of their arm, and which arm lost them is no accident: the pairs that are left are the
luckier ones. So a verdict is given only if it is the same with the lost pairs at their worst. In a pair of which one
arm diverged, that arm lies at the worse end of its metric, which pushes the claim towards one of its ends: a claimed
gain of the arm towards "refuted", and a claimed gain over it towards "supported". The outcomes to reckon with are
those between the one that was found and that end. Dropping pairs of the baseline therefore leaves a supported gain as
it is, and dropping those of the arm that gains takes it away.

Here is what follows from the study alone; `ablate.judge.audit.sensitivity` applies it to evidence.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import Literal

from prereg.rule.condition import OUTCOMES, Outcome
from prereg.study.spec import Study
from prereg.text import listed

End = Literal["supported", "refuted"]
ENDS: tuple[End, ...] = ("supported", "refuted")
_MOST_CASES = 3**7
"""Combinations of outcomes and answers of `stable` that are tried before data; a larger rule gets a general line."""


def least_pairs(study: Study) -> int:
    """The fewest pairs with which a hypothesis that lost pairs is tested: registered, or half the seeds and three."""
    return least_of(study, len(study.seeds))


def least_of(study: Study, planned: int) -> int:
    """The same of so many planned pairs or, without pairs, of the planned runs of an arm."""
    return study.analysis.least_pairs or min(planned, max(3, (planned + 1) // 2))


def said_least(study: Study) -> str:
    """How many pairs must be left, as `3 of 5`; without pairs how many runs, for every arm where they differ."""
    sizes = dict.fromkeys(len(study.seeds_of(arm)) for arm in study.arms)
    return listed([f"{least_of(study, size)} of {size}" for size in sizes], last="or")


def pushed(study: Study, hypothesis: str, arm: str) -> frozenset[End]:
    """The ends towards which a diverged run of an arm pushes a claim; none where the claim does not name the arm.

    Both where the claim has no direction, where nothing says which way the metric improves, and where the arm cancels
    out of the claim: its pair is lost all the same.
    """
    claim = study.claims[hypothesis]
    if arm not in claim.named:
        return frozenset()
    weight = claim.weights.get(arm, 0.0)
    # At its worse end the metric rises where lower is better, and the effect with it by the sign of the arm's weight.
    if claim.better == "neither" or not weight or not claim.direction:
        return frozenset(ENDS)
    rises = (weight > 0) == (claim.better == "lower")
    return frozenset({"supported" if rises == (claim.favours > 0) else "refuted"})


def refutable(study: Study, hypothesis: str) -> bool:
    """Whether any data could refute the claim: none shows a difference to be exactly nothing."""
    return study.claims[hypothesis].kind.refuted != "margins" or study.hypotheses[hypothesis].smallest > 0


def between(outcomes: Collection[Outcome]) -> frozenset[Outcome]:
    """The outcomes given and those between them: inconclusive lies between supported and refuted.

    >>> sorted(between({"supported", "refuted"})), sorted(between({"supported"}))
    (['inconclusive', 'refuted', 'supported'], ['supported'])
    """
    ends = frozenset(outcomes)
    return ends | {"inconclusive"} if ends >= {"supported", "refuted"} else ends


def impossible_after(study: Study, arm: str) -> tuple[str, ...] | None:
    """Verdicts that can never be given once a run of the arm has diverged: no outcomes keep them with its pair at its
    worst. "inconclusive" is never among them. None where the rule has too many cases to try them all."""
    # Only what the rule asks about can change the verdict.
    read = {question.name for question in study.rule.questions if question.state != "stable"}
    claims = [name for name in study.hypotheses if name in read]
    arms = [name for name in study.arms if name in study.rule.arms_read and name != arm]
    if 3 ** len(claims) * 2 ** len(arms) > _MOST_CASES:
        return None
    planned = len(study.seeds_of(arm))
    too_few = planned - 1 < least_of(study, planned)
    possible = {name: _endings(study, name, arm, too_few=too_few) for name in claims}
    possible_verdicts = {"inconclusive"}
    # For every combination of outcomes to reckon with, and every answer about the other arms: a verdict is kept where
    # all cases within the combination give it.
    for ends in product(*possible.values()):
        outcomes = dict(zip(claims, ends, strict=True))
        for answers in product((False, True), repeat=len(arms)):
            stable = {name: (answer,) for name, answer in zip(arms, answers, strict=True)} | {arm: (False,)}
            verdicts = study.rule.verdicts(outcomes, stable)
            possible_verdicts |= set(verdicts) if len(verdicts) == 1 else set()
    return tuple(dict.fromkeys(line.verdict for line in study.decision if line.verdict not in possible_verdicts))


def _endings(study: Study, name: str, arm: str, *, too_few: bool) -> set[frozenset[Outcome]]:
    """For every outcome that can be found: the outcomes to reckon with once a run of the arm has diverged."""
    # An end that the claim cannot have (refuted, where nothing refutes) need not be reckoned with.
    ends = [end for end in pushed(study, name, arm) if end == "supported" or refutable(study, name)]
    # With too few pairs left a claim is not tested at all.
    possible = ("inconclusive",) if too_few and pushed(study, name, arm) else OUTCOMES
    return {between({outcome, *ends}) for outcome in possible if outcome != "refuted" or refutable(study, name)}


def cost_of_divergence(study: Study) -> dict[tuple[str, ...] | None, list[str]]:
    """Arms by what one diverged run of each costs: the verdicts of `impossible_after`. Arms that cost none are left
    out."""
    arms_by_cost: dict[tuple[str, ...] | None, list[str]] = {}
    for arm in study.arms:
        verdicts = impossible_after(study, arm)
        if verdicts != ():
            arms_by_cost.setdefault(verdicts, []).append(arm)
    return arms_by_cost


def _quoted(verdicts: tuple[str, ...]) -> str:
    return listed([f"'{verdict}'" for verdict in verdicts], last="or")


def said_losses(study: Study) -> tuple[str, ...]:
    """What becomes of a study in which a run diverges, in sentences."""
    what, of = ("pairs", "") if study.paired else ("runs", " of an arm")
    return (
        f"{'pairs of diverged runs' if study.paired else 'diverged runs'} are left out, and a verdict is given only if "
        f"it is the same with the lost {what} at their worst; a hypothesis that lost {what} is inconclusive with fewer "
        f"than {said_least(study)}{of} left",
        *(
            f"the rule has too many cases to say beforehand which verdicts a diverged run of {arms} would cost"
            if verdicts is None
            else f"once a run of {arms} has diverged, {_quoted(verdicts)} can no longer be given"
            for verdicts, names in cost_of_divergence(study).items()
            for arms in [listed(map(study.labels.arm, names), last="or")]
        ),
    )
