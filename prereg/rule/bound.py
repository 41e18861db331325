"""On which findings an adopting verdict rests, from the decision list alone.

A verdict adopts where one of its lines asks `supported(H)`. It errs if it rests on a false finding, or if an arm that
it adopts is in truth beyond the margin of a claim that it does no harm (`ablate.judge.design.simulate`).
"""

from __future__ import annotations

from collections.abc import Collection

from prereg.rule.condition import All, AnyOf, Condition, Not, Question, State
from prereg.study.designs.ties import ROLE, TieBreakers, line_of_the_tie
from prereg.study.spec import Study
from prereg.text import compact, listed


def needed_support(study: Study) -> dict[str, set[str]]:
    """Verdict -> the hypotheses whose support its lines need; nothing for "inconclusive"."""
    found: dict[str, set[str]] = {line.verdict: set() for line in study.decision}
    for line, condition in zip(study.decision, study.rule.conditions, strict=True):
        if condition is not None and line.verdict != "inconclusive":
            found[line.verdict] |= _supports(condition)
    return found


def adopting_claims(study: Study, names: Collection[str]) -> tuple[str, ...]:
    """Of the hypotheses whose support a verdict needs those whose arms it adopts: the tie-breakers among them, else
    all."""
    deciding = tuple(name for name in names if study.hypotheses[name].role == ROLE)
    return deciding or tuple(names)


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


def tie_errors(study: Study) -> str:
    """What bounds a verdict by a tie-breaker, in a sentence's part; nothing where tie-breakers do not decide.

    Such a verdict is wrong if the arm is not better by the margin, or if a finding that the tie needs is false. Where
    the tie needs all of its findings, one that is false must have been made, which has at most alpha; where none is
    false, a tie-breaking claim must be, and over all of them that has at most alpha too (intersection-union test).
    Where it may hold by one of several findings, `_errors_of_the_tie` says how many alphas add up.
    """
    ties = study.tie_breakers
    if not isinstance(ties, TieBreakers):
        return ""
    alpha, n = study.analysis.alpha, len(study.families[ROLE])
    condition, absent = _tie(study), absences_of_the_tie(study)
    if study.analysis.correct == "none" and not study.gate_steps:
        return f"not held: no correction is registered, and the errors of {n} tie-breaking claims add up"
    if absent:
        return (
            f"the arm that it names is not better by the margin in at most {compact(alpha)}, where the tests' "
            "assumptions hold; nothing bounds how often arms are called tied that are not, because the tie rests on "
            f"the absence of a finding ({listed(absent)}), which is the likeliest end of a small study"
        )
    errors = _errors_of_the_tie(study, condition)
    tie = "the tie is a finding" if errors == 1 else "the tie may be one of several findings, whose errors add up"
    return (
        "wrong (a finding that the tie needs is false, or the arm is not better by the margin) in at most "
        f"{compact(min(1.0, alpha * errors))}, where the tests' assumptions hold: {tie}, and any false support of the "
        f"{n} tie-breaking claims has at most {compact(alpha)}"
    )


def absences_of_the_tie(study: Study) -> tuple[str, ...]:
    """The parts of the tie's condition that hold where nothing was found; nothing where tie-breakers do not decide."""
    return absences_of(_tie(study)) if isinstance(study.tie_breakers, TieBreakers) else ()


def _tie(study: Study) -> Condition:
    condition = study.rule.conditions[line_of_the_tie(study)]
    assert condition is not None, study.decision
    return condition


def absences_of(condition: Condition, wanted: bool = True) -> tuple[str, ...]:
    """The parts of a condition that hold where nothing was found: `inconclusive(H)`, `not supported(H)`, `not
    refuted(H)`."""
    match condition:
        case Question(state="stable"):
            return ()
        case Question(state=state, name=name):
            absent = (state == "inconclusive") is wanted
            return (f"{'' if wanted else 'not '}{state}({name})",) if absent else ()
        case Not(part=part):
            return absences_of(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            return tuple(dict.fromkeys(one for part in parts for one in absences_of(part, wanted)))


def _errors_of_the_tie(study: Study, condition: Condition) -> int:
    """How many errors of at most alpha each can make a verdict by a tie-breaker wrong, whatever the true effects are.

    One where a single case is left. Else the tie may rest on a false finding of any kind, and where another case is
    true, on that one and a false tie-breaking claim. The two do not go together where every kind has one case: the case
    that is true takes its kind away.
    """
    cases = _cases(condition)
    if len(cases) == 1:
        return 1
    kinds = [kind for case in cases for kind in {_kind(study, *finding) for finding in case}]
    found = set(kinds)
    if len(found) < len(kinds) or frozenset() in cases:
        found.add(_kind(study, study.families[ROLE][0], "supported"))
    return len(found)


def _kind(study: Study, name: str, state: State) -> tuple[State, str]:
    """Findings of one kind have one alpha for any false one among them: those that are corrected together."""
    groups = study.corrected_together if state == "supported" else study.families
    return state, next(group for group, names in groups.items() if name in names)


def _cases(condition: Condition, wanted: bool = True) -> set[frozenset[tuple[str, State]]]:
    """The findings (hypothesis, outcome) by which a condition may hold, those that are needed together in one set; an
    empty set where it may hold by what is stable. Of conditions without absences."""
    match condition:
        case Question(state="stable"):
            return {frozenset()}
        case Question(state="inconclusive", name=name):
            # Not inconclusive, since there are no absences: either finding will do.
            return {frozenset({(name, "supported")}), frozenset({(name, "refuted")})}
        case Question(state=state, name=name):
            return {frozenset({(name, state)})}
        case Not(part=part):
            return _cases(part, not wanted)
        case All(parts=parts) | AnyOf(parts=parts):
            found = [_cases(part, wanted) for part in parts]
            if isinstance(condition, AnyOf) is wanted:
                return set().union(*found)
            needed = frozenset().union(*(case for cases in found if len(cases) == 1 for case in cases))
            several = set().union(*(cases for cases in found if len(cases) > 1))
            return several | {needed} if needed or not several else several
