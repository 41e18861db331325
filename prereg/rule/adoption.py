"""On which findings an adopting verdict rests, from the decision list alone.

A verdict adopts where one of its lines asks `supported(H)`. It errs if it rests on a false finding, or if an arm that
it adopts is in truth beyond the margin of a claim that it does no harm (`ablate.judge.design.simulate`).
"""

from __future__ import annotations

from prereg.rule.condition import All, AnyOf, Condition, Not, Question
from prereg.study.spec import Study


def needed_support(study: Study) -> dict[str, set[str]]:
    """Verdict -> the hypotheses whose support its lines need; nothing for "inconclusive"."""
    found: dict[str, set[str]] = {line.verdict: set() for line in study.decision}
    for line, condition in zip(study.decision, study.rule.conditions, strict=True):
        if condition is not None and line.verdict != "inconclusive":
            found[line.verdict] |= _supports(condition)
    return found


def resting_on_worse(study: Study) -> tuple[tuple[str, str], ...]:
    """(verdict, hypothesis) of each line that needs `supported(H)` where H says, by `raises` or `lowers`, that a metric
    gets worse: such a claim may be turned the wrong way round."""
    found = []
    for verdict, names in needed_support(study).items():
        for name in sorted(names):
            claim = study.claims[name]
            worse = {"raises": "lower", "lowers": "higher"}.get(claim.plain_verb)
            if worse is not None and claim.better == worse and study.components is None:
                found.append((verdict, name))
    return tuple(found)


def _supports(condition: Condition, wanted: bool = True) -> set[str]:
    """Hypotheses whose support a condition needs."""
    match condition:
        case Question(state=state, name=name):
            return {name} if wanted and state == "supported" else set()
        case Not(part=part):
            return _supports(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            return set().union(*(_supports(part, wanted) for part in parts))
