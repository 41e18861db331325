"""What a study that leaves out the pairs of diverged runs must ask of its arms, so that the rest may decide.

Diverged runs are the worst seeds of their arm: leaving them out is honest only where the decision asks whether the arm
is stable. Which runs diverged is seen by the judge; here is only what the study says.
"""

from __future__ import annotations

from prereg.condition import parse_condition, questions
from prereg.spec import Study


def unasked_arms(study: Study) -> tuple[str, ...]:
    """Arms of which one diverged run makes the study inadmissible; none where divergence is handled otherwise."""
    if study.on_divergence != "exclude_pair":
        return ()
    asked = {
        question.name
        for line in study.decision
        if line.when is not None
        for question in questions(parse_condition(line.when))
        if question.asked == "stable"
    }
    return tuple(arm for arm in study.arms if arm not in asked)


def said_unasked(study: Study) -> str:
    """The warning, with the line that mends it; empty where there is nothing to warn of."""
    arms = unasked_arms(study)
    if not arms:
        return ""
    ranked = ", or write on_divergence: rank with a test of signs or ranks" if study.stopping == "fixed" else ""
    return (
        f"should a run of {' or '.join(arms)} diverge, its pair is left out and the study ends inadmissible, with no "
        f"verdict, because no line of the decision asks stable({arms[0]}); ask it there{ranked}"
    )
